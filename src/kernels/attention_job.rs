//! One job of an attention: some queries of one head against all keys.

use super::attention::{Attention, AttentionArgs, MAX_HEAD};
use super::block::{Block, SIDE, STEP};
use super::isa::Format;
use super::math::{dispatch, exp2};
use super::pack;
use super::softmax;
use super::team::round_up;
use super::weight;

/// Queries of one job at most.
pub(super) const QUERIES: usize = 128;
/// Keys whose scores are held at a time.
pub(super) const KEYS: usize = 256;

/// A thread's memory.
#[derive(Clone, Copy)]
pub(super) struct Own {
    /// Packed queries, `QUERIES / 32` panels.
    q: *mut u8,
    /// Scores of 32 queries by `KEYS` keys.
    scores: *mut f32,
    /// The same after the softmax, packed.
    p: *mut u8,
    /// Sums over values, `QUERIES` rows.
    sums: *mut f32,
}

impl Own {
    fn sizes(plan: &Attention) -> [usize; 4] {
        let panel = plan.head_steps() * plan.format.a_step();
        let width = round_up(plan.shape.value, SIDE);
        [QUERIES / SIDE * panel, SIDE * KEYS * 4, KEYS / STEP * plan.format.a_step(), QUERIES * width * 4]
    }

    pub(super) fn bytes(plan: &Attention) -> usize {
        Self::sizes(plan).iter().sum()
    }

    /// Cuts [`Own::bytes`] at `memory`.
    pub(super) fn cut(plan: &Attention, memory: *mut u8) -> Self {
        let [q, scores, p, _] = Self::sizes(plan);
        let at = |offset: usize| memory.wrapping_add(offset);
        Self { q: memory, scores: at(q).cast(), p: at(q + scores), sums: at(q + scores + p).cast() }
    }
}

/// Some queries of one head.
pub(super) struct Job<'a> {
    pub plan: &'a Attention,
    pub args: &'a AttentionArgs,
    /// Packed keys: `[panels of 32][steps]`.
    pub keys: *const u8,
    /// Packed values: `[32 tokens]` groups.
    pub values: *const u8,
    pub head: usize,
    pub sequence: usize,
    pub start: usize,
    pub count: usize,
}

/// Running maximum (of scores times log2 e) and sum of each query.
struct Running {
    max: [f32; QUERIES],
    sum: [f32; QUERIES],
}

