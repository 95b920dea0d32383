//! Raw bindings of ggml.
