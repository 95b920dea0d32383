//! Sizes and offsets that the C header has had since its July 2026 revision, checked while compiling.
#![cfg(target_pointer_width = "64")]

use super::types::*;
use std::mem::{offset_of, size_of};

macro_rules! layout {
    ($($name:ident: $size:literal { $($field:ident: $offset:literal),* $(,)? })*) => {
        $(
            const _: () = assert!(size_of::<$name>() == $size);
            $(const _: () = assert!(offset_of!($name, $field) == $offset);)*
        )*
    };
}

layout! {
    sd_tiling_params_t: 32 {
        enabled: 0, temporal_tiling: 1, tile_size_x: 4, tile_size_y: 8, target_overlap: 12, rel_size_x: 16,
        rel_size_y: 20, extra_tiling_args: 24,
    }
    sd_embedding_t: 16 {
        name: 0, path: 8,
    }
    sd_ctx_params_t: 264 {
        model_path: 0, clip_l_path: 8, clip_g_path: 16, clip_vision_path: 24, t5xxl_path: 32, llm_path: 40,
        llm_vision_path: 48, diffusion_model_path: 56, high_noise_diffusion_model_path: 64,
        uncond_diffusion_model_path: 72, embeddings_connectors_path: 80, vae_path: 88, audio_vae_path: 96,
        taesd_path: 104, control_net_path: 112, embeddings: 120, embedding_count: 128,
        photo_maker_path: 136, pulid_weights_path: 144, tensor_type_rules: 152, n_threads: 160, wtype: 164,
        rng_type: 168, sampler_rng_type: 172, prediction: 176, lora_apply_mode: 180, enable_mmap: 184,
        flash_attn: 185, diffusion_flash_attn: 186, tae_preview_only: 187, diffusion_conv_direct: 188,
        vae_conv_direct: 189, force_sdxl_vae_conv_scale: 190, vae_format: 192, max_vram: 200,
        stream_layers: 208, eager_load: 209, backend: 216, params_backend: 224, split_mode: 232,
        auto_fit: 240, rpc_servers: 248, model_args: 256,
    }
    sd_audio_t: 24 {
        sample_rate: 0, channels: 4, sample_count: 8, data: 16,
    }
    sd_image_t: 24 {
        width: 0, height: 4, channel: 8, data: 16,
    }
    sd_slg_params_t: 32 {
        layers: 0, layer_count: 8, layer_start: 16, layer_end: 20, scale: 24,
    }
    sd_guidance_params_t: 48 {
        txt_cfg: 0, img_cfg: 4, distilled_guidance: 8, slg: 16,
    }
    sd_sample_params_t: 96 {
        guidance: 0, scheduler: 48, sample_method: 52, sample_steps: 56, eta: 60, shifted_timestep: 64,
        custom_sigmas: 72, custom_sigmas_count: 80, flow_shift: 84, extra_sample_args: 88,
    }
    sd_pm_params_t: 32 {
        id_images: 0, id_images_count: 8, id_embed_path: 16, style_strength: 24,
    }
    sd_pulid_params_t: 16 {
        id_embedding_path: 0, id_weight: 8,
    }
    sd_cache_params_t: 96 {
        mode: 0, reuse_threshold: 4, start_percent: 8, end_percent: 12, error_decay_rate: 16,
        use_relative_threshold: 20, reset_error_on_compute: 21, Fn_compute_blocks: 24,
        Bn_compute_blocks: 28, residual_diff_threshold: 32, max_warmup_steps: 36, max_cached_steps: 40,
        max_continuous_cached_steps: 44, taylorseer_n_derivatives: 48, taylorseer_skip_interval: 52,
        scm_mask: 56, scm_policy_dynamic: 64, spectrum_w: 68, spectrum_m: 72, spectrum_lam: 76,
        spectrum_window_size: 80, spectrum_flex_window: 84, spectrum_warmup_steps: 88,
        spectrum_stop_percent: 92,
    }
    sd_lora_t: 16 {
        is_high_noise: 0, multiplier: 4, path: 8,
    }
    sd_hires_params_t: 56 {
        enabled: 0, upscaler: 4, model_path: 8, scale: 16, target_width: 20, target_height: 24, steps: 28,
        denoising_strength: 32, upscale_tile_size: 36, custom_sigmas: 40, custom_sigmas_count: 48,
    }
    sd_img_gen_params_t: 504 {
        loras: 0, lora_count: 8, prompt: 16, negative_prompt: 24, clip_skip: 32, init_image: 40,
        ref_images: 64, ref_images_count: 72, auto_resize_ref_image: 76, increase_ref_index: 77,
        mask_image: 80, width: 104, height: 108, sample_params: 112, strength: 208, seed: 216,
        batch_count: 224, control_image: 232, control_strength: 256, pm_params: 264, pulid_params: 296,
        vae_tiling_params: 312, cache: 344, hires: 440, qwen_image_layers: 496, circular_x: 500,
        circular_y: 501,
    }
    sd_vid_gen_params_t: 528 {
        loras: 0, lora_count: 8, prompt: 16, negative_prompt: 24, clip_skip: 32, init_image: 40,
        end_image: 64, control_frames: 88, control_frames_size: 96, width: 100, height: 104,
        sample_params: 112, high_noise_sample_params: 208, moe_boundary: 304, strength: 308, seed: 312,
        video_frames: 320, fps: 324, vace_strength: 328, vae_tiling_params: 336, cache: 368, hires: 464,
        circular_x: 520, circular_y: 521,
    }
}

// C enums are ints here.
const _: () = assert!(size_of::<rng_type_t>() == 4);
const _: () = assert!(size_of::<sample_method_t>() == 4);
const _: () = assert!(size_of::<scheduler_t>() == 4);
const _: () = assert!(size_of::<prediction_t>() == 4);
const _: () = assert!(size_of::<sd_type_t>() == 4);
const _: () = assert!(size_of::<sd_log_level_t>() == 4);
const _: () = assert!(size_of::<preview_t>() == 4);
const _: () = assert!(size_of::<lora_apply_mode_t>() == 4);
const _: () = assert!(size_of::<sd_vae_format_t>() == 4);
const _: () = assert!(size_of::<sd_cache_mode_t>() == 4);
const _: () = assert!(size_of::<sd_hires_upscaler_t>() == 4);
const _: () = assert!(size_of::<sd_cancel_mode_t>() == 4);
