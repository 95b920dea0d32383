//! A guidance scale per step.
#![forbid(unsafe_code)]

use super::super::args::{strict_float, trim};

/// More steps than any schedule has.
const MAX_LENGTH: usize = 100_000;

/// Scales, empty for the request's own scale at all steps.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GuidanceSchedule {
    scales: Vec<f32>,
}

impl GuidanceSchedule {
    /// Reads `7x3+3.5x2`: scale 7 three times, then 3.5 twice. The error says which part is wrong.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut scales = Vec::new();
        let text = text.strip_suffix('+').unwrap_or(text);
        for segment in text.split('+') {
            let Some((scale, count)) = segment.split_once('x') else {
                return Err(format!("found '{segment}', expected <scale>x<count>"));
            };
            // White space may lead but not follow a number.
            let complete = |number: &str| trim(number).len() == number.trim_start().len();
            let scale_value = strict_float(scale).filter(|_| complete(scale));
            let count_value = trim(count).parse::<usize>().ok().filter(|_| complete(count));
            match (scale_value, count_value) {
                (Some(scale), Some(count)) if count > 0 && scales.len() + count <= MAX_LENGTH => {
                    scales.resize(scales.len() + count, scale);
                }
                (Some(_), Some(0)) => return Err(format!("the count in '{segment}' must be positive")),
                _ => return Err(format!("found '{segment}', expected <scale>x<count>")),
            }
        }
        Ok(Self { scales })
    }

    /// The scales as written.
    pub fn scales(&self) -> &[f32] {
        &self.scales
    }

    /// Fits the list to `steps` steps: cut, or filled with `scale`. One entry too many is left in place, as
    /// recorded.
    pub fn fit(&mut self, steps: usize, scale: f32) {
        if self.scales.is_empty() {
            return;
        }
        if self.scales.len() > steps + 1 {
            self.scales.truncate(steps);
        } else if self.scales.len() < steps {
            self.scales.resize(steps, scale);
        }
    }

    /// Scale of a step (its sign does not matter), `None` without a schedule.
    ///
    /// Pictures of the recorded library show that the list is read backwards and one entry early, and that
    /// the last step has scale 0 (the negative prompt alone). That is kept: the same arguments give the same
    /// picture.
    pub fn at(&self, step: i32) -> Option<f32> {
        if self.scales.is_empty() {
            return None;
        }
        let step = step.unsigned_abs() as usize;
        let index = (self.scales.len() - 1).checked_sub(step);
        Some(index.map_or(0.0, |index| self.scales[index]))
    }
}
