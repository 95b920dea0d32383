//! Shapes of convolutions, and how one is cut into pieces that fit the caches.

use super::block::{SIDE, STEP};
use super::isa::Format;
use super::pack_map::group_rows;
use super::team::round_up;
use super::weight::WeightType;

/// Memory order of a feature map, fastest axis first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MapLayout {
    /// `[W, H, D, C, N]`: ggml's.
    #[default]
    Planes,
    /// `[C, W, H, D, N]`.
    ChannelsLast,
}

/// Shape of a 2-D (depth 1) or 3-D convolution with dilation 1 and one group.
#[derive(Clone, Copy, Debug)]
pub struct ConvShape {
    /// Input columns, rows and frames.
    pub size: [usize; 3],
    /// Input channels.
    pub input: usize,
    /// Output channels.
    pub output: usize,
    /// Maps in the batch.
    pub batch: usize,
    /// Kernel columns, rows and frames.
    pub kernel: [usize; 3],
    /// Stride along columns, rows and frames.
    pub stride: [usize; 3],
    /// Padding before and after columns, rows and frames.
    pub pad: [[usize; 2]; 3],
    /// Whether padding of columns and of rows repeats the other side rather than being zero.
    pub circular: [bool; 2],
}

impl ConvShape {
    /// A 2-D convolution of stride 1 that keeps the size, for odd kernels.
    pub fn same(width: usize, height: usize, input: usize, output: usize, kernel: usize) -> Self {
        let pad = [kernel / 2; 2];
        Self {
            size: [width, height, 1],
            input,
            output,
            batch: 1,
            kernel: [kernel, kernel, 1],
            stride: [1; 3],
            pad: [pad, pad, [0; 2]],
            circular: [false; 2],
        }
    }

    /// Output columns, rows and frames; `None` when the kernel is larger than the padded input.
    pub fn output_size(&self) -> Option<[usize; 3]> {
        let mut out = [0; 3];
        for (axis, size) in out.iter_mut().enumerate() {
            let padded = self.size[axis].checked_add(self.pad[axis][0])?.checked_add(self.pad[axis][1])?;
            let room = padded.checked_sub(self.kernel[axis])?;
            *size = room.checked_div(self.stride[axis])? + 1;
        }
        Some(out)
    }

    /// Whether the kernels cover this shape and type.
    pub(super) fn fits(&self, weight: WeightType) -> bool {
        let taps: usize = self.kernel.iter().product();
        let counts = [self.input, self.output, self.batch, taps];
        let wraps = |axis: usize| {
            !self.circular[axis]
                || (self.size[axis] > 0 && self.pad[axis].iter().all(|&p| p <= self.size[axis]))
        };
        counts.iter().all(|&n| n > 0)
            && self.size.iter().all(|&n| n > 0)
            && taps <= MAX_TAPS
            && (0..2).all(wraps)
            && weight.block() <= STEP
            && weight.fits(self.input * taps)
            && self.output_size().is_some()
    }
}

/// Kernel values per channel at most.
pub(super) const MAX_TAPS: usize = 64;
/// Output positions of one job.
const POSITIONS: usize = 256;
/// Positions of a map up to which jobs go by panels.
const SMALL_MAP: usize = 1200;
/// Panels of 32 output channels of one job at most.
const MAX_JOB_PANELS: usize = 8;
/// Steps in one pass over a block of sums at least; their packed weights stay in L1.
const PASS_STEPS: usize = 8;

/// Everything derived from the shape. Output positions of a *slab* (some rows of one output frame) are numbered
/// over rows of `pitch` columns, of which the first `out[0]` exist; a tap is then a constant offset into the
/// packed input.
#[derive(Clone, Copy, Debug)]
pub(super) struct Geometry {
    pub out: [usize; 3],
    /// Groups of 32 input channels, for each kernel frame.
    pub groups: usize,
    /// Kernel columns times rows.
    pub taps: usize,
    /// Packed columns per row and stride phase.
    pub pitch: usize,
    /// Packed rows more than output rows.
    pub extra_rows: usize,
}

