//! Attention on rows of tokens.
#![forbid(unsafe_code)]

use crate::error::Result;
use crate::graph::Tensor;

/// Attention of `heads` heads: q `[C, Lq, N]`, k and v `[C, Lk, N]`, head after head along C; gives `[C, Lq, N]`.
///
/// `mask` `[Lk, Lq or 1, heads or 1, N or 1]` is added to the scores. The scale is 1 / sqrt(C / heads).
pub fn attention<'g>(
    q: Tensor<'g>,
    k: Tensor<'g>,
    v: Tensor<'g>,
    heads: usize,
    mask: Option<Tensor<'g>>,
) -> Result<Tensor<'g>> {
    let scale = 1.0 / ((q.dim(0) / heads.max(1)) as f32).sqrt();
    split_heads(q, heads)?.attention(split_heads(k, heads)?, split_heads(v, heads)?, mask, scale)
}

/// `[C, L, N]` as `[C / heads, L, heads, N]`; nothing moves in memory.
pub fn split_heads<'g>(x: Tensor<'g>, heads: usize) -> Result<Tensor<'g>> {
    let [c, l, n, _] = x.shape();
    let fits = heads > 0 && c.is_multiple_of(heads);
    if !fits {
        return Err(crate::Error::shape(
            "attention",
            format!("{x:?}: {heads} heads do not divide the width"),
        ));
    }
    let x = if x.is_contiguous() { x } else { x.cont()? };
    x.reshape([c / heads, heads, l, n])?.permute([0, 2, 1, 3])
}
