/* A larger picture:  upscale -m upscaler.safetensors -i small.png -o large.png */
#include "common.h"

int main(int argc, char** argv) {
    options_t options = default_options();
    picture_t input = {0, 0, 0, NULL};
    sd_image_t* images = NULL;
    int count = 0, status = 1;
    if (!parse(&options, argc, argv, "-m UPSCALER -i PICTURE [-o FILE.png] [-t THREADS] [-v]")) {
        return 2;
    }
    if (options.input == NULL || (input = picture_read(options.input)).pixels == NULL) {
        fprintf(stderr, "%s: no PNG or PPM that can be read\n", options.input ? options.input : "-i is missing");
        return 2;
    }
    sd_set_log_callback(on_log, &options);
    sd_set_progress_callback(on_progress, NULL);
    upscaler_ctx_t* upscaler = new_upscaler_ctx(options.model, false, options.threads, 0, NULL, NULL);
    if (upscaler == NULL) {
        status = fail("the upscaler could not be loaded");
    } else {
        sd_image_t image = {input.width, input.height, input.channels, input.pixels};
        double start = seconds();
        int factor = get_upscale_factor(upscaler);
        if (upscale(upscaler, image, (uint32_t)factor, &images, &count)) {
            printf("factor: %d\ntime:   %.2f s\n", factor, seconds() - start);
            status = !write_result(&options, images, 0, 1);
        } else {
            status = fail("the picture could not be enlarged");
        }
        free_sd_images(images, count);
        free_upscaler_ctx(upscaler);
    }
    free(input.pixels);
    return status;
}
