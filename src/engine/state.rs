//! What a context owns and uses exclusively during a call: networks, device, buffers.
#![forbid(unsafe_code)]

use std::cell::Cell;
use std::ffi::c_void;
use std::path::Path;
use std::time::Instant;

use super::adapters::Shelf;
use super::choice::{SampleMethod, Scheduler};
use super::context::{Facts, Run};
use super::open::open;
use super::placement::{Module, Placement};
use super::request::{ContextOptions, ImageRequest, Lora};
use crate::cancel::CancelToken;
use crate::error::{Error, Result};
use crate::family::{Autoencoder, Loaded, Loading, Model};
use crate::graph::{Device, EvalNode, Math, ProductSink, Type, Watch, devices};
use crate::image::Image;
use crate::layer::{Env, Runner};
use crate::pipeline::upscale::{StagedUpscaler, TiledUpscaler};
use crate::pipeline::{PixelUpscaler, Stage, generate_image};
use crate::report::{Callbacks, EvalFn};
use crate::sample::run::Sampler;
use crate::weights::TypePolicy;
use crate::weights::importance::{self, Meter};
use crate::{log_info, log_warn};

/// Networks and devices of a context.
pub(super) struct State {
    options: ContextOptions,
    device: Device,
    math: Math,
    model: Box<dyn Model>,
    autoencoder: Box<dyn Autoencoder>,
    preview: Option<Box<dyn Autoencoder>>,
    sampler: Sampler,
    shelf: Shelf,
}

impl State {
    /// Opens the files, puts the networks together and finds out what only weights can tell.
    pub(super) fn new(options: ContextOptions, report: &Callbacks) -> Result<(Self, Facts)> {
        let opened = open(&options, report)?;
        let wtype = options.wtype.and_then(|id| i32::try_from(id).ok()).and_then(Type::from_ggml);
        let policy = TypePolicy::new(wtype, options.tensor_type_rules.as_deref())?;
        let loading = Loading { index: &opened.index, policy: &policy, options: &options, report };
        let Loaded { model, autoencoder, preview } = opened.family.build(&loading)?;
        warn_of_model_args(&options, opened.family.model_args(), report);
        let device = choose_device(options.backend.as_deref(), "diffusion", options.n_threads)?;
        log_info!(report, "device: {} with {} threads", device.name(), device.threads());
        let math = choose_math(&options, &device, report);
        let mut shelf = Shelf::new(&opened.index, opened.dialect);
        shelf.accompany(&*model, report);
        let sampler = Sampler::default();
        let mut state = Self { options, device, math, model, autoencoder, preview, sampler, shelf };
        state.prepare(report)?;
        let facts = state.facts();
        Ok((state, facts))
    }

    /// Says of each network where its weights wait while it is unused.
    fn place(&mut self, report: &Callbacks) {
        let options = &self.options;
        let ignored = [
            ("max_vram", options.max_vram.is_some()),
            ("stream_layers", options.stream_layers),
            ("split_mode", options.split_mode.is_some()),
            ("auto_fit", options.auto_fit),
            ("rpc_servers", options.rpc_servers.is_some()),
        ];
        for (field, _) in ignored.iter().filter(|(_, given)| *given) {
            log_warn!(report, "{field} has no effect: every network runs whole on one device");
        }
        let placement = Placement::parse(self.options.params_backend.as_deref(), report);
        for runner in self.model.runners() {
            let module = Module::of_part(runner.part().name());
            runner.set_waits_on_disk(placement.on_disk(module));
        }
        for runner in coders(&mut self.autoencoder, &mut self.preview) {
            runner.set_waits_on_disk(placement.on_disk(Module::Vae));
        }
    }

    fn prepare(&mut self, report: &Callbacks) -> Result<()> {
        self.place(report);
        let cancel = CancelToken::none();
        let watch = CallWatch::new(&cancel, report);
        let progress = LoadProgress::new(report);
        let tell = |done, of| progress.tell(done, of);
        let env = Env {
            device: &self.device,
            math: self.math,
            circular: [false; 2],
            mmap: self.options.enable_mmap,
            watch: &watch,
            cancel: &cancel,
            load_progress: &tell,
        };
        self.model.settle(&env)?;
        if self.options.eager_load {
            for runner in networks(&mut *self.model, &mut self.autoencoder, &mut self.preview) {
                runner.load(&env)?;
            }
        }
        Ok(())
    }

