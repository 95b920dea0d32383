//! Products, convolutions and attention: the operations that cost time.
//!
//! Each has ggml's own nodes as its plain path. Where `Math::kernels` is set and a CPU kernel exists for the
//! types at hand, one custom node takes their place (see `custom.rs`).

use ggml_sys as sys;

use super::ops_math::Act;
use super::tensor::Tensor;
use super::types::Type;
use crate::error::Result;

/// Geometry of a 2-D convolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conv2d {
    /// Steps along width and height.
    pub stride: [usize; 2],
    /// Rows and columns added before and after: `[left, right, top, bottom]`.
    pub pad: [usize; 4],
    /// Distance of taps along width and height.
    pub dilation: [usize; 2],
    /// Whether width and height wrap around instead of being padded with zeros.
    pub circular: [bool; 2],
}

impl Default for Conv2d {
    fn default() -> Self {
        Self { stride: [1; 2], pad: [0; 4], dilation: [1; 2], circular: [false; 2] }
    }
}

impl<'g> Tensor<'g> {
    /// `self` (`[K, M, ...]`, any type) times `x` (`[K, N, ...]`, f32): `[M, N, ...]`, where the outer axes of
    /// `x` are multiples of those of `self`.
    pub fn mul_mat(self, x: Self) -> Result<Self> {
        self.same_graph("mul_mat", x)?;
        let row = self.strides()[0] == self.ty().bytes();
        let fits = self.dim(0) == x.dim(0)
            && x.dim(2).is_multiple_of(self.dim(2))
            && x.dim(3).is_multiple_of(self.dim(3))
            && x.ty() == Type::F32
            && row
            && self.strides()[0] <= self.strides()[1];
        self.require("mul_mat", fits, || format!("times {x:?}"))?;
        let x = if x.strides()[0] == 4 { x } else { x.cont()? };
        // SAFETY: inner extents agree, outer ones repeat, rows of `self` are contiguous and not transposed.
        self.make(|ctx| unsafe {
            let y = sys::ggml_mul_mat(ctx, self.raw(), x.raw());
            sys::ggml_mul_mat_set_prec(y, sys::GGML_PREC_F32);
            y
        })
    }

    /// `weight` (`[K, M]`) applied to every row of `self` (`[K, ...]` f32), then bias (`[M]` f32) and activation.
    pub fn linear(self, weight: Self, bias: Option<Self>, act: Act) -> Result<Self> {
        let fits = weight.dim(2) == 1
            && weight.dim(3) == 1
            && weight.dim(0) == self.dim(0)
            && self.ty() == Type::F32;
        self.require("linear", fits, || format!("weight {weight:?}"))?;
        self.check_bias("linear", bias, weight.dim(1))?;
        if let Some(y) = super::custom::linear(self, weight, bias, act)? {
            return Ok(y);
        }
        let [k, n, a, b] = self.shape();
        // One matrix instead of a batch: ggml splits the work of a single product better.
        let flat = if a * b == 1 { self } else { self.reshape([k, n * a * b, 1, 1])? };
        let mut y = weight.mul_mat(flat)?;
        if a * b != 1 {
            y = y.reshape([weight.dim(1), n, a, b])?;
        }
        if let Some(bias) = bias {
            y = y.add(bias)?;
        }
        y.act(act)
    }

    /// 2-D convolution of `[W, H, C, N]` f32 with `weight` (`[KW, KH, C, O]`) and bias (`[O]` f32).
    pub fn conv2d(self, weight: Self, bias: Option<Self>, conv: Conv2d) -> Result<Self> {
        let fits = self.ty() == Type::F32
            && weight.dim(2) == self.dim(2)
            && conv.stride.iter().chain(&conv.dilation).all(|&n| n > 0)
            && [Type::F32, Type::F16].contains(&weight.ty());
        self.require("conv2d", fits, || format!("weight {weight:?}, {conv:?}"))?;
        self.check_bias("conv2d", bias, weight.dim(3))?;
        let x = self.padded(&conv)?;
        let reach = |taps: usize, step: usize| (taps - 1) * step + 1;
        let covers = x.dim(0) >= reach(weight.dim(0), conv.dilation[0])
            && x.dim(1) >= reach(weight.dim(1), conv.dilation[1]);
        x.require("conv2d", covers, || format!("smaller than the kernel {weight:?}"))?;
        let ([s0, s1], [d0, d1]) = (conv.stride.map(|n| n as i32), conv.dilation.map(|n| n as i32));
        // SAFETY: f32 data, f16 or f32 kernel with the same channels, and every tap inside the padded input.
        let mut y = x.make_n(8, |ctx| unsafe {
            sys::ggml_conv_2d(ctx, weight.raw(), x.raw(), s0, s1, 0, 0, d0, d1)
        })?;
        if let Some(bias) = bias {
            y = y.add(bias.reshape([1, 1, weight.dim(3), 1])?)?;
        }
        Ok(y)
    }

