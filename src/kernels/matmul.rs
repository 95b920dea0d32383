//! `y[m, n] = activation(x[m, k] * w[n, k]^T + bias) + residual` for every weight type.
//!
//! Rows of x are packed once by all threads. Then each job takes a chunk of outputs, unpacks its weights once into
//! memory of its own and walks over the rows, so that a slice of weights and a block of sums stay in L2 and
//! 32 packed rows in L1. The sum over k runs in steps of 32 and blocks of 256 whatever the number of threads.

use super::amx::Tiles;
use super::block::{Block, SIDE, STEP};
use super::cpu::{CpuPath, cpu_path};
use super::epilogue::{Finish, finish};
use super::gemv;
use super::isa::{Format, Isa, Precision};
use super::math::Activation;
use super::pack;
use super::team::{Team, carved_bytes, round_up};
use super::weight::{self, WeightType};

/// Inner values per pass over a block of sums: 32 packed rows of it fill two thirds of L1.
pub(super) const K_BLOCK: usize = 256;
/// Inner values of one job's packed weights.
const K_SLAB: usize = 2048;
/// Rows of x in one block of sums.
const M_BLOCK: usize = 512;
/// Panels of 32 outputs in one job at most.
const MAX_CHUNK: usize = 12;
/// Bytes of packed x at most; more rows are taken in several passes.
const PACKED_X: usize = 64 << 20;

/// Shape and options of a matrix product; see the [module](self) text.
#[derive(Clone, Copy, Debug)]
pub struct MatMul {
    m: usize,
    n: usize,
    k: usize,
    weight: WeightType,
    x_type: WeightType,
    activation: Activation,
    isa: Isa,
    format: Format,
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

    /// Bytes of scratch memory that [`MatMul::run`] needs with `nth` threads.
    pub fn scratch_bytes(&self, nth: usize) -> usize {
        if self.is_vector() {
            return carved_bytes(gemv::x_bytes(self.m, self.k), 0, nth);
        }
        carved_bytes(self.x_bytes(), self.weight_bytes(nth) + self.sum_bytes(nth), nth)
    }

    /// Computes the product as thread `team.ith` of `team.nth`; false (and nothing written) when the scratch
    /// memory is too short.
    ///
    /// # Safety
    /// The pointers in `args` are valid for the shapes given there, y overlaps no other operand,
    /// and all threads of the team call this with the same plan, arguments, barrier and scratch.
    pub unsafe fn run(&self, args: &MatMulArgs, team: &Team) -> bool {
        if self.is_vector() {
            let Some((packed, _)) = team.carve(gemv::x_bytes(self.m, self.k), 0) else { return false };
            team.wait();
            // SAFETY: `carve` gave room for `x_bytes`; the operands are the caller's promise.
            unsafe {
                let job = gemv::Rows {
                    isa: self.isa,
                    x_type: self.x_type,
                    weight: self.weight,
                    m: self.m,
                    n: self.n,
                    k: self.k,
                };
                job.run(args, self.activation, packed.cast(), team);
            }
            return true;
        }
        let own = self.weight_bytes(team.nth) + self.sum_bytes(team.nth);
        let Some((packed, mine)) = team.carve(self.x_bytes(), own) else { return false };
        let sums = mine.wrapping_add(self.weight_bytes(team.nth)).cast::<f32>();
        // SAFETY: an `Isa::Amx` proves the right to use AMX.
        let _tiles = (self.isa == Isa::Amx).then(|| unsafe { Tiles::configure() });
        let rows = self.rows_per_pass();
        for m0 in (0..self.m).step_by(rows) {
            let pass =
                Pass { plan: self, args, packed, weights: mine, sums, m0, rows: rows.min(self.m - m0) };
            team.wait();
            // SAFETY: `packed`, `weights` and `sums` were carved in the sizes that `x_bytes`, `weight_bytes`
            // and `sum_bytes` name; every thread packs its own panels, and each job is taken by one thread.
            unsafe { pass.pack_x(team) };
            team.wait();
            // SAFETY: as above.
            unsafe { pass.jobs(team) };
        }
        true
    }

