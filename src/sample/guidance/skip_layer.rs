//! Skip-layer guidance: in a window of steps the prediction is pushed away from that of a network without
//! some layers.
#![forbid(unsafe_code)]

/// Layers, strength and window.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SkipLayers {
    /// Indices of the blocks that are skipped; empty turns it off.
    pub layers: Vec<i32>,
    /// Strength; with 0 only `slg_uncond` has an effect.
    pub scale: f32,
    /// Start of the window as a share of the schedule.
    pub start: f32,
    /// End of the window as a share of the schedule.
    pub stop: f32,
}

impl SkipLayers {
    /// Whether the window holds `step` (1 to N; the first halves of two-part steps are negative and never in
    /// it) of a schedule of `sigmas` values (N + 1).
    pub fn enabled(&self, step: i32, sigmas: usize) -> bool {
        if self.layers.is_empty() || sigmas == 0 {
            return false;
        }
        let bound = |share: f32| (share * sigmas as f32) as i32;
        step > bound(self.start) && step < bound(self.stop)
    }

    /// Adds the difference to the prediction without skipped layers, `positive - skipped`, times the scale.
    pub fn apply(&self, positive: &[f32], skipped: &[f32], out: &mut [f32]) {
        for ((o, &c), &s) in out.iter_mut().zip(positive).zip(skipped) {
            *o += (c - s) * self.scale;
        }
    }
}
