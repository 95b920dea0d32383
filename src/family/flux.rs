//! Flux.1: dev, schnell, Fill, Kontext, Controls and Flex.2, told by their widths and names.
#![forbid(unsafe_code)]

use super::coders::{self, Scaling};
use super::encoders::{CLIP_L, Clip, T5Text, check_t5};
use super::{
    Concat, Conditioning, Family, ImageGuidance, Loaded, Loading, Model, Projection, Prompt, Surroundings,
    Traits, names, take_output,
};
use crate::error::{Error, Result};
use crate::layer::{Env, RopeAxis, Runner};
use crate::log_warn;
use crate::net::clip::ClipConfig;
use crate::net::flux::{FluxConfig, FluxInput, FluxModel, Layout};
use crate::sample::cache::NetworkKind;
use crate::sample::run::Evaluation;
use crate::sample::{Denoiser, Method, Prediction, Scheduler};
use crate::tensor::HostTensor;
use crate::text::ClipTokenizer;
use crate::weights::Index;
use crate::weights::names::Dialect;

/// The family.
pub struct Flux;

/// Index, row and column of a token.
const AXES: &[RopeAxis] = &[
    RopeAxis { width: 16, theta: 10000.0 },
    RopeAxis { width: 56, theta: 10000.0 },
    RopeAxis { width: 56, theta: 10000.0 },
];

/// Also of [`super::chroma`], whose guidance network makes modulations for 38 single and 19 double blocks.
pub(super) const CONFIG: FluxConfig = FluxConfig {
    patch: 2,
    axes: AXES,
    slots: [38, 19],
    gate_last: false,
    identity_head: 128,
    identity_every: [2, 4],
};

/// Of the published autoencoder.
pub(super) const SCALING: Scaling = Scaling::new(0.3611, 0.1159);
/// Tokens of a chunk of text.
const T5_CHUNK: usize = 256;
/// Whose tensors mark the tree of names.
pub(super) const TREE: &str = "model.diffusion_model.double_blocks.";
/// Tensors of other families on the same tree.
const OTHERS: &[&str] = &[
    "model.diffusion_model.distilled_guidance_layer.",
    "model.diffusion_model.double_stream_modulation_img.",
    "model.diffusion_model.dual_time_embed.",
    "model.diffusion_model.double_blocks.0.img_mlp.gate_proj.",
];
/// Width of the text states of another family on the same tree.
const OTHER_TEXT: usize = 3584;

/// Measured by passing known latents through the recorded preview; also of other families with this autoencoder.
pub(super) const PROJECTION: Projection = Projection {
    factors: &[
        [-0.04117, 0.01992, 0.09725],
        [0.0281, 0.02673, 0.12958],
        [0.06562, -0.06795, -0.01465],
        [-0.013, -0.01476, 0.08125],
        [0.07857, 0.0593, -0.02469],
        [-0.01599, -0.0037, 0.00501],
        [0.0336, 0.139, 0.06852],
        [-0.02445, -0.06357, -0.0301],
        [-0.04019, -0.01671, 0.12719],
        [0.11268, 0.08876, -0.04194],
        [-0.0235, 0.09366, 0.02554],
        [0.0829, 0.04832, 0.00749],
        [0.07571, 0.07414, 0.08197],
        [-0.1435, 0.01826, -0.13614],
        [-0.02577, -0.08204, -0.04002],
        [-0.11185, -0.05559, -0.03236],
    ],
    bias: [0.0246, -0.00694, -0.00809],
    patch: 1,
};

impl Family for Flux {
    fn name(&self) -> &'static str {
        "Flux.1"
    }

    fn detect(&self, index: &Index) -> Option<u32> {
        let other = OTHERS.iter().any(|mark| index.has_prefix(mark))
            || index.get("model.diffusion_model.txt_in.weight").is_some_and(|p| p.shape[0] == OTHER_TEXT);
        (index.has_prefix(TREE) && !other).then_some(30)
    }

    fn dialect(&self, _index: &Index) -> Dialect {
        names::FLUX
    }

    fn build(&self, loading: &Loading<'_>) -> Result<Loaded> {
        let fields = "model_path, diffusion_model_path or pulid_weights_path";
        let net = FluxModel::load(loading.index, loading.policy, "model.diffusion_model", CONFIG, fields)?;
        let clip = Clip::load(loading, CLIP_L, ClipConfig::OPENAI, ClipTokenizer::END)?;
        let t5 = T5Text::load(loading)?;
        check_t5(t5.as_ref(), net.net().context_width())?;
        for (field, missing) in [("clip_l_path", clip.is_none()), ("t5xxl_path", t5.is_none())] {
            if missing {
                log_warn!(loading.report, "no text encoder of {field}: zeros stand for its states");
            }
        }
        let traits = traits(loading, &net)?;
        let (autoencoder, preview) = coders::load(loading, SCALING, traits.latent_channels)?;
        let model = FluxFamilyModel { traits, net, clip, t5, outputs: Vec::new() };
        Ok(Loaded { model: Box::new(model), autoencoder, preview })
    }
}

