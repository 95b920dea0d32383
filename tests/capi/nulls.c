/* Every function with NULL, or with what comes closest to it. */
#include "check.h"
#include "stable-diffusion-ext.h"
#include "stable-diffusion.h"

static void frees_and_inits(void) {
    free_sd_ctx(NULL);
    free_upscaler_ctx(NULL);
    free_sd_audio(NULL);
    free_sd_images(NULL, 0);
    free_sd_images(NULL, 5);
    free_sd_images(NULL, -5);
    sd_ctx_params_init(NULL);
    sd_sample_params_init(NULL);
    sd_img_gen_params_init(NULL);
    sd_vid_gen_params_init(NULL);
    sd_cache_params_init(NULL);
    sd_hires_params_init(NULL);
    sd_set_log_callback(NULL, NULL);
    sd_set_progress_callback(NULL, NULL);
    sd_set_preview_callback(NULL, PREVIEW_VAE, 0, true, true, NULL);
    sd_set_preview_callback(NULL, (enum preview_t)99, -3, false, false, NULL);
    sd_set_backend_eval_callback(NULL, NULL);
    sd_cancel_generation(NULL, SD_CANCEL_ALL);
    sd_cancel_generation(NULL, (enum sd_cancel_mode_t)99);
}

static void texts(void) {
    CHECK(sd_ctx_params_to_str(NULL) == NULL);
    CHECK(has(sd_ext_last_error(), "sd_ctx_params is NULL"));
    CHECK(sd_sample_params_to_str(NULL) == NULL);
    CHECK(sd_img_gen_params_to_str(NULL) == NULL);
    CHECK(has(sd_ext_last_error(), "sd_img_gen_params is NULL"));
}

static void contexts(void) {
    sd_image_t* images = (sd_image_t*)1;
    sd_audio_t* audio = (sd_audio_t*)1;
    int count = 7;
    sd_img_gen_params_t image;
    sd_vid_gen_params_t video;
    sd_img_gen_params_init(&image);
    sd_vid_gen_params_init(&video);
    CHECK(new_sd_ctx(NULL) == NULL);
    CHECK(has(sd_ext_last_error(), "sd_ctx_params is NULL"));
    CHECK(!sd_ctx_supports_image_generation(NULL));
    CHECK(!sd_ctx_supports_video_generation(NULL));
    CHECK(sd_get_default_sample_method(NULL) == EULER_A_SAMPLE_METHOD);
    CHECK(sd_get_default_scheduler(NULL, EULER_SAMPLE_METHOD) == DISCRETE_SCHEDULER);
    CHECK(sd_get_default_scheduler(NULL, LCM_SAMPLE_METHOD) == LCM_SCHEDULER);
    CHECK(sd_get_default_scheduler(NULL, (enum sample_method_t)99) == DISCRETE_SCHEDULER);
    CHECK(!generate_image(NULL, &image, &images, &count));
    CHECK(images == NULL && count == 0);
    CHECK(has(sd_ext_last_error(), "sd_ctx is NULL"));
    CHECK(!generate_image(NULL, NULL, NULL, NULL));
    images = (sd_image_t*)1;
    count = 7;
    CHECK(!generate_video(NULL, &video, &images, &count, &audio));
    CHECK(images == NULL && count == 0 && audio == NULL);
    CHECK(!generate_video(NULL, NULL, NULL, NULL, NULL));
}

static void upscalers_and_files(void) {
    sd_image_t none = {0, 0, 0, NULL};
    sd_image_t* images = (sd_image_t*)1;
    int count = 7;
    CHECK(new_upscaler_ctx(NULL, false, 0, 0, NULL, NULL) == NULL);
    CHECK(has(sd_ext_last_error(), "esrgan_path"));
    CHECK(new_upscaler_ctx("", false, 0, 0, "", "") == NULL);
    CHECK(new_upscaler_ctx("/nonexistent", true, -1, -1, NULL, NULL) == NULL);
    CHECK(!upscale(NULL, none, 2, &images, &count));
    CHECK(images == NULL && count == 0);
    CHECK(get_upscale_factor(NULL) == 1);
    CHECK(!convert(NULL, NULL, NULL, SD_TYPE_F16, NULL, false));
    CHECK(has(sd_ext_last_error(), "input_path"));
    CHECK(!convert("/nonexistent", NULL, NULL, SD_TYPE_F16, NULL, false));
    CHECK(has(sd_ext_last_error(), "output_path"));
    CHECK(!convert("/nonexistent", NULL, "/nonexistent/out.gguf", (enum sd_type_t)999, NULL, false));
    CHECK(has(sd_ext_last_error(), "999"));
    CHECK(!convert("/nonexistent", "", "/nonexistent/out.gguf", SD_TYPE_F16, "", true));
    CHECK(!convert_with_components(NULL, "", NULL, NULL, NULL, NULL, "out.gguf", SD_TYPE_F16, NULL, false, 0));
    CHECK(has(sd_ext_last_error(), "no input path"));
    CHECK(!preprocess_canny(none, 0.08f, 0.08f, 0.8f, 1.0f, false));
    CHECK(!load_imatrix(NULL));
    CHECK(!load_imatrix(""));
    CHECK(!load_imatrix("/nonexistent"));
    save_imatrix(NULL);
    CHECK(has(sd_ext_last_error(), "imatrix_path"));
    enable_imatrix_collection();
    disable_imatrix_collection();
}

int main(void) {
    frees_and_inits();
    texts();
    contexts();
    upscalers_and_files();
    return failures != 0;
}
