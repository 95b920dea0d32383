//! Initial values of the parameter structs, and their texts.

use super::read::{at, bytes, flag, number};
use super::types::*;
use super::{boundary, memory, names};
use crate::engine::choice::{HiresUpscaler, Prediction, Rng, SampleMethod, Scheduler};
use std::ffi::{CStr, c_char, c_int};
use std::io::Write;
use std::mem::MaybeUninit;
use std::ptr::{null, null_mut};

const fn yes(value: bool) -> MaybeUninit<bool> {
    MaybeUninit::new(value)
}

const NO_IMAGE: sd_image_t = sd_image_t { width: 0, height: 0, channel: 0, data: null_mut() };

const CACHE: sd_cache_params_t = sd_cache_params_t {
    mode: MaybeUninit::new(sd_cache_mode_t::SD_CACHE_DISABLED),
    reuse_threshold: f32::INFINITY,
    start_percent: 0.15,
    end_percent: 0.95,
    error_decay_rate: 1.0,
    use_relative_threshold: yes(true),
    reset_error_on_compute: yes(true),
    Fn_compute_blocks: 8,
    Bn_compute_blocks: 0,
    residual_diff_threshold: 0.08,
    max_warmup_steps: 8,
    max_cached_steps: -1,
    max_continuous_cached_steps: -1,
    taylorseer_n_derivatives: 1,
    taylorseer_skip_interval: 1,
    scm_mask: null(),
    scm_policy_dynamic: yes(true),
    spectrum_w: 0.4,
    spectrum_m: 3,
    spectrum_lam: 1.0,
    spectrum_window_size: 2,
    spectrum_flex_window: 0.5,
    spectrum_warmup_steps: 4,
    spectrum_stop_percent: 0.9,
};

const HIRES: sd_hires_params_t = sd_hires_params_t {
    enabled: yes(false),
    upscaler: MaybeUninit::new(sd_hires_upscaler_t::SD_HIRES_UPSCALER_LATENT),
    model_path: null(),
    scale: 2.0,
    target_width: 0,
    target_height: 0,
    steps: 0,
    denoising_strength: 0.7,
    upscale_tile_size: 128,
    custom_sigmas: null_mut(),
    custom_sigmas_count: 0,
};

const SAMPLE: sd_sample_params_t = sd_sample_params_t {
    guidance: sd_guidance_params_t {
        txt_cfg: 7.0,
        img_cfg: f32::INFINITY,
        distilled_guidance: 3.5,
        slg: sd_slg_params_t {
            layers: null_mut(),
            layer_count: 0,
            layer_start: 0.01,
            layer_end: 0.2,
            scale: 0.0,
        },
    },
    scheduler: MaybeUninit::new(scheduler_t::SCHEDULER_COUNT),
    sample_method: MaybeUninit::new(sample_method_t::SAMPLE_METHOD_COUNT),
    sample_steps: 20,
    eta: f32::INFINITY,
    shifted_timestep: 0,
    custom_sigmas: null_mut(),
    custom_sigmas_count: 0,
    flow_shift: f32::INFINITY,
    extra_sample_args: null(),
};

const TILING: sd_tiling_params_t = sd_tiling_params_t {
    enabled: yes(false),
    temporal_tiling: yes(false),
    tile_size_x: 0,
    tile_size_y: 0,
    target_overlap: 0.5,
    rel_size_x: 0.0,
    rel_size_y: 0.0,
    extra_tiling_args: null(),
};

const IMAGE: sd_img_gen_params_t = sd_img_gen_params_t {
    loras: null(),
    lora_count: 0,
    prompt: null(),
    negative_prompt: null(),
    clip_skip: -1,
    init_image: NO_IMAGE,
    ref_images: null_mut(),
    ref_images_count: 0,
    auto_resize_ref_image: yes(false),
    increase_ref_index: yes(false),
    mask_image: NO_IMAGE,
    width: 512,
    height: 512,
    sample_params: SAMPLE,
    strength: 0.75,
    seed: -1,
    batch_count: 1,
    control_image: NO_IMAGE,
    control_strength: 0.9,
    pm_params: sd_pm_params_t {
        id_images: null_mut(),
        id_images_count: 0,
        id_embed_path: null(),
        style_strength: 20.0,
    },
    pulid_params: sd_pulid_params_t { id_embedding_path: null(), id_weight: 1.0 },
    vae_tiling_params: TILING,
    cache: CACHE,
    hires: HIRES,
    qwen_image_layers: 3,
    circular_x: yes(false),
    circular_y: yes(false),
};

