//! Token sequences: begin and end tokens, padding, truncation, chunks, and the weights' effect on states.
#![forbid(unsafe_code)]

use super::tokenizer::Marks;
use crate::error::{Error, Result};

/// What an encoder is given: one entry per token in each list.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tokens {
    /// Token ids.
    pub ids: Vec<i32>,
    /// Weight of each token's state; 1 for begin, end, padding and template text.
    pub weights: Vec<f32>,
    /// False for padding.
    pub mask: Vec<bool>,
}

/// What happens to a text that is longer than `Fit::max`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overflow {
    /// Cut off; the last token becomes the end token where there is one.
    Truncate,
    /// Continued in further sequences of length `Fit::min`, each with its own begin and end.
    Chunks,
}

/// Length of the sequences, begin and end tokens included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fit {
    /// Shorter texts are padded to it.
    pub min: usize,
    /// Longer texts overflow.
    pub max: usize,
    /// What overflowing does.
    pub overflow: Overflow,
}

impl Fit {
    /// As long as it comes.
    pub const FREE: Self = Self { min: 0, max: usize::MAX, overflow: Overflow::Truncate };

    /// Padded to `min`, never cut.
    pub const fn at_least(min: usize) -> Self {
        Self { min, ..Self::FREE }
    }

    /// Never padded, cut to `max`.
    pub const fn at_most(max: usize) -> Self {
        Self { max, ..Self::FREE }
    }

    /// Padded or cut to `length`.
    pub const fn exactly(length: usize) -> Self {
        Self { min: length, max: length, overflow: Overflow::Truncate }
    }

    /// As many sequences of `length` as the text needs.
    pub const fn chunks(length: usize) -> Self {
        Self { min: length, max: length, overflow: Overflow::Chunks }
    }
}

impl Tokens {
    /// Appends ids of one weight.
    pub fn extend(&mut self, ids: &[i32], weight: f32) {
        self.ids.extend_from_slice(ids);
        self.weights.resize(self.ids.len(), weight);
        self.mask.resize(self.ids.len(), true);
    }

    /// Number of tokens.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Whether there is no token.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Consecutive parts of `length` tokens; a shorter rest is left out.
    pub fn chunks(&self, length: usize) -> impl Iterator<Item = Tokens> + '_ {
        (0..self.len() / length.max(1)).map(move |i| self.slice(i * length, (i + 1) * length))
    }

    fn slice(&self, start: usize, end: usize) -> Tokens {
        Tokens {
            ids: self.ids[start..end].to_vec(),
            weights: self.weights[start..end].to_vec(),
            mask: self.mask[start..end].to_vec(),
        }
    }

    /// Mask to add to attention scores: 0, and minus infinity for padding.
    pub fn additive_mask(&self) -> Vec<f32> {
        self.mask.iter().map(|&real| if real { 0.0 } else { f32::NEG_INFINITY }).collect()
    }

    fn push(&mut self, id: i32, real: bool) {
        self.ids.push(id);
        self.weights.push(1.0);
        self.mask.push(real);
    }

    /// Begin, the tokens from `start` to `end`, end, padding up to `length`.
    fn framed(&self, start: usize, end: usize, length: usize, marks: &Marks) -> Tokens {
        let mut text = Tokens::default();
        marks.begin.into_iter().for_each(|id| text.push(id, true));
        text.append(self.slice(start, end));
        marks.end.into_iter().for_each(|id| text.push(id, true));
        let mut padding = Tokens::default();
        for _ in text.len()..length {
            padding.push(marks.pad, false);
        }
        let (mut first, second) = if marks.pad_left { (padding, text) } else { (text, padding) };
        first.append(second);
        first
    }

    fn append(&mut self, other: Tokens) {
        self.ids.extend(other.ids);
        self.weights.extend(other.weights);
        self.mask.extend(other.mask);
    }

    /// Adds begin, end and padding. Without text an overflowing `fit` gives one empty sequence.
    pub fn fitted(&self, marks: &Marks, fit: Fit) -> Tokens {
        let frame = usize::from(marks.begin.is_some()) + usize::from(marks.end.is_some());
        if fit.min.max(self.len() + frame) <= fit.max {
            return self.framed(0, self.len(), fit.min, marks);
        }
        if fit.overflow == Overflow::Chunks && fit.min > frame {
            let room = fit.min - frame;
            let mut out = Tokens::default();
            for start in (0..self.len().max(1)).step_by(room) {
                out.append(self.framed(start, (start + room).min(self.len()), fit.min, marks));
            }
            return out;
        }
        let mut out = self.framed(0, self.len(), 0, marks).slice(0, fit.max.min(self.len() + frame));
        if let (Some(end), Some(last)) = (marks.end, out.ids.len().checked_sub(1)) {
            out.ids[last] = end;
            out.weights[last] = 1.0;
        }
        out
    }
}

/// Multiplies each token's state by its weight and then all of them so that their mean stays; nothing where all are 1.
///
/// `states` holds one row of equal width per token. A mean that is zero or not finite leaves the scale alone.
pub fn apply_weights(states: &mut [f32], weights: &[f32]) -> Result<()> {
    if weights.iter().all(|&w| w == 1.0) || states.is_empty() {
        return Ok(());
    }
    if weights.is_empty() || !states.len().is_multiple_of(weights.len()) {
        return Err(Error::shape(
            "prompt weights",
            format!("{} values do not divide among {} tokens", states.len(), weights.len()),
        ));
    }
    let mean = |x: &[f32]| (x.iter().map(|&v| f64::from(v)).sum::<f64>() / x.len() as f64) as f32;
    let before = mean(states);
    let width = states.len() / weights.len();
    for (row, &weight) in states.chunks_exact_mut(width).zip(weights) {
        row.iter_mut().for_each(|v| *v *= weight);
    }
    let after = mean(states);
    if before.is_finite() && after.is_finite() && after != 0.0 {
        let scale = before / after;
        states.iter_mut().for_each(|v| *v *= scale);
    }
    Ok(())
}
