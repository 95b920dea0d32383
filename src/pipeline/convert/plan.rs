//! What each tensor becomes: its type and shape in the output.
#![forbid(unsafe_code)]

use std::collections::{BTreeMap, BTreeSet};

use super::Item;
use crate::error::{Error, Result};
use crate::files::scaled::is_bookkeeping;
use crate::files::{Container, Dtype, Planned};
use crate::graph::Type;
use crate::weights::TypePolicy;
use crate::weights::importance::{self, Importance};

/// One tensor to be read and written.
pub struct Work {
    /// What and from where.
    pub item: Item,
    /// Type in the output.
    pub dtype: Dtype,
    /// Shape in ggml order, ones appended.
    pub shape: [usize; 4],
    /// Weights of the columns, where the type is quantised anew.
    pub importance: Option<Importance>,
}

/// Everything to be done, in the order of the output.
pub struct Plan {
    pub works: Vec<Work>,
    pub outputs: Vec<Planned>,
    /// Tensors that the container cannot hold.
    pub left_out: Vec<String>,
}

/// Beginnings of the names of tensors that no network uses: what follows from the noise schedule, positions, scales of
/// the training loss, running means. The recorded library's list.
const UNUSED: &[&str] = &[
    "betas",
    "alphas_cumprod_prev",
    "sqrt_alphas_cumprod",
    "sqrt_one_minus_alphas_cumprod",
    "log_one_minus_alphas_cumprod",
    "sqrt_recip_alphas_cumprod",
    "sqrt_recipm1_alphas_cumprod",
    "posterior_variance",
    "posterior_log_variance_clipped",
    "posterior_mean_coef1",
    "posterior_mean_coef2",
    "cond_stage_model.transformer.text_model.embeddings.position_ids",
    "cond_stage_model.1.model.text_model.embeddings.position_ids",
    "cond_stage_model.transformer.vision_model.embeddings.position_ids",
    "cond_stage_model.model.logit_scale",
    "conditioner.embedders.0.transformer.text_model.embeddings.position_ids",
    "conditioner.embedders.0.model.logit_scale",
    "conditioner.embedders.1.model.logit_scale",
    "model.diffusion_model.time_embedding.cond_proj.weight",
    "unet.time_embedding.cond_proj.weight",
    "model_ema.decay",
    "model_ema.num_updates",
    "model_ema.diffusion_model",
    "embedding_manager",
    "denoiser.sigmas",
    "text_encoders.t5xxl.transformer.encoder.embed_tokens.weight",
    "ztsnr",
    "edm_vpred.sigma_min",
    "text_encoders.llm.output.weight",
    "text_encoders.llm.lm_head.",
];

fn is_unused(name: &str) -> bool {
    UNUSED.iter().any(|start| name.starts_with(start))
}

/// Types that ggml can write: the others only occur while computing (q8_1, q8_K) or hold no weights.
fn is_writable(ty: Type) -> bool {
    let written = [Type::F32, Type::F16, Type::BF16];
    written.contains(&ty) || (ty.is_quantized() && !["q8_1", "q8_K", "q8_k"].contains(&ty.name()))
}

/// Refuses types that tensors cannot be converted to.
pub fn check_types(types: &TypePolicy) -> Result<()> {
    match types.types().find(|(_, ty)| !is_writable(*ty)) {
        None => Ok(()),
        Some((field, ty)) => {
            let field = if field == "type" { "output_type" } else { field };
            Err(Error::invalid(format!(
                "{field}: tensors cannot be converted to {ty}; f32, f16, bf16, q8_0 and q4_K are some that they can"
            )))
        }
    }
}

/// Type of values that are kept as they are: those that ggml lacks become the next wider one it has.
fn kept(dtype: Dtype, scaled: bool) -> Dtype {
    match dtype {
        Dtype::F8_E4M3 | Dtype::F8_E5M2 => Dtype::F16,
        Dtype::I8 if scaled => Dtype::F16,
        Dtype::F64 => Dtype::F32,
        Dtype::I64 => Dtype::I32,
        other => other,
    }
}

/// Indices, positions and markers stay integers whatever is wished for weights.
fn is_integer(dtype: Dtype) -> bool {
    matches!(dtype, Dtype::I64 | Dtype::I32 | Dtype::I16 | Dtype::I8 | Dtype::U8 | Dtype::BOOL)
}

/// Decides about every tensor; names are sorted as bytes.
pub fn plan(items: Vec<Item>, types: &TypePolicy, container: Container) -> Result<Plan> {
    let mut by_name = BTreeMap::new();
    for item in items {
        if !is_unused(&item.name) && !is_unused(&item.source()?.name) && !is_folded(&item)? {
            by_name.insert(item.name.clone(), item);
        }
    }
    let mut plan = Plan { works: Vec::new(), outputs: Vec::new(), left_out: Vec::new() };
    for (name, item) in by_name {
        let work = work(item, types)?;
        if matches!(work.dtype, Dtype::U8 | Dtype::BOOL) {
            // descriptions in JSON and the like: no values of a network
            plan.left_out.push(name);
            continue;
        }
        if container == Container::Safetensors && work.dtype.safetensors_name().is_none() {
            return Err(Error::invalid(format!(
                "output_path: safetensors cannot hold '{name}' in type {}: end the name in .gguf, or set output_type \
                 to f32, f16 or bf16",
                work.dtype
            )));
        }
        let rank = work.item.source()?.shape.len().clamp(1, 4);
        plan.outputs.push(Planned { name, dtype: work.dtype, shape: work.shape[..rank].to_vec() });
        plan.works.push(work);
    }
    Ok(plan)
}

impl Plan {
    /// Types that want an importance matrix and have to do without.
    pub fn unmeasured(&self) -> BTreeSet<&'static str> {
        let poor = self.works.iter().filter(|w| w.importance.as_ref().is_some_and(|i| !i.is_known()));
        poor.filter_map(|w| ggml_type(w.dtype))
            .filter(|ty| importance::is_wanted(*ty))
            .map(Type::name)
            .collect()
    }
}

/// Factors of scaled weights and the marks that say so: the weights are written multiplied.
fn is_folded(item: &Item) -> Result<bool> {
    let name = &item.source()?.name;
    Ok(is_bookkeeping(name) && item.file.tensors().iter().any(|t| t.scale.is_some()))
}

fn work(item: Item, types: &TypePolicy) -> Result<Work> {
    let entry = item.source()?;
    let (dtype, shape) = (entry.dtype, entry.shape4());
    let scaled = entry.scale.is_some();
    let stays = kept(dtype, scaled);
    let wish = types.wish(&item.name, shape[0]).filter(|_| scaled || !is_integer(dtype));
    let dtype = wish.and_then(dtype_of).unwrap_or(stays);
    let anew = dtype.is_quantised() && (dtype != entry.dtype || scaled);
    let importance = anew.then(|| Importance::of(&item.canonical, shape));
    Ok(Work { item, dtype, shape, importance })
}

/// ggml's type for a type of files.
pub fn ggml_type(dtype: Dtype) -> Option<Type> {
    dtype.ggml_id().and_then(|id| i32::try_from(id).ok()).and_then(Type::from_ggml)
}

fn dtype_of(ty: Type) -> Option<Dtype> {
    u32::try_from(ty.id()).ok().and_then(Dtype::from_ggml_id)
}
