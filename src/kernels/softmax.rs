//! One row of scores to packed weights on AMX machines: powers of two, their sum and both bf16 halves in one pass.

use super::isa::Format;
use super::pack::simd::{halves, lanes};
use std::arch::x86_64::*;

/// Turns `count` scores into powers of two of their distance to the maximum of all and `old`, as row
/// of A steps at `out`; gives that maximum and the sum of the powers. The last step is filled up
/// with zeros.
///
/// # Safety
/// `scores` holds `count` values, `out` is the row in the first of `count / 32` (rounded up) steps of a tile `format`; the machine
/// has AVX-512 BF16.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")]
pub(super) unsafe fn packed_row(
    scores: *const f32,
    count: usize,
    old: f32,
    format: Format,
    out: *mut u8,
) -> [f32; 2] {
    let mut max = [_mm512_set1_ps(old); 2];
    for i in (0..count).step_by(32) {
        // SAFETY: `i` is below `count`.
        let [a, b] = unsafe { read(scores.add(i), count - i) };
        max = [_mm512_max_ps(max[0], a), _mm512_max_ps(max[1], b)];
    }
    let new = _mm512_reduce_max_ps(_mm512_max_ps(max[0], max[1]));
    // All keys masked so far: any finite reference gives zeros.
    let reference = _mm512_set1_ps(if new == f32::NEG_INFINITY { 0.0 } else { new });
    let mut sum = [_mm512_setzero_ps(); 2];
    for i in (0..count).step_by(32) {
        // SAFETY: as above; step `i / 32` exists and has a low half 2,048 bytes on unless the format is `Single`.
        unsafe {
            let [a, b] = read(scores.add(i), count - i).map(|s| power(_mm512_sub_ps(s, reference)));
            sum = [_mm512_add_ps(sum[0], a), _mm512_add_ps(sum[1], b)];
            let (high, low) = halves(a, b);
            let to = out.add(i / 32 * format.a_step());
            _mm512_storeu_si512(to.cast(), high);
            if format != Format::Single {
                _mm512_storeu_si512(to.add(2048).cast(), low);
            }
        }
    }
    [new, _mm512_reduce_add_ps(_mm512_add_ps(sum[0], sum[1]))]
}

/// Up to 32 of `count` scores, minus infinity beyond; nothing is written to memory for that, since the scores have just
/// been stored and a load over both stores would wait for them.
///
/// # Safety
/// `scores` holds `count` values.
#[target_feature(enable = "avx512f")]
#[inline]
unsafe fn read(scores: *const f32, count: usize) -> [__m512; 2] {
    // SAFETY: lanes beyond `count` are not read.
    unsafe {
        if count >= 32 {
            return [_mm512_loadu_ps(scores), _mm512_loadu_ps(scores.add(16))];
        }
        let none = _mm512_set1_ps(f32::NEG_INFINITY);
        let first = _mm512_mask_loadu_ps(none, lanes(count), scores);
        let rest = lanes(count.saturating_sub(16));
        [first, _mm512_mask_loadu_ps(none, rest, scores.wrapping_add(16))]
    }
}

/// `2^x` for x up to 0, with relative error below 3e-7; 0 below -100, so that no subnormal value slows the rest down.
#[target_feature(enable = "avx512f")]
#[inline]
fn power(x: __m512) -> __m512 {
    let least = _mm512_set1_ps(-100.0);
    let counts = _mm512_cmp_ps_mask::<_CMP_GT_OQ>(x, least);
    let x = _mm512_max_ps(x, least);
    let n = _mm512_roundscale_ps::<8>(x);
    let r = _mm512_sub_ps(x, n);
    // Coefficients of 2^r on -1/2 .. 1/2 (ln 2 to the n over n factorial).
    let mut p = _mm512_set1_ps(1.540_353e-4);
    for c in [1.333_355_8e-3, 9.618_129e-3, 5.550_411e-2, 0.240_226_5, std::f32::consts::LN_2, 1.0] {
        p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(c));
    }
    _mm512_maskz_scalef_ps(counts, p, n)
}
