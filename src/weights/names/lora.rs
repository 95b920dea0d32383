//! Names in LoRA files: which weight a tensor changes, and as which member of an adapter.
#![forbid(unsafe_code)]

use super::{DENOISER, Dialect, model_name, words};

/// What a tensor of a LoRA file is to its adapter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Member {
    /// Low rank: `[in, rank]`, or the kernel `[kw, kh, in, rank]`.
    Down,
    /// Low rank with a core: `[kw, kh, rank, rank]`.
    Mid,
    /// Low rank: `[rank, out]`.
    Up,
    /// Scalar; divided by the rank it is the adapter's own strength.
    Alpha,
    /// Scalar strength, instead of alpha / rank.
    Scale,
    /// The full difference, of the weight's shape.
    Diff,
    /// LoHa, first factor: `[rank, out]` (with a core `[out, rank]`).
    HadaW1A,
    /// LoHa, first factor: `[in, rank]`.
    HadaW1B,
    /// LoHa, second factor, as `HadaW1A`.
    HadaW2A,
    /// LoHa, second factor, as `HadaW1B`.
    HadaW2B,
    /// LoHa, core of the first factor: `[kw, kh, rank, rank]`.
    HadaT1,
    /// LoHa, core of the second factor.
    HadaT2,
    /// LoKr, outer factor.
    LokrW1,
    /// LoKr, outer factor as a product: `[rank, rows]`.
    LokrW1A,
    /// LoKr, outer factor as a product: `[columns, rank]`.
    LokrW1B,
    /// LoKr, inner factor.
    LokrW2,
    /// LoKr, inner factor as a product: `[rank, rows]`.
    LokrW2A,
    /// LoKr, inner factor as a product: `[columns, rank]`.
    LokrW2B,
    /// LoKr, core of the inner factor: `[kw, kh, rank, rank]`.
    LokrT2,
    /// DoRA: norm of each row (or column) of the changed weight.
    DoraScale,
}

/// Where a tensor of a LoRA file belongs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoraKey {
    /// Canonical name of the weight (or bias) that is changed.
    pub target: String,
    /// Which of the parts joined in the target's rows, counted from 0: q, k, v of one fused weight.
    pub part: usize,
    /// What the tensor is.
    pub member: Member,
}

/// Ending in the file, what the tensor is, and the ending after which the recorded spelling names it.
struct Ending {
    file: &'static str,
    member: Member,
    canonical: &'static str,
}

const fn ending(file: &'static str, member: Member, canonical: &'static str) -> Ending {
    Ending { file, member, canonical }
}

/// Endings of the common trainers (kohya, diffusers, PEFT, LyCORIS).
const ENDINGS: &[Ending] = &[
    ending(".lora_down.weight", Member::Down, ".weight.lora_down"),
    ending(".lora_up.weight", Member::Up, ".weight.lora_up"),
    ending(".lora_mid.weight", Member::Mid, ".weight.lora_mid"),
    ending(".lora_A.weight", Member::Down, ".weight.lora_down"),
    ending(".lora_B.weight", Member::Up, ".weight.lora_up"),
    ending(".alpha", Member::Alpha, ".weight.alpha"),
    ending(".lora.down.weight", Member::Down, ".weight.lora_down"),
    ending(".lora.mid.weight", Member::Mid, ".weight.lora_mid"),
    ending(".lora.up.weight", Member::Up, ".weight.lora_up"),
    ending("_lora.down.weight", Member::Down, ".weight.lora_down"),
    ending("_lora.mid.weight", Member::Mid, ".weight.lora_mid"),
    ending("_lora.up.weight", Member::Up, ".weight.lora_up"),
    ending(".lora_A.default.weight", Member::Down, ".weight.lora_down"),
    ending(".lora_B.default.weight", Member::Up, ".weight.lora_up"),
    ending(".lora_linear", Member::Alpha, ".weight.alpha"),
    ending(".scale", Member::Scale, ".weight.scale"),
    ending(".diff", Member::Diff, ".weight.diff"),
    ending(".diff_b", Member::Diff, ".bias.diff"),
    ending(".hada_w1_a", Member::HadaW1A, ".weight.hada_w1_a"),
    ending(".hada_w1_b", Member::HadaW1B, ".weight.hada_w1_b"),
    ending(".hada_w2_a", Member::HadaW2A, ".weight.hada_w2_a"),
    ending(".hada_w2_b", Member::HadaW2B, ".weight.hada_w2_b"),
    ending(".hada_t1", Member::HadaT1, ".weight.hada_t1"),
    ending(".hada_t2", Member::HadaT2, ".weight.hada_t2"),
    ending(".lokr_w1", Member::LokrW1, ".weight.lokr_w1"),
    ending(".lokr_w1_a", Member::LokrW1A, ".weight.lokr_w1_a"),
    ending(".lokr_w1_b", Member::LokrW1B, ".weight.lokr_w1_b"),
    ending(".lokr_w2", Member::LokrW2, ".weight.lokr_w2"),
    ending(".lokr_w2_a", Member::LokrW2A, ".weight.lokr_w2_a"),
    ending(".lokr_w2_b", Member::LokrW2B, ".weight.lokr_w2_b"),
];

