//! Element types of tensors in files: all of ggml's, and those that only occur as sources.
#![forbid(unsafe_code)]

/// Element type. Quantised types pack `block_size` elements of a row into `type_size` bytes.
#[allow(missing_docs, non_camel_case_types, clippy::upper_case_acronyms)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Dtype {
    F32,
    F16,
    BF16,
    F64,
    I64,
    I32,
    I16,
    I8,
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
    Q8_1,
    Q2_K,
    Q3_K,
    Q4_K,
    Q5_K,
    Q6_K,
    Q8_K,
    IQ2_XXS,
    IQ2_XS,
    IQ3_XXS,
    IQ1_S,
    IQ4_NL,
    IQ3_S,
    IQ2_S,
    IQ4_XS,
    IQ1_M,
    TQ1_0,
    TQ2_0,
    MXFP4,
    NVFP4,
    Q1_0,
    Q2_0,
    /// Unsigned byte; only in sources (markers, packed data of other tools).
    U8,
    /// One byte, 0 or 1; only in sources.
    BOOL,
    /// Float with 4 exponent bits, no infinity, largest 448 (the "fn" variant); only in sources.
    F8_E4M3,
    /// Float with 5 exponent bits, the upper half of an f16; only in sources.
    F8_E5M2,
}

/// One row of the table: type, number in GGUF files, name as ggml spells it, elements and bytes of a block.
struct Row(Dtype, Option<u32>, &'static str, usize, usize);

/// ggml 0.26 (`ggml.h`, `ggml-common.h`); GGUF numbers 4, 5, 31 to 33 and 36 to 38 belong to removed types.
const TABLE: [Row; 39] = {
    use Dtype::*;
    [
        Row(F32, Some(0), "f32", 1, 4),
        Row(F16, Some(1), "f16", 1, 2),
        Row(BF16, Some(30), "bf16", 1, 2),
        Row(F64, Some(28), "f64", 1, 8),
        Row(I64, Some(27), "i64", 1, 8),
        Row(I32, Some(26), "i32", 1, 4),
        Row(I16, Some(25), "i16", 1, 2),
        Row(I8, Some(24), "i8", 1, 1),
        Row(Q4_0, Some(2), "q4_0", 32, 18),
        Row(Q4_1, Some(3), "q4_1", 32, 20),
        Row(Q5_0, Some(6), "q5_0", 32, 22),
        Row(Q5_1, Some(7), "q5_1", 32, 24),
        Row(Q8_0, Some(8), "q8_0", 32, 34),
        Row(Q8_1, Some(9), "q8_1", 32, 36),
        Row(Q2_K, Some(10), "q2_K", 256, 84),
        Row(Q3_K, Some(11), "q3_K", 256, 110),
        Row(Q4_K, Some(12), "q4_K", 256, 144),
        Row(Q5_K, Some(13), "q5_K", 256, 176),
        Row(Q6_K, Some(14), "q6_K", 256, 210),
        Row(Q8_K, Some(15), "q8_K", 256, 292),
        Row(IQ2_XXS, Some(16), "iq2_xxs", 256, 66),
        Row(IQ2_XS, Some(17), "iq2_xs", 256, 74),
        Row(IQ3_XXS, Some(18), "iq3_xxs", 256, 98),
        Row(IQ1_S, Some(19), "iq1_s", 256, 50),
        Row(IQ4_NL, Some(20), "iq4_nl", 32, 18),
        Row(IQ3_S, Some(21), "iq3_s", 256, 110),
        Row(IQ2_S, Some(22), "iq2_s", 256, 82),
        Row(IQ4_XS, Some(23), "iq4_xs", 256, 136),
        Row(IQ1_M, Some(29), "iq1_m", 256, 56),
        Row(TQ1_0, Some(34), "tq1_0", 256, 54),
        Row(TQ2_0, Some(35), "tq2_0", 256, 66),
        Row(MXFP4, Some(39), "mxfp4", 32, 17),
        Row(NVFP4, Some(40), "nvfp4", 64, 36),
        Row(Q1_0, Some(41), "q1_0", 128, 18),
        Row(Q2_0, Some(42), "q2_0", 64, 18),
        Row(U8, None, "u8", 1, 1),
        Row(BOOL, None, "bool", 1, 1),
        Row(F8_E4M3, None, "f8_e4m3", 1, 1),
        Row(F8_E5M2, None, "f8_e5m2", 1, 1),
    ]
};

impl Dtype {
    /// The table is in the order of the enum (a unit test holds it to that).
    fn row(self) -> &'static Row {
        &TABLE[self as usize]
    }

    /// Every type.
    pub fn all() -> impl Iterator<Item = Dtype> {
        TABLE.iter().map(|row| row.0)
    }

    /// Number of the type in GGUF files and in ggml (`enum ggml_type`); `None` for types that only occur as sources.
    pub fn ggml_id(self) -> Option<u32> {
        self.row().1
    }

    /// The type with ggml's number `id`.
    pub fn from_ggml_id(id: u32) -> Option<Dtype> {
        TABLE.iter().find(|row| row.1 == Some(id)).map(|row| row.0)
    }

    /// Name as ggml spells it: `f16`, `q4_K`, `iq2_xxs`.
    pub fn name(self) -> &'static str {
        self.row().2
    }

    /// The type with that name, upper or lower case.
    pub fn from_name(name: &str) -> Option<Dtype> {
        TABLE.iter().find(|row| row.2.eq_ignore_ascii_case(name)).map(|row| row.0)
    }

    /// Elements of a block; 1 for plain types.
    pub fn block_size(self) -> usize {
        self.row().3
    }

    /// Bytes of a block.
    pub fn type_size(self) -> usize {
        self.row().4
    }

    /// Whether several elements share a block.
    pub fn is_quantised(self) -> bool {
        self.block_size() > 1
    }

    /// Bytes of a tensor of that shape (fastest axis first): `None` when the row is no multiple of the
    /// block or the count does not fit.
    pub fn nbytes(self, shape: &[usize]) -> Option<u64> {
        let row = shape.first().copied().unwrap_or(1);
        if !row.is_multiple_of(self.block_size()) {
            return None;
        }
        let count = shape.iter().try_fold(1u64, |n, &d| n.checked_mul(u64::try_from(d).ok()?))?;
        (count / self.block_size() as u64).checked_mul(self.type_size() as u64)
    }

    /// Name in a safetensors header; `None` for types that the format lacks.
    pub fn safetensors_name(self) -> Option<&'static str> {
        Some(match self {
            Dtype::F64 => "F64",
            Dtype::F32 => "F32",
            Dtype::F16 => "F16",
            Dtype::BF16 => "BF16",
            Dtype::I64 => "I64",
            Dtype::I32 => "I32",
            Dtype::I16 => "I16",
            Dtype::I8 => "I8",
            Dtype::U8 => "U8",
            Dtype::BOOL => "BOOL",
            Dtype::F8_E4M3 => "F8_E4M3",
            Dtype::F8_E5M2 => "F8_E5M2",
            _ => return None,
        })
    }

    /// The type that a safetensors header calls `name`.
    pub fn from_safetensors_name(name: &str) -> Option<Dtype> {
        Dtype::all().find(|d| d.safetensors_name() == Some(name))
    }
}

impl std::fmt::Display for Dtype {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_is_in_enum_order_and_unambiguous() {
        for (i, row) in TABLE.iter().enumerate() {
            assert_eq!(row.0 as usize, i, "{}", row.2);
            assert_eq!(Dtype::from_name(row.2), Some(row.0));
            if let Some(id) = row.1 {
                assert_eq!(Dtype::from_ggml_id(id), Some(row.0));
            }
            if let Some(name) = row.0.safetensors_name() {
                assert_eq!(Dtype::from_safetensors_name(name), Some(row.0));
            }
        }
        for removed in [4, 5, 31, 32, 33, 36, 37, 38, 43] {
            assert_eq!(Dtype::from_ggml_id(removed), None);
        }
    }

    #[test]
    fn bytes_of_shapes() {
        assert_eq!(Dtype::Q4_K.nbytes(&[256, 4]), Some(576));
        assert_eq!(Dtype::Q4_K.nbytes(&[100, 4]), None);
        assert_eq!(Dtype::F16.nbytes(&[]), Some(2));
        assert_eq!(Dtype::F32.nbytes(&[0, 7]), Some(0));
        assert_eq!(Dtype::F64.nbytes(&[usize::MAX, 2]), None);
    }
}
