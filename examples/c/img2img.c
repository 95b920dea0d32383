/*
 * A picture from a picture and a prompt, with --mask only where the mask is white:
 *   img2img -m model.safetensors -i photo.png -p "in winter" --strength 0.6 -o winter.png
 */
#include "common.h"

static sd_image_t as_image(const picture_t* picture) {
    sd_image_t image = {picture->width, picture->height, picture->channels, picture->pixels};
    return image;
}

int main(int argc, char** argv) {
    options_t options = default_options();
    picture_t input = {0, 0, 0, NULL}, mask = {0, 0, 0, NULL};
    options.width = options.height = 0;
    if (!parse(&options, argc, argv,
               "-m MODEL -i PICTURE -p PROMPT [--mask PICTURE] [--strength 0..1] [-o FILE.png] [-W WIDTH] [-H HEIGHT]\n"
               "    [-s STEPS] [--guidance G] [--seed N] [--method NAME] [--scheduler NAME] [-t THREADS] [-v]")) {
        return 2;
    }
    if (options.input == NULL || (input = picture_read(options.input)).pixels == NULL) {
        fprintf(stderr, "%s: no PNG or PPM that can be read\n", options.input ? options.input : "-i is missing");
        return 2;
    }
    if (options.mask != NULL && (mask = picture_read(options.mask)).pixels == NULL) {
        fprintf(stderr, "%s: no PNG or PPM that can be read\n", options.mask);
        free(input.pixels);
        return 2;
    }
    options.width = options.width > 0 ? options.width : (int)input.width;
    options.height = options.height > 0 ? options.height : (int)input.height;
    int status;
    sd_ctx_t* ctx = load(&options);
    if (ctx == NULL) {
        status = fail("the model could not be loaded");
    } else {
        sd_img_gen_params_t params = request(&options);
        params.init_image = as_image(&input);
        params.mask_image = as_image(&mask);
        status = generate_and_write(ctx, &options, &params);
        free_sd_ctx(ctx);
    }
    free(input.pixels);
    free(mask.pixels);
    return status;
}
