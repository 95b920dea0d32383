/* Sizes and offsets of every struct, values of every enum; fails to compile when one differs (LP64). */
#include "stable-diffusion.h"
#include <stddef.h>

#ifdef __cplusplus
#define HOLDS(x) static_assert(x, #x)
#else
#define HOLDS(x) _Static_assert(x, #x)
#endif

#define FIELD(s, f, o, n) \
    HOLDS(offsetof(s, f) == (o)); \
    HOLDS(sizeof(((s*)0)->f) == (n))

HOLDS(sizeof(sd_tiling_params_t) == 32);
FIELD(sd_tiling_params_t, enabled, 0, 1);
FIELD(sd_tiling_params_t, temporal_tiling, 1, 1);
FIELD(sd_tiling_params_t, tile_size_x, 4, 4);
FIELD(sd_tiling_params_t, tile_size_y, 8, 4);
FIELD(sd_tiling_params_t, target_overlap, 12, 4);
FIELD(sd_tiling_params_t, rel_size_x, 16, 4);
FIELD(sd_tiling_params_t, rel_size_y, 20, 4);
FIELD(sd_tiling_params_t, extra_tiling_args, 24, 8);

HOLDS(sizeof(sd_embedding_t) == 16);
FIELD(sd_embedding_t, name, 0, 8);
FIELD(sd_embedding_t, path, 8, 8);

HOLDS(sizeof(sd_ctx_params_t) == 264);
FIELD(sd_ctx_params_t, model_path, 0, 8);
FIELD(sd_ctx_params_t, clip_l_path, 8, 8);
FIELD(sd_ctx_params_t, clip_g_path, 16, 8);
FIELD(sd_ctx_params_t, clip_vision_path, 24, 8);
FIELD(sd_ctx_params_t, t5xxl_path, 32, 8);
FIELD(sd_ctx_params_t, llm_path, 40, 8);
FIELD(sd_ctx_params_t, llm_vision_path, 48, 8);
FIELD(sd_ctx_params_t, diffusion_model_path, 56, 8);
FIELD(sd_ctx_params_t, high_noise_diffusion_model_path, 64, 8);
FIELD(sd_ctx_params_t, uncond_diffusion_model_path, 72, 8);
FIELD(sd_ctx_params_t, embeddings_connectors_path, 80, 8);
FIELD(sd_ctx_params_t, vae_path, 88, 8);
FIELD(sd_ctx_params_t, audio_vae_path, 96, 8);
FIELD(sd_ctx_params_t, taesd_path, 104, 8);
FIELD(sd_ctx_params_t, control_net_path, 112, 8);
FIELD(sd_ctx_params_t, embeddings, 120, 8);
FIELD(sd_ctx_params_t, embedding_count, 128, 4);
FIELD(sd_ctx_params_t, photo_maker_path, 136, 8);
FIELD(sd_ctx_params_t, pulid_weights_path, 144, 8);
FIELD(sd_ctx_params_t, tensor_type_rules, 152, 8);
FIELD(sd_ctx_params_t, n_threads, 160, 4);
FIELD(sd_ctx_params_t, wtype, 164, 4);
FIELD(sd_ctx_params_t, rng_type, 168, 4);
FIELD(sd_ctx_params_t, sampler_rng_type, 172, 4);
FIELD(sd_ctx_params_t, prediction, 176, 4);
FIELD(sd_ctx_params_t, lora_apply_mode, 180, 4);
FIELD(sd_ctx_params_t, enable_mmap, 184, 1);
FIELD(sd_ctx_params_t, flash_attn, 185, 1);
FIELD(sd_ctx_params_t, diffusion_flash_attn, 186, 1);
FIELD(sd_ctx_params_t, tae_preview_only, 187, 1);
FIELD(sd_ctx_params_t, diffusion_conv_direct, 188, 1);
FIELD(sd_ctx_params_t, vae_conv_direct, 189, 1);
FIELD(sd_ctx_params_t, force_sdxl_vae_conv_scale, 190, 1);
FIELD(sd_ctx_params_t, vae_format, 192, 4);
FIELD(sd_ctx_params_t, max_vram, 200, 8);
FIELD(sd_ctx_params_t, stream_layers, 208, 1);
FIELD(sd_ctx_params_t, eager_load, 209, 1);
FIELD(sd_ctx_params_t, backend, 216, 8);
FIELD(sd_ctx_params_t, params_backend, 224, 8);
FIELD(sd_ctx_params_t, split_mode, 232, 8);
FIELD(sd_ctx_params_t, auto_fit, 240, 1);
FIELD(sd_ctx_params_t, rpc_servers, 248, 8);
FIELD(sd_ctx_params_t, model_args, 256, 8);

