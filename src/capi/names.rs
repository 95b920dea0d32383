//! Enums to text and back.

use super::boundary;
use super::read::{number, numbered};
use super::types::*;
use crate::engine::choice::{HiresUpscaler, LoraApply, Prediction, Rng, SampleMethod, Scheduler};
use std::ffi::{CStr, c_char, c_int};
use std::mem::MaybeUninit;

/// Name of every value that is none.
pub const NONE: &CStr = c"NONE";

/// Names of the weight types by number, those of removed types included.
const TYPES: [&CStr; 42] = [
    c"f32",
    c"f16",
    c"q4_0",
    c"q4_1",
    c"DEPRECATED",
    c"DEPRECATED",
    c"q5_0",
    c"q5_1",
    c"q8_0",
    c"q8_1",
    c"q2_K",
    c"q3_K",
    c"q4_K",
    c"q5_K",
    c"q6_K",
    c"q8_K",
    c"iq2_xxs",
    c"iq2_xs",
    c"iq3_xxs",
    c"iq1_s",
    c"iq4_nl",
    c"iq3_s",
    c"iq2_s",
    c"iq4_xs",
    c"i8",
    c"i16",
    c"i32",
    c"i64",
    c"f64",
    c"iq1_m",
    c"bf16",
    c"TYPE_Q4_0_4_4 REMOVED, use Q4_0 with runtime repacking",
    c"TYPE_Q4_0_4_8 REMOVED, use Q4_0 with runtime repacking",
    c"TYPE_Q4_0_8_8 REMOVED, use Q4_0 with runtime repacking",
    c"tq1_0",
    c"tq2_0",
    c"TYPE_IQ4_NL_4_4 REMOVED, use IQ4_NL with runtime repacking",
    c"TYPE_IQ4_NL_4_8 REMOVED, use IQ4_NL with runtime repacking",
    c"TYPE_IQ4_NL_8_8 REMOVED, use IQ4_NL with runtime repacking",
    c"mxfp4",
    c"nvfp4",
    c"q1_0",
];

/// Preview modes.
const PREVIEWS: [&CStr; 4] = [c"none", c"proj", c"tae", c"vae"];

/// Whether `value` is a type that exists.
pub fn is_weight_type(value: c_int) -> bool {
    matches!(value, 0..=3 | 6..=30 | 34..=35 | 39..=41)
}

/// Name of a weight type.
pub fn weight_type(value: c_int) -> &'static CStr {
    entry(&TYPES, value)
}

fn entry(table: &[&'static CStr], value: c_int) -> &'static CStr {
    usize::try_from(value).ok().and_then(|i| table.get(i).copied()).unwrap_or(NONE)
}

/// Position of `text` in `table`; its length when it is not there, which is the enum's count.
fn position(table: &[&CStr], text: &[u8]) -> c_int {
    table.iter().position(|name| name.to_bytes() == text).unwrap_or(table.len()) as c_int
}

/// The text at `pointer`, "" for NULL: no enum has a value of that name.
///
/// # Safety
/// `pointer` is NULL or a NUL-terminated string.
unsafe fn given<'a>(pointer: *const c_char) -> &'a [u8] {
    if pointer.is_null() {
        return b"";
    }
    // SAFETY: not NULL; the caller vouches for the terminator.
    unsafe { CStr::from_ptr(pointer) }.to_bytes()
}

/// Name of weight type; "NONE" for a number that is none. Never NULL; the text lives as long as the library.
#[unsafe(no_mangle)]
pub extern "C" fn sd_type_name(r#type: MaybeUninit<sd_type_t>) -> *const c_char {
    boundary::quiet(NONE, || weight_type(number(r#type))).as_ptr()
}

/// Weight type of that name, exactly as spelled; the enum's count for NULL and unknown names.
///
/// # Safety
/// `str` is NULL or a NUL-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn str_to_sd_type(str: *const c_char) -> MaybeUninit<sd_type_t> {
    // SAFETY: as promised by the caller.
    let text = unsafe { given(str) };
    numbered(position(&TYPES, text))
}

/// Name of random generator; "NONE" for a number that is none. Never NULL; the text lives as long as the library.
#[unsafe(no_mangle)]
pub extern "C" fn sd_rng_type_name(rng_type: MaybeUninit<rng_type_t>) -> *const c_char {
    boundary::quiet(NONE, || Rng::from_index(number(rng_type)).map_or(NONE, Rng::c_name)).as_ptr()
}

/// Random generator of that name, exactly as spelled; the enum's count for NULL and unknown names.
///
/// # Safety
/// `str` is NULL or a NUL-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn str_to_rng_type(str: *const c_char) -> MaybeUninit<rng_type_t> {
    // SAFETY: as promised by the caller.
    let text = unsafe { given(str) };
    numbered(Rng::from_name(text).map_or(Rng::ALL.len(), Rng::index) as c_int)
}

/// Name of sampler; "NONE" for a number that is none. Never NULL; the text lives as long as the library.
#[unsafe(no_mangle)]
pub extern "C" fn sd_sample_method_name(sample_method: MaybeUninit<sample_method_t>) -> *const c_char {
    boundary::quiet(NONE, || {
        SampleMethod::from_index(number(sample_method)).map_or(NONE, SampleMethod::c_name)
    })
    .as_ptr()
}

/// Sampler of that name, exactly as spelled; the enum's count for NULL and unknown names.
///
/// # Safety
/// `str` is NULL or a NUL-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn str_to_sample_method(str: *const c_char) -> MaybeUninit<sample_method_t> {
    // SAFETY: as promised by the caller.
    let text = unsafe { given(str) };
    numbered(SampleMethod::from_name(text).map_or(SampleMethod::ALL.len(), SampleMethod::index) as c_int)
}

/// Name of noise schedule; "NONE" for a number that is none. Never NULL; the text lives as long as the library.
#[unsafe(no_mangle)]
pub extern "C" fn sd_scheduler_name(scheduler: MaybeUninit<scheduler_t>) -> *const c_char {
    boundary::quiet(NONE, || Scheduler::from_index(number(scheduler)).map_or(NONE, Scheduler::c_name))
        .as_ptr()
}

/// Noise schedule of that name, exactly as spelled; the enum's count for NULL and unknown names.
///
/// # Safety
/// `str` is NULL or a NUL-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn str_to_scheduler(str: *const c_char) -> MaybeUninit<scheduler_t> {
    // SAFETY: as promised by the caller.
    let text = unsafe { given(str) };
    numbered(if text == b"normal" {
        Scheduler::Discrete.index() as c_int
    } else {
        Scheduler::from_name(text).map_or(Scheduler::ALL.len(), Scheduler::index) as c_int
    })
}

/// Name of prediction kind; "NONE" for a number that is none. Never NULL; the text lives as long as the library.
#[unsafe(no_mangle)]
pub extern "C" fn sd_prediction_name(prediction: MaybeUninit<prediction_t>) -> *const c_char {
    boundary::quiet(NONE, || Prediction::from_index(number(prediction)).map_or(NONE, Prediction::c_name))
        .as_ptr()
}

/// Prediction kind of that name, exactly as spelled; the enum's count for NULL and unknown names.
///
/// # Safety
/// `str` is NULL or a NUL-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn str_to_prediction(str: *const c_char) -> MaybeUninit<prediction_t> {
    // SAFETY: as promised by the caller.
    let text = unsafe { given(str) };
    numbered(Prediction::from_name(text).map_or(Prediction::ALL.len(), Prediction::index) as c_int)
}

