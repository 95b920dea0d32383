//! A built graph with its memory: described once, run many times with new inputs.

use std::cell::Cell;
use std::ffi::c_void;
use std::ptr::NonNull;

use ggml_sys as sys;

use super::description::{Graph, Math};
use super::device::Device;
use super::products::{ProductSink, Products};
use super::tensor::Tensor;
use super::types::Type;
use crate::error::{Error, Result};
use crate::tensor::HostTensor;

/// Values of one input.
#[derive(Clone, Copy)]
pub enum Input<'a> {
    /// Floats with a shape of up to four axes.
    F32(&'a HostTensor),
    /// Integers, one axis.
    I32(&'a [i32]),
}

impl Input<'_> {
    /// Shape padded to four axes.
    pub fn shape(&self) -> [usize; 4] {
        match self {
            Input::F32(t) => [t.dim(0), t.dim(1), t.dim(2), t.dim(3)],
            Input::I32(v) => [v.len(), 1, 1, 1],
        }
    }

    fn ty(&self) -> Type {
        match self {
            Input::F32(_) => Type::F32,
            Input::I32(_) => Type::I32,
        }
    }
}

/// What a run asks its caller while it works.
pub trait Watch {
    /// Whether to stop; asked before every node.
    fn cancelled(&self) -> bool {
        false
    }

    /// Who wants to know what weights are multiplied with, if anyone. A graph that is watched should be built
    /// without kernels, whose nodes are not seen.
    fn products(&self) -> Option<&dyn ProductSink> {
        None
    }

    /// The raw callback that sees every node, if one is set.
    fn eval(&self) -> Option<&dyn EvalNode> {
        None
    }
}

/// Sees nodes as they are computed; the pointer is ggml's tensor, for the C callback.
pub trait EvalNode {
    /// With `ask`: whether this node's data are wanted. Without: the data are there; false stops the run.
    fn eval(&self, tensor: *mut c_void, ask: bool) -> bool;
}

/// A caller that never stops a run.
pub struct NoWatch;

impl Watch for NoWatch {}

/// A graph that can be computed again and again.
pub struct Program {
    graph: Graph,
    inputs: Vec<(NonNull<sys::ggml_tensor>, Type, [usize; 4])>,
    outputs: Vec<NonNull<sys::ggml_tensor>>,
    memory: Memory,
    generations: Vec<u64>,
}

/// Where intermediate values live.
enum Memory {
    /// One device: memory planned once.
    Single(NonNull<sys::ggml_gallocr>),
    /// A GPU with the CPU beside it for nodes the GPU lacks.
    Scheduled { sched: NonNull<sys::ggml_backend_sched>, _cpu: Device },
}

// SAFETY: all pointers belong to this value; it is used through `&mut self` only.
unsafe impl Send for Program {}

