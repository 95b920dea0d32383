//! Packing f32 operands into the steps that block products read.

use super::block::STEP;
use super::isa::{Format, Isa};

/// Packs `len` values at `src` as row `row` of A steps at `dst`; values beyond `len` up to a whole step are 0.
///
/// # Safety
/// `src` is valid for `len` reads; `dst` holds `len / 32` (rounded up) A steps of `format`; `row` < 32.
pub(super) unsafe fn a_row(isa: Isa, format: Format, src: *const f32, len: usize, dst: *mut u8, row: usize) {
    // SAFETY: steps and rows stay inside `dst`, reads below `len`, by the caller's promise; `Isa` and the tile formats
    // prove the features.
    unsafe {
        if format != Format::F32 {
            debug_assert_eq!(isa, Isa::Amx);
            let low = if format == Format::Single { 0 } else { 2048 };
            simd::split_row(src, len, dst.add(row * 64), format.a_step(), low);
            return;
        }
        for step in 0..len.div_ceil(STEP) {
            let out = dst.add(step * format.a_step()).cast::<f32>().add(row * STEP);
            let count = (len - step * STEP).min(STEP);
            std::ptr::copy_nonoverlapping(src.add(step * STEP), out, count);
            std::ptr::write_bytes(out.add(count), 0, STEP - count);
        }
    }
}

/// Fills row `row` of `steps` A steps with zeros.
///
/// # Safety
/// `dst` holds `steps` A steps of `format`; `row` < 32.
pub(super) unsafe fn a_zero(format: Format, steps: usize, dst: *mut u8, row: usize) {
    for step in 0..steps {
        // SAFETY: row `row` of each step lies inside `dst`.
        unsafe {
            let out = dst.add(step * format.a_step());
            match format {
                Format::F32 => std::ptr::write_bytes(out.add(row * 128), 0, 128),
                Format::Single => std::ptr::write_bytes(out.add(row * 64), 0, 64),
                Format::Split | Format::SplitA => {
                    std::ptr::write_bytes(out.add(row * 64), 0, 64);
                    std::ptr::write_bytes(out.add(2048 + row * 64), 0, 64);
                }
            }
        }
    }
}

/// Packs 16 rows of `steps * 32` f32 (row stride `stride` values) as the 16 columns `half` of B steps.
///
/// B steps lie `format.b_step()` bytes apart, with rows 64 bytes (tiles) or 128 bytes (`F32`) apart.
///
/// # Safety
/// `src` is valid for 16 such rows; `dst` holds `steps` B steps of `format` and is 64-aligned; `half` < 2.
pub(super) unsafe fn b_columns(
    isa: Isa,
    format: Format,
    src: *const f32,
    stride: usize,
    steps: usize,
    dst: *mut u8,
    half: usize,
) {
    // SAFETY: all steps exist in both operands; `Isa` and the tile formats prove the features.
    unsafe {
        match (format, isa) {
            (Format::F32, _) => {
                for step in 0..steps {
                    let from = src.add(step * STEP);
                    let out = dst.add(step * format.b_step()).cast::<f32>().add(16 * half);
                    if isa == Isa::Avx2 {
                        transpose_plain(from, stride, out);
                    } else {
                        simd::transpose_f32(from, stride, out);
                        simd::transpose_f32(from.add(16), stride, out.add(16 * 32));
                    }
                }
            }
            (Format::Split, _) => {
                let out = dst.add(1024 * half);
                simd::pair_columns::<true>(src, stride, steps, out, format.b_step());
            }
            (Format::Single | Format::SplitA, _) => {
                let out = dst.add(1024 * half);
                simd::pair_columns::<false>(src, stride, steps, out, format.b_step());
            }
        }
    }
}

/// A 16 x 32 block turned to 32 rows of 16 with row stride 32.
///
/// # Safety
/// `src` is valid for 16 rows of 32, `dst` for 32 rows of 16 at stride 32.
unsafe fn transpose_plain(src: *const f32, stride: usize, dst: *mut f32) {
    for column in 0..16 {
        for k in 0..STEP {
            // SAFETY: both indices lie in the blocks named.
            unsafe { *dst.add(k * 32 + column) = *src.add(column * stride + k) };
        }
    }
}

/// AVX-512 packing; callers hold an [`Isa`] that proves the features.
pub(super) mod simd {
    use std::arch::x86_64::*;

    /// Mask of the first `n` of 16 lanes.
    #[inline(always)]
    pub(in crate::kernels) fn lanes(n: usize) -> u16 {
        if n >= 16 { u16::MAX } else { (1u16 << n) - 1 }
    }

