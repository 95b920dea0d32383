//! The C types of `stable-diffusion.h`, by their C names.
//!
//! Enums and booleans inside structs are wrapped in `MaybeUninit`: the caller may have stored any bit
//! pattern there, which Rust must not read as the type itself. [`super::read`] reads them as numbers.
//! The layouts asserted in `layout.rs` are those of x86-64 Linux (LP64).
#![allow(non_camel_case_types, non_snake_case)]

use std::ffi::{c_char, c_int, c_void};
use std::mem::MaybeUninit;

/// Random generator. `RNG_TYPE_COUNT` or any value out of range means the default.
#[repr(C)]
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum rng_type_t {
    /// mt19937 and the normal distribution of the C++ library
    STD_DEFAULT_RNG = 0,
    /// Philox as on CUDA devices (the default)
    CUDA_RNG = 1,
    /// mt19937 as of torch on a CPU
    CPU_RNG = 2,
    RNG_TYPE_COUNT = 3,
}

/// Sampler. `SAMPLE_METHOD_COUNT` or any value out of range means the model's default.
#[repr(C)]
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum sample_method_t {
    EULER_SAMPLE_METHOD = 0,
    EULER_A_SAMPLE_METHOD = 1,
    HEUN_SAMPLE_METHOD = 2,
    DPM2_SAMPLE_METHOD = 3,
    DPMPP2S_A_SAMPLE_METHOD = 4,
    DPMPP2M_SAMPLE_METHOD = 5,
    DPMPP2Mv2_SAMPLE_METHOD = 6,
    IPNDM_SAMPLE_METHOD = 7,
    IPNDM_V_SAMPLE_METHOD = 8,
    LCM_SAMPLE_METHOD = 9,
    DDIM_TRAILING_SAMPLE_METHOD = 10,
    TCD_SAMPLE_METHOD = 11,
    RES_MULTISTEP_SAMPLE_METHOD = 12,
    RES_2S_SAMPLE_METHOD = 13,
    ER_SDE_SAMPLE_METHOD = 14,
    EULER_CFG_PP_SAMPLE_METHOD = 15,
    EULER_A_CFG_PP_SAMPLE_METHOD = 16,
    EULER_GE_SAMPLE_METHOD = 17,
    DPMPP2M_SDE_SAMPLE_METHOD = 18,
    DPMPP2M_SDE_BT_SAMPLE_METHOD = 19,
    SAMPLE_METHOD_COUNT = 20,
}

/// Noise schedule. `SCHEDULER_COUNT` or any value out of range means the default for the model and sampler.
#[repr(C)]
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum scheduler_t {
    DISCRETE_SCHEDULER = 0,
    KARRAS_SCHEDULER = 1,
    EXPONENTIAL_SCHEDULER = 2,
    AYS_SCHEDULER = 3,
    GITS_SCHEDULER = 4,
    SGM_UNIFORM_SCHEDULER = 5,
    SIMPLE_SCHEDULER = 6,
    SMOOTHSTEP_SCHEDULER = 7,
    KL_OPTIMAL_SCHEDULER = 8,
    LCM_SCHEDULER = 9,
    BONG_TANGENT_SCHEDULER = 10,
    LTX2_SCHEDULER = 11,
    LOGIT_NORMAL_SCHEDULER = 12,
    FLUX2_SCHEDULER = 13,
    FLUX_SCHEDULER = 14,
    BETA_SCHEDULER = 15,
    SCHEDULER_COUNT = 16,
}

/// What the network predicts. `PREDICTION_COUNT` or any value out of range means: found from the weights.
#[repr(C)]
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum prediction_t {
    EPS_PRED = 0,
    V_PRED = 1,
    EDM_V_PRED = 2,
    FLOW_PRED = 3,
    FLUX_FLOW_PRED = 4,
    SEFI_FLOW_PRED = 5,
    MINIT2I_FLOW_PRED = 6,
    PREDICTION_COUNT = 7,
}

