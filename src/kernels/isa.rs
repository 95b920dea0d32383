//! The instruction set of a plan, and the operand format its products use.

use super::cpu::{CpuPath, supported};

/// A [`CpuPath`] that this machine was seen to support: holding one is the proof that its features exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Isa {
    Amx,
    Avx512,
    Avx2,
}

impl Isa {
    /// The proof for `path`, if this machine has it.
    pub(super) fn new(path: CpuPath) -> Option<Self> {
        supported(path).then_some(match path {
            CpuPath::Amx => Self::Amx,
            CpuPath::Avx512 => Self::Avx512,
            CpuPath::Avx2 => Self::Avx2,
        })
    }
}

/// How exact products are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Precision {
    /// On tiles each operand is split in two bf16 halves and three products are summed (relative rms error
    /// about 4e-6); elsewhere f32.
    #[default]
    Accurate,
    /// On tiles one bf16 product (relative rms error about 2e-3); elsewhere the same as `Accurate`.
    Fast,
}

/// Format of packed operands. A *step* is 32 values of the inner axis for 32 rows (A) or 32 columns (B).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    /// f32. A step: `[32 rows][32 k]`; B step: `[32 k][32 columns]`.
    F32,
    /// Tiles, both operands in two halves. A step: rows 0-15 high, 16-31 high, the same low; B likewise.
    Split,
    /// Tiles, only A in two halves (B is exactly bf16).
    SplitA,
    /// Tiles, high halves only.
    Single,
}

impl Format {
    /// The format for `isa`; `b_is_bf16` tells that B has no low half.
    pub(super) fn choose(isa: Isa, precision: Precision, b_is_bf16: bool) -> Self {
        match (isa, precision) {
            (Isa::Avx512 | Isa::Avx2, _) => Self::F32,
            (Isa::Amx, Precision::Fast) => Self::Single,
            (Isa::Amx, Precision::Accurate) if b_is_bf16 => Self::SplitA,
            (Isa::Amx, Precision::Accurate) => Self::Split,
        }
    }

    /// Bytes of one A step.
    pub(super) fn a_step(self) -> usize {
        if self == Self::Single { 2048 } else { 4096 }
    }

    /// Bytes of one B step.
    pub(super) fn b_step(self) -> usize {
        if matches!(self, Self::Single | Self::SplitA) { 2048 } else { 4096 }
    }
}
