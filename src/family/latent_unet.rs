//! What the UNet families share: CLIP text encoders, a UNet, a KL or tiny autoencoder.
#![forbid(unsafe_code)]

use std::path::Path;
use std::sync::Arc;

use super::coders::{self, Scaling};
use super::{
    Concat, Conditioning, ImageGuidance, Loaded, Loading, Model, Projection, Prompt, Surroundings, Traits,
};
use crate::adapt::controlnet::ControlHook;
use crate::adapt::lora::{LoraFile, Targets};
use crate::adapt::photomaker::{PhotoMaker, TRIGGER};
use crate::error::{Error, Result};
use crate::files::ModelFile;
use crate::graph::Act;
use crate::layer::{Env, Runner, timestep_embedding};
use crate::log_warn;
use crate::net::clip::{ClipConfig, ClipInput, ClipModel, ClipOutput};
use crate::net::unet::{Heads, UnetConfig, UnetInput, UnetModel};
use crate::sample::cache::NetworkKind;
use crate::sample::prediction::NoiseTable;
use crate::sample::run::Evaluation;
use crate::sample::{AysLevels, Denoiser, Method, Prediction, Scheduler};
use crate::tensor::HostTensor;
use crate::text::clip::{CHUNK, encode, end_position, triggered, zero_padded};
use crate::text::{CustomWords, Tokens, apply_weights};
use crate::weights::names::Dialect;
use crate::weights::{Index, values_f32};

/// How one family of UNets differs from the others.
pub(super) struct Recipe {
    /// Heads of the UNet's attentions.
    pub heads: Heads,
    /// Text encoders; their states lie side by side.
    pub encoders: &'static [Encoder],
    /// Token that fills up short prompts.
    pub pad: i32,
    /// Layer whose states are used, counted from the last as 1, where a request leaves it open.
    pub clip_skip: i32,
    /// Whether pooled text and picture size make up a vector.
    pub size_vector: bool,
    /// Scale of latents.
    pub scale: f32,
    /// Prediction where neither caller nor file says it.
    pub prediction: Guess,
    /// Align-Your-Steps table.
    pub ays: AysLevels,
    /// Colours of latents.
    pub projection: &'static Projection,
    /// Whether the time can be shifted.
    pub can_shift_time: bool,
    /// How control nets spell their names.
    pub names: &'static Dialect,
}

/// One text encoder.
pub(super) struct Encoder {
    /// Canonical prefix.
    pub prefix: &'static str,
    /// Activation of its feed-forward layers.
    pub activation: Act,
    /// Whether the final norm is applied to the states.
    pub final_norm: bool,
    /// Whether tokens behind the end are 0.
    pub zero_padded: bool,
}

/// How the prediction is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Guess {
    /// Always noise.
    Noise,
    /// From tensors that mark it.
    Marks,
    /// By a trial run: the sign of the result for pure signal.
    Trial,
}

/// Channels of the latents, where no UNet tells them.
const LATENT_CHANNELS: usize = 4;

/// Names under which files hold the first text encoder's token table.
const TOKEN_TABLES: &[&str] = &[
    "cond_stage_model.transformer.text_model.embeddings.token_embedding.weight",
    "cond_stage_model.model.token_embedding.weight",
    "text_model.embeddings.token_embedding.weight",
    "te.text_model.embeddings.token_embedding.weight",
    "conditioner.embedders.0.model.token_embedding.weight",
    "conditioner.embedders.0.transformer.text_model.embeddings.token_embedding.weight",
];

/// Marks of a UNet family in the names of the files.
pub(super) struct Signs {
    /// Width of the token table.
    pub text_width: usize,
    /// Whether the text encoder has the names of OpenCLIP.
    pub open_clip: bool,
    /// Whether there are two text encoders.
    pub two_encoders: bool,
    /// Whether the UNet's middle has an attention.
    pub middle_attention: bool,
}

