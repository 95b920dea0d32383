//! What a context owns: the loaded family, devices, callbacks, the cancel flag.
#![forbid(unsafe_code)]

mod adapters;
pub mod choice;
mod context;
mod convert;
mod exclusive;
mod inspect;
mod open;
mod placement;
pub mod request;
mod state;
pub mod system;
mod upscaler;

pub use context::{Context, Facts, Run, Sound, Video};
pub use convert::{convert, imatrix};
pub use inspect::inspect;
pub use upscaler::Upscaler;
