//! Making videos.

use super::context::{hold, sd_ctx_t};
use super::image::{hand_out, set};
use super::read::{at, video_request};
use super::types::*;
use super::{boundary, callbacks, memory};
use crate::engine::Run;
use crate::error::Error;
use std::ffi::c_int;
use std::ptr::null_mut;

/// Makes a video. On success `*frames_out` is an array of `*num_frames_out` images, to be freed with
/// `free_sd_images`, and `*audio_out` is its sound, to be freed with `free_sd_audio`, or NULL when the model makes none.
/// On failure returns false with NULL, 0 and NULL; the log and `sd_ext_last_error` say why.
///
/// `num_frames_out` and `audio_out` may be NULL. Threads and callbacks as for `generate_image`.
///
/// # Safety
/// `sd_ctx` is NULL or from `new_sd_ctx` and not freed. `sd_vid_gen_params` is NULL or a struct initialised by
/// `sd_vid_gen_params_init`, with valid strings, arrays and pixels. The outputs are NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn generate_video(
    sd_ctx: *mut sd_ctx_t,
    sd_vid_gen_params: *const sd_vid_gen_params_t,
    frames_out: *mut *mut sd_image_t,
    num_frames_out: *mut c_int,
    audio_out: *mut *mut sd_audio_t,
) -> bool {
    // SAFETY: the caller vouches for the outputs.
    unsafe {
        set(frames_out, null_mut());
        set(num_frames_out, 0);
        set(audio_out, null_mut());
    }
    boundary::call(false, || {
        // SAFETY: as promised by the caller.
        let context = unsafe { hold(sd_ctx) }?;
        let cancel = context.engine().enter();
        if frames_out.is_null() {
            return Err(Error::invalid("frames_out is NULL"));
        }
        // SAFETY: as promised by the caller.
        let request = unsafe { video_request(at(sd_vid_gen_params, "sd_vid_gen_params")?)? };
        let run = Run { callbacks: &callbacks::snapshot(), cancel };
        let video = context.engine().generate_video(&request, &run)?;
        let sound = match &video.sound {
            Some(sound) if !audio_out.is_null() => memory::sound(sound)?,
            _ => null_mut(),
        };
        // SAFETY: `frames_out` is not NULL (checked above); the caller vouches for all outputs.
        if let Err(error) = unsafe { hand_out(video.frames, frames_out, num_frames_out) } {
            // SAFETY: made above and given to nobody.
            unsafe { memory::free_sd_audio(sound) };
            return Err(error);
        }
        // SAFETY: the caller vouches for the output.
        unsafe { set(audio_out, sound) };
        Ok(true)
    })
}
