//! *Outputs first*: x is packed for all; each job unpacks the weights of a chunk of outputs once.

use super::block::{SIDE, STEP};
use super::matmul::{MatMul, MatMulArgs};
use super::matmul_area::Area;
use super::matmul_pack::pack_rows;
use super::team::{Team, round_up};

/// Inner values of one job's packed weights.
const K_SLAB: usize = 2048;
/// Rows of x in one block of sums.
const M_BLOCK: usize = 512;
/// Panels of 32 outputs in one job at most.
const MAX_CHUNK: usize = 12;
/// Bytes of packed x at most; more rows are taken in several passes.
const PACKED_X: usize = 64 << 20;

/// How a product is cut.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outputs {
    /// Rows packed at a time.
    pass: usize,
    /// Panels of outputs per job.
    chunk: usize,
    /// Parts the rows of a pass are cut in.
    parts: usize,
}

impl Outputs {
    pub(super) fn new(plan: &MatMul, nth: usize) -> Self {
        let pass = ((PACKED_X / plan.row_panel_bytes()).max(M_BLOCK / SIDE) * SIDE).min(plan.m);
        let (chunk, parts) = split(pass, plan.n.div_ceil(SIDE), nth);
        Self { pass, chunk, parts }
    }

    /// Bytes for all threads (x) and for each (weights, then sums).
    pub(super) fn sizes(&self, plan: &MatMul) -> (usize, usize) {
        let sums = round_up(self.pass, SIDE).min(M_BLOCK) * self.chunk * SIDE * 4;
        (self.pass.div_ceil(SIDE) * plan.row_panel_bytes(), self.weight_bytes(plan) + sums)
    }

    fn weight_bytes(&self, plan: &MatMul) -> usize {
        self.chunk * plan.steps().min(K_SLAB / STEP) * plan.format.b_step()
    }

    /// # Safety
    /// As `MatMul::run`; `packed` and `own` hold [`Outputs::sizes`].
    pub(super) unsafe fn run(
        &self,
        plan: &MatMul,
        args: &MatMulArgs,
        packed: *mut u8,
        own: *mut u8,
        team: &Team,
    ) {
        let sums = own.wrapping_add(self.weight_bytes(plan)).cast();
        for first in (0..plan.m).step_by(self.pass) {
            let rows = (plan.m - first).min(self.pass);
            team.wait();
            for panel in team.share(rows.div_ceil(SIDE)) {
                let count = (rows - panel * SIDE).min(SIDE);
                // SAFETY: the panel lies in `packed` and is this thread's.
                unsafe {
                    let dst = packed.add(panel * plan.row_panel_bytes());
                    pack_rows(plan, args, first + panel * SIDE, count, dst);
                }
            }
            team.wait();
            let pass = Pass { way: *self, plan, args, packed, weights: own, sums, first, rows };
            // SAFETY: x is packed; each job is taken by one thread.
            unsafe { pass.jobs(team) };
        }
    }
}

/// Panels of outputs per job, and parts the rows are cut in.
///
/// The estimate is in cycles per inner value: 0.19 per row and panel for the tiles, about 32 per panel for unpacking
/// its weights, and at least 0.4 per row for reading packed x.
fn split(rows: usize, panels: usize, nth: usize) -> (usize, usize) {
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

/// One pass over at most `pass` rows of x.
struct Pass<'a> {
    way: Outputs,
    plan: &'a MatMul,
    args: &'a MatMulArgs,
    packed: *const u8,
    weights: *mut u8,
    sums: *mut f32,
    first: usize,
    rows: usize,
}

impl Pass<'_> {
    /// # Safety
    /// As [`Outputs::run`]; x is packed.
    unsafe fn jobs(&self, team: &Team) {
        let Outputs { chunk, parts, .. } = self.way;
        let chunks = self.plan.n.div_ceil(chunk * SIDE);
        let part = round_up(self.rows.div_ceil(parts), SIDE);
        loop {
            let index = team.next_job();
            if index >= chunks * parts {
                return;
            }
            let start = index % parts * part;
            let end = self.rows.min(start + part);
            if start < end {
                // SAFETY: jobs are disjoint in y and each is run by one thread.
                unsafe { self.job(index / parts * chunk, start, end) };
            }
        }
    }

    /// The outputs from panel `panel` for rows `start..end` of the pass.
    ///
    /// # Safety
    /// As [`Pass::jobs`]; this thread alone runs the job.
    unsafe fn job(&self, panel: usize, start: usize, end: usize) {
        let (plan, args) = (self.plan, self.args);
        let n0 = panel * SIDE;
        let columns = (plan.n - n0).min(self.way.chunk * SIDE);
        for k0 in (0..plan.k).step_by(K_SLAB) {
            let slab = (plan.k - k0).min(K_SLAB);
            let steps = slab.div_ceil(STEP);
            let w_panel = steps * plan.format.b_step();
            // SAFETY: `weights` holds `chunk` panels of a slab, `sums` a block of `M_BLOCK` rows by `chunk` panels.
            unsafe {
                for i in 0..columns.div_ceil(SIDE) {
                    let source = plan.weights(args.w, args.w_stride, panel + i);
                    source.pack(plan.isa, plan.format, k0, slab, self.weights.add(i * w_panel));
                }
                for row in (start..end).step_by(M_BLOCK) {
                    let x = row / SIDE * plan.row_panel_bytes() + k0 / STEP * plan.format.a_step();
                    let area = Area {
                        plan,
                        args,
                        row: self.first + row,
                        rows: (end - row).min(M_BLOCK),
                        n0,
                        columns,
                        x: self.packed.add(x),
                        w: self.weights,
                        w_panel,
                        sums: self.sums,
                    };
                    if k0 > 0 {
                        area.reload();
                    }
                    area.multiply(steps, k0 > 0);
                    area.store(k0 + slab == plan.k);
                }
            }
        }
    }
}
