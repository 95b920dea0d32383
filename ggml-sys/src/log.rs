//! Where ggml's messages go.

use crate::bindings::{ggml_log_level, ggml_log_set};
use std::ffi::{CStr, c_char, c_void};
use std::sync::Once;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Receives the messages of ggml. `GGML_LOG_LEVEL_CONT` continues the line before; lines end with `\n`.
/// It may be called from any thread and must not call [`set_log`].
pub type Log = fn(level: ggml_log_level, text: &str);

/// A `Log`, or null.
static LOG: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());

/// Sends ggml's messages to `log` from now on, `None` drops them. They are dropped until the first call, too.
/// The choice holds for the whole process.
pub fn set_log(log: Option<Log>) {
    static ROUTED: Once = Once::new();
    LOG.store(log.map_or(std::ptr::null_mut(), |log| log as *mut ()), Ordering::Release);
    // ggml keeps its callback in a plain variable, so it is written once only.
    // SAFETY: `route` has the signature that ggml asks for and needs no data.
    ROUTED.call_once(|| unsafe { ggml_log_set(Some(route), std::ptr::null_mut()) });
}

unsafe extern "C-unwind" fn route(level: ggml_log_level, text: *const c_char, _: *mut c_void) {
    let log = LOG.load(Ordering::Acquire);
    if log.is_null() || text.is_null() {
        return;
    }
    // SAFETY: `set_log` alone writes `LOG`: null or a `Log`, which has the size of a pointer.
    let log = unsafe { std::mem::transmute::<*mut (), Log>(log) };
    // SAFETY: ggml passes a C string that lives during the call.
    let text = unsafe { CStr::from_ptr(text) };
    log(level, &text.to_string_lossy());
}
