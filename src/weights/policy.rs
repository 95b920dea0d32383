//! Which element type each weight gets in memory or in a converted file.
#![forbid(unsafe_code)]

use regex_lite::Regex;

use crate::error::{Error, Result};
use crate::files::Dtype;
use crate::graph::Type;

/// What a network does with a weight, which decides the types it can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Matrix of a product: any type.
    Matrix,
    /// Kernel of a convolution: f16 or f32.
    Kernel,
    /// Bias, scale, parameter: f32.
    Vector,
    /// Table whose rows are looked up: any type.
    Table,
}

/// The caller's wishes: one type for all weights (`wtype`) and rules by name (`tensor_type_rules`).
#[derive(Clone, Debug, Default)]
pub struct TypePolicy {
    default: Option<Type>,
    rules: Vec<(Regex, Type)>,
}

/// Parts of names whose tensors keep their type: biases and scales, embedders, first and last layers, which are
/// small and sensitive. The recorded library's list.
const KEPT: &[&str] = &[
    "img_in.",
    "txt_in.",
    "time_in.",
    "vector_in.",
    "guidance_in.",
    "final_layer.",
    "x_embedder.",
    "t_embedder.",
    "y_embedder.",
    "pos_embed",
    "context_embedder.",
    "time_embed.",
    "label_emb.",
    "embedding",
];

impl TypePolicy {
    /// Takes `wtype` and the text of `tensor_type_rules`: `pattern=type,...`, first match wins.
    pub fn new(wtype: Option<Type>, rules: Option<&str>) -> Result<Self> {
        let mut policy = Self { default: wtype, rules: Vec::new() };
        for rule in rules.unwrap_or_default().split(',').filter(|r| !r.trim().is_empty()) {
            let (pattern, name) = rule.rsplit_once('=').ok_or_else(|| {
                Error::invalid(format!("tensor_type_rules: {rule:?} is no rule of the form pattern=type"))
            })?;
            let pattern = Regex::new(pattern)
                .map_err(|e| Error::invalid(format!("tensor_type_rules: pattern {pattern:?}: {e}")))?;
            let ty = parse_type(name).ok_or_else(|| {
                Error::invalid(format!(
                    "tensor_type_rules: {name:?} in {rule:?} is no type such as f16 or q8_0"
                ))
            })?;
            policy.rules.push((pattern, ty));
        }
        Ok(policy)
    }

    /// The types that weights may be given, each with the name of the field that says so.
    pub fn types(&self) -> impl Iterator<Item = (&'static str, Type)> {
        let rules = self.rules.iter().map(|(_, ty)| ("tensor_type_rules", *ty));
        self.default.iter().map(|ty| ("type", *ty)).chain(rules)
    }

    /// Whether nothing is to be changed.
    pub fn is_neutral(&self) -> bool {
        self.default.is_none() && self.rules.is_empty()
    }

    /// Type wished for the tensor `name` with rows of `width`, if it is to change.
    pub fn wish(&self, name: &str, width: usize) -> Option<Type> {
        let rule = self.rules.iter().find(|(pattern, _)| pattern.is_match(name));
        let ty = rule.map(|(_, ty)| *ty).or(self.default)?;
        let kept = [".bias", ".scale", ".weight_scale"].iter().any(|end| name.ends_with(end))
            || KEPT.iter().any(|part| name.contains(part))
            || (ty.is_quantized() && !width.is_multiple_of(ty.block()));
        (!kept).then_some(ty)
    }

    /// Type in memory of a weight that lies as `dtype` in its file.
    pub fn resolve(&self, name: &str, shape: [usize; 4], dtype: Dtype, role: Role) -> Type {
        let stored = plain_type(dtype);
        let ty = self.wish(name, shape[0]).unwrap_or(stored);
        match role {
            Role::Vector => Type::F32,
            Role::Kernel if ty == Type::F32 || stored == Type::F32 && ty != Type::F16 => Type::F32,
            Role::Kernel => Type::F16,
            Role::Matrix | Role::Table if ty.row_bytes(shape[0]).is_none() => Type::F16,
            Role::Matrix | Role::Table if ty == Type::I32 => Type::F32,
            Role::Matrix | Role::Table => ty,
        }
    }
}

/// The type a network computes with for values stored as `dtype`.
pub fn plain_type(dtype: Dtype) -> Type {
    match dtype {
        Dtype::F8_E4M3 | Dtype::F8_E5M2 => Type::F16,
        other => other
            .ggml_id()
            .and_then(|id| i32::try_from(id).ok())
            .and_then(Type::from_ggml)
            .filter(|ty| ty.is_quantized() || [Type::F32, Type::F16, Type::BF16].contains(ty))
            .unwrap_or(Type::F32),
    }
}

/// A type by its name, such as `f16` or `q4_K` (in any case).
pub fn parse_type(name: &str) -> Option<Type> {
    (0..64).filter_map(Type::from_ggml).find(|ty| ty.name().eq_ignore_ascii_case(name.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_come_before_the_default_and_kept_names_stay() {
        let policy = TypePolicy::new(parse_type("q8_0"), Some("conv=f16,^first=q4_0")).unwrap();
        assert_eq!(policy.wish("model.diffusion_model.conv.weight", 3), Some(Type::F16));
        assert_eq!(policy.wish("first_stage_model.x.weight", 256).unwrap().name(), "q4_0");
        assert_eq!(policy.wish("model.x.weight", 64).unwrap().name(), "q8_0");
        assert_eq!(policy.wish("model.x.weight", 100), None);
        assert_eq!(policy.wish("model.time_embed.0.weight", 64), None);
        assert_eq!(policy.wish("model.x.bias", 64), None);
    }

    #[test]
    fn bad_rules_are_named() {
        for rules in ["x=nothing", "x", "(=f16"] {
            let error = TypePolicy::new(None, Some(rules)).unwrap_err().to_string();
            assert!(error.contains("tensor_type_rules"), "{error}");
        }
    }
}
