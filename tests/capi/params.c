/* Defaults that clients rely on, texts of the parameters, structs full of rubbish. */
#include "check.h"
#include "stable-diffusion-ext.h"
#include "stable-diffusion.h"

#include <math.h>

static void defaults(void) {
    sd_ctx_params_t ctx;
    sd_img_gen_params_t image;
    sd_vid_gen_params_t video;
    memset(&ctx, 0xa5, sizeof(ctx));
    memset(&image, 0xa5, sizeof(image));
    memset(&video, 0xa5, sizeof(video));
    sd_ctx_params_init(&ctx);
    sd_img_gen_params_init(&image);
    sd_vid_gen_params_init(&video);
    CHECK(ctx.model_path == NULL && ctx.embeddings == NULL && ctx.model_args == NULL);
    CHECK(ctx.n_threads == sd_get_num_physical_cores() && ctx.wtype == SD_TYPE_COUNT);
    CHECK(ctx.vae_format == SD_VAE_FORMAT_AUTO && !ctx.enable_mmap && !ctx.auto_fit);
    CHECK(image.width == 512 && image.batch_count == 1 && image.seed == -1 && image.clip_skip == -1);
    CHECK(isinf(image.sample_params.eta) && image.cache.mode == SD_CACHE_DISABLED);
    CHECK(image.hires.upscaler == SD_HIRES_UPSCALER_LATENT && !image.hires.enabled);
    CHECK(video.high_noise_sample_params.sample_steps == -1 && video.fps == 16);
    CHECK(video.moe_boundary == 0.875f && video.sample_params.sample_steps == 20);
}

static void texts(void) {
    sd_ctx_params_t ctx;
    sd_img_gen_params_t image;
    char* text;
    char* prompt = (char*)malloc(100001);
    CHECK(prompt != NULL);
    memset(prompt, 'x', 100000);
    prompt[100000] = 0;
    sd_ctx_params_init(&ctx);
    ctx.model_path = "m.safetensors";
    ctx.wtype = (enum sd_type_t)12345;
    text = sd_ctx_params_to_str(&ctx);
    CHECK(has(text, "model_path: m.safetensors\n") && has(text, "wtype: NONE\n"));
    free(text);
    sd_img_gen_params_init(&image);
    image.prompt = prompt;
    image.negative_prompt = "\xff\xfe not UTF-8";
    text = sd_img_gen_params_to_str(&image);
    CHECK(has(text, "negative_prompt: \xff\xfe not UTF-8\n") && strlen(text) > 100000);
    free(text);
    text = sd_sample_params_to_str(&image.sample_params);
    CHECK(has(text, "(txt_cfg: 7.00, img_cfg: 7.00,") && has(text, "scheduler: NONE"));
    free(text);
    free(prompt);
}

/* Arrays whose count and pointer do not go together, and paths that lead nowhere. */
static void contexts_that_fail(void) {
    sd_embedding_t embedding = {NULL, NULL};
    sd_ctx_params_t ctx;
    sd_ctx_params_init(&ctx);
    CHECK(new_sd_ctx(&ctx) == NULL);
    CHECK(sd_ext_last_error()[0] != 0);
    ctx.model_path = "/nonexistent/model.safetensors";
    CHECK(new_sd_ctx(&ctx) == NULL);
    CHECK(sd_ext_last_error()[0] != 0);
    ctx.embedding_count = 3;
    CHECK(new_sd_ctx(&ctx) == NULL);
    CHECK(has(sd_ext_last_error(), "embeddings"));
    ctx.embeddings = &embedding;
    ctx.embedding_count = 1;
    CHECK(new_sd_ctx(&ctx) == NULL);
    CHECK(has(sd_ext_last_error(), "embeddings[0]"));
    ctx.embedding_count = 0xffffffffu;
    CHECK(new_sd_ctx(&ctx) == NULL);
    CHECK(has(sd_ext_last_error(), "count"));
    ctx.embedding_count = 0;
    ctx.rng_type = (enum rng_type_t)-1;
    ctx.prediction = (enum prediction_t)77;
    ctx.lora_apply_mode = (enum lora_apply_mode_t)77;
    ctx.vae_format = (enum sd_vae_format_t)77;
    ctx.n_threads = -5;
    CHECK(new_sd_ctx(&ctx) == NULL);
}

int main(void) {
    defaults();
    texts();
    contexts_that_fail();
    return failures != 0;
}
