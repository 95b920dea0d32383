//! `y[m, n] = activation(x[m, k] * w[n, k]^T + bias) + residual` for every weight type.
//!
//! Two ways through the caches, by shape: *outputs first* packs x for all threads, and each job unpacks the weights of
//! a chunk of outputs once for all rows; *rows first*, when there are more rows than outputs or the weights are
//! packed already, packs the weights for all threads, and each job packs the rows it works on. Either way a slice of
//! weights and a block of sums stay in L2 and 32 packed rows in L1, and the sum over k runs in steps of 32 and blocks
//! of 256 whatever the number of threads.

use super::amx::Tiles;
use super::block::{SIDE, STEP};
use super::cpu::{CpuPath, cpu_path};
use super::gemv;
use super::isa::{Format, Isa, Precision};
use super::math::Activation;
use super::matmul_outputs::Outputs;
use super::matmul_pack::{Weights, pack_weights};
use super::matmul_rows::RowsFirst;
use super::team::{Team, carved_bytes};
use super::weight::WeightType;

/// Inner values per pass over a block of sums: 32 packed rows of it fill two thirds of L1.
pub(super) const K_BLOCK: usize = 256;
/// Bytes of weights that *rows first* packs at most.
const PACKED_WEIGHTS: usize = 24 << 20;
/// Inner values up to which *rows first* is taken without packed weights.
const ROWS_FIRST_K: usize = 3584;

/// Shape and options of a matrix product; see the [module](self) text.
#[derive(Clone, Copy, Debug)]
pub struct MatMul {
    pub(super) m: usize,
    pub(super) n: usize,
    pub(super) k: usize,
    pub(super) weight: WeightType,
    pub(super) x_type: WeightType,
    pub(super) activation: Activation,
    pub(super) isa: Isa,
    pub(super) format: Format,
}

/// Operands of one product. Rows are contiguous in k (x, w) or n (y, bias, residual).
#[derive(Clone, Copy, Debug)]
pub struct MatMulArgs {
    /// `m` rows of `k` values of the x type (f32 unless set otherwise).
    pub x: *const u8,
    /// Bytes from one row of x to the next.
    pub x_stride: usize,
    /// `n` rows of `k` values of the weight type.
    pub w: *const u8,
    /// Bytes from one row of w to the next.
    pub w_stride: usize,
    /// What [`MatMul::prepack`] made of w, or null; then w is read for few rows of x only.
    pub packed: *const u8,
    /// `n` values or null.
    pub bias: *const f32,
    /// `m` rows of `n` values, added after the activation, or null.
    pub residual: *const f32,
    /// Bytes from one row of the residual to the next.
    pub residual_stride: usize,
    /// `m` rows of `n` f32.
    pub y: *mut f32,
    /// Bytes from one row of y to the next.
    pub y_stride: usize,
}

/// The way a product takes.
enum Way {
    /// Few rows: the weights are multiplied as they are read.
    Vector,
    OutputsFirst(Outputs),
    RowsFirst(RowsFirst),
}

impl MatMul {
    /// A product of `m` rows by `n` outputs over `k`, on the best path of this machine.
    ///
    /// `None` when this room has no kernel for it (no fitting instruction set, or `k` is not whole blocks);
    /// ggml's node is to be used then.
    pub fn new(m: usize, n: usize, k: usize, weight: WeightType, precision: Precision) -> Option<Self> {
        Self::on(cpu_path()?, m, n, k, weight, precision)
    }

    /// As [`MatMul::new`] on a path of the caller's choice.
    pub fn on(
        path: CpuPath,
        m: usize,
        n: usize,
        k: usize,
        weight: WeightType,
        precision: Precision,
    ) -> Option<Self> {
        let isa = Isa::new(path)?;
        if m == 0 || n == 0 || k == 0 || !weight.fits(k) {
            return None;
        }
        let format = Format::choose(isa, precision, weight.is_bf16());
        let x_type = WeightType::F32;
        Some(Self { m, n, k, weight, x_type, activation: Activation::None, isa, format })
    }

    /// Fuses `activation` after the bias.
    pub fn with_activation(self, activation: Activation) -> Self {
        Self { activation, ..self }
    }

    /// Reads x as f16 (or another type of block 1) rather than f32.
    pub fn with_x_type(self, x_type: WeightType) -> Self {
        Self { x_type, ..self }
    }

