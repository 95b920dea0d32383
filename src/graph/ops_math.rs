//! Elementwise operations, sums and norms.

use ggml_sys as sys;

use super::tensor::Tensor;
use super::types::Type;
use crate::error::Result;

/// Activation functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Hash)]
pub enum Act {
    /// The value itself.
    #[default]
    None,
    /// x sigmoid(x).
    Silu,
    /// GELU, tanh approximation.
    Gelu,
    /// x sigmoid(1.702 x).
    GeluQuick,
    /// GELU with the error function.
    GeluErf,
    /// max(x, 0).
    Relu,
}

macro_rules! binary {
    ($(#[$doc:meta])* $name:ident, $function:ident) => {
        $(#[$doc])*
        pub fn $name(self, other: Self) -> Result<Self> {
            self.check_broadcast(stringify!($name), other)?;
            // SAFETY: f32 operands, and `other` repeats into `self`, as checked.
            self.make(|ctx| unsafe { sys::$function(ctx, self.raw(), other.raw()) })
        }
    };
}

macro_rules! unary {
    ($(#[$doc:meta])* $name:ident, $function:ident) => {
        $(#[$doc])*
        pub fn $name(self) -> Result<Self> {
            let x = self.cont()?;
            x.require(stringify!($name), x.ty() == Type::F32, || "wants f32".into())?;
            // SAFETY: f32 and contiguous.
            x.make(|ctx| unsafe { sys::$function(ctx, x.raw()) })
        }
    };
}

// Operators cannot fail; these can, so they are methods.
#[allow(clippy::should_implement_trait)]
impl<'g> Tensor<'g> {
    binary!(
        /// Sum; `other` is repeated where it is smaller.
        add, ggml_add
    );
    binary!(
        /// Difference; `other` is repeated where it is smaller.
        sub, ggml_sub
    );
    binary!(
        /// Product; `other` is repeated where it is smaller.
        mul, ggml_mul
    );
    binary!(
        /// Quotient; `other` is repeated where it is smaller.
        div, ggml_div
    );
    unary!(
        /// Square.
        sqr, ggml_sqr
    );
    unary!(
        /// Square root.
        sqrt, ggml_sqrt
    );
    unary!(
        /// Exponential.
        exp, ggml_exp
    );
    unary!(
        /// Hyperbolic tangent.
        tanh, ggml_tanh
    );
    unary!(
        /// 1 / (1 + exp(-x)).
        sigmoid, ggml_sigmoid
    );
    unary!(
        /// Negative.
        neg, ggml_neg
    );
    unary!(
        /// Cosine.
        cos, ggml_cos
    );
    unary!(
        /// Sine.
        sin, ggml_sin
    );
    unary!(
        /// log(1 + exp(x)).
        softplus, ggml_softplus
    );
    unary!(
        /// Sum over axis 0.
        sum_rows, ggml_sum_rows
    );
    unary!(
        /// Mean over axis 0.
        mean, ggml_mean
    );

    /// `self * factor`.
    pub fn scale(self, factor: f32) -> Result<Self> {
        self.scale_bias(factor, 0.0)
    }

    /// `self * factor + bias`.
    pub fn scale_bias(self, factor: f32, bias: f32) -> Result<Self> {
        let x = self.cont()?;
        x.require("scale", x.ty() == Type::F32, || "wants f32".into())?;
        // SAFETY: f32 and contiguous.
        x.make(|ctx| unsafe { sys::ggml_scale_bias(ctx, x.raw(), factor, bias) })
    }

    /// Values kept between `low` and `high`.
    pub fn clamp(self, low: f32, high: f32) -> Result<Self> {
        let x = self.cont()?;
        x.require("clamp", x.ty() == Type::F32 && low <= high, || format!("to {low} .. {high}"))?;
        // SAFETY: f32 and contiguous. ggml's clamp writes into its input, so it gets a copy.
        x.make_n(2, |ctx| unsafe { sys::ggml_clamp(ctx, sys::ggml_dup(ctx, x.raw()), low, high) })
    }

    /// The activation `act`.
    pub fn act(self, act: Act) -> Result<Self> {
        if act == Act::None {
            return Ok(self);
        }
        let x = self.cont()?;
        x.require("activation", x.ty() == Type::F32, || "wants f32".into())?;
        if let Some(y) = super::custom::activate(x, act)? {
            return Ok(y);
        }
        // SAFETY: f32 and contiguous, as ggml's unary operations want.
        x.make(|ctx| unsafe {
            match act {
                Act::None => x.raw(),
                Act::Silu => sys::ggml_silu(ctx, x.raw()),
                Act::Gelu => sys::ggml_gelu(ctx, x.raw()),
                Act::GeluQuick => sys::ggml_gelu_quick(ctx, x.raw()),
                Act::GeluErf => sys::ggml_gelu_erf(ctx, x.raw()),
                Act::Relu => sys::ggml_relu(ctx, x.raw()),
            }
        })
    }

    /// The value where it is positive, `slope` times the value elsewhere.
    pub fn leaky_relu(self, slope: f32) -> Result<Self> {
        let x = self.cont()?;
        x.require("leaky_relu", x.ty() == Type::F32, || "wants f32".into())?;
        // SAFETY: f32 and contiguous; not in place.
        x.make(|ctx| unsafe { sys::ggml_leaky_relu(ctx, x.raw(), slope, false) })
    }

    /// Softmax over axis 0 of `scale * self + mask`; `mask` is f32 or f16, repeated over heads and batches.
    pub fn softmax(self, mask: Option<Self>, scale: f32) -> Result<Self> {
        let x = self.cont()?;
        x.require("softmax", x.ty() == Type::F32, || "wants f32".into())?;
        let mask = mask.map(|m| m.cont()).transpose()?;
        if let Some(m) = mask {
            x.same_graph("softmax", m)?;
            let fits = [Type::F32, Type::F16].contains(&m.ty())
                && m.dim(0) == x.dim(0)
                && m.dim(1) >= x.dim(1)
                && x.dim(2).is_multiple_of(m.dim(2))
                && x.dim(3).is_multiple_of(m.dim(3));
            x.require("softmax", fits, || format!("mask {m:?}"))?;
        }
        let mask = mask.map_or(std::ptr::null_mut(), Tensor::raw);
        // SAFETY: contiguous f32, and a mask of fitting shape, as checked.
        x.make(|ctx| unsafe { sys::ggml_soft_max_ext(ctx, x.raw(), mask, scale, 0.0) })
    }

    /// Axis 0 to mean 0 and deviation 1.
    pub fn norm(self, eps: f32) -> Result<Self> {
        let x = self.rows_contiguous()?;
        // SAFETY: f32 with contiguous rows.
        x.make(|ctx| unsafe { sys::ggml_norm(ctx, x.raw(), eps) })
    }

    /// Axis 0 divided by its root mean square.
    pub fn rms_norm(self, eps: f32) -> Result<Self> {
        let x = self.rows_contiguous()?;
        // SAFETY: f32 with contiguous rows.
        x.make(|ctx| unsafe { sys::ggml_rms_norm(ctx, x.raw(), eps) })
    }

    /// Axis 0 divided by its Euclidean length.
    pub fn l2_norm(self, eps: f32) -> Result<Self> {
        let x = self.rows_contiguous()?;
        // SAFETY: f32 with contiguous rows.
        x.make(|ctx| unsafe { sys::ggml_l2_norm(ctx, x.raw(), eps) })
    }

    /// Layer norm (or RMS norm) of rows, times `weight`, plus `bias`.
    pub fn affine_norm(
        self,
        layer: bool,
        weight: Option<Self>,
        bias: Option<Self>,
        eps: f32,
    ) -> Result<Self> {
        self.require("norm", self.ty() == Type::F32, || "wants f32".into())?;
        if let Some(y) = super::custom::norm(self, layer, (weight, bias), eps)? {
            return Ok(y);
        }
        let mut y = if layer { self.norm(eps)? } else { self.rms_norm(eps)? };
        if let Some(weight) = weight {
            y = y.mul(weight)?;
        }
        bias.map_or(Ok(y), |b| y.add(b))
    }

    /// Gated unit: of the halves of each row, the value times the activated gate. The gate is the second half, or
    /// the first where `gate_first` says so.
    pub fn glu(self, act: Act, gate_first: bool) -> Result<Self> {
        let fits = self.ty() == Type::F32 && self.dim(0).is_multiple_of(2);
        self.require("glu", fits, || "wants f32 rows of two halves".into())?;
        if let Some(y) = super::custom::glu(self, act, gate_first)? {
            return Ok(y);
        }
        let halves = self.chunks(0, 2)?;
        let (value, gate) = if gate_first { (halves[1], halves[0]) } else { (halves[0], halves[1]) };
        value.cont()?.mul(gate.cont()?.act(act)?)
    }

    /// As [`Tensor::group_norm`] with scale, shift and activation, for a map with its channels fastest,
    /// `[C, W, H, N]`; only where [`Graph::has_kernels`](super::Graph::has_kernels).
    pub fn group_norm_last(
        self,
        weight: Self,
        bias: Self,
        groups: usize,
        eps: f32,
        act: Act,
    ) -> Result<Self> {
        super::custom::group_norm_last(self, weight, bias, (groups, eps, act))
    }

    /// Each pixel of a map `[C, W, H, N]` becomes `factor` x `factor` equal ones; only where
    /// [`Graph::has_kernels`](super::Graph::has_kernels).
    pub fn upsample_last(self, factor: usize) -> Result<Self> {
        super::custom::upsample_last(self, factor)
    }

    /// `[W, H, C, N]`: each of `groups` groups of channels to mean 0 and deviation 1.
    pub fn group_norm(self, groups: usize, eps: f32) -> Result<Self> {
        let x = self.cont()?;
        let fits = x.ty() == Type::F32 && groups > 0 && groups <= x.dim(2);
        x.require("group_norm", fits, || format!("{groups} groups of channels"))?;
        // SAFETY: contiguous f32 with at least one channel in each group.
        x.make(|ctx| unsafe { sys::ggml_group_norm(ctx, x.raw(), groups as i32, eps) })
    }

    /// Sinusoids of time: `[n]` gives `[width, n]`, cosines first.
    pub fn timestep_embedding(self, width: usize, max_period: i32) -> Result<Self> {
        let x = self.cont()?;
        x.require("timestep_embedding", x.ty() == Type::F32 && width > 0 && x.count() == x.dim(0), || {
            format!("to a width of {width}")
        })?;
        // SAFETY: a contiguous f32 vector.
        x.make(|ctx| unsafe { sys::ggml_timestep_embedding(ctx, x.raw(), width as i32, max_period) })
    }

    fn rows_contiguous(self) -> Result<Self> {
        let x = if self.strides()[0] == self.ty().bytes() { self } else { self.cont()? };
        x.require("norm", x.ty() == Type::F32, || "wants f32".into())?;
        Ok(x)
    }

    fn check_broadcast(self, op: &'static str, other: Self) -> Result<()> {
        self.same_graph(op, other)?;
        let fits = (0..4).all(|i| self.dim(i).is_multiple_of(other.dim(i)))
            && self.ty() == Type::F32
            && other.ty() == Type::F32
            && other.strides()[0] == other.ty().bytes();
        self.require(op, fits, || format!("with {other:?}"))
    }
}
