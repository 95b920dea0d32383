//! Enlarging pictures with a network.

use super::image::{hand_out, set};
use super::read::{flag, image, path, text, threads};
use super::types::*;
use super::{boundary, callbacks};
use crate::engine::Upscaler;
use crate::engine::request::{UpscaleRequest, UpscalerOptions};
use crate::error::{Error, Result};
use std::ffi::{c_char, c_int};
use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::sync::Arc;

/// A loaded upscaler. Made by `new_upscaler_ctx`, freed by `free_upscaler_ctx`.
#[allow(non_camel_case_types)]
pub struct upscaler_ctx_t {
    engine: Upscaler,
}

// Calls come from any thread, through pointers that the compiler does not look behind.
const _: fn() = || {
    fn shared_by_threads<T: Send + Sync>() {}
    shared_by_threads::<Upscaler>();
};

/// # Safety
/// `pointer` is NULL or from `new_upscaler_ctx`, and not freed before this call began.
unsafe fn hold(pointer: *const upscaler_ctx_t) -> Result<Arc<upscaler_ctx_t>> {
    if pointer.is_null() {
        return Err(Error::invalid("upscaler_ctx is NULL"));
    }
    // SAFETY: `new_upscaler_ctx` made the pointer with `Arc::into_raw`, and the caller vouches that its share is held.
    unsafe {
        Arc::increment_strong_count(pointer);
        Ok(Arc::from_raw(pointer))
    }
}

/// Loads an upscaler. Returns NULL when the file is not a usable one; the log and `sd_ext_last_error` say why.
///
/// `direct`: direct convolution. `n_threads`: 0 or less means the number of physical cores. `tile_size`: pixels, 0 or
/// less means the default. `backend`, `params_backend`: as in `sd_ctx_params_t`, NULL or "" for the default.
///
/// # Safety
/// The strings are NULL or NUL-terminated; they are copied.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn new_upscaler_ctx(
    esrgan_path: *const c_char,
    direct: MaybeUninit<bool>,
    n_threads: c_int,
    tile_size: c_int,
    backend: *const c_char,
    params_backend: *const c_char,
) -> *mut upscaler_ctx_t {
    boundary::call(null_mut(), || {
        // SAFETY: as promised by the caller.
        let (path, backend, params_backend) =
            unsafe { (path(esrgan_path), text(backend), text(params_backend)) };
        let options = UpscalerOptions {
            path: path.ok_or_else(|| Error::invalid("esrgan_path is NULL or empty"))?,
            direct: flag(direct),
            n_threads: threads(n_threads),
            tile_size,
            backend,
            params_backend,
        };
        let engine = Upscaler::new(options, &callbacks::snapshot())?;
        Ok(Arc::into_raw(Arc::new(upscaler_ctx_t { engine })).cast_mut())
    })
}

/// Frees an upscaler. NULL is ignored. A call of another thread that has begun keeps what it needs until it returns.
///
/// # Safety
/// `upscaler_ctx` is NULL or from `new_upscaler_ctx`, not freed, and no call on it begins any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free_upscaler_ctx(upscaler_ctx: *mut upscaler_ctx_t) {
    boundary::quiet((), || {
        if !upscaler_ctx.is_null() {
            // SAFETY: the pointer came from `Arc::into_raw`, and the caller gives its share back, once.
            drop(unsafe { Arc::from_raw(upscaler_ctx.cast_const()) });
        }
    });
}

/// Enlarges a picture. On success `*images_out` is an array of one image, `*num_images_out` is 1; free it with
/// `free_sd_images`. On failure returns false with NULL and 0; the log and `sd_ext_last_error` say why.
///
/// The factor is that of the network; `upscale_factor` is a wish that networks of one factor ignore.
/// `num_images_out` may be NULL.
///
/// # Safety
/// `upscaler_ctx` is NULL or from `new_upscaler_ctx` and not freed. `input_image` has valid pixels or NULL. The outputs
/// are NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn upscale(
    upscaler_ctx: *mut upscaler_ctx_t,
    input_image: sd_image_t,
    upscale_factor: u32,
    images_out: *mut *mut sd_image_t,
    num_images_out: *mut c_int,
) -> bool {
    // SAFETY: the caller vouches for the outputs.
    unsafe {
        set(images_out, null_mut());
        set(num_images_out, 0);
    }
    boundary::call(false, || {
        // SAFETY: as promised by the caller.
        let upscaler = unsafe { hold(upscaler_ctx) }?;
        if images_out.is_null() {
            return Err(Error::invalid("images_out is NULL"));
        }
        // SAFETY: as promised by the caller.
        let image = unsafe { image(&input_image, "input_image") }?
            .ok_or_else(|| Error::invalid("input_image.data is NULL"))?;
        let request = UpscaleRequest { image, factor: upscale_factor };
        let result = upscaler.engine.upscale(&request, &callbacks::snapshot())?;
        // SAFETY: `images_out` is not NULL (checked above); the caller vouches for both outputs.
        unsafe { hand_out(vec![result], images_out, num_images_out) }?;
        Ok(true)
    })
}

/// Factor of an upscaler; 1 for NULL.
///
/// # Safety
/// `upscaler_ctx` is NULL or from `new_upscaler_ctx` and not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn get_upscale_factor(upscaler_ctx: *mut upscaler_ctx_t) -> c_int {
    boundary::quiet(1, || {
        // SAFETY: as promised by the caller.
        unsafe { hold(upscaler_ctx) }.map_or(1, |u| c_int::try_from(u.engine.factor()).unwrap_or(1))
    })
}
