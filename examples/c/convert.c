/* A model in another type or container:  convert -m model.safetensors --type q8_0 -o model.gguf */
#include "common.h"

int main(int argc, char** argv) {
    options_t options = default_options();
    options.output = "model.gguf";
    if (!parse(&options, argc, argv,
               "-m MODEL [--vae FILE] [--type NAME] [-o FILE.gguf|FILE.safetensors] [-t THREADS] [-v]")) {
        return 2;
    }
    enum sd_type_t type = options.type == NULL ? SD_TYPE_COUNT : str_to_sd_type(options.type);
    if (options.type != NULL && type == SD_TYPE_COUNT) {
        fprintf(stderr, "%s: no such type; q8_0, q4_K, f16, bf16 and f32 are some\n", options.type);
        return 2;
    }
    sd_set_log_callback(on_log, &options);
    sd_set_progress_callback(on_progress, NULL);
    double start = seconds();
    if (!convert_with_components(options.model, NULL, NULL, NULL, NULL, options.vae, options.output, type, NULL, false,
                                 options.threads)) {
        return fail("the model could not be converted");
    }
    printf("time:   %.2f s\nfile:   %s\n", seconds() - start, options.output);
    return 0;
}
