//! Networks that several families share.
#![forbid(unsafe_code)]
