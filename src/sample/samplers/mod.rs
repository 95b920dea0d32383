//! Samplers: from noise to a latent, one file each.
//!
//! A sampler asks the model for the denoised latent at a sigma and moves on. It allocates nothing in its
//! loop: all buffers are in a [`Workspace`]. Step numbers count from 1 to N; the first evaluation of a step
//! that has two carries the negative number, except where noted at the sampler.
#![forbid(unsafe_code)]

mod ancestral;
mod brownian;
mod ddim_trailing;
mod dpm2;
mod dpmpp_2m;
mod dpmpp_2m_sde;
mod dpmpp_2m_sde_bt;
mod dpmpp_2m_v2;
mod dpmpp_2s_ancestral;
mod er_sde;
mod euler;
mod euler_ancestral;
mod euler_ancestral_cfg_pp;
mod euler_cfg_pp;
mod euler_dual;
mod gradient_estimation;
mod heun;
mod ipndm;
mod ipndm_v;
mod lcm;
mod ops;
mod res_2s;
mod res_multistep;
mod tcd;
mod workspace;

pub(super) use workspace::resize;
pub use workspace::{Denoised, Workspace};

use super::args::SampleArgs;
use super::rng::Rng;
use super::schedule::DualSchedule;
use crate::error::{Error, Result};
use crate::tensor::HostTensor;

/// Which sampler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Method {
    /// Euler.
    Euler,
    /// Euler with noise added after each step.
    #[default]
    EulerAncestral,
    /// Heun, two evaluations per step.
    Heun,
    /// DPM-Solver-2, two evaluations per step.
    Dpm2,
    /// DPM-Solver++(2S) with added noise, two evaluations per step.
    Dpmpp2sAncestral,
    /// DPM-Solver++(2M).
    Dpmpp2m,
    /// DPM-Solver++(2M) with averaged steps.
    Dpmpp2mV2,
    /// Improved pseudo numerical method, order 4.
    Ipndm,
    /// The same for unequal steps.
    IpndmV,
    /// Latent consistency.
    Lcm,
    /// DDIM with trailing time steps.
    DdimTrailing,
    /// Trajectory consistency.
    Tcd,
    /// Refined exponential solver over two steps.
    ResMultistep,
    /// Refined exponential solver, two evaluations per step.
    Res2s,
    /// Extended reverse-time SDE, order 3.
    ErSde,
    /// Euler with CFG++ guidance.
    EulerCfgPp,
    /// Euler ancestral with CFG++ guidance.
    EulerAncestralCfgPp,
    /// Euler with gradient estimation.
    GradientEstimation,
    /// DPM-Solver++(2M) SDE.
    Dpmpp2mSde,
    /// The same with noise from a Brownian tree, alike for any number of steps.
    Dpmpp2mSdeBt,
}

impl Method {
    /// All samplers in the order of the C enum.
    pub const ALL: [Self; 20] = [
        Self::Euler,
        Self::EulerAncestral,
        Self::Heun,
        Self::Dpm2,
        Self::Dpmpp2sAncestral,
        Self::Dpmpp2m,
        Self::Dpmpp2mV2,
        Self::Ipndm,
        Self::IpndmV,
        Self::Lcm,
        Self::DdimTrailing,
        Self::Tcd,
        Self::ResMultistep,
        Self::Res2s,
        Self::ErSde,
        Self::EulerCfgPp,
        Self::EulerAncestralCfgPp,
        Self::GradientEstimation,
        Self::Dpmpp2mSde,
        Self::Dpmpp2mSdeBt,
    ];

    /// Whether the sampler needs [`Denoised::uncond`].
    pub fn needs_uncond(self) -> bool {
        matches!(self, Self::EulerCfgPp | Self::EulerAncestralCfgPp)
    }

    /// Amount of added noise where a request leaves it open.
    pub fn default_eta(self) -> f32 {
        match self {
            Self::EulerAncestral
            | Self::Dpmpp2sAncestral
            | Self::ErSde
            | Self::EulerAncestralCfgPp
            | Self::Dpmpp2mSde
            | Self::Dpmpp2mSdeBt => 1.0,
            _ => 0.0,
        }
    }
}

/// The guided model as samplers see it.
pub trait Denoise {
    /// Writes the denoised latent of `x` at `sigma` to `out.pred`, and to `out.uncond` where the method needs
    /// it. Both have the shape of `x` already.
    fn denoise(&mut self, x: &HostTensor, sigma: f32, step: i32, out: &mut Denoised) -> Result<()>;

    /// Called once after each step, with 1 to N.
    fn end_step(&mut self, _step: i32) -> Result<()> {
        Ok(())
    }
}