const VIDEO: sd_vid_gen_params_t = sd_vid_gen_params_t {
    loras: null(),
    lora_count: 0,
    prompt: null(),
    negative_prompt: null(),
    clip_skip: 0,
    init_image: NO_IMAGE,
    end_image: NO_IMAGE,
    control_frames: null_mut(),
    control_frames_size: 0,
    width: 512,
    height: 512,
    sample_params: SAMPLE,
    high_noise_sample_params: sd_sample_params_t { sample_steps: -1, ..SAMPLE },
    moe_boundary: 0.875,
    strength: 0.75,
    seed: -1,
    video_frames: 6,
    fps: 16,
    vace_strength: 1.0,
    vae_tiling_params: TILING,
    cache: CACHE,
    hires: HIRES,
    circular_x: yes(false),
    circular_y: yes(false),
};

fn context_defaults() -> sd_ctx_params_t {
    sd_ctx_params_t {
        model_path: null(),
        clip_l_path: null(),
        clip_g_path: null(),
        clip_vision_path: null(),
        t5xxl_path: null(),
        llm_path: null(),
        llm_vision_path: null(),
        diffusion_model_path: null(),
        high_noise_diffusion_model_path: null(),
        uncond_diffusion_model_path: null(),
        embeddings_connectors_path: null(),
        vae_path: null(),
        audio_vae_path: null(),
        taesd_path: null(),
        control_net_path: null(),
        embeddings: null(),
        embedding_count: 0,
        photo_maker_path: null(),
        pulid_weights_path: null(),
        tensor_type_rules: null(),
        n_threads: super::info::sd_get_num_physical_cores(),
        wtype: MaybeUninit::new(sd_type_t::SD_TYPE_COUNT),
        rng_type: MaybeUninit::new(rng_type_t::CUDA_RNG),
        sampler_rng_type: MaybeUninit::new(rng_type_t::RNG_TYPE_COUNT),
        prediction: MaybeUninit::new(prediction_t::PREDICTION_COUNT),
        lora_apply_mode: MaybeUninit::new(lora_apply_mode_t::LORA_APPLY_AUTO),
        enable_mmap: yes(false),
        flash_attn: yes(false),
        diffusion_flash_attn: yes(false),
        tae_preview_only: yes(false),
        diffusion_conv_direct: yes(false),
        vae_conv_direct: yes(false),
        force_sdxl_vae_conv_scale: yes(false),
        vae_format: MaybeUninit::new(sd_vae_format_t::SD_VAE_FORMAT_AUTO),
        max_vram: null(),
        stream_layers: yes(false),
        eager_load: yes(false),
        backend: null(),
        params_backend: null(),
        split_mode: null(),
        auto_fit: yes(false),
        rpc_servers: null(),
        model_args: null(),
    }
}

/// Writes `value` to `to`; nothing when `to` is NULL.
///
/// # Safety
/// `to` is NULL or writable memory for a `T`; it need not be initialised.
unsafe fn init<T>(to: *mut T, value: impl FnOnce() -> T) {
    if let Some(value) = boundary::quiet(None, || Some(value()))
        && !to.is_null()
    {
        // SAFETY: not NULL; the caller vouches for the memory.
        unsafe { to.write_unaligned(value) };
    }
}

/// Sets every field to its default. NULL is ignored.
///
/// # Safety
/// `cache_params` is NULL or points to memory for the struct.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sd_cache_params_init(cache_params: *mut sd_cache_params_t) {
    // SAFETY: as promised by the caller.
    unsafe { init(cache_params, || CACHE) }
}

/// Sets every field to its default. NULL is ignored.
///
/// # Safety
/// `hires_params` is NULL or points to memory for the struct.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sd_hires_params_init(hires_params: *mut sd_hires_params_t) {
    // SAFETY: as promised by the caller.
    unsafe { init(hires_params, || HIRES) }
}

