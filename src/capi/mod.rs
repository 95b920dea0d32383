//! The boundary: C types, C names, one guard around every exported function.

mod layout;
pub mod types;
