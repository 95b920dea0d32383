//! Encoding and decoding pictures, whole or in tiles.
#![forbid(unsafe_code)]

use std::time::Instant;

use super::tiling::{Tiles, process};
use crate::engine::request::Tiling;
use crate::error::Result;
use crate::family::Autoencoder;
use crate::layer::Env;
use crate::report::Callbacks;
use crate::sample::Rng;
use crate::tensor::HostTensor;

/// Tiles of encoders are larger: they look further around than decoders.
const ENCODE_FACTOR: f32 = 2.0;

/// How the autoencoder works during one generation.
#[derive(Clone)]
pub(super) struct Coding<'a> {
    /// Tiles of the request.
    pub tiling: &'a Tiling,
    /// Whether the whole picture wraps around.
    pub circular: [bool; 2],
    /// Latent of the request in pixels; decides whether its axes are split.
    pub latent: [usize; 2],
    /// Whom to tell about tiles.
    pub report: Option<&'a Callbacks>,
}

impl Coding<'_> {
    /// Wrapping of the network itself and of the tiles: an axis that is cut wraps between its tiles.
    fn circular(&self) -> ([bool; 2], [bool; 2]) {
        if !self.tiling.enabled {
            return (self.circular, [false; 2]);
        }
        let tiles = Tiles::new(self.tiling, self.latent, 1.0);
        let split = [0, 1].map(|axis| tiles.splits(axis, self.latent));
        let inner = [0, 1].map(|axis| self.circular[axis] && !split[axis]);
        (inner, [0, 1].map(|axis| self.circular[axis] && split[axis]))
    }

    /// The denoiser's latent of `pixels` (`[W, H, C, N]`, 0 to 1).
    pub(super) fn encode(
        &self,
        coder: &mut dyn Autoencoder,
        env: &Env<'_>,
        pixels: &HostTensor,
        rng: &mut Rng,
    ) -> Result<HostTensor> {
        let (inner, outer) = self.circular();
        let env = Env { circular: inner, ..*env };
        let factor = coder.factor();
        let encoded = if self.tiling.enabled && factor > 1 {
            let latent = [pixels.dim(0) / factor, pixels.dim(1) / factor];
            let tiles = Tiles { circular: outer, ..Tiles::new(self.tiling, latent, ENCODE_FACTOR) };
            self.tiled(pixels, (factor, false), &tiles, &mut |tile| coder.encode(&env, tile))
        } else {
            coder.encode(&env, pixels)
        };
        free(coder);
        coder.to_latent(encoded?, rng)
    }

    /// Pixels (`[W, H, C, N]`, 0 to 1) of the denoiser's latent.
    pub(super) fn decode(
        &self,
        coder: &mut dyn Autoencoder,
        env: &Env<'_>,
        latent: &HostTensor,
    ) -> Result<HostTensor> {
        let (inner, outer) = self.circular();
        let env = Env { circular: inner, ..*env };
        let factor = coder.factor();
        let latent = coder.to_coder_latent(latent)?;
        let decoded = if self.tiling.enabled && factor > 1 {
            let size = [latent.dim(0), latent.dim(1)];
            let tiles = Tiles { circular: outer, ..Tiles::new(self.tiling, size, 1.0) };
            self.tiled(&latent, (factor, true), &tiles, &mut |tile| coder.decode(&env, tile))
        } else {
            coder.decode(&env, &latent)
        };
        free(coder);
        let mut pixels = decoded?;
        pixels.data.iter_mut().for_each(|v| *v = if v.is_nan() { 0.0 } else { v.clamp(0.0, 1.0) });
        Ok(pixels)
    }

    fn tiled(
        &self,
        input: &HostTensor,
        scale: (usize, bool),
        tiles: &Tiles,
        work: &mut dyn FnMut(&HostTensor) -> Result<HostTensor>,
    ) -> Result<HostTensor> {
        let mut last = Instant::now();
        let mut progress = |done: usize, of: usize| {
            if let Some(report) = self.report {
                let seconds = if done == 0 { 0.0 } else { last.elapsed().as_secs_f32() };
                last = Instant::now();
                report.progress(count(done), count(of), seconds);
            }
        };
        process(input, scale, tiles, &mut progress, work)
    }
}

/// The memory of intermediate values is large and not needed until the next picture.
fn free(coder: &mut dyn Autoencoder) {
    for runner in coder.runners() {
        runner.rest();
    }
}

/// A count for a callback.
pub(super) fn count(n: usize) -> i32 {
    i32::try_from(n).unwrap_or(i32::MAX)
}
