//! Convolutions without an im2col buffer: `y = activation(w * x + bias + channel_add) + residual`.
//!
//! The input is packed once with its padding, channel pairs by pixels, so that each kernel tap reads it at another
//! offset. Weights are packed once for a chunk of output channels. Products run over 32 output channels by 32
//! positions; the sum runs over groups of 32 channels, tap after tap, whatever the number of threads.

use super::amx::Tiles;
use super::block::{Block, SIDE, STEP};
use super::conv_pack::{Input, pack_groups, pack_weights};
use super::conv_shape::{ConvShape, Cut, Geometry, MAX_TAPS, MapLayout};
use super::cpu::{CpuPath, cpu_path};
use super::epilogue::{Finish, finish};
use super::isa::{Format, Isa, Precision};
use super::math::Activation;
use super::pack;
use super::pack_map::group_rows;
use super::team::{Team, carved_bytes};
use super::weight::WeightType;

/// Shape and options of a convolution; see the [module](self) text.
#[derive(Clone, Copy, Debug)]
pub struct Conv {
    pub(super) shape: ConvShape,
    pub(super) geometry: Geometry,
    pub(super) weight: WeightType,
    pub(super) isa: Isa,
    pub(super) format: Format,
    pub(super) x_layout: MapLayout,
    y_layout: MapLayout,
    activation: Activation,
}

/// Operands of one convolution, all contiguous.
#[derive(Clone, Copy, Debug)]
pub struct ConvArgs {
    /// Input map in the input layout.
    pub x: *const f32,
    /// Weights `[KW, KH, KD, IC, OC]`.
    pub w: *const u8,
    /// `[OC]` or null.
    pub bias: *const f32,
    /// `[OC, N]`, added before the activation (a time embedding), or null.
    pub channel_add: *const f32,
    /// Map like the output, added after the activation, or null.
    pub residual: *const f32,
    /// Output map in the output layout.
    pub y: *mut f32,
}

impl Conv {
    /// A convolution on the best path of this machine, `None` when ggml's node is to be used.
    pub fn new(shape: ConvShape, weight: WeightType, precision: Precision) -> Option<Self> {
        Self::on(cpu_path()?, shape, weight, precision)
    }

    /// As [`Conv::new`] on a path of the caller's choice.
    pub fn on(path: CpuPath, shape: ConvShape, weight: WeightType, precision: Precision) -> Option<Self> {
        let isa = Isa::new(path)?;
        if !shape.fits(weight) {
            return None;
        }
        let geometry = Geometry::new(&shape)?;
        let format = Format::choose(isa, precision, false);
        let (x_layout, y_layout) = (MapLayout::Planes, MapLayout::Planes);
        Some(Self { shape, geometry, weight, isa, format, x_layout, y_layout, activation: Activation::None })
    }

    /// Fuses `activation` after the bias.
    pub fn with_activation(self, activation: Activation) -> Self {
        Self { activation, ..self }
    }

    /// Other memory orders than [`MapLayout::Planes`].
    pub fn with_layouts(self, x_layout: MapLayout, y_layout: MapLayout) -> Self {
        Self { x_layout, y_layout, ..self }
    }

    /// Bytes of scratch memory that [`Conv::run`] needs with `nth` threads.
    pub fn scratch_bytes(&self, nth: usize) -> usize {
        let (shared, own) = self.sizes(&self.cut(nth));
        carved_bytes(shared, own, nth)
    }

    fn cut(&self, nth: usize) -> Cut {
        Cut::new(&self.shape, &self.geometry, self.format, nth)
    }

    /// Shared bytes (weights, then input) and bytes of each thread (sums, then padded rows).
    fn sizes(&self, cut: &Cut) -> (usize, usize) {
        let input =
            group_rows(self.format) * self.geometry.groups * self.geometry.row_bytes(&self.shape, cut.rows);
        (self.weight_bytes(cut) + input, sum_bytes(cut) + self.pass_bytes(cut) + Input::row_bytes(self))
    }

    /// Weights that a thread packs for one pass over its sums.
    fn pass_bytes(&self, cut: &Cut) -> usize {
        if cut.by_panel { self.geometry.pass_groups() * self.geometry.taps * self.format.a_step() } else { 0 }
    }