    /// Few rows: the product is a read of the weights, so they are multiplied as they come.
    fn is_vector(&self) -> bool {
        self.m <= gemv::MAX_ROWS
    }

    fn steps(&self) -> usize {
        self.k.div_ceil(STEP)
    }

    fn rows_per_pass(&self) -> usize {
        let per_panel = self.steps() * self.format.a_step();
        (PACKED_X / per_panel).max(M_BLOCK / SIDE) * SIDE
    }

    fn x_bytes(&self) -> usize {
        let rows = self.rows_per_pass().min(self.m);
        rows.div_ceil(SIDE) * self.steps() * self.format.a_step()
    }

    fn weight_bytes(&self, nth: usize) -> usize {
        let (chunk, _) = self.split(self.m.min(self.rows_per_pass()), nth);
        chunk * self.steps().min(K_SLAB / STEP) * self.format.b_step()
    }

    fn sum_bytes(&self, nth: usize) -> usize {
        let (chunk, _) = self.split(self.m.min(self.rows_per_pass()), nth);
        round_up(self.m, SIDE).min(M_BLOCK) * chunk * SIDE * 4
    }

    /// Panels of outputs per job, and parts the rows are cut in, for `rows` rows in a pass.
    ///
    /// The estimate is in cycles per inner value: 0.19 per row and panel for the tiles, about 32 per panel for
    /// unpacking its weights, and at least 0.4 per row for reading packed x.
    fn split(&self, rows: usize, nth: usize) -> (usize, usize) {
        let panels = self.n.div_ceil(SIDE);
        let mut best = (f64::INFINITY, 1, 1);
        for parts in 1..=rows.div_ceil(4 * SIDE).min(2 * nth) {
            for chunk in 1..=panels.min(MAX_CHUNK) {
                let rounds = (panels.div_ceil(chunk) * parts).div_ceil(nth) as f64;
                let part = rows.div_ceil(parts) as f64;
                let width = chunk as f64;
                let cost = rounds * (32.0 * width + part * ((0.19 * width).max(0.4) + 0.05));
                if cost < best.0 {
                    best = (cost, chunk, parts);
                }
            }
        }
        (best.1, best.2)
    }
}

/// One pass over at most `rows_per_pass` rows of x.
struct Pass<'a> {
    plan: &'a MatMul,
    args: &'a MatMulArgs,
    packed: *mut u8,
    weights: *mut u8,
    sums: *mut f32,
    m0: usize,
    rows: usize,
}

/// A chunk of outputs by a part of the pass's rows.
struct Job {
    n0: usize,
    columns: usize,
    panels: usize,
    first_row: usize,
    end_row: usize,
}