/// Looks for a UNet with a text encoder.
pub(super) fn signs(index: &Index) -> Option<Signs> {
    let unet = index.has("model.diffusion_model.input_blocks.0.0.weight") || index.has("unet.conv_in.weight");
    let table = TOKEN_TABLES.iter().find_map(|name| index.get(name))?;
    unet.then(|| Signs {
        text_width: table.shape[0],
        open_clip: index.has_prefix("cond_stage_model.model."),
        two_encoders: ["conditioner.embedders.1.", "cond_stage_model.1.", "te.1.", "te2."]
            .iter()
            .any(|prefix| index.has_prefix(prefix)),
        middle_attention: index.has_prefix("model.diffusion_model.middle_block.1.")
            || index.has_prefix("unet.mid_block.resnets.1."),
    })
}

/// Puts the networks of a UNet family together.
pub(super) fn build(loading: &Loading<'_>, recipe: &'static Recipe) -> Result<Loaded> {
    let (index, policy) = (loading.index, loading.policy);
    let mut faults = Vec::new();
    let mut keep = |error: Error| faults.push(error.to_string());
    let unet = UnetModel::load(
        index,
        policy,
        "model.diffusion_model",
        &UnetConfig { heads: recipe.heads },
        "model_path or diffusion_model_path",
    )
    .map_err(&mut keep)
    .ok();
    let encoders: Vec<_> = recipe
        .encoders
        .iter()
        .filter_map(|e| {
            let config = ClipConfig { act: e.activation, final_norm: e.final_norm, projection: true };
            let fields = "model_path, clip_l_path or clip_g_path";
            ClipModel::load(index, policy, e.prefix, &config, "text encoder", fields).map_err(&mut keep).ok()
        })
        .collect();
    let mean_only = unet.as_ref().is_some_and(|u| concat_of(u) == Concat::Reference);
    let channels = unet.as_ref().map_or(LATENT_CHANNELS, |u| u.unet().output_channels());
    let scaling = Scaling { scale: recipe.scale, shift: 0.0, mean_only };
    let autoencoder = coders::load(loading, scaling, channels).map_err(&mut keep).ok();
    let (Some(unet), Some((autoencoder, preview)), true) =
        (unet, autoencoder, encoders.len() == recipe.encoders.len())
    else {
        return Err(Error::Weights(faults.join("\n")));
    };
    let custom = Custom::load(loading, &encoders);
    let control = control_net(loading, recipe, &unet)?;
    let photo_maker = photo_maker(loading, &encoders);
    let traits = traits(loading, recipe, &unet)?;
    let trial = recipe.prediction == Guess::Trial && loading.options.prediction.is_none();
    let model = LatentUnet { traits, recipe, unet, encoders, custom, control, photo_maker, trial };
    Ok(Loaded { model: Box::new(model), autoencoder, preview })
}

/// What lies beside the noisy latent: told by the channels of the first convolution.
fn concat_of(unet: &UnetModel) -> Concat {
    match unet.unet().input_channels() {
        Some(9) => Concat::MaskAndMasked,
        Some(8) => Concat::Reference,
        _ => Concat::Nothing,
    }
}

fn traits(loading: &Loading<'_>, recipe: &Recipe, unet: &UnetModel) -> Result<Traits> {
    let index = loading.index;
    let prediction = match (loading.options.prediction, recipe.prediction) {
        (Some(wish), _) => Prediction::ALL[wish.index()],
        (None, Guess::Marks) if index.has("edm_vpred.sigma_max") => Prediction::EdmVelocity,
        (None, Guess::Marks) if index.has("v_pred") => Prediction::Velocity,
        _ => Prediction::Epsilon,
    };
    let mut denoiser = Denoiser::new(prediction);
    if let Some(table) = noise_table(loading) {
        denoiser = denoiser.with_table(Arc::new(table));
    }
    let concat = concat_of(unet);
    Ok(Traits {
        latent_channels: unet.unet().output_channels(),
        multiple: 64,
        denoiser,
        method: Method::EulerAncestral,
        scheduler: if prediction == Prediction::EdmVelocity {
            Scheduler::Exponential
        } else {
            Scheduler::Discrete
        },
        ays: Some(recipe.ays),
        image_guidance: if concat == Concat::Nothing { ImageGuidance::Never } else { ImageGuidance::Always },
        concat,
        can_skip_layers: false,
        can_shift_time: recipe.can_shift_time,
        zero_empty_negative: recipe.size_vector && prediction != Prediction::EdmVelocity,
        network: NetworkKind::UNet,
        projection: Some(recipe.projection),
        images: true,
        videos: false,
    })
}