/// Further endings, which have no recorded spelling of their own.
const MORE_ENDINGS: &[Ending] = &[
    ending(".lora_linear_layer.down.weight", Member::Down, ".weight"),
    ending(".lora_linear_layer.up.weight", Member::Up, ".weight"),
    ending(".lora_A.default", Member::Down, ".weight"),
    ending(".lora_B.default", Member::Up, ".weight"),
    ending(".lora_A", Member::Down, ".weight"),
    ending(".lora_B", Member::Up, ".weight"),
    ending(".lora_down", Member::Down, ".weight"),
    ending(".lora_up", Member::Up, ".weight"),
    ending(".lokr_t2", Member::LokrT2, ".weight"),
    ending(".dora_scale", Member::DoraScale, ".weight"),
    ending(".lora_magnitude_vector", Member::DoraScale, ".weight"),
    ending(".lora_magnitude_vector.weight", Member::DoraScale, ".weight"),
    ending(".lora_magnitude_vector.default.weight", Member::DoraScale, ".weight"),
    // LyCORIS' differences of normalisation layers
    ending(".w_norm", Member::Diff, ".weight"),
    ending(".b_norm", Member::Diff, ".bias"),
];

/// What trainers put before the module's path.
const HEADS: &[&str] = &["lora.", "lora_", "lycoris_", "lycoris."];

/// First words of underscored paths.
const UNDERSCORED_ROOTS: &[&str] = &["unet_", "te_", "te1_", "te2_", "te3_", "vae_"];

/// The recorded spelling of a LoRA tensor's name (given without the loader's prefix): the weight, then the member.
pub(super) fn recorded(name: &str, dialect: &Dialect) -> String {
    let mut lycoris = false;
    let mut path = name;
    for head in HEADS {
        if let Some(rest) = name.strip_prefix(head) {
            (path, lycoris) = (rest, *head == "lycoris_");
            break;
        }
    }
    let underscored =
        dialect.underscored_lora || lycoris || UNDERSCORED_ROOTS.iter().any(|root| path.starts_with(root));
    let full = match ENDINGS.iter().find_map(|e| Some((path.strip_suffix(e.file)?, e.canonical))) {
        Some((module, canonical)) => format!("{module}{canonical}"),
        None => path.to_string(),
    };
    translate(&full, underscored.then_some(&[]), dialect)
}