    /// As [`Tensor::conv2d`] for a map with its channels fastest, `[C, W, H, N]`; only where [`Graph::has_kernels`].
    /// `None` where no kernel is made for such a convolution (wide strides, dilation).
    ///
    /// [`Graph::has_kernels`]: super::Graph::has_kernels
    pub fn conv2d_last(self, weight: Self, bias: Option<Self>, conv: Conv2d) -> Result<Option<Self>> {
        super::custom::conv2d_last(self, weight, bias, &conv)
    }

    /// Softmax(q kᵀ scale + mask) v for every head.
    ///
    /// `self` is q `[D, Lq, heads, N]`, k `[D, Lk, kv heads, N]`, v `[D, Lk, kv heads, N]`, all f32 with contiguous
    /// rows; `mask` `[Lk, Lq or 1, heads or 1, N or 1]` is added to the scores. Gives `[D * heads, Lq, N, 1]`.
    pub fn attention(self, k: Self, v: Self, mask: Option<Self>, scale: f32) -> Result<Self> {
        let [d, lq, heads, batch] = self.shape();
        let [dv, lk, kv_heads, _] = v.shape();
        let fits = k.shape() == [d, lk, kv_heads, batch]
            && v.dim(3) == batch
            && heads.is_multiple_of(kv_heads)
            && [self, k, v].iter().all(|t| t.ty() == Type::F32 && t.strides()[0] == 4);
        self.require("attention", fits, || format!("k {k:?}, v {v:?}"))?;
        mask.map_or(Ok(()), |m| m.check_mask(lk, lq, heads, batch))?;
        if let Some(y) = super::custom::attention(self, k, v, mask, scale)? {
            return Ok(y);
        }
        let mask = mask.map(|m| m.repeat([lk, lq, m.dim(2), m.dim(3)])?.cont()).transpose()?;
        if self.graph().math().flash && heads == kv_heads && d == dv {
            return self.flash_attention(k, v, mask, scale);
        }
        let scores = k.mul_mat(self)?; // [Lk, Lq, heads, N]
        let scores = scores.softmax(mask, scale)?;
        let vt = v.transpose()?.cont()?; // [Lk, D, kv heads, N]
        let y = vt.mul_mat(scores)?; // [D, Lq, heads, N]
        y.permute([0, 2, 1, 3])?.reshape([dv * heads, lq, batch, 1])
    }

    fn flash_attention(self, k: Self, v: Self, mask: Option<Self>, scale: f32) -> Result<Self> {
        let [d, lq, heads, batch] = self.shape();
        let (k, v) = (k.cast(Type::F16)?, v.cast(Type::F16)?);
        let mask = mask.map(|m| m.cast(Type::F16)).transpose()?.map_or(std::ptr::null_mut(), Tensor::raw);
        // SAFETY: shapes were checked by `attention`; the mask covers every query, contiguous and f16.
        let y = self.make(|ctx| unsafe {
            let y = sys::ggml_flash_attn_ext(ctx, self.raw(), k.raw(), v.raw(), mask, scale, 0.0, 0.0);
            sys::ggml_flash_attn_ext_set_prec(y, sys::GGML_PREC_F32);
            y
        })?;
        y.reshape([d * heads, lq, batch, 1])
    }

    fn check_mask(self, lk: usize, lq: usize, heads: usize, batch: usize) -> Result<()> {
        let [mk, mq, mh, mb] = self.shape();
        let fits = mk == lk
            && (mq == lq || mq == 1)
            && heads.is_multiple_of(mh)
            && batch.is_multiple_of(mb)
            && self.ty() == Type::F32;
        self.require("attention", fits, || format!("a mask for {lk} keys, {lq} queries"))
    }

    /// The input with the convolution's padding around it.
    fn padded(self, conv: &Conv2d) -> Result<Self> {
        let [left, right, top, bottom] = conv.pad;
        let mut x = self;
        let (mut zero_x, mut zero_y) = ([left, right], [top, bottom]);
        if conv.circular[0] {
            x = x.pad_circular([left, 0, 0, 0], [right, 0, 0, 0])?;
            zero_x = [0; 2];
        }
        if conv.circular[1] {
            x = x.pad_circular([0, top, 0, 0], [0, bottom, 0, 0])?;
            zero_y = [0; 2];
        }
        x.pad([zero_x[0], zero_y[0], 0, 0], [zero_x[1], zero_y[1], 0, 0])
    }

    pub(super) fn check_bias(self, op: &'static str, bias: Option<Self>, width: usize) -> Result<()> {
        let Some(bias) = bias else { return Ok(()) };
        self.same_graph(op, bias)?;
        let fits = bias.count() == width && bias.ty() == Type::F32 && bias.is_contiguous();
        self.require(op, fits, || format!("bias {bias:?} for a width of {width}"))
    }
}