/// The file's own noise table, if it has a usable one.
fn noise_table(loading: &Loading<'_>) -> Option<NoiseTable> {
    let place = loading.index.get("alphas_cumprod")?;
    let (file, entry) = loading.index.source(place)?;
    match values_f32(file, entry).and_then(|alphas| NoiseTable::from_alphas_cumprod(&alphas)) {
        Ok(table) => Some(table),
        Err(error) => {
            log_warn!(loading.report, "alphas_cumprod of the model is ignored: {error}");
            None
        }
    }
}

/// Textual inversions: words and their rows for each encoder's token table.
#[derive(Default)]
struct Custom {
    words: CustomWords,
    rows: Vec<Vec<Vec<f32>>>,
}

impl Custom {
    /// Reads the embedding files of the options; one that does not fit is said and left out.
    fn load(loading: &Loading<'_>, encoders: &[ClipModel]) -> Self {
        let widths: Vec<usize> = encoders.iter().map(|e| e.clip().width()).collect();
        let mut custom = Self { rows: vec![Vec::new(); widths.len()], ..Self::default() };
        for embedding in &loading.options.embeddings {
            match read_embedding(&embedding.path, &widths) {
                Ok(rows) => custom.add(&embedding.name, rows, &widths),
                Err(error) => {
                    log_warn!(loading.report, "embedding {:?} is left out: {error}", embedding.name)
                }
            }
        }
        custom
    }

    fn add(&mut self, name: &str, rows: Vec<Vec<f32>>, widths: &[usize]) {
        let count = rows.iter().zip(widths).map(|(r, w)| r.len() / w).max().unwrap_or(0);
        self.words.add(name.as_bytes(), count);
        for ((all, mut new), &width) in self.rows.iter_mut().zip(rows).zip(widths) {
            new.resize(count * width, 0.0);
            all.extend(new.chunks_exact(width.max(1)).map(<[f32]>::to_vec));
        }
    }
}

/// The vectors of an embedding file for each encoder, told apart by their width.
fn read_embedding(path: &Path, widths: &[usize]) -> Result<Vec<Vec<f32>>> {
    let file = ModelFile::open(path)?;
    let mut rows = vec![Vec::new(); widths.len()];
    for entry in file.tensors() {
        if let Some(i) = widths.iter().position(|&w| entry.shape.first() == Some(&w)) {
            rows[i] = values_f32(&file, entry)?;
        }
    }
    if rows.iter().all(Vec::is_empty) {
        let found: Vec<_> =
            file.tensors().iter().map(|t| format!("{} {:?}", t.name, t.shape)).take(4).collect();
        return Err(Error::file(
            path,
            format!("holds no vectors of width {widths:?} for the text encoder, found {}", found.join(", ")),
        ));
    }
    Ok(rows)
}

/// A loaded model of a UNet family.
struct LatentUnet {
    traits: Traits,
    recipe: &'static Recipe,
    unet: UnetModel,
    encoders: Vec<ClipModel>,
    custom: Custom,
    control: Option<ControlHook>,
    photo_maker: Option<PhotoMaker>,
    trial: bool,
}

impl LatentUnet {
    /// States `[C, 77]` of one chunk, encoders side by side, and the last one's pooled text where it is wanted.
    fn states(&mut self, env: &Env<'_>, ids: &[i32], skip: usize, pool: bool) -> Result<ClipOutput> {
        let mut parts = Vec::with_capacity(self.encoders.len());
        let mut pooled = None;
        let last = self.encoders.len().saturating_sub(1);
        for (i, encoder) in self.encoders.iter_mut().enumerate() {
            let padded = if self.recipe.encoders[i].zero_padded { zero_padded(ids) } else { ids.to_vec() };
            let pool_at = (pool && i == last).then(|| end_position(&padded));
            let input = ClipInput { ids: &padded, custom: &self.custom.rows[i], clip_skip: skip, pool_at };
            let output = encoder.run(env, &input)?;
            parts.push(output.hidden);
            pooled = output.pooled;
        }
        let width: usize = parts.iter().map(|p| p.dim(0)).sum();
        let mut data = Vec::with_capacity(width * ids.len());
        for token in 0..ids.len() {
            for part in &parts {
                let w = part.dim(0);
                data.extend_from_slice(&part.data[token * w..][..w]);
            }
        }
        Ok(ClipOutput { hidden: HostTensor::new([width, ids.len()], data)?, pooled })
    }

