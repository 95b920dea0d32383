//! Group norm with the activation that follows it, in both memory orders.

use super::conv_shape::MapLayout;
use super::cpu::{CpuPath, cpu_path};
use super::isa::Isa;
use super::math::{Activation, activate, dispatch};
use super::sums::{squares, total};
use super::team::{Team, carved_bytes};

/// Pixels whose statistics are taken together in channel-last order, whatever the number of threads.
const PIXELS: usize = 64;
/// Channels at most, for buffers on the stack.
const MAX_CHANNELS: usize = 8192;

/// Plan of a group norm.
#[derive(Clone, Copy, Debug)]
pub struct GroupNorm {
    pixels: usize,
    channels: usize,
    groups: usize,
    batch: usize,
    eps: f32,
    activation: Activation,
    layout: MapLayout,
    isa: Isa,
}

/// Operands: `y = activation(norm(x) * weight + bias)`.
#[derive(Clone, Copy, Debug)]
pub struct GroupNormArgs {
    /// Map in the plan's layout.
    pub x: *const f32,
    /// As x; may be x itself.
    pub y: *mut f32,
    /// `[channels]` or null.
    pub weight: *const f32,
    /// `[channels]` or null.
    pub bias: *const f32,
}

/// Count, mean and sum of squared distances to it.
#[derive(Clone, Copy, Default)]
struct Moments {
    count: f64,
    mean: f64,
    spread: f64,
}

impl Moments {
    /// Of two disjoint sets together (Chan, Golub and LeVeque).
    fn with(self, other: Self) -> Self {
        let count = self.count + other.count;
        if count == 0.0 {
            return self;
        }
        let distance = other.mean - self.mean;
        let share = other.count / count;
        Self {
            count,
            mean: self.mean + distance * share,
            spread: self.spread + other.spread + distance * distance * self.count * share,
        }
    }
}

impl GroupNorm {
    /// A group norm of `[pixels, channels, batch]` (planes) on the best path of this machine.
    ///
    /// `None` when ggml's node is to be used or `groups` does not divide `channels`.
    pub fn new(pixels: usize, channels: usize, groups: usize, batch: usize, eps: f32) -> Option<Self> {
        Self::on(cpu_path()?, pixels, channels, groups, batch, eps)
    }

    /// As [`GroupNorm::new`] on a path of the caller's choice.
    pub fn on(
        path: CpuPath,
        pixels: usize,
        channels: usize,
        groups: usize,
        batch: usize,
        eps: f32,
    ) -> Option<Self> {
        let isa = Isa::new(path)?;
        let fits = pixels > 0
            && batch > 0
            && groups > 0
            && (1..=MAX_CHANNELS).contains(&channels)
            && channels.is_multiple_of(groups);
        let (activation, layout) = (Activation::None, MapLayout::Planes);
        fits.then_some(Self { pixels, channels, groups, batch, eps, activation, layout, isa })
    }

    /// Fuses `activation`.
    pub fn with_activation(self, activation: Activation) -> Self {
        Self { activation, ..self }
    }

    /// Another memory order than [`MapLayout::Planes`].
    pub fn with_layout(self, layout: MapLayout) -> Self {
        Self { layout, ..self }
    }

    /// Bytes of scratch memory that [`GroupNorm::run`] needs with `nth` threads.
    pub fn scratch_bytes(&self, nth: usize) -> usize {
        carved_bytes(self.partial_bytes(), 0, nth)
    }

    fn partial_bytes(&self) -> usize {
        match self.layout {
            MapLayout::Planes => self.batch * self.channels * size_of::<Moments>(),
            MapLayout::ChannelsLast => self.batch * self.chunks() * self.groups * size_of::<Moments>(),
        }
    }

    fn chunks(&self) -> usize {
        self.pixels.div_ceil(PIXELS)
    }

    /// Norms the map as thread `team.ith` of `team.nth`; false (and nothing written) when the scratch memory is too
    /// short.
    ///
    /// # Safety
    /// The pointers in `args` are valid for the shapes of the plan, and all threads of the team call this with the
    /// same plan, arguments, barrier and scratch.
    pub unsafe fn run(&self, args: &GroupNormArgs, team: &Team) -> bool {
        let Some((partial, _)) = team.carve(self.partial_bytes(), 0) else { return false };
        let partial: *mut Moments = partial.cast();
        team.wait();
        // SAFETY: `partial` holds one entry per unit; each unit is one thread's, in both phases.
        unsafe {
            match self.layout {
                MapLayout::Planes => {
                    for plane in team.share(self.batch * self.channels) {
                        let values = std::slice::from_raw_parts(args.x.add(plane * self.pixels), self.pixels);
                        let mut moments = Moments::default();
                        plane_moments(self.isa, values, &mut moments);
                        partial.add(plane).write(moments);
                    }
                    team.wait();
                    for plane in team.share(self.batch * self.channels) {
                        self.apply_plane(args, partial, plane);
                    }
                }
                MapLayout::ChannelsLast => {
                    for chunk in team.share(self.batch * self.chunks()) {
                        let (values, _) = self.chunk(args.x, chunk);
                        let out =
                            std::slice::from_raw_parts_mut(partial.add(chunk * self.groups), self.groups);
                        chunk_moments(self.isa, values, self.channels, out);
                    }
                    team.wait();
                    self.apply_chunks(args, partial, team);
                }
            }
        }
        true
    }

