//! Handles of tensors inside a graph, and the checks every operation starts with.

use std::ptr::NonNull;

use ggml_sys as sys;

use super::description::{Graph, set_name};
use super::types::Type;
use crate::error::{Error, Result};

/// A tensor of a graph. Shapes are in ggml order, fastest axis first, always four axes.
#[derive(Clone, Copy)]
pub struct Tensor<'g> {
    graph: &'g Graph,
    ptr: NonNull<sys::ggml_tensor>,
}

impl<'g> Tensor<'g> {
    pub(super) fn new(graph: &'g Graph, ptr: NonNull<sys::ggml_tensor>) -> Self {
        Self { graph, ptr }
    }

    /// The graph this tensor belongs to.
    pub fn graph(self) -> &'g Graph {
        self.graph
    }

    pub(super) fn raw(self) -> *mut sys::ggml_tensor {
        self.ptr.as_ptr()
    }

    pub(super) fn ctx(self) -> *mut sys::ggml_context {
        self.graph.ctx.as_ptr()
    }

    fn get(self) -> &'g sys::ggml_tensor {
        // SAFETY: the tensor lives in the graph's context, or in a storage the graph keeps alive; its
        // description (type, shape, strides) does not change after creation.
        unsafe { self.ptr.as_ref() }
    }

    /// Extent of each axis.
    pub fn shape(self) -> [usize; 4] {
        self.get().ne.map(|n| n as usize)
    }

    /// Extent of axis `axis`.
    pub fn dim(self, axis: usize) -> usize {
        self.get().ne.get(axis).map_or(1, |&n| n as usize)
    }

    /// Distance in bytes of neighbours along each axis.
    pub fn strides(self) -> [usize; 4] {
        self.get().nb
    }

    /// Element type.
    pub fn ty(self) -> Type {
        Type(self.get().type_)
    }

    /// Number of elements.
    pub fn count(self) -> usize {
        self.shape().iter().product()
    }

    /// Whether elements lie one after the other.
    pub fn is_contiguous(self) -> bool {
        // SAFETY: live tensor.
        unsafe { sys::ggml_is_contiguous(self.raw()) }
    }

    /// Whether strides are those of a fresh tensor of this shape.
    pub(super) fn has_plain_strides(self) -> bool {
        let (shape, strides) = (self.shape(), self.strides());
        let row = self.ty().row_bytes(shape[0]).unwrap_or(0);
        strides == [self.ty().bytes(), row, row * shape[1], row * shape[1] * shape[2]]
    }

    /// Names the tensor for callbacks and dumps.
    pub fn named(self, name: &str) -> Self {
        set_name(self.ptr, name);
        self
    }

    /// Refuses with the operation's name, the shapes and the rule broken.
    pub(super) fn require(self, op: &'static str, ok: bool, rule: impl FnOnce() -> String) -> Result<()> {
        if ok {
            return Ok(());
        }
        Err(Error::shape(op, format!("{:?} {}: {}", self.shape(), self.ty(), rule())))
    }

    /// Refuses operands of another graph, whose life may end before this one's.
    pub(super) fn same_graph(self, op: &'static str, other: Tensor<'_>) -> Result<()> {
        self.require(op, std::ptr::eq(self.graph, other.graph), || "operands of two graphs".into())
    }

    /// Reserves one node and wraps the result of a ggml call.
    pub(super) fn make(
        self,
        build: impl FnOnce(*mut sys::ggml_context) -> *mut sys::ggml_tensor,
    ) -> Result<Self> {
        self.make_n(1, build)
    }

    /// As [`Tensor::make`] for calls that create up to `n` tensors.
    pub(super) fn make_n(
        self,
        n: usize,
        build: impl FnOnce(*mut sys::ggml_context) -> *mut sys::ggml_tensor,
    ) -> Result<Self> {
        self.graph.reserve(n)?;
        self.graph.wrap(build(self.ctx()))
    }
}

impl std::fmt::Debug for Tensor<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} {}", self.shape(), self.ty())
    }
}