    /// Pooled text and sinusoids of the picture's size, as wide as the UNet wants them.
    fn vector(&self, pooled: HostTensor, size: [usize; 2]) -> Result<HostTensor> {
        let width = self.unet.unet().label_width().unwrap_or(0);
        let [w, h] = size.map(|side| side as f32);
        let mut data = pooled.data;
        data.extend(timestep_embedding(&[h, w, 0.0, 0.0, h, w], 256, 10000.0));
        data.resize(width, 0.0);
        HostTensor::new([width, 1], data)
    }
}

impl LatentUnet {
    fn conditioning(&mut self, env: &Env<'_>, prompt: &Prompt<'_>, tokens: &Tokens) -> Result<Conditioning> {
        let skip = if prompt.clip_skip > 0 { prompt.clip_skip } else { self.recipe.clip_skip };
        let mut wants_vector = self.recipe.size_vector && self.unet.unet().label_width().is_some();
        let (mut data, mut width, mut vector) = (Vec::new(), 0, None);
        for chunk in tokens.chunks(CHUNK) {
            let output = self.states(env, &chunk.ids, skip.unsigned_abs() as usize, wants_vector)?;
            if let Some(pooled) = output.pooled {
                vector = Some(self.vector(pooled, prompt.size)?);
                wants_vector = false;
            }
            let mut states = output.hidden;
            width = states.dim(0);
            if prompt.zero {
                states.data.fill(0.0);
            } else {
                apply_weights(&mut states.data, &chunk.weights)?;
            }
            data.append(&mut states.data);
        }
        let context = HostTensor::new([width, data.len() / width.max(1)], data)?;
        Ok(Conditioning { context, vector, ..Conditioning::default() })
    }

    /// The prompt without its trigger word, and from some step on with a person in place of the class word. `None`
    /// where no person is wished for; why a wish cannot be followed is said.
    fn personal(&mut self, env: &Env<'_>, prompt: &Prompt<'_>) -> Result<Option<Conditioning>> {
        let (Some(maker), Some(wish)) = (&self.photo_maker, prompt.person) else { return Ok(None) };
        let refuse = |why: &str| {
            log_warn!(wish.report, "PhotoMaker is left out: {why}");
            Ok(None)
        };
        let person = match maker.person(&wish.given.images, wish.given.embed.as_deref()) {
            Ok(person) => person,
            Err(error) => return refuse(&error.to_string()),
        };
        let words = &self.custom.words;
        let Some(text) = triggered(prompt.text, TRIGGER, person.tokens, self.recipe.pad, words)? else {
            return refuse(&format!("the prompt has no word \"{TRIGGER}\" behind the word for the person"));
        };
        let places: Vec<usize> = (0..text.class.len()).filter(|&i| text.class[i]).collect();
        let mut with = self.conditioning(env, prompt, &text.with_identity)?;
        let mut without = self.conditioning(env, prompt, &text.without_identity)?;
        for encoder in &mut self.encoders {
            encoder.runner().rest();
        }
        if let Some(maker) = &mut self.photo_maker {
            maker.fuse(env, &mut with.context, &places, &person)?;
        }
        let after = (wish.given.style_strength / 100.0 * wish.steps as f32) as i32;
        without.later = Some((after, Arc::new(with)));
        Ok(Some(without))
    }
}

