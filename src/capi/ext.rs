//! Additions to the interface, declared in `stable-diffusion-ext.h`.

use super::read::path;
use super::{boundary, memory};
use crate::error::Error;
use std::ffi::{c_char, c_int};

/// Revision of the structs and functions of `stable-diffusion.h` that this library is made to. It is the number at the
/// end of the library's soname and grows when a struct or signature changes.
pub const SD_EXT_ABI_VERSION: c_int = 1;

/// SD_EXT_ABI_VERSION of the library that is loaded; compare it with the header's.
#[unsafe(no_mangle)]
pub extern "C" fn sd_ext_abi_version() -> c_int {
    SD_EXT_ABI_VERSION
}

/// Why the last call of this thread failed; "" when it succeeded. Never NULL.
///
/// Functions that cannot fail (names, inits, frees, callbacks, `sd_cancel_generation`) leave it as it is. The text is
/// valid until this thread's next call.
#[unsafe(no_mangle)]
pub extern "C" fn sd_ext_last_error() -> *const c_char {
    boundary::last_error()
}

/// Describes model files without reading their weights: a JSON text in UTF-8, or NULL when a file cannot be read.
///
/// `files` says for each path what it holds, its bytes by type, and the field that takes it; `family`, `variant`,
/// `parts`, `missing` and `memory` (bytes) are about the model that all of them make up, `family` being null where they
/// make up none. `fields` maps fields to paths. Release the text with `sd_ext_free_text`.
///
/// # Safety
/// `paths` is NULL or points to `count` strings, each NULL or NUL-terminated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sd_ext_inspect_model(paths: *const *const c_char, count: usize) -> *mut c_char {
    boundary::call(std::ptr::null_mut(), || {
        if paths.is_null() || count == 0 {
            return Err(Error::invalid("paths is NULL or count is 0"));
        }
        let mut given = Vec::new();
        for i in 0..count {
            // SAFETY: `paths` points to `count` pointers, as promised by the caller.
            let one = unsafe { path(*paths.add(i)) };
            given.push(one.ok_or_else(|| Error::invalid(format!("paths[{i}] is NULL or empty")))?);
        }
        memory::string(crate::engine::inspect(&given)?.as_bytes())
    })
}

/// Releases a text that this library returned; NULL is allowed.
///
/// # Safety
/// `text` is NULL or was returned by `sd_ext_inspect_model` and not released yet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sd_ext_free_text(text: *mut c_char) {
    // SAFETY: NULL or C memory that is released once, as promised by the caller.
    unsafe { libc::free(text.cast()) }
}