HOLDS(sizeof(sd_audio_t) == 24);
FIELD(sd_audio_t, sample_rate, 0, 4);
FIELD(sd_audio_t, channels, 4, 4);
FIELD(sd_audio_t, sample_count, 8, 8);
FIELD(sd_audio_t, data, 16, 8);

HOLDS(sizeof(sd_image_t) == 24);
FIELD(sd_image_t, width, 0, 4);
FIELD(sd_image_t, height, 4, 4);
FIELD(sd_image_t, channel, 8, 4);
FIELD(sd_image_t, data, 16, 8);

HOLDS(sizeof(sd_slg_params_t) == 32);
FIELD(sd_slg_params_t, layers, 0, 8);
FIELD(sd_slg_params_t, layer_count, 8, 8);
FIELD(sd_slg_params_t, layer_start, 16, 4);
FIELD(sd_slg_params_t, layer_end, 20, 4);
FIELD(sd_slg_params_t, scale, 24, 4);

HOLDS(sizeof(sd_guidance_params_t) == 48);
FIELD(sd_guidance_params_t, txt_cfg, 0, 4);
FIELD(sd_guidance_params_t, img_cfg, 4, 4);
FIELD(sd_guidance_params_t, distilled_guidance, 8, 4);
FIELD(sd_guidance_params_t, slg, 16, 32);

HOLDS(sizeof(sd_sample_params_t) == 96);
FIELD(sd_sample_params_t, guidance, 0, 48);
FIELD(sd_sample_params_t, scheduler, 48, 4);
FIELD(sd_sample_params_t, sample_method, 52, 4);
FIELD(sd_sample_params_t, sample_steps, 56, 4);
FIELD(sd_sample_params_t, eta, 60, 4);
FIELD(sd_sample_params_t, shifted_timestep, 64, 4);
FIELD(sd_sample_params_t, custom_sigmas, 72, 8);
FIELD(sd_sample_params_t, custom_sigmas_count, 80, 4);
FIELD(sd_sample_params_t, flow_shift, 84, 4);
FIELD(sd_sample_params_t, extra_sample_args, 88, 8);

HOLDS(sizeof(sd_pm_params_t) == 32);
FIELD(sd_pm_params_t, id_images, 0, 8);
FIELD(sd_pm_params_t, id_images_count, 8, 4);
FIELD(sd_pm_params_t, id_embed_path, 16, 8);
FIELD(sd_pm_params_t, style_strength, 24, 4);

HOLDS(sizeof(sd_pulid_params_t) == 16);
FIELD(sd_pulid_params_t, id_embedding_path, 0, 8);
FIELD(sd_pulid_params_t, id_weight, 8, 4);

