//! The guided model: evaluates the network once per branch and makes one denoised latent of the outputs.
#![forbid(unsafe_code)]

use super::super::cache::StepCache;
use super::super::guidance::{
    AdaptiveGuidance, GuidanceSchedule, NeededOutputs, Outputs, Scales, SkipLayers, combine,
};
use super::super::prediction::Scalings;
use super::super::samplers::{Denoise, Denoised, resize};
use super::{Branch, Evaluation, Generation, Network, Observer};
use crate::error::{Error, Result};
use crate::tensor::HostTensor;

/// Buffers in the shape of the latent.
#[derive(Debug, Default)]
pub(super) struct Buffers {
    /// Input of the network.
    input: HostTensor,
    /// Outputs of the branches.
    outputs: [HostTensor; Branch::COUNT],
    /// Output without some layers.
    skipped: HostTensor,
    /// The last denoised latent, for previews.
    denoised: HostTensor,
    /// The mask, repeated to the whole shape.
    mask: Vec<f32>,
}

pub(super) struct GuidedModel<'a> {
    generation: &'a Generation<'a>,
    start: &'a HostTensor,
    network: &'a mut dyn Network,
    observer: &'a mut dyn Observer,
    cache: &'a mut StepCache,
    buffers: &'a mut Buffers,
    needs: NeededOutputs,
    schedule: GuidanceSchedule,
    adaptive: Option<AdaptiveGuidance>,
    /// The last step that a noisy preview was shown for; `None` before the first evaluation.
    started: Option<usize>,
}

impl<'a> GuidedModel<'a> {
    pub(super) fn new(
        generation: &'a Generation<'a>,
        start: &'a HostTensor,
        network: &'a mut dyn Network,
        observer: &'a mut dyn Observer,
        cache: &'a mut StepCache,
        buffers: &'a mut Buffers,
    ) -> Result<Self> {
        let steps = generation.sigmas.len().saturating_sub(1);
        let Buffers { input, outputs, skipped, denoised, mask } = &mut *buffers;
        let [positive, negative, image_negative] = outputs;
        for buffer in [input, positive, negative, image_negative, skipped, denoised] {
            resize(buffer, &start.shape);
        }
        mask.clear();
        if let Some(given) = generation.mask {
            expand(given, &start.shape, mask)?;
        }
        let mut schedule = generation.args.guidance_schedule.clone();
        schedule.fit(steps, generation.scales.text);
        let apg = generation.args.apg;
        Ok(Self {
            generation,
            start,
            network,
            observer,
            cache,
            buffers,
            needs: generation.scales.needs(),
            schedule,
            adaptive: apg.enabled().then(|| AdaptiveGuidance::new(apg)),
            started: None,
        })
    }

    fn steps(&self) -> usize {
        self.generation.sigmas.len() - 1
    }

    /// Once per generation: progress 0. Once per step: the noisy preview.
    fn announce(&mut self, step: usize, noisy: bool) -> Result<()> {
        if self.started.is_none() {
            self.observer.progress(0, self.steps());
        }
        if self.started != Some(step) {
            self.started = Some(step);
            if noisy {
                self.observer.preview(step, &self.buffers.input, true)?;
            }
        }
        Ok(())
    }

    /// Scales the latent for the network.
    fn prepare_input(&mut self, x: &HostTensor, c_in: f32) {
        let input = &mut self.buffers.input.data;
        for (input, x) in input.iter_mut().zip(&x.data) {
            *input = x * c_in;
        }
        if self.generation.mask_input {
            keep_start(&self.buffers.mask, &self.start.data, input);
        }
    }

    /// Evaluates a branch, or takes its output from the cache.
    fn evaluate(&mut self, evaluation: &Evaluation<'_>) -> Result<()> {
        let out = &mut self.buffers.outputs[evaluation.branch.index()];
        let input = &self.buffers.input;
        if self.cache.reuse(evaluation.branch, &input.data, &mut out.data) {
            return Ok(());
        }
        self.observer.check()?;
        self.network.predict(&Evaluation { x: input, ..*evaluation }, out)?;
        check_shape(out, &self.start.shape)?;
        self.cache.store(evaluation.branch, &input.data, &out.data);
        Ok(())
    }

    /// Evaluates all branches and leaves the guided prediction in `out`.
    fn predict(&mut self, base: Evaluation<'_>, out: &mut [f32]) -> Result<()> {
        let skip: &SkipLayers = self.generation.skip_layers;
        let in_window = skip.enabled(base.step, self.generation.sigmas.len());
        self.evaluate(&Evaluation { branch: Branch::Positive, ..base })?;
        if self.needs.negative {
            let skipping = in_window && self.generation.args.slg_uncond;
            let skip_layers: &[i32] = if skipping { &skip.layers } else { &[] };
            self.evaluate(&Evaluation { branch: Branch::Negative, skip_layers, ..base })?;
        }
        if self.needs.image_negative {
            self.evaluate(&Evaluation { branch: Branch::ImageNegative, ..base })?;
        }
        self.guide(base.step, out);
        if in_window && skip.scale != 0.0 && !self.cache.skipping() {
            self.observer.check()?;
            let Buffers { input, skipped, outputs, .. } = &mut *self.buffers;
            self.network.predict(&Evaluation { x: input, skip_layers: &skip.layers, ..base }, skipped)?;
            check_shape(skipped, &self.start.shape)?;
            skip.apply(&outputs[0].data, &skipped.data, out);
        }
        Ok(())
    }

