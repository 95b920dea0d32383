//! Layers: linear, convolution, norm, attention; where adapters are applied.
#![forbid(unsafe_code)]
