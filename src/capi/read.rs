//! C structs to owned requests, every pointer, count and size checked.

use super::types::*;
use crate::engine::request::*;
use crate::error::{Error, Result};
use crate::image::Image;
use std::ffi::{CStr, c_char, c_int};
use std::mem::MaybeUninit;
use std::path::PathBuf;

/// Most elements of an array taken from a caller: more is an uninitialised count.
const MAX_COUNT: usize = 1 << 20;

/// An enum's number, whatever the caller stored.
///
/// The C enums here are ints (asserted in `layout.rs`), so an enum field holds a readable `c_int`.
pub fn number<E>(value: MaybeUninit<E>) -> c_int {
    const { assert!(size_of::<E>() == size_of::<c_int>() && align_of::<E>() == align_of::<c_int>()) };
    // SAFETY: same size and alignment (asserted above); a value passed by a C caller is initialised, and every bit
    // pattern is an int.
    unsafe { value.as_ptr().cast::<c_int>().read() }
}

/// An enum with that number, whether or not it names one.
pub fn numbered<E>(number: c_int) -> MaybeUninit<E> {
    const { assert!(size_of::<E>() == size_of::<c_int>() && align_of::<E>() == align_of::<c_int>()) };
    let mut value = MaybeUninit::<E>::uninit();
    // SAFETY: same size and alignment (asserted above).
    unsafe { value.as_mut_ptr().cast::<c_int>().write(number) };
    value
}

/// A C bool, whatever the caller stored.
pub fn flag(value: MaybeUninit<bool>) -> bool {
    // SAFETY: a bool is one byte, passed initialised by a C caller, and every bit pattern is a u8.
    unsafe { value.as_ptr().cast::<u8>().read() != 0 }
}

/// The struct at `pointer`.
///
/// # Safety
/// `pointer` is NULL or points to a `T` that nobody changes meanwhile.
pub unsafe fn at<'a, T>(pointer: *const T, name: &str) -> Result<&'a T> {
    if pointer.is_null() {
        return Err(Error::invalid(format!("{name} is NULL")));
    }
    if !pointer.is_aligned() {
        return Err(Error::invalid(format!("{name} is not aligned to {} bytes", align_of::<T>())));
    }
    // SAFETY: not NULL, aligned, and the caller vouches for the rest.
    Ok(unsafe { &*pointer })
}

/// The array of `count` elements at `pointer`.
///
/// # Safety
/// `pointer` is NULL or points to `count` elements that nobody changes meanwhile.
unsafe fn array<'a, T>(pointer: *const T, count: i64, name: &str) -> Result<&'a [T]> {
    let count = match usize::try_from(count) {
        Ok(0) => return Ok(&[]),
        Ok(count) if count <= MAX_COUNT => count,
        _ => return Err(Error::invalid(format!("{name} has a count of {count}, expected 0..={MAX_COUNT}"))),
    };
    // SAFETY: as the caller vouches for all elements, so for the first.
    unsafe { at(pointer, &format!("{name} (with a count of {count})")) }?;
    // SAFETY: not NULL and aligned (checked by `at`); the caller vouches for the elements.
    Ok(unsafe { std::slice::from_raw_parts(pointer, count) })
}

/// The bytes of a C string, `None` for NULL.
///
/// # Safety
/// `pointer` is NULL or a NUL-terminated string.
pub unsafe fn bytes(pointer: *const c_char) -> Option<Vec<u8>> {
    // SAFETY: not NULL; the caller vouches for the terminator.
    (!pointer.is_null()).then(|| unsafe { CStr::from_ptr(pointer) }.to_bytes().to_vec())
}

/// A text setting, `None` for NULL and "".
///
/// # Safety
/// `pointer` is NULL or a NUL-terminated string.
pub unsafe fn text(pointer: *const c_char) -> Option<String> {
    // SAFETY: as promised by the caller.
    let bytes = unsafe { bytes(pointer) }?;
    (!bytes.is_empty()).then(|| String::from_utf8_lossy(&bytes).into_owned())
}

/// A path, `None` for NULL and "".
///
/// # Safety
/// `pointer` is NULL or a NUL-terminated string.
pub unsafe fn path(pointer: *const c_char) -> Option<PathBuf> {
    // SAFETY: as promised by the caller.
    let bytes = unsafe { bytes(pointer) }?;
    (!bytes.is_empty()).then(|| path_of(bytes))
}

#[cfg(unix)]
fn path_of(bytes: Vec<u8>) -> PathBuf {
    use std::os::unix::ffi::OsStringExt;
    std::ffi::OsString::from_vec(bytes).into()
}

#[cfg(not(unix))]
fn path_of(bytes: Vec<u8>) -> PathBuf {
    String::from_utf8_lossy(&bytes).into_owned().into()
}