/// Type of stored weights; the numbers are those of ggml. `SD_TYPE_COUNT` or an unknown number means: as stored.
#[repr(C)]
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum sd_type_t {
    SD_TYPE_F32 = 0,
    SD_TYPE_F16 = 1,
    SD_TYPE_Q4_0 = 2,
    SD_TYPE_Q4_1 = 3,
    SD_TYPE_Q5_0 = 6,
    SD_TYPE_Q5_1 = 7,
    SD_TYPE_Q8_0 = 8,
    SD_TYPE_Q8_1 = 9,
    SD_TYPE_Q2_K = 10,
    SD_TYPE_Q3_K = 11,
    SD_TYPE_Q4_K = 12,
    SD_TYPE_Q5_K = 13,
    SD_TYPE_Q6_K = 14,
    SD_TYPE_Q8_K = 15,
    SD_TYPE_IQ2_XXS = 16,
    SD_TYPE_IQ2_XS = 17,
    SD_TYPE_IQ3_XXS = 18,
    SD_TYPE_IQ1_S = 19,
    SD_TYPE_IQ4_NL = 20,
    SD_TYPE_IQ3_S = 21,
    SD_TYPE_IQ2_S = 22,
    SD_TYPE_IQ4_XS = 23,
    SD_TYPE_I8 = 24,
    SD_TYPE_I16 = 25,
    SD_TYPE_I32 = 26,
    SD_TYPE_I64 = 27,
    SD_TYPE_F64 = 28,
    SD_TYPE_IQ1_M = 29,
    SD_TYPE_BF16 = 30,
    SD_TYPE_TQ1_0 = 34,
    SD_TYPE_TQ2_0 = 35,
    SD_TYPE_MXFP4 = 39,
    SD_TYPE_NVFP4 = 40,
    SD_TYPE_Q1_0 = 41,
    SD_TYPE_COUNT = 42,
}

/// Level of a log message.
#[repr(C)]
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum sd_log_level_t {
    SD_LOG_DEBUG = 0,
    SD_LOG_INFO = 1,
    SD_LOG_WARN = 2,
    SD_LOG_ERROR = 3,
}

/// How previews are made.
#[repr(C)]
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum preview_t {
    /// no previews
    PREVIEW_NONE = 0,
    /// projection of the latent channels: free, coarse
    PREVIEW_PROJ = 1,
    /// decoded by the tiny autoencoder
    PREVIEW_TAE = 2,
    /// decoded by the VAE: slow
    PREVIEW_VAE = 3,
    PREVIEW_COUNT = 4,
}

/// When LoRAs are applied: merged into the weights, or added while computing.
#[repr(C)]
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum lora_apply_mode_t {
    /// at run time when weights are quantised, else merged
    LORA_APPLY_AUTO = 0,
    /// merged into the weights
    LORA_APPLY_IMMEDIATELY = 1,
    /// added while computing; the weights stay as they are
    LORA_APPLY_AT_RUNTIME = 2,
    LORA_APPLY_MODE_COUNT = 3,
}

/// Latent format of a VAE file whose family cannot be told.
#[repr(C)]
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum sd_vae_format_t {
    SD_VAE_FORMAT_AUTO = -1,
    SD_VAE_FORMAT_FLUX = 0,
    SD_VAE_FORMAT_SD3 = 1,
    SD_VAE_FORMAT_FLUX2 = 2,
    SD_VAE_FORMAT_COUNT = 3,
}

/// Step cache: skips network calls whose result is predictable.
#[repr(C)]
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum sd_cache_mode_t {
    SD_CACHE_DISABLED = 0,
    SD_CACHE_EASYCACHE = 1,
    SD_CACHE_UCACHE = 2,
    SD_CACHE_DBCACHE = 3,
    SD_CACHE_TAYLORSEER = 4,
    SD_CACHE_CACHE_DIT = 5,
    SD_CACHE_SPECTRUM = 6,
}

/// Upscaler between the two passes of hires.
#[repr(C)]
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum sd_hires_upscaler_t {
    SD_HIRES_UPSCALER_NONE = 0,
    SD_HIRES_UPSCALER_LATENT = 1,
    SD_HIRES_UPSCALER_LATENT_NEAREST = 2,
    SD_HIRES_UPSCALER_LATENT_NEAREST_EXACT = 3,
    SD_HIRES_UPSCALER_LATENT_ANTIALIASED = 4,
    SD_HIRES_UPSCALER_LATENT_BICUBIC = 5,
    SD_HIRES_UPSCALER_LATENT_BICUBIC_ANTIALIASED = 6,
    SD_HIRES_UPSCALER_LANCZOS = 7,
    SD_HIRES_UPSCALER_NEAREST = 8,
    SD_HIRES_UPSCALER_MODEL = 9,
    SD_HIRES_UPSCALER_COUNT = 10,
}