HOLDS(sizeof(sd_cache_params_t) == 96);
FIELD(sd_cache_params_t, mode, 0, 4);
FIELD(sd_cache_params_t, reuse_threshold, 4, 4);
FIELD(sd_cache_params_t, start_percent, 8, 4);
FIELD(sd_cache_params_t, end_percent, 12, 4);
FIELD(sd_cache_params_t, error_decay_rate, 16, 4);
FIELD(sd_cache_params_t, use_relative_threshold, 20, 1);
FIELD(sd_cache_params_t, reset_error_on_compute, 21, 1);
FIELD(sd_cache_params_t, Fn_compute_blocks, 24, 4);
FIELD(sd_cache_params_t, Bn_compute_blocks, 28, 4);
FIELD(sd_cache_params_t, residual_diff_threshold, 32, 4);
FIELD(sd_cache_params_t, max_warmup_steps, 36, 4);
FIELD(sd_cache_params_t, max_cached_steps, 40, 4);
FIELD(sd_cache_params_t, max_continuous_cached_steps, 44, 4);
FIELD(sd_cache_params_t, taylorseer_n_derivatives, 48, 4);
FIELD(sd_cache_params_t, taylorseer_skip_interval, 52, 4);
FIELD(sd_cache_params_t, scm_mask, 56, 8);
FIELD(sd_cache_params_t, scm_policy_dynamic, 64, 1);
FIELD(sd_cache_params_t, spectrum_w, 68, 4);
FIELD(sd_cache_params_t, spectrum_m, 72, 4);
FIELD(sd_cache_params_t, spectrum_lam, 76, 4);
FIELD(sd_cache_params_t, spectrum_window_size, 80, 4);
FIELD(sd_cache_params_t, spectrum_flex_window, 84, 4);
FIELD(sd_cache_params_t, spectrum_warmup_steps, 88, 4);
FIELD(sd_cache_params_t, spectrum_stop_percent, 92, 4);

HOLDS(sizeof(sd_lora_t) == 16);
FIELD(sd_lora_t, is_high_noise, 0, 1);
FIELD(sd_lora_t, multiplier, 4, 4);
FIELD(sd_lora_t, path, 8, 8);

HOLDS(sizeof(sd_hires_params_t) == 56);
FIELD(sd_hires_params_t, enabled, 0, 1);
FIELD(sd_hires_params_t, upscaler, 4, 4);
FIELD(sd_hires_params_t, model_path, 8, 8);
FIELD(sd_hires_params_t, scale, 16, 4);
FIELD(sd_hires_params_t, target_width, 20, 4);
FIELD(sd_hires_params_t, target_height, 24, 4);
FIELD(sd_hires_params_t, steps, 28, 4);
FIELD(sd_hires_params_t, denoising_strength, 32, 4);
FIELD(sd_hires_params_t, upscale_tile_size, 36, 4);
FIELD(sd_hires_params_t, custom_sigmas, 40, 8);
FIELD(sd_hires_params_t, custom_sigmas_count, 48, 4);

HOLDS(sizeof(sd_img_gen_params_t) == 504);
FIELD(sd_img_gen_params_t, loras, 0, 8);
FIELD(sd_img_gen_params_t, lora_count, 8, 4);
FIELD(sd_img_gen_params_t, prompt, 16, 8);
FIELD(sd_img_gen_params_t, negative_prompt, 24, 8);
FIELD(sd_img_gen_params_t, clip_skip, 32, 4);
FIELD(sd_img_gen_params_t, init_image, 40, 24);
FIELD(sd_img_gen_params_t, ref_images, 64, 8);
FIELD(sd_img_gen_params_t, ref_images_count, 72, 4);
FIELD(sd_img_gen_params_t, auto_resize_ref_image, 76, 1);
FIELD(sd_img_gen_params_t, increase_ref_index, 77, 1);
FIELD(sd_img_gen_params_t, mask_image, 80, 24);
FIELD(sd_img_gen_params_t, width, 104, 4);
FIELD(sd_img_gen_params_t, height, 108, 4);
FIELD(sd_img_gen_params_t, sample_params, 112, 96);
FIELD(sd_img_gen_params_t, strength, 208, 4);
FIELD(sd_img_gen_params_t, seed, 216, 8);
FIELD(sd_img_gen_params_t, batch_count, 224, 4);
FIELD(sd_img_gen_params_t, control_image, 232, 24);
FIELD(sd_img_gen_params_t, control_strength, 256, 4);
FIELD(sd_img_gen_params_t, pm_params, 264, 32);
FIELD(sd_img_gen_params_t, pulid_params, 296, 16);
FIELD(sd_img_gen_params_t, vae_tiling_params, 312, 32);
FIELD(sd_img_gen_params_t, cache, 344, 96);
FIELD(sd_img_gen_params_t, hires, 440, 56);
FIELD(sd_img_gen_params_t, qwen_image_layers, 496, 4);
FIELD(sd_img_gen_params_t, circular_x, 500, 1);
FIELD(sd_img_gen_params_t, circular_y, 501, 1);