    /// Bytes of scratch memory that [`MatMul::run`] needs with `nth` threads, with or without packed weights.
    pub fn scratch_bytes(&self, nth: usize) -> usize {
        let sizes = [self.way(nth, false), self.way(nth, true)].map(|way| {
            let (shared, own) = self.sizes(&way);
            carved_bytes(shared, own, nth)
        });
        sizes[0].max(sizes[1])
    }

    /// Bytes of the weights packed once and for all: 4 per value, 2 where a value is one bf16.
    pub fn prepack_bytes(&self) -> usize {
        self.n.div_ceil(SIDE) * self.panel_bytes()
    }

    /// Packs all weights for [`MatMulArgs::packed`], to be used with any `m` but the same path and precision.
    ///
    /// # Safety
    /// `w` holds the plan's weights with rows `w_stride` bytes apart, `dst` [`MatMul::prepack_bytes`] and is 64-aligned.
    pub unsafe fn prepack(&self, w: *const u8, w_stride: usize, dst: *mut u8) {
        for panel in 0..self.n.div_ceil(SIDE) {
            // SAFETY: the panel's rows lie in w, its steps in `dst`.
            unsafe { pack_weights(self, w, w_stride, panel, dst.add(panel * self.panel_bytes())) };
        }
    }

    /// Computes the product as thread `team.ith` of `team.nth`; false (and nothing written) when the scratch
    /// memory is too short.
    ///
    /// # Safety
    /// The pointers in `args` are valid for the shapes given there, y overlaps no other operand,
    /// and all threads of the team call this with the same plan, arguments, barrier and scratch.
    pub unsafe fn run(&self, args: &MatMulArgs, team: &Team) -> bool {
        let way = self.way(team.nth, !args.packed.is_null());
        let (shared, own) = self.sizes(&way);
        let Some((common, mine)) = team.carve(shared, own) else { return false };
        // SAFETY: an `Isa::Amx` proves the right to use AMX.
        let _tiles = (self.isa == Isa::Amx).then(|| unsafe { Tiles::configure() });
        // SAFETY: `common` and `mine` were carved in the sizes that the way asks for; the rest is the caller's promise.
        unsafe {
            match way {
                Way::Vector => {
                    let job = gemv::Rows {
                        isa: self.isa,
                        x_type: self.x_type,
                        weight: self.weight,
                        m: self.m,
                        n: self.n,
                        k: self.k,
                    };
                    team.wait();
                    job.run(args, self.activation, common.cast(), team);
                }
                Way::OutputsFirst(way) => way.run(self, args, common, mine, team),
                Way::RowsFirst(way) => way.run(self, args, common, mine, team),
            }
        }
        true
    }

    fn way(&self, nth: usize, packed: bool) -> Way {
        let small = self.prepack_bytes() <= PACKED_WEIGHTS && self.k <= ROWS_FIRST_K && self.n <= 2 * self.m;
        if self.m <= gemv::MAX_ROWS {
            Way::Vector
        } else if packed || small {
            Way::RowsFirst(RowsFirst::new(self, nth))
        } else {
            Way::OutputsFirst(Outputs::new(self, nth))
        }
    }

    /// Bytes for all threads and for each.
    fn sizes(&self, way: &Way) -> (usize, usize) {
        match way {
            Way::Vector => (gemv::x_bytes(self.m, self.k), 0),
            Way::OutputsFirst(way) => way.sizes(self),
            Way::RowsFirst(way) => way.sizes(self),
        }
    }

    /// Steps of the inner axis.
    pub(super) fn steps(&self) -> usize {
        self.k.div_ceil(STEP)
    }

    /// Bytes of 32 packed rows of x.
    pub(super) fn row_panel_bytes(&self) -> usize {
        self.steps() * self.format.a_step()
    }

    /// Bytes of the packed weights of 32 outputs.
    pub(super) fn panel_bytes(&self) -> usize {
        self.steps() * self.format.b_step()
    }

    /// The weights of panel `panel`.
    ///
    /// # Safety
    /// `w` holds the plan's weights.
    pub(super) unsafe fn weights(&self, w: *const u8, stride: usize, panel: usize) -> Weights {
        let count = (self.n - panel * SIDE).min(SIDE);
        // SAFETY: the panel's first row exists.
        Weights { weight: self.weight, rows: unsafe { w.add(panel * SIDE * stride) }, stride, count }
    }
}
