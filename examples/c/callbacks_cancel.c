/*
 * Log, progress and preview callbacks, and stopping a generation after a few steps:
 *   callbacks_cancel -m model.safetensors -p "a red apple" --cancel-at 3 -o apple.png
 * Writes preview_N.png beside each step. After the cancelled call the same context makes the whole picture.
 */
#include "common.h"

typedef struct {
    sd_ctx_t* ctx;
    int cancel_at, steps, cancelled;
} run_t;

/* Loading and decoding report progress too; sampling is told by its number of steps. */

static void on_step(int step, int steps, float time, void* data) {
    run_t* run = (run_t*)data;
    on_progress(step, steps, time, NULL);
    if (steps == run->steps && step >= run->cancel_at && !run->cancelled) {
        run->cancelled = 1;
        sd_cancel_generation(run->ctx, SD_CANCEL_ALL);
    }
}

static void on_preview(int step, int count, sd_image_t* frames, bool is_noisy, void* data) {
    char name[64];
    (void)is_noisy;
    (void)data;
    snprintf(name, sizeof(name), "preview_%d.png", step);
    if (count > 0 && png_write(name, frames->data, frames->width, frames->height, frames->channel)) {
        printf("preview: %s\n", name);
    }
}

int main(int argc, char** argv) {
    options_t options = default_options();
    if (!parse(&options, argc, argv,
               "-m MODEL -p PROMPT [--cancel-at STEP] [-o FILE.png] [-W WIDTH] [-H HEIGHT] [-s STEPS] [--seed N] [-v]")) {
        return 2;
    }
    run_t run = {load(&options), options.cancel_at, options.steps, 0};
    if (run.ctx == NULL) {
        return fail("the model could not be loaded");
    }
    sd_img_gen_params_t params = request(&options);
    sd_image_t* images = NULL;
    int count = 0;
    sd_set_progress_callback(on_step, &run);
    sd_set_preview_callback(on_preview, PREVIEW_PROJ, 1, true, false, NULL);
    bool made = generate_image(run.ctx, &params, &images, &count);
    printf("first call:  %s, %d pictures: %s\n", made ? "finished" : "stopped", count, sd_ext_last_error());
    free_sd_images(images, count);

    sd_set_progress_callback(on_progress, NULL);
    sd_set_preview_callback(NULL, PREVIEW_NONE, 1, false, false, NULL);
    int status = generate_and_write(run.ctx, &options, &params);
    free_sd_ctx(run.ctx);
    return status;
}