/// What `sd_cancel_generation` stops.
#[repr(C)]
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum sd_cancel_mode_t {
    /// Stop the current call as soon as possible; it returns false and no picture.
    SD_CANCEL_ALL = 0,
    /// Finish the picture being sampled, skip the rest of the batch, return what is complete.
    SD_CANCEL_NEW_LATENTS = 1,
    /// Take a request back that has not been acted on yet.
    SD_CANCEL_RESET = 2,
}

/// Decoding and encoding in tiles, which bounds the memory of the VAE.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct sd_tiling_params_t {
    /// decode and encode in tiles
    pub enabled: MaybeUninit<bool>,
    /// split a video along time too
    pub temporal_tiling: MaybeUninit<bool>,
    /// tile width in latent pixels; 0: the default
    pub tile_size_x: c_int,
    /// tile height in latent pixels; 0: the default
    pub tile_size_y: c_int,
    /// overlap of neighbouring tiles as a share of a tile, 0..0.5
    pub target_overlap: f32,
    /// tile width as a share of the picture (at most 1) or as number of tiles (above 1); 0: tile_size_x counts
    pub rel_size_x: f32,
    /// tile height likewise
    pub rel_size_y: f32,
    /// further settings as `key=value,...`, or NULL
    pub extra_tiling_args: *const c_char,
}

/// A textual inversion: the word in the prompt and its file.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct sd_embedding_t {
    /// word that stands for the embedding in prompts
    pub name: *const c_char,
    /// its file
    pub path: *const c_char,
}

/// What a context is made of. Initialise with `sd_ctx_params_init`. For every path NULL and "" mean: not given.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct sd_ctx_params_t {
    /// whole checkpoint: a file, or a folder in the diffusers layout
    pub model_path: *const c_char,
    /// CLIP-L text encoder
    pub clip_l_path: *const c_char,
    /// CLIP-G text encoder
    pub clip_g_path: *const c_char,
    /// CLIP vision encoder
    pub clip_vision_path: *const c_char,
    /// T5 text encoder
    pub t5xxl_path: *const c_char,
    /// language model used as text encoder
    pub llm_path: *const c_char,
    /// vision tower of that language model
    pub llm_vision_path: *const c_char,
    /// diffusion network alone
    pub diffusion_model_path: *const c_char,
    /// network for the noisy steps of a two-model video family
    pub high_noise_diffusion_model_path: *const c_char,
    /// network for the unconditional branch, where a family has one
    pub uncond_diffusion_model_path: *const c_char,
    /// connectors between language model and diffusion network
    pub embeddings_connectors_path: *const c_char,
    /// VAE; replaces the one in the checkpoint
    pub vae_path: *const c_char,
    /// VAE and vocoder for sound
    pub audio_vae_path: *const c_char,
    /// tiny autoencoder
    pub taesd_path: *const c_char,
    /// ControlNet
    pub control_net_path: *const c_char,
    /// textual inversions, `embedding_count` of them; may be NULL when the count is 0
    pub embeddings: *const sd_embedding_t,
    /// number of `embeddings`
    pub embedding_count: u32,
    /// PhotoMaker weights
    pub photo_maker_path: *const c_char,
    /// PuLID weights
    pub pulid_weights_path: *const c_char,
    /// types by tensor name: `pattern=type,...`; the first match wins over `wtype`
    pub tensor_type_rules: *const c_char,
    /// worker threads; 0 or less: the number of physical cores
    pub n_threads: c_int,
    /// type that weights are converted to on load
    pub wtype: MaybeUninit<sd_type_t>,
    /// generator of the initial noise
    pub rng_type: MaybeUninit<rng_type_t>,
    /// generator of a sampler's noise; RNG_TYPE_COUNT: as rng_type
    pub sampler_rng_type: MaybeUninit<rng_type_t>,
    /// what the network predicts
    pub prediction: MaybeUninit<prediction_t>,
    /// when LoRAs are applied
    pub lora_apply_mode: MaybeUninit<lora_apply_mode_t>,
    /// map weight files instead of copying them
    pub enable_mmap: MaybeUninit<bool>,
    /// fused attention everywhere
    pub flash_attn: MaybeUninit<bool>,
    /// fused attention in the diffusion network
    pub diffusion_flash_attn: MaybeUninit<bool>,
    /// use the tiny autoencoder for previews only
    pub tae_preview_only: MaybeUninit<bool>,
    /// direct convolution in the diffusion network
    pub diffusion_conv_direct: MaybeUninit<bool>,
    /// direct convolution in the VAE
    pub vae_conv_direct: MaybeUninit<bool>,
    /// scale that keeps the original SDXL VAE within F16
    pub force_sdxl_vae_conv_scale: MaybeUninit<bool>,
    /// latent format of `vae_path`
    pub vae_format: MaybeUninit<sd_vae_format_t>,
    /// device memory for weights in GiB, or `device=GiB,...`; NULL or "0": no limit, "-1": what is free
    pub max_vram: *const c_char,
    /// with `max_vram`: load the next layers while the present ones compute
    pub stream_layers: MaybeUninit<bool>,
    /// load all weights in `new_sd_ctx` instead of at first use
    pub eager_load: MaybeUninit<bool>,
    /// device, or `module=device,...`; see `sd_list_devices`
    pub backend: *const c_char,
    /// where weights wait while unused, in the same syntax
    pub params_backend: *const c_char,
    /// `layer` or `row`, or `module=mode,...`, for a module over several devices
    pub split_mode: *const c_char,
    /// choose devices and limits by what is free
    pub auto_fit: MaybeUninit<bool>,
    /// `host:port,...` of remote devices
    pub rpc_servers: *const c_char,
    /// settings of the family as `key=value,...`
    pub model_args: *const c_char,
}

