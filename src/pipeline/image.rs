//! From a request to pictures.
#![forbid(unsafe_code)]

use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use super::autoencode::Coding;
use super::inputs::{Inputs, prepare};
use super::sampling::{Sampling, latent};
use super::{Stage, hires};
use crate::engine::request::{self, ImageRequest};
use crate::error::{Error, Result};
use crate::family::{Conditioning, ImageGuidance, PersonWish, Prompt, Traits};
use crate::image::{Image, Resize, from_tensor, resize};
use crate::report::Callbacks;
use crate::sample::guidance::{Scales, SkipLayers};
use crate::sample::plan::{self, Plan};
use crate::sample::run::Branch;
use crate::sample::schedule::ScheduleRequest;
use crate::sample::{Denoiser, Method, Rng, RngKind, SampleArgs, Scheduler};
use crate::tensor::HostTensor;
use crate::{log_info, log_warn};

/// Longest side of a picture in pixels; beyond it sizes overflow before memory ends.
pub(super) const MAX_SIDE: usize = 1 << 15;

/// Makes the pictures of `request`, fewer when the rest of the batch is cancelled.
pub fn generate(stage: &mut Stage<'_>, request: &ImageRequest) -> Result<Vec<Image>> {
    let started = Instant::now();
    let job = Job::new(stage, request)?;
    log_info!(stage.report, "generate_image {}x{}", job.size[0], job.size[1]);
    let mut rng = job.rng(stage.rng, 0);
    let mut plan = job.plan(request)?;
    if request.init_image.is_some() {
        plan.start_from_image(request.strength, &job.denoiser, &job.args)?;
    }
    let coding = job.coding(stage.report, request);
    let inputs = prepare(stage, request, &coding, job.size, &mut rng)?;
    let sampling = job.sampling(stage, request, &inputs, coding)?;
    let mut latents = first_pass(stage, &job, &sampling, &plan.sigmas, &inputs, request.batch_count)?;
    if let Some(target) = job.hires {
        latents = second_pass(stage, &job, &sampling, (&inputs, request), (&latents, plan.steps), target)?;
    }
    let images = decode(stage, &sampling.coding, &latents)?;
    log_info!(stage.report, "generate_image completed in {:.2}s", started.elapsed().as_secs_f32());
    Ok(images)
}

/// What a request comes to once sizes, seed and guidance are settled.
struct Job {
    traits: Traits,
    size: [usize; 2],
    factor: usize,
    hires: Option<[usize; 2]>,
    seed: u64,
    args: SampleArgs,
    denoiser: Denoiser,
    method: Method,
    scheduler: Scheduler,
    scales: Scales,
    shifted_timestep: i32,
}

impl Job {
    fn new(stage: &mut Stage<'_>, request: &ImageRequest) -> Result<Self> {
        let traits = stage.model.traits().clone();
        let size = [request.width, request.height];
        if size.iter().any(|&side| side == 0 || side > MAX_SIDE) {
            return Err(Error::invalid(format!(
                "width and height are {} and {}, expected 1 to {MAX_SIDE}",
                size[0], size[1]
            )));
        }
        let aligned = size.map(|side| side.next_multiple_of(traits.multiple));
        if aligned != size {
            log_warn!(
                stage.report,
                "size {}x{} is raised to {}x{} (multiples of {})",
                size[0],
                size[1],
                aligned[0],
                aligned[1],
                traits.multiple
            );
        }
        let hires = hires::target(&request.hires, aligned, traits.multiple, stage.report)?;
        let sample = &request.sample;
        let args = SampleArgs::parse(sample.extra_args.as_deref().unwrap_or_default());
        args.warnings.iter().for_each(|warning| log_warn!(stage.report, "{warning}"));
        let method = sample.method.map_or(traits.method, |m| Method::ALL[m.index()]);
        let scheduler = sample
            .scheduler
            .map(|s| Scheduler::ALL[s.index()])
            // A schedule made for the prediction goes before that of any sampler.
            .or_else(|| (traits.scheduler == Scheduler::Exponential).then_some(Scheduler::Exponential))
            .or_else(|| plan::scheduler_of(method))
            .unwrap_or(traits.scheduler);
        let mut denoiser = traits.denoiser.clone();
        if let Some(shift) = sample.flow_shift {
            denoiser = denoiser.with_shift(shift);
        }
        let mut shifted_timestep = sample.shifted_timestep;
        if shifted_timestep > 0 && !traits.can_shift_time {
            log_warn!(stage.report, "shifted_timestep is not possible with this model and ignored");
            shifted_timestep = 0;
        }
        let scales = scales(request, &traits, stage);
        let factor = stage.autoencoder.factor();
        let seed = settle_seed(request.seed);
        Ok(Self {
            traits,
            size: aligned,
            factor,
            hires,
            seed,
            args,
            denoiser,
            method,
            scheduler,
            scales,
            shifted_timestep,
        })
    }

