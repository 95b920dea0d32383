//! LoRA, control nets, identity adapters, textual inversion.
#![forbid(unsafe_code)]
pub mod controlnet;
pub mod lora;
pub mod photomaker;
