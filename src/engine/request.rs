//! What a caller asks for, owned by the library: nothing in here points into the caller's memory.
//!
//! Plain data that every room may read. `None` stands for "not given" and for values that mean the default in the
//! C structs (a count as enum value, an infinite float, NULL or an empty path).
#![forbid(unsafe_code)]

pub use super::choice::{
    CacheMode, HiresUpscaler, LoraApply, Prediction, Rng, SampleMethod, Scheduler, VaeFormat,
};
use crate::error::{Error, Result};
use crate::image::Image;
use std::path::PathBuf;

/// A textual inversion.
#[derive(Clone, Debug, PartialEq)]
pub struct Embedding {
    /// Word that stands for it in prompts.
    pub name: String,
    /// Its file.
    pub path: PathBuf,
}

/// What a context is made of; field by field `sd_ctx_params_t`, which documents them.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub struct ContextOptions {
    pub model: Option<PathBuf>,
    pub clip_l: Option<PathBuf>,
    pub clip_g: Option<PathBuf>,
    pub clip_vision: Option<PathBuf>,
    pub t5xxl: Option<PathBuf>,
    pub llm: Option<PathBuf>,
    pub llm_vision: Option<PathBuf>,
    pub diffusion_model: Option<PathBuf>,
    pub high_noise_diffusion_model: Option<PathBuf>,
    pub uncond_diffusion_model: Option<PathBuf>,
    pub embeddings_connectors: Option<PathBuf>,
    pub vae: Option<PathBuf>,
    pub audio_vae: Option<PathBuf>,
    pub taesd: Option<PathBuf>,
    pub control_net: Option<PathBuf>,
    pub photo_maker: Option<PathBuf>,
    pub pulid_weights: Option<PathBuf>,
    pub embeddings: Vec<Embedding>,
    pub tensor_type_rules: Option<String>,
    /// 1 or more.
    pub n_threads: usize,
    /// Number of a ggml type that exists.
    pub wtype: Option<u32>,
    pub rng: Rng,
    /// `None`: as `rng`.
    pub sampler_rng: Option<Rng>,
    pub prediction: Option<Prediction>,
    pub lora_apply: LoraApply,
    pub enable_mmap: bool,
    pub flash_attn: bool,
    pub diffusion_flash_attn: bool,
    pub tae_preview_only: bool,
    pub diffusion_conv_direct: bool,
    pub vae_conv_direct: bool,
    pub force_sdxl_vae_conv_scale: bool,
    pub vae_format: Option<VaeFormat>,
    pub max_vram: Option<String>,
    pub stream_layers: bool,
    pub eager_load: bool,
    pub backend: Option<String>,
    pub params_backend: Option<String>,
    pub split_mode: Option<String>,
    pub auto_fit: bool,
    pub rpc_servers: Option<String>,
    pub model_args: Option<String>,
}

impl Default for ContextOptions {
    fn default() -> Self {
        Self {
            model: None,
            clip_l: None,
            clip_g: None,
            clip_vision: None,
            t5xxl: None,
            llm: None,
            llm_vision: None,
            diffusion_model: None,
            high_noise_diffusion_model: None,
            uncond_diffusion_model: None,
            embeddings_connectors: None,
            vae: None,
            audio_vae: None,
            taesd: None,
            control_net: None,
            photo_maker: None,
            pulid_weights: None,
            embeddings: Vec::new(),
            tensor_type_rules: None,
            n_threads: super::system::physical_cores(),
            wtype: None,
            rng: Rng::Cuda,
            sampler_rng: None,
            prediction: None,
            lora_apply: LoraApply::Auto,
            enable_mmap: false,
            flash_attn: false,
            diffusion_flash_attn: false,
            tae_preview_only: false,
            diffusion_conv_direct: false,
            vae_conv_direct: false,
            force_sdxl_vae_conv_scale: false,
            vae_format: None,
            max_vram: None,
            stream_layers: false,
            eager_load: false,
            backend: None,
            params_backend: None,
            split_mode: None,
            auto_fit: false,
            rpc_servers: None,
            model_args: None,
        }
    }
}

