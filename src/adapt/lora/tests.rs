//! Differences against the formulas written out, and what is done with odd files.

use std::collections::HashMap;

use super::*;
use crate::weights::names::{DENOISER, Dialect};
use crate::{HostTensor, Result};

/// Tensors of a made-up file and the weights of a made-up model.
#[derive(Default)]
struct File {
    entries: Vec<Entry>,
    data: Vec<Vec<f32>>,
    weights: Vec<(String, Vec<usize>)>,
}

impl File {
    /// A tensor given by its PyTorch shape, filled with values that repeat nowhere.
    fn tensor(mut self, name: &str, shape: &[usize]) -> Self {
        let count: usize = shape.iter().product();
        let seed = self.data.len() as f32 + 1.0;
        self.data.push((0..count).map(|i| ((i as f32 + 1.0) * seed * 0.37).sin()).collect());
        let shape = shape.iter().rev().copied().collect();
        self.entries.push(Entry { name: name.to_string(), shape });
        self
    }

    fn scalar(mut self, name: &str, value: f32) -> Self {
        self.data.push(vec![value]);
        self.entries.push(Entry { name: name.to_string(), shape: vec![] });
        self
    }

    fn weight(mut self, name: &str, shape: &[usize]) -> Self {
        self.weights.push((format!("{DENOISER}{name}"), shape.iter().rev().copied().collect()));
        self
    }

    fn parsed(&self) -> Parsed {
        let targets =
            Targets::new(self.weights.iter().map(|(name, shape)| (name.as_str(), shape.as_slice())));
        parse(&self.entries, &targets, &Dialect::PLAIN, DENOISER)
    }

    fn value(&self, ending: &str) -> &[f32] {
        let index = self.entries.iter().position(|e| e.name.ends_with(ending)).unwrap();
        &self.data[index]
    }

    fn fetch(&self) -> impl Fn(usize) -> Result<HostTensor> + '_ {
        |index| {
            let shape = self.entries[index].shape.clone();
            HostTensor::new(shape, self.data[index].clone())
        }
    }

    /// The only adapter's difference with multiplier 0.5, on one thread and on three.
    fn difference(&self) -> Vec<f32> {
        let parsed = self.parsed();
        assert_eq!((parsed.adapters.len(), parsed.used), (1, self.entries.len()), "{parsed:?}");
        let one = dense(&parsed.adapters[0], 0.5, &self.fetch(), 1).unwrap();
        let three = dense(&parsed.adapters[0], 0.5, &self.fetch(), 3).unwrap();
        assert_eq!(one, three);
        one.data
    }
}

fn close(found: &[f32], expected: &[f32]) {
    assert_eq!(found.len(), expected.len());
    for (f, e) in found.iter().zip(expected) {
        assert!((f - e).abs() < 1e-4 * e.abs().max(1.0), "{f} {e}");
    }
}

/// Rows of `a` times `b`, both row by row.
fn multiply(a: &[f32], b: &[f32], rank: usize) -> Vec<f32> {
    let (rows, columns) = (a.len() / rank, b.len() / rank);
    let cell = |o: usize, i: usize| (0..rank).map(|r| a[o * rank + r] * b[r * columns + i]).sum();
    (0..rows).flat_map(|o| (0..columns).map(move |i| (o, i))).map(|(o, i)| cell(o, i)).collect()
}

fn scaled(values: &[f32], by: f32) -> Vec<f32> {
    values.iter().map(|v| v * by).collect()
}

const X: &str = "diffusion_model.x";

fn name(ending: &str) -> String {
    format!("{X}{ending}")
}

#[test]
fn low_rank_of_a_matrix_and_of_kernels() {
    let file = File::default()
        .weight("x.weight", &[6, 5])
        .tensor(&name(".lora_up.weight"), &[6, 2])
        .tensor(&name(".lora_down.weight"), &[2, 5])
        .scalar(&name(".alpha"), 3.0);
    let expected = multiply(file.value("up.weight"), file.value("down.weight"), 2);
    close(&file.difference(), &scaled(&expected, 0.5 * 3.0 / 2.0));

    // 3x3 kernel, and 1x1 given as a matrix
    let file = File::default()
        .weight("x.weight", &[6, 5, 3, 3])
        .tensor(&name(".lora_up.weight"), &[6, 2, 1, 1])
        .tensor(&name(".lora_down.weight"), &[2, 5, 3, 3]);
    close(&file.difference(), &scaled(&multiply(file.value("up.weight"), file.value("down.weight"), 2), 0.5));
    let file = File::default()
        .weight("x.weight", &[6, 5, 1, 1])
        .tensor(&name(".lora_up.weight"), &[6, 2])
        .tensor(&name(".lora_down.weight"), &[2, 5]);
    close(&file.difference(), &scaled(&multiply(file.value("up.weight"), file.value("down.weight"), 2), 0.5));
}

