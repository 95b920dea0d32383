//! The inner product alone, on operands that stay in L1: the peak that benches compare with.

use super::amx::Tiles;
use super::block::{Block, SIDE};
use super::cpu::CpuPath;
use super::isa::{Format, Isa, Precision};

/// Runs `rounds` blocks of 32 x 32 x 256 and gives the floating point operations done, `None` where `path` is not
/// available.
#[doc(hidden)]
pub fn inner_product(path: CpuPath, precision: Precision, rounds: usize) -> Option<f64> {
    const STEPS: usize = 8;
    #[repr(C, align(64))]
    struct Operand([u8; STEPS * 4096]);
    let isa = Isa::new(path)?;
    let format = Format::choose(isa, precision, false);
    let (a, b) = (Operand([0; STEPS * 4096]), Operand([0; STEPS * 4096]));
    let mut c = [0f32; SIDE * SIDE * 2];
    // All steps read the same B, so that both operands stay in L1.
    let offsets = [0isize; STEPS];
    // SAFETY: an `Isa::Amx` proves the right to use AMX.
    let _tiles = (isa == Isa::Amx).then(|| unsafe { Tiles::configure() });
    for round in 0..rounds {
        let block = Block {
            a: a.0.as_ptr(),
            b: b.0.as_ptr(),
            offsets: offsets.as_ptr(),
            steps: STEPS,
            b_stride: if format == Format::F32 { 128 } else { 64 },
            b_right: 1024,
            b_low: 2048,
            c: c.as_mut_ptr().wrapping_add(round % 2 * SIDE * SIDE),
            c_stride: SIDE * 4,
            accumulate: false,
            wide_rows: true,
            wide_columns: true,
        };
        // SAFETY: operands hold eight steps of at most 4,096 bytes, C twice 32 x 32 values; tiles are configured.
        unsafe { block.run(isa, format) };
    }
    Some((2 * SIDE * SIDE * STEPS * 32 * rounds) as f64)
}
