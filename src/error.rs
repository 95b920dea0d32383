//! The one error type. A message says what was found, what was expected and which field to change.
#![forbid(unsafe_code)]

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A request or parameter is not usable; the text names the field.
    #[error("{0}")]
    Invalid(String),
    /// A file could not be read or written.
    #[error("{path}: {message}")]
    File {
        /// Path as it was given.
        path: String,
        /// What was found and what was expected.
        message: String,
    },
    /// The weights do not make up the model: missing, extra or mis-shaped tensors.
    #[error("{0}")]
    Weights(String),
    /// A graph operation was asked for with shapes or types that do not fit.
    #[error("{op}: {message}")]
    Shape {
        /// Operation.
        op: &'static str,
        /// Shapes found and the rule they break.
        message: String,
    },
    /// Memory for a buffer could not be had.
    #[error("out of memory: {0}")]
    Memory(String),
    /// A device failed or a graph could not be computed.
    #[error("{0}")]
    Backend(String),
    /// The caller asked to stop.
    #[error("cancelled")]
    Cancelled,
    /// A broken invariant of the library itself.
    #[error("internal error: {0}")]
    Internal(String),
}

/// Result with the library's error.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An unusable request; `text` names the field to change.
    pub fn invalid(text: impl Into<String>) -> Self {
        Self::Invalid(text.into())
    }

    /// A fault of a file.
    pub fn file(path: impl AsRef<std::path::Path>, message: impl std::fmt::Display) -> Self {
        Self::File { path: path.as_ref().to_string_lossy().into_owned(), message: message.to_string() }
    }

    /// An operation whose operands do not fit.
    pub fn shape(op: &'static str, message: impl Into<String>) -> Self {
        Self::Shape { op, message: message.into() }
    }
}