/// Reads the name of a LoRA file's tensor, as it stands in the file. `None` when its ending is none of an adapter's.
///
/// Where [`super::canonical`] keeps recorded oddities, this one goes further: it knows more endings, paths without
/// any root belong to the diffusion network, and only paths without dots are taken to be underscored.
pub fn lora(name: &str, dialect: &Dialect) -> Option<LoraKey> {
    let (path, member, param) = split_ending(name)?;
    let path = path.strip_prefix("base_model.model.").unwrap_or(path);
    let path = HEADS.iter().find_map(|head| path.strip_prefix(head)).unwrap_or(path);
    let underscored = !path.contains('.');
    // The recorded library takes such names apart at their underscores and finds no weight; its pictures with these
    // files are those of the UNet's part alone.
    if dialect.underscored_lora && path.starts_with("text_encoder.") {
        return None;
    }
    // diffusers' folder names that contain an underscore themselves
    let path = if let Some(rest) = path.strip_prefix("text_encoder_2") {
        format!("te2{rest}")
    } else if let Some(rest) = path.strip_prefix("text_encoder_3") {
        format!("te3{rest}")
    } else if let Some(rest) = path.strip_prefix("text_encoder").filter(|_| underscored) {
        format!("te{rest}")
    } else if let Some(rest) =
        path.strip_prefix("transformer_").filter(|r| underscored && !r.starts_with("blocks"))
    {
        format!("unet_{rest}")
    } else {
        path.to_string()
    };
    let full = translate(&format!("{path}{param}"), underscored.then_some(words::MORE_COMPOUND), dialect);
    let full =
        if has_root(&full) { full } else { model_name(&format!("{DENOISER}{full}"), dialect).into_owned() };
    let (target, part) = split_part(&full);
    Some(LoraKey { target: target.to_string(), part, member })
}

/// Splits off the adapter's ending; the third value is `.weight` or `.bias`.
fn split_ending(name: &str) -> Option<(&str, Member, &'static str)> {
    let found = ENDINGS.iter().chain(MORE_ENDINGS).find_map(|e| {
        let path = name.strip_suffix(e.file)?;
        Some((path, e.member, if e.canonical.starts_with(".bias") { ".bias" } else { ".weight" }))
    });
    // PEFT files may name their adapter: `.lora_A.NAME.weight`
    found.or_else(|| {
        let (path, adapter) = name.strip_suffix(".weight")?.rsplit_once('.')?;
        let plain = !adapter.is_empty()
            && adapter.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
        let (path, member) = path
            .strip_suffix(".lora_A")
            .map(|path| (path, Member::Down))
            .or_else(|| path.strip_suffix(".lora_B").map(|path| (path, Member::Up)))?;
        plain.then_some((path, member, ".weight"))
    })
}

/// Translates a module path (with what follows it) to the model's names. `words` are given for underscored paths:
/// further identifiers that contain underscores.
fn translate(path: &str, words: Option<&[&str]>, dialect: &Dialect) -> String {
    let mut path = path.replacen(".processor", "", 1);
    if path.starts_with("transformer_blocks") || path.starts_with("single_transformer_blocks") {
        path.insert_str(0, "transformer.");
    }
    if let Some(words) = words {
        path = words::dotted(&path, words);
    }
    model_name(&path, dialect).into_owned()
}

/// Whether a name begins with one of the canonical prefixes.
fn has_root(name: &str) -> bool {
    const ROOTS: &[&str] = &[
        "model.diffusion_model.",
        "model.high_noise_diffusion_model.",
        "cond_stage_model.",
        "conditioner.",
        "text_encoders.",
        "first_stage_model.",
        "tae.",
    ];
    ROOTS.iter().any(|root| name.starts_with(root))
}

/// Splits the number of a joined part off: `qkv.weight.2` -> (`qkv.weight`, 2).
fn split_part(name: &str) -> (&str, usize) {
    if let Some((target, number)) = name.rsplit_once('.')
        && (target.ends_with(".weight") || target.ends_with(".bias"))
        && let Ok(part) = number.parse()
    {
        return (target, part);
    }
    (name, 0)
}
