//! `extra_sample_args`: a list of `key=value` pairs, separated by `,` or `;`.
//!
//! Every key is read once into [`SampleArgs`]; a value that cannot be read leaves the default in place and
//! adds a warning that names the key. `docs/sampling.md` lists all keys.
#![forbid(unsafe_code)]

use super::guidance::{ApgParams, GuidanceSchedule};

/// Options of samplers, schedules and guidance that travel in `extra_sample_args`.
#[derive(Clone, Debug, PartialEq)]
pub struct SampleArgs {
    /// `apg_*`: adaptive projected guidance.
    pub apg: ApgParams,
    /// `slg_uncond`: skip the layers in the unconditional evaluation instead of a third one.
    pub slg_uncond: bool,
    /// `guidance_schedule`: guidance scale per step.
    pub guidance_schedule: GuidanceSchedule,
    /// `strength_as_noise_level`: img2img strength is the noise level to start from, not a share of the
    /// steps.
    pub strength_as_noise_level: bool,
    /// `force_first_sigma`: with the former, start exactly at that noise level.
    pub force_first_sigma: bool,
    /// `noise_clip_std`, `noise_scale_start`, `noise_scale_end`: noise of the LCM sampler.
    pub lcm: LcmNoise,
    /// `gamma` of the gradient estimation sampler.
    pub gamma: f32,
    /// `base_shift`; the default depends on the schedule.
    pub base_shift: Option<f32>,
    /// `max_shift`; the default depends on the schedule.
    pub max_shift: Option<f32>,
    /// `stretch`: whether the token schedule is stretched to end at `terminal`.
    pub stretch: bool,
    /// `terminal`: last sigma above zero of the stretched token schedule.
    pub terminal: f32,
    /// `mu`, `std`, `logsnr_min`, `logsnr_max`, `resolution_aware` of the logit-normal schedule.
    pub logit_normal: LogitNormal,
    /// `sefi_alpha`: time shift of the dual schedule, 1 for none.
    pub dual_alpha: f32,
    /// `sefi_delta_t`: how far the semantic channels run ahead in the dual schedule.
    pub dual_delta: f32,
    /// `cache_limits`: honour the limits of the block caches, see `CacheParams::limits`.
    pub cache_limits: bool,
    /// What could not be read, one sentence each, for the log.
    pub warnings: Vec<String>,
}

/// Noise that the LCM sampler adds after each step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LcmNoise {
    /// Clip at this many standard deviations; 0 for no clipping.
    pub clip_std: f32,
    /// Factor of the noise after the first step.
    pub scale_start: f32,
    /// Factor of the noise at the last step.
    pub scale_end: f32,
}

/// Parameters of the logit-normal schedule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LogitNormal {
    /// Mean of the normal distribution.
    pub mean: f32,
    /// Its standard deviation.
    pub std: f32,
    /// Lowest log signal-to-noise ratio.
    pub logsnr_min: f32,
    /// Highest log signal-to-noise ratio.
    pub logsnr_max: f32,
    /// Whether the mean grows with the number of image tokens.
    pub resolution_aware: bool,
}

impl Default for SampleArgs {
    fn default() -> Self {
        Self {
            apg: ApgParams::default(),
            slg_uncond: false,
            guidance_schedule: GuidanceSchedule::default(),
            strength_as_noise_level: false,
            force_first_sigma: false,
            lcm: LcmNoise { clip_std: 0.0, scale_start: 1.0, scale_end: 1.0 },
            gamma: 2.0,
            base_shift: None,
            max_shift: None,
            stretch: true,
            terminal: 0.1,
            logit_normal: LogitNormal {
                mean: 0.0,
                std: 1.75,
                logsnr_min: -15.0,
                logsnr_max: 18.0,
                resolution_aware: true,
            },
            dual_alpha: 1.0,
            dual_delta: 0.1,
            cache_limits: false,
            warnings: Vec::new(),
        }
    }
}

impl SampleArgs {
    /// Reads the list; never fails, see `warnings`.
    pub fn parse(text: &str) -> Self {
        let mut args = Self::default();
        let (pairs, mut warnings) = key_values(text);
        let mut scale_end_given = false;
        for (key, value) in pairs {
            scale_end_given |= key == "noise_scale_end" && strict_float(value).is_some();
            match args.set(key, value) {
                Outcome::Set => {}
                Outcome::BadValue => {
                    warnings.push(format!("extra_sample_args: ignoring invalid value in '{key}={value}'"))
                }
                Outcome::UnknownKey => warnings.push(format!("extra_sample_args: unknown key '{key}'")),
            }
        }
        if !scale_end_given {
            args.lcm.scale_end = args.lcm.scale_start;
        }
        warnings.append(&mut args.warnings);
        args.warnings = warnings;
        args
    }

