//! Large pictures piece by piece: overlapping tiles that fade into each other.
#![forbid(unsafe_code)]

use crate::engine::request::Tiling;
use crate::error::{Error, Result};
use crate::tensor::HostTensor;

/// Tile side in latent pixels where a request names none.
const DEFAULT_TILE: i32 = 32;
/// Smallest tile side in latent pixels.
const MIN_TILE: i32 = 4;

/// How a picture is cut.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tiles {
    /// Width and height of a tile in latent pixels.
    pub size: [usize; 2],
    /// Share of a tile that neighbours share, at least.
    pub overlap: f32,
    /// Whether the picture wraps around, so that the last tile meets the first.
    pub circular: [bool; 2],
}

impl Tiles {
    /// Tiles for a latent of `latent` pixels; `factor` enlarges those of the request (encoders need more around).
    pub fn new(tiling: &Tiling, latent: [usize; 2], factor: f32) -> Self {
        let overlap =
            if tiling.target_overlap.is_nan() { 0.0 } else { tiling.target_overlap.clamp(0.0, 0.5) };
        let side = |axis: usize| {
            let extent = i32::try_from(latent[axis]).unwrap_or(i32::MAX);
            let mut share = tiling.relative_size[axis];
            let mut side = DEFAULT_TILE;
            if share > 0.0 {
                // Above 1 it is a number of tiles.
                if share > 1.0 {
                    share = 1.0 / (share - share * overlap + overlap);
                }
                side = (extent as f32 * share).round() as i32;
            } else if tiling.tile_size[axis] >= MIN_TILE {
                side = tiling.tile_size[axis];
            }
            ((side as f32 * factor) as i32).min(extent).max(MIN_TILE) as usize
        };
        Self { size: [side(0), side(1)], overlap, circular: [false; 2] }
    }

    /// Whether a latent of `latent` pixels needs more than one tile along `axis`.
    pub fn splits(&self, axis: usize, latent: [usize; 2]) -> bool {
        self.size[axis] < latent[axis]
    }
}

/// Starts of the tiles along one axis and what they share.
struct Axis {
    /// Start, and how many pixels at the tile's own start an earlier tile has covered already.
    starts: Vec<(usize, usize)>,
    overlap: usize,
    tile: usize,
}

impl Axis {
    fn new(extent: usize, tile: usize, target: f32, circular: bool) -> Self {
        let share = overlap_share(extent as i64, tile as i64, target, circular);
        let overlap = ((tile as f32 * share) as i64).clamp(0, tile as i64 - 1) as usize;
        let step = tile - overlap;
        let tile = tile.min(extent);
        let mut starts = Vec::new();
        let mut at = 0;
        while at < extent {
            if !circular && at + tile >= extent {
                let start = extent - tile;
                starts.push((start, at - start));
                break;
            }
            starts.push((at, 0));
            at += step;
        }
        Self { starts, overlap, tile }
    }
}

/// The overlap, as a share of a tile, with which whole tiles fill `extent`; at least about `target`.
fn overlap_share(extent: i64, tile: i64, target: f32, circular: bool) -> f32 {
    let overlap = (tile as f32 * target) as i64;
    let step = (tile - overlap).max(1);
    if circular {
        let count = (extent / step).max(1);
        let share = (tile - extent / count) as f32 / tile as f32;
        // One tile that overlaps would have to overlap itself: take two.
        return if count == 1 && share > 0.0 { 0.5 } else { share.max(0.0) };
    }
    let mut count = (extent - overlap) / step;
    let overshoot = ((count + 1) * step + overlap) % extent.max(1);
    if overshoot != step && overshoot <= count * (tile / 2 - overlap) {
        // One more tile fits without overlaps above a half.
        count += 1;
    }
    if count > 2 {
        return (tile * count - extent) as f32 / (tile * (count - 1)) as f32;
    }
    if extent <= tile { 0.0 } else { (2 * tile - extent) as f32 / tile as f32 }
}

/// Weight that fades from 0 to 1 with flat ends.
fn smoother_step(x: f32) -> f32 {
    x * x * x * (x * (6.0 * x - 15.0) + 10.0)
}

/// Weights of the pixels of a tile along one axis.
fn weights(axis: &Axis, index: usize, scale: usize, extent: usize, circular: bool) -> Vec<f32> {
    let (start, skip) = axis.starts[index];
    let (size, overlap, skip) = (axis.tile * scale, axis.overlap * scale, skip * scale);
    let fades_in = circular || (overlap > 0 && start > 0);
    let fades_out = circular || (overlap > 0 && start * scale < extent * scale - size);
    (0..size)
        .map(|i| {
            if i < skip {
                return 0.0;
            }
            if overlap == 0 {
                return 1.0;
            }
            let up = if fades_in { (i - skip) as f32 / overlap as f32 } else { 1.0 };
            let down = if fades_out { (size - i) as f32 / overlap as f32 } else { 1.0 };
            smoother_step(up.min(down).clamp(0.0, 1.0))
        })
        .collect()
}