    /// A generator for picture `index` of the batch.
    fn rng(&self, kind: request::Rng, index: usize) -> Rng {
        let kind = match kind {
            request::Rng::Standard => RngKind::StdDefault,
            request::Rng::Cuda => RngKind::Cuda,
            request::Rng::Cpu => RngKind::Cpu,
        };
        Rng::new(kind, self.seed.wrapping_add(index as u64))
    }

    fn schedule(&self, steps: usize, size: [usize; 2]) -> ScheduleRequest<'_> {
        let image_seq_len = (size[0] / self.factor) * (size[1] / self.factor);
        ScheduleRequest {
            scheduler: self.scheduler,
            steps,
            image_seq_len,
            ays: self.traits.ays,
            args: &self.args,
        }
    }

    fn plan(&self, request: &ImageRequest) -> Result<Plan> {
        let steps = usize::try_from(request.sample.steps).unwrap_or(0);
        Plan::new(&mut self.denoiser.clone(), &self.schedule(steps, self.size), &request.sample.custom_sigmas)
    }

    fn coding<'a>(&self, report: &'a Callbacks, request: &'a ImageRequest) -> Coding<'a> {
        Coding {
            tiling: &request.vae_tiling,
            circular: [request.circular_x, request.circular_y],
            latent: self.size.map(|side| side / self.factor),
            report: Some(report),
        }
    }

    fn sampling<'a>(
        &'a self,
        stage: &mut Stage<'_>,
        request: &'a ImageRequest,
        inputs: &'a Inputs,
        coding: Coding<'a>,
    ) -> Result<Sampling<'a>> {
        let skip = &request.sample.guidance.skip_layers;
        let mut skip_layers =
            SkipLayers { layers: skip.layers.clone(), scale: skip.scale, start: skip.start, stop: skip.end };
        if !skip_layers.layers.is_empty()
            && (skip.scale != 0.0 || self.args.slg_uncond)
            && !self.traits.can_skip_layers
        {
            log_warn!(stage.report, "skip-layer guidance is not possible with this model and ignored");
        }
        if !self.traits.can_skip_layers {
            skip_layers.layers.clear();
        }
        let mut scales = self.scales;
        if inputs.missing_reference {
            // The empty reference is no condition of its own.
            scales.image = 1.0;
        }
        Ok(Sampling {
            denoiser: &self.denoiser,
            method: self.method,
            eta: plan::eta(request.sample.eta, self.method),
            scales,
            skip_layers,
            shifted_timestep: self.shifted_timestep,
            args: &self.args,
            conditions: conditions(stage, request, self, inputs, scales)?,
            references: &inputs.reference_latents,
            increase_ref_index: request.increase_ref_index,
            distilled_guidance: request.sample.guidance.distilled,
            control: inputs.control.as_ref().map(|c| (c, request.control_strength)),
            identity: inputs.identity.as_ref().map(|(who, weight)| (who, *weight)),
            cache: &request.cache,
            coding,
        })
    }
}

/// Guidance scales that this model can follow.
fn scales(request: &ImageRequest, traits: &Traits, stage: &Stage<'_>) -> Scales {
    let guidance = &request.sample.guidance;
    let supported = match traits.image_guidance {
        ImageGuidance::Never => false,
        ImageGuidance::Always => true,
        ImageGuidance::WithReferences => !request.ref_images.is_empty(),
    };
    let image = guidance.image.unwrap_or(f32::INFINITY);
    let (scales, warning) = Scales::resolve(guidance.text, image, supported);
    if let Some(warning) = warning {
        log_warn!(stage.report, "{warning}");
    }
    if scales.text < 1.0 {
        log_warn!(stage.report, "txt_cfg is {}: below 1 the picture does not follow the prompt", scales.text);
    }
    scales
}

/// Seeds below 0 stand for one drawn from the clock.
fn settle_seed(seed: i64) -> u64 {
    u64::try_from(seed).unwrap_or_else(|_| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos());
        (now as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 33
    })
}

/// Encodes the prompts that the guidance needs.
fn conditions(
    stage: &mut Stage<'_>,
    request: &ImageRequest,
    job: &Job,
    inputs: &Inputs,
    scales: Scales,
) -> Result<[Option<Conditioning>; Branch::COUNT]> {
    let started = Instant::now();
    let needs = scales.needs();
    let prompt = |text, zero, references| Prompt {
        text,
        clip_skip: request.clip_skip,
        size: job.size,
        zero,
        references,
        person: None,
    };
    let zero = job.traits.zero_empty_negative && request.negative_prompt.is_empty();
    let [with, without] = &inputs.concat;
    let steps = usize::try_from(request.sample.steps).unwrap_or(0);
    let person = Some(PersonWish { given: &request.photo_maker, steps, report: stage.report });
    let positive = Prompt { person, ..prompt(&request.prompt, false, &inputs.references) };
    let mut positive = stage.model.condition(&stage.env, &positive)?;
    positive.concat = positive.concat.or_else(|| with.clone());
    if let Some((_, later)) = &mut positive.later {
        let concat = later.concat.clone().or_else(|| with.clone());
        *later = Arc::new(Conditioning { concat, ..(**later).clone() });
    }
    let mut negative = None;
    let mut alone = None;
    let by_references = job.traits.image_guidance == ImageGuidance::WithReferences;
    if needs.negative {
        let mut c =
            stage.model.condition(&stage.env, &prompt(&request.negative_prompt, zero, &inputs.references))?;
        c.concat = c.concat.or_else(|| with.clone());
        negative = Some(c);
    }
    if needs.image_negative {
        alone = Some(match &negative {
            Some(c) if !by_references => Conditioning { concat: without.clone(), ..c.clone() },
            _ => {
                let seen: &[HostTensor] = if by_references { &[] } else { &inputs.references };
                let mut c =
                    stage.model.condition(&stage.env, &prompt(&request.negative_prompt, zero, seen))?;
                c.concat = c.concat.or_else(|| without.clone());
                c
            }
        });
    }
    rest(stage);
    log_info!(stage.report, "prompts encoded in {:.2}s", started.elapsed().as_secs_f32());
    Ok([Some(positive), negative, alone])
}

