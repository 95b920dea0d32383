//! Feature maps: channels over width and height, in the memory order that suits the device.
#![forbid(unsafe_code)]

use crate::error::Result;
use crate::graph::{Act, Interpolation, Tensor};

/// A feature map of a graph.
///
/// Networks speak of width, height and channels only. Planes (`[W, H, C, N]`) are ggml's own order.
#[derive(Clone, Copy, Debug)]
pub struct Map<'g> {
    planes: Tensor<'g>,
}

impl<'g> Map<'g> {
    /// From planes `[W, H, C, N]`.
    pub fn from_planes(planes: Tensor<'g>) -> Self {
        Self { planes }
    }

    /// From tokens `[C, W * H, N]`.
    pub fn from_tokens(tokens: Tensor<'g>, width: usize, height: usize) -> Result<Self> {
        let [c, _, n, _] = tokens.shape();
        let planes = tokens.permute([1, 0, 2, 3])?.cont()?.reshape([width, height, c, n])?;
        Ok(Self { planes })
    }

    /// As planes `[W, H, C, N]`.
    pub fn planes(self) -> Result<Tensor<'g>> {
        Ok(self.planes)
    }

    /// As tokens `[C, W * H, N]`, contiguous.
    pub fn tokens(self) -> Result<Tensor<'g>> {
        let [w, h, c, n] = self.planes.shape();
        self.planes.reshape([w * h, c, n, 1])?.permute([1, 0, 2, 3])?.cont()
    }

    /// Columns.
    pub fn width(self) -> usize {
        self.planes.dim(0)
    }

    /// Rows.
    pub fn height(self) -> usize {
        self.planes.dim(1)
    }

    /// Channels.
    pub fn channels(self) -> usize {
        self.planes.dim(2)
    }

    /// Maps in the batch.
    pub fn batch(self) -> usize {
        self.planes.dim(3)
    }

    /// Sum of two maps of one size.
    pub fn add(self, other: Self) -> Result<Self> {
        Ok(Self { planes: self.planes.add(other.planes)? })
    }

    /// Adds one value to each channel: `vector` is `[C, N]` or `[C]`.
    pub fn add_channels(self, vector: Tensor<'g>) -> Result<Self> {
        let [c, n, ..] = vector.shape();
        Ok(Self { planes: self.planes.add(vector.reshape([1, 1, c, n])?)? })
    }

    /// Multiplies all values.
    pub fn scale(self, factor: f32) -> Result<Self> {
        Ok(Self { planes: self.planes.scale(factor)? })
    }

    /// `self` and then `other` along the channels.
    pub fn concat(self, other: Self) -> Result<Self> {
        Ok(Self { planes: self.planes.concat(other.planes, 2)? })
    }

    /// An activation on every value.
    pub fn act(self, act: Act) -> Result<Self> {
        Ok(Self { planes: self.planes.act(act)? })
    }

    /// Each pixel becomes `factor` x `factor` equal ones.
    pub fn upsample(self, factor: usize) -> Result<Self> {
        let (w, h) = (self.width() * factor, self.height() * factor);
        Ok(Self { planes: self.planes.interpolate(w, h, Interpolation::Nearest)? })
    }
}
