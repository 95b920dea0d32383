//! ggml, built from a locked source package (see `docs/build.md`): raw bindings of `ggml.h`, `ggml-alloc.h`,
//! `ggml-backend.h`, `ggml-cpu.h`, `gguf.h` and `ggml-rpc.h`, and three things that a library needs to live with it:
//! [`guard`] against its aborts, [`set_log`] for its messages, [`check`] of the linked build.
//!
//! All functions are `extern "C-unwind"`: the abort callback throws through them.

mod bindings {
    #![allow(missing_docs, non_camel_case_types, non_snake_case, non_upper_case_globals, clippy::all)]
    include!("bindings.rs");
}
mod check;
mod guard;
mod log;

pub use bindings::*;
pub use check::check;
pub use guard::guard;
pub use log::{Log, set_log};