impl Pass<'_> {
    fn panel_bytes(&self) -> usize {
        self.plan.steps() * self.plan.format.a_step()
    }

    /// # Safety
    /// As [`MatMul::run`]; called by every thread once.
    unsafe fn pack_x(&self, team: &Team) {
        let plan = self.plan;
        for row in team.share(self.rows.div_ceil(4)).flat_map(|i| 4 * i..4 * i + 4) {
            if row >= self.rows {
                break;
            }
            // SAFETY: the panel of `row` lies in `packed`, x has row `m0 + row`.
            unsafe {
                let panel = self.packed.add(row / SIDE * self.panel_bytes());
                let x = self.args.x.add((self.m0 + row) * self.args.x_stride);
                pack_row(plan.isa, plan.format, plan.x_type, x, plan.k, panel, row % SIDE);
            }
        }
        if team.ith + 1 == team.nth {
            for row in self.rows..round_up(self.rows, SIDE) {
                // SAFETY: the last panel has 32 rows in `packed`.
                unsafe {
                    let panel = self.packed.add(row / SIDE * self.panel_bytes());
                    pack::a_zero(plan.format, plan.steps(), panel, row % SIDE);
                }
            }
        }
    }

    /// # Safety
    /// As [`MatMul::run`]; x is packed.
    unsafe fn jobs(&self, team: &Team) {
        let plan = self.plan;
        let (chunk, parts) = plan.split(plan.m.min(plan.rows_per_pass()), team.nth);
        let chunks = plan.n.div_ceil(chunk * SIDE);
        let part = round_up(self.rows.div_ceil(parts), SIDE);
        loop {
            let index = team.next_job();
            if index >= chunks * parts {
                return;
            }
            let (n0, first_row) = (index / parts * chunk * SIDE, index % parts * part);
            let columns = (plan.n - n0).min(chunk * SIDE);
            let end_row = self.rows.min(first_row + part);
            if first_row < end_row {
                let job = Job { n0, columns, panels: columns.div_ceil(SIDE), first_row, end_row };
                // SAFETY: jobs are disjoint in y and each is run by one thread.
                unsafe { self.job(&job) };
            }
        }
    }

    /// # Safety
    /// As [`MatMul::run`]; this thread alone runs the job.
    unsafe fn job(&self, job: &Job) {
        let plan = self.plan;
        for k0 in (0..plan.k).step_by(K_SLAB) {
            let slab = (plan.k - k0).min(K_SLAB);
            // SAFETY: `weights` holds `chunk` panels of a slab, `sums` a block of `M_BLOCK` rows by `chunk`
            // panels; the rest is the caller's promise.
            unsafe {
                let w = self.args.w.add(job.n0 * self.args.w_stride);
                for panel in 0..job.panels {
                    let columns = (job.columns - panel * SIDE).min(SIDE);
                    let source = Weights {
                        weight: plan.weight,
                        rows: w.add(panel * SIDE * self.args.w_stride),
                        stride: self.args.w_stride,
                        count: columns,
                    };
                    let dst = self.weights.add(panel * slab.div_ceil(STEP) * plan.format.b_step());
                    source.pack(plan.isa, plan.format, k0, slab, dst);
                }
                for row in (job.first_row..job.end_row).step_by(M_BLOCK) {
                    let rows = (job.end_row - row).min(M_BLOCK);
                    if k0 > 0 {
                        self.reload(job, row, rows);
                    }
                    self.multiply(job, row, rows, k0, slab);
                    self.store(job, row, rows, k0 + slab == plan.k);
                }
            }
        }
    }

    /// # Safety
    /// As [`Pass::job`], for the rows of one block of sums.
    unsafe fn multiply(&self, job: &Job, row: usize, rows: usize, k0: usize, slab: usize) {
        let plan = self.plan;
        let (a_step, b_step) = (plan.format.a_step(), plan.format.b_step());
        let offsets: [isize; K_BLOCK / STEP] = std::array::from_fn(|i| (i * b_step) as isize);
        let slab_steps = slab.div_ceil(STEP);
        let width = job.panels * SIDE;
        for step in (0..slab_steps).step_by(K_BLOCK / STEP) {
            for r in (0..rows).step_by(SIDE) {
                // SAFETY: the panel's steps lie in `packed`.
                let a = unsafe {
                    self.packed.add((row + r) / SIDE * self.panel_bytes() + (k0 / STEP + step) * a_step)
                };
                for panel in 0..job.panels {
                    let block = Block {
                        a,
                        b: self.weights.wrapping_add((panel * slab_steps + step) * b_step),
                        offsets: offsets.as_ptr(),
                        steps: (slab_steps - step).min(K_BLOCK / STEP),
                        b_stride: if plan.format == Format::F32 { 128 } else { 64 },
                        b_right: 1024,
                        b_low: 2048,
                        c: self.sums.wrapping_add(r * width + panel * SIDE),
                        c_stride: width * 4,
                        accumulate: k0 + step > 0,
                        wide_rows: rows - r > 16,
                        wide_columns: job.columns - panel * SIDE > 16,
                    };
                    // SAFETY: A and B are packed for `steps` steps, C lies in `sums`; tiles are configured by `run`.
                    unsafe { block.run(plan.isa, plan.format) };
                }
            }
        }
    }

    /// Sums of earlier slabs come back from y.
    ///
    /// # Safety
    /// As [`Pass::job`].
    unsafe fn reload(&self, job: &Job, row: usize, rows: usize) {
        for r in 0..rows {
            // SAFETY: the row's part lies in y and in `sums`.
            unsafe {
                let y = self.y(self.m0 + row + r).add(job.n0);
                std::ptr::copy_nonoverlapping(y, self.sums.add(r * job.panels * SIDE), job.columns);
            }
        }
    }

    /// Sums go to y, finished when `last`.
    ///
    /// # Safety
    /// As [`Pass::job`].
    unsafe fn store(&self, job: &Job, row: usize, rows: usize, last: bool) {
        let args = self.args;
        let null = std::ptr::null();
        let row0 = self.m0 + row;
        let mut out = Finish {
            column_bias: null,
            row_bias: null,
            activation: Activation::None,
            residual: null,
            residual_stride: args.residual_stride / 4,
            // SAFETY: row `row0` lies in y.
            y: unsafe { self.y(row0).add(job.n0) },
            y_stride: args.y_stride / 4,
        };
        if last {
            out.activation = self.plan.activation;
            if !args.bias.is_null() {
                out.column_bias = args.bias.wrapping_add(job.n0);
            }
            if !args.residual.is_null() {
                out.residual =
                    args.residual.wrapping_byte_add(row0 * args.residual_stride).wrapping_add(job.n0);
            }
        }
        // SAFETY: `sums` and y hold these rows and columns; only this job touches them.
        unsafe { finish(self.plan.isa, self.sums, job.panels * SIDE, rows, job.columns, &out) };
    }

    /// # Safety
    /// `row` is a row of y.
    unsafe fn y(&self, row: usize) -> *mut f32 {
        // SAFETY: the caller's promise.
        unsafe { self.args.y.byte_add(row * self.args.y_stride) }
    }
}

