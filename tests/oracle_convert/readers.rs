//! What is written, read by ggml.

use super::support::*;
use ggml_sys as sys;
use std::ffi::{CStr, CString};
use std::ptr;

#[test]
fn ggml_reads_what_is_written() {
    let folder = Folder::new("ggml");
    let input = folder.path("in.safetensors");
    let names =
        ["model.diffusion_model.a.weight", "model.diffusion_model.b.weight", "first_stage_model.c.weight"];
    let shapes = [vec![5, 256], vec![3, 2, 4, 256], vec![7]];
    let tensors: Vec<_> = names
        .iter()
        .zip(&shapes)
        .map(|(name, shape)| Given(name, "F32", shape.clone(), f32s(&wave(shape.iter().product()))))
        .collect();
    write_safetensors(&input, &tensors);
    for id in [0u32, 1, 2, 8, 12, 14, 30] {
        let output = folder.path("out.gguf");
        let mut request = request(&input, &output);
        request.output_type = Some(id);
        run(&request).unwrap();
        let path = CString::new(output.to_str().unwrap()).unwrap();
        let mut ctx = ptr::null_mut();
        // SAFETY: `ctx` receives a context with the tensors' data, which is freed at the end; names end with NUL.
        unsafe {
            let gguf = sys::gguf_init_from_file(
                path.as_ptr(),
                sys::gguf_init_params { no_alloc: false, ctx: &mut ctx },
            );
            assert!(!gguf.is_null(), "type {id}");
            assert_eq!(sys::gguf_get_n_tensors(gguf), 3);
            assert_eq!(sys::gguf_get_alignment(gguf), 32);
            for (name, shape) in names.iter().zip(&shapes) {
                let c_name = CString::new(*name).unwrap();
                let tensor = sys::ggml_get_tensor(ctx, c_name.as_ptr());
                assert!(!tensor.is_null());
                let count: usize = shape.iter().product();
                let ne = (*tensor).ne;
                assert_eq!(ne.iter().product::<i64>() as usize, count);
                assert_eq!(ne[0] as usize, *shape.last().unwrap());
                let values = values(tensor, count);
                let want = wave(count);
                let error = values.iter().zip(&want).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
                let stored = CStr::from_ptr(sys::ggml_type_name((*tensor).type_)).to_str().unwrap();
                assert!(error < 0.13, "{name} as {stored}: {error}");
                assert!(stored != "f32" || error == 0.0);
            }
            sys::gguf_free(gguf);
            sys::ggml_free(ctx);
        }
    }
}

/// # Safety
/// `tensor` is live and holds `count` values.
unsafe fn values(tensor: *const sys::ggml_tensor, count: usize) -> Vec<f32> {
    let mut out = vec![0f32; count];
    // SAFETY: as promised; the converter of the type reads whole rows of `count` values in all.
    unsafe {
        if (*tensor).type_ == sys::GGML_TYPE_F32 {
            ptr::copy_nonoverlapping((*tensor).data.cast(), out.as_mut_ptr(), count);
        } else {
            let traits = sys::ggml_get_type_traits((*tensor).type_);
            ((*traits).to_float.unwrap())((*tensor).data, out.as_mut_ptr(), count as i64);
        }
    }
    out
}

#[test]
fn the_safetensors_crate_reads_what_is_written() {
    let folder = Folder::new("crate");
    let input = folder.path("in.safetensors");
    write_safetensors(&input, &[Given("model.diffusion_model.a.weight", "F32", vec![5, 3], f32s(&wave(15)))]);
    let output = folder.path("out.safetensors");
    run(&request(&input, &output)).unwrap();
    let bytes = std::fs::read(output).unwrap();
    let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let tensor = file.tensor("model.diffusion_model.a.weight").unwrap();
    assert_eq!((tensor.shape(), tensor.data()), (&[5, 3][..], &f32s(&wave(15))[..]));
}
