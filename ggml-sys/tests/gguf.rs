//! A GGUF file is written and read back.

#![allow(clippy::unwrap_used)] // also in the helpers of tests

use ggml_sys::*;
use std::ffi::{CStr, CString};
use std::path::PathBuf;
use std::ptr;

/// A file in cargo's folder for tests, removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        Self(PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{}-{name}", std::process::id())))
    }

    fn c_path(&self) -> CString {
        CString::new(self.0.to_str().unwrap()).unwrap()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

const VALUES: [f32; 6] = [1., 2., 3., 4., 5., 6.];

fn write(path: &CStr) {
    let params = ggml_init_params { mem_size: 1 << 16, mem_buffer: ptr::null_mut(), no_alloc: false };
    // SAFETY: the tensor has its data in the context, of the size of `VALUES`; all strings end with NUL.
    unsafe {
        let ctx = ggml_init(params);
        let tensor = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, 3, 2);
        ggml_set_name(tensor, c"layer.weight".as_ptr());
        ptr::copy_nonoverlapping(VALUES.as_ptr(), (*tensor).data.cast(), VALUES.len());
        let gguf = gguf_init_empty();
        gguf_set_val_str(gguf, c"general.name".as_ptr(), c"a name".as_ptr());
        gguf_set_val_u32(gguf, c"general.number".as_ptr(), 7);
        gguf_add_tensor(gguf, tensor);
        assert!(gguf_write_to_file(gguf, path.as_ptr(), false));
        gguf_free(gguf);
        ggml_free(ctx);
    }
}

#[test]
fn what_is_written_is_read() {
    let scratch = Scratch::new("round.gguf");
    let path = scratch.c_path();
    write(&path);
    let mut ctx = ptr::null_mut();
    // SAFETY: `ctx` receives a context with the tensors' data (no_alloc is false); the keys exist, as asserted.
    unsafe {
        let gguf = gguf_init_from_file(path.as_ptr(), gguf_init_params { no_alloc: false, ctx: &mut ctx });
        assert!(!gguf.is_null());
        let name = gguf_find_key(gguf, c"general.name".as_ptr());
        let number = gguf_find_key(gguf, c"general.number".as_ptr());
        assert!(name >= 0 && number >= 0);
        assert_eq!(CStr::from_ptr(gguf_get_val_str(gguf, name)), c"a name");
        assert_eq!(gguf_get_val_u32(gguf, number), 7);
        assert_eq!(gguf_get_n_tensors(gguf), 1);

        let tensor = ggml_get_tensor(ctx, c"layer.weight".as_ptr());
        assert!(!tensor.is_null());
        assert_eq!((*tensor).ne, [3, 2, 1, 1]);
        let data = std::slice::from_raw_parts((*tensor).data.cast::<f32>(), VALUES.len());
        assert_eq!(data, VALUES);
        gguf_free(gguf);
        ggml_free(ctx);
    }
}

#[test]
fn the_wrong_type_of_a_value_is_caught() {
    // SAFETY: the key exists.
    unsafe {
        let gguf = gguf_init_empty();
        gguf_set_val_u32(gguf, c"general.number".as_ptr(), 7);
        assert!(guard(|| gguf_get_val_f32(gguf, 0)).is_err());
        gguf_free(gguf);
    }
}
