use crate::error::{Error, Result};
use crate::sample::cache::{CacheMode, CacheParams, CacheSetup, NetworkKind, StepCache};
use crate::sample::guidance::{Scales, SkipLayers};
use crate::sample::prediction::{Denoiser, Prediction};
use crate::sample::rng::{Rng, RngKind};
use crate::sample::run::{Branch, Evaluation, Generation, Network, Observer, Sampler, sample};
use crate::sample::{Method, SampleArgs};
use crate::tensor::HostTensor;

/// A network that notes its evaluations; its output is a share of the latent that depends on the branch.
#[derive(Default)]
struct Toy {
    evaluations: Vec<(i32, Branch, Vec<i32>)>,
    wrong_shape: bool,
}

impl Network for Toy {
    fn predict(&mut self, evaluation: &Evaluation<'_>, out: &mut HostTensor) -> Result<()> {
        self.evaluations.push((evaluation.step, evaluation.branch, evaluation.skip_layers.to_vec()));
        let factor = match evaluation.branch {
            Branch::Positive if !evaluation.skip_layers.is_empty() => 0.1,
            Branch::Positive => 0.4,
            Branch::Negative => 0.2,
            Branch::ImageNegative => 0.3,
        };
        for (out, x) in out.data.iter_mut().zip(&evaluation.x.data) {
            *out = factor * x;
        }
        if self.wrong_shape {
            *out = HostTensor::zeros([1, 2, 3]);
        }
        Ok(())
    }
}

#[derive(Debug, PartialEq)]
enum Event {
    Progress(usize, usize),
    Preview(usize, bool),
}

#[derive(Default)]
struct Watch {
    events: Vec<Event>,
    /// Cancel after this step.
    cancel_at: Option<usize>,
    cancelled: bool,
    last_preview: Vec<f32>,
}

impl Observer for Watch {
    fn check(&mut self) -> Result<()> {
        if self.cancelled { Err(Error::Cancelled) } else { Ok(()) }
    }

    fn progress(&mut self, done: usize, steps: usize) {
        self.events.push(Event::Progress(done, steps));
        self.cancelled |= self.cancel_at == Some(done);
    }

    fn preview(&mut self, step: usize, latent: &HostTensor, noisy: bool) -> Result<()> {
        self.events.push(Event::Preview(step, noisy));
        if !noisy {
            self.last_preview = latent.data.clone();
        }
        Ok(())
    }
}

struct Setup {
    denoiser: Denoiser,
    method: Method,
    sigmas: Vec<f32>,
    scales: Scales,
    skip_layers: SkipLayers,
    args: SampleArgs,
    mask: Option<HostTensor>,
    cache: CacheParams,
    network: NetworkKind,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            denoiser: Denoiser::new(Prediction::Flow),
            method: Method::Euler,
            sigmas: vec![1.0, 0.75, 0.5, 0.25, 0.0],
            scales: Scales { text: 1.0, image: 1.0 },
            skip_layers: SkipLayers::default(),
            args: SampleArgs::default(),
            mask: None,
            cache: CacheParams::default(),
            network: NetworkKind::Transformer,
        }
    }
}

fn latent(factor: f32) -> HostTensor {
    HostTensor::new([4, 3, 2, 1], (0..24).map(|i| factor * (i as f32 - 10.0)).collect()).unwrap()
}

impl Setup {
    fn run(&self, toy: &mut Toy, watch: &mut Watch) -> Result<HostTensor> {
        let generation = Generation {
            denoiser: &self.denoiser,
            method: self.method,
            sigmas: &self.sigmas,
            eta: 0.0,
            scales: self.scales,
            skip_layers: &self.skip_layers,
            shifted_timestep: 0,
            args: &self.args,
            mask: self.mask.as_ref(),
            mask_input: false,
            finish: true,
        };
        let setup = CacheSetup {
            network: self.network,
            denoiser: &self.denoiser,
            sigmas: &self.sigmas,
            needs_uncond: self.method.needs_uncond(),
        };
        let (mut cache, _) = StepCache::new(&self.cache, &setup);
        let mut rng = Rng::new(RngKind::Cuda, 1);
        sample(
            &mut Sampler::default(),
            &generation,
            &latent(0.1),
            Some(&latent(-0.2)),
            (toy, watch),
            (&mut rng, &mut cache),
        )
    }

