//! Tokenizers, prompt weights and templates.
#![forbid(unsafe_code)]