/// The control net that the options name.
fn control_net(loading: &Loading<'_>, recipe: &Recipe, unet: &UnetModel) -> Result<Option<ControlHook>> {
    let Some(path) = &loading.options.control_net else { return Ok(None) };
    let config = UnetConfig { heads: recipe.heads };
    ControlHook::open(path, loading.policy, recipe.names, &config, unet.unet()).map(Some)
}

/// The identity encoder that the options name. A file that is none is said and left out.
fn photo_maker(loading: &Loading<'_>, encoders: &[ClipModel]) -> Option<PhotoMaker> {
    let path = loading.options.photo_maker.as_ref()?;
    let width: usize = encoders.iter().map(|e| e.clip().width()).sum();
    let maker = PhotoMaker::open(path, loading.policy).and_then(|maker| {
        let found = maker.width();
        let fits = found == width;
        fits.then_some(maker)
            .ok_or_else(|| Error::Weights(format!("it is for text of width {found}, the model has {width}")))
    });
    match maker {
        Ok(maker) => Some(maker),
        Err(error) => {
            log_warn!(loading.report, "photo_maker_path is left out: {error}");
            None
        }
    }
}

impl Model for LatentUnet {
    fn traits(&self) -> &Traits {
        &self.traits
    }

    fn settle(&mut self, env: &Env<'_>) -> Result<()> {
        if !self.trial {
            return Ok(());
        }
        // A velocity model answers pure signal at the noisiest step with its negative.
        let x = HostTensor::full([8, 8, self.traits.latent_channels, 1], 0.5);
        let width = self.unet.unet().context_width().unwrap_or(1024);
        let context = HostTensor::full([width, 2], 0.5);
        let beside =
            self.unet.unet().input_channels().unwrap_or(0).saturating_sub(self.traits.latent_channels);
        let concat = (beside > 0).then(|| HostTensor::zeros([8, 8, beside, 1]));
        let input = UnetInput {
            x: &x,
            timesteps: &[999.0],
            context: &context,
            y: None,
            c_concat: concat.as_ref(),
            control: None,
        };
        let out = self.unet.run(env, &input)?;
        self.unet.runner().rest();
        let mean = out.data.iter().zip(&x.data).map(|(a, b)| f64::from(a - b)).sum::<f64>() / x.len() as f64;
        if mean < -1.0 {
            self.traits.denoiser = Denoiser::new(Prediction::Velocity);
        }
        self.trial = false;
        Ok(())
    }

    fn condition(&mut self, env: &Env<'_>, prompt: &Prompt<'_>) -> Result<Conditioning> {
        if let Some(conditioning) = self.personal(env, prompt)? {
            return Ok(conditioning);
        }
        let tokens = encode(prompt.text, self.recipe.pad, &self.custom.words)?;
        self.conditioning(env, prompt, &tokens)
    }

    fn predict(
        &mut self,
        env: &Env<'_>,
        evaluation: &Evaluation<'_>,
        conditioning: &Conditioning,
        surroundings: &Surroundings<'_>,
        out: &mut HostTensor,
    ) -> Result<()> {
        let mut input = UnetInput {
            x: evaluation.x,
            timesteps: &[evaluation.t],
            context: &conditioning.context,
            y: conditioning.vector.as_ref(),
            c_concat: conditioning.concat.as_deref(),
            control: None,
        };
        if let (Some(control), Some((picture, strength))) = (&mut self.control, surroundings.control) {
            input.control = Some((control.run(env, &input, picture)?, strength));
        }
        let mut result = self.unet.run(env, &input)?;
        std::mem::swap(out, &mut result);
        self.unet.recycle(result);
        Ok(())
    }

    fn runners(&mut self) -> Vec<&mut Runner> {
        let mut runners: Vec<_> = self.encoders.iter_mut().map(ClipModel::runner).collect();
        runners.push(self.unet.runner());
        runners.extend(self.control.as_mut().map(|control| control.runner()));
        runners.extend(self.photo_maker.as_mut().map(PhotoMaker::runner));
        runners
    }

    fn companion(&self, targets: &Targets, dialect: &Dialect) -> Option<LoraFile> {
        self.photo_maker.as_ref().map(|maker| maker.lora(targets, dialect))
    }
}
