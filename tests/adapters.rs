//! LoRAs on the demo model: every spelling of one change gives one picture, nothing stays behind, and the grey LoRA
//! makes pictures grey, merged and at run time.

#![allow(clippy::unwrap_used)] // a test fails by panicking

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use stable_diffusion::cancel::CancelToken;
use stable_diffusion::engine::request::{ContextOptions, ImageRequest, Lora, LoraApply};
use stable_diffusion::engine::{Context, Run};
use stable_diffusion::image::Image;
use stable_diffusion::report::Callbacks;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");
const MODES: [LoraApply; 2] = [LoraApply::Immediately, LoraApply::AtRuntime];

fn demo(name: &str) -> PathBuf {
    Path::new(ROOT).join("models").join(name)
}

fn context(mode: LoraApply) -> Context {
    let options = ContextOptions {
        model: Some(demo("emoji-sd.safetensors")),
        n_threads: 2,
        lora_apply: mode,
        ..ContextOptions::default()
    };
    Context::new(options, &Callbacks::default()).unwrap()
}

fn draw(context: &Context, loras: &[(&Path, f32)], size: usize, steps: i32) -> Image {
    draw_telling(context, loras, size, steps, &Callbacks::default())
}

fn draw_telling(
    context: &Context,
    loras: &[(&Path, f32)],
    size: usize,
    steps: i32,
    callbacks: &Callbacks,
) -> Image {
    let loras = loras.iter().map(|(path, multiplier)| Lora {
        high_noise: false,
        multiplier: *multiplier,
        path: path.to_path_buf(),
    });
    let mut request = ImageRequest {
        loras: loras.collect(),
        prompt: b"a red apple".to_vec(),
        width: size,
        height: size,
        seed: 42,
        ..ImageRequest::default()
    };
    request.sample.steps = steps;
    request.sample.guidance.text = if steps > 5 { 5.0 } else { 1.0 };
    let run = Run { callbacks, cancel: CancelToken::none() };
    context.generate_image(&request, &run).unwrap().remove(0)
}

/// Largest and mean difference of two pictures.
fn difference(a: &Image, b: &Image) -> (u8, f64) {
    let each = || a.data.iter().zip(&b.data).map(|(a, b)| a.abs_diff(*b));
    (each().max().unwrap(), each().map(f64::from).sum::<f64>() / a.data.len() as f64)
}

/// A safetensors file of f32 tensors (PyTorch shapes), removed when dropped.
struct File(PathBuf);

impl File {
    fn new(name: &str, tensors: &[(String, Vec<usize>, Vec<f32>)]) -> Self {
        let (mut header, mut data) = (Vec::new(), Vec::new());
        for (name, shape, values) in tensors {
            let start = data.len();
            data.extend(values.iter().flat_map(|v| v.to_le_bytes()));
            header.push(format!(
                "\"{name}\":{{\"dtype\":\"F32\",\"shape\":{shape:?},\"data_offsets\":[{start},{}]}}",
                data.len()
            ));
        }
        let header = format!("{{{}}}", header.join(","));
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend(header.as_bytes());
        bytes.extend(data);
        let path =
            std::env::temp_dir().join(format!("sd-adapters-{}-{name}.safetensors", std::process::id()));
        std::fs::write(&path, bytes).unwrap();
        Self(path)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        _ = std::fs::remove_file(&self.0);
    }
}

/// `count` values of about `size` that repeat nowhere.
fn values(count: usize, seed: f32, size: f32) -> Vec<f32> {
    (0..count).map(|i| ((i as f32 + 1.0) * seed).sin() * size).collect()
}

const N: usize = 32;
const RANK: usize = 2;

/// The change: `up` times `down` times a half, of a query projection of width 32.
fn factors() -> (Vec<f32>, Vec<f32>) {
    (values(N * RANK, 0.37, 1.5), values(N * RANK, 0.73, 1.0))
}

fn product() -> Vec<f32> {
    let (up, down) = factors();
    let cell = |o: usize, i: usize| (0..RANK).map(|r| up[o * RANK + r] * down[r * N + i]).sum::<f32>() * 0.5;
    (0..N * N).map(|k| cell(k / N, k % N)).collect()
}

type Tensors = Vec<(String, Vec<usize>, Vec<f32>)>;

