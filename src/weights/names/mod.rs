//! Tensor names: the spellings found in files, translated to the canonical ones (the original layouts' names).
//!
//! The engine and the tables of formats that many families share live here; what belongs to one family comes from
//! it as a [`Dialect`]. Accepted spellings are listed in `docs/names.md`.
#![forbid(unsafe_code)]

mod lora;
mod rules;
mod words;

pub mod text;
pub mod unet;
pub mod vae;

use std::borrow::Cow;

pub use lora::{LoraKey, Member, lora};
pub use rules::{
    At, Rename, Stage, Take, apply, every, every_when, first, first_and_end, head, module, part, rows, whole,
};

/// Prefix of the diffusion network's weights.
pub const DENOISER: &str = "model.diffusion_model.";
/// Prefix of the second diffusion network, for high noise.
pub const HIGH_NOISE_DENOISER: &str = "model.high_noise_diffusion_model.";
/// Prefix of the network for the unconditional pass.
pub const UNCONDITIONAL_DENOISER: &str = "model.diffusion_model.uncond.";
/// Prefix of the VAE.
pub const VAE: &str = "first_stage_model.";
/// Prefix of the tiny autoencoder.
pub const TAE: &str = "tae.";
/// Prefix that the LoRA loader puts before the names of its files.
pub const LORA: &str = "lora.";

/// What a family says about the names in its files. [`Dialect::PLAIN`] is one without peculiarities.
#[derive(Clone, Copy, Debug)]
pub struct Dialect {
    /// Diffusion network, below [`DENOISER`].
    pub denoiser: &'static [Stage],
    /// VAE, below [`VAE`].
    pub vae: &'static [Stage],
    /// Where the file's VAE belongs when not at [`VAE`].
    pub vae_root: &'static str,
    /// Picture tower of the language model, before [`text::VISION_GGUF`].
    pub vision: &'static [Stage],
    /// First parts of names that differ from [`ROOTS`].
    pub roots: &'static [Rename],
    /// Every LoRA name is taken to separate its segments by underscores.
    pub underscored_lora: bool,
    /// Whether bare diffusers names of a control net are translated among the model's own.
    pub bare_control: bool,
    /// Rules for complete names of files which are not diffusion models; nothing else is applied then.
    pub other: &'static [Stage],
}

impl Dialect {
    /// Common formats only.
    pub const PLAIN: Self = Self {
        denoiser: &[],
        vae: vae::KL,
        vae_root: VAE,
        vision: &[],
        roots: &[],
        underscored_lora: false,
        bare_control: false,
        other: &[],
    };

    /// Upscalers of residual-in-residual dense blocks.
    pub const UPSCALER: Self = Self { other: unet::RRDB, ..Self::PLAIN };
}

impl Default for Dialect {
    fn default() -> Self {
        Self::PLAIN
    }
}

/// First parts of names that are spelled differently in different files; the longer ones first.
pub const ROOTS: &[Rename] = &[
    head("conditioner.embedders.0.", "cond_stage_model."),
    head("conditioner.embedders.1.", "cond_stage_model.1."),
    head("text_encoder.2.", "cond_stage_model.1.transformer."),
    head("text_encoder.", "cond_stage_model.transformer."),
    head("te.", "cond_stage_model.transformer."),
    head("te1.", "cond_stage_model.transformer."),
    head("te2.", "cond_stage_model.1.transformer."),
    head("te3.", "text_encoders.t5xxl.transformer."),
    head("diffusion_model.", DENOISER),
    head("unet.", DENOISER),
    head("transformer.", DENOISER),
    head("vae.", VAE),
];

/// Text encoders by prefix, with the tables for what follows it; the longer prefixes first.
const TEXT: &[(&str, &[Stage])] = &[
    ("cond_stage_model.1.", text::CLIP),
    ("cond_stage_model.", text::CLIP),
    ("conditioner.embedders.", text::CLIP),
    ("text_encoders.t5xxl.", text::T5_GGUF),
    ("text_encoders.llm.visual.", text::VISION_GGUF),
    ("text_encoders.llm.", text::LLM_GGUF),
    ("text_encoders.", text::CLIP_PARTS),
];

/// A file that a context is made from; each brings the prefix under which its tensors are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// `model_path`: a whole checkpoint.
    Model,
    /// `diffusion_model_path`
    DiffusionModel,
    /// `high_noise_diffusion_model_path`
    HighNoiseDiffusionModel,
    /// `uncond_diffusion_model_path`
    UncondDiffusionModel,
    /// `clip_l_path`
    ClipL,
    /// `clip_g_path`
    ClipG,
    /// `clip_vision_path`
    ClipVision,
    /// `t5xxl_path`
    T5xxl,
    /// `llm_path`
    Llm,
    /// `llm_vision_path`
    LlmVision,
    /// `vae_path`
    Vae,
    /// `taesd_path`
    Taesd,
    /// `control_net_path`
    ControlNet,
    /// `embeddings_connectors_path`
    EmbeddingsConnectors,
    /// `audio_vae_path`
    AudioVae,
    /// `pulid_weights_path`
    Pulid,
    /// The UNet of a diffusers folder.
    FolderUnet,
    /// The VAE of a diffusers folder.
    FolderVae,
    /// The text encoder of a diffusers folder.
    FolderTextEncoder,
    /// The second text encoder of a diffusers folder.
    FolderTextEncoder2,
}

