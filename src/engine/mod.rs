//! What a context owns: the loaded family, devices, callbacks, the cancel flag.
#![forbid(unsafe_code)]
