//! What the library is and what the machine has.

use super::boundary;
use std::ffi::{CStr, CString, c_char};
use std::sync::OnceLock;

/// Revision of the C interface that this library is made to, with its own version.
const VERSION: &CStr = match CStr::from_bytes_with_nul(
    concat!("master-767-885f01a+rust-", env!("CARGO_PKG_VERSION"), "\0").as_bytes(),
) {
    Ok(text) => text,
    Err(_) => c"unknown",
};
const COMMIT: &CStr = c"885f01a5";

/// Number of physical cores that the process may use, at least 1.
#[unsafe(no_mangle)]
pub extern "C" fn sd_get_num_physical_cores() -> i32 {
    boundary::quiet(1, || i32::try_from(crate::engine::system::physical_cores()).unwrap_or(1))
}

/// One line on the features of the processor: `System Info: \n   AVX = 1 | ...`. Never NULL; the text lives as long
/// as the library.
#[unsafe(no_mangle)]
pub extern "C" fn sd_get_system_info() -> *const c_char {
    static TEXT: OnceLock<CString> = OnceLock::new();
    boundary::quiet(c"System Info: \n".as_ptr(), || {
        TEXT.get_or_init(|| CString::new(crate::engine::system::features()).unwrap_or_default()).as_ptr()
    })
}

/// Revision of stable-diffusion.cpp whose interface this is. Never NULL; the text lives as long as the library.
#[unsafe(no_mangle)]
pub extern "C" fn sd_commit() -> *const c_char {
    COMMIT.as_ptr()
}

/// That revision's name and the version of this library. Never NULL; the text lives as long as the library.
#[unsafe(no_mangle)]
pub extern "C" fn sd_version() -> *const c_char {
    VERSION.as_ptr()
}

/// Lists the devices to compute on, one `name<TAB>description` a line; the names are those that `backend` and
/// `params_backend` take.
///
/// Writes as much as fits, NUL-terminated, and returns the length of the whole text without its NUL. With `buffer`
/// NULL or `buffer_size` 0 it only returns the length.
///
/// # Safety
/// `buffer` is NULL or has room for `buffer_size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sd_list_devices(buffer: *mut c_char, buffer_size: usize) -> usize {
    let text = boundary::quiet(String::new(), crate::engine::system::devices);
    if !buffer.is_null() && buffer_size > 0 {
        let count = text.len().min(buffer_size - 1);
        // SAFETY: `count + 1` is at most `buffer_size`, for which the caller vouches.
        unsafe {
            std::ptr::copy_nonoverlapping(text.as_ptr().cast::<c_char>(), buffer, count);
            buffer.add(count).write(0);
        }
    }
    text.len()
}
