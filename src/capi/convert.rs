//! Converting model files, and importance matrices.

use super::read::{flag, number, path, text, threads, weight_type};
use super::types::sd_type_t;
use super::{boundary, callbacks};
use crate::engine::imatrix;
use crate::engine::request::ConvertRequest;
use crate::error::{Error, Result};
use std::ffi::{c_char, c_int};
use std::mem::MaybeUninit;
use std::path::PathBuf;

/// # Safety
/// `pointer` is NULL or a NUL-terminated string.
unsafe fn needed_path(pointer: *const c_char, name: &str) -> Result<PathBuf> {
    // SAFETY: as promised by the caller.
    unsafe { path(pointer) }.ok_or_else(|| Error::invalid(format!("{name} is NULL or empty")))
}

/// The type to write: the count means "as stored", an unknown number is refused rather than taken for that.
fn output_type(value: c_int) -> Result<Option<u32>> {
    match weight_type(value) {
        None if value != sd_type_t::SD_TYPE_COUNT as c_int => {
            Err(Error::invalid(format!("output_type is {value}, which is no type")))
        }
        known => Ok(known),
    }
}

/// Reads a model, with a VAE when `vae_path` is given, converts its tensors and writes one file.
///
/// `output_path` ends in `.gguf` or `.safetensors`. `output_type`: SD_TYPE_COUNT keeps types. `tensor_type_rules`:
/// `pattern=type,...`, NULL for none. `convert_name`: write the library's tensor names. Uses all physical cores.
/// Returns false on failure, leaving no file; the log and `sd_ext_last_error` say why. Strings are copied.
///
/// # Safety
/// The strings are NULL or NUL-terminated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn convert(
    input_path: *const c_char,
    vae_path: *const c_char,
    output_path: *const c_char,
    output_type: MaybeUninit<sd_type_t>,
    tensor_type_rules: *const c_char,
    convert_name: MaybeUninit<bool>,
) -> bool {
    boundary::call(false, || {
        // SAFETY: as promised by the caller.
        let request = unsafe {
            ConvertRequest {
                model: Some(needed_path(input_path, "input_path")?),
                clip_l: None,
                clip_g: None,
                t5xxl: None,
                diffusion_model: None,
                vae: path(vae_path),
                output: needed_path(output_path, "output_path")?,
                output_type: self::output_type(number(output_type))?,
                tensor_type_rules: text(tensor_type_rules),
                convert_name: flag(convert_name),
                n_threads: threads(0),
            }
        };
        crate::engine::convert(&request, &callbacks::snapshot())?;
        Ok(true)
    })
}

/// As `convert`, from a whole checkpoint, from parts, or both. NULL and "" mean that a part is not given; at least one
/// is needed. `n_threads`: 0 or less means the number of physical cores.
///
/// # Safety
/// The strings are NULL or NUL-terminated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn convert_with_components(
    model_path: *const c_char,
    clip_l_path: *const c_char,
    clip_g_path: *const c_char,
    t5xxl_path: *const c_char,
    diffusion_model_path: *const c_char,
    vae_path: *const c_char,
    output_path: *const c_char,
    output_type: MaybeUninit<sd_type_t>,
    tensor_type_rules: *const c_char,
    convert_name: MaybeUninit<bool>,
    n_threads: c_int,
) -> bool {
    boundary::call(false, || {
        // SAFETY: as promised by the caller.
        let request = unsafe {
            ConvertRequest {
                model: path(model_path),
                clip_l: path(clip_l_path),
                clip_g: path(clip_g_path),
                t5xxl: path(t5xxl_path),
                diffusion_model: path(diffusion_model_path),
                vae: path(vae_path),
                output: needed_path(output_path, "output_path")?,
                output_type: self::output_type(number(output_type))?,
                tensor_type_rules: text(tensor_type_rules),
                convert_name: flag(convert_name),
                n_threads: threads(n_threads),
            }
        };
        let parts = [
            &request.model,
            &request.clip_l,
            &request.clip_g,
            &request.t5xxl,
            &request.diffusion_model,
            &request.vae,
        ];
        if parts.iter().all(|part| part.is_none()) {
            return Err(Error::invalid("no input path is given to convert_with_components"));
        }
        crate::engine::convert(&request, &callbacks::snapshot())?;
        Ok(true)
    })
}

/// Reads an importance matrix and adds it to the one of the process, which `convert` and loading with a quantised
/// type use. Returns false on failure.
///
/// # Safety
/// `imatrix_path` is NULL or NUL-terminated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn load_imatrix(imatrix_path: *const c_char) -> bool {
    boundary::call(false, || {
        // SAFETY: as promised by the caller.
        imatrix::load(&unsafe { needed_path(imatrix_path, "imatrix_path") }?)?;
        Ok(true)
    })
}

/// Writes the importance matrix of the process. A failure is in the log and in `sd_ext_last_error`.
///
/// # Safety
/// `imatrix_path` is NULL or NUL-terminated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn save_imatrix(imatrix_path: *const c_char) {
    // SAFETY: as promised by the caller.
    boundary::call((), || imatrix::save(&unsafe { needed_path(imatrix_path, "imatrix_path") }?));
}

/// Starts measuring the importance matrix of the process: each generation adds to it.
#[unsafe(no_mangle)]
pub extern "C" fn enable_imatrix_collection() {
    boundary::call((), || imatrix::collect(true));
}

/// Stops measuring; what was measured stays.
#[unsafe(no_mangle)]
pub extern "C" fn disable_imatrix_collection() {
    boundary::call((), || imatrix::collect(false));
}