HOLDS(sizeof(sd_vid_gen_params_t) == 528);
FIELD(sd_vid_gen_params_t, loras, 0, 8);
FIELD(sd_vid_gen_params_t, lora_count, 8, 4);
FIELD(sd_vid_gen_params_t, prompt, 16, 8);
FIELD(sd_vid_gen_params_t, negative_prompt, 24, 8);
FIELD(sd_vid_gen_params_t, clip_skip, 32, 4);
FIELD(sd_vid_gen_params_t, init_image, 40, 24);
FIELD(sd_vid_gen_params_t, end_image, 64, 24);
FIELD(sd_vid_gen_params_t, control_frames, 88, 8);
FIELD(sd_vid_gen_params_t, control_frames_size, 96, 4);
FIELD(sd_vid_gen_params_t, width, 100, 4);
FIELD(sd_vid_gen_params_t, height, 104, 4);
FIELD(sd_vid_gen_params_t, sample_params, 112, 96);
FIELD(sd_vid_gen_params_t, high_noise_sample_params, 208, 96);
FIELD(sd_vid_gen_params_t, moe_boundary, 304, 4);
FIELD(sd_vid_gen_params_t, strength, 308, 4);
FIELD(sd_vid_gen_params_t, seed, 312, 8);
FIELD(sd_vid_gen_params_t, video_frames, 320, 4);
FIELD(sd_vid_gen_params_t, fps, 324, 4);
FIELD(sd_vid_gen_params_t, vace_strength, 328, 4);
FIELD(sd_vid_gen_params_t, vae_tiling_params, 336, 32);
FIELD(sd_vid_gen_params_t, cache, 368, 96);
FIELD(sd_vid_gen_params_t, hires, 464, 56);
FIELD(sd_vid_gen_params_t, circular_x, 520, 1);
FIELD(sd_vid_gen_params_t, circular_y, 521, 1);

HOLDS(sizeof(enum rng_type_t) == sizeof(int));
HOLDS(STD_DEFAULT_RNG == 0);
HOLDS(CUDA_RNG == 1);
HOLDS(CPU_RNG == 2);
HOLDS(RNG_TYPE_COUNT == 3);

HOLDS(sizeof(enum sample_method_t) == sizeof(int));
HOLDS(EULER_SAMPLE_METHOD == 0);
HOLDS(EULER_A_SAMPLE_METHOD == 1);
HOLDS(HEUN_SAMPLE_METHOD == 2);
HOLDS(DPM2_SAMPLE_METHOD == 3);
HOLDS(DPMPP2S_A_SAMPLE_METHOD == 4);
HOLDS(DPMPP2M_SAMPLE_METHOD == 5);
HOLDS(DPMPP2Mv2_SAMPLE_METHOD == 6);
HOLDS(IPNDM_SAMPLE_METHOD == 7);
HOLDS(IPNDM_V_SAMPLE_METHOD == 8);
HOLDS(LCM_SAMPLE_METHOD == 9);
HOLDS(DDIM_TRAILING_SAMPLE_METHOD == 10);
HOLDS(TCD_SAMPLE_METHOD == 11);
HOLDS(RES_MULTISTEP_SAMPLE_METHOD == 12);
HOLDS(RES_2S_SAMPLE_METHOD == 13);
HOLDS(ER_SDE_SAMPLE_METHOD == 14);
HOLDS(EULER_CFG_PP_SAMPLE_METHOD == 15);
HOLDS(EULER_A_CFG_PP_SAMPLE_METHOD == 16);
HOLDS(EULER_GE_SAMPLE_METHOD == 17);
HOLDS(DPMPP2M_SDE_SAMPLE_METHOD == 18);
HOLDS(DPMPP2M_SDE_BT_SAMPLE_METHOD == 19);
HOLDS(SAMPLE_METHOD_COUNT == 20);