    fn weight_bytes(&self, cut: &Cut) -> usize {
        if cut.by_panel {
            return 0;
        }
        cut.panels * self.geometry.steps() * self.format.a_step()
    }

    /// Computes the convolution as thread `team.ith` of `team.nth`; false (and nothing written) when the scratch
    /// memory is too short.
    ///
    /// # Safety
    /// The pointers in `args` are valid for the shapes of the plan, y overlaps no other operand, and all threads
    /// of the team call this with the same plan, arguments, barrier and scratch.
    pub unsafe fn run(&self, args: &ConvArgs, team: &Team) -> bool {
        let cut = self.cut(team.nth);
        let (shared, own) = self.sizes(&cut);
        let Some((weights, sums)) = team.carve(shared, own) else { return false };
        let input = weights.wrapping_add(self.weight_bytes(&cut));
        let row_bytes = self.geometry.row_bytes(&self.shape, cut.rows);
        // SAFETY: an `Isa::Amx` proves the right to use AMX.
        let _tiles = (self.isa == Isa::Amx).then(|| unsafe { Tiles::configure() });
        let (panels, frames) = (self.shape.output.div_ceil(SIDE), self.shape.batch * self.geometry.out[2]);
        let mut packed_slab = None;
        for first_panel in (0..panels).step_by(cut.panels) {
            let count = (panels - first_panel).min(cut.panels);
            for frame in 0..frames {
                for row in (0..self.geometry.out[1]).step_by(cut.rows) {
                    let rows = (self.geometry.out[1] - row).min(cut.rows);
                    let slab = Slab { first_panel, panels: count, frame, row, rows };
                    let round =
                        Round { plan: self, args, cut, slab, weights, input, row_bytes, sums: sums.cast() };
                    team.wait();
                    // SAFETY: shared and own memory were carved as `sizes` says; each thread packs its own share,
                    // and jobs are taken by one thread each.
                    unsafe {
                        if frame == 0 && row == 0 && !cut.by_panel {
                            pack_weights(self, args.w, first_panel, count, weights, team);
                        }
                        if packed_slab != Some((frame, row)) {
                            let spare = sums.add(sum_bytes(&cut) + self.pass_bytes(&cut)).cast();
                            let slab_rows = cut.rows;
                            Input {
                                plan: self,
                                x: args.x,
                                dst: input,
                                row_bytes,
                                frame,
                                row,
                                rows,
                                slab_rows,
                            }
                            .pack(spare, team);
                            packed_slab = Some((frame, row));
                        }
                    }
                    team.wait();
                    // SAFETY: as above.
                    unsafe { round.jobs(team) };
                }
            }
        }
        true
    }
}

fn sum_bytes(cut: &Cut) -> usize {
    cut.job_panels * SIDE * cut.positions * 4
}

/// Output rows of one frame by a chunk of output channels.
#[derive(Clone, Copy)]
struct Slab {
    first_panel: usize,
    panels: usize,
    /// `batch * output frames + output frame`.
    frame: usize,
    row: usize,
    rows: usize,
}

/// One slab with its packed operands.
struct Round<'a> {
    plan: &'a Conv,
    args: &'a ConvArgs,
    cut: Cut,
    slab: Slab,
    weights: *const u8,
    input: *const u8,
    row_bytes: usize,
    sums: *mut f32,
}

