//! Element types of tensors, as ggml numbers them.

use std::ffi::CStr;

use ggml_sys as sys;

/// Element type of a tensor. Quantised types store blocks of `block` elements in `bytes` bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Type(pub(crate) sys::ggml_type);

impl Type {
    /// 32-bit float.
    pub const F32: Self = Self(sys::GGML_TYPE_F32);
    /// 16-bit IEEE float.
    pub const F16: Self = Self(sys::GGML_TYPE_F16);
    /// bfloat16.
    pub const BF16: Self = Self(sys::GGML_TYPE_BF16);
    /// 32-bit signed integer.
    pub const I32: Self = Self(sys::GGML_TYPE_I32);

    /// The type that ggml numbers `id`, if it is one whose rows can be stored.
    pub fn from_ggml(id: i32) -> Option<Self> {
        let id = sys::ggml_type::try_from(id).ok()?;
        if id >= sys::GGML_TYPE_COUNT {
            return None;
        }
        // SAFETY: `id` is below GGML_TYPE_COUNT, the only precondition; removed types have block size 0.
        (unsafe { sys::ggml_blck_size(id) } > 0).then_some(Self(id))
    }

    /// ggml's number of this type.
    pub fn id(self) -> i32 {
        self.0 as i32
    }

    /// ggml's name, such as `q8_0`.
    pub fn name(self) -> &'static str {
        // SAFETY: every `Type` holds a valid ggml type, whose name is a static string.
        unsafe { CStr::from_ptr(sys::ggml_type_name(self.0)) }.to_str().unwrap_or("?")
    }

    /// Elements in a block: 1 for plain types.
    pub fn block(self) -> usize {
        // SAFETY: every `Type` holds a valid ggml type.
        (unsafe { sys::ggml_blck_size(self.0) }) as usize
    }

    /// Bytes of a block.
    pub fn bytes(self) -> usize {
        // SAFETY: every `Type` holds a valid ggml type.
        unsafe { sys::ggml_type_size(self.0) }
    }

    /// Bytes of a row of `n` elements; `None` when `n` is no multiple of the block.
    pub fn row_bytes(self, n: usize) -> Option<usize> {
        n.is_multiple_of(self.block()).then(|| n / self.block() * self.bytes())
    }

    /// Whether values are stored in blocks with a scale.
    pub fn is_quantized(self) -> bool {
        // SAFETY: every `Type` holds a valid ggml type.
        unsafe { sys::ggml_is_quantized(self.0) }
    }
}

impl std::fmt::Debug for Type {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl std::fmt::Display for Type {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
