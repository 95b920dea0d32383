//! Raw bindings of ggml, built from a locked source package.

mod bindings {
    #![allow(missing_docs, non_camel_case_types, non_snake_case, non_upper_case_globals, clippy::all)]
    include!("bindings.rs");
}

pub use bindings::*;
