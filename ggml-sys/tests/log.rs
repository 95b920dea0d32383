//! ggml's messages reach the function that was set.

#![allow(clippy::unwrap_used)] // also in the helpers of tests

use ggml_sys::*;
use std::sync::Mutex;

static MESSAGES: Mutex<Vec<(ggml_log_level, String)>> = Mutex::new(Vec::new());

fn keep(level: ggml_log_level, text: &str) {
    MESSAGES.lock().unwrap().push((level, text.to_owned()));
}

/// A file that is not there makes ggml complain.
fn complain() {
    let params = gguf_init_params { no_alloc: true, ctx: std::ptr::null_mut() };
    // SAFETY: the path is a C string, and null asks for no context.
    assert!(unsafe { gguf_init_from_file(c"/no/such/file".as_ptr(), params) }.is_null());
}

// One test, since the log is the process' own.
#[test]
fn messages_reach_the_log_until_it_is_taken_away() {
    complain();
    assert_eq!(*MESSAGES.lock().unwrap(), []);

    set_log(Some(keep));
    complain();
    let messages = std::mem::take(&mut *MESSAGES.lock().unwrap());
    assert!(
        messages.iter().any(|(level, text)| *level == GGML_LOG_LEVEL_ERROR && text.contains("/no/such/file"))
    );

    set_log(None);
    complain();
    assert_eq!(*MESSAGES.lock().unwrap(), []);
}
