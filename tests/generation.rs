//! Whole calls on the demo model: latents after each step against PyTorch's, repeated seeds, thread counts, memory.

#![allow(clippy::unwrap_used)] // a test fails by panicking

use std::io::Read;
use std::sync::Mutex;

use stable_diffusion::cancel::CancelToken;
use stable_diffusion::engine::request::{ContextOptions, ImageRequest};
use stable_diffusion::engine::{Context, Run};
use stable_diffusion::family::{self, Conditioning, Loaded, Loading, Prompt, Surroundings};
use stable_diffusion::graph::{Device, Math, NoWatch, Type};
use stable_diffusion::image::Image;
use stable_diffusion::layer::Env;
use stable_diffusion::report::Callbacks;
use stable_diffusion::sample::cache::StepCache;
use stable_diffusion::sample::guidance::{Scales, SkipLayers};
use stable_diffusion::sample::plan::Plan;
use stable_diffusion::sample::run::{Branch, Evaluation, Generation, Network, Observer, Sampler, sample};
use stable_diffusion::sample::schedule::ScheduleRequest;
use stable_diffusion::sample::{Method, Rng, RngKind, SampleArgs, Scheduler};
use stable_diffusion::weights::names::canonical;
use stable_diffusion::weights::{Index, TypePolicy};
use stable_diffusion::{HostTensor, files::ModelFile};

const MODEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/models/emoji-sd.safetensors");
/// Values of a latent of 16 x 16 pixels and 4 channels.
const LATENT: usize = 1024;
const STEPS: usize = 8;
/// One test at a time: the memory of one is not to be seen in another.
static ALONE: Mutex<()> = Mutex::new(());
const PROMPTS: [&str; 3] = ["a red apple", "a lovely cat on a blue background", "smiling face"];

/// Start noise and the latents after each of eight Euler steps, for each of three prompts.
fn trajectories() -> Vec<Vec<f32>> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/demo/trajectories.f32.gz");
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(std::fs::File::open(path).unwrap()).read_to_end(&mut bytes).unwrap();
    let values: Vec<f32> = bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect();
    values.chunks_exact(LATENT).map(<[f32]>::to_vec).collect()
}

/// The demo model as a family puts it together, weights in f32.
fn load() -> Loaded {
    let file = std::sync::Arc::new(ModelFile::open(MODEL).unwrap());
    let mut raw = Index::default();
    raw.add(file.clone(), |name| Some(name.to_owned()));
    let family = family::detect(&raw).unwrap();
    let dialect = family.dialect(&raw);
    let mut index = Index::default();
    index.add(file, |name| Some(canonical(name, &dialect).into_owned()));
    let policy = TypePolicy::new(Some(Type::F32), None).unwrap();
    let (options, report) = (ContextOptions::default(), Callbacks::default());
    family.build(&Loading { index: &index, policy: &policy, options: &options, report: &report }).unwrap()
}

/// The model with its two conditionings; keeps the latents that it is asked about.
struct Recorder<'a> {
    loaded: &'a mut Loaded,
    env: Env<'a>,
    conditions: [Conditioning; 2],
    seen: Vec<HostTensor>,
}

impl Network for Recorder<'_> {
    fn predict(&mut self, evaluation: &Evaluation<'_>, out: &mut HostTensor) -> stable_diffusion::Result<()> {
        if evaluation.branch == Branch::Positive {
            // Back from the network's scale.
            let mut x = evaluation.x.clone();
            let factor = (evaluation.sigma * evaluation.sigma + 1.0).sqrt();
            x.data.iter_mut().for_each(|v| *v *= factor);
            self.seen.push(x);
        }
        let condition = &self.conditions[usize::from(evaluation.branch != Branch::Positive)];
        let surroundings = Surroundings {
            references: &[],
            increase_ref_index: false,
            distilled_guidance: 0.0,
            control: None,
            identity: None,
        };
        self.loaded.model.predict(&self.env, evaluation, condition, &surroundings, out)
    }
}

struct Silent;

impl Observer for Silent {}

fn relative_error(a: &[f32], b: &[f32]) -> f32 {
    let (mut difference, mut size) = (0.0f64, 0.0f64);
    for (x, y) in a.iter().zip(b) {
        difference += f64::from(x - y).powi(2);
        size += f64::from(*y).powi(2);
    }
    (difference / size).sqrt() as f32
}

