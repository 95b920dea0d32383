//! Tile products on AMX-BF16: 32 x 32 blocks of C in four tiles, operands in the other four.
//!
//! Everything between loading and storing C happens inside one assembly block, so no tile register has to
//! survive outside it. Tiles 0-3 hold C as rows 0-15 / 16-31 by columns 0-15 / 16-31.

use super::block::Block;
use super::isa::Format;
use std::arch::asm;

/// Loads the tile configuration of this room, eight tiles of 16 rows by 64 bytes, until dropped.
#[derive(Debug)]
pub(super) struct Tiles(());

#[repr(C, align(64))]
struct Config([u8; 64]);

impl Tiles {
    /// # Safety
    /// The process holds the right to use AMX (`supported(CpuPath::Amx)`).
    pub(super) unsafe fn configure() -> Self {
        let mut config = Config([0; 64]);
        config.0[0] = 1;
        for tile in 0..8 {
            config.0[16 + 2 * tile] = 64;
            config.0[48 + tile] = 16;
        }
        // SAFETY: AMX may be used by the caller's promise; the operand is a valid palette 1 configuration.
        unsafe { asm!("ldtilecfg [{}]", in(reg) &config, options(nostack, readonly)) };
        Self(())
    }
}

impl Drop for Tiles {
    fn drop(&mut self) {
        // SAFETY: a `Tiles` exists only where AMX may be used; no other state depends on the configuration.
        unsafe { asm!("tilerelease", options(nostack, nomem)) };
    }
}

/// Tile of A at `off` bytes into the step.
macro_rules! a {
    ($t:literal, $off:literal) => {
        concat!("tileloadd tmm", $t, ", [{a} + {s}*1 + ", $off, "]\n")
    };
}
/// Tile of B at the running address.
macro_rules! b {
    ($t:literal) => {
        concat!("tileloadd tmm", $t, ", [{t} + {bs}*1]\n")
    };
}
/// C tile += A tile x B tile.
macro_rules! p {
    ($c:literal, $a:literal, $b:literal) => {
        concat!("tdpbf16ps tmm", $c, ", tmm", $a, ", tmm", $b, "\n")
    };
}
/// Moves the running B address to the second columns, to the low half, and back.
macro_rules! to {
    (col1) => {
        "add {t}, {b1}\n"
    };
    (col0) => {
        "sub {t}, {b1}\n"
    };
    (low) => {
        "add {t}, {bl}\n"
    };
}
/// One C tile at the running address: `z`ero, `l`oad or `s`tore.
macro_rules! c {
    (z $t:literal) => {
        concat!("tilezero tmm", $t, "\n")
    };
    (l $t:literal, $off:literal) => {
        concat!("tileloadd tmm", $t, ", [{t} + {ldc}*1 + ", $off, "]\n")
    };
    (s $t:literal, $off:literal) => {
        concat!("tilestored [{t} + {ldc}*1 + ", $off, "], tmm", $t, "\n")
    };
}
/// The whole block: C in, `steps` times the body, C out.
macro_rules! block {
    ($k:expr, $zero:expr, $load:expr, $store:expr, $a_step:literal, $body:expr) => {
        asm!(
            concat!(
                "/* not every shape uses {b1} {bl} */\n",
                "test {acc:e}, {acc:e}\n",
                "jnz 2f\n",
                $zero,
                "jmp 3f\n",
                "2:\n",
                "mov {t}, {c}\n",
                $load,
                "3:\n",
                "mov {t}, [{o}]\n",
                "add {o}, 8\n",
                "add {t}, {b}\n",
                $body,
                "add {a}, ", $a_step, "\n",
                "dec {n}\n",
                "jnz 3b\n",
                "mov {t}, {c}\n",
                $store,
            ),
            a = inout(reg) $k.a => _, s = in(reg) 64usize, o = inout(reg) $k.offsets => _,
            n = inout(reg) $k.steps => _, b = in(reg) $k.b, bs = in(reg) $k.b_stride,
            b1 = in(reg) $k.b_right, bl = in(reg) $k.b_low, c = in(reg) $k.c, ldc = in(reg) $k.c_stride,
            acc = in(reg) u32::from($k.accumulate), t = out(reg) _,
            out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
            out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
            options(nostack)
        )
    };
}
/// The block for 1 or 2 tiles of rows by 1 or 2 of columns.
macro_rules! shapes {
    ($k:expr, $a_step:literal, $b11:expr, $b12:expr, $b21:expr, $b22:expr) => {
        match ($k.wide_rows, $k.wide_columns) {
            (true, true) => block!(
                $k,
                concat!(c!(z 0), c!(z 1), c!(z 2), c!(z 3)),
                concat!(c!(l 0, 0), c!(l 1, 64), to_row1!(), c!(l 2, 0), c!(l 3, 64)),
                concat!(c!(s 0, 0), c!(s 1, 64), to_row1!(), c!(s 2, 0), c!(s 3, 64)),
                $a_step, $b22
            ),
            (true, false) => block!(
                $k,
                concat!(c!(z 0), c!(z 2)),
                concat!(c!(l 0, 0), to_row1!(), c!(l 2, 0)),
                concat!(c!(s 0, 0), to_row1!(), c!(s 2, 0)),
                $a_step, $b21
            ),
            (false, true) => block!(
                $k,
                concat!(c!(z 0), c!(z 1)),
                concat!(c!(l 0, 0), c!(l 1, 64)),
                concat!(c!(s 0, 0), c!(s 1, 64)),
                $a_step, $b12
            ),
            (false, false) => {
                block!($k, c!(z 0), c!(l 0, 0), c!(s 0, 0), $a_step, $b11)
            }
        }
    };
}
/// Sixteen rows of C further.
macro_rules! to_row1 {
    () => {
        "shl {ldc}, 4\nadd {t}, {ldc}\nshr {ldc}, 4\n"
    };
}

