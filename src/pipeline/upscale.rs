//! Enlarging pictures by a network.
#![forbid(unsafe_code)]

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use super::autoencode::count;
use super::tiling::{Tiles, process};
use crate::error::{Error, Result};
use crate::files::ModelFile;
use crate::layer::{Env, Runner};
use crate::net::esrgan::EsrganModel;
use crate::report::Callbacks;
use crate::tensor::HostTensor;
use crate::weights::names::{Dialect, canonical};
use crate::weights::{Index, TypePolicy};

/// A network that enlarges pixels `[W, H, 3, N]` (0 to 1) by its own factor.
pub trait PixelUpscaler {
    /// The enlarged pixels.
    fn upscale(&mut self, pixels: &HostTensor) -> Result<HostTensor>;
}

/// Share of a tile that neighbours share.
const OVERLAP: f32 = 0.25;
/// Side of a tile in pixels where none is wished for.
const TILE: usize = 256;
/// Longest side in pixels that is not cut where no tile is wished for.
const WHOLE: usize = 512;
/// Smallest tile side in pixels: below it tiles share no pixel.
const MIN_TILE: usize = 8;
/// Colours of a picture.
const COLOURS: usize = 3;

/// An upscaling network and the tiles it works on.
pub struct TiledUpscaler {
    model: EsrganModel,
    /// Side in pixels; 0: chosen by the picture.
    tile: usize,
    /// Pixels along a side that the network takes as channels of one.
    fold: usize,
}

impl TiledUpscaler {
    /// The network in `path`, which the parameter `field` gave. A `tile` of 0 or less leaves its side open.
    pub fn open(path: &Path, tile: i32, field: &str) -> Result<Self> {
        let file = ModelFile::open(path).map_err(|error| Error::Invalid(format!("{field}: {error}")))?;
        let mut index = Index::default();
        index.add(Arc::new(file), |name| Some(canonical(name, &Dialect::UPSCALER).into_owned()));
        let model = EsrganModel::load(&index, &TypePolicy::default(), field)?;
        let channels = model.net().channels();
        let fold = (channels / COLOURS).isqrt();
        if fold * fold * COLOURS != channels || fold == 0 || !model.net().scale().is_multiple_of(fold) {
            return Err(Error::Weights(format!(
                "{field}: the upscaler takes {channels} channels and enlarges {} times; 3, 12 or 48 are known",
                model.net().scale()
            )));
        }
        Ok(Self { model, tile: usize::try_from(tile).unwrap_or(0), fold })
    }

    /// Pixels per pixel along one axis.
    pub fn factor(&self) -> usize {
        self.model.net().scale() / self.fold
    }

    /// Weights and graph.
    pub fn runner(&mut self) -> &mut Runner {
        self.model.runner()
    }

    /// Enlarges pixels `[W, H, 3, 1]`, 0 to 1.
    pub fn enlarge(
        &mut self,
        env: &Env<'_>,
        pixels: &HostTensor,
        report: Option<&Callbacks>,
    ) -> Result<HostTensor> {
        let (factor, longest) = (self.factor(), pixels.dim(0).max(pixels.dim(1)));
        let tile = match self.tile {
            0 if longest <= WHOLE => longest,
            0 => TILE,
            side => side.max(MIN_TILE),
        };
        let result = if longest <= tile {
            self.run(env, pixels)
        } else {
            let tiles = Tiles { size: [tile; 2], overlap: OVERLAP, circular: [false; 2] };
            let mut last = Instant::now();
            let mut progress = |done: usize, of: usize| {
                let seconds = if done == 0 { 0.0 } else { last.elapsed().as_secs_f32() };
                last = Instant::now();
                if let Some(report) = report {
                    report.progress(count(done), count(of), seconds);
                }
            };
            process(pixels, (factor, true), &tiles, &mut progress, &mut |tile| {
                env.cancel.check()?;
                self.run(env, tile)
            })
        };
        self.model.runner().rest();
        result
    }

    /// One tile.
    fn run(&mut self, env: &Env<'_>, pixels: &HostTensor) -> Result<HostTensor> {
        let env = Env { circular: [false; 2], ..*env };
        if self.fold == 1 {
            return self.model.run(&env, pixels);
        }
        let size = [pixels.dim(0), pixels.dim(1)].map(|side| side * self.factor());
        let enlarged = self.model.run(&env, &folded(pixels, self.fold)?)?;
        cropped(&enlarged, size)
    }
}

/// `[W, H, C, 1]` to `[W / f, H / f, C f f, 1]`, in the order of pixel unshuffling (colour, row, column). Edges are
/// repeated where a side is no multiple of `f`.
fn folded(pixels: &HostTensor, f: usize) -> Result<HostTensor> {
    let [w, h, colours] = [0, 1, 2].map(|axis| pixels.dim(axis));
    let (width, height) = (w.div_ceil(f), h.div_ceil(f));
    let mut data = Vec::with_capacity(width * height * colours * f * f);
    for plane in pixels.data.chunks_exact(w * h) {
        for (row, column) in (0..f * f).map(|i| (i / f, i % f)) {
            for y in 0..height {
                let line = &plane[(y * f + row).min(h - 1) * w..][..w];
                data.extend((0..width).map(|x| line[(x * f + column).min(w - 1)]));
            }
        }
    }
    HostTensor::new([width, height, colours * f * f, 1], data)
}

/// The corner of `size` pixels.
fn cropped(pixels: &HostTensor, size: [usize; 2]) -> Result<HostTensor> {
    let (w, h) = (pixels.dim(0), pixels.dim(1));
    if w < size[0] || h < size[1] {
        return Err(Error::shape("upscaler", format!("{:?} came out, {size:?} was expected", pixels.shape)));
    }
    let planes = pixels.data.chunks_exact(w * h);
    let rows = planes.flat_map(|plane| plane.chunks_exact(w).take(size[1]));
    let data: Vec<f32> = rows.flat_map(|row| &row[..size[0]]).copied().collect();
    HostTensor::new([size[0], size[1], pixels.dim(2), pixels.dim(3)], data)
}

/// The upscaler of a second pass with what it needs to run.
pub struct StagedUpscaler<'a> {
    /// The network.
    pub upscaler: TiledUpscaler,
    /// Device and switches.
    pub env: Env<'a>,
    /// Whom to tell about tiles.
    pub report: &'a Callbacks,
}

impl PixelUpscaler for StagedUpscaler<'_> {
    fn upscale(&mut self, pixels: &HostTensor) -> Result<HostTensor> {
        self.upscaler.enlarge(&self.env, pixels, Some(self.report))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folding_keeps_every_pixel_and_repeats_edges() {
        let pixels = HostTensor::new([3, 2, 1, 1], (0..6).map(|i| i as f32).collect()).unwrap();
        let folded = folded(&pixels, 2).unwrap();
        assert_eq!(folded.shape, [2, 1, 4, 1]);
        assert_eq!(folded.data, [0.0, 2.0, 1.0, 2.0, 3.0, 5.0, 4.0, 5.0]);
        assert_eq!(cropped(&pixels, [2, 1]).unwrap().data, [0.0, 1.0]);
    }
}