#[test]
fn latents_after_every_step_are_those_of_pytorch() {
    let _alone = ALONE.lock();
    let (device, cancel) = (Device::cpu(2).unwrap(), CancelToken::none());
    let env = Env {
        device: &device,
        math: Math { kernels: true, ..Math::default() },
        circular: [false; 2],
        mmap: false,
        watch: &NoWatch,
        cancel: &cancel,
        load_progress: &|_, _| {},
    };
    let mut loaded = load();
    let args = SampleArgs::default();
    let mut denoiser = loaded.model.traits().denoiser.clone();
    let request = ScheduleRequest {
        scheduler: Scheduler::Discrete,
        steps: STEPS,
        image_seq_len: 256,
        ays: None,
        args: &args,
    };
    let plan = Plan::new(&mut denoiser, &request, &[]).unwrap();
    for (prompt, recorded) in PROMPTS.iter().zip(trajectories().chunks_exact(1 + STEPS)) {
        let conditions = [prompt.as_bytes(), b""].map(|text| {
            let prompt =
                Prompt { text, clip_skip: -1, size: [128, 128], zero: false, references: &[], person: None };
            loaded.model.condition(&env, &prompt).unwrap()
        });
        let generation = Generation {
            denoiser: &denoiser,
            method: Method::Euler,
            sigmas: &plan.sigmas,
            eta: 0.0,
            scales: Scales { text: 5.0, image: 1.0 },
            skip_layers: &SkipLayers::default(),
            shifted_timestep: 0,
            args: &args,
            mask: None,
            mask_input: false,
            finish: true,
        };
        let latent = |values: &[f32]| HostTensor::new([16, 16, 4, 1], values.to_vec()).unwrap();
        let mut network = Recorder { loaded: &mut loaded, env, conditions, seen: Vec::new() };
        let last = sample(
            &mut Sampler::default(),
            &generation,
            &HostTensor::zeros([16, 16, 4, 1]),
            Some(&latent(&recorded[0])),
            (&mut network, &mut Silent),
            (&mut Rng::new(RngKind::Cuda, 0), &mut StepCache::default()),
        )
        .unwrap();
        let mut found = network.seen.split_off(1);
        found.push(last);
        for (step, (found, recorded)) in found.iter().zip(&recorded[1..]).enumerate() {
            let error = relative_error(&found.data, recorded);
            assert!(error < 1e-3, "{prompt}: relative error {error} after step {}", step + 1);
        }
    }
}

fn context(threads: usize) -> Context {
    let options =
        ContextOptions { model: Some(MODEL.into()), n_threads: threads, ..ContextOptions::default() };
    Context::new(options, &Callbacks::default()).unwrap()
}

fn generate(context: &Context, size: usize, steps: i32, seed: i64) -> Image {
    let mut request = ImageRequest {
        prompt: b"a green (tulip:1.2)".to_vec(),
        width: size,
        height: size,
        seed,
        ..ImageRequest::default()
    };
    request.sample.steps = steps;
    let callbacks = Callbacks::default();
    let run = Run { callbacks: &callbacks, cancel: context.enter() };
    context.generate_image(&request, &run).unwrap().remove(0)
}

#[test]
fn equal_seeds_give_equal_bytes_on_any_number_of_threads() {
    let _alone = ALONE.lock();
    let one = context(1);
    let first = generate(&one, 128, 3, 7);
    for _ in 0..3 {
        assert!(generate(&one, 128, 3, 7) == first);
    }
    assert!(generate(&one, 128, 3, 8) != first);
    let options = ContextOptions {
        model: Some(MODEL.into()),
        params_backend: Some("disk".into()),
        enable_mmap: true,
        ..ContextOptions::default()
    };
    let waiting = Context::new(options, &Callbacks::default()).unwrap();
    for _ in 0..2 {
        assert!(generate(&waiting, 128, 3, 7) == first, "weights that wait on disk");
    }
    for threads in [2, 3] {
        assert!(generate(&context(threads), 128, 3, 7) == first, "{threads} threads");
    }
}

#[test]
fn memory_after_fifty_pictures_is_that_after_five() {
    let _alone = ALONE.lock();
    let context = context(1);
    let resident = || {
        let text = std::fs::read_to_string("/proc/self/statm").unwrap();
        text.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 4096
    };
    let mut after_five = 0;
    for i in 0..50 {
        generate(&context, 64, 1, i);
        if i == 4 {
            after_five = resident();
        }
    }
    let after_fifty = resident();
    assert!(after_fifty < after_five + (16 << 20), "{after_five} bytes, then {after_fifty}");
}