/// Samples the batch.
fn first_pass(
    stage: &mut Stage<'_>,
    job: &Job,
    sampling: &Sampling<'_>,
    sigmas: &[f32],
    inputs: &Inputs,
    count: usize,
) -> Result<Vec<HostTensor>> {
    let mut latents = Vec::new();
    for index in 0..count {
        stage.cancel.check()?;
        if stage.cancel.skip_rest() {
            log_info!(stage.report, "no new latents: {} of {count} are done", latents.len());
            break;
        }
        log_info!(
            stage.report,
            "generating image {}/{count} with seed {}",
            index + 1,
            job.seed.wrapping_add(index as u64)
        );
        let mut rng = job.rng(stage.rng, index);
        let noise = noise_like(&inputs.start, &mut rng);
        let mut own = stage.sampler_rng.map(|kind| job.rng(kind, index));
        let rng = own.as_mut().unwrap_or(&mut rng);
        let started = Instant::now();
        latents.push(latent(stage, sampling, sigmas, (&inputs.start, &noise, Some(&inputs.mask)), rng)?);
        log_info!(stage.report, "sampling completed in {:.2}s", started.elapsed().as_secs_f32());
    }
    rest(stage);
    if latents.is_empty() { Err(Error::Cancelled) } else { Ok(latents) }
}

/// Ends a phase of the model's work: its graphs serve all latents of a pass and no longer.
fn rest(stage: &mut Stage<'_>) {
    for runner in stage.model.runners() {
        runner.rest();
    }
}

/// Enlarges the latents and samples on from there.
fn second_pass(
    stage: &mut Stage<'_>,
    job: &Job,
    sampling: &Sampling<'_>,
    (inputs, request): (&Inputs, &ImageRequest),
    (latents, steps): (&[HostTensor], usize),
    target: [usize; 2],
) -> Result<Vec<HostTensor>> {
    let hires = &request.hires;
    log_info!(stage.report, "hires: second pass at {}x{}", target[0], target[1]);
    let sigmas = plan::hires_sigmas(
        &mut job.denoiser.clone(),
        &job.schedule(steps, target),
        (usize::try_from(hires.steps).unwrap_or(0), steps),
        hires.denoising_strength,
        &hires.custom_sigmas,
    )?;
    let mut upscaler = match (&hires.model, hires.upscaler) {
        (Some(path), request::HiresUpscaler::Model) => Some((stage.upscaler)(path, hires.upscale_tile_size)?),
        _ => None,
    };
    let mut out = Vec::with_capacity(latents.len());
    for (index, first) in latents.iter().enumerate() {
        stage.cancel.check()?;
        let mut rng = job.rng(stage.rng, index);
        let coding = &sampling.coding;
        let start = hires::enlarge(stage, hires, first, target, upscaler.as_mut(), (coding, &mut rng))?;
        let noise = noise_like(&start, &mut rng);
        let mask = resize(&inputs.mask, [start.dim(0), start.dim(1)], Resize::NearestMax, false)?;
        let mut own = stage.sampler_rng.map(|kind| job.rng(kind, index));
        let rng = own.as_mut().unwrap_or(&mut rng);
        out.push(latent(stage, sampling, &sigmas, (&start, &noise, Some(&mask)), rng)?);
        // The next one's picture may be decoded and encoded first.
        rest(stage);
    }
    Ok(out)
}

/// Standard normal noise of the shape of `latent`.
fn noise_like(latent: &HostTensor, rng: &mut Rng) -> HostTensor {
    let mut noise = HostTensor::zeros(latent.shape.clone());
    rng.normal(&mut noise.data);
    noise
}

fn decode(stage: &mut Stage<'_>, coding: &Coding<'_>, latents: &[HostTensor]) -> Result<Vec<Image>> {
    let mut images = Vec::with_capacity(latents.len());
    for (index, latent) in latents.iter().enumerate() {
        stage.cancel.check()?;
        let started = Instant::now();
        let pixels = coding.decode(stage.autoencoder, &stage.env, latent)?;
        images.push(from_tensor(&pixels, 0)?);
        log_info!(stage.report, "latent {} decoded in {:.2}s", index + 1, started.elapsed().as_secs_f32());
    }
    Ok(images)
}