    fn steps_of(&self, branch: Branch, skipped: bool) -> Vec<i32> {
        let mut toy = Toy::default();
        self.run(&mut toy, &mut Watch::default()).unwrap();
        let of_branch = |e: &&(i32, Branch, Vec<i32>)| e.1 == branch && e.2.is_empty() != skipped;
        toy.evaluations.iter().filter(of_branch).map(|e| e.0).collect()
    }
}

#[test]
fn branches_that_the_scales_do_not_need_are_not_evaluated() {
    let steps = |text: f32, image: f32| {
        let setup = Setup { scales: Scales { text, image }, ..Setup::default() };
        [Branch::Positive, Branch::Negative, Branch::ImageNegative].map(|b| setup.steps_of(b, false).len())
    };
    assert_eq!(steps(1.0, 1.0), [4, 0, 0]);
    assert_eq!(steps(7.0, 1.0), [4, 4, 0]);
    assert_eq!(steps(7.0, 7.0), [4, 0, 4]);
    assert_eq!(steps(7.0, 2.0), [4, 4, 4]);
}

#[test]
fn progress_rises_by_one_and_each_step_has_one_preview_of_each_kind() {
    for method in Method::ALL {
        let mut watch = Watch::default();
        Setup { method, ..Setup::default() }.run(&mut Toy::default(), &mut watch).unwrap();
        let mut expected = vec![Event::Progress(0, 4)];
        for step in 1..=4 {
            expected.extend([
                Event::Preview(step, true),
                Event::Preview(step, false),
                Event::Progress(step, 4),
            ]);
        }
        assert_eq!(watch.events, expected, "{method:?}");
    }
}

#[test]
fn a_cancel_ends_the_generation_before_the_next_evaluation() {
    for method in [Method::Euler, Method::Heun, Method::Dpmpp2mSdeBt] {
        for at in 0..=3 {
            let mut toy = Toy::default();
            let mut watch = Watch { cancel_at: Some(at), ..Watch::default() };
            let error = Setup { method, ..Setup::default() }.run(&mut toy, &mut watch).unwrap_err();
            assert!(matches!(error, Error::Cancelled));
            let evaluated = toy.evaluations.iter().map(|e| e.0.unsigned_abs() as usize).max().unwrap_or(0);
            assert_eq!(evaluated, at);
        }
    }
    let mut watch = Watch { cancel_at: Some(4), ..Watch::default() };
    assert!(Setup::default().run(&mut Toy::default(), &mut watch).is_ok());
}

#[test]
fn the_mask_keeps_the_start() {
    let mask = HostTensor::new([1, 3, 1, 1], vec![0.0, 1.0, 0.5]).unwrap();
    let setup = Setup { mask: Some(mask), ..Setup::default() };
    let free = Setup::default().run(&mut Toy::default(), &mut Watch::default()).unwrap();
    let mut watch = Watch::default();
    let masked = setup.run(&mut Toy::default(), &mut watch).unwrap();
    let start = latent(0.1);
    for i in 0..24 {
        match i / 4 % 3 {
            0 => assert_eq!(masked.data[i], start.data[i]),
            1 => assert!((masked.data[i] - free.data[i]).abs() < 1e-6),
            _ => assert!(masked.data[i] != free.data[i] || start.data[i] == 0.0),
        }
    }
    for (preview, result) in watch.last_preview.iter().zip(&masked.data) {
        assert!((preview - result).abs() < 1e-6);
    }
    let wrong = Setup { mask: Some(HostTensor::zeros([4, 2])), ..Setup::default() };
    assert!(wrong.run(&mut Toy::default(), &mut Watch::default()).is_err());
}

#[test]
fn layers_are_skipped_inside_the_window() {
    let skip_layers = SkipLayers { layers: vec![7, 8], scale: 2.5, start: 0.0, stop: 0.8 };
    let third = Setup { skip_layers: skip_layers.clone(), ..Setup::default() };
    assert_eq!(third.steps_of(Branch::Positive, true), [1, 2, 3]);
    let scales = Scales { text: 4.0, image: 1.0 };
    let args = SampleArgs::parse("slg_uncond=true");
    let uncond =
        Setup { skip_layers: SkipLayers { scale: 0.0, ..skip_layers }, scales, args, ..Setup::default() };
    assert_eq!(uncond.steps_of(Branch::Negative, true), [1, 2, 3]);
    assert_eq!(uncond.steps_of(Branch::Negative, false), [4]);
    assert_eq!(uncond.steps_of(Branch::Positive, true), Vec::<i32>::new());
}