/// Skip-layer guidance.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SkipLayers {
    /// Blocks to skip.
    pub layers: Vec<i32>,
    /// Share of the steps after which it starts.
    pub start: f32,
    /// Share of the steps after which it ends.
    pub end: f32,
    /// Strength; 0: off.
    pub scale: f32,
}

/// Guidance scales.
#[derive(Clone, Debug, PartialEq)]
pub struct Guidance {
    /// Of the prompt; 1: off.
    pub text: f32,
    /// Of the image condition; `None`: as `text`.
    pub image: Option<f32>,
    /// Input of distilled models.
    pub distilled: f32,
    /// Skip-layer guidance.
    pub skip_layers: SkipLayers,
}

/// How a latent is sampled.
#[derive(Clone, Debug, PartialEq)]
pub struct SampleOptions {
    /// Guidance scales.
    pub guidance: Guidance,
    /// Schedule; `None`: the default of model and sampler.
    pub scheduler: Option<Scheduler>,
    /// Sampler; `None`: the model's default.
    pub method: Option<SampleMethod>,
    /// Steps as given; -1 is a wish of high-noise parameters only.
    pub steps: i32,
    /// `None`: the sampler's default.
    pub eta: Option<f32>,
    /// 0: off.
    pub shifted_timestep: i32,
    /// Own schedule, largest first; empty: none.
    pub custom_sigmas: Vec<f32>,
    /// `None`: the model's default.
    pub flow_shift: Option<f32>,
    /// `key=value,...`
    pub extra_args: Option<String>,
}

impl Default for SampleOptions {
    fn default() -> Self {
        Self {
            guidance: Guidance {
                text: 7.0,
                image: None,
                distilled: 3.5,
                skip_layers: SkipLayers { layers: Vec::new(), start: 0.01, end: 0.2, scale: 0.0 },
            },
            scheduler: None,
            method: None,
            steps: 20,
            eta: None,
            shifted_timestep: 0,
            custom_sigmas: Vec::new(),
            flow_shift: None,
            extra_args: None,
        }
    }
}

/// Decoding and encoding in tiles.
#[derive(Clone, Debug, PartialEq)]
pub struct Tiling {
    /// Whether at all.
    pub enabled: bool,
    /// Along time too.
    pub temporal: bool,
    /// Tile width and height in latent pixels; 0: the default.
    pub tile_size: [i32; 2],
    /// Share of a tile that neighbours share.
    pub target_overlap: f32,
    /// Tile width and height as a share of the picture, or as number of tiles above 1; 0: `tile_size` counts.
    pub relative_size: [f32; 2],
    /// `key=value,...`
    pub extra_args: Option<String>,
}

impl Default for Tiling {
    fn default() -> Self {
        Self {
            enabled: false,
            temporal: false,
            tile_size: [0; 2],
            target_overlap: 0.5,
            relative_size: [0.0; 2],
            extra_args: None,
        }
    }
}

/// Step cache; field by field `sd_cache_params_t`, which documents them.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub struct CacheOptions {
    pub mode: CacheMode,
    /// `None`: the mode's default.
    pub reuse_threshold: Option<f32>,
    pub start_percent: f32,
    pub end_percent: f32,
    pub error_decay_rate: f32,
    pub use_relative_threshold: bool,
    pub reset_error_on_compute: bool,
    pub front_compute_blocks: i32,
    pub back_compute_blocks: i32,
    pub residual_diff_threshold: f32,
    pub max_warmup_steps: i32,
    pub max_cached_steps: i32,
    pub max_continuous_cached_steps: i32,
    pub taylorseer_n_derivatives: i32,
    pub taylorseer_skip_interval: i32,
    pub scm_mask: Option<String>,
    pub scm_policy_dynamic: bool,
    pub spectrum_w: f32,
    pub spectrum_m: i32,
    pub spectrum_lam: f32,
    pub spectrum_window_size: i32,
    pub spectrum_flex_window: f32,
    pub spectrum_warmup_steps: i32,
    pub spectrum_stop_percent: f32,
}

