//! The guard around every exported function: panics stop here, errors are logged and kept for their thread.

use crate::error::{Error, Result};
use crate::report::Level;
use std::cell::{Cell, RefCell};
use std::ffi::{CStr, CString};
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::sync::Once;

thread_local! {
    static LAST_ERROR: RefCell<CString> = RefCell::default();
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Runs `body`; on an error or panic logs it, keeps it for [`last_error`] and returns `failed`.
#[track_caller]
pub fn call<T>(failed: T, body: impl FnOnce() -> Result<T>) -> T {
    let place = Location::caller();
    set_last_error("");
    match guarded(body) {
        Ok(value) => value,
        Err(error) => {
            let text = error.to_string();
            set_last_error(&text);
            let log = super::callbacks::snapshot();
            // A callback that panics here has been reported by the guard already.
            let _ = guarded(|| {
                log.line(Level::Error, place.file(), place.line(), format_args!("{text}"));
                Ok(())
            });
            failed
        }
    }
}

/// Runs a body that cannot fail, for functions that keep the last error as it is (names, inits, frees).
pub fn quiet<T>(failed: T, body: impl FnOnce() -> T) -> T {
    guarded(|| Ok(body())).unwrap_or(failed)
}

/// Runs `body` and turns a panic into an error.
fn guarded<T>(body: impl FnOnce() -> Result<T>) -> Result<T> {
    install_hook();
    let _depth = Depth::enter();
    // The body's captures are dropped after a panic, and parking_lot's locks know no poison.
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|payload| {
        let text = PANIC.try_with(|p| p.borrow_mut().take()).ok().flatten().or_else(|| {
            let text = payload.downcast_ref::<&str>().map(ToString::to_string);
            text.or_else(|| payload.downcast_ref::<String>().cloned())
        });
        // Dropping a payload may panic in theory; a leak of a few bytes may not.
        std::mem::forget(payload);
        Err(Error::Internal(text.unwrap_or_else(|| "unknown panic".into())))
    })
}

/// Keeps panics inside the library from being printed; all others go to the hook that was there before.
fn install_hook() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if DEPTH.try_with(Cell::get).unwrap_or(0) > 0 {
                let _ = PANIC.try_with(|p| {
                    if let Ok(mut slot) = p.try_borrow_mut() {
                        *slot = Some(info.to_string());
                    }
                });
            } else {
                before(info);
            }
        }));
    });
}

/// Counts guards on this thread, also when a panic unwinds.
struct Depth;

impl Depth {
    fn enter() -> Self {
        let _ = DEPTH.try_with(|d| d.set(d.get() + 1));
        Self
    }
}

impl Drop for Depth {
    fn drop(&mut self) {
        let _ = DEPTH.try_with(|d| d.set(d.get().saturating_sub(1)));
    }
}

fn set_last_error(text: &str) {
    let bytes: Vec<u8> = text.bytes().filter(|b| *b != 0).collect();
    let text = CString::new(bytes).unwrap_or_default();
    let _ = LAST_ERROR.try_with(|slot| {
        if let Ok(mut slot) = slot.try_borrow_mut() {
            *slot = text;
        }
    });
}

/// The last error of this thread, "" when its last call succeeded; valid until its next call.
pub fn last_error() -> *const std::ffi::c_char {
    LAST_ERROR.try_with(|slot| slot.borrow().as_ptr()).unwrap_or(NOTHING.as_ptr())
}

const NOTHING: &CStr = c"";

#[cfg(test)]
mod tests {
    use super::*;

    fn text() -> String {
        // SAFETY: `last_error` returns a string of this thread, which makes no other call meanwhile.
        unsafe { CStr::from_ptr(last_error()) }.to_string_lossy().into_owned()
    }

    #[test]
    fn errors_and_panics_are_kept_per_thread() {
        assert!(!call(false, || Err(Error::invalid("width is 0"))));
        assert_eq!(text(), "width is 0");
        assert!(!call(false, || panic!("an invariant is broken")));
        assert!(text().contains("an invariant is broken"), "{}", text());
        std::thread::spawn(|| assert_eq!(text(), "")).join().unwrap();
        assert!(call(false, || Ok(true)));
        assert_eq!(text(), "");
    }

    #[test]
    fn a_message_with_nul_survives() {
        call((), || Err(Error::invalid("a\0b")));
        assert_eq!(text(), "ab");
    }
}