/// Sound of a video: interleaved samples in -1..1. Free with `free_sd_audio`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct sd_audio_t {
    /// samples a second
    pub sample_rate: u32,
    /// channels, interleaved
    pub channels: u32,
    /// samples of one channel
    pub sample_count: u64,
    /// `channels * sample_count` values
    pub data: *mut f32,
}

/// Pixels, 8 bit, row by row, `channel` bytes a pixel. `data` NULL means: no image.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct sd_image_t {
    /// pixels in a row
    pub width: u32,
    /// rows
    pub height: u32,
    /// bytes of a pixel: 1, 3 or 4
    pub channel: u32,
    /// `width * height * channel` bytes
    pub data: *mut u8,
}

/// Skip-layer guidance.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct sd_slg_params_t {
    /// indices of the blocks to skip
    pub layers: *mut c_int,
    /// number of `layers`
    pub layer_count: usize,
    /// share of the steps after which it starts
    pub layer_start: f32,
    /// share of the steps after which it ends
    pub layer_end: f32,
    /// strength; 0: off
    pub scale: f32,
}

/// Guidance scales.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct sd_guidance_params_t {
    /// classifier-free guidance of the prompt; 1: off
    pub txt_cfg: f32,
    /// guidance of the image condition; not finite: as txt_cfg
    pub img_cfg: f32,
    /// guidance that distilled models take as an input
    pub distilled_guidance: f32,
    /// skip-layer guidance
    pub slg: sd_slg_params_t,
}

/// How a latent is sampled. Initialise with `sd_sample_params_init`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct sd_sample_params_t {
    /// guidance scales
    pub guidance: sd_guidance_params_t,
    /// noise schedule
    pub scheduler: MaybeUninit<scheduler_t>,
    /// sampler
    pub sample_method: MaybeUninit<sample_method_t>,
    /// steps; 1 or more
    pub sample_steps: c_int,
    /// noise added back by ancestral samplers; not finite: the sampler's default
    pub eta: f32,
    /// shift of the time steps for models trained that way; 0: off
    pub shifted_timestep: c_int,
    /// own schedule, largest first, ending in 0; NULL: none
    pub custom_sigmas: *mut f32,
    /// number of `custom_sigmas`
    pub custom_sigmas_count: c_int,
    /// shift of flow models; not finite: the model's default
    pub flow_shift: f32,
    /// further settings as `key=value,...`, or NULL
    pub extra_sample_args: *const c_char,
}

/// PhotoMaker: identity from pictures.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct sd_pm_params_t {
    /// pictures of the person
    pub id_images: *mut sd_image_t,
    /// number of `id_images`
    pub id_images_count: c_int,
    /// embedding file for version 2, or NULL
    pub id_embed_path: *const c_char,
    /// 0..100; higher follows the prompt more
    pub style_strength: f32,
}

/// PuLID: identity from an embedding file.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct sd_pulid_params_t {
    /// embedding file (GGUF), or NULL
    pub id_embedding_path: *const c_char,
    /// strength
    pub id_weight: f32,
}