#[test]
fn rank_one_is_one_even_when_its_axis_is_dropped() {
    let mut file = File::default()
        .weight("x.weight", &[6, 5])
        .tensor(&name(".lora_up.weight"), &[6, 1])
        .tensor(&name(".lora_down.weight"), &[1, 5])
        .scalar(&name(".alpha"), 2.0);
    let expected = scaled(&multiply(file.value("up.weight"), file.value("down.weight"), 1), 0.5 * 2.0);
    close(&file.difference(), &expected);
    file.entries[1].shape = vec![5];
    close(&file.difference(), &expected);
}

#[test]
fn a_kernel_of_five_axes_may_be_merged_to_four() {
    let whole = File::default()
        .weight("x.weight", &[6, 5, 1, 2, 2])
        .tensor(&name(".lora_up.weight"), &[6, 2, 1, 1, 1])
        .tensor(&name(".lora_down.weight"), &[2, 5, 1, 2, 2]);
    let mut merged = File::default()
        .weight("x.weight", &[30, 1, 2, 2])
        .tensor(&name(".lora_up.weight"), &[6, 2, 1, 1, 1])
        .tensor(&name(".lora_down.weight"), &[2, 5, 1, 2, 2]);
    merged.data = whole.data.clone();
    assert_eq!(whole.difference(), merged.difference());
}

#[test]
fn a_core_sits_between_up_and_down() {
    let file = File::default()
        .weight("x.weight", &[6, 5, 3, 3])
        .tensor(&name(".lora_up.weight"), &[6, 2, 1, 1])
        .tensor(&name(".lora_mid.weight"), &[2, 2, 3, 3])
        .tensor(&name(".lora_down.weight"), &[2, 5, 1, 1]);
    let (up, mid, down) = (file.value("up.weight"), file.value("mid.weight"), file.value("down.weight"));
    let mut expected = vec![0.0; 6 * 5 * 9];
    for (o, i, k) in (0..6).flat_map(|o| (0..5).flat_map(move |i| (0..9).map(move |k| (o, i, k)))) {
        for (a, b) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            expected[(o * 5 + i) * 9 + k] += up[o * 2 + a] * mid[(a * 2 + b) * 9 + k] * down[b * 5 + i];
        }
    }
    close(&file.difference(), &scaled(&expected, 0.5));
}

#[test]
fn loha_with_and_without_cores() {
    let file = File::default()
        .weight("x.weight", &[6, 5])
        .tensor(&name(".hada_w1_a"), &[6, 2])
        .tensor(&name(".hada_w1_b"), &[2, 5])
        .tensor(&name(".hada_w2_a"), &[6, 2])
        .tensor(&name(".hada_w2_b"), &[2, 5])
        .scalar(&name(".alpha"), 1.0);
    let first = multiply(file.value("w1_a"), file.value("w1_b"), 2);
    let second = multiply(file.value("w2_a"), file.value("w2_b"), 2);
    let expected: Vec<f32> = first.iter().zip(&second).map(|(a, b)| a * b * 0.5 * 0.5).collect();
    close(&file.difference(), &expected);

    let file = File::default()
        .weight("x.weight", &[6, 5, 3, 3])
        .tensor(&name(".hada_t1"), &[2, 2, 3, 3])
        .tensor(&name(".hada_w1_a"), &[2, 6])
        .tensor(&name(".hada_w1_b"), &[2, 5])
        .tensor(&name(".hada_t2"), &[2, 2, 3, 3])
        .tensor(&name(".hada_w2_a"), &[2, 6])
        .tensor(&name(".hada_w2_b"), &[2, 5]);
    // t[a][b] w_b[b][i] w_a[a][o]
    let rebuild = |t: &[f32], a: &[f32], b: &[f32]| {
        let mut out = vec![0.0; 6 * 5 * 9];
        for (o, i, k) in (0..6).flat_map(|o| (0..5).flat_map(move |i| (0..9).map(move |k| (o, i, k)))) {
            for (p, q) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
                out[(o * 5 + i) * 9 + k] += t[(p * 2 + q) * 9 + k] * b[q * 5 + i] * a[p * 6 + o];
            }
        }
        out
    };
    let first = rebuild(file.value("t1"), file.value("w1_a"), file.value("w1_b"));
    let second = rebuild(file.value("t2"), file.value("w2_a"), file.value("w2_b"));
    let expected: Vec<f32> = first.iter().zip(&second).map(|(a, b)| a * b * 0.5).collect();
    close(&file.difference(), &expected);
}

