//! The weights of a loaded model, as targets of adapters.
#![forbid(unsafe_code)]

use std::collections::HashMap;

use crate::weights::Index;
use crate::weights::names::{DENOISER, LoraKey};

/// Canonical names and shapes (ggml order) of the model's weights.
#[derive(Clone, Debug, Default)]
pub struct Targets {
    shapes: HashMap<String, Vec<usize>>,
    /// Names with every dot as an underscore; `None` where two weights would get the same.
    flattened: HashMap<String, Option<String>>,
}

/// Prefixes under which the same text encoder is known in files of different families.
const TWIN_ROOTS: &[(&str, &str)] = &[
    ("cond_stage_model.transformer.", "text_encoders.clip_l.transformer."),
    ("cond_stage_model.1.transformer.", "text_encoders.clip_g.transformer."),
];

/// Projections that some text encoders join in one weight, with their places in it.
const JOINED: &[(&str, usize)] = &[(".q_proj.", 0), (".k_proj.", 1), (".v_proj.", 2)];

impl Targets {
    /// Takes the weights' canonical names and shapes.
    pub fn new<'w>(weights: impl IntoIterator<Item = (&'w str, &'w [usize])>) -> Self {
        let mut targets = Self::default();
        for (name, shape) in weights {
            targets.shapes.insert(name.to_string(), shape.to_vec());
            targets
                .flattened
                .entry(name.replace('.', "_"))
                .and_modify(|other| *other = None)
                .or_insert_with(|| Some(name.to_string()));
        }
        targets
    }

    /// The weights of an index, with all the axes that their files give them.
    pub fn from_index(index: &Index) -> Self {
        Self::new(
            index.iter().filter_map(|(name, place)| Some((name, index.source(place)?.1.shape.as_slice()))),
        )
    }

    /// Shape of a weight, in ggml order.
    pub fn shape(&self, name: &str) -> Option<&[usize]> {
        self.shapes.get(name).map(Vec::as_slice)
    }

    /// The weight that a key means, and which part of its rows. `denoiser` is the prefix of the network the LoRA is
    /// for. Tried in turn: the name itself, the encoder's other prefix, joined projections, diffusers' numbered output
    /// projection; last the name without its dots, since underscored files do not say which underscores separate.
    pub fn find(&self, key: &LoraKey, denoiser: &str) -> Option<(&str, usize)> {
        let name = match key.target.strip_prefix(DENOISER) {
            Some(rest) if denoiser != DENOISER => format!("{denoiser}{rest}"),
            _ => key.target.clone(),
        };
        let mut spellings = vec![name];
        for (one, other) in TWIN_ROOTS {
            for (from, to) in [(one, other), (other, one)] {
                if let Some(rest) = key.target.strip_prefix(from) {
                    spellings.push(format!("{to}{rest}"));
                }
            }
        }
        for name in &spellings {
            if let Some((stored, _)) = self.shapes.get_key_value(name) {
                return Some((stored, key.part));
            }
            let numbered =
                name.replace(".to_out.weight", ".to_out.0.weight").replace(".to_out.bias", ".to_out.0.bias");
            if let Some((stored, _)) = self.shapes.get_key_value(&numbered) {
                return Some((stored, key.part));
            }
            for (projection, part) in JOINED {
                if let Some((stored, _)) = self.shapes.get_key_value(&name.replace(projection, ".in_proj."))
                    && name.contains(projection)
                {
                    return Some((stored, *part));
                }
            }
        }
        spellings.iter().find_map(|name| {
            let stored = self.flattened.get(&name.replace('.', "_"))?.as_deref()?;
            Some((stored, key.part))
        })
    }
}
