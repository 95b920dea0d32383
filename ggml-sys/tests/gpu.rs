//! Every GPU device multiplies like the CPU. A software device will do: for Vulkan, mesa's, made visible by
//! `GGML_VK_VISIBLE_DEVICES=0`.
#![cfg(any(feature = "cuda", feature = "vulkan", feature = "metal"))]
#![allow(clippy::unwrap_used)] // also in the helpers of tests

use ggml_sys::*;
use std::ffi::CStr;
use std::ptr;

/// Width, rows of the weights, rows of the input: none a multiple of a tile.
const SIZE: (usize, usize, usize) = (96, 70, 33);

/// Values between -1 and 1 that repeat after 97.
fn ramp(len: usize) -> Vec<f32> {
    (0..len).map(|i| (i * 37 % 97) as f32 / 48. - 1.).collect()
}

/// `weights * input` computed by `backend`: weights f16 or f32, input f32.
fn multiply(backend: ggml_backend_t, weight_type: ggml_type) -> Vec<f32> {
    let (width, rows, columns) = SIZE;
    let params = ggml_init_params { mem_size: 1 << 20, mem_buffer: ptr::null_mut(), no_alloc: true };
    let (weights, input) = (ramp(width * rows), ramp(width * columns));
    // SAFETY: everything is made here and freed in reverse order; the slices have the tensors' sizes.
    unsafe {
        let ctx = ggml_init(params);
        let w = ggml_new_tensor_2d(ctx, weight_type, width as i64, rows as i64);
        let x = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, width as i64, columns as i64);
        let product = ggml_mul_mat(ctx, w, x);
        let graph = ggml_new_graph(ctx);
        ggml_build_forward_expand(graph, product);
        let buffer = ggml_backend_alloc_ctx_tensors(ctx, backend);
        assert!(!buffer.is_null());

        ggml_backend_tensor_set(x, input.as_ptr().cast(), 0, ggml_nbytes(x));
        if weight_type == GGML_TYPE_F16 {
            let mut half = vec![0u16; weights.len()];
            ggml_fp32_to_fp16_row(weights.as_ptr(), half.as_mut_ptr(), weights.len() as i64);
            ggml_backend_tensor_set(w, half.as_ptr().cast(), 0, ggml_nbytes(w));
        } else {
            ggml_backend_tensor_set(w, weights.as_ptr().cast(), 0, ggml_nbytes(w));
        }
        assert_eq!(ggml_backend_graph_compute(backend, graph), GGML_STATUS_SUCCESS);
        let mut result = vec![0f32; rows * columns];
        ggml_backend_tensor_get(product, result.as_mut_ptr().cast(), 0, ggml_nbytes(product));
        ggml_backend_buffer_free(buffer);
        ggml_free(ctx);
        result
    }
}

/// The devices of a backend, by its name in the registry.
fn devices(name: &CStr) -> Vec<ggml_backend_dev_t> {
    // SAFETY: the registry lives for ever, and the indices are in range.
    unsafe {
        let reg = ggml_backend_reg_by_name(name.as_ptr());
        assert!(!reg.is_null(), "{name:?} is not linked");
        (0..ggml_backend_reg_dev_count(reg)).map(|i| ggml_backend_reg_dev_get(reg, i)).collect()
    }
}

#[test]
fn devices_multiply_like_the_cpu() {
    let names = [
        #[cfg(feature = "cuda")]
        c"CUDA",
        #[cfg(feature = "vulkan")]
        c"Vulkan",
        #[cfg(feature = "metal")]
        c"MTL",
    ];
    // SAFETY: the backends are made here, used by one thread and freed once.
    unsafe {
        let cpu = ggml_backend_cpu_init();
        for name in names {
            let devices = devices(name);
            assert!(!devices.is_empty(), "{name:?} has no device here");
            for device in devices {
                let backend = ggml_backend_dev_init(device, ptr::null());
                for weight_type in [GGML_TYPE_F32, GGML_TYPE_F16] {
                    let (ours, theirs) = (multiply(backend, weight_type), multiply(cpu, weight_type));
                    // Devices may multiply and add up in f16: about three digits of the largest value.
                    let largest = theirs.iter().fold(0f32, |max, value| max.max(value.abs()));
                    let worst = ours.iter().zip(&theirs).map(|(a, b)| (a - b).abs()).fold(0., f32::max);
                    println!("{name:?}, type {weight_type}: off by {worst} of {largest}");
                    assert!(
                        worst < 0.01 * largest,
                        "{name:?}, type {weight_type}: off by {worst} of {largest}"
                    );
                }
                ggml_backend_free(backend);
            }
        }
        ggml_backend_free(cpu);
    }
}