    /// bf16 halves of two vectors: (high of a then b, low of a then b).
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
    #[inline]
    pub(in crate::kernels) fn halves(a: __m512, b: __m512) -> (__m512i, __m512i) {
        let high = bits(_mm512_cvtne2ps_pbh(b, a));
        let low = bits(_mm512_cvtne2ps_pbh(
            _mm512_sub_ps(b, widen(_mm512_extracti64x4_epi64::<1>(high))),
            _mm512_sub_ps(a, widen(_mm512_castsi512_si256(high))),
        ));
        (high, low)
    }

    /// Sixteen bf16 as f32.
    #[target_feature(enable = "avx512f")]
    #[inline]
    fn widen(x: __m256i) -> __m512 {
        _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(x)))
    }

    #[inline(always)]
    fn bits(x: __m512bh) -> __m512i {
        // SAFETY: both are 64 bytes without invalid values.
        unsafe { std::mem::transmute(x) }
    }

    /// `count` values, `step` bytes of `dst` for every 32, as 64 bytes of high halves and, where `low` is not 0,
    /// of low halves `low` bytes on; zeros up to a whole step.
    ///
    /// # Safety
    /// `src` valid for `count` reads, `dst` for the writes; AVX-512 BF16 is there.
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
    pub(super) unsafe fn split_row(src: *const f32, count: usize, dst: *mut u8, step: usize, low: usize) {
        // SAFETY: masked lanes are not read; the writes are the caller's promise.
        unsafe {
            let write = |a, b, out: *mut u8| {
                let (high, lows) = halves(a, b);
                _mm512_storeu_si512(out.cast(), high);
                if low != 0 {
                    _mm512_storeu_si512(out.add(low).cast(), lows);
                }
            };
            let full = count / 32;
            for i in 0..full {
                let from = src.add(32 * i);
                write(_mm512_loadu_ps(from), _mm512_loadu_ps(from.add(16)), dst.add(i * step));
            }
            let rest = count % 32;
            if rest > 0 {
                let from = src.add(32 * full);
                let a = _mm512_maskz_loadu_ps(lanes(rest), from);
                let b = _mm512_maskz_loadu_ps(lanes(rest.saturating_sub(16)), from.wrapping_add(16));
                write(a, b, dst.add(full * step));
            }
        }
    }

    /// Kernel taps of 32 channels, value `channel * stride + tap`, as one row of A for each tap, `step` bytes apart;
    /// low halves `low` bytes on unless 0.
    ///
    /// # Safety
    /// `taps` is at most 16; `src` valid for 16 values from each channel's first, `dst` for the writes; AVX-512 BF16
    /// is there.
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
    pub(in crate::kernels) unsafe fn tap_rows(
        src: *const f32,
        stride: usize,
        taps: usize,
        dst: *mut u8,
        step: usize,
        low: usize,
    ) {
        // SAFETY: 16 values from each channel's first are readable.
        let [first, second] = unsafe { turned_taps(src, stride) };
        for (tap, (a, b)) in first.into_iter().zip(second).enumerate().take(taps) {
            let (high, lows) = halves(_mm512_castsi512_ps(a), _mm512_castsi512_ps(b));
            // SAFETY: the row of each tap is the caller's promise.
            unsafe {
                let out = dst.add(tap * step);
                _mm512_storeu_si512(out.cast(), high);
                if low != 0 {
                    _mm512_storeu_si512(out.add(low).cast(), lows);
                }
            }
        }
    }

    /// As [`tap_rows`] in f32: rows of 32 values, `step` bytes apart.
    ///
    /// # Safety
    /// As [`tap_rows`]; AVX-512F is there.
    #[target_feature(enable = "avx512f")]
    pub(in crate::kernels) unsafe fn tap_rows_f32(
        src: *const f32,
        stride: usize,
        taps: usize,
        dst: *mut u8,
        step: usize,
    ) {
        // SAFETY: 16 values from each channel's first are readable; the row of each tap is the caller's promise.
        unsafe {
            let [first, second] = turned_taps(src, stride);
            for (tap, (a, b)) in first.into_iter().zip(second).enumerate().take(taps) {
                _mm512_storeu_si512(dst.add(tap * step).cast(), a);
                _mm512_storeu_si512(dst.add(tap * step + 64).cast(), b);
            }
        }
    }

    /// 16 values from each of 32 channels, turned: channels 0-15 and 16-31 of each value.
    ///
    /// # Safety
    /// `src` valid for 16 values from each channel's first, `stride` apart.
    #[target_feature(enable = "avx512f")]
    #[inline]
    unsafe fn turned_taps(src: *const f32, stride: usize) -> [[__m512i; 16]; 2] {
        let mut halfs = [[_mm512_setzero_si512(); 16]; 2];
        for (half, rows) in halfs.iter_mut().enumerate() {
            for (i, row) in rows.iter_mut().enumerate() {
                // SAFETY: 16 values from the channel's first are readable.
                *row = unsafe { _mm512_loadu_si512(src.add((16 * half + i) * stride).cast()) };
            }
            *rows = transpose(*rows);
        }
        halfs
    }

    /// 16 rows of 32 f32 for every step as one B tile of high halves at `dst` and, with `LOW`, one of low halves
    /// 2,048 bytes on.
    ///
    /// # Safety
    /// `src` valid for 16 rows of `32 * steps` at `stride`, `dst` for the tiles; AVX-512 BF16 is there.
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
    pub(super) unsafe fn pair_columns<const LOW: bool>(
        src: *const f32,
        stride: usize,
        steps: usize,
        dst: *mut u8,
        step: usize,
    ) {
        for i in 0..steps {
            let mut high = [_mm512_setzero_si512(); 16];
            let mut lows = [_mm512_setzero_si512(); 16];
            // SAFETY: rows and tiles are the caller's promise.
            unsafe {
                for row in 0..16 {
                    let from = src.add(row * stride + 32 * i);
                    (high[row], lows[row]) = halves(_mm512_loadu_ps(from), _mm512_loadu_ps(from.add(16)));
                }
                store(transpose(high), dst.add(i * step), 64);
                if LOW {
                    store(transpose(lows), dst.add(i * step + 2048), 64);
                }
            }
        }
    }

    /// A 16 x 16 block of f32 turned, to rows 128 bytes apart.
    ///
    /// # Safety
    /// `src` valid for 16 rows of 16 at `stride`, `dst` for 16 rows of 16 at 32; AVX-512F is there.
    #[target_feature(enable = "avx512f")]
    pub(in crate::kernels) unsafe fn transpose_f32(src: *const f32, stride: usize, dst: *mut f32) {
        // SAFETY: both blocks are the caller's promise.
        unsafe {
            let mut rows = [_mm512_setzero_si512(); 16];
            for (row, r) in rows.iter_mut().enumerate() {
                *r = _mm512_loadu_si512(src.add(row * stride).cast());
            }
            store(transpose(rows), dst.cast(), 128);
        }
    }

    /// # Safety
    /// `dst` valid for 16 rows of 64 bytes at `stride` bytes.
    #[target_feature(enable = "avx512f")]
    #[inline]
    unsafe fn store(rows: [__m512i; 16], dst: *mut u8, stride: usize) {
        for (i, row) in rows.into_iter().enumerate() {
            // SAFETY: row `i` of the caller's block.
            unsafe { _mm512_storeu_si512(dst.add(i * stride).cast(), row) };
        }
    }

    /// A 16 x 16 block of 32-bit values turned.
    #[target_feature(enable = "avx512f")]
    #[inline]
    pub(in crate::kernels) fn transpose(r: [__m512i; 16]) -> [__m512i; 16] {
        let mut t = r;
        for i in 0..8 {
            t[2 * i] = _mm512_unpacklo_epi32(r[2 * i], r[2 * i + 1]);
            t[2 * i + 1] = _mm512_unpackhi_epi32(r[2 * i], r[2 * i + 1]);
        }
        let mut u = t;
        for i in 0..4 {
            u[4 * i] = _mm512_unpacklo_epi64(t[4 * i], t[4 * i + 2]);
            u[4 * i + 1] = _mm512_unpackhi_epi64(t[4 * i], t[4 * i + 2]);
            u[4 * i + 2] = _mm512_unpacklo_epi64(t[4 * i + 1], t[4 * i + 3]);
            u[4 * i + 3] = _mm512_unpackhi_epi64(t[4 * i + 1], t[4 * i + 3]);
        }
        // u[4 g + j], 128-bit lane l: values 4 l + j of rows 4 g .. 4 g + 3.
        let mut out = u;
        for j in 0..4 {
            let even01 = _mm512_shuffle_i32x4::<0x88>(u[j], u[4 + j]);
            let odd01 = _mm512_shuffle_i32x4::<0xdd>(u[j], u[4 + j]);
            let even23 = _mm512_shuffle_i32x4::<0x88>(u[8 + j], u[12 + j]);
            let odd23 = _mm512_shuffle_i32x4::<0xdd>(u[8 + j], u[12 + j]);
            out[j] = _mm512_shuffle_i32x4::<0x88>(even01, even23);
            out[8 + j] = _mm512_shuffle_i32x4::<0xdd>(even01, even23);
            out[4 + j] = _mm512_shuffle_i32x4::<0x88>(odd01, odd23);
            out[12 + j] = _mm512_shuffle_i32x4::<0xdd>(odd01, odd23);
        }
        out
    }
}
