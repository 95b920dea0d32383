//! Two schedules side by side: semantic channels run ahead of the texture channels.
#![forbid(unsafe_code)]

use super::super::prediction::TIMESTEPS;

/// Channels of a latent with a dual schedule; the first [`DUAL_SEMANTIC_CHANNELS`] are the semantic ones.
pub const DUAL_CHANNELS: usize = 144;
/// Semantic channels.
pub const DUAL_SEMANTIC_CHANNELS: usize = 16;

/// N + 1 sigmas and times of each part.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DualSchedule {
    /// Sigmas of the semantic channels, 1 down to 0.001.
    pub semantic_sigmas: Vec<f32>,
    /// Sigmas of the texture channels.
    pub texture_sigmas: Vec<f32>,
    /// 1000 times the semantic sigmas, as the network is told.
    pub semantic_times: Vec<f32>,
    /// 1000 times the texture sigmas.
    pub texture_times: Vec<f32>,
}

impl DualSchedule {
    /// `alpha` shifts time as a flow shift does, `delta` is the lead of the semantic channels (share of the
    /// whole).
    pub(super) fn new(n: usize, alpha: f32, delta: f32) -> Self {
        let mut dual = Self::default();
        for i in 0..=n {
            let u = i as f32 / n as f32;
            let shifted = if alpha == 1.0 { u } else { (alpha * u) / (1.0 + (alpha - 1.0) * u) };
            let ahead = shifted * (1.0 + delta);
            let semantic = time(ahead.min(1.0));
            let texture = time((ahead - delta).clamp(0.0, 1.0));
            dual.semantic_times.push(semantic);
            dual.texture_times.push(texture);
            dual.semantic_sigmas.push(semantic / TIMESTEPS as f32);
            dual.texture_sigmas.push(texture / TIMESTEPS as f32);
        }
        dual
    }

    /// Times (semantic, texture) of a step number of the samplers, which counts from 1 and may be negative.
    pub fn times(&self, step: i32) -> Option<[f32; 2]> {
        let last = self.texture_times.len().checked_sub(1)?;
        let index = usize::try_from(step.max(1) - 1).unwrap_or(0).min(last);
        Some([self.semantic_times[index], self.texture_times[index]])
    }
}

/// Training time, 1000 down to 1, at progress `u` in 0..=1.
fn time(u: f32) -> f32 {
    let last = (TIMESTEPS - 1) as f32;
    TIMESTEPS as f32 - (u * last).trunc().clamp(0.0, last)
}