impl Default for CacheOptions {
    fn default() -> Self {
        Self {
            mode: CacheMode::Disabled,
            reuse_threshold: None,
            start_percent: 0.15,
            end_percent: 0.95,
            error_decay_rate: 1.0,
            use_relative_threshold: true,
            reset_error_on_compute: true,
            front_compute_blocks: 8,
            back_compute_blocks: 0,
            residual_diff_threshold: 0.08,
            max_warmup_steps: 8,
            max_cached_steps: -1,
            max_continuous_cached_steps: -1,
            taylorseer_n_derivatives: 1,
            taylorseer_skip_interval: 1,
            scm_mask: None,
            scm_policy_dynamic: true,
            spectrum_w: 0.4,
            spectrum_m: 3,
            spectrum_lam: 1.0,
            spectrum_window_size: 2,
            spectrum_flex_window: 0.5,
            spectrum_warmup_steps: 4,
            spectrum_stop_percent: 0.9,
        }
    }
}

/// A LoRA file and its strength.
#[derive(Clone, Debug, PartialEq)]
pub struct Lora {
    /// For the high-noise network of a two-model family.
    pub high_noise: bool,
    /// Strength.
    pub multiplier: f32,
    /// Its file.
    pub path: PathBuf,
}

/// A second pass at a higher resolution.
#[derive(Clone, Debug, PartialEq)]
pub struct Hires {
    /// Whether at all.
    pub enabled: bool,
    /// How the first result is enlarged.
    pub upscaler: HiresUpscaler,
    /// File for [`HiresUpscaler::Model`].
    pub model: Option<PathBuf>,
    /// Factor, when no target is given.
    pub scale: f32,
    /// Width and height of the result; 0: by `scale`.
    pub target: [i32; 2],
    /// Steps; 0: as in the first pass.
    pub steps: i32,
    /// Share of the steps that the second pass runs.
    pub denoising_strength: f32,
    /// Tile of the upscaling network in pixels.
    pub upscale_tile_size: i32,
    /// Own schedule; empty: none.
    pub custom_sigmas: Vec<f32>,
}

impl Default for Hires {
    fn default() -> Self {
        Self {
            enabled: false,
            upscaler: HiresUpscaler::Latent,
            model: None,
            scale: 2.0,
            target: [0; 2],
            steps: 0,
            denoising_strength: 0.7,
            upscale_tile_size: 128,
            custom_sigmas: Vec::new(),
        }
    }
}

/// Identity from pictures.
#[derive(Clone, Debug, PartialEq)]
pub struct PhotoMaker {
    /// Pictures of the person.
    pub images: Vec<Image>,
    /// Embedding file for version 2.
    pub embed: Option<PathBuf>,
    /// 0..100.
    pub style_strength: f32,
}

impl Default for PhotoMaker {
    fn default() -> Self {
        Self { images: Vec::new(), embed: None, style_strength: 20.0 }
    }
}

/// Identity from an embedding file.
#[derive(Clone, Debug, PartialEq)]
pub struct Pulid {
    /// The file.
    pub embedding: Option<PathBuf>,
    /// Strength.
    pub weight: f32,
}

impl Default for Pulid {
    fn default() -> Self {
        Self { embedding: None, weight: 1.0 }
    }
}

/// A request for images; field by field `sd_img_gen_params_t`, which documents them.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub struct ImageRequest {
    pub loras: Vec<Lora>,
    /// Any bytes, UTF-8 or not.
    pub prompt: Vec<u8>,
    /// Any bytes, UTF-8 or not.
    pub negative_prompt: Vec<u8>,
    /// 0 or less: the model's default.
    pub clip_skip: i32,
    pub init_image: Option<Image>,
    pub ref_images: Vec<Image>,
    pub auto_resize_ref_image: bool,
    pub increase_ref_index: bool,
    pub mask_image: Option<Image>,
    /// Pixels, as asked for.
    pub width: usize,
    /// Pixels, as asked for.
    pub height: usize,
    pub sample: SampleOptions,
    pub strength: f32,
    /// Negative: a random one.
    pub seed: i64,
    /// 1 or more.
    pub batch_count: usize,
    pub control_image: Option<Image>,
    pub control_strength: f32,
    pub photo_maker: PhotoMaker,
    pub pulid: Pulid,
    pub vae_tiling: Tiling,
    pub cache: CacheOptions,
    pub hires: Hires,
    /// Layers of a layered model.
    pub layers: i32,
    pub circular_x: bool,
    pub circular_y: bool,
}

