//! The default engine of libstdc++ (`minstd_rand0`) and its polar normal distribution.
#![forbid(unsafe_code)]

const MULTIPLIER: u64 = 16_807;
const MODULUS: u64 = 2_147_483_647;

/// `std::default_random_engine` of libstdc++.
#[derive(Clone, Debug)]
pub struct StdDefault {
    state: u64,
}

impl StdDefault {
    /// Only the low 32 bits of the seed count, as with `unsigned int`.
    pub fn new(seed: u64) -> Self {
        let state = (seed & 0xffff_ffff) % MODULUS;
        Self { state: if state == 0 { 1 } else { state } }
    }

    fn next(&mut self) -> u64 {
        self.state = self.state * MULTIPLIER % MODULUS;
        self.state
    }

    /// Uniform in [0, 1): one output of the engine gives more than the 24 bits a float needs.
    fn canonical(&mut self) -> f32 {
        let value = (self.next() - 1) as f32 / (MODULUS - 1) as f32;
        if value >= 1.0 { 1.0f32.next_down() } else { value }
    }

    /// One draw: values come in pairs, the second of an odd draw is dropped.
    pub fn normal(&mut self, out: &mut [f32]) {
        for pair in out.chunks_mut(2) {
            let (x, y, r2) = loop {
                let x = 2.0 * self.canonical() - 1.0;
                let y = 2.0 * self.canonical() - 1.0;
                let r2 = x * x + y * y;
                if r2 <= 1.0 && r2 != 0.0 {
                    break (x, y, r2);
                }
            };
            let scale = (-2.0 * r2.ln() / r2).sqrt();
            pair[0] = y * scale;
            if let Some(second) = pair.get_mut(1) {
                *second = x * scale;
            }
        }
    }
}