    fn facts(&self) -> Facts {
        let traits = self.model.traits();
        Facts {
            images: traits.images,
            videos: traits.videos,
            method: SampleMethod::ALL[traits.method as usize],
            scheduler: Scheduler::ALL[traits.scheduler as usize],
        }
    }

    /// Makes images.
    pub(super) fn generate_image(&mut self, request: &ImageRequest, run: &Run<'_>) -> Result<Vec<Image>> {
        if !self.model.traits().images {
            return Err(Error::invalid("this model makes videos: call generate_video"));
        }
        run.cancel.check()?;
        let report = run.callbacks;
        self.apply_loras(&request.loras, report)?;
        let watch = CallWatch::new(&run.cancel, report);
        let progress = LoadProgress::new(report);
        let tell = |done, of| progress.tell(done, of);
        // Kernels keep their operands to themselves: ggml's own products are watched.
        let math = Math { kernels: self.math.kernels && !importance::is_measuring(), ..self.math };
        let env = Env {
            device: &self.device,
            math,
            circular: [request.circular_x, request.circular_y],
            mmap: self.options.enable_mmap,
            watch: &watch,
            cancel: &run.cancel,
            load_progress: &tell,
        };
        let open_upscaler = |path: &Path, tile| -> Result<Box<dyn PixelUpscaler + '_>> {
            let upscaler = TiledUpscaler::open(path, tile, "hires.model_path")?;
            Ok(Box::new(StagedUpscaler { upscaler, env, report }))
        };
        let mut stage = Stage {
            model: self.model.as_mut(),
            autoencoder: self.autoencoder.as_mut(),
            preview: self.preview.as_mut(),
            env,
            report,
            cancel: &run.cancel,
            sampler: &mut self.sampler,
            upscaler: &open_upscaler,
            rng: self.options.rng,
            // Two of one kind are one generator, as recorded.
            sampler_rng: self.options.sampler_rng.filter(|kind| *kind != self.options.rng),
        };
        let result = generate_image(&mut stage, request);
        self.free_graphs();
        result
    }

    /// Makes the LoRAs of a generation count, and no others.
    fn apply_loras(&mut self, loras: &[Lora], report: &Callbacks) -> Result<()> {
        let mut runners = networks(&mut *self.model, &mut self.autoencoder, &mut self.preview);
        self.shelf.apply(loras, self.options.lora_apply, &mut runners, &self.device, report)
    }

    /// Frees the memory of intermediate values, also after an error.
    fn free_graphs(&mut self) {
        for runner in networks(&mut *self.model, &mut self.autoencoder, &mut self.preview) {
            runner.rest();
        }
    }
}

/// The networks of the autoencoders.
fn coders<'a>(
    autoencoder: &'a mut Box<dyn Autoencoder>,
    preview: &'a mut Option<Box<dyn Autoencoder>>,
) -> impl Iterator<Item = &'a mut Runner> {
    std::iter::once(autoencoder).chain(preview).flat_map(|coder| coder.runners())
}

/// All networks of a context, those of the autoencoders first.
fn networks<'a>(
    model: &'a mut dyn Model,
    autoencoder: &'a mut Box<dyn Autoencoder>,
    preview: &'a mut Option<Box<dyn Autoencoder>>,
) -> Vec<&'a mut Runner> {
    coders(autoencoder, preview).chain(model.runners()).collect()
}

/// The device that `backend` names for `module`; without one a GPU where ggml found any, else the CPU.
pub(super) fn choose_device(backend: Option<&str>, module: &str, threads: usize) -> Result<Device> {
    match backend.map(|spec| device_of(spec, module)) {
        Some(name) if !name.is_empty() => Device::open(name, threads),
        _ => {
            let gpu = devices().into_iter().map(|(name, _)| name).find(|name| {
                ["CUDA", "Vulkan", "Metal", "SYCL", "ROCm"].iter().any(|kind| name.starts_with(kind))
            });
            gpu.map_or_else(|| Device::cpu(threads), |name| Device::open(&name, threads))
        }
    }
}

