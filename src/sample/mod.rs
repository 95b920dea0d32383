//! Random generators, schedules, predictions, samplers, guidance, step caches.
//!
//! Everything here works on host values and knows neither ggml nor any model family. A generation goes
//! through [`plan`] (which sigmas), [`run`] (the guided model with caches and callbacks) and [`samplers`].
#![forbid(unsafe_code)]

pub mod args;
pub mod cache;
pub mod guidance;
pub mod plan;
pub mod prediction;
pub mod rng;
pub mod run;
pub mod samplers;
pub mod schedule;

pub use args::SampleArgs;
pub use cache::{CacheMode, CacheParams, NetworkKind, StepCache};
pub use prediction::{Denoiser, Prediction};
pub use rng::{Rng, RngKind};
pub use run::{Branch, Evaluation, Generation, Network, Observer, Sampler, sample};
pub use samplers::Method;
pub use schedule::{AysLevels, Scheduler};