    /// Centre, factor and offset of a channel, from its group's moments.
    ///
    /// # Safety
    /// As [`GroupNorm::run`].
    unsafe fn affine(&self, args: &GroupNormArgs, moments: Moments, channel: usize) -> [f32; 3] {
        let center = moments.mean as f32;
        let mut factor = 1.0 / (moments.spread / moments.count + f64::from(self.eps)).sqrt();
        // The centre is taken off before the factor, so that a small variance beside a large mean keeps its digits.
        let mut offset = (f64::from(center) - moments.mean) * factor;
        // SAFETY: vectors that are not null have a value for each channel.
        unsafe {
            if !args.weight.is_null() {
                factor *= f64::from(*args.weight.add(channel));
                offset *= f64::from(*args.weight.add(channel));
            }
            if !args.bias.is_null() {
                offset += f64::from(*args.bias.add(channel));
            }
        }
        [center, factor as f32, offset as f32]
    }

    /// # Safety
    /// As [`GroupNorm::run`]; all planes have their moments.
    unsafe fn apply_plane(&self, args: &GroupNormArgs, partial: *const Moments, plane: usize) {
        let per_group = self.channels / self.groups;
        let first = plane / per_group * per_group;
        // SAFETY: the planes of the group have entries; the plane exists in x and y.
        unsafe {
            let group = (first..first + per_group).fold(Moments::default(), |m, i| m.with(*partial.add(i)));
            let affine = self.affine(args, group, plane % self.channels);
            let (x, y) = (args.x.add(plane * self.pixels), args.y.add(plane * self.pixels));
            scale_plane(self.isa, x, y, self.pixels, affine, self.activation);
        }
    }

    /// Values of a chunk of pixels, and its map in the batch.
    ///
    /// # Safety
    /// As [`GroupNorm::run`].
    unsafe fn chunk(&self, x: *const f32, chunk: usize) -> (&[f32], usize) {
        let (sample, start) = (chunk / self.chunks(), chunk % self.chunks() * PIXELS);
        let count = (self.pixels - start).min(PIXELS);
        // SAFETY: the pixels exist in x.
        let values = unsafe {
            let from = x.add((sample * self.pixels + start) * self.channels);
            std::slice::from_raw_parts(from, count * self.channels)
        };
        (values, sample)
    }

    /// # Safety
    /// As [`GroupNorm::run`]; all chunks have their moments.
    unsafe fn apply_chunks(&self, args: &GroupNormArgs, partial: *const Moments, team: &Team) {
        let mut affines = [[0f32; MAX_CHANNELS]; 3];
        let mut current = None;
        for chunk in team.share(self.batch * self.chunks()) {
            // SAFETY: the chunk exists in x and y; all entries were written before the wait.
            unsafe {
                let (values, sample) = self.chunk(args.x, chunk);
                if current != Some(sample) {
                    current = Some(sample);
                    self.affines(args, partial, sample, &mut affines);
                }
                let y = args.y.add(values.as_ptr().offset_from_unsigned(args.x));
                let vectors = affines.each_ref().map(|v| &v[..self.channels]);
                scale_pixels(
                    self.isa,
                    values.as_ptr(),
                    y,
                    values.len() / self.channels,
                    vectors,
                    self.activation,
                );
            }
        }
    }

    /// # Safety
    /// As [`GroupNorm::apply_chunks`].
    unsafe fn affines(
        &self,
        args: &GroupNormArgs,
        partial: *const Moments,
        sample: usize,
        affines: &mut [[f32; MAX_CHANNELS]; 3],
    ) {
        let per_group = self.channels / self.groups;
        for group in 0..self.groups {
            let chunks = sample * self.chunks()..(sample + 1) * self.chunks();
            // SAFETY: every chunk has an entry for every group.
            let moments = chunks
                .map(|chunk| unsafe { *partial.add(chunk * self.groups + group) })
                .fold(Moments::default(), Moments::with);
            for channel in group * per_group..(group + 1) * per_group {
                // SAFETY: the caller's promise.
                let values = unsafe { self.affine(args, moments, channel) };
                affines.iter_mut().zip(values).for_each(|(vector, value)| vector[channel] = value);
            }
        }
    }
}

dispatch! {
    /// # Safety
    /// None beyond the features that `isa` proves.
    unsafe fn plane_moments = plane_moments_body(values: &[f32], out: &mut Moments)
}