/// Runs one block in `format` (any but `F32`).
///
/// # Safety
/// A [`Tiles`] of this thread is alive and `k` describes valid memory as [`Block`] says.
pub(super) unsafe fn run(format: Format, k: &Block) {
    // SAFETY: AMX is usable and configured while a `Tiles` lives; all addresses are within the operands that
    // the caller vouches for: `steps` steps of A, B at the `steps` offsets, 32 x 32 (or fewer tiles) of C.
    unsafe {
        match format {
            Format::Single | Format::F32 => single(k),
            Format::SplitA => split_a(k),
            Format::Split => split(k),
        }
    }
}

/// # Safety
/// As [`run`].
#[inline(always)]
unsafe fn single(k: &Block) {
    // SAFETY: as in `run`.
    unsafe {
        shapes!(
            k,
            2048,
            concat!(a!(4, 0), b!(6), p!(0, 4, 6)),
            concat!(a!(4, 0), b!(6), p!(0, 4, 6), to!(col1), b!(7), p!(1, 4, 7)),
            concat!(a!(4, 0), b!(6), p!(0, 4, 6), a!(5, 1024), p!(2, 5, 6)),
            concat!(
                b!(6),
                a!(4, 0),
                a!(5, 1024),
                to!(col1),
                b!(7),
                p!(0, 4, 6),
                p!(1, 4, 7),
                p!(2, 5, 6),
                p!(3, 5, 7)
            )
        );
    }
}

/// # Safety
/// As [`run`].
#[inline(always)]
unsafe fn split_a(k: &Block) {
    // SAFETY: as in `run`.
    unsafe {
        shapes!(
            k,
            4096,
            concat!(a!(4, 0), a!(5, 2048), b!(6), p!(0, 4, 6), p!(0, 5, 6)),
            concat!(
                a!(4, 0),
                a!(5, 2048),
                b!(6),
                to!(col1),
                b!(7),
                p!(0, 4, 6),
                p!(1, 4, 7),
                p!(0, 5, 6),
                p!(1, 5, 7)
            ),
            concat!(
                b!(6),
                a!(4, 0),
                a!(5, 1024),
                p!(0, 4, 6),
                p!(2, 5, 6),
                a!(4, 2048),
                a!(5, 3072),
                p!(0, 4, 6),
                p!(2, 5, 6)
            ),
            concat!(
                b!(6),
                a!(4, 0),
                a!(5, 1024),
                to!(col1),
                b!(7),
                p!(0, 4, 6),
                p!(1, 4, 7),
                p!(2, 5, 6),
                p!(3, 5, 7),
                a!(4, 2048),
                a!(5, 3072),
                p!(0, 4, 6),
                p!(1, 4, 7),
                p!(2, 5, 6),
                p!(3, 5, 7)
            )
        );
    }
}

/// # Safety
/// As [`run`].
#[inline(always)]
unsafe fn split(k: &Block) {
    // SAFETY: as in `run`.
    unsafe {
        shapes!(
            k,
            4096,
            concat!(a!(4, 0), b!(6), p!(0, 4, 6), a!(5, 2048), to!(low), b!(7), p!(0, 4, 7), p!(0, 5, 6)),
            concat!(
                a!(4, 0),
                a!(5, 2048),
                b!(6),
                to!(col1),
                b!(7),
                p!(0, 4, 6),
                p!(1, 4, 7),
                p!(0, 5, 6),
                p!(1, 5, 7),
                to!(low),
                b!(7),
                to!(col0),
                b!(6),
                p!(0, 4, 6),
                p!(1, 4, 7)
            ),
            concat!(
                b!(6),
                a!(4, 0),
                a!(5, 1024),
                p!(0, 4, 6),
                p!(2, 5, 6),
                to!(low),
                b!(7),
                p!(0, 4, 7),
                p!(2, 5, 7),
                a!(4, 2048),
                a!(5, 3072),
                p!(0, 4, 6),
                p!(2, 5, 6)
            ),
            concat!(
                b!(6),
                a!(4, 2048),
                a!(5, 3072),
                to!(col1),
                b!(7),
                p!(0, 4, 6),
                p!(1, 4, 7),
                p!(2, 5, 6),
                p!(3, 5, 7),
                a!(4, 0),
                a!(5, 1024),
                p!(0, 4, 6),
                p!(1, 4, 7),
                p!(2, 5, 6),
                p!(3, 5, 7),
                to!(low),
                b!(7),
                to!(col0),
                b!(6),
                p!(0, 4, 6),
                p!(1, 4, 7),
                p!(2, 5, 6),
                p!(3, 5, 7)
            )
        );
    }
}