impl Default for ImageRequest {
    fn default() -> Self {
        Self {
            loras: Vec::new(),
            prompt: Vec::new(),
            negative_prompt: Vec::new(),
            clip_skip: -1,
            init_image: None,
            ref_images: Vec::new(),
            auto_resize_ref_image: false,
            increase_ref_index: false,
            mask_image: None,
            width: 512,
            height: 512,
            sample: SampleOptions::default(),
            strength: 0.75,
            seed: -1,
            batch_count: 1,
            control_image: None,
            control_strength: 0.9,
            photo_maker: PhotoMaker::default(),
            pulid: Pulid::default(),
            vae_tiling: Tiling::default(),
            cache: CacheOptions::default(),
            hires: Hires::default(),
            layers: 3,
            circular_x: false,
            circular_y: false,
        }
    }
}

/// A request for a video; field by field `sd_vid_gen_params_t`, which documents them.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub struct VideoRequest {
    pub loras: Vec<Lora>,
    /// Any bytes, UTF-8 or not.
    pub prompt: Vec<u8>,
    /// Any bytes, UTF-8 or not.
    pub negative_prompt: Vec<u8>,
    /// 0 or less: the model's default.
    pub clip_skip: i32,
    pub init_image: Option<Image>,
    pub end_image: Option<Image>,
    pub control_frames: Vec<Image>,
    /// Pixels, as asked for.
    pub width: usize,
    /// Pixels, as asked for.
    pub height: usize,
    pub sample: SampleOptions,
    /// Steps -1: chosen by `moe_boundary`.
    pub high_noise_sample: SampleOptions,
    pub moe_boundary: f32,
    pub strength: f32,
    /// Negative: a random one.
    pub seed: i64,
    /// 1 or more.
    pub frames: usize,
    /// 1 or more.
    pub fps: i32,
    pub vace_strength: f32,
    pub vae_tiling: Tiling,
    pub cache: CacheOptions,
    pub hires: Hires,
    pub circular_x: bool,
    pub circular_y: bool,
}

impl Default for VideoRequest {
    fn default() -> Self {
        Self {
            loras: Vec::new(),
            prompt: Vec::new(),
            negative_prompt: Vec::new(),
            clip_skip: 0,
            init_image: None,
            end_image: None,
            control_frames: Vec::new(),
            width: 512,
            height: 512,
            sample: SampleOptions::default(),
            high_noise_sample: SampleOptions { steps: -1, ..SampleOptions::default() },
            moe_boundary: 0.875,
            strength: 0.75,
            seed: -1,
            frames: 6,
            fps: 16,
            vace_strength: 1.0,
            vae_tiling: Tiling::default(),
            cache: CacheOptions::default(),
            hires: Hires::default(),
            circular_x: false,
            circular_y: false,
        }
    }
}

/// An upscaler to load.
#[derive(Clone, Debug, PartialEq)]
pub struct UpscalerOptions {
    /// Weights.
    pub path: PathBuf,
    /// Direct convolution.
    pub direct: bool,
    /// 1 or more.
    pub n_threads: usize,
    /// Tile in pixels; 0 or less: the default.
    pub tile_size: i32,
    /// Device.
    pub backend: Option<String>,
    /// Where weights wait.
    pub params_backend: Option<String>,
}

/// A picture to enlarge.
#[derive(Clone, Debug, PartialEq)]
pub struct UpscaleRequest {
    /// The picture.
    pub image: Image,
    /// Factor wished for.
    pub factor: u32,
}

/// A conversion of model files.
#[derive(Clone, Debug, PartialEq)]
pub struct ConvertRequest {
    /// Whole checkpoint.
    pub model: Option<PathBuf>,
    /// CLIP-L text encoder.
    pub clip_l: Option<PathBuf>,
    /// CLIP-G text encoder.
    pub clip_g: Option<PathBuf>,
    /// T5 text encoder.
    pub t5xxl: Option<PathBuf>,
    /// Diffusion network alone.
    pub diffusion_model: Option<PathBuf>,
    /// VAE.
    pub vae: Option<PathBuf>,
    /// File to write: `.gguf` or `.safetensors`.
    pub output: PathBuf,
    /// Number of a ggml type that exists; `None`: as stored.
    pub output_type: Option<u32>,
    /// `pattern=type,...`
    pub tensor_type_rules: Option<String>,
    /// Write the library's tensor names instead of those of the file.
    pub convert_name: bool,
    /// 1 or more.
    pub n_threads: usize,
}