    fn guide(&mut self, step: i32, out: &mut [f32]) {
        let [positive, negative, image_negative] = &self.buffers.outputs;
        let outputs = Outputs {
            positive: &positive.data,
            negative: self.needs.negative.then_some(&negative.data),
            image_negative: self.needs.image_negative.then_some(&image_negative.data),
        };
        let scales = self.generation.scales;
        let scheduled = self.schedule.at(step);
        match &mut self.adaptive {
            Some(adaptive) => adaptive.combine(outputs, scales, scheduled, out),
            None => combine(outputs, Scales { text: scheduled.unwrap_or(scales.text), ..scales }, out),
        }
    }

    /// The denoised latent without the prompt, for CFG++.
    fn write_uncond(&self, x: &HostTensor, scalings: Scalings, out: &mut [f32]) {
        let branch = if self.needs.image_negative {
            Branch::ImageNegative
        } else if self.needs.negative {
            Branch::Negative
        } else {
            Branch::Positive
        };
        out.copy_from_slice(&self.buffers.outputs[branch.index()].data);
        apply_scalings(&x.data, scalings, out);
    }
}

impl Denoise for GuidedModel<'_> {
    fn denoise(&mut self, x: &HostTensor, sigma: f32, step: i32, out: &mut Denoised) -> Result<()> {
        self.observer.check()?;
        let number = step.unsigned_abs() as usize;
        let denoised = &mut out.pred.data;
        if self.cache.predict(denoised) {
            self.announce(number, false)?;
        } else {
            let (t, scalings) =
                self.generation.denoiser.time_and_scalings(sigma, self.generation.shifted_timestep);
            self.prepare_input(x, scalings.c_in);
            self.announce(number, true)?;
            self.cache.begin(step, sigma);
            let dual_t = self.generation.denoiser.dual().times(step);
            let nothing = HostTensor::default();
            let base = Evaluation {
                x: &nothing,
                t,
                dual_t,
                sigma,
                step,
                branch: Branch::Positive,
                skip_layers: &[],
            };
            self.predict(base, denoised)?;
            apply_scalings(&x.data, scalings, denoised);
            if self.generation.method.needs_uncond() {
                self.write_uncond(x, scalings, &mut out.uncond.data);
            }
            self.cache.record(denoised);
        }
        keep_start(&self.buffers.mask, &self.start.data, denoised);
        self.buffers.denoised.data.copy_from_slice(denoised);
        Ok(())
    }

    fn end_step(&mut self, step: i32) -> Result<()> {
        let step = step.unsigned_abs() as usize;
        self.observer.preview(step, &self.buffers.denoised, false)?;
        self.observer.progress(step, self.steps());
        if step < self.steps() { self.observer.check() } else { Ok(()) }
    }
}

/// `out = out * c_out + x * c_skip`.
fn apply_scalings(x: &[f32], scalings: Scalings, out: &mut [f32]) {
    for (out, x) in out.iter_mut().zip(x) {
        *out = *out * scalings.c_out + x * scalings.c_skip;
    }
}

/// Puts the start latent where the mask (empty for none) is 0.
fn keep_start(mask: &[f32], start: &[f32], latent: &mut [f32]) {
    for ((latent, &mask), start) in latent.iter_mut().zip(mask).zip(start) {
        *latent = *latent * mask + start * (1.0 - mask);
    }
}

fn check_shape(out: &HostTensor, shape: &[usize]) -> Result<()> {
    if out.shape == shape && out.data.len() == shape.iter().product::<usize>() {
        return Ok(());
    }
    Err(Error::shape("network output", format!("found {:?}, expected the latent's {shape:?}", out.shape)))
}

/// Repeats a mask along its axes of extent 1 to `shape`.
fn expand(mask: &HostTensor, shape: &[usize], out: &mut Vec<f32>) -> Result<()> {
    let axes = mask.shape.len().max(shape.len());
    let extent = |axis: usize| shape.get(axis).copied().unwrap_or(1);
    if (0..axes).any(|axis| mask.dim(axis) != 1 && mask.dim(axis) != extent(axis)) {
        return Err(Error::shape("mask", format!("found {:?} for a latent {shape:?}", mask.shape)));
    }
    if mask.shape == shape {
        out.extend_from_slice(&mask.data);
        return Ok(());
    }
    let count = shape.iter().product();
    out.extend((0..count).map(|index| {
        let (mut rest, mut stride, mut source) = (index, 1, 0);
        for axis in 0..axes {
            if mask.dim(axis) != 1 {
                source += rest % extent(axis) * stride;
                stride *= mask.dim(axis);
            }
            rest /= extent(axis);
        }
        mask.data[source]
    }));
    Ok(())
}

#[cfg(test)]
mod tests;
