use super::{Values, relative_rms};
use crate::kernels::*;
use half::f16;

#[derive(Clone, Copy)]
struct Case {
    shape: AttentionShape,
    half: bool,
    /// 0: none, 1: shared by heads, 2: one per head.
    mask: usize,
    precision: Precision,
}

struct Operand {
    bytes: Vec<u8>,
    values: Vec<f32>,
}

fn operand(count: usize, seed: u64, half: bool, size: f32) -> Operand {
    let values: Vec<f32> = Values::new(seed).many(count).into_iter().map(|v| v * size).collect();
    if half {
        let values: Vec<f16> = values.into_iter().map(f16::from_f32).collect();
        return Operand {
            bytes: values.iter().flat_map(|v| v.to_le_bytes()).collect(),
            values: values.iter().map(|v| v.to_f32()).collect(),
        };
    }
    Operand { bytes: values.iter().flat_map(|v| v.to_le_bytes()).collect(), values }
}

impl Case {
    fn new(head: usize, heads: usize, queries: usize, keys: usize) -> Self {
        let scale = 1.0 / (head as f32).sqrt();
        let shape =
            AttentionShape { head, value: head, heads, kv_heads: heads, queries, keys, batch: 1, scale };
        Self { shape, half: false, mask: 0, precision: Precision::Accurate }
    }

    fn operands(&self) -> [Operand; 4] {
        let s = &self.shape;
        let mask_heads = if self.mask == 2 { s.heads } else { 1 };
        let mut mask = operand(s.keys * s.queries * mask_heads, 14, self.half, 3.0);
        // Some keys are not seen, and the last query sees none.
        for (i, value) in mask.values.iter_mut().enumerate() {
            if *value < -1.5 || i / s.keys % s.queries == s.queries - 1 {
                *value = f32::NEG_INFINITY;
            }
        }
        mask.bytes = if self.half {
            mask.values.iter().flat_map(|&v| f16::from_f32(v).to_le_bytes()).collect()
        } else {
            mask.values.iter().flat_map(|v| v.to_le_bytes()).collect()
        };
        [
            operand(s.head * s.heads * s.queries * s.batch, 11, false, 3.0),
            operand(s.head * s.kv_heads * s.keys * s.batch, 12, self.half, 3.0),
            operand(s.value * s.kv_heads * s.keys * s.batch, 13, self.half, 1.0),
            mask,
        ]
    }

    fn run(&self, path: CpuPath, nth: usize) -> Vec<f32> {
        let s = self.shape;
        let operands = self.operands();
        let mut y = vec![f32::NAN; s.value * s.heads * s.queries * s.batch];
        let plan = Attention::on(path, s, self.precision).unwrap();
        let pointers: Vec<usize> = operands.iter().map(|o| o.bytes.as_ptr() as usize).collect();
        let out = y.as_mut_ptr() as usize;
        run_team(nth, plan.scratch_bytes(nth), |team| {
            // All operands as [head, heads, tokens, batch] in memory.
            let view = |i: usize, half: bool, head: usize, heads: usize, tokens: usize| {
                let bytes = if half { 2 } else { 4 };
                Heads {
                    data: pointers[i] as *const u8,
                    kind: if half { WeightType::F16 } else { WeightType::F32 },
                    strides: [head * heads * bytes, head * bytes, head * heads * tokens * bytes],
                }
            };
            let row = s.keys * if self.half { 2 } else { 4 };
            let mask = Heads {
                strides: [row, if self.mask == 2 { row * s.queries } else { 0 }, 0],
                ..view(3, self.half, 1, 1, 1)
            };
            let args = AttentionArgs {
                q: view(0, false, s.head, s.heads, s.queries),
                k: view(1, self.half, s.head, s.kv_heads, s.keys),
                v: view(2, self.half, s.value, s.kv_heads, s.keys),
                mask: (self.mask > 0).then_some(mask),
                y: out as *mut f32,
            };
            // SAFETY: all operands are the vectors above.
            assert!(unsafe { plan.run(&args, team) });
        });
        y
    }

    fn exact(&self) -> Vec<f64> {
        let s = self.shape;
        let [q, k, v, mask] = self.operands();
        let mut y = vec![];
        for b in 0..s.batch {
            for i in 0..s.queries {
                for h in 0..s.heads {
                    let kv = h / (s.heads / s.kv_heads);
                    let query = &q.values[((b * s.queries + i) * s.heads + h) * s.head..][..s.head];
                    let weights: Vec<f64> = (0..s.keys)
                        .map(|j| {
                            let key = &k.values[((b * s.keys + j) * s.kv_heads + kv) * s.head..][..s.head];
                            let dot: f64 =
                                query.iter().zip(key).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum();
                            let m = match self.mask {
                                0 => 0.0,
                                1 => mask.values[i * s.keys + j],
                                _ => mask.values[(h * s.queries + i) * s.keys + j],
                            };
                            (dot * f64::from(s.scale) + f64::from(m)).exp()
                        })
                        .collect();
                    let sum: f64 = weights.iter().sum();
                    for c in 0..s.value {
                        let total: f64 = weights
                            .iter()
                            .enumerate()
                            .map(|(j, w)| {
                                w * f64::from(v.values[((b * s.keys + j) * s.kv_heads + kv) * s.value + c])
                            })
                            .sum();
                        y.push(if sum > 0.0 { total / sum } else { 0.0 });
                    }
                }
            }
        }
        y
    }

    fn check(&self, limit: f64) {
        let exact = self.exact();
        for path in available_paths() {
            let one = self.run(path, 1);
            let error = relative_rms(&one, &exact);
            assert!(error < limit, "{path:?} {:?}: {error:e}", self.shape);
            for nth in [2, 3] {
                assert!(self.run(path, nth) == one, "{path:?} {:?} differs with {nth} threads", self.shape);
            }
        }
    }
}

#[test]
fn sizes_and_tails() {
    for (head, heads, queries, keys) in [
        (1, 1, 1, 1),
        (40, 2, 70, 77),
        (64, 2, 33, 300),
        (80, 1, 17, 513),
        (128, 1, 16, 32),
        (160, 2, 31, 15),
        (512, 1, 40, 270),
        (33, 3, 130, 257),
        (64, 1, 300, 16),
    ] {
        Case::new(head, heads, queries, keys).check(2e-5);
    }
}

#[test]
fn masks_halves_shared_heads_and_batches() {
    for mask in 0..3 {
        for half in [false, true] {
            let case = Case::new(48, 4, 35, 290);
            let shape = AttentionShape { kv_heads: 2, value: 24, batch: 2, ..case.shape };
            Case { shape, mask, half, ..case }.check(2e-5);
        }
    }
}

#[test]
fn fast_is_one_bf16_product() {
    Case { precision: Precision::Fast, ..Case::new(64, 2, 40, 300) }.check(3e-2);
}

#[test]
fn impossible_shapes_are_refused() {
    for path in available_paths() {
        let good = Case::new(8, 4, 4, 4).shape;
        assert!(Attention::on(path, good, Precision::Accurate).is_some());
        for bad in [
            AttentionShape { head: 0, ..good },
            AttentionShape { kv_heads: 3, ..good },
            AttentionShape { head: 2000, ..good },
            AttentionShape { scale: f32::NAN, ..good },
        ] {
            assert!(Attention::on(path, bad, Precision::Accurate).is_none());
        }
    }
}