/// Largest width, height, step, batch and frame counts taken.
const MAX_SIDE: usize = Image::MAX_SIDE;
const MAX_STEPS: i32 = 10_000;
const MAX_BATCH: usize = 10_000;

fn check_size(width: usize, height: usize) -> Result<()> {
    for (name, value) in [("width", width), ("height", height)] {
        if !(1..=MAX_SIDE).contains(&value) {
            return Err(Error::invalid(format!("{name} is {value}, expected 1..={MAX_SIDE}")));
        }
    }
    Ok(())
}

fn check_sample(field: &str, sample: &SampleOptions, automatic_steps: bool) -> Result<()> {
    let steps_fit =
        (1..=MAX_STEPS).contains(&sample.steps) || automatic_steps && (-1..=0).contains(&sample.steps);
    if sample.custom_sigmas.is_empty() && !steps_fit {
        return Err(Error::invalid(format!(
            "{field}.sample_steps is {}, expected 1..={MAX_STEPS}",
            sample.steps
        )));
    }
    if let Some(bad) = sample.custom_sigmas.iter().find(|s| !s.is_finite() || **s < 0.0) {
        return Err(Error::invalid(format!(
            "{field}.custom_sigmas holds {bad}, expected finite values >= 0"
        )));
    }
    check_finite(&format!("{field}.guidance.txt_cfg"), sample.guidance.text)?;
    check_finite(&format!("{field}.guidance.distilled_guidance"), sample.guidance.distilled)
}

fn check_finite(field: &str, value: f32) -> Result<()> {
    if value.is_finite() {
        Ok(())
    } else {
        Err(Error::invalid(format!("{field} is {value}, expected a finite number")))
    }
}

fn check_strength(value: f32) -> Result<()> {
    if value.is_finite() && value >= 0.0 {
        Ok(())
    } else {
        Err(Error::invalid(format!("strength is {value}, expected 0..1")))
    }
}

fn check_hires(hires: &Hires) -> Result<()> {
    if !hires.enabled {
        return Ok(());
    }
    if hires.target == [0, 0] && !(hires.scale.is_finite() && hires.scale > 0.0) {
        return Err(Error::invalid(format!(
            "hires.scale is {}, expected a number above 0, or a target size",
            hires.scale
        )));
    }
    if hires.target.iter().any(|t| !(0..=MAX_SIDE as i32).contains(t)) {
        return Err(Error::invalid(format!(
            "hires.target_width and target_height are {} x {}, expected 0..={MAX_SIDE}",
            hires.target[0], hires.target[1]
        )));
    }
    check_finite("hires.denoising_strength", hires.denoising_strength)
}

impl ImageRequest {
    /// Checks what can be checked without a model; the error names the field.
    pub fn validate(&self) -> Result<()> {
        check_size(self.width, self.height)?;
        check_sample("sample_params", &self.sample, false)?;
        check_strength(self.strength)?;
        check_hires(&self.hires)?;
        if !(1..=MAX_BATCH).contains(&self.batch_count) {
            return Err(Error::invalid(format!(
                "batch_count is {}, expected 1..={MAX_BATCH}",
                self.batch_count
            )));
        }
        Ok(())
    }
}

impl VideoRequest {
    /// Checks what can be checked without a model; the error names the field.
    pub fn validate(&self) -> Result<()> {
        check_size(self.width, self.height)?;
        check_sample("sample_params", &self.sample, false)?;
        check_sample("high_noise_sample_params", &self.high_noise_sample, true)?;
        check_strength(self.strength)?;
        check_hires(&self.hires)?;
        if !(1..=MAX_BATCH).contains(&self.frames) {
            return Err(Error::invalid(format!("video_frames is {}, expected 1..={MAX_BATCH}", self.frames)));
        }
        if self.fps < 1 {
            return Err(Error::invalid(format!("fps is {}, expected 1 or more", self.fps)));
        }
        Ok(())
    }
}