impl Job<'_> {
    /// # Safety
    /// Keys and values are packed, `own` was cut for the plan, and nobody else touches this job's part of y.
    pub(super) unsafe fn run(&self, own: &Own) {
        let mut running = Running { max: [f32::NEG_INFINITY; QUERIES], sum: [0.0; QUERIES] };
        // SAFETY: all buffers were cut for these sizes; keys below `keys` are packed.
        unsafe {
            self.pack_queries(own);
            for key in (0..self.plan.shape.keys).step_by(KEYS) {
                for panel in 0..self.count.div_ceil(SIDE) {
                    self.scores(own, panel, key);
                    self.softmax(own, panel, key, &mut running);
                    self.weigh(own, panel, key);
                }
            }
            self.store(own, &running);
        }
    }

    fn width(&self) -> usize {
        round_up(self.plan.shape.value, SIDE)
    }

    fn keys_from(&self, key: usize) -> usize {
        (self.plan.shape.keys - key).min(KEYS)
    }

    fn wide_rows(&self, panel: usize) -> bool {
        self.count - panel * SIDE > 16
    }

    /// Packs the queries, scaled so that scores are powers of two.
    ///
    /// # Safety
    /// As [`Job::run`].
    unsafe fn pack_queries(&self, own: &Own) {
        let plan = self.plan;
        let panel_bytes = plan.head_steps() * plan.format.a_step();
        let factor = plan.shape.scale * std::f32::consts::LOG2_E;
        let mut row = [0f32; MAX_HEAD];
        let head = &mut row[..plan.shape.head];
        for i in 0..round_up(self.count, SIDE) {
            // SAFETY: the query exists, its panel lies in `own.q`.
            unsafe {
                let panel = own.q.add(i / SIDE * panel_bytes);
                if i >= self.count {
                    pack::a_zero(plan.format, plan.head_steps(), panel, i % SIDE);
                    continue;
                }
                let source = self.args.q.at(self.start + i, self.head, self.sequence);
                weight::to_f32(plan.isa, self.args.q.kind, source, 0, head.len(), head.as_mut_ptr());
                head.iter_mut().for_each(|v| *v *= factor);
                pack::a_row(plan.isa, plan.format, head.as_ptr(), head.len(), panel, i % SIDE);
            }
        }
    }

    /// # Safety
    /// As [`Job::run`].
    unsafe fn scores(&self, own: &Own, panel: usize, key: usize) {
        let plan = self.plan;
        let (steps, b_step) = (plan.head_steps(), plan.format.b_step());
        let offsets: [isize; MAX_HEAD / STEP] = std::array::from_fn(|i| (i * b_step) as isize);
        let keys = self.keys_from(key);
        for k in (0..keys).step_by(SIDE) {
            let block = Block {
                a: own.q.wrapping_add(panel * steps * plan.format.a_step()),
                b: self.keys.wrapping_add((key + k) / SIDE * steps * b_step),
                offsets: offsets.as_ptr(),
                steps,
                b_stride: if plan.format == Format::F32 { 128 } else { 64 },
                b_right: 1024,
                b_low: 2048,
                c: own.scores.wrapping_add(k),
                c_stride: KEYS * 4,
                accumulate: false,
                wide_rows: self.wide_rows(panel),
                wide_columns: keys - k > 16,
            };
            // SAFETY: both operands are packed for `steps` steps, C lies in `scores`; tiles are configured.
            unsafe { block.run(plan.isa, plan.format) };
        }
    }

    /// # Safety
    /// As [`Job::run`]; the panel's scores are there.
    unsafe fn softmax(&self, own: &Own, panel: usize, key: usize, running: &mut Running) {
        let plan = self.plan;
        let (keys, width) = (self.keys_from(key), self.width());
        let mut mask = [0f32; KEYS];
        for row in 0..(self.count - panel * SIDE).min(SIDE) {
            let query = panel * SIDE + row;
            // SAFETY: the row lies in `scores`, its sums in `sums`; the mask has a row for the query; a tile format
            // proves AVX-512 BF16.
            unsafe {
                let scores = std::slice::from_raw_parts_mut(own.scores.add(row * KEYS), keys);
                if let Some(heads) = &self.args.mask {
                    let source = heads.at(self.start + query, self.head, self.sequence);
                    weight::to_f32(plan.isa, heads.kind, source, key, keys, mask.as_mut_ptr());
                    add_mask(plan.isa, scores, &mask[..keys]);
                }
                let old = running.max[query];
                let [new, sum] = if plan.format == Format::F32 {
                    // Keys up to a whole step count as masked.
                    let padded = round_up(keys, LANES);
                    let scores = std::slice::from_raw_parts_mut(own.scores.add(row * KEYS), padded);
                    scores[keys..].fill(f32::NEG_INFINITY);
                    let mut state = [old, 0.0];
                    powers(plan.isa, scores, &mut state);
                    pack::a_row(plan.isa, plan.format, scores.as_ptr(), padded, own.p, row);
                    state
                } else {
                    softmax::packed_row(scores.as_ptr(), keys, old, plan.format, own.p.add(row * 64))
                };
                if key > 0 && new != old {
                    let shrink = if old == f32::NEG_INFINITY { 0.0 } else { exp2(old - new) };
                    running.sum[query] *= shrink;
                    let sums = std::slice::from_raw_parts_mut(own.sums.add(query * width), width);
                    multiply(plan.isa, sums, shrink);
                }
                running.max[query] = new;
                running.sum[query] += sum;
            }
        }
    }

    /// # Safety
    /// As [`Job::run`]; the panel's weights are in `own.p`.
    unsafe fn weigh(&self, own: &Own, panel: usize, key: usize) {
        let plan = self.plan;
        let step = plan.value_step();
        let offsets: [isize; KEYS / STEP] = std::array::from_fn(|i| (i * step) as isize);
        for column in (0..plan.shape.value).step_by(SIDE) {
            let block = Block {
                a: own.p,
                b: self.values.wrapping_add(key / STEP * step + column * 4),
                offsets: offsets.as_ptr(),
                steps: self.keys_from(key).div_ceil(STEP),
                b_stride: plan.value_row(),
                b_right: 64,
                b_low: 16 * plan.value_row(),
                c: own.sums.wrapping_add(panel * SIDE * self.width() + column),
                c_stride: self.width() * 4,
                accumulate: key > 0,
                wide_rows: self.wide_rows(panel),
                wide_columns: plan.shape.value - column > 16,
            };
            // SAFETY: both operands are packed for these steps, C lies in `sums`; tiles are configured.
            unsafe { block.run(plan.isa, plan.format) };
        }
    }

    /// # Safety
    /// As [`Job::run`].
    unsafe fn store(&self, own: &Own, running: &Running) {
        let shape = &self.plan.shape;
        for (i, &sum) in running.sum[..self.count].iter().enumerate() {
            let token = self.sequence * shape.queries + self.start + i;
            // A query whose keys are all masked gives zeros, as ggml does.
            let factor = if sum > 0.0 { 1.0 / sum } else { 0.0 };
            // SAFETY: the query's row lies in `sums` and in y.
            unsafe {
                let from = std::slice::from_raw_parts(own.sums.add(i * self.width()), shape.value);
                let to = self.args.y.add((token * shape.heads + self.head) * shape.value);
                for (j, value) in from.iter().enumerate() {
                    *to.add(j) = value * factor;
                }
            }
        }
    }
}