/// A finite number, `None` where the caller left the infinity of the init functions.
fn finite(value: f32) -> Option<f32> {
    value.is_finite().then_some(value)
}

/// Threads: 0 or less means the number of physical cores.
pub fn threads(n: c_int) -> usize {
    match usize::try_from(n) {
        Ok(n) if n > 0 => n.min(1024),
        _ => crate::engine::system::physical_cores(),
    }
}

/// A ggml type, `None` for the count and for numbers that name no type.
pub fn weight_type(value: c_int) -> Option<u32> {
    super::names::is_weight_type(value).then_some(value as u32)
}

/// An image, `None` when its data is NULL.
///
/// # Safety
/// `image.data` is NULL or holds `width * height * channel` bytes.
pub unsafe fn image(image: &sd_image_t, name: &str) -> Result<Option<Image>> {
    if image.data.is_null() {
        return Ok(None);
    }
    let (width, height, channels) = (image.width as usize, image.height as usize, image.channel as usize);
    let bytes = Image::byte_count(width, height, channels)
        .map_err(|error| Error::invalid(format!("{name}: {error}")))?;
    // SAFETY: not NULL; the caller vouches for that many bytes.
    let data = unsafe { std::slice::from_raw_parts(image.data, bytes) }.to_vec();
    Image::new(width, height, channels, data).map(Some)
}

/// # Safety
/// As for [`array`] and [`image`].
unsafe fn images(pointer: *const sd_image_t, count: c_int, name: &str) -> Result<Vec<Image>> {
    // SAFETY: as promised by the caller.
    let list = unsafe { array(pointer, count.into(), name) }?;
    let mut out = Vec::with_capacity(list.len());
    for (i, entry) in list.iter().enumerate() {
        let name = format!("{name}[{i}]");
        // SAFETY: as promised by the caller.
        match unsafe { image(entry, &name) }? {
            Some(image) => out.push(image),
            None => return Err(Error::invalid(format!("{name}.data is NULL"))),
        }
    }
    Ok(out)
}

/// # Safety
/// Every pointer inside is NULL or what the header says.
pub unsafe fn context(p: &sd_ctx_params_t) -> Result<ContextOptions> {
    // SAFETY: the caller vouches for all strings and for the array with its count.
    unsafe {
        let list = array(p.embeddings, p.embedding_count.into(), "embeddings")?;
        let mut embeddings = Vec::with_capacity(list.len());
        for (i, entry) in list.iter().enumerate() {
            let (Some(name), Some(path)) = (text(entry.name), path(entry.path)) else {
                return Err(Error::invalid(format!("embeddings[{i}] has no name or no path")));
            };
            embeddings.push(Embedding { name, path });
        }
        Ok(ContextOptions {
            model: path(p.model_path),
            clip_l: path(p.clip_l_path),
            clip_g: path(p.clip_g_path),
            clip_vision: path(p.clip_vision_path),
            t5xxl: path(p.t5xxl_path),
            llm: path(p.llm_path),
            llm_vision: path(p.llm_vision_path),
            diffusion_model: path(p.diffusion_model_path),
            high_noise_diffusion_model: path(p.high_noise_diffusion_model_path),
            uncond_diffusion_model: path(p.uncond_diffusion_model_path),
            embeddings_connectors: path(p.embeddings_connectors_path),
            vae: path(p.vae_path),
            audio_vae: path(p.audio_vae_path),
            taesd: path(p.taesd_path),
            control_net: path(p.control_net_path),
            photo_maker: path(p.photo_maker_path),
            pulid_weights: path(p.pulid_weights_path),
            embeddings,
            tensor_type_rules: text(p.tensor_type_rules),
            n_threads: threads(p.n_threads),
            wtype: weight_type(number(p.wtype)),
            rng: Rng::from_index(number(p.rng_type)).unwrap_or(Rng::Cuda),
            sampler_rng: Rng::from_index(number(p.sampler_rng_type)),
            prediction: Prediction::from_index(number(p.prediction)),
            lora_apply: LoraApply::from_index(number(p.lora_apply_mode)).unwrap_or(LoraApply::Auto),
            enable_mmap: flag(p.enable_mmap),
            flash_attn: flag(p.flash_attn),
            diffusion_flash_attn: flag(p.diffusion_flash_attn),
            tae_preview_only: flag(p.tae_preview_only),
            diffusion_conv_direct: flag(p.diffusion_conv_direct),
            vae_conv_direct: flag(p.vae_conv_direct),
            force_sdxl_vae_conv_scale: flag(p.force_sdxl_vae_conv_scale),
            vae_format: VaeFormat::from_index(number(p.vae_format)),
            max_vram: text(p.max_vram),
            stream_layers: flag(p.stream_layers),
            eager_load: flag(p.eager_load),
            backend: text(p.backend),
            params_backend: text(p.params_backend),
            split_mode: text(p.split_mode),
            auto_fit: flag(p.auto_fit),
            rpc_servers: text(p.rpc_servers),
            model_args: text(p.model_args),
        })
    }
}

