//! CLIP and T5 text encoders as the transformer families use them: each may be missing.
#![forbid(unsafe_code)]

use super::Loading;
use crate::error::{Error, Result};
use crate::layer::{Env, Runner};
use crate::net::clip::{ClipConfig, ClipInput, ClipModel};
use crate::net::t5::T5Model;
use crate::tensor::HostTensor;
use crate::text::clip::{CHUNK, end_position, marks};
use crate::text::{Fit, Recipe, Template, Tokens, Vocabulary, apply_weights};

/// Where an encoder's weights are and which field brings them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub prefix: &'static str,
    pub field: &'static str,
}

/// CLIP-L beside a transformer.
pub(super) const CLIP_L: Place =
    Place { prefix: "text_encoders.clip_l.transformer.text_model", field: "clip_l_path" };
/// CLIP-G beside a transformer.
pub(super) const CLIP_G: Place =
    Place { prefix: "text_encoders.clip_g.transformer.text_model", field: "clip_g_path" };
/// T5 beside a transformer.
pub(super) const T5: Place = Place { prefix: "text_encoders.t5xxl.transformer", field: "t5xxl_path" };

/// The encoder at `place` if any tensor is there; the fault of one that does not fit names its field.
fn load_at<T>(
    loading: &Loading<'_>,
    place: Place,
    load: impl FnOnce(&str) -> Result<T>,
) -> Result<Option<T>> {
    let root = place.prefix.split(".transformer").next().unwrap_or(place.prefix);
    if !loading.index.has_prefix(&format!("{root}.")) {
        return Ok(None);
    }
    let fields = format!("model_path or {}", place.field);
    load(&fields).map(Some).map_err(|error| Error::Weights(format!("{}: {error}", place.field)))
}

/// A CLIP text encoder.
pub(super) struct Clip {
    model: ClipModel,
    pad: i32,
}

impl Clip {
    /// The encoder at `place`, if the files have one; `pad` fills up short prompts.
    pub fn load(loading: &Loading<'_>, place: Place, config: ClipConfig, pad: i32) -> Result<Option<Self>> {
        load_at(loading, place, |fields| {
            let (index, policy) = (loading.index, loading.policy);
            let model = ClipModel::load(index, policy, place.prefix, &config, "CLIP text encoder", fields)?;
            Ok(Self { model, pad })
        })
    }

    /// Chunks of 77 tokens.
    pub fn tokens(&self, prompt: &[u8]) -> Result<Vec<Tokens>> {
        let mut recipe = Recipe::new(Vocabulary::Clip, Template::NONE, Fit::chunks(CHUNK));
        recipe.marks = Some(marks(self.pad));
        Ok(recipe.encode(prompt)?.chunks(CHUNK).collect())
    }

    /// Weighted states `[C, 77]` of a chunk and the pooled state at its end.
    pub fn encode(&mut self, env: &Env<'_>, chunk: &Tokens, skip: usize) -> Result<(HostTensor, HostTensor)> {
        let pool_at = Some(end_position(&chunk.ids));
        let input = ClipInput { ids: &chunk.ids, custom: &[], clip_skip: skip, pool_at };
        let mut output = self.model.run(env, &input)?;
        apply_weights(&mut output.hidden.data, &chunk.weights)?;
        let pooled = output.pooled.ok_or_else(|| Error::Internal("no pooled state was given".into()))?;
        Ok((output.hidden, pooled))
    }

    /// Width of the states.
    pub fn width(&self) -> usize {
        self.model.clip().width()
    }

    /// Width of the pooled state.
    pub fn pooled_width(&self) -> usize {
        self.model.clip().pooled_width()
    }

    /// Weights and graph.
    pub fn runner(&mut self) -> &mut Runner {
        self.model.runner()
    }
}

/// A T5 text encoder.
pub(super) struct T5Text {
    model: T5Model,
}

impl T5Text {
    /// The encoder, if the files have one.
    pub fn load(loading: &Loading<'_>) -> Result<Option<Self>> {
        load_at(loading, T5, |fields| {
            let model = T5Model::load(loading.index, loading.policy, T5.prefix, fields)?;
            Ok(Self { model })
        })
    }

    /// Chunks of `length` tokens.
    pub fn tokens(prompt: &[u8], length: usize) -> Result<Vec<Tokens>> {
        let recipe = Recipe::new(Vocabulary::T5, Template::NONE, Fit::chunks(length));
        Ok(recipe.encode(prompt)?.chunks(length).collect())
    }

    /// Weighted states `[C, L]` of a chunk; with `masked`, padding is hidden from the text.
    pub fn encode(&mut self, env: &Env<'_>, chunk: &Tokens, masked: bool) -> Result<HostTensor> {
        let mask = masked.then(|| chunk.additive_mask());
        let mut states = self.model.run(env, &chunk.ids, mask.as_deref())?;
        apply_weights(&mut states.data, &chunk.weights)?;
        Ok(states)
    }

    /// Width of the states.
    pub fn width(&self) -> usize {
        self.model.t5().width()
    }

    /// Weights and graph.
    pub fn runner(&mut self) -> &mut Runner {
        self.model.runner()
    }
}

/// Refuses a T5 encoder whose states are not as wide as the transformer wants.
pub(super) fn check_t5(t5: Option<&T5Text>, wanted: usize) -> Result<()> {
    match t5.map(T5Text::width).filter(|&width| width != wanted) {
        Some(found) => Err(Error::Weights(format!(
            "t5xxl_path: the text encoder gives states of width {found}, the transformer takes {wanted}"
        ))),
        None => Ok(()),
    }
}
