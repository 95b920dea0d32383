//! A net under ggml's assertions.

use std::ffi::{CStr, c_char, c_void};

unsafe extern "C-unwind" {
    fn ggml_sys_guarded(
        body: unsafe extern "C-unwind" fn(*mut c_void),
        data: *mut c_void,
        message: *mut c_char,
        size: usize,
    ) -> bool;
}

/// Keeps `guard.cpp` in every program, even in one that calls no function of this module: the file silences ggml
/// before `main`.
#[used]
static KEEP: unsafe extern "C-unwind" fn(
    unsafe extern "C-unwind" fn(*mut c_void),
    *mut c_void,
    *mut c_char,
    usize,
) -> bool = ggml_sys_guarded;

/// ggml's own buffer for the message of an abort has 2048 bytes.
const MESSAGE_BYTES: usize = 2048;

/// A closure before its call, its value after it.
struct Call<F, T> {
    body: Option<F>,
    value: Option<T>,
}

/// Calls `body`. If ggml aborts in it (`GGML_ASSERT`, `GGML_ABORT`) or throws, its message (`file:line: reason`) is
/// the error, and the process goes on.
///
/// - Works on the calling thread only: an assertion that fails on a worker of ggml's thread pool still ends the process,
///   and one that fails on the calling thread amid a computation by several threads leaves the others waiting. So
///   check shapes before building and computing a graph; this is for what was overlooked.
/// - What ggml was working on (context, graph, scheduler) may be left half-done: free it, do not go on with it.
/// - Values alive in `body` are dropped. A panic in `body` passes through as usual, nested guards are fine.
/// - Do not put `catch_unwind` between `guard` and the call of ggml: Rust ends the process when it meets a C++ exception
///   there. The same holds for a build with `panic = "abort"`.
pub fn guard<T>(body: impl FnOnce() -> T) -> Result<T, String> {
    fn trampoline<F: FnOnce() -> T, T>(_: &Call<F, T>) -> unsafe extern "C-unwind" fn(*mut c_void) {
        unsafe extern "C-unwind" fn call<F: FnOnce() -> T, T>(data: *mut c_void) {
            // SAFETY: `guard` passes its own `Call<F, T>`, which nothing else touches during the call.
            let call = unsafe { &mut *data.cast::<Call<F, T>>() };
            if let Some(body) = call.body.take() {
                call.value = Some(body());
            }
        }
        call::<F, T>
    }

    let mut call = Call { body: Some(body), value: None };
    let function = trampoline(&call);
    let mut message = [0 as c_char; MESSAGE_BYTES];
    // SAFETY: `function` was made for the type of `call`; both `call` and `message` outlive this call, and the size is
    // that of `message`. A foreign exception is caught inside, a panic may unwind through `C-unwind`.
    let returned =
        unsafe { ggml_sys_guarded(function, (&raw mut call).cast(), message.as_mut_ptr(), MESSAGE_BYTES) };
    match call.value {
        Some(value) if returned => Ok(value),
        _ => {
            // SAFETY: `ggml_sys_guarded` ends what it wrote with a NUL, and the buffer was zero before.
            let text = unsafe { CStr::from_ptr(message.as_ptr()) };
            Err(text.to_string_lossy().into_owned())
        }
    }
}
