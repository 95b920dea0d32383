//! Feature maps: channels over width and height, in the memory order that suits the device.
#![forbid(unsafe_code)]

use crate::error::Result;
use crate::graph::{Act, Conv2d, Interpolation, Tensor};

/// A feature map of a graph.
///
/// Networks speak of width, height and channels only. The order in memory is planes (`[W, H, C, N]`, ggml's own), or
/// channels fastest (`[C, W, H, N]`) where this library's kernels compute, for which tokens are the same memory.
#[derive(Clone, Copy, Debug)]
pub struct Map<'g> {
    data: Tensor<'g>,
    last: bool,
}

// Operators cannot fail; these can, so they are methods.
#[allow(clippy::should_implement_trait)]
impl<'g> Map<'g> {
    /// From planes `[W, H, C, N]`; moves the channels where kernels want them fastest.
    pub fn from_planes(planes: Tensor<'g>) -> Result<Self> {
        if !planes.graph().has_kernels() {
            return Ok(Self { data: planes, last: false });
        }
        Ok(Self { data: planes.permute([1, 2, 0, 3])?.cont()?, last: true })
    }

    /// From tokens `[C, W * H, N]`.
    pub fn from_tokens(tokens: Tensor<'g>, width: usize, height: usize) -> Result<Self> {
        let [c, _, n, _] = tokens.shape();
        if tokens.graph().has_kernels() {
            return Ok(Self { data: tokens.reshape([c, width, height, n])?, last: true });
        }
        let planes = tokens.permute([1, 0, 2, 3])?.cont()?.reshape([width, height, c, n])?;
        Ok(Self { data: planes, last: false })
    }

    /// As planes `[W, H, C, N]`.
    pub fn planes(self) -> Result<Tensor<'g>> {
        if self.last { self.data.permute([2, 0, 1, 3])?.cont() } else { Ok(self.data) }
    }

    /// As tokens `[C, W * H, N]`, contiguous.
    pub fn tokens(self) -> Result<Tensor<'g>> {
        let (w, h, c, n) = (self.width(), self.height(), self.channels(), self.batch());
        if self.last {
            return self.data.reshape([c, w * h, n, 1]);
        }
        self.data.reshape([w * h, c, n, 1])?.permute([1, 0, 2, 3])?.cont()
    }

    /// The map's own tensor, to mark segments with.
    pub fn tensor(self) -> Tensor<'g> {
        self.data
    }

    /// Axis of the channels in the map's own tensor.
    pub fn channel_axis(self) -> usize {
        if self.last { 0 } else { 2 }
    }

    /// Columns.
    pub fn width(self) -> usize {
        self.data.dim(usize::from(self.last))
    }

    /// Rows.
    pub fn height(self) -> usize {
        self.data.dim(1 + usize::from(self.last))
    }

    /// Channels.
    pub fn channels(self) -> usize {
        self.data.dim(self.channel_axis())
    }

    /// Maps in the batch.
    pub fn batch(self) -> usize {
        self.data.dim(3)
    }

    /// The same order in memory, other values.
    pub fn with(self, data: Tensor<'g>) -> Self {
        Self { data, ..self }
    }

    /// One value for each channel, `[C, N]` or `[C]`, shaped to meet the map.
    fn spread(self, vector: Tensor<'g>) -> Result<Tensor<'g>> {
        let [c, n, ..] = vector.shape();
        vector.reshape(if self.last { [c, 1, 1, n] } else { [1, 1, c, n] })
    }

    /// Sum of two maps of one size.
    pub fn add(self, other: Self) -> Result<Self> {
        Ok(self.with(self.data.add(other.data)?))
    }

    /// Adds one value to each channel: `vector` is `[C, N]` or `[C]`.
    pub fn add_channels(self, vector: Tensor<'g>) -> Result<Self> {
        Ok(self.with(self.data.add(self.spread(vector)?)?))
    }

    /// Multiplies all values.
    pub fn scale(self, factor: f32) -> Result<Self> {
        Ok(self.with(self.data.scale(factor)?))
    }

    /// `self` and then `other` along the channels.
    pub fn concat(self, other: Self) -> Result<Self> {
        Ok(self.with(self.data.concat(other.data, self.channel_axis())?))
    }

    /// An activation on every value.
    pub fn act(self, act: Act) -> Result<Self> {
        Ok(self.with(self.data.act(act)?))
    }

    /// The value where it is positive, `slope` times the value elsewhere.
    pub fn leaky_relu(self, slope: f32) -> Result<Self> {
        Ok(Self { data: self.data.leaky_relu(slope)?, ..self })
    }

    /// Each pixel becomes `factor` x `factor` equal ones.
    pub fn upsample(self, factor: usize) -> Result<Self> {
        if self.last {
            return Ok(self.with(self.data.upsample_last(factor)?));
        }
        let (w, h) = (self.width() * factor, self.height() * factor);
        Ok(self.with(self.data.interpolate(w, h, Interpolation::Nearest)?))
    }

    /// A convolution with `weight` (`[KW, KH, C, O]`) and bias `[O]`.
    pub fn conv2d(self, weight: Tensor<'g>, bias: Option<Tensor<'g>>, geometry: Conv2d) -> Result<Self> {
        if !self.last {
            return Ok(self.with(self.data.conv2d(weight, bias, geometry)?));
        }
        if let Some(data) = self.data.conv2d_last(weight, bias, geometry)? {
            return Ok(self.with(data));
        }
        Self::from_planes(self.planes()?.conv2d(weight, bias, geometry)?)
    }

    /// Group norm with scale and shift of each channel, then an activation.
    pub fn group_norm(
        self,
        weight: Tensor<'g>,
        bias: Tensor<'g>,
        groups: usize,
        eps: f32,
        act: Act,
    ) -> Result<Self> {
        if self.last {
            return Ok(self.with(self.data.group_norm_last(weight, bias, groups, eps, act)?));
        }
        let c = self.channels();
        let y = self.data.group_norm(groups, eps)?.mul(weight.reshape([1, 1, c, 1])?)?;
        Ok(self.with(y.add(bias.reshape([1, 1, c, 1])?)?.act(act)?))
    }
}
