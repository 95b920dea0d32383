use super::{Values, relative_rms};
use crate::kernels::*;
use half::{bf16, f16};

/// A weight matrix in some type, with its exact values.
struct Weight {
    kind: WeightType,
    bytes: Vec<u8>,
    stride: usize,
    values: Vec<f32>,
}

fn block_values(kind: WeightType, block: &[u8]) -> Vec<f32> {
    let half = |i: usize| f16::from_bits(u16::from_le_bytes([block[i], block[i + 1]])).to_f32();
    let nibble = |base: usize, j: usize| {
        let q = block[base + j % 16];
        i32::from(if j < 16 { q & 15 } else { q >> 4 })
    };
    let bit = |base: usize, j: usize| i32::from(block[base + j / 8] >> (j % 8) & 1) * 16;
    (0..32)
        .map(|j| match kind {
            WeightType::Q8_0 => half(0) * f32::from(block[2 + j] as i8),
            WeightType::Q4_0 => half(0) * (nibble(2, j) - 8) as f32,
            WeightType::Q4_1 => half(0) * nibble(4, j) as f32 + half(2),
            WeightType::Q5_0 => half(0) * (nibble(6, j) + bit(2, j) - 16) as f32,
            WeightType::Q5_1 => half(0) * (nibble(8, j) + bit(4, j)) as f32 + half(2),
            _ => unreachable!(),
        })
        .collect()
}

unsafe extern "C-unwind" fn halves_by_function(src: *const std::ffi::c_void, dst: *mut f32, count: i64) {
    for i in 0..count as usize {
        // SAFETY: the kernel asks for values of the row only.
        unsafe { *dst.add(i) = f16::from_bits(src.cast::<u16>().add(i).read_unaligned()).to_f32() };
    }
}

fn weight(kind: WeightType, n: usize, k: usize, seed: u64) -> Weight {
    let mut random = Values::new(seed);
    let mut bytes = Vec::new();
    let mut values = Vec::new();
    for _ in 0..n {
        match kind {
            WeightType::F32 => {
                for v in random.many(k) {
                    bytes.extend(v.to_le_bytes());
                    values.push(v);
                }
            }
            WeightType::Bf16 => {
                for v in random.many(k).into_iter().map(bf16::from_f32) {
                    bytes.extend(v.to_le_bytes());
                    values.push(v.to_f32());
                }
            }
            WeightType::F16 | WeightType::Other { .. } => {
                for v in random.many(k).into_iter().map(f16::from_f32) {
                    bytes.extend(v.to_le_bytes());
                    values.push(v.to_f32());
                }
            }
            _ => {
                for _ in 0..k / 32 {
                    let mut block: Vec<u8> =
                        (0..kind.block_bytes()).map(|_| (random.next() * 128.0) as i8 as u8).collect();
                    block[..2].copy_from_slice(&f16::from_f32(random.next() * 0.1).to_le_bytes());
                    if matches!(kind, WeightType::Q4_1 | WeightType::Q5_1) {
                        block[2..4].copy_from_slice(&f16::from_f32(random.next()).to_le_bytes());
                    }
                    values.extend(block_values(kind, &block));
                    bytes.extend(block);
                }
            }
        }
    }
    Weight { kind, stride: bytes.len() / n, bytes, values }
}

struct Case {
    m: usize,
    n: usize,
    k: usize,
    activation: Activation,
    fused: bool,
    precision: Precision,
    packed: bool,
}

impl Case {
    fn plain(m: usize, n: usize, k: usize) -> Self {
        Self {
            packed: false,
            m,
            n,
            k,
            activation: Activation::None,
            fused: false,
            precision: Precision::Accurate,
        }
    }

    fn run(&self, path: CpuPath, w: &Weight, nth: usize) -> Vec<f32> {
        let x = Values::new(7).many(self.m * (self.k + 3));
        let bias = Values::new(8).many(self.n);
        let residual = Values::new(9).many(self.m * (self.n + 5));
        let mut y = residual.clone();
        let plan = MatMul::on(path, self.m, self.n, self.k, w.kind, self.precision)
            .unwrap()
            .with_activation(self.activation);
        let mut packed = vec![0u8; plan.prepack_bytes() + 64];
        let at = packed.as_ptr().align_offset(64);
        let packed = packed[at..].as_mut_ptr();
        if self.packed {
            // SAFETY: w holds the weights, `packed` the bytes asked for, aligned.
            unsafe { plan.prepack(w.bytes.as_ptr(), w.stride, packed) };
        }
        let packed = if self.packed { packed as usize } else { 0 };
        let out = y.as_mut_ptr() as usize;
        let sources = (
            x.as_ptr() as usize,
            w.bytes.as_ptr() as usize,
            bias.as_ptr() as usize,
            residual.as_ptr() as usize,
        );
        run_team(nth, plan.scratch_bytes(nth), |team| {
            let args = MatMulArgs {
                x: sources.0 as *const u8,
                x_stride: (self.k + 3) * 4,
                w: sources.1 as *const u8,
                w_stride: w.stride,
                packed: packed as *const u8,
                bias: if self.fused { sources.2 as *const f32 } else { std::ptr::null() },
                residual: if self.fused { sources.3 as *const f32 } else { std::ptr::null() },
                residual_stride: (self.n + 5) * 4,
                y: out as *mut f32,
                y_stride: (self.n + 5) * 4,
            };
            // SAFETY: all operands are the vectors above, with these strides.
            assert!(unsafe { plan.run(&args, team) });
        });
        y
    }