impl Geometry {
    pub(super) fn new(shape: &ConvShape) -> Option<Self> {
        let out = shape.output_size()?;
        Some(Self {
            out,
            groups: shape.kernel[2] * shape.input.div_ceil(STEP),
            taps: shape.kernel[0] * shape.kernel[1],
            pitch: out[0] + (shape.kernel[0] - 1) / shape.stride[0],
            extra_rows: (shape.kernel[1] - 1) / shape.stride[1],
        })
    }

    /// Steps of the whole inner axis.
    pub(super) fn steps(&self) -> usize {
        self.groups * self.taps
    }

    /// Groups in one pass over a block of sums.
    pub(super) fn pass_groups(&self) -> usize {
        PASS_STEPS.div_ceil(self.taps)
    }

    /// Values of one stride phase of a packed row for a slab of `rows` output rows.
    pub(super) fn phase(&self, rows: usize) -> usize {
        // Blocks of 32 positions may read past the last position.
        (rows + self.extra_rows) * self.pitch + 2 * SIDE
    }

    /// Bytes from one packed row to the next: an odd number of cache lines, so that the 16 rows of a tile do not
    /// fall in one set.
    pub(super) fn row_bytes(&self, shape: &ConvShape, rows: usize) -> usize {
        let bytes = self.phase(rows) * shape.stride[0] * shape.stride[1] * 4;
        (bytes.div_ceil(64) | 1) * 64
    }
}

/// How much is packed at a time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cut {
    /// Output rows of a slab.
    pub rows: usize,
    /// Panels of 32 output channels whose weights are packed at a time.
    pub panels: usize,
    /// Panels of one job.
    pub job_panels: usize,
    /// Positions of one job, a multiple of 32.
    pub positions: usize,
    /// Small maps: each job takes one panel and all positions, and packs its weights group by group as it goes, so that
    /// they never leave the nearest cache.
    pub by_panel: bool,
}

impl Cut {
    /// Keeps all scratch memory below 9.5% of an f16 im2col buffer, or in a few MiB where that is little anyway.
    pub(super) fn new(shape: &ConvShape, g: &Geometry, format: Format, nth: usize) -> Self {
        let all = shape.output.div_ceil(SIDE);
        let map = g.out[1] * g.pitch;
        let one_map = shape.kernel[2] * g.out[2] * shape.batch == 1;
        if one_map && map <= SMALL_MAP && all >= 2 * nth {
            let positions = round_up(map, SIDE);
            return Self { rows: g.out[1], panels: all, job_panels: 1, positions, by_panel: true };
        }
        let panel = g.steps() * format.a_step();
        let unrolled = 2 * g.out[0] * g.out[1] * shape.input * g.taps * shape.kernel[2];
        let few = 4 << 20;
        let budget = if unrolled < 16 << 20 { few } else { unrolled / 1000 * 90 };
        let mut panels = (budget * 6 / 10 / panel).clamp(1, all);
        let group = group_rows(format) * g.groups;
        let slab = |rows: usize| group * g.row_bytes(shape, rows);
        let left = (budget.saturating_sub(panels * panel)).min(4 << 20);
        let mut rows = g.out[1];
        while rows > 1 && slab(rows) > left {
            rows = rows.div_ceil(2);
        }
        // Equal slabs, and grown again as far as memory goes.
        while rows < g.out[1] && slab(rows + 1) <= left {
            rows += 1;
        }
        rows = g.out[1].div_ceil(g.out[1].div_ceil(rows));
        let flat = rows * g.pitch;
        let blocks = flat.div_ceil(POSITIONS);
        if blocks < nth {
            panels = panels.max(nth.min(all));
        }
        let mut job_panels = panels.min(MAX_JOB_PANELS);
        while job_panels > 1 && blocks * panels.div_ceil(job_panels) < 2 * nth {
            job_panels = job_panels.div_ceil(2);
        }
        let mut pieces = blocks;
        while !(pieces * panels.div_ceil(job_panels)).is_multiple_of(nth) && flat / (pieces + 1) >= 2 * SIDE {
            pieces += 1;
        }
        let positions = round_up(flat.div_ceil(pieces), SIDE);
        Self { rows, panels, job_panels, positions, by_panel: false }
    }
}
