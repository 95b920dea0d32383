//! Toy networks against an independent implementation in NumPy (`tests/data/nets/make.py`).

#![allow(clippy::unwrap_used)] // a test fails by panicking

use std::io::Read;
use std::sync::Arc;

use serde_json::{Map, Value, json};
use stable_diffusion::HostTensor;
use stable_diffusion::cancel::CancelToken;
use stable_diffusion::files::ModelFile;
use stable_diffusion::graph::{Act, Device, Math, NoWatch};
use stable_diffusion::layer::Env;
use stable_diffusion::net::clip::{ClipConfig, ClipInput, ClipModel};
use stable_diffusion::net::clip_vision::{ClipVisionConfig, ClipVisionModel, VisionOutput};
use stable_diffusion::net::controlnet::ControlModel;
use stable_diffusion::net::esrgan::EsrganModel;
use stable_diffusion::net::t5::T5Model;
use stable_diffusion::net::tae::{TaeConfig, TaeModel};
use stable_diffusion::net::unet::{Heads, UnetConfig, UnetInput, UnetModel};
use stable_diffusion::weights::{Index, TypePolicy};

/// Relative error allowed; ggml rounds the input of convolutions to half precision, which these random weights enlarge.
const LIMIT: f32 = 3e-3;

struct Case {
    index: Index,
    outputs: Vec<Vec<f32>>,
    policy: TypePolicy,
}

impl Case {
    fn open(name: &str) -> Self {
        let path = format!("{}/tests/data/nets/networks.json.gz", env!("CARGO_MANIFEST_DIR"));
        let mut text = String::new();
        flate2::read::GzDecoder::new(std::fs::File::open(path).unwrap()).read_to_string(&mut text).unwrap();
        let case = serde_json::from_str::<Value>(&text).unwrap()[name].take();
        let mut index = Index::default();
        index.add(Arc::new(file(case["weights"].as_object().unwrap())), |name| Some(name.to_owned()));
        let numbers =
            |v: &Value| v.as_array().unwrap().iter().map(|v| v.as_f64().unwrap() as f32).collect::<Vec<_>>();
        let outputs = case["outputs"].as_array().unwrap().iter().map(numbers).collect();
        Self { index, outputs, policy: TypePolicy::new(None, None).unwrap() }
    }

    #[track_caller]
    fn check(&self, found: &[&HostTensor]) {
        assert_eq!(found.len(), self.outputs.len());
        for (i, (found, expected)) in found.iter().zip(&self.outputs).enumerate() {
            assert_eq!(found.len(), expected.len(), "output {i} is {:?}", found.shape);
            let length = |values: &mut dyn Iterator<Item = f32>| values.map(|v| v * v).sum::<f32>().sqrt();
            let error = length(&mut found.data.iter().zip(expected).map(|(f, e)| f - e))
                / length(&mut expected.iter().copied());
            println!("output {i}: {error:.2e}");
            assert!(error < LIMIT, "output {i} is off by {error}");
        }
    }
}

