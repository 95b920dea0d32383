//! Making images.

use super::context::{hold, sd_ctx_t};
use super::read::{at, image_request};
use super::types::*;
use super::{boundary, callbacks, memory};
use crate::engine::Run;
use crate::error::{Error, Result};
use crate::image::Image;
use std::ffi::c_int;
use std::ptr::null_mut;

/// Sets an output to `value`; NULL is ignored.
///
/// # Safety
/// `out` is NULL or writable.
pub unsafe fn set<T>(out: *mut T, value: T) {
    if !out.is_null() {
        // SAFETY: not NULL; the caller vouches for the memory.
        unsafe { out.write(value) };
    }
}

/// Hands images to C.
///
/// # Safety
/// `images_out` is writable, `num_images_out` is NULL or writable.
pub unsafe fn hand_out(
    images: Vec<Image>,
    images_out: *mut *mut sd_image_t,
    num_images_out: *mut c_int,
) -> Result<()> {
    let (array, count) = memory::images(images)?;
    // SAFETY: as promised by the caller.
    unsafe {
        set(images_out, array);
        set(num_images_out, count);
    }
    Ok(())
}

/// Makes images. On success `*images_out` is an array of `*num_images_out` images, to be freed with `free_sd_images`.
/// On failure returns false, with `*images_out` NULL and `*num_images_out` 0; the log and `sd_ext_last_error` say why.
///
/// `num_images_out` may be NULL. Callbacks come on this thread. A second call on the same context, from another
/// thread, waits for the first; from a callback it fails.
///
/// # Safety
/// `sd_ctx` is NULL or from `new_sd_ctx` and not freed. `sd_img_gen_params` is NULL or a struct initialised by
/// `sd_img_gen_params_init`, with valid strings, arrays and pixels. The outputs are NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn generate_image(
    sd_ctx: *mut sd_ctx_t,
    sd_img_gen_params: *const sd_img_gen_params_t,
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
        let context = unsafe { hold(sd_ctx) }?;
        let cancel = context.engine().enter();
        if images_out.is_null() {
            return Err(Error::invalid("images_out is NULL"));
        }
        // SAFETY: as promised by the caller.
        let request = unsafe { image_request(at(sd_img_gen_params, "sd_img_gen_params")?)? };
        let run = Run { callbacks: &callbacks::snapshot(), cancel };
        let images = context.engine().generate_image(&request, &run)?;
        // SAFETY: `images_out` is not NULL (checked above); the caller vouches for both outputs.
        unsafe { hand_out(images, images_out, num_images_out) }?;
        Ok(true)
    })
}