impl Program {
    /// Describes a graph with `describe`, which gets one tensor for each of `inputs`, and plans its memory.
    ///
    /// Storages that the graph refers to must have memory when `describe` returns.
    pub fn build(
        device: &Device,
        math: Math,
        capacity: usize,
        inputs: &[(&str, Input<'_>)],
        describe: impl for<'g> FnOnce(&'g Graph, &[Tensor<'g>]) -> Result<Vec<Tensor<'g>>>,
    ) -> Result<Self> {
        let math = Math { kernels: math.kernels && device.is_cpu(), ..math };
        let graph = Graph::new(math, device.threads(), capacity)?;
        let (ins, outs) = guarded(|| record(&graph, inputs, describe))??;
        graph.shared.allocate()?;
        let memory = Memory::new(device, graph.nodes)?;
        let generations = graph.storages.borrow().iter().map(|s| s.generation()).collect();
        let mut program = Self { graph, inputs: ins, outputs: outs, memory, generations };
        program.plan()?;
        Ok(program)
    }

    /// Whether the weights lie where they lay when this was built.
    pub fn is_current(&self) -> bool {
        let storages = self.graph.storages.borrow();
        storages.iter().zip(&self.generations).all(|(s, &g)| s.generation() == g)
    }

    /// Bytes of memory for intermediate values.
    pub fn memory_bytes(&self) -> usize {
        match &self.memory {
            // SAFETY: live allocator with one buffer.
            Memory::Single(alloc) => unsafe { sys::ggml_gallocr_get_buffer_size(alloc.as_ptr(), 0) },
            Memory::Scheduled { .. } => 0,
        }
    }

    /// Computes the outputs for `inputs`, which have the shapes given to `build`.
    pub fn run(
        &mut self,
        device: &Device,
        inputs: &[Input<'_>],
        watch: &dyn Watch,
    ) -> Result<Vec<HostTensor>> {
        let mut outputs = Vec::new();
        self.run_into(device, inputs, watch, &mut outputs)?;
        Ok(outputs)
    }

    /// As [`Program::run`], reusing the memory of `outputs`.
    pub fn run_into(
        &mut self,
        device: &Device,
        inputs: &[Input<'_>],
        watch: &dyn Watch,
        outputs: &mut Vec<HostTensor>,
    ) -> Result<()> {
        if !self.is_current() {
            return Err(Error::Internal("a graph whose weights have moved".into()));
        }
        self.set_inputs(inputs)?;
        self.compute(device, watch)?;
        outputs.resize_with(self.outputs.len(), HostTensor::default);
        for (tensor, out) in self.outputs.iter().zip(outputs.iter_mut()) {
            read_f32(*tensor, out)?;
        }
        Ok(())
    }

    fn plan(&mut self) -> Result<()> {
        let nodes = self.graph.nodes.as_ptr();
        let planned = match &self.memory {
            Memory::Single(alloc) => guarded(|| {
                // SAFETY: live allocator and graph; all weights have memory, as `build` demands.
                unsafe { sys::ggml_gallocr_alloc_graph(alloc.as_ptr(), nodes) }
            })?,
            Memory::Scheduled { sched, .. } => guarded(|| {
                // SAFETY: live scheduler and graph.
                unsafe {
                    sys::ggml_backend_sched_reset(sched.as_ptr());
                    sys::ggml_backend_sched_alloc_graph(sched.as_ptr(), nodes)
                }
            })?,
        };
        if planned { Ok(()) } else { Err(Error::Memory("intermediate values of a graph".into())) }
    }

    fn set_inputs(&self, inputs: &[Input<'_>]) -> Result<()> {
        if inputs.len() != self.inputs.len() {
            return Err(Error::Internal(format!(
                "{} inputs for a graph of {}",
                inputs.len(),
                self.inputs.len()
            )));
        }
        for (input, (tensor, ty, shape)) in inputs.iter().zip(&self.inputs) {
            if input.shape() != *shape || input.ty() != *ty {
                return Err(Error::shape(
                    "input",
                    format!("{:?} for a graph made for {shape:?}", input.shape()),
                ));
            }
            let bytes: &[u8] = match input {
                Input::F32(t) => bytemuck::cast_slice(&t.data),
                Input::I32(v) => bytemuck::cast_slice(v),
            };
            // SAFETY: the tensor is live; an input no node uses has no memory and is skipped. The byte count is
            // the tensor's, since type and shape agree.
            unsafe {
                if !(*tensor.as_ptr()).data.is_null() {
                    if bytes.len() != sys::ggml_nbytes(tensor.as_ptr()) {
                        return Err(Error::shape("input", format!("{} bytes for {shape:?}", bytes.len())));
                    }
                    sys::ggml_backend_tensor_set(tensor.as_ptr(), bytes.as_ptr().cast(), 0, bytes.len());
                }
            }
        }
        Ok(())
    }

    fn compute(&mut self, device: &Device, watch: &dyn Watch) -> Result<()> {
        let nodes = self.graph.nodes.as_ptr();
        let cancel = CancelHook { watch };
        if device.is_cpu() {
            // SAFETY: `cancel` outlives the computation below, after which the callback is taken away.
            unsafe {
                sys::ggml_backend_cpu_set_abort_callback(
                    device.raw(),
                    Some(should_abort),
                    (&raw const cancel).cast_mut().cast(),
                );
            }
        }
        let products = watch.products().map(|sink| Products {
            sink,
            inner: watch.eval(),
            inner_waits: Cell::new(false),
            names: self.graph.weight_names(),
        });
        let eval = products.as_ref().map(|p| p as &dyn EvalNode).or_else(|| watch.eval());
        let status = guarded(|| match (&self.memory, eval) {
            // SAFETY: planned graph and live backend or scheduler.
            (Memory::Single(_), None) => unsafe { Ok(sys::ggml_backend_graph_compute(device.raw(), nodes)) },
            (Memory::Single(_), Some(eval)) => compute_watched(device, nodes, eval),
            // SAFETY: planned graph and live scheduler; `eval` outlives the computation, after which the callback is
            // taken away.
            (Memory::Scheduled { sched, .. }, eval) => unsafe {
                let hook = eval.map(|eval| EvalHook { eval });
                let data = hook.as_ref().map_or(std::ptr::null_mut(), |h| (&raw const *h).cast_mut().cast());
                let callback: sys::ggml_backend_sched_eval_callback =
                    if hook.is_some() { Some(eval_node) } else { None };
                sys::ggml_backend_sched_set_eval_callback(sched.as_ptr(), callback, data);
                let status = sys::ggml_backend_sched_graph_compute(sched.as_ptr(), nodes);
                sys::ggml_backend_sched_set_eval_callback(sched.as_ptr(), None, std::ptr::null_mut());
                Ok(status)
            },
        });
        if device.is_cpu() {
            // SAFETY: live CPU backend.
            unsafe { sys::ggml_backend_cpu_set_abort_callback(device.raw(), None, std::ptr::null_mut()) };
        }
        let status = status??;
        if self.graph.shared.take_failure() {
            return Err(Error::Internal("a kernel had too little scratch memory".into()));
        }
        match status {
            sys::GGML_STATUS_SUCCESS if watch.cancelled() => Err(Error::Cancelled),
            sys::GGML_STATUS_SUCCESS => Ok(()),
            sys::GGML_STATUS_ABORTED => Err(Error::Cancelled),
            sys::GGML_STATUS_ALLOC_FAILED => Err(Error::Memory(format!("work memory on {}", device.name()))),
            code => {
                Err(Error::Backend(format!("{} failed to compute a graph (status {code})", device.name())))
            }
        }
    }
}

type Recorded = (Vec<(NonNull<sys::ggml_tensor>, Type, [usize; 4])>, Vec<NonNull<sys::ggml_tensor>>);

fn record(
    graph: &Graph,
    inputs: &[(&str, Input<'_>)],
    describe: impl for<'g> FnOnce(&'g Graph, &[Tensor<'g>]) -> Result<Vec<Tensor<'g>>>,
) -> Result<Recorded> {
    let mut tensors = Vec::with_capacity(inputs.len());
    let mut ins = Vec::with_capacity(inputs.len());
    for (name, input) in inputs {
        let tensor = graph.input(name, input.ty(), input.shape())?;
        ins.push((NonNull::new(tensor.raw()), input.ty(), input.shape()));
        tensors.push(tensor);
    }
    let outputs = describe(graph, &tensors)?;
    let mut outs = Vec::with_capacity(outputs.len());
    for output in outputs {
        let output = output.cont()?.cast(Type::F32)?;
        // SAFETY: live tensor; the flag keeps its memory from being reused.
        unsafe { sys::ggml_set_output(output.raw()) };
        graph.expand(output);
        outs.push(NonNull::new(output.raw()));
    }
    let broken = || Error::Internal("a tensor without address".into());
    let ins: Option<Vec<_>> = ins.into_iter().map(|(p, t, s)| Some((p?, t, s))).collect();
    let outs: Option<Vec<_>> = outs.into_iter().collect();
    Ok((ins.ok_or_else(broken)?, outs.ok_or_else(broken)?))
}

impl Memory {
    fn new(device: &Device, nodes: NonNull<sys::ggml_cgraph>) -> Result<Self> {
        if device.is_cpu() {
            // SAFETY: live backend; NULL is checked.
            let alloc = NonNull::new(unsafe {
                sys::ggml_gallocr_new(sys::ggml_backend_get_default_buffer_type(device.raw()))
            });
            return alloc.map(Self::Single).ok_or_else(|| Error::Memory("a graph's allocator".into()));
        }
        let cpu = Device::cpu(device.threads())?;
        // SAFETY: live graph.
        let size = unsafe { sys::ggml_graph_size(nodes.as_ptr()) } as usize;
        let mut backends = [device.raw(), cpu.raw()];
        // SAFETY: two live backends, the CPU last as ggml wants; NULL is checked.
        let sched = NonNull::new(unsafe {
            sys::ggml_backend_sched_new(backends.as_mut_ptr(), std::ptr::null_mut(), 2, size, false, true)
        });
        let sched = sched.ok_or_else(|| Error::Memory("a graph's scheduler".into()))?;
        Ok(Self::Scheduled { sched, _cpu: cpu })
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: made by `new`, freed once.
        unsafe {
            match self {
                Self::Single(alloc) => sys::ggml_gallocr_free(alloc.as_ptr()),
                Self::Scheduled { sched, .. } => sys::ggml_backend_sched_free(sched.as_ptr()),
            }
        }
    }
}

struct CancelHook<'a> {
    watch: &'a dyn Watch,
}

unsafe extern "C-unwind" fn should_abort(data: *mut c_void) -> bool {
    // SAFETY: `compute` passes a `CancelHook` that outlives the computation; ggml calls this on the thread
    // that computes.
    let hook = unsafe { &*data.cast::<CancelHook<'_>>() };
    hook.watch.cancelled()
}

struct EvalHook<'a> {
    eval: &'a dyn EvalNode,
}

unsafe extern "C-unwind" fn eval_node(tensor: *mut sys::ggml_tensor, ask: bool, data: *mut c_void) -> bool {
    // SAFETY: `compute` passes an `EvalHook` that outlives the computation; schedulers call this on the thread
    // that computes.
    let hook = unsafe { &*data.cast::<EvalHook<'_>>() };
    hook.eval.eval(tensor.cast(), ask)
}

/// Computes node after node where `eval` wants to see one, in runs of unwatched nodes otherwise.
fn compute_watched(
    device: &Device,
    nodes: *mut sys::ggml_cgraph,
    eval: &dyn EvalNode,
) -> Result<sys::ggml_status> {
    // SAFETY: a live planned graph; indices run below its node count. `part` has room for all its nodes and
    // refers to them only while they live; computing the parts in order is what computing the whole does.
    unsafe {
        let count = sys::ggml_graph_n_nodes(nodes);
        let size = sys::ggml_graph_overhead_custom(count.max(1) as usize, false) + 256;
        let params =
            sys::ggml_init_params { mem_size: size, mem_buffer: std::ptr::null_mut(), no_alloc: true };
        let ctx = Scratch(
            NonNull::new(sys::ggml_init(params)).ok_or_else(|| Error::Memory("a graph's parts".into()))?,
        );
        let part = sys::ggml_new_graph_custom(ctx.0.as_ptr(), count.max(1) as usize, false);
        for i in 0..count {
            let node = sys::ggml_graph_node(nodes, i);
            sys::ggml_graph_add_node(part, node);
            let wanted = eval.eval(node.cast(), true);
            if !wanted && i + 1 < count {
                continue;
            }
            let status = sys::ggml_backend_graph_compute(device.raw(), part);
            if status != sys::GGML_STATUS_SUCCESS {
                return Ok(status);
            }
            if wanted && !eval.eval(node.cast(), false) {
                return Ok(sys::GGML_STATUS_ABORTED);
            }
            sys::ggml_graph_clear(part);
        }
        Ok(sys::GGML_STATUS_SUCCESS)
    }
}

/// A ggml context freed at the end of its scope.
struct Scratch(NonNull<sys::ggml_context>);

impl Drop for Scratch {
    fn drop(&mut self) {
        // SAFETY: made by the value's creator, freed once.
        unsafe { sys::ggml_free(self.0.as_ptr()) };
    }
}

fn read_f32(tensor: NonNull<sys::ggml_tensor>, out: &mut HostTensor) -> Result<()> {
    // SAFETY: a live, computed, contiguous f32 tensor (see `record`); the vector is made as long as it.
    unsafe {
        let shape = (*tensor.as_ptr()).ne.map(|n| n as usize);
        let count: usize = shape.iter().product();
        if sys::ggml_nbytes(tensor.as_ptr()) != count * 4 || (*tensor.as_ptr()).data.is_null() {
            return Err(Error::Internal("an output that is not f32".into()));
        }
        out.shape.clear();
        out.shape.extend_from_slice(&shape);
        out.data.resize(count, 0.0);
        sys::ggml_backend_tensor_get(tensor.as_ptr(), out.data.as_mut_ptr().cast(), 0, count * 4);
    }
    Ok(())
}

/// Runs `f` with ggml's aborts turned into errors.
fn guarded<R>(f: impl FnOnce() -> R) -> Result<R> {
    sys::guard(f).map_err(|text| Error::Backend(format!("ggml: {text}")))
}
