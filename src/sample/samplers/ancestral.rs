//! How much noise an ancestral step removes and adds again.
#![forbid(unsafe_code)]

/// A step that goes down to `sigma_down` and then adds noise of `sigma_up`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct AncestralStep {
    /// Sigma that the deterministic part reaches.
    pub down: f32,
    /// Standard deviation of the noise that is added.
    pub up: f32,
    /// Factor of the latent before noise is added, 1 outside flows.
    pub scale: f32,
}

/// The step for variance-exploding models or for flows.
pub(super) fn ancestral_step(from: f32, to: f32, eta: f32, flow: bool) -> AncestralStep {
    if flow { flow_step(from, to, eta) } else { exploding_step(from, to, eta) }
}

/// Variances add: `down^2 + up^2 = to^2`.
pub(super) fn exploding_step(from: f32, to: f32, eta: f32) -> AncestralStep {
    if eta <= 0.0 {
        return AncestralStep { down: to, up: 0.0, scale: 1.0 };
    }
    let (from2, to2) = (from * from, to * to);
    let mut up = 0.0;
    if from2 > 0.0 {
        let variance = to2 * (from2 - to2) / from2;
        up = to.min(eta * variance.max(0.0).sqrt());
    }
    let down2 = to2 - up * up;
    AncestralStep { down: if down2 > 0.0 { down2.sqrt() } else { 0.0 }, up, scale: 1.0 }
}

/// The latent shrinks so that after adding noise its share is `1 - to`. Above 1, `eta` would give impossible
/// variances and counts as 1.
pub(super) fn flow_step(from: f32, to: f32, eta: f32) -> AncestralStep {
    let plain = AncestralStep { down: to, up: 0.0, scale: 1.0 };
    if eta <= 0.0 || from <= 0.0 || to <= 0.0 {
        return plain;
    }
    let eta = eta.min(1.0);
    let down = (to * (1.0 + (to / from - 1.0) * eta)).min(to).max(0.0);
    if 1.0 - down <= 0.0 {
        return plain;
    }
    let scale = (1.0 - to) / (1.0 - down);
    let kept = ((down / to) * scale).clamp(-1.0, 1.0);
    AncestralStep { down, up: to * (1.0 - kept * kept).max(0.0).sqrt(), scale }
}
