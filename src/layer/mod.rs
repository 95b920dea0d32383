//! Layers: linear, convolution, norm, attention; where run-time adapters are applied; running networks.
//!
//! Layers take their sizes from the caller and check them against the weights; see [`crate::weights::Scope`].
#![forbid(unsafe_code)]

mod attention;
mod conv;
mod ctx;
mod embed;
mod linear;
mod map;
mod norm;
mod rope;
mod run;

pub use attention::{attention, split_heads};
pub use conv::Conv2d;
pub use ctx::{Adapters, Ctx, Delta, DeltaKind};
pub use embed::{Embedding, timestep_embedding};
pub use linear::Linear;
pub use map::Map;
pub use norm::{GroupNorm, LayerNorm, RmsNorm};
pub use rope::{Pairs, RopeAxis, RopeTable, rope};
pub use run::{Env, Runner};