/// # Safety
/// Every pointer inside is NULL or what the header says.
unsafe fn sample(p: &sd_sample_params_t, name: &str) -> Result<SampleOptions> {
    let slg = &p.guidance.slg;
    // SAFETY: the caller vouches for the arrays with their counts and for the string.
    unsafe {
        let layer_count = i64::try_from(slg.layer_count).unwrap_or(i64::MAX);
        let layers = array(slg.layers.cast_const(), layer_count, &format!("{name}.guidance.slg.layers"))?;
        let sigmas = array(
            p.custom_sigmas.cast_const(),
            p.custom_sigmas_count.into(),
            &format!("{name}.custom_sigmas"),
        )?;
        Ok(SampleOptions {
            guidance: Guidance {
                text: p.guidance.txt_cfg,
                image: finite(p.guidance.img_cfg),
                distilled: p.guidance.distilled_guidance,
                skip_layers: SkipLayers {
                    layers: layers.to_vec(),
                    start: slg.layer_start,
                    end: slg.layer_end,
                    scale: slg.scale,
                },
            },
            scheduler: Scheduler::from_index(number(p.scheduler)),
            method: SampleMethod::from_index(number(p.sample_method)),
            steps: p.sample_steps,
            eta: finite(p.eta),
            shifted_timestep: p.shifted_timestep,
            custom_sigmas: sigmas.to_vec(),
            flow_shift: finite(p.flow_shift),
            extra_args: text(p.extra_sample_args),
        })
    }
}

/// # Safety
/// Every pointer inside is NULL or what the header says.
unsafe fn loras(pointer: *const sd_lora_t, count: u32) -> Result<Vec<Lora>> {
    // SAFETY: the caller vouches for the array and its strings.
    unsafe {
        let list = array(pointer, count.into(), "loras")?;
        let mut out = Vec::with_capacity(list.len());
        for (i, lora) in list.iter().enumerate() {
            let path =
                path(lora.path).ok_or_else(|| Error::invalid(format!("loras[{i}].path is NULL or empty")))?;
            if !lora.multiplier.is_finite() {
                return Err(Error::invalid(format!("loras[{i}].multiplier is {}", lora.multiplier)));
            }
            out.push(Lora { high_noise: flag(lora.is_high_noise), multiplier: lora.multiplier, path });
        }
        Ok(out)
    }
}

/// # Safety
/// The string inside is NULL or NUL-terminated.
unsafe fn tiling(p: &sd_tiling_params_t) -> Tiling {
    Tiling {
        enabled: flag(p.enabled),
        temporal: flag(p.temporal_tiling),
        tile_size: [p.tile_size_x, p.tile_size_y],
        target_overlap: p.target_overlap,
        relative_size: [p.rel_size_x, p.rel_size_y],
        // SAFETY: as promised by the caller.
        extra_args: unsafe { text(p.extra_tiling_args) },
    }
}

/// # Safety
/// The string inside is NULL or NUL-terminated.
unsafe fn cache(p: &sd_cache_params_t) -> CacheOptions {
    CacheOptions {
        mode: CacheMode::from_index(number(p.mode)).unwrap_or(CacheMode::Disabled),
        reuse_threshold: finite(p.reuse_threshold),
        start_percent: p.start_percent,
        end_percent: p.end_percent,
        error_decay_rate: p.error_decay_rate,
        use_relative_threshold: flag(p.use_relative_threshold),
        reset_error_on_compute: flag(p.reset_error_on_compute),
        front_compute_blocks: p.Fn_compute_blocks,
        back_compute_blocks: p.Bn_compute_blocks,
        residual_diff_threshold: p.residual_diff_threshold,
        max_warmup_steps: p.max_warmup_steps,
        max_cached_steps: p.max_cached_steps,
        max_continuous_cached_steps: p.max_continuous_cached_steps,
        taylorseer_n_derivatives: p.taylorseer_n_derivatives,
        taylorseer_skip_interval: p.taylorseer_skip_interval,
        // SAFETY: as promised by the caller.
        scm_mask: unsafe { text(p.scm_mask) },
        scm_policy_dynamic: flag(p.scm_policy_dynamic),
        spectrum_w: p.spectrum_w,
        spectrum_m: p.spectrum_m,
        spectrum_lam: p.spectrum_lam,
        spectrum_window_size: p.spectrum_window_size,
        spectrum_flex_window: p.spectrum_flex_window,
        spectrum_warmup_steps: p.spectrum_warmup_steps,
        spectrum_stop_percent: p.spectrum_stop_percent,
    }
}

