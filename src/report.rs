//! What a call tells its caller while it runs: log lines, progress, previews, computed tensors.
//!
//! Usable by every room. The callbacks are neither `Send` nor `Sync`, so that they can only be called on the
//! thread that called the library.
#![forbid(unsafe_code)]

use crate::image::Image;
use std::ffi::c_void;

/// Level of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Details for developers.
    Debug,
    /// What is being done.
    Info,
    /// Something is odd, the call goes on.
    Warn,
    /// The call fails.
    Error,
}

/// How preview frames are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PreviewMode {
    /// Linear projection of the latent's channels to colours, in latent size.
    Projection,
    /// Decoded by the tiny autoencoder.
    Tiny,
    /// Decoded by the VAE.
    Vae,
}

/// Receives the frames of a preview: step (negative: a half step), frames, whether they still hold noise.
pub type PreviewFn = dyn Fn(i32, &[Image], bool);
/// Receives progress: steps done, steps in all, seconds per step.
pub type ProgressFn = dyn Fn(i32, i32, f32);
/// Receives a log line `file:line - text\n`.
pub type LogFn = dyn Fn(Level, &str);
/// Asked before a graph node (`true`: is its value wanted?) and told after it; false then stops the graph.
/// The pointer is a `ggml_tensor`.
pub type EvalFn = dyn Fn(*mut c_void, bool) -> bool;

/// A wish for previews.
pub struct Preview {
    /// How to make them.
    pub mode: PreviewMode,
    /// A preview every so many steps, 1 or more.
    pub interval: u32,
    /// Show the estimate of the finished latent.
    pub denoised: bool,
    /// Show the noisy latent too.
    pub noisy: bool,
    /// Receives the frames.
    pub show: Box<PreviewFn>,
}

/// What the caller of one call wants to hear. The default hears nothing.
#[derive(Default)]
pub struct Callbacks {
    /// Log lines.
    pub log: Option<Box<LogFn>>,
    /// Progress.
    pub progress: Option<Box<ProgressFn>>,
    /// Previews.
    pub preview: Option<Preview>,
    /// Computed tensors.
    pub eval: Option<Box<EvalFn>>,
}

/// Longest log line in bytes; a longer one is cut.
const LINE_LIMIT: usize = 4096;

impl Callbacks {
    /// Reports `step` of `steps` with the seconds that one step takes.
    pub fn progress(&self, step: i32, steps: i32, seconds: f32) {
        if let Some(progress) = &self.progress {
            progress(step, steps, seconds);
        }
    }

    /// Logs one line; use the macros [`crate::log_info`] and its like, which know where they stand.
    pub fn line(&self, level: Level, file: &str, line: u32, text: std::fmt::Arguments<'_>) {
        if let Some(log) = &self.log {
            log(level, &format_line(file, line, text));
        }
    }
}

/// `file:line - text\n`, with the file's name only and at most 4096 bytes.
pub fn format_line(file: &str, line: u32, text: std::fmt::Arguments<'_>) -> String {
    let file = file.rsplit(['/', '\\']).next().unwrap_or(file);
    let mut out = format!("{file}:{line:<4} - {text}");
    if out.len() >= LINE_LIMIT {
        let mut end = LINE_LIMIT - 1;
        while !out.is_char_boundary(end) {
            end -= 1;
        }
        out.truncate(end);
    }
    if !out.ends_with('\n') {
        out.push('\n');
    }
    out
}

/// Logs a formatted line at level debug: `log_debug!(callbacks, "{n} tensors")`.
#[macro_export]
macro_rules! log_debug {
    ($to:expr, $($text:tt)+) => { $to.line($crate::report::Level::Debug, file!(), line!(), format_args!($($text)+)) };
}

/// Logs a formatted line at level info.
#[macro_export]
macro_rules! log_info {
    ($to:expr, $($text:tt)+) => { $to.line($crate::report::Level::Info, file!(), line!(), format_args!($($text)+)) };
}

/// Logs a formatted line at level warn.
#[macro_export]
macro_rules! log_warn {
    ($to:expr, $($text:tt)+) => { $to.line($crate::report::Level::Warn, file!(), line!(), format_args!($($text)+)) };
}

/// Logs a formatted line at level error.
#[macro_export]
macro_rules! log_error {
    ($to:expr, $($text:tt)+) => { $to.line($crate::report::Level::Error, file!(), line!(), format_args!($($text)+)) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_file_number_and_end() {
        assert_eq!(format_line("src/a/b.rs", 7, format_args!("x {}", 1)), "b.rs:7    - x 1\n");
        assert_eq!(format_line("b.rs", 12345, format_args!("x\n")), "b.rs:12345 - x\n");
    }

    #[test]
    fn a_long_line_is_cut_at_a_character() {
        let long = "é".repeat(5000);
        let line = format_line("b.rs", 1, format_args!("{long}"));
        assert!(line.len() <= LINE_LIMIT && line.ends_with("é\n"));
    }
}