impl Round<'_> {
    /// # Safety
    /// As [`Conv::run`]; weights and input of the slab are packed.
    unsafe fn jobs(&self, team: &Team) {
        let flat = self.slab.rows * self.plan.geometry.pitch;
        let pieces = flat.div_ceil(self.cut.positions);
        let jobs = pieces * self.slab.panels.div_ceil(self.cut.job_panels);
        loop {
            let index = team.next_job();
            if index >= jobs {
                return;
            }
            let first = index / pieces * self.cut.job_panels;
            let start = index % pieces * self.cut.positions;
            let panels = (self.slab.panels - first).min(self.cut.job_panels);
            let positions = (flat - start).min(self.cut.positions);
            // SAFETY: jobs are disjoint in y; each is run by one thread.
            unsafe {
                self.multiply(first, panels, start, positions);
                for panel in first..first + panels {
                    self.store(panel, panel - first, start, positions);
                }
            }
        }
    }

    /// # Safety
    /// As [`Round::jobs`].
    unsafe fn multiply(&self, first: usize, panels: usize, start: usize, positions: usize) {
        let (plan, g) = (self.plan, &self.plan.geometry);
        let a_step = plan.format.a_step();
        let group_bytes = group_rows(plan.format) * self.row_bytes;
        let mut taps = [0isize; MAX_TAPS];
        self.tap_offsets(&mut taps);
        let mut offsets = [0isize; MAX_TAPS + 8];
        let step = g.pass_groups();
        for group in (0..g.groups).step_by(step) {
            let groups = (g.groups - group).min(step);
            let mut weights = self.weights.wrapping_add((first * g.steps() + group * g.taps) * a_step);
            if self.cut.by_panel {
                let own = self.sums.wrapping_byte_add(sum_bytes(&self.cut)).cast::<u8>();
                // SAFETY: `pass_bytes` were carved after the sums; the panel is this job's.
                unsafe { pack_groups(plan, self.args.w, self.slab.first_panel + first, group, groups, own) };
                weights = own;
            }
            for i in 0..groups * g.taps {
                offsets[i] = (i / g.taps * group_bytes) as isize + taps[i % g.taps];
            }
            for p in 0..panels {
                let wide_rows = plan.shape.output - (self.slab.first_panel + first + p) * SIDE > 16;
                for x in (0..positions).step_by(SIDE) {
                    let block = Block {
                        a: weights.wrapping_add(p * g.steps() * a_step),
                        b: self.input.wrapping_add(group * group_bytes + (start + x) * 4),
                        offsets: offsets.as_ptr(),
                        steps: groups * g.taps,
                        b_stride: self.row_bytes,
                        b_right: 64,
                        b_low: 16 * self.row_bytes,
                        c: self.sums.wrapping_add(p * SIDE * self.cut.positions + x),
                        c_stride: self.cut.positions * 4,
                        accumulate: group > 0,
                        wide_rows,
                        wide_columns: positions - x > 16,
                    };
                    // SAFETY: the steps are packed; 32 positions from any existing one stay in the packed rows,
                    // which have 64 values to spare; C lies in `sums`; tiles are configured by `run`.
                    unsafe { block.run(plan.isa, plan.format) };
                }
            }
        }
    }

    /// Bytes from a position to where each tap reads it.
    fn tap_offsets(&self, taps: &mut [isize; MAX_TAPS]) {
        let (shape, g) = (&self.plan.shape, &self.plan.geometry);
        let phase = g.phase(self.cut.rows);
        for (i, tap) in taps.iter_mut().enumerate().take(g.taps) {
            let (x, y) = (i % shape.kernel[0], i / shape.kernel[0]);
            let (sx, sy) = (shape.stride[0], shape.stride[1]);
            *tap = (((y % sy * sx + x % sx) * phase + y / sy * g.pitch + x / sx) * 4) as isize;
        }
    }

    /// Sums of panel `panel` of the slab, held at `local` in `sums`, go to y row by row.
    ///
    /// # Safety
    /// As [`Round::jobs`].
    unsafe fn store(&self, panel: usize, local: usize, start: usize, positions: usize) {
        let (plan, g) = (self.plan, &self.plan.geometry);
        let channel = (self.slab.first_panel + panel) * SIDE;
        let channels = (plan.shape.output - channel).min(SIDE);
        let mut bias = [0f32; SIDE];
        let sample = self.slab.frame / g.out[2];
        for (i, b) in bias.iter_mut().enumerate().take(channels) {
            // SAFETY: `channel + i` is an output channel, `sample` a map of the batch.
            unsafe {
                if !self.args.bias.is_null() {
                    *b += *self.args.bias.add(channel + i);
                }
                if !self.args.channel_add.is_null() {
                    *b += *self.args.channel_add.add(sample * plan.shape.output + channel + i);
                }
            }
        }
        let sums = self.sums.wrapping_add(local * SIDE * self.cut.positions);
        let mut at = start;
        while at < start + positions {
            let (row, column) = (at / g.pitch, at % g.pitch);
            let end = (row * g.pitch + g.out[0]).min(start + positions);
            if at < end {
                let part = Part { channel, channels, row: self.slab.row + row, column, columns: end - at };
                // SAFETY: the part lies in y and in `sums`.
                unsafe {
                    match plan.y_layout {
                        MapLayout::Planes => self.store_planes(&part, sums.add(at - start), &bias),
                        MapLayout::ChannelsLast => self.store_last(&part, sums.add(at - start), &bias),
                    }
                }
            }
            at = (row + 1) * g.pitch;
        }
    }

    /// # Safety
    /// As [`Round::store`], for one part of an output row.
    unsafe fn store_planes(&self, part: &Part, sums: *mut f32, bias: &[f32; SIDE]) {
        let (plan, out) = (self.plan, self.plan.geometry.out);
        let plane = out[0] * out[1] * out[2];
        let (sample, frame) = (self.slab.frame / out[2], self.slab.frame % out[2]);
        let index = (sample * plan.shape.output + part.channel) * plane
            + (frame * out[1] + part.row) * out[0]
            + part.column;
        let end = Finish {
            column_bias: std::ptr::null(),
            row_bias: bias.as_ptr(),
            activation: plan.activation,
            residual: offset_or_null(self.args.residual, index),
            residual_stride: plane,
            y: self.args.y.wrapping_add(index),
            y_stride: plane,
        };
        // SAFETY: the caller's promise.
        unsafe { finish(plan.isa, sums, self.cut.positions, part.channels, part.columns, &end) };
    }

    /// # Safety
    /// As [`Round::store_planes`].
    unsafe fn store_last(&self, part: &Part, sums: *mut f32, bias: &[f32; SIDE]) {
        let (plan, out, stride) = (self.plan, self.plan.geometry.out, self.plan.shape.output);
        for column in (0..part.columns).step_by(16) {
            let pixels = (part.columns - column).min(16);
            let mut turned = [[0f32; SIDE]; 16];
            let pixel = (self.slab.frame * out[1] + part.row) * out[0] + part.column + column;
            let index = pixel * stride + part.channel;
            let end = Finish {
                column_bias: bias.as_ptr(),
                row_bias: std::ptr::null(),
                activation: plan.activation,
                residual: offset_or_null(self.args.residual, index),
                residual_stride: stride,
                y: self.args.y.wrapping_add(index),
                y_stride: stride,
            };
            // SAFETY: 32 rows of sums with 16 columns from here exist or lie in the spare room of the buffer.
            unsafe {
                let from = sums.add(column);
                turn(plan.isa, from, self.cut.positions, pixels, &mut turned);
                finish(plan.isa, turned.as_mut_ptr().cast(), SIDE, pixels, part.channels, &end);
            }
        }
    }
}

/// Part of an output row for a panel of channels.
struct Part {
    channel: usize,
    channels: usize,
    row: usize,
    column: usize,
    columns: usize,
}

fn offset_or_null(p: *const f32, index: usize) -> *const f32 {
    if p.is_null() { p } else { p.wrapping_add(index) }
}

/// 32 rows of `pixels` sums as pixels of 32.
///
/// # Safety
/// `src` is valid for 32 rows of `pixels` values, `stride` apart.
unsafe fn turn(isa: Isa, src: *const f32, stride: usize, pixels: usize, out: &mut [[f32; SIDE]; 16]) {
    // SAFETY: full blocks of 16 x 16 are read only when all 16 pixels exist.
    unsafe {
        if pixels == 16 && isa != Isa::Avx2 {
            let dst = out.as_mut_ptr().cast::<f32>();
            pack::simd::transpose_f32(src, stride, dst);
            pack::simd::transpose_f32(src.add(16 * stride), stride, dst.add(16));
        } else {
            for (pixel, row) in out.iter_mut().enumerate().take(pixels) {
                for (channel, value) in row.iter_mut().enumerate() {
                    *value = *src.add(channel * stride + pixel);
                }
            }
        }
    }
}

const _: () = assert!(SIDE == STEP);