/// Sets every field to its default; `n_threads` to the number of physical cores. NULL is ignored.
///
/// # Safety
/// `sd_ctx_params` is NULL or points to memory for the struct.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sd_ctx_params_init(sd_ctx_params: *mut sd_ctx_params_t) {
    // SAFETY: as promised by the caller.
    unsafe { init(sd_ctx_params, context_defaults) }
}

/// Sets every field to its default. NULL is ignored.
///
/// # Safety
/// `sample_params` is NULL or points to memory for the struct.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sd_sample_params_init(sample_params: *mut sd_sample_params_t) {
    // SAFETY: as promised by the caller.
    unsafe { init(sample_params, || SAMPLE) }
}

/// Sets every field to its default. NULL is ignored.
///
/// # Safety
/// `sd_img_gen_params` is NULL or points to memory for the struct.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sd_img_gen_params_init(sd_img_gen_params: *mut sd_img_gen_params_t) {
    // SAFETY: as promised by the caller.
    unsafe { init(sd_img_gen_params, || IMAGE) }
}

/// Sets every field to its default. NULL is ignored.
///
/// # Safety
/// `sd_vid_gen_params` is NULL or points to memory for the struct.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sd_vid_gen_params_init(sd_vid_gen_params: *mut sd_vid_gen_params_t) {
    // SAFETY: as promised by the caller.
    unsafe { init(sd_vid_gen_params, || VIDEO) }
}

/// A readable text of context parameters, one `field: value` a line. Free it with `free`; NULL when
/// `sd_ctx_params` is NULL or memory ran out.
///
/// # Safety
/// `sd_ctx_params` is NULL or an initialised struct with valid strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sd_ctx_params_to_str(sd_ctx_params: *const sd_ctx_params_t) -> *mut c_char {
    boundary::call(null_mut(), || {
        // SAFETY: as promised by the caller.
        let text = unsafe { context_text(at(sd_ctx_params, "sd_ctx_params")?) };
        memory::string(&text)
    })
}

/// A readable text of sampling parameters on one line. Free it with `free`; NULL when `sample_params` is NULL or
/// memory ran out.
///
/// # Safety
/// `sample_params` is NULL or an initialised struct with valid strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sd_sample_params_to_str(sample_params: *const sd_sample_params_t) -> *mut c_char {
    boundary::call(null_mut(), || {
        // SAFETY: as promised by the caller.
        let text = unsafe { sample_text(at(sample_params, "sample_params")?) };
        memory::string(&text)
    })
}

/// A readable text of an image request, one `field: value` a line. Free it with `free`; NULL when
/// `sd_img_gen_params` is NULL or memory ran out.
///
/// # Safety
/// `sd_img_gen_params` is NULL or an initialised struct with valid strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sd_img_gen_params_to_str(
    sd_img_gen_params: *const sd_img_gen_params_t,
) -> *mut c_char {
    boundary::call(null_mut(), || {
        // SAFETY: as promised by the caller.
        let text = unsafe { image_text(at(sd_img_gen_params, "sd_img_gen_params")?) };
        memory::string(&text)
    })
}

/// Text built from bytes, since strings of the caller need not be UTF-8.
#[derive(Default)]
struct Lines(Vec<u8>);

impl Lines {
    /// Appends formatted text.
    fn put(&mut self, text: std::fmt::Arguments<'_>) -> &mut Self {
        // Writing to a Vec cannot fail.
        let _ = self.0.write_fmt(text);
        self
    }

    /// Appends a line `name: value`.
    fn line(&mut self, name: &str, value: &[u8]) -> &mut Self {
        self.0.extend_from_slice(name.as_bytes());
        self.0.extend_from_slice(b": ");
        self.0.extend_from_slice(value);
        self.0.push(b'\n');
        self
    }

    /// Appends a line with a C string, empty for NULL.
    ///
    /// # Safety
    /// `value` is NULL or a NUL-terminated string.
    unsafe fn text(&mut self, name: &str, value: *const c_char) -> &mut Self {
        // SAFETY: as promised by the caller.
        let value = unsafe { bytes(value) }.unwrap_or_default();
        self.line(name, &value)
    }