/// Applies `work` to tiles of `input` (`[W, H, ...]`) and puts the results together.
///
/// `scale` is the number of pixels along each side of a latent pixel; `enlarge` says whether `input` is the latent
/// or the picture. `progress` is told tiles done, of all.
pub fn process(
    input: &HostTensor,
    (scale, enlarge): (usize, bool),
    tiles: &Tiles,
    progress: &mut dyn FnMut(usize, usize),
    work: &mut dyn FnMut(&HostTensor) -> Result<HostTensor>,
) -> Result<HostTensor> {
    let (in_scale, out_scale) = if enlarge { (1, scale) } else { (scale, 1) };
    let extent = [input.dim(0) / in_scale, input.dim(1) / in_scale];
    let axes = [0, 1].map(|i| Axis::new(extent[i], tiles.size[i], tiles.overlap, tiles.circular[i]));
    let count = axes[0].starts.len() * axes[1].starts.len();
    progress(0, count);
    let mut output = HostTensor::default();
    let mut done = 0;
    for row in 0..axes[1].starts.len() {
        for column in 0..axes[0].starts.len() {
            let (x, y) = (axes[0].starts[column].0, axes[1].starts[row].0);
            let size = [axes[0].tile * in_scale, axes[1].tile * in_scale];
            let tile = work(&cut(input, [x * in_scale, y * in_scale], size))?;
            if tile.dim(0) != axes[0].tile * out_scale || tile.dim(1) != axes[1].tile * out_scale {
                return Err(Error::shape(
                    "tiling",
                    format!("a tile of {:?} came out of {size:?}", tile.shape),
                ));
            }
            if output.is_empty() {
                let mut shape = tile.shape.clone();
                (shape[0], shape[1]) = (extent[0] * out_scale, extent[1] * out_scale);
                output = HostTensor::zeros(shape);
            }
            let fade = [
                weights(&axes[0], column, out_scale, extent[0], tiles.circular[0]),
                weights(&axes[1], row, out_scale, extent[1], tiles.circular[1]),
            ];
            blend(&tile, &mut output, [x * out_scale, y * out_scale], &fade);
            done += 1;
            progress(done, count);
        }
    }
    Ok(output)
}

/// A window of `size` from `at` on, wrapping around.
fn cut(input: &HostTensor, at: [usize; 2], size: [usize; 2]) -> HostTensor {
    let (w, h) = (input.dim(0), input.dim(1));
    let planes = input.len() / (w * h);
    let mut shape = input.shape.clone();
    (shape[0], shape[1]) = (size[0], size[1]);
    let mut data = Vec::with_capacity(size[0] * size[1] * planes);
    for plane in input.data.chunks_exact(w * h) {
        for y in 0..size[1] {
            let row = &plane[(at[1] + y) % h * w..][..w];
            data.extend((0..size[0]).map(|x| row[(at[0] + x) % w]));
        }
    }
    HostTensor { shape, data }
}

/// Adds a weighted tile.
fn blend(tile: &HostTensor, output: &mut HostTensor, at: [usize; 2], fade: &[Vec<f32>; 2]) {
    let (w, h) = (output.dim(0), output.dim(1));
    let (tw, th) = (tile.dim(0), tile.dim(1));
    for (from, to) in tile.data.chunks_exact(tw * th).zip(output.data.chunks_exact_mut(w * h)) {
        for y in 0..th {
            let row = &mut to[(at[1] + y) % h * w..][..w];
            for x in 0..tw {
                row[(at[0] + x) % w] += from[y * tw + x] * fade[0][x] * fade[1][y];
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_of_all_tiles_add_up_to_one() {
        for extent in 5..80 {
            for tile in [4, 7, 16, 32] {
                for target in [0.0, 0.25, 0.5] {
                    let axis = Axis::new(extent, tile, target, false);
                    let mut sum = vec![0.0; extent];
                    for i in 0..axis.starts.len() {
                        for (j, w) in weights(&axis, i, 1, extent, false).iter().enumerate() {
                            sum[axis.starts[i].0 + j] += w;
                        }
                    }
                    assert!(sum.iter().all(|&s| s > 0.0), "{extent} {tile} {target}: {sum:?}");
                }
            }
        }
    }

    #[test]
    fn a_picture_of_one_tile_comes_back_as_it_is() {
        let input = HostTensor::new([6, 5, 2], (0..60).map(|i| i as f32).collect()).unwrap();
        let tiles = Tiles { size: [8, 8], overlap: 0.5, circular: [false; 2] };
        let output = process(&input, (1, true), &tiles, &mut |_, _| {}, &mut |t| Ok(t.clone())).unwrap();
        assert_eq!(output, input);
    }
}
