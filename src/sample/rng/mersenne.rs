//! MT19937 and the way `torch.randn` on a CPU turns its outputs into normal values.
#![forbid(unsafe_code)]

use std::f64::consts::TAU;

use rand_mt::Mt;

/// Draws of at least this many values use single precision in blocks.
const BLOCK: usize = 16;

/// `torch.Generator("cpu")`.
#[derive(Clone, Debug)]
pub struct TorchCpu {
    engine: Mt,
    /// Second value of a Box-Muller pair, kept for the next small draw.
    spare: Option<f64>,
}

impl TorchCpu {
    /// Only the low 32 bits of the seed count.
    pub fn new(seed: u64) -> Self {
        Self { engine: Mt::new(seed as u32), spare: None }
    }

    /// One draw. Below 16 values torch works in double precision and keeps a spare value between draws.
    pub fn normal(&mut self, out: &mut [f32]) {
        if out.len() < BLOCK {
            out.iter_mut().for_each(|value| *value = self.double() as f32);
            return;
        }
        self.uniform(out);
        let mut blocks = out.chunks_exact_mut(BLOCK);
        blocks.by_ref().for_each(transform);
        if !blocks.into_remainder().is_empty() {
            // The last block is drawn anew and overlaps the one before it.
            let start = out.len() - BLOCK;
            self.uniform(&mut out[start..]);
            transform(&mut out[start..]);
        }
    }

    /// Uniform in [0, 1) with 24 bits.
    fn uniform(&mut self, out: &mut [f32]) {
        for value in out {
            *value = (self.engine.next_u32() & 0x00ff_ffff) as f32 * (1.0 / 16_777_216.0);
        }
    }

    /// Uniform in [0, 1) with 53 bits; the high half is drawn first.
    fn uniform_double(&mut self) -> f64 {
        let high = u64::from(self.engine.next_u32());
        let bits = high << 32 | u64::from(self.engine.next_u32());
        (bits & ((1 << 53) - 1)) as f64 * (1.0 / 9_007_199_254_740_992.0)
    }

    fn double(&mut self) -> f64 {
        if let Some(value) = self.spare.take() {
            return value;
        }
        let u1 = self.uniform_double();
        let u2 = self.uniform_double();
        let r = (-2.0 * (-u2).ln_1p()).sqrt();
        let theta = TAU * u1;
        self.spare = Some(r * theta.sin());
        r * theta.cos()
    }
}

/// Box-Muller on a block: values `j` and `j + 8` make a pair.
fn transform(block: &mut [f32]) {
    let (first, second) = block.split_at_mut(BLOCK / 2);
    for (a, b) in first.iter_mut().zip(second) {
        let r = (-2.0 * (1.0 - *a).ln()).sqrt();
        let theta = std::f32::consts::TAU * *b;
        *a = r * theta.cos();
        *b = r * theta.sin();
    }
}