HOLDS(sizeof(enum scheduler_t) == sizeof(int));
HOLDS(DISCRETE_SCHEDULER == 0);
HOLDS(KARRAS_SCHEDULER == 1);
HOLDS(EXPONENTIAL_SCHEDULER == 2);
HOLDS(AYS_SCHEDULER == 3);
HOLDS(GITS_SCHEDULER == 4);
HOLDS(SGM_UNIFORM_SCHEDULER == 5);
HOLDS(SIMPLE_SCHEDULER == 6);
HOLDS(SMOOTHSTEP_SCHEDULER == 7);
HOLDS(KL_OPTIMAL_SCHEDULER == 8);
HOLDS(LCM_SCHEDULER == 9);
HOLDS(BONG_TANGENT_SCHEDULER == 10);
HOLDS(LTX2_SCHEDULER == 11);
HOLDS(LOGIT_NORMAL_SCHEDULER == 12);
HOLDS(FLUX2_SCHEDULER == 13);
HOLDS(FLUX_SCHEDULER == 14);
HOLDS(BETA_SCHEDULER == 15);
HOLDS(SCHEDULER_COUNT == 16);

HOLDS(sizeof(enum prediction_t) == sizeof(int));
HOLDS(EPS_PRED == 0);
HOLDS(V_PRED == 1);
HOLDS(EDM_V_PRED == 2);
HOLDS(FLOW_PRED == 3);
HOLDS(FLUX_FLOW_PRED == 4);
HOLDS(SEFI_FLOW_PRED == 5);
HOLDS(MINIT2I_FLOW_PRED == 6);
HOLDS(PREDICTION_COUNT == 7);

HOLDS(sizeof(enum sd_type_t) == sizeof(int));
HOLDS(SD_TYPE_F32 == 0);
HOLDS(SD_TYPE_F16 == 1);
HOLDS(SD_TYPE_Q4_0 == 2);
HOLDS(SD_TYPE_Q4_1 == 3);
HOLDS(SD_TYPE_Q5_0 == 6);
HOLDS(SD_TYPE_Q5_1 == 7);
HOLDS(SD_TYPE_Q8_0 == 8);
HOLDS(SD_TYPE_Q8_1 == 9);
HOLDS(SD_TYPE_Q2_K == 10);
HOLDS(SD_TYPE_Q3_K == 11);
HOLDS(SD_TYPE_Q4_K == 12);
HOLDS(SD_TYPE_Q5_K == 13);
HOLDS(SD_TYPE_Q6_K == 14);
HOLDS(SD_TYPE_Q8_K == 15);
HOLDS(SD_TYPE_IQ2_XXS == 16);
HOLDS(SD_TYPE_IQ2_XS == 17);
HOLDS(SD_TYPE_IQ3_XXS == 18);
HOLDS(SD_TYPE_IQ1_S == 19);
HOLDS(SD_TYPE_IQ4_NL == 20);
HOLDS(SD_TYPE_IQ3_S == 21);
HOLDS(SD_TYPE_IQ2_S == 22);
HOLDS(SD_TYPE_IQ4_XS == 23);
HOLDS(SD_TYPE_I8 == 24);
HOLDS(SD_TYPE_I16 == 25);
HOLDS(SD_TYPE_I32 == 26);
HOLDS(SD_TYPE_I64 == 27);
HOLDS(SD_TYPE_F64 == 28);
HOLDS(SD_TYPE_IQ1_M == 29);
HOLDS(SD_TYPE_BF16 == 30);
HOLDS(SD_TYPE_TQ1_0 == 34);
HOLDS(SD_TYPE_TQ2_0 == 35);
HOLDS(SD_TYPE_MXFP4 == 39);
HOLDS(SD_TYPE_NVFP4 == 40);
HOLDS(SD_TYPE_Q1_0 == 41);
HOLDS(SD_TYPE_COUNT == 42);