#[test]
fn a_guidance_schedule_runs_backwards_and_ends_unguided() {
    let guided = |args: &str, text: f32| {
        let scales = Scales { text, image: 1.0 };
        let setup =
            Setup { sigmas: vec![1.0, 0.5, 0.0], args: SampleArgs::parse(args), scales, ..Setup::default() };
        setup.run(&mut Toy::default(), &mut Watch::default()).unwrap().data
    };
    // Scales at the two steps: the first entry, then 0. By hand: the output is x (0.2 + scale 0.2), the clean
    // latent x - sigma times that.
    let x = latent(-0.2).data;
    let step = |x: f32, sigma: f32, next: f32, scale: f32| {
        let denoised = x - sigma * (0.2 + scale * 0.2) * x;
        x + (x - denoised) / sigma * (next - sigma)
    };
    let expected: Vec<f32> = x.iter().map(|&x| step(step(x, 1.0, 0.5, 3.0), 0.5, 0.0, 0.0)).collect();
    for (found, expected) in guided("guidance_schedule=3x1+5x1", 7.0).iter().zip(expected) {
        assert!((found - expected).abs() < 1e-5, "{found} {expected}");
    }
    assert_ne!(guided("", 7.0), guided("guidance_schedule=7x2", 7.0));
}

#[test]
fn cfg_pp_gets_the_latent_without_the_prompt() {
    let scales = Scales { text: 2.0, image: 1.0 };
    let plain = Setup { method: Method::Euler, scales, ..Setup::default() };
    let plus = Setup { method: Method::EulerCfgPp, scales, ..Setup::default() };
    let run = |setup: &Setup| setup.run(&mut Toy::default(), &mut Watch::default()).unwrap();
    assert_ne!(run(&plain), run(&plus));
    // Without guidance both are the same.
    let scales = Scales { text: 1.0, image: 1.0 };
    let plain = run(&Setup { method: Method::Euler, scales, ..Setup::default() });
    let plus = run(&Setup { method: Method::EulerCfgPp, scales, ..Setup::default() });
    for (a, b) in plain.data.iter().zip(&plus.data) {
        assert!((a - b).abs() < 1e-5);
    }
}

#[test]
fn caches_leave_evaluations_out_and_progress_in() {
    let sigmas: Vec<f32> = (0..=20).map(|i| 1.0 - i as f32 / 20.0).collect();
    for (mode, network) in [
        (CacheMode::EasyCache, NetworkKind::Transformer),
        (CacheMode::DbCache, NetworkKind::Transformer),
        (CacheMode::UCache, NetworkKind::UNet),
        (CacheMode::Spectrum, NetworkKind::UNet),
    ] {
        let cache = CacheParams {
            mode,
            reuse_threshold: Some(1.0),
            residual_diff_threshold: 1.0,
            ..CacheParams::default()
        };
        let scales = Scales { text: 3.0, image: 1.0 };
        let setup = Setup { sigmas: sigmas.clone(), cache, network, scales, ..Setup::default() };
        let (mut toy, mut watch) = (Toy::default(), Watch::default());
        setup.run(&mut toy, &mut watch).unwrap();
        assert!(toy.evaluations.len() < 36, "{mode:?}: {}", toy.evaluations.len());
        let progress = watch.events.iter().filter(|event| matches!(event, Event::Progress(..))).count();
        assert_eq!(progress, 21);
    }
}

#[test]
fn a_wrong_shape_is_an_error() {
    let mut toy = Toy { wrong_shape: true, ..Toy::default() };
    assert!(Setup::default().run(&mut toy, &mut Watch::default()).is_err());
    let short = Setup { sigmas: vec![1.0], ..Setup::default() };
    assert!(short.run(&mut Toy::default(), &mut Watch::default()).is_err());
}
