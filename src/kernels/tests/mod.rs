//! Kernels against double precision, on every path of the machine.

mod attention;
mod conv;
mod ggml_types;
mod matmul;
mod norms;

/// Repeatable values in -1 .. 1.
pub(super) struct Values(u64);

impl Values {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(super) fn next(&mut self) -> f32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 40) as f32 / (1 << 23) as f32 - 1.0
    }

    pub(super) fn many(&mut self, count: usize) -> Vec<f32> {
        (0..count).map(|_| self.next()).collect()
    }
}

/// Root mean square of the difference over that of the reference.
pub(super) fn relative_rms(ours: &[f32], exact: &[f64]) -> f64 {
    assert_eq!(ours.len(), exact.len());
    let error: f64 = ours.iter().zip(exact).map(|(&a, &b)| (f64::from(a) - b).powi(2)).sum();
    let size: f64 = exact.iter().map(|b| b * b).sum();
    (error / size.max(1e-30)).sqrt()
}
