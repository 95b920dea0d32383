//! Additions to the interface, declared in `stable-diffusion-ext.h`.

use super::boundary;
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
