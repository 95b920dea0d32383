//! Euler on two schedules: the first channels of the latent follow their own sigmas.
#![forbid(unsafe_code)]

use super::super::schedule::{DUAL_SEMANTIC_CHANNELS, DualSchedule};
use super::{Sampling, number};
use crate::error::{Error, Result};

/// `x` is `[width, height, channels, 1]`, the semantic channels first.
pub(super) fn run(s: &mut Sampling<'_>, dual: &DualSchedule) -> Result<()> {
    let split = s.x.dim(0) * s.x.dim(1) * DUAL_SEMANTIC_CHANNELS;
    if split > s.x.len() {
        return Err(Error::shape("dual schedule", format!("latent of shape {:?}", s.x.shape)));
    }
    let (texture, semantic) = (&dual.texture_sigmas, &dual.semantic_sigmas);
    for i in 0..texture.len().saturating_sub(1) {
        let sigma = texture[i];
        if sigma > 1e-9 {
            s.evaluate(sigma, number(i))?;
            let (x_semantic, x_texture) = s.x.data.split_at_mut(split);
            let (d_semantic, d_texture) = s.ws.out.pred.data.split_at(split);
            let dt = semantic[i + 1] - semantic[i];
            super::ops::each(x_semantic, d_semantic, |x, denoised| x + (x - denoised) / sigma * dt);
            let dt = texture[i + 1] - sigma;
            super::ops::each(x_texture, d_texture, |x, denoised| x + (x - denoised) / sigma * dt);
        }
        s.end_step(i)?;
    }
    Ok(())
}