/// Kronecker product of `a` (`rows` x `columns`) and `b`, the latter with `inner` columns.
fn kron(a: &[f32], columns: usize, b: &[f32], inner: usize) -> Vec<f32> {
    let (rows, inner_rows) = (a.len() / columns, b.len() / inner);
    let mut out = Vec::new();
    for (i, k) in (0..rows).flat_map(|i| (0..inner_rows).map(move |k| (i, k))) {
        for (j, l) in (0..columns).flat_map(|j| (0..inner).map(move |l| (j, l))) {
            out.push(a[i * columns + j] * b[k * inner + l]);
        }
    }
    out
}

#[test]
fn lokr_full_and_factored() {
    // two full factors: alpha has no say
    let file = File::default()
        .weight("x.weight", &[6, 20])
        .tensor(&name(".lokr_w1"), &[2, 4])
        .tensor(&name(".lokr_w2"), &[3, 5])
        .scalar(&name(".alpha"), 7.0);
    close(&file.difference(), &scaled(&kron(file.value("w1"), 4, file.value("w2"), 5), 0.5));

    let file = File::default()
        .weight("x.weight", &[6, 20])
        .tensor(&name(".lokr_w1"), &[2, 4])
        .tensor(&name(".lokr_w2_a"), &[3, 2])
        .tensor(&name(".lokr_w2_b"), &[2, 5])
        .scalar(&name(".alpha"), 1.0);
    let inner = multiply(file.value("w2_a"), file.value("w2_b"), 2);
    close(&file.difference(), &scaled(&kron(file.value("w1"), 4, &inner, 5), 0.5 / 2.0));

    // a kernel in the inner factor
    let file = File::default()
        .weight("x.weight", &[6, 8, 3, 3])
        .tensor(&name(".lokr_w1"), &[2, 4])
        .tensor(&name(".lokr_w2"), &[3, 2, 3, 3]);
    close(&file.difference(), &scaled(&kron(file.value("w1"), 4, file.value("w2"), 18), 0.5));
}

#[test]
fn differences_of_weights_and_biases() {
    let file = File::default()
        .weight("x.weight", &[6, 5])
        .weight("x.bias", &[6])
        .tensor(&name(".diff"), &[6, 5])
        .tensor(&name(".diff_b"), &[6]);
    let parsed = file.parsed();
    let by_target: HashMap<_, _> = parsed.adapters.iter().map(|a| (a.target.as_str(), a)).collect();
    let bias = dense(by_target["model.diffusion_model.x.bias"], 0.5, &file.fetch(), 1).unwrap();
    close(&bias.data, &scaled(file.value(".diff_b"), 0.5));
    let mut weight = vec![1.0; 30];
    math::add_to(&mut weight, by_target["model.diffusion_model.x.weight"], 2.0, &file.fetch(), 1).unwrap();
    let expected: Vec<f32> = file.value(".diff").iter().map(|d| 1.0 + 2.0 * d).collect();
    close(&weight, &expected);
}

#[test]
fn a_scale_comes_before_alpha() {
    let file = File::default()
        .weight("x.weight", &[6, 5])
        .tensor(&name(".lora_up.weight"), &[6, 2])
        .tensor(&name(".lora_down.weight"), &[2, 5])
        .scalar(&name(".alpha"), 3.0)
        .scalar(&name(".scale"), 0.25);
    close(
        &file.difference(),
        &scaled(&multiply(file.value("up.weight"), file.value("down.weight"), 2), 0.125),
    );
}

