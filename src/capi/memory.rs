//! Memory handed to C: all of it from the C heap, so that a caller may use `free` where it always has.

use super::types::{sd_audio_t, sd_image_t};
use crate::engine::Sound;
use crate::error::{Error, Result};
use crate::image::Image;
use std::ffi::{c_char, c_int, c_void};
use std::ptr::NonNull;

/// Uninitialised C memory for `count` values of `T`, at least one byte.
pub fn alloc<T>(count: usize) -> Result<NonNull<T>> {
    let bytes = count
        .checked_mul(size_of::<T>())
        .ok_or_else(|| Error::Memory(format!("{count} values of {} bytes", size_of::<T>())))?;
    // SAFETY: malloc may be called with any size; its result is aligned for every type used here (at most 8).
    let memory = unsafe { libc::malloc(bytes.max(1)) };
    NonNull::new(memory.cast()).ok_or_else(|| Error::Memory(format!("{bytes} bytes for a result")))
}

/// A copy of `values` in C memory.
pub fn copy<T: Copy>(values: &[T]) -> Result<NonNull<T>> {
    let memory = alloc::<T>(values.len())?;
    // SAFETY: `memory` was just allocated for as many values.
    unsafe { std::ptr::copy_nonoverlapping(values.as_ptr(), memory.as_ptr(), values.len()) };
    Ok(memory)
}

/// A C string; NUL bytes inside are left out.
pub fn string(text: &[u8]) -> Result<*mut c_char> {
    let mut bytes: Vec<u8> = text.iter().copied().filter(|b| *b != 0).collect();
    bytes.push(0);
    Ok(copy(&bytes)?.as_ptr().cast())
}

/// An array of images in C memory, each with pixels of its own.
pub fn images(images: Vec<Image>) -> Result<(*mut sd_image_t, c_int)> {
    let mut made: Vec<sd_image_t> = Vec::with_capacity(images.len());
    let result = (|| {
        for image in images {
            let data = copy(&image.data)?.as_ptr();
            made.push(sd_image_t {
                width: image.width as u32,
                height: image.height as u32,
                channel: image.channels as u32,
                data,
            });
        }
        copy(&made)
    })();
    match result {
        Ok(array) => Ok((array.as_ptr(), made.len() as c_int)),
        Err(error) => {
            for image in made {
                // SAFETY: allocated by `copy` above and given to nobody.
                unsafe { libc::free(image.data.cast::<c_void>()) };
            }
            Err(error)
        }
    }
}

/// Sound in C memory.
pub fn sound(sound: &Sound) -> Result<*mut sd_audio_t> {
    let channels = sound.channels.max(1);
    let data = copy(&sound.samples)?.as_ptr();
    let audio = sd_audio_t {
        sample_rate: sound.sample_rate,
        channels,
        sample_count: sound.samples.len() as u64 / u64::from(channels),
        data,
    };
    match copy(&[audio]) {
        Ok(memory) => Ok(memory.as_ptr()),
        Err(error) => {
            // SAFETY: allocated by `copy` above and given to nobody.
            unsafe { libc::free(data.cast::<c_void>()) };
            Err(error)
        }
    }
}

/// Frees images returned by the library: the pixels of each and the array. NULL is ignored.
///
/// All of it is C heap memory, so that `free` on `data` of each image and on the array does the same.
///
/// # Safety
/// `result_images` is NULL or an array of `num_images` images that the library returned and that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free_sd_images(result_images: *mut sd_image_t, num_images: c_int) {
    if result_images.is_null() {
        return;
    }
    for i in 0..usize::try_from(num_images).unwrap_or(0) {
        // SAFETY: the caller vouches for that many images with pixels from the C heap.
        unsafe { libc::free((*result_images.add(i)).data.cast::<c_void>()) };
    }
    // SAFETY: the caller vouches for the array.
    unsafe { libc::free(result_images.cast::<c_void>()) };
}

/// Frees sound returned by `generate_video`. NULL is ignored.
///
/// # Safety
/// `audio` is NULL or sound that the library returned and that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free_sd_audio(audio: *mut sd_audio_t) {
    if audio.is_null() {
        return;
    }
    // SAFETY: the caller vouches for sound from the library, made by `sound` above.
    unsafe {
        libc::free((*audio).data.cast::<c_void>());
        libc::free(audio.cast::<c_void>());
    }
}
