//! Packing the operands of a convolution.

use super::block::{SIDE, STEP};
use super::conv::Conv;
use super::conv_shape::{MAX_TAPS, MapLayout};
use super::isa::{Format, Isa};
use super::pack;
use super::pack_map::{self, group_rows};
use super::team::Team;
use super::weight;

/// Packs the weights of `count` panels from `first` as A steps `[panel][kernel frame][channel group][tap]`.
///
/// # Safety
/// `w` holds the plan's weights, `dst` the steps; every thread of the team calls this.
pub(super) unsafe fn pack_weights(
    plan: &Conv,
    w: *const u8,
    first: usize,
    count: usize,
    dst: *mut u8,
    team: &Team,
) {
    let blocks = plan.shape.input.div_ceil(STEP);
    let frame = blocks * plan.geometry.taps * plan.format.a_step();
    for unit in team.share(count * SIDE * blocks) {
        let (row, block) = (unit / blocks, unit % blocks);
        let step = row / SIDE * plan.geometry.steps() + block * plan.geometry.taps;
        // SAFETY: the steps of the panel lie in `dst`.
        unsafe { pack_unit(plan, w, first * SIDE + row, block, dst.add(step * plan.format.a_step()), frame) };
    }
}

/// Packs the 32 rows of panel `panel` for `count` channel groups from `group`, of a kernel with one frame.
///
/// # Safety
/// `w` holds the plan's weights, `dst` the steps `[group][tap]`.
pub(super) unsafe fn pack_groups(
    plan: &Conv,
    w: *const u8,
    panel: usize,
    group: usize,
    count: usize,
    dst: *mut u8,
) {
    let bytes = plan.geometry.taps * plan.format.a_step();
    for row in 0..SIDE {
        for i in 0..count {
            // SAFETY: the group's steps lie in `dst`.
            unsafe { pack_unit(plan, w, panel * SIDE + row, group + i, dst.add(i * bytes), 0) };
        }
    }
}

/// Packs 32 input channels (block `block`) of output channel `channel`: one A step for each tap at `dst`, kernel frames
/// `frame_bytes` apart.
///
/// # Safety
/// `w` holds the plan's weights, `dst` the steps.
unsafe fn pack_unit(
    plan: &Conv,
    w: *const u8,
    channel: usize,
    block: usize,
    dst: *mut u8,
    frame_bytes: usize,
) {
    let shape = &plan.shape;
    let (frames, taps) = (shape.kernel[2], plan.geometry.taps);
    let per_input = frames * taps;
    let row_bytes = plan.weight.offset(shape.input * per_input);
    let inputs = (shape.input - block * STEP).min(STEP);
    // Vector reads of one channel's taps go up to 16 values on.
    let mut values = [0f32; STEP * MAX_TAPS + 16];
    // SAFETY: the row and its group exist in w; `values` takes 32 channels of at most 64 taps.
    unsafe {
        if channel < shape.output {
            let start = block * STEP * per_input;
            let source = w.add(channel * row_bytes);
            weight::to_f32(plan.isa, plan.weight, source, start, inputs * per_input, values.as_mut_ptr());
        }
        for frame in 0..frames {
            let out = dst.add(frame * frame_bytes);
            if channel < shape.output {
                pack_taps(plan, &values[frame * taps..], per_input, out, channel % SIDE);
            } else {
                pack::a_zero(plan.format, taps, out, channel % SIDE);
            }
        }
    }
}

/// Packs the taps of 32 channels, `stride` values from channel to channel, as row `row` of one A step each.
///
/// # Safety
/// `values` holds the channels and 16 values more; `out` is the first step; `row` < 32.
unsafe fn pack_taps(plan: &Conv, values: &[f32], stride: usize, out: *mut u8, row: usize) {
    let (taps, step) = (plan.geometry.taps, plan.format.a_step());
    // SAFETY: the steps are the caller's promise; `Isa` and the tile formats prove the features.
    unsafe {
        if plan.format == Format::F32 && plan.isa != Isa::Avx2 && taps <= 16 {
            pack::simd::tap_rows_f32(values.as_ptr(), stride, taps, out.add(row * 128), step);
            return;
        }
        if plan.format != Format::F32 && taps <= 16 {
            let low = if plan.format == Format::Single { 0 } else { 2048 };
            pack::simd::tap_rows(values.as_ptr(), stride, taps, out.add(row * 64), step, low);
            return;
        }
        for tap in 0..taps {
            let line: [f32; STEP] = std::array::from_fn(|i| values[i * stride + tap]);
            pack::a_row(plan.isa, plan.format, line.as_ptr(), STEP, out.add(tap * step), row);
        }
    }
}

/// The input of one slab of output rows.
pub(super) struct Input<'a> {
    pub plan: &'a Conv,
    pub x: *const f32,
    pub dst: *mut u8,
    pub row_bytes: usize,
    /// `batch * output frames + output frame`.
    pub frame: usize,
    pub row: usize,
    pub rows: usize,
    /// Output rows that packed rows are laid out for; the last slab may have fewer.
    pub slab_rows: usize,
}