#[test]
fn odd_members_are_reported_and_never_panic() {
    let good = || {
        File::default()
            .weight("x.weight", &[6, 5])
            .weight("y.weight", &[4, 4])
            .tensor("diffusion_model.y.lora_up.weight", &[4, 1])
            .tensor("diffusion_model.y.lora_down.weight", &[1, 4])
    };
    let up = |shape: &[usize]| good().tensor(&name(".lora_up.weight"), shape);
    let odd = [
        up(&[6, 2]),
        up(&[7, 2]).tensor(&name(".lora_down.weight"), &[2, 5]),
        up(&[6, 2]).tensor(&name(".lora_down.weight"), &[3, 5]),
        up(&[6, 2]).tensor(&name(".lora_down.weight"), &[2, 50]),
        up(&[0, 2]).tensor(&name(".lora_down.weight"), &[2, 5]),
        up(&[]).tensor(&name(".lora_down.weight"), &[]),
        up(&[6, 2]).tensor(&name(".lora_down.weight"), &[2, 5]).tensor(&name(".lora_mid.weight"), &[9, 9]),
        good().tensor(&name(".hada_w1_b"), &[2, 5]).tensor(&name(".hada_t1"), &[2, 2, 3, 3]),
        good().tensor(&name(".lokr_w1"), &[2, 5]).tensor(&name(".lokr_w2"), &[4, 1]),
        good().tensor(&name(".lokr_w1"), &[0, 5]).tensor(&name(".lokr_w2"), &[3, 1]),
        good().tensor(&name(".diff"), &[6, 6]),
        good().tensor(&name(".diff"), &[0]),
    ];
    for file in odd {
        let parsed = file.parsed();
        assert_eq!(parsed.adapters.len(), 1, "{parsed:?}");
        assert_eq!(parsed.adapters[0].target, "model.diffusion_model.y.weight");
        assert_eq!(parsed.malformed.len(), 1, "{parsed:?}");
        assert!(parsed.warning().is_some());
    }
    // a strength of no values is left out, one that says nothing counts as zero
    let mut file = up(&[6, 2]).tensor(&name(".lora_down.weight"), &[2, 5]).tensor(&name(".alpha"), &[0]);
    assert_eq!(file.parsed().adapters[0].strength, Strength::Unit);
    file.entries.pop();
    file.data.pop();
    let file = file.scalar(&name(".alpha"), 0.0);
    let parsed = file.parsed();
    assert!(dense(&parsed.adapters[0], 1.0, &file.fetch(), 2).unwrap().data.iter().all(|&d| d == 0.0));
    // what does not hold its own shape
    let broken = |_: usize| Ok(HostTensor::zeros([3]));
    assert!(dense(&parsed.adapters[0], 1.0, &broken, 2).is_err());
}

#[test]
fn spellings_of_one_weight_agree() {
    let weight = "blocks.0.cross_attn.to_out.0.weight";
    let spelled = [
        "diffusion_model.blocks.0.cross_attn.to_out.0.lora_A.weight",
        "blocks.0.cross_attn.to_out.0.lora_A.weight",
        "base_model.model.blocks.0.cross_attn.to_out.0.lora_A.weight",
        "base_model.model.diffusion_model.blocks.0.cross_attn.to_out.0.lora_A.default.weight",
        "transformer.blocks.0.cross_attn.to_out.0.lora_A.my-adapter.weight",
        "transformer.blocks.0.cross_attn.to_out.lora_A.weight",
        "lora_unet_blocks_0_cross_attn_to_out_0.lora_down.weight",
        "lycoris_blocks_0_cross_attn_to_out_0.lora_down.weight",
        "transformer.blocks.0.cross_attn.processor.to_out.0.lora.down.weight",
        "transformer.blocks.0.cross_attn.to_out.0.lora_linear_layer.down.weight",
        "model.diffusion_model.blocks.0.cross_attn.to_out.0.lora_down.weight",
    ];
    for down in spelled {
        let other = |a: &str, b: &str| down.replace(a, b);
        let up = other("lora_A", "lora_B").replace("lora_down", "lora_up").replace(".down.", ".up.");
        let file = File::default().weight(weight, &[6, 5]).tensor(&up, &[6, 2]).tensor(down, &[2, 5]);
        let parsed = file.parsed();
        assert_eq!((parsed.adapters.len(), parsed.used), (1, 2), "{down} {parsed:?}");
        assert_eq!(parsed.adapters[0].target, format!("{DENOISER}{weight}"));
    }
}