/// What lies beside the latent, told by the channels that go in.
fn concat_of(net: &FluxModel) -> Result<Concat> {
    let latent = net.net().channels();
    match net.net().input_channels().saturating_sub(latent) {
        0 => Ok(Concat::Nothing),
        extra if extra == latent => Ok(Concat::Control),
        extra if extra == latent + 64 => Ok(Concat::MaskedAndPixelMask),
        extra if extra == 2 * latent + 1 => Ok(Concat::MaskedMaskControl),
        extra => Err(Error::Weights(format!(
            "img_in takes {extra} channels beside the {latent} of the latent; known are {latent} (control), {} \
             (fill) and {} (inpainting with control)",
            latent + 64,
            2 * latent + 1
        ))),
    }
}

/// The straight flow of these models; a larger shift where guidance is distilled into them.
pub(super) fn denoiser(loading: &Loading<'_>, guided: bool) -> Denoiser {
    match loading.options.prediction.map(|p| Prediction::ALL[p.index()]) {
        Some(other) if other != Prediction::FlowExponential => Denoiser::new(other),
        _ => Denoiser::new(Prediction::FlowExponential).with_shift(if guided { 1.15 } else { 1.0 }),
    }
}

fn traits(loading: &Loading<'_>, net: &FluxModel) -> Result<Traits> {
    let channels = net.net().channels();
    let concat = concat_of(net)?;
    Ok(Traits {
        latent_channels: channels,
        multiple: 8,
        denoiser: denoiser(loading, net.net().takes_guidance()),
        method: Method::Euler,
        scheduler: Scheduler::ResolutionShift,
        ays: None,
        image_guidance: match concat {
            Concat::Nothing => ImageGuidance::WithReferences,
            _ => ImageGuidance::Always,
        },
        concat,
        can_skip_layers: true,
        can_shift_time: false,
        zero_empty_negative: false,
        network: NetworkKind::Transformer,
        projection: projection(channels),
        images: true,
        videos: false,
    })
}

/// Colours of latents of the published size.
pub(super) fn projection(channels: usize) -> Option<&'static Projection> {
    (channels == PROJECTION.factors.len()).then_some(&PROJECTION)
}

/// Positions of text, picture and references.
pub(super) fn layout(
    net: &FluxModel,
    env: &Env<'_>,
    text: usize,
    x: &HostTensor,
    surroundings: &Surroundings<'_>,
) -> Layout {
    let size = |t: &HostTensor| [t.dim(0), t.dim(1)];
    let mut layout = Layout::new(AXES.len(), net.net().patch(), text, size(x), env.circular);
    layout.references = surroundings.references.iter().map(size).collect();
    layout.increase = surroundings.increase_ref_index;
    layout
}

struct FluxFamilyModel {
    traits: Traits,
    net: FluxModel,
    clip: Option<Clip>,
    t5: Option<T5Text>,
    outputs: Vec<HostTensor>,
}

impl Model for FluxFamilyModel {
    fn traits(&self) -> &Traits {
        &self.traits
    }

    fn condition(&mut self, env: &Env<'_>, prompt: &Prompt<'_>) -> Result<Conditioning> {
        // The pooled state passes all layers; clip_skip concerns only the states, which are not used.
        let width = self.net.net().context_width();
        let mut context = HostTensor::zeros([width, T5_CHUNK]);
        if let Some(t5) = &mut self.t5 {
            let mut data = Vec::new();
            for chunk in T5Text::tokens(prompt.text, T5_CHUNK)? {
                data.extend(t5.encode(env, &chunk, false)?.data);
            }
            context = HostTensor::new([width, data.len() / width.max(1)], data)?;
            if prompt.zero {
                context.data.fill(0.0);
            }
        }
        let Some(wanted) = self.net.net().vector_width() else {
            return Ok(Conditioning { context, ..Conditioning::default() });
        };
        let vector = match &mut self.clip {
            None => HostTensor::zeros([wanted]),
            Some(clip) => {
                let chunks = clip.tokens(prompt.text)?;
                let first =
                    chunks.first().ok_or_else(|| Error::Internal("a prompt without tokens".into()))?;
                clip.encode(env, first, 1)?.1
            }
        };
        Ok(Conditioning { context, vector: Some(vector), ..Conditioning::default() })
    }

    fn predict(
        &mut self,
        env: &Env<'_>,
        evaluation: &Evaluation<'_>,
        conditioning: &Conditioning,
        surroundings: &Surroundings<'_>,
        out: &mut HostTensor,
    ) -> Result<()> {
        if !surroundings.references.is_empty() && self.traits.concat != Concat::Nothing {
            return Err(Error::invalid("ref_images: this model takes no reference pictures"));
        }
        let text = conditioning.context.dim(1);
        let input = FluxInput {
            x: evaluation.x,
            t: evaluation.t,
            context: &conditioning.context,
            vector: conditioning.vector.as_ref(),
            guidance: surroundings.distilled_guidance,
            concat: conditioning.concat.as_deref(),
            references: surroundings.references,
            mask: None,
            identity: surroundings.identity.filter(|_| self.net.net().identity_width().is_some()),
            skip_layers: evaluation.skip_layers,
            layout: layout(&self.net, env, text, evaluation.x, surroundings),
        };
        self.net.run(env, &input, &mut self.outputs)?;
        take_output(&mut self.outputs, out)
    }

    fn runners(&mut self) -> Vec<&mut Runner> {
        let clip = self.clip.as_mut().map(Clip::runner);
        clip.into_iter().chain(self.t5.as_mut().map(T5Text::runner)).chain([self.net.runner()]).collect()
    }
}