/// The device for `module` in `name` or `module=name,...`.
fn device_of<'s>(spec: &'s str, module: &str) -> &'s str {
    let mut chosen = "";
    for part in spec.split(',').map(str::trim) {
        match part.split_once('=') {
            None => chosen = part,
            Some((key, name)) if key == module || matches!(key, "diffusion_model" | "*" | "all") => {
                chosen = name.trim();
            }
            Some(_) => {}
        }
    }
    chosen
}

/// Key of `model_args` that chooses the precision of CPU products.
const CPU_MATH: &str = "cpu_math";

/// Says which keys of `model_args` mean nothing here.
fn warn_of_model_args(options: &ContextOptions, known: &[&str], report: &Callbacks) {
    let text = options.model_args.as_deref().unwrap_or_default();
    let (pairs, malformed) = crate::sample::args::key_values(text);
    for (key, _) in pairs.iter().filter(|(key, _)| *key != CPU_MATH && !known.contains(key)) {
        crate::log_warn!(report, "model_args: {key} means nothing to this model");
    }
    for token in malformed {
        crate::log_warn!(report, "{}", token.replace("extra_sample_args", "model_args"));
    }
}

fn choose_math(options: &ContextOptions, device: &Device, report: &Callbacks) -> Math {
    let (pairs, _) = crate::sample::args::key_values(options.model_args.as_deref().unwrap_or_default());
    let fast = match pairs.iter().rev().find(|(key, _)| *key == CPU_MATH).map(|(_, value)| *value) {
        Some("fast") => true,
        Some("accurate") | None => false,
        Some(other) => {
            crate::log_warn!(report, "model_args: {CPU_MATH} is {other:?}, expected accurate or fast");
            false
        }
    };
    Math { kernels: device.is_cpu(), fast, flash: options.flash_attn || options.diffusion_flash_attn }
}

/// Cancelling and the node callback of one call.
pub(super) struct CallWatch<'a> {
    cancel: &'a CancelToken,
    eval: Option<Eval<'a>>,
}

impl<'a> CallWatch<'a> {
    pub(super) fn new(cancel: &'a CancelToken, report: &'a Callbacks) -> Self {
        Self { cancel, eval: report.eval.as_deref().map(Eval) }
    }
}

impl Watch for CallWatch<'_> {
    fn cancelled(&self) -> bool {
        self.cancel.stop()
    }

    fn products(&self) -> Option<&dyn ProductSink> {
        importance::is_measuring().then_some(&Meter)
    }

    fn eval(&self) -> Option<&dyn EvalNode> {
        self.eval.as_ref().map(|eval| eval as &dyn EvalNode)
    }
}

struct Eval<'a>(&'a EvalFn);

impl EvalNode for Eval<'_> {
    fn eval(&self, tensor: *mut c_void, ask: bool) -> bool {
        (self.0)(tensor, ask)
    }
}

/// Passes on the progress of loading, a few times a second.
pub(super) struct LoadProgress<'a> {
    report: &'a Callbacks,
    last: Cell<Option<Instant>>,
}

/// Least seconds between two reports; the last tensor is always reported.
const LOAD_INTERVAL: f32 = 0.2;

impl<'a> LoadProgress<'a> {
    pub(super) fn new(report: &'a Callbacks) -> Self {
        Self { report, last: Cell::new(None) }
    }

    pub(super) fn tell(&self, done: usize, of: usize) {
        let seconds = self.last.get().map_or(0.0, |at| at.elapsed().as_secs_f32());
        if done == of || self.last.get().is_none() || seconds >= LOAD_INTERVAL {
            self.last.set(Some(Instant::now()));
            let count = |n: usize| i32::try_from(n).unwrap_or(i32::MAX);
            self.report.progress(count(done), count(of), seconds);
        }
    }
}