/// Name of preview mode; "NONE" for a number that is none. Never NULL; the text lives as long as the library.
#[unsafe(no_mangle)]
pub extern "C" fn sd_preview_name(preview: MaybeUninit<preview_t>) -> *const c_char {
    boundary::quiet(NONE, || entry(&PREVIEWS, number(preview))).as_ptr()
}

/// Preview mode of that name, exactly as spelled; the enum's count for NULL and unknown names.
///
/// # Safety
/// `str` is NULL or a NUL-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn str_to_preview(str: *const c_char) -> MaybeUninit<preview_t> {
    // SAFETY: as promised by the caller.
    let text = unsafe { given(str) };
    numbered(position(&PREVIEWS, text))
}

/// Name of LoRA mode; "NONE" for a number that is none. Never NULL; the text lives as long as the library.
#[unsafe(no_mangle)]
pub extern "C" fn sd_lora_apply_mode_name(mode: MaybeUninit<lora_apply_mode_t>) -> *const c_char {
    boundary::quiet(NONE, || LoraApply::from_index(number(mode)).map_or(NONE, LoraApply::c_name)).as_ptr()
}

/// LoRA mode of that name, exactly as spelled; the enum's count for NULL and unknown names.
///
/// # Safety
/// `str` is NULL or a NUL-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn str_to_lora_apply_mode(str: *const c_char) -> MaybeUninit<lora_apply_mode_t> {
    // SAFETY: as promised by the caller.
    let text = unsafe { given(str) };
    numbered(LoraApply::from_name(text).map_or(LoraApply::ALL.len(), LoraApply::index) as c_int)
}

/// Name of hires upscaler; "NONE" for a number that is none. Never NULL; the text lives as long as the library.
#[unsafe(no_mangle)]
pub extern "C" fn sd_hires_upscaler_name(upscaler: MaybeUninit<sd_hires_upscaler_t>) -> *const c_char {
    boundary::quiet(NONE, || HiresUpscaler::from_index(number(upscaler)).map_or(NONE, HiresUpscaler::c_name))
        .as_ptr()
}

/// Hires upscaler of that name, exactly as spelled; the enum's count for NULL and unknown names.
///
/// # Safety
/// `str` is NULL or a NUL-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn str_to_sd_hires_upscaler(str: *const c_char) -> MaybeUninit<sd_hires_upscaler_t> {
    // SAFETY: as promised by the caller.
    let text = unsafe { given(str) };
    numbered(HiresUpscaler::from_name(text).map_or(HiresUpscaler::ALL.len(), HiresUpscaler::index) as c_int)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn null_and_unknown_are_the_count() {
        // SAFETY: NULL is allowed.
        assert_eq!(number(unsafe { str_to_sd_type(std::ptr::null()) }), 42);
        // SAFETY: a string literal ends in NUL.
        assert_eq!(number(unsafe { str_to_scheduler(c"normal".as_ptr()) }), 0);
    }

    #[test]
    fn types_that_exist_have_names() {
        for value in -2..50 {
            let name = weight_type(value).to_str().unwrap();
            let gone = name == "DEPRECATED" || name == "NONE" || name.contains("REMOVED");
            assert_eq!(is_weight_type(value), !gone, "{value} {name}");
        }
    }
}
