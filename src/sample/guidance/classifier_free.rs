//! Classifier-free guidance (Ho & Salimans 2022), with a second scale for images (Brooks et al. 2023).
#![forbid(unsafe_code)]

use super::{Outputs, Scales};

/// Writes the guided prediction to `out`, of the outputs' length.
pub fn combine(outputs: Outputs<'_>, scales: Scales, out: &mut [f32]) {
    let cond = outputs.positive;
    match (outputs.negative, outputs.image_negative) {
        (None, None) => out.copy_from_slice(cond),
        (Some(base), None) | (None, Some(base)) => {
            for ((o, &c), &u) in out.iter_mut().zip(cond).zip(base) {
                *o = u + scales.text * (c - u);
            }
        }
        (Some(negative), Some(image)) => {
            for (((o, &c), &u), &i) in out.iter_mut().zip(cond).zip(negative).zip(image) {
                *o = i + scales.image * (u - i) + scales.text * (c - u);
            }
        }
    }
}