    fn exact(&self, w: &Weight) -> Vec<f64> {
        let x = Values::new(7).many(self.m * (self.k + 3));
        let bias = Values::new(8).many(self.n);
        let mut y: Vec<f64> = Values::new(9).many(self.m * (self.n + 5)).into_iter().map(f64::from).collect();
        for m in 0..self.m {
            for n in 0..self.n {
                let row = &x[m * (self.k + 3)..][..self.k];
                let column = &w.values[n * self.k..][..self.k];
                let mut sum: f64 = row.iter().zip(column).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum();
                let at = &mut y[m * (self.n + 5) + n];
                if self.fused {
                    sum += f64::from(bias[n]);
                }
                if self.activation == Activation::Silu {
                    sum /= 1.0 + (-sum).exp();
                }
                *at = if self.fused { *at + sum } else { sum };
            }
        }
        y
    }

    fn check(&self, kind: WeightType, limit: f64) {
        let w = weight(kind, self.n, self.k, (self.m * 31 + self.n * 7 + self.k) as u64);
        let exact = self.exact(&w);
        for path in available_paths() {
            let one = self.run(path, &w, 1);
            let error = relative_rms(&one, &exact);
            assert!(error < limit, "{path:?} {kind:?} {}x{}x{}: {error:e}", self.m, self.n, self.k);
            for nth in [2, 3] {
                assert!(self.run(path, &w, nth) == one, "{path:?} differs with {nth} threads");
            }
        }
    }
}

#[test]
fn every_shape_of_tails() {
    for (m, n, k) in [
        (1, 1, 1),
        (1, 17, 33),
        (6, 40, 300),
        (7, 1, 1),
        (8, 16, 32),
        (15, 15, 31),
        (16, 17, 32),
        (17, 16, 33),
        (31, 33, 64),
        (32, 32, 256),
        (33, 47, 257),
        (48, 64, 288),
        (77, 96, 320),
        (100, 450, 100),
        (600, 40, 70),
        (1100, 5, 260),
        (33, 40, 2100),
        (20, 100, 2100),
    ] {
        Case::plain(m, n, k).check(WeightType::F32, 1e-5);
        Case::plain(m, n, k).check(WeightType::F16, 1e-5);
    }
}

#[test]
fn every_weight_type() {
    let other = WeightType::Other { block: 1, bytes: 2, to_float: halves_by_function };
    for kind in [
        WeightType::F32,
        WeightType::F16,
        WeightType::Bf16,
        WeightType::Q8_0,
        WeightType::Q4_0,
        WeightType::Q4_1,
        WeightType::Q5_0,
        WeightType::Q5_1,
        other,
    ] {
        for m in [1, 5, 20, 70] {
            Case::plain(m, 50, 320).check(kind, 1e-5);
        }
    }
}

#[test]
fn weights_packed_before() {
    for (m, n, k) in [(1, 40, 64), (20, 40, 64), (100, 500, 96), (70, 33, 4200)] {
        Case { packed: true, ..Case::plain(m, n, k) }.check(WeightType::F16, 1e-5);
        Case { packed: true, ..Case::plain(m, n, k) }.check(WeightType::Bf16, 1e-5);
    }
}

#[test]
fn bias_activation_and_residual_are_fused() {
    for (m, n, k) in [(3, 20, 64), (40, 50, 96), (35, 33, 2080), (20, 90, 4128)] {
        let case = Case { activation: Activation::Silu, fused: true, ..Case::plain(m, n, k) };
        case.check(WeightType::F16, 1e-5);
    }
}

#[test]
fn fast_is_one_bf16_product() {
    let case = Case { precision: Precision::Fast, ..Case::plain(64, 64, 320) };
    case.check(WeightType::F16, 5e-3);
}

#[test]
fn rows_of_half_blocks_are_refused() {
    for path in available_paths() {
        assert!(MatMul::on(path, 4, 4, 33, WeightType::Q8_0, Precision::Accurate).is_none());
        assert!(MatMul::on(path, 0, 4, 32, WeightType::Q8_0, Precision::Accurate).is_none());
    }
}