/// What a run of a sampler depends on besides latent and model.
#[derive(Debug)]
pub struct SamplerRequest<'a> {
    /// Sampler.
    pub method: Method,
    /// Sigmas of the N + 1 points.
    pub sigmas: &'a [f32],
    /// Amount of added noise.
    pub eta: f32,
    /// Whether latent and noise are mixed linearly, see `Denoiser::is_flow`.
    pub flow: bool,
    /// Set for predictions with two schedules: Euler on both, whatever the method.
    pub dual: Option<&'a DualSchedule>,
    /// Parsed `extra_sample_args`.
    pub args: &'a SampleArgs,
}

/// Samples: `x` goes in as the noisy latent at the first sigma and comes out at the last.
pub fn run(
    request: &SamplerRequest<'_>,
    model: &mut dyn Denoise,
    x: &mut HostTensor,
    rng: &mut Rng,
    workspace: &mut Workspace,
) -> Result<()> {
    if request.sigmas.len() < 2 {
        return Err(Error::invalid(format!(
            "sampling needs at least two sigmas, found {} (custom_sigmas_count, sample_steps)",
            request.sigmas.len()
        )));
    }
    workspace.prepare(&x.shape);
    let mut s = Sampling { request, model, x, rng, ws: workspace };
    if let Some(dual) = request.dual {
        return euler_dual::run(&mut s, dual);
    }
    match request.method {
        Method::Euler => euler::run(&mut s),
        Method::EulerAncestral => euler_ancestral::run(&mut s),
        Method::Heun => heun::run(&mut s),
        Method::Dpm2 => dpm2::run(&mut s),
        Method::Dpmpp2sAncestral => dpmpp_2s_ancestral::run(&mut s),
        Method::Dpmpp2m => dpmpp_2m::run(&mut s),
        Method::Dpmpp2mV2 => dpmpp_2m_v2::run(&mut s),
        Method::Ipndm => ipndm::run(&mut s),
        Method::IpndmV => ipndm_v::run(&mut s),
        Method::Lcm => lcm::run(&mut s),
        Method::DdimTrailing => ddim_trailing::run(&mut s),
        Method::Tcd => tcd::run(&mut s),
        Method::ResMultistep => res_multistep::run(&mut s),
        Method::Res2s => res_2s::run(&mut s),
        Method::ErSde => er_sde::run(&mut s),
        Method::EulerCfgPp => euler_cfg_pp::run(&mut s),
        Method::EulerAncestralCfgPp => euler_ancestral_cfg_pp::run(&mut s),
        Method::GradientEstimation => gradient_estimation::run(&mut s),
        Method::Dpmpp2mSde => dpmpp_2m_sde::run(&mut s),
        Method::Dpmpp2mSdeBt => dpmpp_2m_sde_bt::run(&mut s),
    }
}

/// A running sampler.
struct Sampling<'a> {
    request: &'a SamplerRequest<'a>,
    model: &'a mut dyn Denoise,
    x: &'a mut HostTensor,
    rng: &'a mut Rng,
    ws: &'a mut Workspace,
}

/// Number of step `i` (from 0) as models and callbacks see it. Schedules are far shorter than 2^31.
fn number(i: usize) -> i32 {
    i as i32 + 1
}

impl Sampling<'_> {
    fn steps(&self) -> usize {
        self.request.sigmas.len() - 1
    }

    /// Sigma at the start and at the end of step `i`.
    fn interval(&self, i: usize) -> (f32, f32) {
        (self.request.sigmas[i], self.request.sigmas[i + 1])
    }

    /// Denoises `x`; the result is in `ws.out`.
    fn evaluate(&mut self, sigma: f32, step: i32) -> Result<()> {
        self.model.denoise(self.x, sigma, step, &mut self.ws.out)
    }

    /// Denoises the trial point `ws.x2`; the result is in `ws.out`.
    fn evaluate_trial(&mut self, sigma: f32, step: i32) -> Result<()> {
        self.model.denoise(&self.ws.x2, sigma, step, &mut self.ws.out)
    }

    fn end_step(&mut self, i: usize) -> Result<()> {
        self.model.end_step(number(i))
    }

    /// `x = f(x, denoised)`.
    fn update(&mut self, f: impl Fn(f32, f32) -> f32) {
        ops::each(&mut self.x.data, &self.ws.out.pred.data, f);
    }

    /// The last step into sigma 0: `x` becomes the denoised latent.
    fn take_denoised(&mut self) {
        self.x.data.copy_from_slice(&self.ws.out.pred.data);
    }

    /// `x = factor * x`.
    fn scale(&mut self, factor: f32) {
        self.x.data.iter_mut().for_each(|x| *x *= factor);
    }

    /// The second part of an ancestral step: shrink a flow's latent, add noise; nothing without noise to add.
    fn renoise(&mut self, step: ancestral::AncestralStep) {
        if step.up > 0.0 {
            if self.request.flow {
                self.scale(step.scale);
            }
            self.add_noise(step.up);
        }
    }

    /// Draws noise and adds `scale` times of it.
    fn add_noise(&mut self, scale: f32) {
        self.rng.normal(&mut self.ws.noise.data);
        ops::each(&mut self.x.data, &self.ws.noise.data, |x, noise| x + noise * scale);
    }
}
