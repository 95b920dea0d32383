//! Contexts: loading, asking, cancelling, freeing.

use super::read::{at, context, number, numbered};
use super::types::*;
use super::{boundary, callbacks};
use crate::cancel::CancelMode;
use crate::engine::Context;
use crate::engine::choice::SampleMethod;
use crate::error::{Error, Result};
use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::sync::Arc;

/// A loaded model. Made by `new_sd_ctx`, freed by `free_sd_ctx`.
#[allow(non_camel_case_types)]
pub struct sd_ctx_t {
    engine: Context,
}

// Calls come from any thread, through pointers that the compiler does not look behind.
const _: fn() = || {
    fn shared_by_threads<T: Send + Sync>() {}
    shared_by_threads::<Context>();
};

/// The context behind a pointer, kept alive for one call.
///
/// # Safety
/// `pointer` is NULL or from `new_sd_ctx`, and not freed before this call began.
pub unsafe fn hold(pointer: *const sd_ctx_t) -> Result<Arc<sd_ctx_t>> {
    if pointer.is_null() {
        return Err(Error::invalid("sd_ctx is NULL"));
    }
    // SAFETY: `new_sd_ctx` made the pointer with `Arc::into_raw`, and the caller vouches that its share is still held.
    unsafe {
        Arc::increment_strong_count(pointer);
        Ok(Arc::from_raw(pointer))
    }
}

impl sd_ctx_t {
    /// The engine's side.
    pub fn engine(&self) -> &Context {
        &self.engine
    }
}

/// Loads a model. Returns NULL when the files are not a usable model; the log and `sd_ext_last_error` say why.
///
/// Every string and array of `sd_ctx_params` is copied. Contexts are independent of each other; one context does one
/// call at a time, and calls from further threads wait for their turn.
///
/// # Safety
/// `sd_ctx_params` is NULL or a struct initialised by `sd_ctx_params_init`, with valid strings and arrays.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn new_sd_ctx(sd_ctx_params: *const sd_ctx_params_t) -> *mut sd_ctx_t {
    boundary::call(null_mut(), || {
        // SAFETY: as promised by the caller.
        let options = unsafe { context(at(sd_ctx_params, "sd_ctx_params")?)? };
        let engine = Context::new(options, &callbacks::snapshot())?;
        Ok(Arc::into_raw(Arc::new(sd_ctx_t { engine })).cast_mut())
    })
}

/// Frees a context. NULL is ignored.
///
/// Waits until calls of other threads on the context have returned (cancel them first to be quick). From a callback
/// of the context's own call it returns at once, and the memory goes when that call returns.
///
/// # Safety
/// `sd_ctx` is NULL or from `new_sd_ctx`, not freed, and no call on it begins any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free_sd_ctx(sd_ctx: *mut sd_ctx_t) {
    boundary::quiet((), || {
        if !sd_ctx.is_null() {
            // SAFETY: the pointer came from `Arc::into_raw`, and the caller gives its share back, once.
            let context = unsafe { Arc::from_raw(sd_ctx.cast_const()) };
            context.engine.wait_idle();
        }
    });
}

/// Whether the model makes images. False for NULL. Never waits.
///
/// # Safety
/// `sd_ctx` is NULL or from `new_sd_ctx` and not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sd_ctx_supports_image_generation(sd_ctx: *const sd_ctx_t) -> bool {
    // SAFETY: as promised by the caller.
    boundary::quiet(false, || unsafe { hold(sd_ctx) }.is_ok_and(|c| c.engine.facts().images))
}

/// Whether the model makes videos. False for NULL. Never waits.
///
/// # Safety
/// `sd_ctx` is NULL or from `new_sd_ctx` and not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sd_ctx_supports_video_generation(sd_ctx: *const sd_ctx_t) -> bool {
    // SAFETY: as promised by the caller.
    boundary::quiet(false, || unsafe { hold(sd_ctx) }.is_ok_and(|c| c.engine.facts().videos))
}

/// The sampler used when a request names none; EULER_A_SAMPLE_METHOD for NULL. Never waits.
///
/// # Safety
/// `sd_ctx` is NULL or from `new_sd_ctx` and not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sd_get_default_sample_method(
    sd_ctx: *const sd_ctx_t,
) -> MaybeUninit<sample_method_t> {
    let method = boundary::quiet(SampleMethod::EulerA, || {
        // SAFETY: as promised by the caller.
        unsafe { hold(sd_ctx) }.map_or(SampleMethod::EulerA, |c| c.engine.facts().method)
    });
    numbered(method.index() as c_int)
}

/// The schedule used with `sample_method` when a request names none; for NULL that of a model of the first family.
/// Never waits.
///
/// # Safety
/// `sd_ctx` is NULL or from `new_sd_ctx` and not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sd_get_default_scheduler(
    sd_ctx: *const sd_ctx_t,
    sample_method: MaybeUninit<sample_method_t>,
) -> MaybeUninit<scheduler_t> {
    let method = SampleMethod::from_index(number(sample_method));
    let scheduler = boundary::quiet(0, || {
        // SAFETY: as promised by the caller.
        let context = unsafe { hold(sd_ctx) };
        context
            .map_or_else(
                |_| crate::engine::Facts::usual_scheduler(method),
                |c| c.engine.facts().scheduler_for(method),
            )
            .index()
    });
    numbered(scheduler as c_int)
}

/// Asks the calls in progress on a context to stop. NULL is ignored; a mode out of range means SD_CANCEL_ALL.
///
/// From any thread, callback or signal handler; returns at once. A request counts for every call that has entered the
/// library and not returned, however early; it does not touch calls that come later. The context stays usable.
/// SD_CANCEL_ALL: `generate_image` and `generate_video` return false and no picture. SD_CANCEL_NEW_LATENTS: the
/// picture being sampled is finished, the rest of the batch skipped. SD_CANCEL_RESET takes a request back.
///
/// # Safety
/// `sd_ctx` is NULL or from `new_sd_ctx` and not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sd_cancel_generation(sd_ctx: *mut sd_ctx_t, mode: MaybeUninit<sd_cancel_mode_t>) {
    let mode = match number(mode) {
        1 => CancelMode::NewLatents,
        2 => CancelMode::Reset,
        _ => CancelMode::All,
    };
    // No guard and no lock: this runs in signal handlers, and a few atomic operations cannot panic.
    // SAFETY: NULL is handled; otherwise the caller vouches for a context that is not freed.
    if let Some(context) = unsafe { sd_ctx.as_ref() } {
        context.engine.request_cancel(mode);
    }
}
