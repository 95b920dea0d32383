//! The callbacks, which the C interface keeps for the whole process.
//!
//! Each call takes a snapshot when it begins and calls back on its own thread only, so that a callback set while
//! another thread generates takes effect with that thread's next call.

use super::boundary;
use super::read::{flag, number, numbered};
use super::types::*;
use crate::image::Image;
use crate::report::{Callbacks, EvalFn, Level, LogFn, Preview, PreviewMode, ProgressFn};
use parking_lot::Mutex;
use std::ffi::{CString, c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr::null_mut;

#[derive(Clone, Copy)]
struct PreviewSetting {
    mode: Option<PreviewMode>,
    interval: u32,
    denoised: bool,
    noisy: bool,
}

#[derive(Clone, Copy)]
struct Settings {
    log: (sd_log_cb_t, *mut c_void),
    progress: (sd_progress_cb_t, *mut c_void),
    preview: (sd_preview_cb_t, *mut c_void),
    preview_setting: PreviewSetting,
    eval: (sd_graph_eval_callback_t, *mut c_void),
}

// SAFETY: the pointers are the caller's, who said that they may be given to the callbacks on any thread that calls
// the library; nothing here looks behind them.
unsafe impl Send for Settings {}

static SETTINGS: Mutex<Settings> = Mutex::new(Settings {
    log: (None, null_mut()),
    progress: (None, null_mut()),
    preview: (None, null_mut()),
    preview_setting: PreviewSetting { mode: None, interval: 1, denoised: true, noisy: false },
    eval: (None, null_mut()),
});

/// The callbacks as they are now.
pub fn snapshot() -> Callbacks {
    let settings = *SETTINGS.lock();
    Callbacks {
        log: log(settings),
        progress: progress(settings),
        preview: preview(settings),
        eval: eval(settings),
    }
}

fn log(settings: Settings) -> Option<Box<LogFn>> {
    let (function, data) = settings.log;
    let function = function?;
    Some(Box::new(move |level, text| {
        let level = match level {
            Level::Debug => 0,
            Level::Info => 1,
            Level::Warn => 2,
            Level::Error => 3,
        };
        let bytes: Vec<u8> = text.bytes().filter(|b| *b != 0).collect();
        let text = CString::new(bytes).unwrap_or_default();
        // SAFETY: function and data were set together by the caller; the text outlives the call.
        unsafe { function(numbered(level), text.as_ptr(), data) };
    }))
}

fn progress(settings: Settings) -> Option<Box<ProgressFn>> {
    let (function, data) = settings.progress;
    let function = function?;
    Some(Box::new(move |step, steps, seconds| {
        // SAFETY: function and data were set together by the caller.
        unsafe { function(step, steps, seconds, data) };
    }))
}

fn preview(settings: Settings) -> Option<Preview> {
    let (function, data) = settings.preview;
    let function = function?;
    let PreviewSetting { mode, interval, denoised, noisy } = settings.preview_setting;
    let show = Box::new(move |step: i32, images: &[Image], is_noisy: bool| {
        // Copies, because the C type lets the callback write into the frames.
        let mut pixels: Vec<Vec<u8>> = images.iter().map(|image| image.data.clone()).collect();
        let mut frames: Vec<sd_image_t> = images
            .iter()
            .zip(&mut pixels)
            .map(|(image, pixels)| sd_image_t {
                width: image.width as u32,
                height: image.height as u32,
                channel: image.channels as u32,
                data: pixels.as_mut_ptr(),
            })
            .collect();
        // SAFETY: function and data were set together by the caller; frames and pixels outlive the call.
        unsafe { function(step, frames.len() as c_int, frames.as_mut_ptr(), is_noisy, data) };
    });
    Some(Preview { mode: mode?, interval, denoised, noisy, show })
}

fn eval(settings: Settings) -> Option<Box<EvalFn>> {
    let (function, data) = settings.eval;
    let function = function?;
    Some(Box::new(move |tensor, ask| {
        // SAFETY: function and data were set together by the caller; the engine gives a live tensor.
        unsafe { function(tensor.cast(), ask, data) }
    }))
}

/// Sets who receives log messages, for the whole process; NULL: nobody. Without one nothing is printed.
///
/// Messages read `file:line - text\n`, end in a newline and are valid during the call only. They come on the thread
/// that called the library. Calls in progress keep the callback they began with.
///
/// # Safety
/// `data` is passed on as it is. It and `sd_log_cb` stay valid until replaced and until calls that began before have
/// returned. The callback must not throw or jump out.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sd_set_log_callback(sd_log_cb: sd_log_cb_t, data: *mut c_void) {
    boundary::quiet((), || SETTINGS.lock().log = (sd_log_cb, data));
}

/// Sets who receives progress, for the whole process; NULL: nobody.
///
/// Counts restart with each phase: tensors loaded, sampling steps (0 to `steps`), tiles decoded. They come on the
/// thread that called the library. Calls in progress keep the callback they began with.
///
/// # Safety
/// As for `sd_set_log_callback`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sd_set_progress_callback(cb: sd_progress_cb_t, data: *mut c_void) {
    boundary::quiet((), || SETTINGS.lock().progress = (cb, data));
}

/// Sets who receives previews while sampling, for the whole process; NULL or PREVIEW_NONE: nobody.
///
/// `interval`: a preview every so many steps (1 when less). `denoised`: show the estimate of the finished picture.
/// `noisy`: show the latent as it is, too. Frames are valid during the call only.
///
/// # Safety
/// As for `sd_set_log_callback`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sd_set_preview_callback(
    cb: sd_preview_cb_t,
    mode: MaybeUninit<preview_t>,
    interval: c_int,
    denoised: MaybeUninit<bool>,
    noisy: MaybeUninit<bool>,
    data: *mut c_void,
) {
    let mode = match number(mode) {
        1 => Some(PreviewMode::Projection),
        2 => Some(PreviewMode::Tiny),
        3 => Some(PreviewMode::Vae),
        _ => None,
    };
    let interval = u32::try_from(interval).unwrap_or(1).max(1);
    let setting = PreviewSetting { mode, interval, denoised: flag(denoised), noisy: flag(noisy) };
    boundary::quiet((), || {
        let mut settings = SETTINGS.lock();
        settings.preview = (cb, data);
        settings.preview_setting = setting;
    });
}

/// Sets who is asked about each node of a computed graph, for the whole process; NULL: nobody.
///
/// Before a node: return true to see its value. After it: return false to stop the graph, which makes the call fail.
///
/// # Safety
/// As for `sd_set_log_callback`. The tensor is valid during the call only.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sd_set_backend_eval_callback(cb: sd_graph_eval_callback_t, data: *mut c_void) {
    boundary::quiet((), || SETTINGS.lock().eval = (cb, data));
}
