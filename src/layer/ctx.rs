//! What every layer gets besides its input.
#![forbid(unsafe_code)]

use std::sync::Arc;

use crate::graph::{Graph, Tensor, Weight};

/// The surroundings of a forward pass under construction.
#[derive(Clone)]
pub struct Ctx<'g> {
    /// The graph that grows.
    pub graph: &'g Graph,
    /// Adapters applied at run time.
    pub adapters: Option<Arc<dyn Adapters>>,
    /// Whether width and height wrap around.
    pub circular: [bool; 2],
}

impl<'g> Ctx<'g> {
    /// A weight as an operand.
    pub fn weight(&self, weight: &Weight) -> Tensor<'g> {
        self.graph.weight(weight)
    }

    /// What adapters add to the layer of `weight`.
    pub fn deltas(&self, weight: &Weight) -> &[Delta] {
        self.adapters.as_ref().map_or(&[], |a| a.deltas(weight.name()))
    }
}

/// Adapters that are added to the output of layers while computing, found by the name of the weight.
pub trait Adapters: Send + Sync {
    /// What is added to the layer whose weight has the full name `weight`.
    fn deltas(&self, weight: &str) -> &[Delta];

    /// Differs whenever the set of adapters or a strength differs.
    fn fingerprint(&self) -> u64;
}

/// A change of one weight W: `scale * D`, never added to W itself.
#[derive(Clone, Debug)]
pub struct Delta {
    /// Factors of D.
    pub kind: DeltaKind,
    /// Strength, alpha / rank included.
    pub scale: f32,
    /// First output row that changes, for adapters of a part of a fused weight.
    pub first_row: usize,
    /// Number of output rows that change.
    pub rows: usize,
}

/// How D is stored.
#[derive(Clone, Debug)]
pub enum DeltaKind {
    /// `up (mid) down`: matrices `[in, rank]` and `[rank, rows]`, or kernels `[kw, kh, in, rank]`,
    /// `[kw, kh, rank, rank]`, `[1, 1, rank, rows]`.
    LowRank {
        /// From the input to the rank.
        down: Weight,
        /// In the rank, where a convolution was split in three.
        mid: Option<Weight>,
        /// From the rank to the output.
        up: Weight,
    },
    /// D itself, shaped as the weight (or its changed rows).
    Dense(Weight),
    /// A change of the bias.
    Bias(Weight),
}
