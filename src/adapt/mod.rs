//! LoRA, control nets, identity adapters, textual inversion.
#![forbid(unsafe_code)]
pub mod lora;
pub mod photomaker;
