//! The demo model, stage by stage, against values computed by PyTorch in f32 (`models/recipe.md` tells its making).
//!
//! `tests/data/demo/parity.safetensors.gz` holds tokens, text encodings, start noise, the UNet's first outputs, the
//! final latents, the decoded picture and the encoder's moments.

#![allow(clippy::unwrap_used)] // a test fails by panicking

use std::io::Read;
use std::sync::Arc;

use stable_diffusion::HostTensor;
use stable_diffusion::cancel::CancelToken;
use stable_diffusion::files::ModelFile;
use stable_diffusion::graph::{Device, Math, NoWatch, Type};
use stable_diffusion::layer::Env;
use stable_diffusion::net::clip::{ClipConfig, ClipInput, ClipModel};
use stable_diffusion::net::tae::{TaeConfig, TaeModel};
use stable_diffusion::net::unet::{Heads, UnetConfig, UnetInput, UnetModel};
use stable_diffusion::net::vae::{VaeConfig, VaeModel};
use stable_diffusion::weights::{Index, TypePolicy};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// Relative error allowed.
const LIMIT: f32 = 1e-3;

struct Recorded(ModelFile);

impl Recorded {
    fn open() -> Self {
        let path = format!("{ROOT}/tests/data/demo/parity.safetensors.gz");
        let mut bytes = Vec::new();
        flate2::read::GzDecoder::new(std::fs::File::open(path).unwrap()).read_to_end(&mut bytes).unwrap();
        Self(ModelFile::from_bytes("parity.safetensors", bytes).unwrap())
    }

    fn bytes(&self, name: &str) -> Vec<u8> {
        self.0.read(self.0.get(name).unwrap()).unwrap()
    }

    fn tensor(&self, name: &str) -> HostTensor {
        let data =
            self.bytes(name).chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect();
        HostTensor::new(self.0.get(name).unwrap().shape4(), data).unwrap()
    }

    fn ids(&self, name: &str) -> Vec<i32> {
        self.bytes(name).chunks_exact(4).map(|b| i32::from_le_bytes(b.try_into().unwrap())).collect()
    }

    /// The picture `[W, H, 3]` with values in 0 to 1.
    fn picture(&self) -> HostTensor {
        let (bytes, pixels) = (self.bytes("p0_image"), 128 * 128);
        let data =
            (0..3).flat_map(|c| bytes.iter().skip(c).step_by(3)).map(|&b| f32::from(b) / 255.0).collect();
        assert_eq!(bytes.len(), 3 * pixels);
        HostTensor::new([128, 128, 3], data).unwrap()
    }
}

fn index(file: &str, prefix: &str) -> Index {
    let mut index = Index::default();
    let file = Arc::new(ModelFile::open(format!("{ROOT}/models/{file}")).unwrap());
    index.add(file, |name| Some(format!("{prefix}{name}")));
    index
}

fn f32_weights() -> TypePolicy {
    TypePolicy::new(Some(Type::F32), None).unwrap()
}

