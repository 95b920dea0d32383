//! Conversion of model files and the importance matrix.
#![forbid(unsafe_code)]

use super::request::ConvertRequest;
use crate::error::{Error, Result};
use crate::report::Callbacks;

/// Reads model files, converts their tensors and writes one file.
pub fn convert(_request: &ConvertRequest, _callbacks: &Callbacks) -> Result<()> {
    Err(Error::invalid("converting models is not available in this build"))
}

/// The importance matrix: how much each input channel of a weight matters, measured while generating.
pub mod imatrix {
    use crate::error::{Error, Result};
    use std::path::Path;

    /// Reads a file and adds to what is there.
    pub fn load(_path: &Path) -> Result<()> {
        Err(Error::invalid("importance matrices are not available in this build"))
    }

    /// Writes what is there.
    pub fn save(_path: &Path) -> Result<()> {
        Err(Error::invalid("importance matrices are not available in this build"))
    }

    /// Starts or stops measuring.
    pub fn collect(_on: bool) -> Result<()> {
        Err(Error::invalid("importance matrices are not available in this build"))
    }
}