/// Values in -1 to 1 drawn from a name, as `draw` in make.py.
fn draw(name: &str, count: usize) -> Vec<f32> {
    let mut state =
        name.bytes().fold(0xcbf2_9ce4_8422_2325u64, |s, b| (s ^ u64::from(b)).wrapping_mul(0x100_0000_01b3));
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / 8_388_608.0 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

/// A tensor drawn from its name; `shape` fastest axis first.
fn tensor(name: &str, shape: &[usize]) -> HostTensor {
    HostTensor::new(shape, draw(name, shape.iter().product())).unwrap()
}

/// A safetensors file of weights drawn from their names.
fn file(shapes: &Map<String, Value>) -> ModelFile {
    let (mut header, mut data) = (Map::new(), Vec::new());
    for (name, shape) in shapes {
        let shape: Vec<usize> =
            shape.as_array().unwrap().iter().map(|n| n.as_u64().unwrap() as usize).collect();
        let inner: usize = shape[1..].iter().product();
        let (offset, scale) = match shape.len() {
            1 if name.ends_with("weight") => (1.0, 0.2),
            1 => (0.0, 0.1),
            _ => (0.0, (3.0 / inner as f64).sqrt() as f32),
        };
        let start = data.len();
        let values = draw(name, shape.iter().product());
        data.extend(values.iter().flat_map(|v| (offset + scale * v).to_le_bytes()));
        let entry = json!({ "dtype": "F32", "shape": shape, "data_offsets": [start, data.len()] });
        header.insert(name.clone(), entry);
    }
    let header = serde_json::to_vec(&header).unwrap();
    let bytes = [&(header.len() as u64).to_le_bytes(), header.as_slice(), &data].concat();
    ModelFile::from_bytes("toy.safetensors", bytes).unwrap()
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

const HEADS: UnetConfig = UnetConfig { heads: Heads::Width(16) };

#[test]
fn unet_with_labels_and_residuals() {
    let case = Case::open("unet");
    let mut unet = UnetModel::load(&case.index, &case.policy, "", &HEADS, "model_path").unwrap();
    assert_eq!((unet.unet().label_width(), unet.unet().context_width()), (Some(24), Some(20)));
    let (x, context, y) = (tensor("x", &[8, 6, 4]), tensor("context", &[20, 5]), tensor("y", &[24]));
    let shapes = [[8, 6, 32], [8, 6, 32], [4, 3, 32], [4, 3, 64], [4, 3, 64]];
    let control: Vec<_> = (0..5).map(|i| tensor(&format!("control.{i}"), &shapes[i])).collect();
    let whole = UnetInput {
        x: &x,
        timesteps: &[321.5],
        context: &context,
        y: Some(&y),
        c_concat: None,
        control: Some((&control, 0.7)),
    };
    with_env(|env| {
        case.check(&[&unet.run(env, &whole).unwrap()]);
        // The same latent given in two parts.
        let part = |r: std::ops::Range<usize>| HostTensor::new([8, 6, 2], x.data[r].to_vec()).unwrap();
        let (first, second) = (part(0..96), part(96..192));
        let parts = UnetInput { x: &first, c_concat: Some(&second), ..whole };
        case.check(&[&unet.run(env, &parts).unwrap()]);
        for (bad, word) in [
            (UnetInput { y: None, ..whole }, "labels"),
            (UnetInput { x: &first, ..whole }, "channels"),
            (UnetInput { context: &y, ..whole }, "text"),
            (UnetInput { control: Some((&control[..3], 0.7)), ..whole }, "residuals"),
        ] {
            assert!(unet.run(env, &bad).unwrap_err().to_string().contains(word));
        }
    });
}

#[test]
fn control_net() {
    let case = Case::open("control_net");
    let mut net = ControlModel::load(&case.index, &case.policy, "", &HEADS, "control_net_path").unwrap();
    let (x, context, y) = (tensor("x", &[8, 6, 4]), tensor("context", &[20, 5]), tensor("y", &[24]));
    let input = UnetInput {
        x: &x,
        timesteps: &[321.5],
        context: &context,
        y: Some(&y),
        c_concat: None,
        control: None,
    };
    with_env(|env| {
        let hint = net.encode_hint(env, &tensor("picture", &[64, 48, 3])).unwrap();
        let mut residuals = Vec::new();
        net.run(env, &input, &hint, &mut residuals).unwrap();
        case.check(&residuals.iter().collect::<Vec<_>>());
    });
}

#[test]
fn open_clip_text() {
    let case = Case::open("open_clip");
    let config = ClipConfig { final_norm: false, projection: true, ..ClipConfig::OPEN_CLIP };
    let mut clip =
        ClipModel::load(&case.index, &case.policy, "", &config, "text encoder", "clip_g_path").unwrap();
    let ids = [3, 39, 0, 17, 17, 8, 21];
    let input = ClipInput { ids: &ids, custom: &[], clip_skip: 2, pool_at: Some(4) };
    with_env(|env| {
        let output = clip.run(env, &input).unwrap();
        case.check(&[&output.hidden, &output.pooled.unwrap()]);
    });
}

#[test]
fn clip_vision() {
    let case = Case::open("vision");
    let config = ClipVisionConfig { act: Act::GeluQuick, heads: 4 };
    let mut vision =
        ClipVisionModel::load(&case.index, &case.policy, "", &config, "clip_vision_path").unwrap();
    assert_eq!(vision.vision().image_size(), 12);
    let pixels = tensor("pixels", &[12, 12, 3]);
    with_env(|env| {
        let hidden = vision.run(env, &pixels, VisionOutput::Hidden(2)).unwrap();
        case.check(&[&hidden, &vision.run(env, &pixels, VisionOutput::Projected).unwrap()]);
        assert!(vision.run(env, &tensor("pixels", &[16, 12, 3]), VisionOutput::Pooled).is_err());
    });
}

#[test]
fn t5_and_umt5() {
    let ids: Vec<i32> = (0..40).map(|i| 7 * i % 30).collect();
    let mask: Vec<f32> = (0..40).map(|i| if i < 33 { 0.0 } else { f32::NEG_INFINITY }).collect();
    for name in ["t5", "umt5"] {
        let case = Case::open(name);
        let mut t5 = T5Model::load(&case.index, &case.policy, "", "t5xxl_path").unwrap();
        with_env(|env| {
            case.check(&[&t5.run(env, &ids, Some(&mask)).unwrap()]);
            assert!(t5.run(env, &[30], None).unwrap_err().to_string().contains("30"));
        });
    }
}

#[test]
fn esrgan() {
    let case = Case::open("esrgan");
    let mut net = EsrganModel::load(&case.index, &case.policy, "esrgan_path").unwrap();
    assert_eq!(net.net().scale(), 2);
    with_env(|env| case.check(&[&net.run(env, &tensor("pixels", &[7, 5, 3])).unwrap()]));
}

#[test]
fn tiny_autoencoder_with_a_packed_latent() {
    let case = Case::open("tae");
    let mut tae =
        TaeModel::load(&case.index, &case.policy, "", &TaeConfig { pack: 2 }, "taesd_path").unwrap();
    assert_eq!((tae.has_encoder(), tae.decoder().latent_channels()), (false, Some(12)));
    with_env(|env| {
        case.check(&[&tae.decode(env, &tensor("z", &[3, 2, 12])).unwrap()]);
        assert!(
            tae.encode(env, &tensor("pixels", &[32, 32, 3])).unwrap_err().to_string().contains("taesd_path")
        );
    });
}