    fn set(&mut self, key: &str, value: &str) -> Outcome {
        match key {
            "apg_eta" => float(&mut self.apg.eta, value),
            "apg_momentum" => float(&mut self.apg.momentum, value),
            "apg_norm_threshold" => float(&mut self.apg.norm_threshold, value),
            "apg_norm_threshold_smoothing" => float(&mut self.apg.norm_threshold_smoothing, value),
            "slg_uncond" => boolean(&mut self.slg_uncond, value),
            "strength_as_noise_level" => boolean(&mut self.strength_as_noise_level, value),
            "force_first_sigma" => boolean(&mut self.force_first_sigma, value),
            "noise_clip_std" => float(&mut self.lcm.clip_std, value),
            "noise_scale_start" => float(&mut self.lcm.scale_start, value),
            "noise_scale_end" => float(&mut self.lcm.scale_end, value),
            "gamma" => float(&mut self.gamma, value),
            "base_shift" => optional_float(&mut self.base_shift, value),
            "max_shift" => optional_float(&mut self.max_shift, value),
            "stretch" => boolean(&mut self.stretch, value),
            "terminal" => float(&mut self.terminal, value),
            "mu" => float(&mut self.logit_normal.mean, value),
            "std" => float(&mut self.logit_normal.std, value),
            "logsnr_min" => float(&mut self.logit_normal.logsnr_min, value),
            "logsnr_max" => float(&mut self.logit_normal.logsnr_max, value),
            "resolution_aware" => boolean(&mut self.logit_normal.resolution_aware, value),
            "sefi_alpha" => float(&mut self.dual_alpha, value),
            "sefi_delta_t" => float(&mut self.dual_delta, value),
            "cache_limits" => boolean(&mut self.cache_limits, value),
            "guidance_schedule" => self.set_guidance_schedule(value),
            _ => Outcome::UnknownKey,
        }
    }

    fn set_guidance_schedule(&mut self, value: &str) -> Outcome {
        self.guidance_schedule = GuidanceSchedule::default();
        if !value.is_empty() {
            match GuidanceSchedule::parse(value) {
                Ok(schedule) => self.guidance_schedule = schedule,
                Err(reason) => {
                    self.warnings.push(format!("extra_sample_args: guidance_schedule ignored: {reason}"))
                }
            }
        }
        Outcome::Set
    }
}

enum Outcome {
    Set,
    BadValue,
    UnknownKey,
}

fn store<T>(slot: &mut T, value: Option<T>) -> Outcome {
    match value {
        Some(value) => {
            *slot = value;
            Outcome::Set
        }
        None => Outcome::BadValue,
    }
}

fn float(slot: &mut f32, value: &str) -> Outcome {
    store(slot, strict_float(value))
}

fn optional_float(slot: &mut Option<f32>, value: &str) -> Outcome {
    match strict_float(value) {
        Some(value) => store(slot, Some(Some(value))),
        None => Outcome::BadValue,
    }
}

fn boolean(slot: &mut bool, value: &str) -> Outcome {
    store(slot, strict_bool(value))
}

/// White space as C's `isspace` sees it.
pub(super) fn trim(text: &str) -> &str {
    text.trim_matches([' ', '\t', '\n', '\r', '\x0b', '\x0c'])
}

/// Splits a list at `,` and `;` into trimmed pairs; the second part holds a warning for each member without
/// `=`.
pub fn key_values(text: &str) -> (Vec<(&str, &str)>, Vec<String>) {
    let mut pairs = Vec::new();
    let mut warnings = Vec::new();
    for token in text.split([',', ';']).map(trim).filter(|token| !token.is_empty()) {
        match token.split_once('=') {
            Some((key, value)) => pairs.push((trim(key), trim(value))),
            None => warnings.push(format!("extra_sample_args: ignoring '{token}', expected key=value")),
        }
    }
    (pairs, warnings)
}

/// A float as C's `strtof` reads it (decimal, `0x` hexadecimal, `inf`, `nan`), nothing behind it, `None` when
/// it overflows.
pub fn strict_float(text: &str) -> Option<f32> {
    let text = trim(text);
    let (negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let lower = digits.to_ascii_lowercase();
    let magnitude = if lower == "inf" || lower == "infinity" {
        f32::INFINITY
    } else if lower == "nan" {
        f32::NAN
    } else if let Some(hex) = lower.strip_prefix("0x") {
        hex_float(hex)?
    } else {
        if !lower.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'e' | b'-' | b'+')) {
            return None;
        }
        // The mantissa comes first: a second sign would be an exponent without digits before it.
        if !lower.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
            return None;
        }
        lower.parse::<f32>().ok().filter(|value| value.is_finite())?
    };
    Some(if negative { -magnitude } else { magnitude })
}

/// Digits of a hexadecimal float behind `0x`: `1.8p-1`.
fn hex_float(text: &str) -> Option<f32> {
    let (mantissa, exponent) = match text.split_once('p') {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
        None => (text, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let mut value = 0f64;
    for digit in whole.chars().chain(fraction.chars()) {
        value = value * 16.0 + f64::from(digit.to_digit(16)?);
    }
    let places = i32::try_from(fraction.len()).ok()?;
    let exponent = exponent.checked_sub(places.checked_mul(4)?)?;
    let value = (value * 2f64.powi(exponent)) as f32;
    value.is_finite().then_some(value)
}

/// A decimal integer with nothing behind it.
pub fn strict_int(text: &str) -> Option<i32> {
    trim(text).parse().ok()
}

/// `1`, `true`, `yes`, `on` or `0`, `false`, `no`, `off` in any case.
pub fn strict_bool(text: &str) -> Option<bool> {
    match trim(text).to_ascii_lowercase().as_str() {
        "1" | "true" | "yes" | "on" => Some(true),
        "0" | "false" | "no" | "off" => Some(false),
        _ => None,
    }
}