    fn name(&mut self, name: &str, value: &CStr) -> &mut Self {
        self.line(name, value.to_bytes())
    }

    fn flag(&mut self, name: &str, value: MaybeUninit<bool>) -> &mut Self {
        self.line(name, flag(value).to_string().as_bytes())
    }

    fn int(&mut self, name: &str, value: c_int) -> &mut Self {
        self.line(name, value.to_string().as_bytes())
    }
}

/// A float as C's `printf` writes it.
fn c_float(value: f32, digits: usize) -> String {
    if value.is_finite() {
        format!("{value:.digits$}")
    } else {
        let sign = if value.is_sign_negative() { "-" } else { "" };
        format!("{sign}{}", if value.is_nan() { "nan" } else { "inf" })
    }
}

/// # Safety
/// The strings inside are NULL or NUL-terminated.
unsafe fn context_text(p: &sd_ctx_params_t) -> Vec<u8> {
    let rng = |value| Rng::from_index(number::<rng_type_t>(value)).map_or(names::NONE, Rng::c_name);
    let vae_format = match number(p.vae_format) {
        -1 => c"auto",
        0 => c"flux",
        1 => c"sd3",
        2 => c"flux2",
        _ => names::NONE,
    };
    let mut out = Lines::default();
    // SAFETY: as promised by the caller.
    unsafe {
        out.text("model_path", p.model_path)
            .text("clip_l_path", p.clip_l_path)
            .text("clip_g_path", p.clip_g_path)
            .text("clip_vision_path", p.clip_vision_path)
            .text("t5xxl_path", p.t5xxl_path)
            .text("llm_path", p.llm_path)
            .text("llm_vision_path", p.llm_vision_path)
            .text("diffusion_model_path", p.diffusion_model_path)
            .text("high_noise_diffusion_model_path", p.high_noise_diffusion_model_path)
            .text("uncond_diffusion_model_path", p.uncond_diffusion_model_path)
            .text("embeddings_connectors_path", p.embeddings_connectors_path)
            .text("vae_path", p.vae_path)
            .text("audio_vae_path", p.audio_vae_path)
            .text("taesd_path", p.taesd_path)
            .text("control_net_path", p.control_net_path)
            .text("photo_maker_path", p.photo_maker_path)
            .text("pulid_weights_path", p.pulid_weights_path)
            .text("tensor_type_rules", p.tensor_type_rules)
            .int("n_threads", p.n_threads)
            .name("wtype", names::weight_type(number(p.wtype)))
            .name("rng_type", rng(p.rng_type))
            .name("sampler_rng_type", rng(p.sampler_rng_type))
            .name(
                "prediction",
                Prediction::from_index(number(p.prediction)).map_or(names::NONE, Prediction::c_name),
            )
            .text("max_vram", p.max_vram)
            .flag("stream_layers", p.stream_layers)
            .flag("eager_load", p.eager_load)
            .text("backend", p.backend)
            .text("params_backend", p.params_backend)
            .text("split_mode", p.split_mode)
            .text("model_args", p.model_args)
            .flag("auto_fit", p.auto_fit)
            .flag("flash_attn", p.flash_attn)
            .flag("diffusion_flash_attn", p.diffusion_flash_attn)
            .name("vae_format", vae_format);
    }
    out.0
}

