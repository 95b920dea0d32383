//! *Rows first*: weights are packed for all; each job packs the rows of x it works on, which then stay in L2.

use super::block::SIDE;
use super::matmul::{MatMul, MatMulArgs};
use super::matmul_area::Area;
use super::matmul_pack::{pack_rows, pack_weights};
use super::team::Team;

/// Panels of 32 rows in one job at most.
const MAX_ROWS: usize = 8;
/// Bytes of one job's packed rows at most, beyond one panel pair.
const PACKED_ROWS: usize = 3 << 19;
/// Panels of 32 outputs in one block of sums.
const CHUNK: usize = 12;

/// How a product is cut.
#[derive(Clone, Copy, Debug)]
pub(super) struct RowsFirst {
    /// Panels of 32 rows per job.
    rows: usize,
    /// Parts the outputs are cut in.
    parts: usize,
}

impl RowsFirst {
    /// The cheapest cut by an estimate in units of one block product: each job also packs its rows (2 per panel)
    /// and reads the packed weights of its part (0.8 per panel of outputs).
    pub(super) fn new(plan: &MatMul, nth: usize) -> Self {
        let (panels, outputs) = (plan.m.div_ceil(SIDE), plan.n.div_ceil(SIDE));
        let most = (PACKED_ROWS / plan.row_panel_bytes()).clamp(2, MAX_ROWS).min(panels);
        let mut best = (f64::INFINITY, Self { rows: 1, parts: 1 });
        for rows in 1..=most {
            for parts in 1..=outputs.min(2 * nth) {
                let rounds = (panels.div_ceil(rows) * parts).div_ceil(nth) as f64;
                let (width, height) = (outputs.div_ceil(parts) as f64, rows as f64);
                let cost = rounds * (width * (height + 0.8) + 2.0 * height);
                if cost < best.0 {
                    best = (cost, Self { rows, parts });
                }
            }
        }
        best.1
    }

    /// Bytes for all threads (weights) and for each (rows, then sums).
    pub(super) fn sizes(&self, plan: &MatMul) -> (usize, usize) {
        let sums = self.rows * SIDE * CHUNK.min(plan.n.div_ceil(SIDE)) * SIDE * 4;
        (plan.prepack_bytes(), self.rows * plan.row_panel_bytes() + sums)
    }

    /// # Safety
    /// As `MatMul::run`; `packed` and `own` hold [`RowsFirst::sizes`].
    pub(super) unsafe fn run(
        &self,
        plan: &MatMul,
        args: &MatMulArgs,
        packed: *mut u8,
        own: *mut u8,
        team: &Team,
    ) {
        let outputs = plan.n.div_ceil(SIDE);
        let mut weights = args.packed;
        team.wait();
        if weights.is_null() {
            for panel in team.share(outputs) {
                // SAFETY: the panel lies in `packed` and is this thread's.
                unsafe {
                    pack_weights(plan, args.w, args.w_stride, panel, packed.add(panel * plan.panel_bytes()));
                }
            }
            weights = packed;
            team.wait();
        }
        let (blocks, part) = (plan.m.div_ceil(self.rows * SIDE), outputs.div_ceil(self.parts));
        loop {
            let index = team.next_job();
            if index >= blocks * self.parts {
                return;
            }
            let panels = index % self.parts * part..outputs.min((index % self.parts + 1) * part);
            if !panels.is_empty() {
                // SAFETY: jobs are disjoint in y and each is run by one thread.
                unsafe { self.job(plan, args, index / self.parts * self.rows * SIDE, panels, weights, own) };
            }
        }
    }

    /// # Safety
    /// As [`RowsFirst::run`]; weights are packed and this thread alone runs the job.
    unsafe fn job(
        &self,
        plan: &MatMul,
        args: &MatMulArgs,
        row: usize,
        panels: std::ops::Range<usize>,
        weights: *const u8,
        own: *mut u8,
    ) {
        let rows = (plan.m - row).min(self.rows * SIDE);
        // SAFETY: `own` holds `rows` panels and a block of sums; all steps are packed.
        unsafe {
            pack_rows(plan, args, row, rows, own);
            for panel in panels.clone().step_by(CHUNK) {
                let last = panels.end.min(panel + CHUNK) * SIDE;
                let area = Area {
                    plan,
                    args,
                    row,
                    rows,
                    n0: panel * SIDE,
                    columns: plan.n.min(last) - panel * SIDE,
                    x: own,
                    w: weights.add(panel * plan.panel_bytes()),
                    w_panel: plan.panel_bytes(),
                    sums: own.add(self.rows * plan.row_panel_bytes()).cast(),
                };
                area.multiply(plan.steps(), false);
                area.store(true);
            }
        }
    }
}
