//! Graphs on the CPU backend.

#![allow(clippy::unwrap_used)] // also in the helpers of tests

use ggml_sys::*;
use std::collections::HashSet;
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::Mutex;
use std::thread::ThreadId;

/// A context without data, the CPU backend and the buffer of the context's tensors; freed in the right order.
struct Cpu {
    ctx: *mut ggml_context,
    backend: ggml_backend_t,
    buffer: ggml_backend_buffer_t,
}

impl Cpu {
    fn new(n_threads: c_int) -> Self {
        let params = ggml_init_params { mem_size: 1 << 20, mem_buffer: ptr::null_mut(), no_alloc: true };
        // SAFETY: ggml allocates what it needs; the backend exists before its threads are set.
        unsafe {
            let backend = ggml_backend_cpu_init();
            ggml_backend_cpu_set_n_threads(backend, n_threads);
            Self { ctx: ggml_init(params), backend, buffer: ptr::null_mut() }
        }
    }

    /// Allocates the context's tensors, fills the inputs and computes `output`.
    fn compute(&mut self, inputs: &[(*mut ggml_tensor, &[f32])], output: *mut ggml_tensor) -> Vec<f32> {
        // SAFETY: all tensors are of `ctx`, are contiguous f32, and the slices have their sizes (asserted).
        unsafe {
            let graph = ggml_new_graph(self.ctx);
            ggml_build_forward_expand(graph, output);
            self.buffer = ggml_backend_alloc_ctx_tensors(self.ctx, self.backend);
            assert!(!self.buffer.is_null());
            for (tensor, data) in inputs {
                assert_eq!(ggml_nbytes(*tensor), size_of_val(*data));
                ggml_backend_tensor_set(*tensor, data.as_ptr().cast(), 0, size_of_val(*data));
            }
            assert_eq!(ggml_backend_graph_compute(self.backend, graph), GGML_STATUS_SUCCESS);
            let mut data = vec![0f32; ggml_nelements(output) as usize];
            ggml_backend_tensor_get(output, data.as_mut_ptr().cast(), 0, ggml_nbytes(output));
            data
        }
    }
}

impl Drop for Cpu {
    fn drop(&mut self) {
        // SAFETY: made in `new` and `compute`, freed once; freeing a null buffer does nothing.
        unsafe {
            ggml_backend_buffer_free(self.buffer);
            ggml_backend_free(self.backend);
            ggml_free(self.ctx);
        }
    }
}

#[test]
fn matrices_multiply() {
    let mut cpu = Cpu::new(2);
    // SAFETY: the tensors live as long as the context.
    let (a, b, product) = unsafe {
        let a = ggml_new_tensor_2d(cpu.ctx, GGML_TYPE_F32, 3, 2);
        let b = ggml_new_tensor_2d(cpu.ctx, GGML_TYPE_F32, 3, 2);
        (a, b, ggml_mul_mat(cpu.ctx, a, b))
    };
    let result = cpu.compute(&[(a, &[1., 2., 3., 4., 5., 6.]), (b, &[1., 0., 0., 1., 1., 1.])], product);
    // Rows of `a` against rows of `b`, fastest along `a`.
    assert_eq!(result, [1., 4., 6., 15.]);
}

/// What the callback of a custom node saw.
#[derive(Default)]
struct Seen {
    threads: HashSet<ThreadId>,
    parts: HashSet<(c_int, c_int)>,
}

/// Doubles its part of the elements of the first source.
unsafe extern "C-unwind" fn double(dst: *mut ggml_tensor, ith: c_int, nth: c_int, seen: *mut c_void) {
    // SAFETY: ggml passes the node, whose data and sources are allocated, and the pointer given to `ggml_custom_4d`,
    // which outlives the computation. Each element is written by one thread only.
    unsafe {
        let mut seen = (*seen.cast::<Mutex<Seen>>()).lock().unwrap();
        seen.threads.insert(std::thread::current().id());
        seen.parts.insert((ith, nth));
        let (to, from) = ((*dst).data.cast::<f32>(), (*(*dst).src[0]).data.cast::<f32>());
        for i in (ith as usize..ggml_nelements(dst) as usize).step_by(nth as usize) {
            *to.add(i) = 2. * *from.add(i);
        }
    }
}

#[test]
fn a_custom_node_runs_on_all_threads() {
    const THREADS: c_int = 3;
    let seen = Mutex::new(Seen::default());
    let mut cpu = Cpu::new(THREADS);
    // SAFETY: the tensors live as long as the context, `seen` longer.
    let (input, output) = unsafe {
        let input = ggml_new_tensor_1d(cpu.ctx, GGML_TYPE_F32, 8);
        let mut sources = [input];
        let userdata = (&raw const seen).cast_mut().cast();
        let all = GGML_N_TASKS_MAX;
        let function = Some(double as _);
        let node = ggml_custom_4d(
            cpu.ctx,
            GGML_TYPE_F32,
            8,
            1,
            1,
            1,
            sources.as_mut_ptr(),
            1,
            function,
            all,
            userdata,
        );
        (input, node)
    };
    let result = cpu.compute(&[(input, &[0., 1., 2., 3., 4., 5., 6., 7.])], output);
    assert_eq!(result, [0., 2., 4., 6., 8., 10., 12., 14.]);
    let seen = seen.lock().unwrap();
    assert_eq!(seen.parts, HashSet::from([(0, THREADS), (1, THREADS), (2, THREADS)]));
    assert_eq!(seen.threads.len(), THREADS as usize);
}

#[test]
fn rpc_and_cpu_are_registered() {
    for name in [c"CPU", c"RPC"] {
        // SAFETY: the name is a C string.
        assert!(!unsafe { ggml_backend_reg_by_name(name.as_ptr()) }.is_null(), "{name:?}");
    }
}