/// The change as one file holds it.
fn spellings() -> Vec<(&'static str, Tensors)> {
    const DOTS: &str = "down_blocks.0.attentions.0.transformer_blocks.0.attn1";
    const LINES: &str = "down_blocks_0_attentions_0_transformer_blocks_0_attn1";
    let (up, down) = factors();
    let halved: Vec<f32> = up.iter().map(|v| v * 0.5).collect();
    let low = |a: String, b: String, up: &[f32]| {
        vec![(a, vec![RANK, N], down.clone()), (b, vec![N, RANK], up.to_vec())]
    };
    let kohya = |module: String| {
        let mut all = low(format!("{module}.lora_down.weight"), format!("{module}.lora_up.weight"), &up);
        all.push((format!("{module}.alpha"), vec![], vec![1.0]));
        all
    };
    let module = format!("lora_unet_{LINES}_to_q");
    let ones = vec![1.0; N];
    let full = || (vec![N, N], product());
    vec![
        ("kohya", kohya(module.clone())),
        (
            "kohya, names of checkpoints",
            kohya("lora_unet_input_blocks_1_1_transformer_blocks_0_attn1_to_q".into()),
        ),
        ("lycoris", kohya(format!("lycoris_unet_{LINES}_to_q"))),
        (
            "diffusers A and B",
            low(
                format!("unet.{DOTS}.to_q.lora_A.weight"),
                format!("unet.{DOTS}.to_q.lora_B.weight"),
                &halved,
            ),
        ),
        (
            "PEFT with an adapter's name",
            low(
                format!("unet.{DOTS}.to_q.lora_A.default.weight"),
                format!("unet.{DOTS}.to_q.lora_B.default.weight"),
                &halved,
            ),
        ),
        (
            "diffusers processors",
            low(
                format!("unet.{DOTS}.processor.to_q_lora.down.weight"),
                format!("unet.{DOTS}.processor.to_q_lora.up.weight"),
                &halved,
            ),
        ),
        ("full difference", vec![(format!("{module}.diff"), full().0, full().1)]),
        (
            "LoKr",
            vec![
                (format!("{module}.lokr_w1"), vec![1, 1], vec![1.0]),
                (format!("{module}.lokr_w2"), full().0, full().1),
            ],
        ),
        (
            "LoHa",
            vec![
                (format!("{module}.hada_w1_a"), vec![N, RANK], halved.clone()),
                (format!("{module}.hada_w1_b"), vec![RANK, N], down.clone()),
                (format!("{module}.hada_w2_a"), vec![N, 1], ones.clone()),
                (format!("{module}.hada_w2_b"), vec![1, N], ones),
            ],
        ),
    ]
}

#[test]
fn every_spelling_of_one_change_gives_one_picture_and_leaves_no_trace() {
    for mode in MODES {
        let context = context(mode);
        let without = draw(&context, &[], 64, 2);
        let mut first: Option<Image> = None;
        for (i, (name, tensors)) in spellings().iter().enumerate() {
            let file = File::new(&format!("{mode:?}-{i}"), tensors);
            let with = draw(&context, &[(&file.0, 1.0)], 64, 2);
            assert!(
                difference(&with, &without).1 > 0.5,
                "{mode:?} {name}: {:?}",
                difference(&with, &without)
            );
            let first = first.get_or_insert_with(|| with.clone());
            let (largest, mean) = difference(&with, first);
            assert!(largest <= 6 && mean < 0.3, "{mode:?} {name}: {largest} {mean}");
            if i == 0 {
                // another strength, then none
                draw(&context, &[(&file.0, -0.5)], 64, 1);
            }
            if i == 0 || i + 1 == spellings().len() {
                assert_eq!(draw(&context, &[], 64, 2), without, "{mode:?} {name}");
            }
        }
    }
}

#[test]
fn what_cannot_be_used_is_said_and_the_rest_applied() {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let seen = lines.clone();
    let callbacks = Callbacks {
        log: Some(Box::new(move |_, text| seen.lock().unwrap().push(text.to_owned()))),
        ..Callbacks::default()
    };
    let mut tensors = spellings().remove(0).1;
    let good = File::new("good", &tensors);
    tensors.push(("lora_unet_no_such_layer.lora_up.weight".into(), vec![2, 2], vec![0.0; 4]));
    tensors.push((
        "lora_unet_mid_block_attentions_0_proj_in.lora_up.weight".into(),
        vec![3, 5],
        vec![0.0; 15],
    ));
    let odd = File::new("odd", &tensors);
    let context = context(LoraApply::Immediately);
    let expected = draw(&context, &[(&good.0, 1.0)], 64, 1);
    let missing = Path::new("/no/such/lora.safetensors");
    let found = draw_telling(&context, &[(missing, 1.0), (&odd.0, 1.0)], 64, 1, &callbacks);
    assert_eq!(found, expected);
    let text = lines.lock().unwrap().join("\n");
    assert!(text.contains("3 of 5 LoRA tensors"), "{text}");
    assert!(text.contains("lora.safetensors is left out"), "{text}");
}

/// Mean over pixels of the largest colour minus the smallest.
fn chroma(image: &Image) -> f64 {
    let sum: f64 = image
        .data
        .chunks_exact(3)
        .map(|p| f64::from(p.iter().max().unwrap() - p.iter().min().unwrap()))
        .sum();
    sum / (image.width * image.height) as f64
}

#[test]
fn the_grey_lora_makes_pictures_grey() {
    let lora = demo("emoji-grey-lora.safetensors");
    let mut coloured = None;
    for mode in MODES {
        let context = context(mode);
        let coloured = *coloured.get_or_insert_with(|| chroma(&draw(&context, &[], 128, 10)));
        let grey = chroma(&draw(&context, &[(&lora, 1.0)], 128, 10));
        assert!(coloured > 20.0 && grey < coloured / 8.0, "{mode:?}: {coloured} {grey}");
    }
}
