//! A tensor of f32 in host memory.
#![forbid(unsafe_code)]

use crate::error::{Error, Result};

/// Row-major values with a shape in ggml order: `shape[0]` is the fastest axis.
///
/// A latent of an image is `[width, height, channels, batch]`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HostTensor {
    /// Extent of each axis, fastest first.
    pub shape: Vec<usize>,
    /// Values; their count is the product of `shape`.
    pub data: Vec<f32>,
}

impl HostTensor {
    /// Wraps `data`; an error when the count does not match `shape`.
    pub fn new(shape: impl Into<Vec<usize>>, data: Vec<f32>) -> Result<Self> {
        let shape = shape.into();
        let count = shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d));
        if count != Some(data.len()) {
            return Err(Error::shape("host tensor", format!("{} values for shape {shape:?}", data.len())));
        }
        Ok(Self { shape, data })
    }

    /// All values equal to `value`.
    pub fn full(shape: impl Into<Vec<usize>>, value: f32) -> Self {
        let shape = shape.into();
        let count = shape.iter().product();
        Self { shape, data: vec![value; count] }
    }

    /// All zeros.
    pub fn zeros(shape: impl Into<Vec<usize>>) -> Self {
        Self::full(shape, 0.0)
    }

    /// Extent of axis `axis`, 1 beyond the last one.
    pub fn dim(&self, axis: usize) -> usize {
        self.shape.get(axis).copied().unwrap_or(1)
    }

    /// Number of values.
    pub fn len(&self) -> usize {
        self.data.len()
    }

    /// Whether there is no value.
    pub fn is_empty(&self) -> bool {
        self.data.is_empty()
    }
}
