//! ggml computes, through the raw bindings.

use std::ffi::CStr;

#[test]
fn the_library_has_the_version_of_the_bindings() {
    // SAFETY: returns a string constant of the library.
    let linked = unsafe { CStr::from_ptr(ggml_sys::ggml_version()) };
    assert_eq!(linked, ggml_sys::BOUND_VERSION);
}
