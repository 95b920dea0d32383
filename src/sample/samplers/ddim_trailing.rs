//! DDIM with trailing time steps: on sigmas it is Euler with ancestral noise, `eta` having the same meaning.
#![forbid(unsafe_code)]

use super::{Sampling, euler_ancestral};
use crate::error::Result;

pub(super) fn run(s: &mut Sampling<'_>) -> Result<()> {
    euler_ancestral::run(s)
}
