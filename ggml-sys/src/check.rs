//! Do the bindings fit the linked library?

use crate::bindings::{BOUND_VERSION, GGML_MAX_NAME, ggml_tensor, ggml_tensor_overhead, ggml_version};
use std::ffi::CStr;

/// `ggml_object`, which stands before each tensor in a context and is not public: offset, size, next, kind, padding.
const OBJECT_BYTES: usize = 3 * size_of::<usize>() + 8;

/// Compares version and layout of the linked ggml with those that the bindings were made for. Costs nothing; call it
/// once before the first use of ggml, since a prebuilt library (`GGML_LIB_DIR`) may be of any build.
pub fn check() -> Result<(), String> {
    // SAFETY: returns a string constant of the library.
    let version = unsafe { CStr::from_ptr(ggml_version()) };
    if version != BOUND_VERSION {
        return Err(format!(
            "ggml {} is linked, the bindings are for {}; run scripts/bindings.sh or link that version",
            version.to_string_lossy(),
            BOUND_VERSION.to_string_lossy()
        ));
    }
    // SAFETY: returns a constant.
    let linked = unsafe { ggml_tensor_overhead() };
    let expected = OBJECT_BYTES + size_of::<ggml_tensor>();
    if linked != expected {
        return Err(format!(
            "a tensor of the linked ggml takes {linked} bytes, the bindings expect {expected}; \
             build ggml with GGML_MAX_NAME={GGML_MAX_NAME}"
        ));
    }
    Ok(())
}