impl Input<'_> {
    /// Bytes each thread needs for two padded rows.
    pub(super) fn row_bytes(plan: &Conv) -> usize {
        2 * plan.geometry.pitch * 4
    }

    /// Packs the slab; `spare` holds [`Input::row_bytes`] of this thread.
    ///
    /// # Safety
    /// `x` holds the plan's input, `dst` the packed slab; every thread of the team calls this.
    pub(super) unsafe fn pack(&self, spare: *mut f32, team: &Team) {
        let (shape, g) = (&self.plan.shape, &self.plan.geometry);
        let rows = (self.rows + g.extra_rows) * shape.stride[1];
        for unit in team.share(g.groups * rows) {
            let (group, row) = (unit / rows, unit % rows);
            for phase in 0..shape.stride[0] {
                let line = self.line(group, row, phase);
                // SAFETY: the line lies in `dst`, its sources in `x`.
                unsafe {
                    match self.plan.x_layout {
                        MapLayout::Planes => self.pack_planes(&line, spare),
                        MapLayout::ChannelsLast => self.pack_last(&line),
                    }
                }
            }
        }
    }

    /// Where padded row `row` of the slab, column phase `phase`, comes from and goes to.
    fn line(&self, group: usize, row: usize, phase: usize) -> Line {
        let (shape, g) = (&self.plan.shape, &self.plan.geometry);
        let [sx, sy, sz] = shape.stride;
        let blocks = shape.input.div_ceil(STEP);
        let (kernel_frame, block) = (group / blocks, group % blocks);
        let (sample, out_frame) = (self.frame / g.out[2], self.frame % g.out[2]);
        let z = inside(out_frame * sz + kernel_frame, shape.pad[2][0], shape.size[2], false);
        let y = inside(self.row * sy + row, shape.pad[1][0], shape.size[1], shape.circular[1]);
        let at = ((row % sy * sx + phase) * g.phase(self.slab_rows) + row / sy * g.pitch) * 4;
        Line {
            source: z.zip(y).map(|(z, y)| (sample, z, y)),
            channel: block * STEP,
            phase,
            dst: self.dst.wrapping_add(group * group_rows(self.plan.format) * self.row_bytes + at),
        }
    }

    /// Input column of packed column `i` in a phase.
    fn column(&self, i: usize, phase: usize) -> Option<usize> {
        let shape = &self.plan.shape;
        inside(i * shape.stride[0] + phase, shape.pad[0][0], shape.size[0], shape.circular[0])
    }

    /// # Safety
    /// As [`Input::pack`].
    unsafe fn pack_planes(&self, line: &Line, spare: *mut f32) {
        let (plan, shape) = (self.plan, &self.plan.shape);
        let pitch = plan.geometry.pitch;
        let [w, h, d] = shape.size;
        for pair in 0..STEP / 2 {
            let mut channels = [std::ptr::null::<f32>(); 2];
            for (i, pointer) in channels.iter_mut().enumerate() {
                let channel = line.channel + 2 * pair + i;
                let Some((sample, z, y)) = line.source.filter(|_| channel < shape.input) else { continue };
                let plane = (sample * shape.input + channel) * d + z;
                // SAFETY: the row of an existing plane; `spare` holds two padded rows.
                unsafe {
                    let row = self.x.add((plane * h + y) * w);
                    let out = spare.add(i * pitch);
                    self.pad_row(row, line.phase, std::slice::from_raw_parts_mut(out, pitch));
                    *pointer = out;
                }
            }
            // SAFETY: channels hold a padded row or are null; the group's rows lie in `dst`.
            unsafe { pack_map::pair(plan.isa, plan.format, channels, pitch, line.dst, self.row_bytes, pair) };
        }
    }

    /// # Safety
    /// `row` is a row of the input.
    unsafe fn pad_row(&self, row: *const f32, phase: usize, out: &mut [f32]) {
        let (before, width) = (self.plan.shape.pad[0][0], self.plan.shape.size[0]);
        let mut copied = 0..0;
        if self.plan.shape.stride[0] == 1 && before < out.len() {
            copied = before..out.len().min(before + width);
            // SAFETY: at most `width` values of the row.
            let source = unsafe { std::slice::from_raw_parts(row, copied.len()) };
            out[copied.clone()].copy_from_slice(source);
        }
        for (i, value) in out.iter_mut().enumerate() {
            if !copied.contains(&i) {
                // SAFETY: `column` gives existing columns only.
                *value = self.column(i, phase).map_or(0.0, |x| unsafe { *row.add(x) });
            }
        }
    }

    /// # Safety
    /// As [`Input::pack`].
    unsafe fn pack_last(&self, line: &Line) {
        let (plan, shape) = (self.plan, &self.plan.shape);
        let [w, h, d] = shape.size;
        let channels = (shape.input - line.channel).min(STEP);
        let mut block = [[0f32; STEP]; 16];
        for start in (0..plan.geometry.pitch).step_by(16) {
            let count = (plan.geometry.pitch - start).min(16);
            for (i, pixel) in block.iter_mut().enumerate().take(count) {
                let source = line.source.zip(self.column(start + i, line.phase));
                let Some(((sample, z, y), x)) = source else {
                    pixel.fill(0.0);
                    continue;
                };
                let index = (((sample * d + z) * h + y) * w + x) * shape.input + line.channel;
                // SAFETY: `channels` channels of an existing pixel.
                let from = unsafe { std::slice::from_raw_parts(self.x.add(index), channels) };
                pixel[..channels].copy_from_slice(from);
            }
            // SAFETY: the group's rows hold `pitch` values from `line.dst`.
            unsafe {
                let dst = line.dst.add(start * 4);
                pack_map::pixels(plan.isa, plan.format, &block, count, dst, self.row_bytes);
            }
        }
    }
}

/// One packed row of one phase for one group of channels.
struct Line {
    /// Map of the batch, input frame and input row; `None` for padding.
    source: Option<(usize, usize, usize)>,
    /// First channel.
    channel: usize,
    phase: usize,
    dst: *mut u8,
}

/// Padded coordinate to one inside `size`, `None` for zero padding.
fn inside(padded: usize, before: usize, size: usize, circular: bool) -> Option<usize> {
    if circular {
        return Some((padded + size * before.div_ceil(size) - before) % size);
    }
    padded.checked_sub(before).filter(|&i| i < size)
}