/// Step caches. Initialise with `sd_cache_params_init`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct sd_cache_params_t {
    /// which cache
    pub mode: MaybeUninit<sd_cache_mode_t>,
    /// change below which a step is reused; not finite: the mode's default
    pub reuse_threshold: f32,
    /// share of the steps before which nothing is skipped
    pub start_percent: f32,
    /// share of the steps after which nothing is skipped
    pub end_percent: f32,
    /// how fast accumulated error fades
    pub error_decay_rate: f32,
    /// the threshold is relative to the size of the output
    pub use_relative_threshold: MaybeUninit<bool>,
    /// a computed step clears the accumulated error
    pub reset_error_on_compute: MaybeUninit<bool>,
    /// blocks at the front that are always computed
    pub Fn_compute_blocks: c_int,
    /// blocks at the back that are always computed
    pub Bn_compute_blocks: c_int,
    /// change of the residual below which blocks are reused
    pub residual_diff_threshold: f32,
    /// steps computed in full at first
    pub max_warmup_steps: c_int,
    /// most steps to skip; -1: no limit
    pub max_cached_steps: c_int,
    /// most steps to skip in a row; -1: no limit
    pub max_continuous_cached_steps: c_int,
    /// order of the prediction
    pub taylorseer_n_derivatives: c_int,
    /// steps predicted between two computed ones
    pub taylorseer_skip_interval: c_int,
    /// which steps to compute as `1,0,...`, or NULL
    pub scm_mask: *const c_char,
    /// the mask allows skipping instead of forcing it
    pub scm_policy_dynamic: MaybeUninit<bool>,
    /// weight of the prediction
    pub spectrum_w: f32,
    /// number of basis functions
    pub spectrum_m: c_int,
    /// regularisation
    pub spectrum_lam: f32,
    /// steps between computed ones
    pub spectrum_window_size: c_int,
    /// growth of that window
    pub spectrum_flex_window: f32,
    /// steps computed in full at first
    pub spectrum_warmup_steps: c_int,
    /// share of the steps after which all are computed
    pub spectrum_stop_percent: f32,
}

/// A LoRA file and its strength.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct sd_lora_t {
    /// for the high-noise network of a two-model family
    pub is_high_noise: MaybeUninit<bool>,
    /// strength
    pub multiplier: f32,
    /// its file
    pub path: *const c_char,
}

/// A second pass at a higher resolution. Initialise with `sd_hires_params_init`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct sd_hires_params_t {
    /// make a second pass
    pub enabled: MaybeUninit<bool>,
    /// how the first result is enlarged
    pub upscaler: MaybeUninit<sd_hires_upscaler_t>,
    /// upscaler file for SD_HIRES_UPSCALER_MODEL
    pub model_path: *const c_char,
    /// factor, when no target is given
    pub scale: f32,
    /// width of the result; 0: by `scale`
    pub target_width: c_int,
    /// height of the result; 0: by `scale`
    pub target_height: c_int,
    /// steps of the second pass; 0: as many as in the first
    pub steps: c_int,
    /// share of the steps that the second pass runs, 0..1
    pub denoising_strength: f32,
    /// tile of the model upscaler in pixels
    pub upscale_tile_size: c_int,
    /// own schedule of the second pass; NULL: none
    pub custom_sigmas: *mut f32,
    /// number of `custom_sigmas`
    pub custom_sigmas_count: c_int,
}

