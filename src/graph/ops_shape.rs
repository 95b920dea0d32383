//! Operations that move or rename elements.

use ggml_sys as sys;

use super::tensor::Tensor;
use super::types::Type;
use crate::error::Result;

/// How an image is enlarged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interpolation {
    /// Nearest neighbour.
    Nearest,
    /// Bilinear, corners not aligned.
    Bilinear,
    /// Bicubic, corners not aligned.
    Bicubic,
}

impl<'g> Tensor<'g> {
    /// The same elements under another shape; copies first when they are not contiguous.
    pub fn reshape(self, shape: [usize; 4]) -> Result<Self> {
        let count = shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d));
        self.require("reshape", count == Some(self.count()), || format!("cannot become {shape:?}"))?;
        let x = self.cont()?;
        let [a, b, c, d] = shape.map(|n| n as i64);
        // SAFETY: contiguous, and both shapes have the same number of elements.
        x.make(|ctx| unsafe { sys::ggml_reshape_4d(ctx, x.raw(), a, b, c, d) })
    }

    /// Contiguous elements: itself when it is contiguous already.
    pub fn cont(self) -> Result<Self> {
        if self.is_contiguous() {
            if self.has_plain_strides() {
                return Ok(self);
            }
            // Axes of extent 1 may have any stride; ggml's products look at strides all the same.
            let [a, b, c, d] = self.shape().map(|n| n as i64);
            // SAFETY: contiguous, and the shape stays.
            return self.make(|ctx| unsafe { sys::ggml_reshape_4d(ctx, self.raw(), a, b, c, d) });
        }
        self.require("cont", !self.ty().is_quantized(), || "a quantised view cannot be copied".into())?;
        // SAFETY: live tensor of a plain type.
        self.make(|ctx| unsafe { sys::ggml_cont(ctx, self.raw()) })
    }

    /// Axis `i` of the input becomes axis `axes[i]` of the result; nothing moves in memory.
    pub fn permute(self, axes: [usize; 4]) -> Result<Self> {
        let mut seen = [false; 4];
        axes.iter().filter(|&&a| a < 4).for_each(|&a| seen[a] = true);
        self.require("permute", seen == [true; 4], || format!("{axes:?} is no order of four axes"))?;
        let [a, b, c, d] = axes.map(|n| n as i32);
        // SAFETY: a permutation of the four axes.
        self.make(|ctx| unsafe { sys::ggml_permute(ctx, self.raw(), a, b, c, d) })
    }

    /// Swaps axes 0 and 1; nothing moves in memory.
    pub fn transpose(self) -> Result<Self> {
        self.permute([1, 0, 2, 3])
    }

    /// Elements `start .. start + len` of `axis`; nothing moves in memory.
    pub fn narrow(self, axis: usize, start: usize, len: usize) -> Result<Self> {
        let fits = axis < 4
            && len > 0
            && start.checked_add(len).is_some_and(|end| end <= self.dim(axis))
            && (axis > 0 || self.ty().block() == 1);
        self.require("narrow", fits, || format!("axis {axis}, {len} from {start}"))?;
        let mut shape = self.shape();
        shape[axis] = len;
        let offset = start * self.strides()[axis];
        let [a, b, c, d] = shape.map(|n| n as i64);
        let [_, nb1, nb2, nb3] = self.strides();
        let (raw, nb0) = (self.raw(), self.strides()[0]);
        self.require("narrow", nb0 == self.ty().bytes(), || "axis 0 is strided; copy first".into())?;
        // SAFETY: the view keeps the source's strides and lies inside it, as checked.
        self.make(|ctx| unsafe { sys::ggml_view_4d(ctx, raw, a, b, c, d, nb1, nb2, nb3, offset) })
    }

    /// `n` equal pieces along `axis`.
    pub fn chunks(self, axis: usize, n: usize) -> Result<Vec<Self>> {
        let extent = self.dim(axis);
        self.require("chunks", axis < 4 && n > 0 && extent.is_multiple_of(n), || {
            format!("{n} along axis {axis}")
        })?;
        (0..n).map(|i| self.narrow(axis, i * (extent / n), extent / n)).collect()
    }

    /// A view with its own shape and strides (in bytes) from `offset` bytes on.
    pub fn view(self, shape: [usize; 4], strides: [usize; 3], offset: usize) -> Result<Self> {
        let row = self.ty().row_bytes(shape[0]);
        let far = (1..4).try_fold(offset.checked_add(row.unwrap_or(0)), |end, i| {
            Some(end?.checked_add(shape[i].checked_sub(1)?.checked_mul(strides[i - 1])?))
        });
        // SAFETY: live tensor.
        let size = unsafe { sys::ggml_nbytes(self.raw()) };
        let fits = row.is_some() && !shape.contains(&0) && far.flatten().is_some_and(|end| end <= size);
        self.require("view", fits, || format!("{shape:?} with strides {strides:?} at {offset}"))?;
        let [a, b, c, d] = shape.map(|n| n as i64);
        let [nb1, nb2, nb3] = strides;
        // SAFETY: the last byte of the view lies inside the source, as checked.
        self.make(|ctx| unsafe { sys::ggml_view_4d(ctx, self.raw(), a, b, c, d, nb1, nb2, nb3, offset) })
    }

    /// `self` and then `other` along `axis`.
    pub fn concat(self, other: Self, axis: usize) -> Result<Self> {
        self.same_graph("concat", other)?;
        let fits = axis < 4
            && self.ty() == other.ty()
            && (0..4).all(|i| i == axis || self.dim(i) == other.dim(i))
            && !self.ty().is_quantized();
        self.require("concat", fits, || format!("{:?} {} along axis {axis}", other.shape(), other.ty()))?;
        // SAFETY: same type, and all axes but `axis` agree.
        self.make(|ctx| unsafe { sys::ggml_concat(ctx, self.raw(), other.raw(), axis as i32) })
    }

    /// Repeats whole multiples of the input until it has `shape`.
    pub fn repeat(self, shape: [usize; 4]) -> Result<Self> {
        if shape == self.shape() {
            return Ok(self);
        }
        let fits = (0..4).all(|i| shape[i] > 0 && shape[i].is_multiple_of(self.dim(i)));
        self.require("repeat", fits, || format!("to {shape:?}"))?;
        let [a, b, c, d] = shape.map(|n| n as i64);
        // SAFETY: every axis is a multiple of the input's.
        self.make(|ctx| unsafe { sys::ggml_repeat_4d(ctx, self.raw(), a, b, c, d) })
    }

    /// The same values in another type.
    pub fn cast(self, ty: Type) -> Result<Self> {
        if ty == self.ty() {
            return Ok(self);
        }
        let plain = |t: Type| [Type::F32, Type::F16, Type::BF16, Type::I32].contains(&t);
        let fits = plain(ty) && (plain(self.ty()) || (self.ty().is_quantized() && ty == Type::F32));
        self.require("cast", fits && (ty == Type::F32) | (self.ty() != Type::I32), || format!("to {ty}"))?;
        // SAFETY: a pair of types that ggml's copy implements, as checked.
        self.make(|ctx| unsafe { sys::ggml_cast(ctx, self.raw(), ty.0) })
    }

    /// Zeros around the input: `before[i]` and `after[i]` elements on axis `i`.
    pub fn pad(self, before: [usize; 4], after: [usize; 4]) -> Result<Self> {
        if before == [0; 4] && after == [0; 4] {
            return Ok(self);
        }
        let x = self.cont()?;
        x.require("pad", x.ty() == Type::F32, || "wants f32".into())?;
        let (b, a) = (before.map(|n| n as i32), after.map(|n| n as i32));
        // SAFETY: f32 and contiguous, as ggml's pad wants.
        x.make(|ctx| unsafe {
            sys::ggml_pad_ext(ctx, x.raw(), b[0], a[0], b[1], a[1], b[2], a[2], b[3], a[3])
        })
    }

    /// Wraps the input around: `before[i]` and `after[i]` elements on axis `i`, at most the extent each.
    pub fn pad_circular(self, before: [usize; 4], after: [usize; 4]) -> Result<Self> {
        if before == [0; 4] && after == [0; 4] {
            return Ok(self);
        }
        let x = self.cont()?;
        let fits = (0..4).all(|i| before[i] <= x.dim(i) && after[i] <= x.dim(i)) && x.ty() == Type::F32;
        x.require("pad_circular", fits, || format!("{before:?} and {after:?} around"))?;
        let (b, a) = (before.map(|n| n as i32), after.map(|n| n as i32));
        // SAFETY: f32, contiguous, and no pad exceeds its axis, as checked.
        x.make(|ctx| unsafe {
            sys::ggml_pad_ext_circular(ctx, x.raw(), b[0], a[0], b[1], a[1], b[2], a[2], b[3], a[3])
        })
    }

    /// The image on axes 0 and 1 resized to `width` x `height`.
    pub fn interpolate(self, width: usize, height: usize, how: Interpolation) -> Result<Self> {
        let x = self.cont()?;
        x.require("interpolate", x.ty() == Type::F32 && width > 0 && height > 0, || {
            format!("to {width} x {height}")
        })?;
        let mode = match how {
            Interpolation::Nearest => sys::GGML_SCALE_MODE_NEAREST,
            Interpolation::Bilinear => sys::GGML_SCALE_MODE_BILINEAR,
            Interpolation::Bicubic => sys::GGML_SCALE_MODE_BICUBIC,
        };
        let [_, _, c, n] = x.shape().map(|n| n as i64);
        // SAFETY: f32 with positive extents.
        x.make(|ctx| unsafe { sys::ggml_interpolate(ctx, x.raw(), width as i64, height as i64, c, n, mode) })
    }

    /// Rows `ids[i]` of the table: `[width, rows]` and `[n]` i32 give `[width, n]` f32.
    ///
    /// The ids are values of an input; whoever fills it keeps them below `rows`.
    pub fn rows(self, ids: Self) -> Result<Self> {
        self.same_graph("rows", ids)?;
        let fits = ids.ty() == Type::I32
            && ids.dim(3) == 1
            && self.dim(2) == ids.dim(1)
            && self.dim(3) == ids.dim(2);
        self.require("rows", fits, || format!("ids {ids:?}"))?;
        // SAFETY: i32 ids whose outer axes agree with the table's, as ggml wants.
        self.make(|ctx| unsafe { sys::ggml_get_rows(ctx, self.raw(), ids.raw()) })
    }
}