dispatch! {
    /// Adds a mask, in units of log2.
    ///
    /// # Safety
    /// None beyond the features that `isa` proves.
    unsafe fn add_mask = add_mask_body(scores: &mut [f32], mask: &[f32])
}

/// # Safety
/// None; the signature is that of [`add_mask`].
#[inline(always)]
unsafe fn add_mask_body(scores: &mut [f32], mask: &[f32]) {
    for (s, m) in scores.iter_mut().zip(mask) {
        *s = m.mul_add(std::f32::consts::LOG2_E, *s);
    }
}

dispatch! {
    /// Multiplies all values.
    ///
    /// # Safety
    /// None beyond the features that `isa` proves.
    unsafe fn multiply = multiply_body(values: &mut [f32], factor: f32)
}

/// # Safety
/// None; the signature is that of [`multiply`].
#[inline(always)]
unsafe fn multiply_body(values: &mut [f32], factor: f32) {
    values.iter_mut().for_each(|v| *v *= factor);
}

dispatch! {
    /// Turns scores into powers of two of their distance to the maximum so far; `state` is that maximum, then the
    /// new one and the sum of the powers. There is a multiple of `LANES` scores.
    ///
    /// # Safety
    /// None beyond the features that `isa` proves.
    unsafe fn powers = powers_body(scores: &mut [f32], state: &mut [f32; 2])
}

/// # Safety
/// None; the signature is that of [`powers`].
#[inline(always)]
unsafe fn powers_body(scores: &mut [f32], state: &mut [f32; 2]) {
    let larger = |a: f32, b: f32| if a > b { a } else { b };
    let mut max = [state[0]; LANES];
    let (blocks, _) = scores.as_chunks_mut::<LANES>();
    for block in blocks.iter() {
        for i in 0..LANES {
            max[i] = larger(max[i], block[i]);
        }
    }
    let max = fold(max, larger);
    // All keys masked so far: any finite reference gives zeros.
    let reference = if max == f32::NEG_INFINITY { 0.0 } else { max };
    let mut sum = [0f32; LANES];
    for block in blocks {
        for i in 0..LANES {
            block[i] = exp2(block[i] - reference);
            sum[i] += block[i];
        }
    }
    *state = [max, fold(sum, |a, b| a + b)];
}

/// Lanes of the softmax; rows of scores are filled up to a multiple of it.
const LANES: usize = 32;

/// All lanes combined, halves first so that it stays vector code.
#[inline(always)]
fn fold(mut lanes: [f32; LANES], with: impl Fn(f32, f32) -> f32) -> f32 {
    let mut width = LANES / 2;
    while width > 0 {
        for i in 0..width {
            lanes[i] = with(lanes[i], lanes[i + width]);
        }
        width /= 2;
    }
    lanes[0]
}
