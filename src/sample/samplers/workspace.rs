//! Buffers of a sampler, reused from run to run.
#![forbid(unsafe_code)]

use crate::tensor::HostTensor;

/// What one evaluation of the guided model gives.
#[derive(Clone, Debug, Default)]
pub struct Denoised {
    /// The denoised latent.
    pub pred: HostTensor,
    /// The denoised latent without the prompt; filled for CFG++ samplers only.
    pub uncond: HostTensor,
}

/// Buffers in the shape of the latent. Keep it between generations: nothing is allocated while the shape
/// stays.
#[derive(Clone, Debug, Default)]
pub struct Workspace {
    /// Result of the last evaluation.
    pub(super) out: Denoised,
    /// Trial point of samplers with two evaluations per step.
    pub(super) x2: HostTensor,
    /// Derivative of the current step.
    pub(super) d: HostTensor,
    /// Derivatives or denoised latents of former steps, the latest first.
    pub(super) history: [HostTensor; 3],
    /// The last draw of noise.
    pub(super) noise: HostTensor,
}

impl Workspace {
    /// Gives all buffers the shape; their values are left undefined.
    pub(super) fn prepare(&mut self, shape: &[usize]) {
        let [first, second, third] = &mut self.history;
        for buffer in [
            &mut self.out.pred,
            &mut self.out.uncond,
            &mut self.x2,
            &mut self.d,
            &mut self.noise,
            first,
            second,
            third,
        ] {
            resize(buffer, shape);
        }
    }

    /// Puts the derivative `d` first in the history; `d` gets the oldest buffer for reuse.
    pub(super) fn remember_derivative(&mut self) {
        self.history.rotate_right(1);
        std::mem::swap(&mut self.history[0], &mut self.d);
    }

    /// Puts the denoised latent first in the history; the next evaluation overwrites the old one.
    pub(super) fn remember_denoised(&mut self) {
        std::mem::swap(&mut self.history[0], &mut self.out.pred);
    }
}

/// Gives `buffer` the shape; allocates only when it grows.
pub(in crate::sample) fn resize(buffer: &mut HostTensor, shape: &[usize]) {
    if buffer.shape != shape {
        buffer.shape.clear();
        buffer.shape.extend_from_slice(shape);
        buffer.data.resize(shape.iter().product(), 0.0);
    }
}
