//! Stable Diffusion 3 and 3.5: two CLIP text encoders and T5, a multimodal transformer, latents of 16 channels.
#![forbid(unsafe_code)]

use super::coders::{self, Scaling};
use super::encoders::{CLIP_G, CLIP_L, Clip, T5Text, check_t5};
use super::{
    Concat, Conditioning, Family, ImageGuidance, Loaded, Loading, Model, Projection, Prompt, Surroundings,
    Traits, names, take_output,
};
use crate::error::{Error, Result};
use crate::layer::{Env, Runner};
use crate::log_warn;
use crate::net::clip::ClipConfig;
use crate::net::mmdit::{MmditConfig, MmditInput, MmditModel};
use crate::sample::cache::NetworkKind;
use crate::sample::run::Evaluation;
use crate::sample::{Denoiser, Method, Prediction, Scheduler};
use crate::tensor::HostTensor;
use crate::text::clip::CHUNK;
use crate::text::{ClipTokenizer, Tokens};
use crate::weights::Index;
use crate::weights::names::Dialect;

/// The family.
pub struct Sd3;

/// Whose tensors mark the family.
const MARK: &str = "model.diffusion_model.joint_blocks.";
/// As many heads as blocks, of 64 values each; the smallest published model has 24 blocks.
const CONFIG: MmditConfig = MmditConfig { full_depth: 24, head: 64 };
/// Of the published autoencoder.
const SCALING: Scaling = Scaling::new(1.5305, 0.0609);
/// Widths of the states of CLIP-L and CLIP-G, where one of them is missing.
const CLIP_WIDTHS: [usize; 2] = [768, 1280];
/// Layer whose states are used, counted from the last as 1.
const CLIP_SKIP: usize = 2;

/// Measured by passing known latents through the recorded preview.
pub(super) const PROJECTION: Projection = Projection {
    factors: &[
        [-0.0645, 0.0177, 0.1052],
        [0.0028, 0.0312, 0.065],
        [0.1848, 0.0762, 0.036],
        [0.0944, 0.036, 0.0889],
        [0.0897, 0.0506, -0.0364],
        [-0.002, 0.1203, 0.0284],
        [0.0855, 0.0118, 0.0283],
        [-0.0539, 0.0658, 0.1047],
        [-0.0057, 0.0116, 0.07],
        [-0.0412, 0.0281, -0.0039],
        [0.1106, 0.1171, 0.122],
        [-0.0248, 0.0682, -0.0481],
        [0.0815, 0.0846, 0.1207],
        [-0.012, -0.0055, -0.0867],
        [-0.0749, -0.0634, -0.0456],
        [-0.1418, -0.1457, -0.1259],
    ],
    bias: [-0.0, 0.0, 0.0],
    patch: 1,
};

impl Family for Sd3 {
    fn name(&self) -> &'static str {
        "Stable Diffusion 3"
    }

    fn detect(&self, index: &Index) -> Option<u32> {
        index.has_prefix(MARK).then_some(40)
    }

    fn dialect(&self, _index: &Index) -> Dialect {
        names::SD3
    }

    fn build(&self, loading: &Loading<'_>) -> Result<Loaded> {
        let fields = "model_path or diffusion_model_path";
        let net = MmditModel::load(loading.index, loading.policy, "model.diffusion_model", CONFIG, fields)?;
        let small = ClipConfig { final_norm: false, ..ClipConfig::OPENAI };
        let large = ClipConfig { final_norm: false, projection: true, ..ClipConfig::OPEN_CLIP };
        let clips =
            [Clip::load(loading, CLIP_L, small, ClipTokenizer::END)?, Clip::load(loading, CLIP_G, large, 0)?];
        let t5 = T5Text::load(loading)?;
        check_t5(t5.as_ref(), net.net().context_width())?;
        let encoders = [("clip_l_path", clips[0].is_none()), ("clip_g_path", clips[1].is_none())];
        for (field, missing) in encoders.into_iter().chain([("t5xxl_path", t5.is_none())]) {
            if missing {
                log_warn!(loading.report, "no text encoder of {field}: zeros stand for its states");
            }
        }
        let channels = net.net().channels();
        let (autoencoder, preview) = coders::load(loading, SCALING, channels)?;
        let model = Sd3Model { traits: traits(loading, channels), net, clips, t5, outputs: Vec::new() };
        Ok(Loaded { model: Box::new(model), autoencoder, preview })
    }
}

fn traits(loading: &Loading<'_>, channels: usize) -> Traits {
    let prediction = loading.options.prediction.map_or(Prediction::Flow, |p| Prediction::ALL[p.index()]);
    Traits {
        latent_channels: channels,
        multiple: 8,
        denoiser: Denoiser::new(prediction),
        method: Method::Euler,
        scheduler: Scheduler::Discrete,
        ays: None,
        image_guidance: ImageGuidance::Never,
        concat: Concat::Nothing,
        can_skip_layers: true,
        can_shift_time: false,
        zero_empty_negative: false,
        network: NetworkKind::Transformer,
        projection: (channels == PROJECTION.factors.len()).then_some(&PROJECTION),
        images: true,
        videos: false,
    }
}

struct Sd3Model {
    traits: Traits,
    net: MmditModel,
    /// CLIP-L and CLIP-G.
    clips: [Option<Clip>; 2],
    t5: Option<T5Text>,
    outputs: Vec<HostTensor>,
}

