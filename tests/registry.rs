//! Every family at toy size: loads from files, makes a picture in two steps, and makes the same one again.
//!
//! `tests/data/families` holds names and shapes (slowest axis first, as in the files); the values are drawn here.

#![allow(clippy::unwrap_used)] // a test fails by panicking

use std::path::{Path, PathBuf};

use safetensors::Dtype;
use safetensors::tensor::{TensorView, serialize_to_file};
use stable_diffusion::engine::request::{ContextOptions, ImageRequest};
use stable_diffusion::engine::{Context, Run};
use stable_diffusion::image::Image;
use stable_diffusion::report::Callbacks;

type Shapes = Vec<(String, Vec<usize>)>;

/// The tensors listed under `key`.
fn shapes(key: &str) -> Shapes {
    let path = format!("{}/tests/data/families/transformers.json", env!("CARGO_MANIFEST_DIR"));
    let all: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    serde_json::from_value(all[key].clone()).unwrap()
}

/// A folder of this test that is removed at its end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("sd-registry-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// Writes the tensors listed under `key`: scales of norms are 1, the rest is small and drawn from the position.
    fn write(&self, key: &str) -> PathBuf {
        let mut seed = 1u32;
        let mut draw = || {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            f32::from_bits(0x3F80_0000 | seed >> 9) - 1.5
        };
        let mut values = |name: &str, shape: &[usize]| -> Vec<u8> {
            let count: usize = shape.iter().product();
            let inputs: usize = shape.iter().skip(1).product::<usize>().max(1);
            let one = shape.len() == 1 && !name.ends_with("bias");
            let scale = if name.ends_with("bias") { 0.1 } else { 4.0 / (inputs as f32).sqrt() };
            (0..count).flat_map(|_| (if one { 1.0 } else { draw() * scale }).to_le_bytes()).collect()
        };
        let data: Vec<_> = shapes(key).into_iter().map(|(n, s)| (values(&n, &s), n, s)).collect();
        let views = data.iter().map(|(bytes, name, shape)| {
            (name.as_str(), TensorView::new(Dtype::F32, shape.clone(), bytes).unwrap())
        });
        let path = self.0.join(format!("{key}.safetensors"));
        serialize_to_file(views, None, &path).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn context(diffusion: &Path, t5: &Path, tiny: Option<&Path>) -> Context {
    let options = ContextOptions {
        diffusion_model: Some(diffusion.to_owned()),
        t5xxl: Some(t5.to_owned()),
        taesd: tiny.map(Path::to_owned),
        n_threads: 2,
        ..ContextOptions::default()
    };
    Context::new(options, &Callbacks::default()).unwrap()
}

fn picture(context: &Context, seed: i64) -> Image {
    let mut request = ImageRequest {
        prompt: b"a (red:1.2) fox".to_vec(),
        width: 64,
        height: 48,
        seed,
        ..ImageRequest::default()
    };
    request.sample.steps = 2;
    request.sample.guidance.text = 1.0;
    let callbacks = Callbacks::default();
    let run = Run { callbacks: &callbacks, cancel: context.enter() };
    context.generate_image(&request, &run).unwrap().remove(0)
}

/// Loads, makes pictures, and compares.
fn sweep(key: &str, tiny: bool) {
    let folder = Folder::new(key);
    let (diffusion, t5) = (folder.write(key), folder.write("t5"));
    let tiny = tiny.then(|| folder.write("tae"));
    let context = context(&diffusion, &t5, tiny.as_deref());
    let first = picture(&context, 1);
    assert_eq!((first.width, first.height), (64, 48));
    assert!(first.data.windows(2).any(|pair| pair[0] != pair[1]), "one colour: not finite?");
    assert_eq!(first.data, picture(&context, 1).data, "the same seed gives the same picture");
    assert_ne!(first.data, picture(&context, 2).data, "another seed gives another picture");
}

#[test]
fn flux() {
    sweep("flux", true);
}

#[test]
fn chroma() {
    sweep("chroma", true);
}

#[test]
fn chroma_without_autoencoder() {
    sweep("radiance", false);
}

#[test]
fn sd3() {
    sweep("sd3", true);
}

#[test]
fn wrong_parts_are_named_by_their_fields() {
    let folder = Folder::new("wrong");
    let (flux, t5) = (folder.write("flux"), folder.write("t5"));
    let fails =
        |options: ContextOptions| Context::new(options, &Callbacks::default()).err().unwrap().to_string();
    let wrong = fails(ContextOptions {
        diffusion_model: Some(flux.clone()),
        clip_l: Some(t5.clone()),
        ..ContextOptions::default()
    });
    assert!(wrong.contains("clip_l_path"), "{wrong}");
    let wrong = fails(ContextOptions { model: Some(flux.clone()), ..ContextOptions::default() });
    assert!(wrong.contains("diffusion_model_path"), "{wrong}");
    let wrong =
        fails(ContextOptions { diffusion_model: Some(flux), t5xxl: Some(t5), ..ContextOptions::default() });
    assert!(wrong.contains("vae_path"), "{wrong}");
}
