//! What weights are multiplied with, seen while a graph is computed.

use std::cell::Cell;
use std::collections::HashMap;
use std::ffi::c_void;

use ggml_sys as sys;

use super::program::EvalNode;

/// Receives the inputs of products with weights.
pub trait ProductSink {
    /// Whether the inputs of the weight with this name are wanted.
    fn wants(&self, weight: &str) -> bool;

    /// `inputs` holds rows of `columns` values that `weight` was multiplied with. `expert_of` says for each row
    /// which of the weight's `experts` matrices took it; empty where there is only one.
    fn product(&self, weight: &str, columns: usize, experts: usize, inputs: &[f32], expert_of: &[usize]);
}

/// Hands the inputs of products to a sink, and everything to the caller's own callback.
pub(super) struct Products<'a> {
    pub sink: &'a dyn ProductSink,
    pub inner: Option<&'a dyn EvalNode>,
    /// Whether `inner` asked for the node that is being computed.
    pub inner_waits: Cell<bool>,
    /// Full names of weights by the address of their tensor; ggml itself keeps shortened ones.
    pub names: HashMap<usize, String>,
}

impl EvalNode for Products<'_> {
    fn eval(&self, tensor: *mut c_void, ask: bool) -> bool {
        let node = tensor.cast::<sys::ggml_tensor>();
        let name = self.wanted(node);
        if ask {
            self.inner_waits.set(self.inner.is_some_and(|inner| inner.eval(tensor, true)));
            return name.is_some() || self.inner_waits.get();
        }
        if let Some(name) = name {
            self.take(node, name);
        }
        !self.inner_waits.get() || self.inner.is_none_or(|inner| inner.eval(tensor, false))
    }
}

impl Products<'_> {
    /// The name of the weight that `node` is a product with, if the sink wants it.
    fn wanted(&self, node: *mut sys::ggml_tensor) -> Option<&str> {
        // SAFETY: callers pass a live node of the graph being computed; its sources live as long as it.
        unsafe {
            let node = node.as_ref()?;
            if node.op != sys::GGML_OP_MUL_MAT && node.op != sys::GGML_OP_MUL_MAT_ID {
                return None;
            }
            let mut weight = node.src[0];
            while !(*weight).view_src.is_null() {
                weight = (*weight).view_src;
            }
            let name = self.names.get(&(weight as usize)).map(String::as_str)?;
            let input = node.src[1].as_ref()?;
            (input.type_ == sys::GGML_TYPE_F32 && self.sink.wants(name)).then_some(name)
        }
    }

    fn take(&self, node: *mut sys::ggml_tensor, name: &str) {
        // SAFETY: as in `wanted`, which accepted the node; its sources have been computed.
        unsafe {
            let (weight, input) = ((*node).src[0], (*node).src[1]);
            let columns = (*input).ne[0] as usize;
            let inputs = floats(input);
            if (*node).op == sys::GGML_OP_MUL_MAT {
                self.sink.product(name, columns, 1, &inputs, &[]);
                return;
            }
            // ids [experts used, tokens], input [columns, 1 or experts used, tokens]
            let ids = (*node).src[2];
            let (used, tokens) = ((*ids).ne[0] as usize, (*ids).ne[1] as usize);
            let chosen = integers(ids);
            let per_token = ((*input).ne[1] as usize).max(1);
            let mut rows = Vec::with_capacity(used * tokens * columns);
            let mut expert_of = Vec::with_capacity(used * tokens);
            for token in 0..tokens {
                for slot in 0..used {
                    let row = token * per_token + slot % per_token;
                    let expert = chosen.get(token * used + slot).and_then(|&e| usize::try_from(e).ok());
                    let (Some(expert), Some(values)) =
                        (expert, inputs.get(row * columns..(row + 1) * columns))
                    else {
                        continue;
                    };
                    rows.extend_from_slice(values);
                    expert_of.push(expert);
                }
            }
            self.sink.product(name, columns, (*weight).ne[2] as usize, &rows, &expert_of);
        }
    }
}

/// Values of a computed f32 tensor, rows one after the other.
///
/// # Safety
/// `tensor` is live, f32 and has memory.
unsafe fn floats(tensor: *mut sys::ggml_tensor) -> Vec<f32> {
    // SAFETY: as promised; elements of `f32` are plain data.
    unsafe { rows(tensor) }
}

/// Values of a computed i32 tensor, rows one after the other.
///
/// # Safety
/// `tensor` is live, i32 and has memory.
unsafe fn integers(tensor: *mut sys::ggml_tensor) -> Vec<i32> {
    // SAFETY: as promised; elements of `i32` are plain data.
    unsafe { rows(tensor) }
}

/// # Safety
/// `tensor` is live, has memory, and its elements are 4 bytes of type `T`.
unsafe fn rows<T: bytemuck::Pod>(tensor: *mut sys::ggml_tensor) -> Vec<T> {
    // SAFETY: row (b, c, d) starts `b nb1 + c nb2 + d nb3` bytes into the tensor and holds `ne0` elements `nb0` apart.
    // Rows that are contiguous are read by the backend that holds them, others element by element, each inside the
    // tensor.
    unsafe {
        let t = &*tensor;
        let [n0, n1, n2, n3] = t.ne.map(|n| n as usize);
        let mut out = vec![T::zeroed(); n0 * n1 * n2 * n3];
        if t.data.is_null() || size_of::<T>() != 4 {
            return out;
        }
        let mut get = |at: usize, offset: usize, count: usize| {
            let to = &mut out[at..at + count];
            sys::ggml_backend_tensor_get(tensor, to.as_mut_ptr().cast(), offset, count * 4);
        };
        if sys::ggml_is_contiguous(tensor) {
            get(0, 0, n0 * n1 * n2 * n3);
            return out;
        }
        for row in 0..n1 * n2 * n3 {
            let (b, c, d) = (row % n1, row / n1 % n2, row / (n1 * n2));
            let start = b * t.nb[1] + c * t.nb[2] + d * t.nb[3];
            if t.nb[0] == 4 {
                get(row * n0, start, n0);
            } else {
                (0..n0).for_each(|i| get(row * n0 + i, start + i * t.nb[0], 1));
            }
        }
        out
    }
}