/// Tokens of a prompt for each encoder, in chunks of 77.
struct Chunks {
    clips: [Vec<Tokens>; 2],
    t5: Vec<Tokens>,
}

impl Sd3Model {
    /// All encoders get the same number of chunks; those of a shorter text are empty.
    fn chunks(&self, prompt: &[u8]) -> Result<Chunks> {
        let of_clip = |i: usize, text: &[u8]| {
            self.clips[i].as_ref().map_or(Ok(Vec::new()), |clip: &Clip| clip.tokens(text))
        };
        let of_t5 =
            |text: &[u8]| if self.t5.is_some() { T5Text::tokens(text, CHUNK) } else { Ok(Vec::new()) };
        let mut clips = [of_clip(0, prompt)?, of_clip(1, prompt)?];
        let mut t5 = of_t5(prompt)?;
        let count = clips.iter().chain([&t5]).map(Vec::len).max().unwrap_or(0).max(1);
        let empty = [of_clip(0, b"")?, of_clip(1, b"")?, of_t5(b"")?];
        for (list, empty) in clips.iter_mut().chain([&mut t5]).zip(&empty) {
            if let Some(empty) = empty.first() {
                list.resize(count, empty.clone());
            }
        }
        Ok(Chunks { clips, t5 })
    }

    /// Widths of the CLIP states, and of the pooled ones.
    fn widths(&self) -> ([usize; 2], [usize; 2]) {
        let of = |i: usize, width: fn(&Clip) -> usize| self.clips[i].as_ref().map_or(CLIP_WIDTHS[i], width);
        ([of(0, Clip::width), of(1, Clip::width)], [of(0, Clip::pooled_width), of(1, Clip::pooled_width)])
    }
}

impl Model for Sd3Model {
    fn traits(&self) -> &Traits {
        &self.traits
    }

    /// Per chunk: CLIP-L and CLIP-G side by side, zeros up to the width; then T5.
    fn condition(&mut self, env: &Env<'_>, prompt: &Prompt<'_>) -> Result<Conditioning> {
        let skip = usize::try_from(prompt.clip_skip).ok().filter(|&skip| skip > 0).unwrap_or(CLIP_SKIP);
        let width = self.net.net().context_width();
        let (widths, pooled_widths) = self.widths();
        let given = self.clips.iter().any(Option::is_some);
        if given && widths[0] + widths[1] > width {
            let message = format!("CLIP states of {widths:?} in a width of {width}");
            return Err(Error::shape("text encoders", message));
        }
        let chunks = self.chunks(prompt.text)?;
        let count = chunks.clips[0].len().max(chunks.clips[1].len()).max(chunks.t5.len()).max(1);
        let mut context = HostTensor::zeros([width, count * 2 * CHUNK]);
        let mut vector = HostTensor::zeros([pooled_widths[0] + pooled_widths[1]]);
        for (i, rows) in context.data.chunks_exact_mut(width * 2 * CHUNK).enumerate() {
            let (of_clip, of_t5) = rows.split_at_mut(width * CHUNK);
            for c in 0..2 {
                let (Some(clip), Some(tokens)) = (&mut self.clips[c], chunks.clips[c].get(i)) else {
                    continue;
                };
                let (states, pooled) = clip.encode(env, tokens, skip)?;
                let start = widths[0] * c;
                for (row, state) in of_clip.chunks_exact_mut(width).zip(states.data.chunks_exact(widths[c])) {
                    row[start..start + widths[c]].copy_from_slice(state);
                }
                if i == 0 {
                    let start = pooled_widths[0] * c;
                    vector.data[start..start + pooled.len()].copy_from_slice(&pooled.data);
                }
            }
            if let (Some(t5), Some(tokens)) = (&mut self.t5, chunks.t5.get(i)) {
                of_t5.copy_from_slice(&t5.encode(env, tokens, false)?.data);
            }
        }
        if prompt.zero {
            context.data.fill(0.0);
        }
        let vector = match self.net.net().label_width() {
            Some(wanted) if wanted != vector.len() => {
                return Err(Error::shape(
                    "text encoders",
                    format!("pooled states of {pooled_widths:?}, the transformer wants {wanted} in all"),
                ));
            }
            wanted => wanted.map(|_| vector),
        };
        Ok(Conditioning { context, vector, ..Conditioning::default() })
    }

    fn predict(
        &mut self,
        env: &Env<'_>,
        evaluation: &Evaluation<'_>,
        conditioning: &Conditioning,
        _surroundings: &Surroundings<'_>,
        out: &mut HostTensor,
    ) -> Result<()> {
        let input = MmditInput {
            x: evaluation.x,
            t: evaluation.t,
            context: &conditioning.context,
            y: conditioning.vector.as_ref(),
            skip_layers: evaluation.skip_layers,
        };
        self.net.run(env, &input, &mut self.outputs)?;
        take_output(&mut self.outputs, out)
    }

    fn runners(&mut self) -> Vec<&mut Runner> {
        let clips = self.clips.iter_mut().flatten().map(Clip::runner);
        clips.chain(self.t5.as_mut().map(T5Text::runner)).chain([self.net.runner()]).collect()
    }
}