/// Packs one row of `k` values of `kind` into A steps.
///
/// # Safety
/// `src` holds the row, `panel` the steps; `row` < 32.
pub(super) unsafe fn pack_row(
    isa: Isa,
    format: Format,
    kind: WeightType,
    src: *const u8,
    k: usize,
    panel: *mut u8,
    row: usize,
) {
    // SAFETY: chunks stay below `k` and begin at whole blocks, since blocks divide 256.
    unsafe {
        if let WeightType::F32 = kind {
            pack::a_row(isa, format, src.cast(), k, panel, row);
            return;
        }
        let mut values = [0f32; K_BLOCK];
        for k0 in (0..k).step_by(K_BLOCK) {
            let len = (k - k0).min(K_BLOCK);
            weight::to_f32(isa, kind, src, k0, len, values.as_mut_ptr());
            pack::a_row(isa, format, values.as_ptr(), len, panel.add(k0 / STEP * format.a_step()), row);
        }
    }
}

/// Up to 32 rows of a weight matrix, to be packed as columns of B.
#[derive(Clone, Copy, Debug)]
pub(super) struct Weights {
    pub weight: WeightType,
    pub rows: *const u8,
    /// Bytes from row to row.
    pub stride: usize,
    /// Rows there are, 1 to 32.
    pub count: usize,
}

impl Weights {
    /// Packs values `k0..k0 + len` of the rows into B steps at `dst`; missing rows and values are zero.
    ///
    /// Only the first 16 columns are written when there are no more.
    ///
    /// # Safety
    /// The rows are valid for these values, `k0` begins a block, `dst` (64-aligned) holds the steps.
    pub(super) unsafe fn pack(&self, isa: Isa, format: Format, k0: usize, len: usize, dst: *mut u8) {
        let mut values = [[0f32; K_BLOCK]; 16];
        for half in 0..self.count.div_ceil(16) {
            let rows = (self.count - 16 * half).min(16);
            values[rows..].iter_mut().for_each(|row| row.fill(0.0));
            for k in (0..len).step_by(K_BLOCK) {
                let part = (len - k).min(K_BLOCK);
                let steps = part.div_ceil(STEP);
                // SAFETY: rows and blocks are the caller's promise; `values` takes up to 256 of each row.
                unsafe {
                    for (row, out) in values.iter_mut().enumerate().take(rows) {
                        let src = self.rows.add((16 * half + row) * self.stride);
                        weight::to_f32(isa, self.weight, src, k0 + k, part, out.as_mut_ptr());
                        out[part..steps * STEP].fill(0.0);
                    }
                    let out = dst.add(k / STEP * format.b_step());
                    pack::b_columns(isa, format, values.as_ptr().cast(), K_BLOCK, steps, out, half);
                }
            }
        }
    }
}