HOLDS(sizeof(enum sd_log_level_t) == sizeof(int));
HOLDS(SD_LOG_DEBUG == 0);
HOLDS(SD_LOG_INFO == 1);
HOLDS(SD_LOG_WARN == 2);
HOLDS(SD_LOG_ERROR == 3);

HOLDS(sizeof(enum preview_t) == sizeof(int));
HOLDS(PREVIEW_NONE == 0);
HOLDS(PREVIEW_PROJ == 1);
HOLDS(PREVIEW_TAE == 2);
HOLDS(PREVIEW_VAE == 3);
HOLDS(PREVIEW_COUNT == 4);

HOLDS(sizeof(enum lora_apply_mode_t) == sizeof(int));
HOLDS(LORA_APPLY_AUTO == 0);
HOLDS(LORA_APPLY_IMMEDIATELY == 1);
HOLDS(LORA_APPLY_AT_RUNTIME == 2);
HOLDS(LORA_APPLY_MODE_COUNT == 3);

HOLDS(sizeof(enum sd_vae_format_t) == sizeof(int));
HOLDS(SD_VAE_FORMAT_AUTO == -1);
HOLDS(SD_VAE_FORMAT_FLUX == 0);
HOLDS(SD_VAE_FORMAT_SD3 == 1);
HOLDS(SD_VAE_FORMAT_FLUX2 == 2);
HOLDS(SD_VAE_FORMAT_COUNT == 3);

HOLDS(sizeof(enum sd_cache_mode_t) == sizeof(int));
HOLDS(SD_CACHE_DISABLED == 0);
HOLDS(SD_CACHE_EASYCACHE == 1);
HOLDS(SD_CACHE_UCACHE == 2);
HOLDS(SD_CACHE_DBCACHE == 3);
HOLDS(SD_CACHE_TAYLORSEER == 4);
HOLDS(SD_CACHE_CACHE_DIT == 5);
HOLDS(SD_CACHE_SPECTRUM == 6);

HOLDS(sizeof(enum sd_hires_upscaler_t) == sizeof(int));
HOLDS(SD_HIRES_UPSCALER_NONE == 0);
HOLDS(SD_HIRES_UPSCALER_LATENT == 1);
HOLDS(SD_HIRES_UPSCALER_LATENT_NEAREST == 2);
HOLDS(SD_HIRES_UPSCALER_LATENT_NEAREST_EXACT == 3);
HOLDS(SD_HIRES_UPSCALER_LATENT_ANTIALIASED == 4);
HOLDS(SD_HIRES_UPSCALER_LATENT_BICUBIC == 5);
HOLDS(SD_HIRES_UPSCALER_LATENT_BICUBIC_ANTIALIASED == 6);
HOLDS(SD_HIRES_UPSCALER_LANCZOS == 7);
HOLDS(SD_HIRES_UPSCALER_NEAREST == 8);
HOLDS(SD_HIRES_UPSCALER_MODEL == 9);
HOLDS(SD_HIRES_UPSCALER_COUNT == 10);

HOLDS(sizeof(enum sd_cancel_mode_t) == sizeof(int));
HOLDS(SD_CANCEL_ALL == 0);
HOLDS(SD_CANCEL_NEW_LATENTS == 1);
HOLDS(SD_CANCEL_RESET == 2);

int main(void) {
    return 0;
}