/// # Safety
/// Every pointer inside is NULL or what the header says.
unsafe fn hires(p: &sd_hires_params_t) -> Result<Hires> {
    // SAFETY: the caller vouches for the string and for the array with its count.
    unsafe {
        let sigmas =
            array(p.custom_sigmas.cast_const(), p.custom_sigmas_count.into(), "hires.custom_sigmas")?;
        Ok(Hires {
            enabled: flag(p.enabled),
            upscaler: HiresUpscaler::from_index(number(p.upscaler)).unwrap_or(HiresUpscaler::Latent),
            model: path(p.model_path),
            scale: p.scale,
            target: [p.target_width, p.target_height],
            steps: p.steps,
            denoising_strength: p.denoising_strength,
            upscale_tile_size: p.upscale_tile_size,
            custom_sigmas: sigmas.to_vec(),
        })
    }
}

/// A size or count that a request needs to be positive; the request's own check names the limit.
fn size(value: c_int, name: &str) -> Result<usize> {
    usize::try_from(value).map_err(|_| Error::invalid(format!("{name} is {value}, expected 1 or more")))
}

/// # Safety
/// Every pointer inside is NULL or what the header says.
pub unsafe fn image_request(p: &sd_img_gen_params_t) -> Result<ImageRequest> {
    // SAFETY: the caller vouches for all strings, arrays with their counts, and pixels.
    let request = unsafe {
        ImageRequest {
            loras: loras(p.loras, p.lora_count)?,
            prompt: bytes(p.prompt).unwrap_or_default(),
            negative_prompt: bytes(p.negative_prompt).unwrap_or_default(),
            clip_skip: p.clip_skip,
            init_image: image(&p.init_image, "init_image")?,
            ref_images: images(p.ref_images, p.ref_images_count, "ref_images")?,
            auto_resize_ref_image: flag(p.auto_resize_ref_image),
            increase_ref_index: flag(p.increase_ref_index),
            mask_image: image(&p.mask_image, "mask_image")?,
            width: size(p.width, "width")?,
            height: size(p.height, "height")?,
            sample: sample(&p.sample_params, "sample_params")?,
            strength: p.strength,
            seed: p.seed,
            batch_count: size(p.batch_count, "batch_count")?,
            control_image: image(&p.control_image, "control_image")?,
            control_strength: p.control_strength,
            photo_maker: PhotoMaker {
                images: images(p.pm_params.id_images, p.pm_params.id_images_count, "pm_params.id_images")?,
                embed: path(p.pm_params.id_embed_path),
                style_strength: p.pm_params.style_strength,
            },
            pulid: Pulid {
                embedding: path(p.pulid_params.id_embedding_path),
                weight: p.pulid_params.id_weight,
            },
            vae_tiling: tiling(&p.vae_tiling_params),
            cache: cache(&p.cache),
            hires: hires(&p.hires)?,
            layers: p.qwen_image_layers,
            circular_x: flag(p.circular_x),
            circular_y: flag(p.circular_y),
        }
    };
    request.validate()?;
    Ok(request)
}

/// # Safety
/// Every pointer inside is NULL or what the header says.
pub unsafe fn video_request(p: &sd_vid_gen_params_t) -> Result<VideoRequest> {
    // SAFETY: the caller vouches for all strings, arrays with their counts, and pixels.
    let request = unsafe {
        VideoRequest {
            loras: loras(p.loras, p.lora_count)?,
            prompt: bytes(p.prompt).unwrap_or_default(),
            negative_prompt: bytes(p.negative_prompt).unwrap_or_default(),
            clip_skip: p.clip_skip,
            init_image: image(&p.init_image, "init_image")?,
            end_image: image(&p.end_image, "end_image")?,
            control_frames: images(p.control_frames, p.control_frames_size, "control_frames")?,
            width: size(p.width, "width")?,
            height: size(p.height, "height")?,
            sample: sample(&p.sample_params, "sample_params")?,
            high_noise_sample: sample(&p.high_noise_sample_params, "high_noise_sample_params")?,
            moe_boundary: p.moe_boundary,
            strength: p.strength,
            seed: p.seed,
            frames: size(p.video_frames, "video_frames")?,
            fps: p.fps,
            vace_strength: p.vace_strength,
            vae_tiling: tiling(&p.vae_tiling_params),
            cache: cache(&p.cache),
            hires: hires(&p.hires)?,
            circular_x: flag(p.circular_x),
            circular_y: flag(p.circular_y),
        }
    };
    request.validate()?;
    Ok(request)
}

#[cfg(test)]
mod tests;
