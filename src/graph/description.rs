//! A computation being described: a ggml context without data, and the list of its nodes.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ffi::CString;
use std::ptr::NonNull;
use std::sync::Arc;

use ggml_sys as sys;

use super::custom::{NodeData, Shared};
use super::storage::{Storage, Weight};
use super::tensor::Tensor;
use super::types::Type;
use crate::error::{Error, Result};

/// How products, convolutions and attention are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Math {
    /// Replace ggml's nodes by this library's CPU kernels where they exist.
    pub kernels: bool,
    /// One bf16 product instead of three: faster, about three digits.
    pub fast: bool,
    /// Attention without the full score matrix on ggml's own path.
    pub flash: bool,
}

/// Nodes a graph has room for; the largest network with adapters on every layer needs about a third.
pub(super) const MAX_NODES: usize = 1 << 17;

/// A graph under construction. Tensors made by it cannot outlive it.
pub struct Graph {
    pub(super) ctx: NonNull<sys::ggml_context>,
    pub(super) nodes: NonNull<sys::ggml_cgraph>,
    pub(super) math: Math,
    /// Storages the graph refers to, kept alive with it.
    pub(super) storages: RefCell<Vec<Arc<Storage>>>,
    /// Parameters of custom nodes; boxed, since ggml keeps their addresses.
    #[allow(clippy::vec_box)]
    pub(super) custom: RefCell<Vec<Box<NodeData>>>,
    /// Barrier and scratch memory of custom nodes; boxed for the same reason.
    pub(super) shared: Box<Shared>,
    /// Threads that compute the graph.
    pub(super) threads: usize,
    /// Node counts at which one segment ends and the next begins.
    pub(super) cuts: RefCell<Vec<(String, usize)>>,
    pub(super) made: Cell<usize>,
    capacity: usize,
}

impl Graph {
    /// An empty graph with room for `capacity` tensors.
    pub(super) fn new(math: Math, threads: usize, capacity: usize) -> Result<Self> {
        let capacity = capacity.clamp(64, MAX_NODES);
        // SAFETY: constants of the library.
        let size = unsafe {
            capacity * sys::ggml_tensor_overhead() + sys::ggml_graph_overhead_custom(capacity, false) + 4096
        };
        let params =
            sys::ggml_init_params { mem_size: size, mem_buffer: std::ptr::null_mut(), no_alloc: true };
        // SAFETY: plain parameters; NULL is checked.
        let ctx = NonNull::new(unsafe { sys::ggml_init(params) })
            .ok_or_else(|| Error::Memory("a graph's table".into()))?;
        // SAFETY: `size` includes the overhead of a graph of `capacity` nodes.
        let nodes = NonNull::new(unsafe { sys::ggml_new_graph_custom(ctx.as_ptr(), capacity, false) });
        let Some(nodes) = nodes else {
            // SAFETY: the context was made above and is not used further.
            unsafe { sys::ggml_free(ctx.as_ptr()) };
            return Err(Error::Memory("a graph's node list".into()));
        };
        Ok(Self {
            ctx,
            nodes,
            math,
            storages: RefCell::default(),
            custom: RefCell::default(),
            shared: Box::default(),
            threads,
            cuts: RefCell::default(),
            made: Cell::new(0),
            capacity,
        })
    }

    /// How products are computed in this graph.
    pub fn math(&self) -> Math {
        self.math
    }

    /// Takes `n` tensors out of the graph's room, before ggml is asked to make them.
    pub(super) fn reserve(&self, n: usize) -> Result<()> {
        let made = self.made.get() + n;
        if made + 1 >= self.capacity {
            return Err(Error::Internal(format!("a graph of more than {} nodes", self.capacity)));
        }
        self.made.set(made);
        Ok(())
    }

    /// An input whose values are given at each run.
    pub(super) fn input(&self, name: &str, ty: Type, shape: [usize; 4]) -> Result<Tensor<'_>> {
        if shape.contains(&0) || ty.row_bytes(shape[0]).is_none() {
            return Err(Error::shape("input", format!("{name}: {shape:?} of {ty}")));
        }
        self.reserve(1)?;
        let [a, b, c, d] = shape.map(|n| n as i64);
        // SAFETY: live context with room for the tensor (reserved); type and shape were checked.
        let ptr = unsafe { sys::ggml_new_tensor_4d(self.ctx.as_ptr(), ty.0, a, b, c, d) };
        let tensor = self.wrap(ptr)?;
        // SAFETY: `ptr` was checked by `wrap`.
        unsafe { sys::ggml_set_input(ptr) };
        tensor.named(name);
        Ok(tensor)
    }

    /// A persistent tensor as an operand.
    pub fn weight(&self, weight: &Weight) -> Tensor<'_> {
        let mut storages = self.storages.borrow_mut();
        if !storages.iter().rev().any(|s| Arc::ptr_eq(s, weight.storage())) {
            storages.push(weight.storage().clone());
        }
        Tensor::new(self, weight.raw())
    }

    /// Full names of the weights of all storages referred to, by the address of their tensor.
    pub(super) fn weight_names(&self) -> HashMap<usize, String> {
        self.storages.borrow().iter().flat_map(|s| s.names()).collect()
    }

    /// Ends a segment with `x`: everything `x` needs is computed before what comes after.
    ///
    /// Segments are what offloading, streaming and memory budgets move as one piece.
    pub fn cut(&self, name: &str, x: Tensor<'_>) {
        self.expand(x);
        // SAFETY: the graph is live.
        let count = unsafe { sys::ggml_graph_n_nodes(self.nodes.as_ptr()) } as usize;
        self.cuts.borrow_mut().push((name.to_owned(), count));
    }

    /// Puts `x` and all it needs into the node list.
    pub(super) fn expand(&self, x: Tensor<'_>) {
        // SAFETY: both are live; the node list has as much room as the context has tensors.
        unsafe { sys::ggml_build_forward_expand(self.nodes.as_ptr(), x.raw()) };
    }

    /// Wraps the result of a ggml call.
    pub(super) fn wrap(&self, ptr: *mut sys::ggml_tensor) -> Result<Tensor<'_>> {
        NonNull::new(ptr)
            .map(|ptr| Tensor::new(self, ptr))
            .ok_or_else(|| Error::Memory("a tensor of a graph".into()))
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: the context was made by `new` and is freed once; tensors and node list are inside it.
        unsafe { sys::ggml_free(self.ctx.as_ptr()) };
    }
}

/// Sets the name that callbacks and dumps show.
pub(super) fn set_name(ptr: NonNull<sys::ggml_tensor>, name: &str) {
    let tail = name.char_indices().rev().nth(119).map_or(name, |(i, _)| &name[i..]);
    if let Ok(name) = CString::new(tail) {
        // SAFETY: live tensor and NUL-terminated name; ggml truncates it to its own limit.
        unsafe { sys::ggml_set_name(ptr.as_ptr(), name.as_ptr()) };
    }
}
