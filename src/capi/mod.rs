//! The boundary: C types, C names, one guard around every exported function.
//!
//! The header in `include/` is generated from these files, doc comments included; `# Safety` becomes "Pointers".

mod boundary;
pub mod callbacks;
pub mod canny;
pub mod context;
pub mod convert;
pub mod ext;
pub mod image;
pub mod info;
mod layout;
pub mod memory;
pub mod names;
pub mod params;
mod read;
pub mod types;
pub mod upscale;
pub mod video;