/// # Safety
/// The string inside is NULL or NUL-terminated.
unsafe fn sample_text(p: &sd_sample_params_t) -> Vec<u8> {
    let g = &p.guidance;
    let image = if g.img_cfg.is_finite() { g.img_cfg } else { g.txt_cfg };
    let scheduler = Scheduler::from_index(number(p.scheduler)).map_or("NONE", Scheduler::name);
    let method = SampleMethod::from_index(number(p.sample_method)).map_or("NONE", SampleMethod::name);
    let two = |value| c_float(value, 2);
    let mut out = Lines::default();
    out.put(format_args!(
        "(txt_cfg: {}, img_cfg: {}, distilled_guidance: {}, ",
        two(g.txt_cfg),
        two(image),
        two(g.distilled_guidance)
    ))
    .put(format_args!(
        "slg.layer_count: {}, slg.layer_start: {}, slg.layer_end: {}, slg.scale: {}, ",
        g.slg.layer_count,
        two(g.slg.layer_start),
        two(g.slg.layer_end),
        two(g.slg.scale)
    ))
    .put(format_args!(
        "scheduler: {scheduler}, sample_method: {method}, sample_steps: {}, eta: {}, ",
        p.sample_steps,
        two(p.eta)
    ))
    .put(format_args!(
        "shifted_timestep: {}, flow_shift: {}, extra_sample_args: ",
        p.shifted_timestep,
        two(p.flow_shift)
    ));
    // SAFETY: as promised by the caller.
    out.0.extend(unsafe { bytes(p.extra_sample_args) }.unwrap_or_default());
    out.0.push(b')');
    out.0
}

/// The threshold that a cache mode takes when none is given.
fn cache_threshold(p: &sd_cache_params_t) -> f32 {
    let default = match number(p.mode) {
        1 => 0.2,
        2 => 1.0,
        _ => f32::INFINITY,
    };
    if p.reuse_threshold == f32::INFINITY { default } else { p.reuse_threshold.max(0.0) }
}

/// # Safety
/// The strings inside are NULL or NUL-terminated.
unsafe fn image_text(p: &sd_img_gen_params_t) -> Vec<u8> {
    let two = |value| c_float(value, 2);
    let mut out = Lines::default();
    // SAFETY: as promised by the caller.
    unsafe {
        out.text("prompt", p.prompt)
            .text("negative_prompt", p.negative_prompt)
            .int("clip_skip", p.clip_skip)
            .int("width", p.width)
            .int("height", p.height)
            .line("sample_params", &sample_text(&p.sample_params));
    }
    out.line("strength", two(p.strength).as_bytes())
        .line("seed", p.seed.to_string().as_bytes())
        .int("batch_count", p.batch_count)
        .int("qwen_image_layers", p.qwen_image_layers)
        .int("ref_images_count", p.ref_images_count)
        .flag("auto_resize_ref_image", p.auto_resize_ref_image)
        .flag("increase_ref_index", p.increase_ref_index)
        .line("control_strength", two(p.control_strength).as_bytes())
        .put(format_args!(
            "photo maker: {{style_strength = {}, id_images_count = {}, id_embed_path = ",
            two(p.pm_params.style_strength),
            p.pm_params.id_images_count
        ));
    // SAFETY: as promised by the caller.
    let (embed, args, model) = unsafe {
        (
            bytes(p.pm_params.id_embed_path),
            bytes(p.vae_tiling_params.extra_tiling_args),
            bytes(p.hires.model_path),
        )
    };
    out.0.extend(embed.unwrap_or_default());
    out.put(format_args!(
        "}}\nVAE tiling: {} (temporal={}, extra_tiling_args=",
        flag(p.vae_tiling_params.enabled),
        flag(p.vae_tiling_params.temporal_tiling)
    ));
    out.0.extend(args.unwrap_or_default());
    out.0.extend_from_slice(b")\n");
    let upscaler = HiresUpscaler::from_index(number(p.hires.upscaler)).map_or("NONE", HiresUpscaler::name);
    out.flag("circular_x", p.circular_x)
        .flag("circular_y", p.circular_y)
        .put(format_args!("hires: {{enabled={}, upscaler={upscaler}, model_path=", flag(p.hires.enabled)));
    out.0.extend(model.unwrap_or_default());
    out.put(format_args!(
        ", scale={}, target={}x{}, steps={}, denoising_strength={}}}\n",
        two(p.hires.scale),
        p.hires.target_width,
        p.hires.target_height,
        p.hires.steps,
        two(p.hires.denoising_strength)
    ));
    // Other modes have always been shown as disabled here.
    let mode = match number(p.cache.mode) {
        1 => "easycache",
        2 => "ucache",
        _ => "disabled",
    };
    out.put(format_args!(
        "cache: {mode} (threshold={}, start={}, end={})\n",
        c_float(cache_threshold(&p.cache), 3),
        two(p.cache.start_percent),
        two(p.cache.end_percent)
    ));
    out.0
}
