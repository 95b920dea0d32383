/* A picture from a prompt:  txt2img -m model.safetensors -p "a red apple" -o apple.png */
#include "common.h"

int main(int argc, char** argv) {
    options_t options = default_options();
    if (!parse(&options, argc, argv,
               "-m MODEL -p PROMPT [-n NEGATIVE] [-o FILE.png] [-W WIDTH] [-H HEIGHT] [-s STEPS] [--guidance G]\n"
               "    [--seed N] [-b BATCH] [--method NAME] [--scheduler NAME] [--vae FILE] [--taesd FILE] [--type NAME]\n"
               "    [-t THREADS] [--mmap] [-v]")) {
        return 2;
    }
    sd_ctx_t* ctx = load(&options);
    if (ctx == NULL) {
        return fail("the model could not be loaded");
    }
    sd_img_gen_params_t params = request(&options);
    int status = generate_and_write(ctx, &options, &params);
    free_sd_ctx(ctx);
    return status;
}