/// # Safety
/// None; the signature is that of [`plane_moments`].
#[inline(always)]
unsafe fn plane_moments_body(values: &[f32], out: &mut Moments) {
    let count = values.len() as f64;
    let sum = total(values);
    let center = (sum / count) as f32;
    // The rounded mean's distance to the true one is taken out again.
    let distance = sum / count - f64::from(center);
    let spread = squares(values, center) - count * distance * distance;
    *out = Moments { count, mean: sum / count, spread };
}

dispatch! {
    /// Moments of each group over some pixels of `channels` channels.
    ///
    /// # Safety
    /// None beyond the features that `isa` proves.
    unsafe fn chunk_moments = chunk_moments_body(values: &[f32], channels: usize, out: &mut [Moments])
}

/// # Safety
/// None; the signature is that of [`chunk_moments`].
#[inline(always)]
unsafe fn chunk_moments_body(values: &[f32], channels: usize, out: &mut [Moments]) {
    const LANES: usize = 32;
    let pixels = values.len() / channels;
    let per_group = channels / out.len();
    let count = (pixels * per_group) as f64;
    out.fill(Moments::default());
    for pass in 0..2 {
        for start in (0..channels).step_by(LANES) {
            let width = (channels - start).min(LANES);
            let mut centers = [0f32; LANES];
            if pass == 1 {
                for (i, c) in centers.iter_mut().enumerate().take(width) {
                    *c = out[(start + i) / per_group].mean as f32;
                }
            }
            let mut sums = [0f32; LANES];
            for pixel in 0..pixels {
                let row = &values[pixel * channels + start..][..width];
                if let Ok(row) = <&[f32; LANES]>::try_from(row) {
                    for i in 0..LANES {
                        let d = row[i] - centers[i];
                        sums[i] += if pass == 0 { d } else { d * d };
                    }
                } else {
                    for (i, v) in row.iter().enumerate() {
                        let d = v - centers[i];
                        sums[i] += if pass == 0 { d } else { d * d };
                    }
                }
            }
            for (i, &sum) in sums.iter().enumerate().take(width) {
                let group = &mut out[(start + i) / per_group];
                if pass == 0 {
                    group.mean += f64::from(sum) / count;
                } else {
                    group.spread += f64::from(sum);
                }
            }
        }
    }
    out.iter_mut().for_each(|group| group.count = count);
}

dispatch! {
    /// `y = activation((x - center) * factor + offset)` on one plane.
    ///
    /// # Safety
    /// Both pointers are valid for `count` values; they are one or do not overlap.
    unsafe fn scale_plane = scale_plane_body(
        x: *const f32, y: *mut f32, count: usize, affine: [f32; 3], activation: Activation)
}

/// # Safety
/// As [`scale_plane`].
#[inline(always)]
unsafe fn scale_plane_body(
    x: *const f32,
    y: *mut f32,
    count: usize,
    [center, factor, offset]: [f32; 3],
    activation: Activation,
) {
    const CHUNK: usize = 256;
    let mut values = [0f32; CHUNK];
    for start in (0..count).step_by(CHUNK) {
        let len = (count - start).min(CHUNK);
        let values = &mut values[..len];
        // SAFETY: `len` values from `start` exist; they are read before they are written.
        unsafe {
            values.copy_from_slice(std::slice::from_raw_parts(x.add(start), len));
            values.iter_mut().for_each(|v| *v = (*v - center).mul_add(factor, offset));
            activate(activation, values);
            std::ptr::copy_nonoverlapping(values.as_ptr(), y.add(start), len);
        }
    }
}

dispatch! {
    /// `y = activation((x - center) * factor + offset)` with these per channel.
    ///
    /// # Safety
    /// Both pointers are valid for `pixels` pixels of as many channels as the vectors have; they are one or do not overlap.
    unsafe fn scale_pixels = scale_pixels_body(
        x: *const f32, y: *mut f32, pixels: usize, affines: [&[f32]; 3], activation: Activation)
}

/// # Safety
/// As [`scale_pixels`].
#[inline(always)]
unsafe fn scale_pixels_body(
    x: *const f32,
    y: *mut f32,
    pixels: usize,
    [centers, factors, offsets]: [&[f32]; 3],
    activation: Activation,
) {
    const CHUNK: usize = 256;
    let channels = factors.len();
    let mut values = [0f32; CHUNK];
    for pixel in 0..pixels {
        for start in (0..channels).step_by(CHUNK) {
            let len = (channels - start).min(CHUNK);
            let values = &mut values[..len];
            // SAFETY: `len` channels from `start` of the pixel exist; they are read before they are written.
            unsafe {
                let at = pixel * channels + start;
                values.copy_from_slice(std::slice::from_raw_parts(x.add(at), len));
                let end = start + len;
                let vectors = centers[start..end].iter().zip(&factors[start..end]).zip(&offsets[start..end]);
                for (v, ((c, &f), &o)) in values.iter_mut().zip(vectors) {
                    *v = (*v - c).mul_add(f, o);
                }
                activate(activation, values);
                std::ptr::copy_nonoverlapping(values.as_ptr(), y.add(at), len);
            }
        }
    }
}
