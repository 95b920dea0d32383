//! Autoencoders as several families use them: a KL autoencoder with scale and shift, the tiny one, none at all.
#![forbid(unsafe_code)]

use super::{Autoencoder, Loading};
use crate::error::{Error, Result};
use crate::layer::{Env, Runner};
use crate::net::tae::{TaeConfig, TaeModel};
use crate::net::vae::{VaeConfig, VaeModel};
use crate::sample::Rng;
use crate::tensor::HostTensor;

/// Divides what goes into the VAE's convolutions, for half-precision devices (`force_sdxl_vae_conv_scale`).
const RANGE: f32 = 32.0;

/// Latents of the denoiser are (latent of the autoencoder - shift) * scale.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Scaling {
    pub scale: f32,
    pub shift: f32,
    /// The mean of the encoder's distribution, unscaled: for editing models.
    pub mean_only: bool,
}

impl Scaling {
    /// A scale and a shift.
    pub const fn new(scale: f32, shift: f32) -> Self {
        Self { scale, shift, mean_only: false }
    }
}

/// The autoencoder, and that of previews where it is another one.
pub(super) type Coders = (Box<dyn Autoencoder>, Option<Box<dyn Autoencoder>>);

/// The autoencoder for latents of `channels`. A tiny one takes its place unless it is for previews only.
pub(super) fn load(loading: &Loading<'_>, scaling: Scaling, channels: usize) -> Result<Coders> {
    let (index, policy) = (loading.index, loading.policy);
    let fits = |field: &str, found: usize| {
        if found == channels {
            return Ok(());
        }
        Err(Error::Weights(format!(
            "{field}: the autoencoder makes latents of {found} channels, this model works on {channels}"
        )))
    };
    let tiny = index
        .has_prefix("tae.decoder.")
        .then(|| TaeModel::load(index, policy, "tae", &TaeConfig::default(), "taesd_path"))
        .transpose()?;
    if let Some(found) = tiny.as_ref().and_then(|tiny| tiny.decoder().latent_channels()) {
        fits("taesd_path", found)?;
    }
    match tiny {
        Some(tiny) if !loading.options.tae_preview_only => Ok((Box::new(TinyCoder { net: tiny }), None)),
        tiny => {
            if !index.has_prefix("first_stage_model.") {
                return Err(Error::Weights("no autoencoder was given: set vae_path or taesd_path".into()));
            }
            let range = if loading.options.force_sdxl_vae_conv_scale { RANGE } else { 1.0 };
            let config = VaeConfig { range, ..VaeConfig::default() };
            let net = VaeModel::load(index, policy, "first_stage_model", &config, "model_path or vae_path")?;
            fits("vae_path", net.decoder().latent_channels())?;
            let coder = KlCoder { net, scaling };
            Ok((Box::new(coder), tiny.map(|net| Box::new(TinyCoder { net }) as Box<dyn Autoencoder>)))
        }
    }
}

/// The KL autoencoder with its scale and shift.
struct KlCoder {
    net: VaeModel,
    scaling: Scaling,
}

impl Autoencoder for KlCoder {
    fn factor(&self) -> usize {
        self.net.decoder().factor()
    }

    fn encode(&mut self, env: &Env<'_>, pixels: &HostTensor) -> Result<HostTensor> {
        self.net.encode(env, &map(pixels.clone(), |v| v * 2.0 - 1.0))
    }

    fn to_latent(&self, encoded: HostTensor, rng: &mut Rng) -> Result<HostTensor> {
        let Scaling { scale, shift, mean_only } = self.scaling;
        let drawn = draw(encoded, if mean_only { None } else { Some(rng) })?;
        Ok(if mean_only { drawn } else { map(drawn, |v| (v - shift) * scale) })
    }

    fn to_coder_latent(&self, latent: &HostTensor) -> Result<HostTensor> {
        let Scaling { scale, shift, .. } = self.scaling;
        Ok(map(latent.clone(), |v| v / scale + shift))
    }

    fn decode(&mut self, env: &Env<'_>, latent: &HostTensor) -> Result<HostTensor> {
        Ok(map(self.net.decode(env, latent)?, |v| (v + 1.0) * 0.5))
    }

    fn runners(&mut self) -> Vec<&mut Runner> {
        self.net.runners().collect()
    }
}

/// A sample of the distribution whose moments (mean, then log variance along the channels) are given, or its mean.
pub(super) fn draw(moments: HostTensor, rng: Option<&mut Rng>) -> Result<HostTensor> {
    let [w, h, c, n] = [0, 1, 2, 3].map(|axis| moments.dim(axis));
    if n != 1 || c % 2 != 0 {
        return Err(Error::shape("moments", format!("{:?}, expected [w, h, 2 c, 1]", moments.shape)));
    }
    let half = w * h * c / 2;
    let (mean, log_variance) = moments.data.split_at(half);
    let mut out = HostTensor::new([w, h, c / 2, 1], mean.to_vec())?;
    if let Some(rng) = rng {
        let mut noise = vec![0.0; half];
        rng.normal(&mut noise);
        for ((value, variance), noise) in out.data.iter_mut().zip(log_variance).zip(noise) {
            *value += (0.5 * variance.clamp(-30.0, 20.0)).exp() * noise;
        }
    }
    Ok(out)
}

fn map(mut tensor: HostTensor, f: impl Fn(f32) -> f32) -> HostTensor {
    tensor.data.iter_mut().for_each(|v| *v = f(*v));
    tensor
}

/// The tiny autoencoder, which works on latents as denoisers see them.
struct TinyCoder {
    net: TaeModel,
}

impl Autoencoder for TinyCoder {
    fn factor(&self) -> usize {
        8
    }

    fn encode(&mut self, env: &Env<'_>, pixels: &HostTensor) -> Result<HostTensor> {
        self.net.encode(env, pixels)
    }

    fn to_latent(&self, encoded: HostTensor, _rng: &mut Rng) -> Result<HostTensor> {
        Ok(encoded)
    }

    fn to_coder_latent(&self, latent: &HostTensor) -> Result<HostTensor> {
        Ok(latent.clone())
    }

    fn decode(&mut self, env: &Env<'_>, latent: &HostTensor) -> Result<HostTensor> {
        self.net.decode(env, latent)
    }

    fn runners(&mut self) -> Vec<&mut Runner> {
        self.net.runners().collect()
    }
}

/// No autoencoder: the denoiser works on pixels from -1 to 1.
pub(super) struct PixelCoder;

impl Autoencoder for PixelCoder {
    fn factor(&self) -> usize {
        1
    }

    fn encode(&mut self, _env: &Env<'_>, pixels: &HostTensor) -> Result<HostTensor> {
        Ok(map(pixels.clone(), |v| v * 2.0 - 1.0))
    }

    fn to_latent(&self, encoded: HostTensor, _rng: &mut Rng) -> Result<HostTensor> {
        Ok(encoded)
    }

    fn to_coder_latent(&self, latent: &HostTensor) -> Result<HostTensor> {
        Ok(latent.clone())
    }

    fn decode(&mut self, _env: &Env<'_>, latent: &HostTensor) -> Result<HostTensor> {
        Ok(map(latent.clone(), |v| (v + 1.0) * 0.5))
    }

    fn runners(&mut self) -> Vec<&mut Runner> {
        Vec::new()
    }
}