impl Source {
    /// Prefix put before each name that does not begin with it. `unet` says that the diffusion network is a UNet:
    /// its CLIP files keep the names of the original checkpoints.
    pub const fn prefix(self, unet: bool) -> &'static str {
        match self {
            Self::Model | Self::ControlNet | Self::EmbeddingsConnectors | Self::AudioVae => "",
            Self::DiffusionModel | Self::Pulid => DENOISER,
            Self::HighNoiseDiffusionModel => HIGH_NOISE_DENOISER,
            Self::UncondDiffusionModel => UNCONDITIONAL_DENOISER,
            Self::ClipL if unet => "cond_stage_model.transformer.",
            Self::ClipL => "text_encoders.clip_l.transformer.",
            Self::ClipG if unet => "cond_stage_model.1.transformer.",
            Self::ClipG => "text_encoders.clip_g.transformer.",
            Self::ClipVision => "cond_stage_model.transformer.",
            Self::T5xxl => "text_encoders.t5xxl.transformer.",
            Self::Llm => "text_encoders.llm.",
            Self::LlmVision => "text_encoders.llm.visual.",
            Self::Vae | Self::FolderVae => "vae.",
            Self::Taesd => TAE,

            Self::FolderUnet => "unet.",
            Self::FolderTextEncoder => "te.",
            Self::FolderTextEncoder2 => "te2.",
        }
    }

    /// `name` as it is known after this file's prefix is put on.
    pub fn place(self, name: &str, unet: bool) -> Cow<'_, str> {
        let prefix = self.prefix(unet);
        if name.starts_with(prefix) { Cow::Borrowed(name) } else { Cow::Owned(format!("{prefix}{name}")) }
    }
}

/// The canonical spelling of `name`, which carries its source's prefix; borrowed when it stays as it is.
///
/// Names beginning with [`LORA`] are those of a LoRA file; see [`lora`] for their parts.
pub fn canonical<'n>(name: &'n str, dialect: &Dialect) -> Cow<'n, str> {
    if !dialect.other.is_empty() {
        return apply(name, dialect.other);
    }
    match name.strip_prefix(LORA) {
        Some(member) => Cow::Owned(format!("{LORA}{}", lora::recorded(member, dialect))),
        None => model_name(name, dialect),
    }
}

/// The canonical spelling of a control net's tensor, in diffusers' or the original layout (with or without
/// `control_model.`).
pub fn control<'n>(name: &'n str, dialect: &Dialect) -> Cow<'n, str> {
    let bare = name.strip_prefix("control_model.").unwrap_or(name);
    control_name(Cow::Borrowed(bare), dialect)
}

fn model_name<'n>(name: &'n str, dialect: &Dialect) -> Cow<'n, str> {
    let name = apply(name, &[Stage { when: None, take: Take::First, rules: dialect.roots }, first(ROOTS)]);
    if name.starts_with(DENOISER) {
        return below(name, DENOISER, DENOISER, &[dialect.denoiser]);
    }
    if name.starts_with(HIGH_NOISE_DENOISER) {
        return below(name, HIGH_NOISE_DENOISER, HIGH_NOISE_DENOISER, &[dialect.denoiser]);
    }
    if name.starts_with(VAE) {
        return below(name, VAE, dialect.vae_root, &[dialect.vae]);
    }
    if let Some((prefix, stages)) = TEXT.iter().find(|(prefix, _)| name.starts_with(prefix)) {
        let tower: &[Stage] = if *prefix == "text_encoders.llm.visual." { dialect.vision } else { &[] };
        return below(name, prefix, prefix, &[tower, stages]);
    }
    if name.starts_with("pmid.") {
        return in_place(name, |name| apply(name, text::IDENTITY));
    }
    let name = in_place(name, |name| Cow::Borrowed(name.strip_prefix("control_model.").unwrap_or(name)));
    if dialect.bare_control { control_name(name, dialect) } else { name }
}

/// Translates bare names that begin like those of a diffusers control net.
fn control_name<'n>(name: Cow<'n, str>, dialect: &Dialect) -> Cow<'n, str> {
    if !unet::CONTROL_HEADS.iter().any(|head| name.starts_with(head)) {
        return name;
    }
    let name = in_place(name, |name| apply(name, dialect.denoiser));
    in_place(name, |name| apply(name, unet::CONTROL))
}

/// Applies `tables` to what follows `prefix` and puts `new_prefix` before the result.
fn below<'n>(name: Cow<'n, str>, prefix: &str, new_prefix: &str, tables: &[&[Stage]]) -> Cow<'n, str> {
    let rest = &name[prefix.len()..];
    let mut new = Cow::Borrowed(rest);
    for stages in tables {
        new = match apply(&new, stages) {
            Cow::Borrowed(_) => new,
            Cow::Owned(changed) => Cow::Owned(changed),
        };
    }
    if matches!(new, Cow::Borrowed(_)) && prefix == new_prefix {
        return name;
    }
    Cow::Owned(format!("{new_prefix}{new}"))
}

/// `change` on a name that may be owned already; what is borrowed stays so.
fn in_place<'n>(name: Cow<'n, str>, change: impl for<'m> Fn(&'m str) -> Cow<'m, str>) -> Cow<'n, str> {
    match name {
        Cow::Borrowed(text) => change(text),
        Cow::Owned(text) => Cow::Owned(change(&text).into_owned()),
    }
}
