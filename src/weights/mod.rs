//! The index of tensors over all files, names, residency.
#![forbid(unsafe_code)]
