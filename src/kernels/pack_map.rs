//! Packing feature maps for convolutions: rows of B are channels, columns are pixels.
//!
//! In a tile format 16 rows of (even, odd) channel pairs hold the high halves of 32 channels and, unless the format
//! is `Single`, 16 more rows the low halves; in `F32` there are 32 rows of one channel each.

use super::isa::{Format, Isa};

/// Rows of one group of 32 channels.
pub(super) fn group_rows(format: Format) -> usize {
    if format == Format::Single { 16 } else { 32 }
}

/// Packs `count` pixels of two neighbouring channels as pair row `pair`; a null channel is zero.
///
/// # Safety
/// Channels that are not null hold `count` values; `dst` is the group's first row at the first pixel, rows
/// `stride` bytes apart, valid for [`group_rows`] rows of `count` values; `pair` < 16.
pub(super) unsafe fn pair(
    isa: Isa,
    format: Format,
    channels: [*const f32; 2],
    count: usize,
    dst: *mut u8,
    stride: usize,
    pair: usize,
) {
    // SAFETY: rows `2 pair`, `2 pair + 1` (f32) or `pair`, `16 + pair` (tiles) belong to the group; `Isa` and the
    // tile formats prove the features.
    unsafe {
        if format == Format::F32 {
            for (i, channel) in channels.into_iter().enumerate() {
                let row = dst.add((2 * pair + i) * stride).cast::<f32>();
                if channel.is_null() {
                    std::ptr::write_bytes(row, 0, count);
                } else {
                    std::ptr::copy_nonoverlapping(channel, row, count);
                }
            }
        } else {
            debug_assert_eq!(isa, Isa::Amx);
            let low = if format == Format::Single { 0 } else { 16 * stride };
            simd::pair_rows(channels, count, dst.add(pair * stride), low);
        }
    }
}

/// Packs `count` (up to 16) pixels of 32 channels, given pixel after pixel.
///
/// # Safety
/// `dst` is the group's first row at the first pixel, rows `stride` bytes apart, valid for [`group_rows`] rows
/// of `count` values.
pub(super) unsafe fn pixels(
    isa: Isa,
    format: Format,
    src: &[[f32; 32]; 16],
    count: usize,
    dst: *mut u8,
    stride: usize,
) {
    // SAFETY: all rows belong to the group; `Isa` and the tile formats prove the features.
    unsafe {
        match (format, isa) {
            (Format::F32, Isa::Avx2) => {
                for channel in 0..32 {
                    let row = dst.add(channel * stride).cast::<f32>();
                    for (i, pixel) in src.iter().enumerate().take(count) {
                        *row.add(i) = pixel[channel];
                    }
                }
            }
            (Format::F32, _) => simd::turn_f32(src, count, dst, stride),
            (Format::Single, _) => simd::turn_pairs(src, count, dst, stride, false),
            _ => simd::turn_pairs(src, count, dst, stride, true),
        }
    }
}

mod simd {
    use crate::kernels::pack::simd::{halves, lanes, transpose};
    use std::arch::x86_64::*;

    /// # Safety
    /// As [`super::pair`], low halves `low` bytes on unless 0; AVX-512 BF16 is there.
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
    pub(super) unsafe fn pair_rows(channels: [*const f32; 2], count: usize, dst: *mut u8, low: usize) {
        // Word 2 i is even channel i, word 2 i + 1 odd channel i, of (16 even, 16 odd).
        let mut order = [0u16; 32];
        for (i, o) in order.iter_mut().enumerate() {
            *o = (i / 2 + 16 * (i % 2)) as u16;
        }
        // SAFETY: masked lanes beyond `count` are neither read nor written; null channels are not read.
        unsafe {
            let order = _mm512_loadu_si512(order.as_ptr().cast());
            for i in (0..count).step_by(16) {
                let mask = lanes(count - i);
                let read = |p: *const f32| {
                    if p.is_null() { _mm512_setzero_ps() } else { _mm512_maskz_loadu_ps(mask, p.add(i)) }
                };
                let (high, lows) = halves(read(channels[0]), read(channels[1]));
                let out = dst.add(4 * i);
                _mm512_mask_storeu_epi32(out.cast(), mask, _mm512_permutexvar_epi16(order, high));
                if low != 0 {
                    _mm512_mask_storeu_epi32(
                        out.add(low).cast(),
                        mask,
                        _mm512_permutexvar_epi16(order, lows),
                    );
                }
            }
        }
    }

    /// # Safety
    /// As [`super::pixels`]; AVX-512 BF16 is there.
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
    pub(super) unsafe fn turn_pairs(
        src: &[[f32; 32]; 16],
        count: usize,
        dst: *mut u8,
        stride: usize,
        low: bool,
    ) {
        let mut high = [_mm512_setzero_si512(); 16];
        let mut lows = high;
        for (pixel, row) in src.iter().enumerate() {
            // SAFETY: a row has 32 values.
            let (a, b) = unsafe { (_mm512_loadu_ps(row.as_ptr()), _mm512_loadu_ps(row.as_ptr().add(16))) };
            (high[pixel], lows[pixel]) = halves(a, b);
        }
        // SAFETY: 16 or 32 rows of `count` values are the caller's promise.
        unsafe {
            store(transpose(high), count, dst, stride);
            if low {
                store(transpose(lows), count, dst.add(16 * stride), stride);
            }
        }
    }

    /// # Safety
    /// As [`super::pixels`]; AVX-512F is there.
    #[target_feature(enable = "avx512f")]
    pub(super) unsafe fn turn_f32(src: &[[f32; 32]; 16], count: usize, dst: *mut u8, stride: usize) {
        for half in 0..2 {
            let mut rows = [_mm512_setzero_si512(); 16];
            for (pixel, row) in src.iter().enumerate() {
                // SAFETY: a row has 32 values.
                rows[pixel] = unsafe { _mm512_loadu_si512(row.as_ptr().add(16 * half).cast()) };
            }
            // SAFETY: 32 rows of `count` values are the caller's promise.
            unsafe { store(transpose(rows), count, dst.add(16 * half * stride), stride) };
        }
    }

    /// # Safety
    /// `dst` valid for 16 rows of `count` 32-bit values, `stride` bytes apart.
    #[target_feature(enable = "avx512f")]
    #[inline]
    unsafe fn store(rows: [__m512i; 16], count: usize, dst: *mut u8, stride: usize) {
        for (i, row) in rows.into_iter().enumerate() {
            // SAFETY: lanes from `count` on are not written.
            unsafe { _mm512_mask_storeu_epi32(dst.add(i * stride).cast(), lanes(count), row) };
        }
    }
}
