//! Block products in f32 with fused multiply-add, for machines without tiles.

#![allow(clippy::needless_range_loop)] // Indices run over registers, memory rows and vectors at once.

use super::block::{Block, STEP};
use std::arch::x86_64::*;

/// # Safety
/// As [`Block::run`] with format `F32`; the machine has AVX-512F.
#[target_feature(enable = "avx512f,fma")]
pub(super) unsafe fn avx512(k: &Block) {
    let rows = if k.wide_rows { 32 } else { 16 };
    for r in (0..rows).step_by(8) {
        // SAFETY: rows `r..r + 8` of A and C exist, columns as the flag says; the caller vouches for B.
        unsafe {
            if k.wide_columns {
                rows_avx512::<8, 2>(k, r);
            } else {
                rows_avx512::<8, 1>(k, r);
            }
        }
    }
}

/// # Safety
/// As [`avx512`], for `R` rows from `r` and `V` vectors of 16 columns.
#[target_feature(enable = "avx512f,fma")]
#[inline]
unsafe fn rows_avx512<const R: usize, const V: usize>(k: &Block, r: usize) {
    // SAFETY: A steps are `[32][32]` f32, B rows have 32 columns, C rows `16 * V`; all as `Block` describes.
    unsafe {
        let c = |i: usize| k.c.cast::<u8>().add((r + i) * k.c_stride).cast::<f32>();
        let mut sum = [[_mm512_setzero_ps(); V]; R];
        if k.accumulate {
            for i in 0..R {
                for v in 0..V {
                    sum[i][v] = _mm512_loadu_ps(c(i).add(16 * v));
                }
            }
        }
        for s in 0..k.steps {
            let a = k.a.cast::<f32>().add(s * 1024 + r * STEP);
            let mut b = k.b.offset(*k.offsets.add(s));
            for kk in 0..STEP {
                let mut bv = [_mm512_setzero_ps(); V];
                for v in 0..V {
                    bv[v] = _mm512_loadu_ps(b.cast::<f32>().add(16 * v));
                }
                for i in 0..R {
                    let x = _mm512_set1_ps(*a.add(i * STEP + kk));
                    for v in 0..V {
                        sum[i][v] = _mm512_fmadd_ps(x, bv[v], sum[i][v]);
                    }
                }
                b = b.add(k.b_stride);
            }
        }
        for i in 0..R {
            for v in 0..V {
                _mm512_storeu_ps(c(i).add(16 * v), sum[i][v]);
            }
        }
    }
}

/// # Safety
/// As [`Block::run`] with format `F32`; the machine has AVX2 and FMA.
#[target_feature(enable = "avx2,fma")]
pub(super) unsafe fn avx2(k: &Block) {
    let rows = if k.wide_rows { 32 } else { 16 };
    let columns = if k.wide_columns { 32 } else { 16 };
    for column in (0..columns).step_by(16) {
        for r in (0..rows).step_by(4) {
            // SAFETY: rows `r..r + 4` and columns `column..column + 16` exist; the caller vouches for B.
            unsafe { rows_avx2(k, r, column) };
        }
    }
}

/// # Safety
/// As [`avx2`], for 4 rows from `r` and 16 columns from `column`.
#[target_feature(enable = "avx2,fma")]
#[inline]
unsafe fn rows_avx2(k: &Block, r: usize, column: usize) {
    const R: usize = 4;
    const V: usize = 2;
    // SAFETY: A steps are `[32][32]` f32, B rows have 32 columns, C rows too; all as `Block` describes.
    unsafe {
        let c = |i: usize| k.c.cast::<u8>().add((r + i) * k.c_stride).cast::<f32>().add(column);
        let mut sum = [[_mm256_setzero_ps(); V]; R];
        if k.accumulate {
            for i in 0..R {
                for v in 0..V {
                    sum[i][v] = _mm256_loadu_ps(c(i).add(8 * v));
                }
            }
        }
        for s in 0..k.steps {
            let a = k.a.cast::<f32>().add(s * 1024 + r * STEP);
            let mut b = k.b.offset(*k.offsets.add(s));
            for kk in 0..STEP {
                let row = b.cast::<f32>().add(column);
                let bv = [_mm256_loadu_ps(row), _mm256_loadu_ps(row.add(8))];
                for i in 0..R {
                    let x = _mm256_set1_ps(*a.add(i * STEP + kk));
                    for v in 0..V {
                        sum[i][v] = _mm256_fmadd_ps(x, bv[v], sum[i][v]);
                    }
                }
                b = b.add(k.b_stride);
            }
        }
        for i in 0..R {
            for v in 0..V {
                _mm256_storeu_ps(c(i).add(8 * v), sum[i][v]);
            }
        }
    }
}