/// Runs `f` on ggml's own nodes and on this library's kernels.
fn with_env(mut f: impl FnMut(&Env<'_>)) {
    let device = Device::cpu(2).unwrap();
    for kernels in [false, true] {
        f(&Env {
            device: &device,
            math: Math { kernels, ..Math::default() },
            circular: [false; 2],
            mmap: false,
            watch: &NoWatch,
            cancel: &CancelToken::none(),
            load_progress: &|_, _| {},
        });
    }
}

/// Length of the difference against the length of what was expected.
fn error(found: &[f32], expected: &[f32]) -> f32 {
    assert_eq!(found.len(), expected.len());
    let length = |values: &mut dyn Iterator<Item = f32>| values.map(|v| v * v).sum::<f32>().sqrt();
    length(&mut found.iter().zip(expected).map(|(f, e)| f - e)) / length(&mut expected.iter().copied())
}

#[track_caller]
fn close(found: &HostTensor, expected: &HostTensor, what: &str) {
    let e = error(&found.data, &expected.data);
    let worst = found.data.iter().zip(&expected.data).map(|(f, e)| (f - e).abs()).fold(0.0, f32::max);
    println!("{what}: {e:.2e}, at most {worst:.2e}");
    assert!(e < LIMIT, "{what}: off by {e}");
}

fn map(t: &HostTensor, f: impl Fn(f32) -> f32) -> HostTensor {
    HostTensor::new(t.shape.clone(), t.data.iter().map(|&v| f(v)).collect()).unwrap()
}

#[test]
fn text_encoder() {
    let (recorded, index) = (Recorded::open(), index("emoji-sd.safetensors", ""));
    let prefix = "cond_stage_model.transformer.text_model";
    let mut clip =
        ClipModel::load(&index, &f32_weights(), prefix, &ClipConfig::OPENAI, "text encoder", "model_path")
            .unwrap();
    let pairs = [
        ("uncond_tokens", "uncond"),
        ("p0_tokens", "p0_cond"),
        ("p1_tokens", "p1_cond"),
        ("p2_tokens", "p2_cond"),
    ];
    with_env(|env| {
        for (tokens, expected) in pairs {
            let ids = recorded.ids(tokens);
            let input = ClipInput { ids: &ids, custom: &[], clip_skip: 1, pool_at: None };
            close(&clip.run(env, &input).unwrap().hidden, &recorded.tensor(expected), expected);
        }
        // A learned word equal to a row of the table changes nothing.
        let mut ids = recorded.ids("p0_tokens");
        let plain =
            clip.run(env, &ClipInput { ids: &ids, custom: &[], clip_skip: 2, pool_at: Some(3) }).unwrap();
        let place = index.get(&format!("{prefix}.embeddings.token_embedding.weight")).unwrap();
        let (file, entry) = index.source(place).unwrap();
        let row = &stable_diffusion::weights::values_f32(file, entry).unwrap()[64 * ids[2] as usize..][..64];
        ids[2] = 49408;
        let custom = [row.to_vec()];
        let input = ClipInput { ids: &ids, custom: &custom, clip_skip: 2, pool_at: Some(3) };
        let learned = clip.run(env, &input).unwrap();
        close(&learned.hidden, &plain.hidden, "learned word");
        close(learned.pooled.as_ref().unwrap(), plain.pooled.as_ref().unwrap(), "pooled");
        let bad = ClipInput { custom: &[], ..input };
        assert!(clip.run(env, &bad).unwrap_err().to_string().contains("49408"));
    });
}

#[test]
fn unet() {
    let (recorded, index) = (Recorded::open(), index("emoji-sd.safetensors", ""));
    let config = UnetConfig { heads: Heads::Count(8) };
    let mut unet =
        UnetModel::load(&index, &f32_weights(), "model.diffusion_model", &config, "model_path").unwrap();
    assert_eq!((unet.unet().input_channels(), unet.unet().context_width()), (Some(4), Some(64)));
    assert_eq!((unet.unet().label_width(), unet.unet().control_count()), (None, 13));
    let sigma = recorded.tensor("sigmas").data[0];
    let timestep = recorded.tensor("timesteps").data[0];
    let scale = sigma / (sigma * sigma + 1.0).sqrt();
    with_env(|env| {
        let x = map(&recorded.tensor("p0_noise"), |v| v * scale);
        for (context, name) in [("p0_cond", "p0_unet_cond_step0"), ("uncond", "p0_unet_uncond_step0")] {
            let context = recorded.tensor(context);
            let input = UnetInput {
                x: &x,
                timesteps: &[timestep],
                context: &context,
                y: None,
                c_concat: None,
                control: None,
            };
            let eps = unet.run(env, &input).unwrap();
            close(&eps, &recorded.tensor(name), name);
            unet.recycle(eps);
        }
        batch_of_two(&mut unet, env, &recorded, timestep, scale);
    });
}

fn batch_of_two(unet: &mut UnetModel, env: &Env<'_>, recorded: &Recorded, timestep: f32, scale: f32) {
    let join = |a: &HostTensor, b: &HostTensor, shape: [usize; 4]| {
        HostTensor::new(shape, [a.data.as_slice(), b.data.as_slice()].concat()).unwrap()
    };
    let x = join(&recorded.tensor("p0_noise"), &recorded.tensor("p1_noise"), [16, 16, 4, 2]);
    let context = join(&recorded.tensor("p0_cond"), &recorded.tensor("p1_cond"), [64, 77, 2, 1]);
    let expected =
        join(&recorded.tensor("p0_unet_cond_step0"), &recorded.tensor("p1_unet_cond_step0"), [16, 16, 4, 2]);
    let x = map(&x, |v| v * scale);
    let input = UnetInput {
        x: &x,
        timesteps: &[timestep],
        context: &context,
        y: None,
        c_concat: None,
        control: None,
    };
    close(&unet.run(env, &input).unwrap(), &expected, "batch of two");
}

#[test]
fn autoencoder() {
    let (recorded, index) = (Recorded::open(), index("emoji-sd.safetensors", ""));
    let load = |range: f32| {
        let config = VaeConfig { range, ..VaeConfig::default() };
        VaeModel::load(&index, &f32_weights(), "first_stage_model", &config, "vae_path").unwrap()
    };
    let mut vae = load(1.0);
    assert_eq!((vae.decoder().factor(), vae.decoder().latent_channels()), (8, 4));
    with_env(|env| {
        let latent = map(&recorded.tensor("p0_final"), |v| v / 0.18215);
        let decoded = recorded.tensor("p0_decoded");
        close(&vae.decode(env, &latent).unwrap(), &decoded, "decoded");
        close(&load(32.0).decode(env, &latent).unwrap(), &decoded, "decoded with a range");
        let pixels = map(&recorded.picture(), |v| v * 2.0 - 1.0);
        let moments = vae.encode(env, &pixels).unwrap();
        assert_eq!(moments.shape, [16, 16, 8, 1]);
        let half = |range: std::ops::Range<usize>| {
            HostTensor::new([16, 16, 4], moments.data[range].to_vec()).unwrap()
        };
        close(&half(0..1024), &recorded.tensor("enc_p0_mean"), "mean");
        close(&half(1024..2048), &recorded.tensor("enc_p0_logvar"), "log variance");
    });
}

#[test]
fn tiny_autoencoder() {
    let (recorded, index) = (Recorded::open(), index("emoji-taesd.safetensors", "tae."));
    let mut tae = TaeModel::load(&index, &f32_weights(), "tae", &TaeConfig::default(), "taesd_path").unwrap();
    assert_eq!(tae.decoder().latent_channels(), Some(4));
    with_env(|env| {
        let picture = recorded.picture();
        let latent = tae.encode(env, &picture).unwrap();
        assert_eq!(latent.shape, [16, 16, 4, 1]);
        let back = tae.decode(env, &latent).unwrap();
        let squares = back.data.iter().zip(&picture.data).map(|(a, b)| (a.clamp(0.0, 1.0) - b).powi(2));
        let psnr = -10.0 * (squares.sum::<f32>() / picture.data.len() as f32).log10();
        println!("round trip: {psnr:.1} dB");
        assert!(psnr > 18.0, "{psnr} dB");
        // Also the latents that the diffusion network made.
        let drawn = tae.decode(env, &recorded.tensor("p0_final")).unwrap();
        let squares = drawn.data.iter().zip(&picture.data).map(|(a, b)| (a.clamp(0.0, 1.0) - b).powi(2));
        let psnr = -10.0 * (squares.sum::<f32>() / picture.data.len() as f32).log10();
        println!("of the diffusion network's latent: {psnr:.1} dB");
        assert!(psnr > 16.0, "{psnr} dB");
    });
}

#[test]
fn missing_tensors_are_listed_in_one_message() {
    let config = UnetConfig { heads: Heads::Count(8) };
    let mut holes = Index::default();
    let file = Arc::new(ModelFile::open(format!("{ROOT}/models/emoji-sd.safetensors")).unwrap());
    holes.add(file, |name| (!name.ends_with("to_q.weight")).then(|| name.to_owned()));
    let error =
        UnetModel::load(&holes, &f32_weights(), "model.diffusion_model", &config, "diffusion_model_path")
            .err()
            .unwrap()
            .to_string();
    assert!(error.contains("to_q.weight") && error.contains("diffusion_model_path"), "{error}");
}