/// A request for images. Initialise with `sd_img_gen_params_init`. The library copies everything; nothing is kept after the call.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct sd_img_gen_params_t {
    /// LoRAs, `lora_count` of them; may be NULL when the count is 0
    pub loras: *const sd_lora_t,
    /// number of `loras`
    pub lora_count: u32,
    /// what to show; NULL: empty
    pub prompt: *const c_char,
    /// what to avoid; NULL: empty
    pub negative_prompt: *const c_char,
    /// which layer of CLIP counts from the end; 0 or less: the model's default
    pub clip_skip: c_int,
    /// image to start from; for a video its first frame
    pub init_image: sd_image_t,
    /// reference images of edit models
    pub ref_images: *mut sd_image_t,
    /// number of `ref_images`
    pub ref_images_count: c_int,
    /// scale references to the size the model likes
    pub auto_resize_ref_image: MaybeUninit<bool>,
    /// each reference gets an index of its own
    pub increase_ref_index: MaybeUninit<bool>,
    /// white: paint anew, black: keep
    pub mask_image: sd_image_t,
    /// pixels; rounded up to what the model needs
    pub width: c_int,
    /// pixels; rounded up to what the model needs
    pub height: c_int,
    /// how to sample
    pub sample_params: sd_sample_params_t,
    /// how far the init image is changed, 0..1
    pub strength: f32,
    /// seed; negative: a random one
    pub seed: i64,
    /// images to make; 1 or more
    pub batch_count: c_int,
    /// image for the ControlNet or control model
    pub control_image: sd_image_t,
    /// strength of the ControlNet
    pub control_strength: f32,
    /// PhotoMaker
    pub pm_params: sd_pm_params_t,
    /// PuLID
    pub pulid_params: sd_pulid_params_t,
    /// VAE in tiles
    pub vae_tiling_params: sd_tiling_params_t,
    /// step cache
    pub cache: sd_cache_params_t,
    /// second pass
    pub hires: sd_hires_params_t,
    /// layers of a layered model
    pub qwen_image_layers: c_int,
    /// wrap around horizontally
    pub circular_x: MaybeUninit<bool>,
    /// wrap around vertically
    pub circular_y: MaybeUninit<bool>,
}

/// A request for a video. Initialise with `sd_vid_gen_params_init`. The library copies everything; nothing is kept after the call.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct sd_vid_gen_params_t {
    /// LoRAs, `lora_count` of them; may be NULL when the count is 0
    pub loras: *const sd_lora_t,
    /// number of `loras`
    pub lora_count: u32,
    /// what to show; NULL: empty
    pub prompt: *const c_char,
    /// what to avoid; NULL: empty
    pub negative_prompt: *const c_char,
    /// which layer of CLIP counts from the end; 0 or less: the model's default
    pub clip_skip: c_int,
    /// image to start from; for a video its first frame
    pub init_image: sd_image_t,
    /// last frame
    pub end_image: sd_image_t,
    /// frames that guide the video
    pub control_frames: *mut sd_image_t,
    /// number of `control_frames`
    pub control_frames_size: c_int,
    /// pixels; rounded up to what the model needs
    pub width: c_int,
    /// pixels; rounded up to what the model needs
    pub height: c_int,
    /// how to sample
    pub sample_params: sd_sample_params_t,
    /// how to sample with the high-noise network; sample_steps -1: chosen by `moe_boundary`
    pub high_noise_sample_params: sd_sample_params_t,
    /// time at which the high-noise network hands over
    pub moe_boundary: f32,
    /// how far the init image is changed, 0..1
    pub strength: f32,
    /// seed; negative: a random one
    pub seed: i64,
    /// frames to make; rounded to what the model can do
    pub video_frames: c_int,
    /// frames a second, which some models know about
    pub fps: c_int,
    /// strength of VACE control
    pub vace_strength: f32,
    /// VAE in tiles
    pub vae_tiling_params: sd_tiling_params_t,
    /// step cache
    pub cache: sd_cache_params_t,
    /// second pass
    pub hires: sd_hires_params_t,
    /// wrap around horizontally
    pub circular_x: MaybeUninit<bool>,
    /// wrap around vertically
    pub circular_y: MaybeUninit<bool>,
}

/// A tensor of ggml, as seen by a graph evaluation callback.
pub struct ggml_tensor {
    _opaque: [u8; 0],
}

/// Receives log messages `file:line - text\n`, on the thread that called the library.
pub type sd_log_cb_t =
    Option<unsafe extern "C" fn(level: MaybeUninit<sd_log_level_t>, text: *const c_char, data: *mut c_void)>;
/// Receives progress: steps done, steps in all, seconds per step.
pub type sd_progress_cb_t =
    Option<unsafe extern "C" fn(step: c_int, steps: c_int, time: f32, data: *mut c_void)>;
/// Receives preview frames, which belong to the library and are valid during the call only.
pub type sd_preview_cb_t = Option<
    unsafe extern "C" fn(
        step: c_int,
        frame_count: c_int,
        frames: *mut sd_image_t,
        is_noisy: bool,
        data: *mut c_void,
    ),
>;
/// Asked before (`ask` true: is this tensor wanted?) and after a graph node is computed (false stops the graph).
pub type sd_graph_eval_callback_t =
    Option<unsafe extern "C" fn(t: *mut ggml_tensor, ask: bool, user_data: *mut c_void) -> bool>;
