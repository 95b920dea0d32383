//! CPU kernels that replace ggml nodes where they are faster.
