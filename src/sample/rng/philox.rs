//! Philox 4x32-10 (Salmon et al. 2011) with the counters that PyTorch uses on CUDA.
#![forbid(unsafe_code)]

const ROUNDS: usize = 10;
const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
const TWO_POW32_INV: f32 = 2.328_306_4e-10;
const TWO_POW32_INV_2PI: f32 = TWO_POW32_INV * std::f32::consts::TAU;

/// Counter-based generator: value `i` of draw `d` depends on (seed, d, i) alone.
#[derive(Clone, Debug)]
pub struct Philox {
    seed: u64,
    draw: u32,
}

impl Philox {
    /// Starts at the first draw.
    pub fn new(seed: u64) -> Self {
        Self { seed, draw: 0 }
    }

    /// One draw.
    pub fn normal(&mut self, out: &mut [f32]) {
        let key = [self.seed as u32, (self.seed >> 32) as u32];
        for (i, value) in out.iter_mut().enumerate() {
            let random = rounds([self.draw, 0, i as u32, 0], key);
            *value = box_muller(random[0] as f32, random[1] as f32);
        }
        self.draw = self.draw.wrapping_add(1);
    }
}

fn rounds(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for _ in 0..ROUNDS {
        let a = u64::from(counter[0]) * u64::from(MULTIPLIERS[0]);
        let b = u64::from(counter[2]) * u64::from(MULTIPLIERS[1]);
        counter = [
            (b >> 32) as u32 ^ counter[1] ^ key[0],
            b as u32,
            (a >> 32) as u32 ^ counter[3] ^ key[1],
            a as u32,
        ];
        key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
    }
    counter
}

fn box_muller(x: f32, y: f32) -> f32 {
    let u = x * TWO_POW32_INV + TWO_POW32_INV / 2.0;
    let v = y * TWO_POW32_INV_2PI + TWO_POW32_INV_2PI / 2.0;
    // Logarithm and sine in double precision, as the reference's compiler chose them.
    let radius = (-2.0 * f64::from(u).ln()).sqrt() as f32;
    (f64::from(radius) * f64::from(v).sin()) as f32
}
