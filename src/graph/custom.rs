//! Custom nodes: CPU kernels in the place of ggml's nodes.
//!
//! ggml runs a custom node on all threads of its pool, one node after the other, so that one barrier and one piece
//! of scratch memory serve all nodes of a graph.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

use ggml_sys as sys;

use super::description::Graph;
use super::ops_linear::Conv2d;
use super::ops_math::Act;
use super::tensor::Tensor;
use super::types::Type;
use crate::error::{Error, Result};
use crate::kernels::{
    Activation, Attention, AttentionArgs, AttentionShape, Barrier, Conv, ConvArgs, ConvShape, GluArgs,
    GroupNorm, GroupNormArgs, Heads, MapLayout, MatMul, MatMulArgs, NormArgs, Precision, RowKernels, RowNorm,
    Team, WeightType,
};

/// What the custom nodes of one graph share.
#[derive(Default)]
pub(super) struct Shared {
    barrier: Barrier,
    scratch: AtomicPtr<u8>,
    scratch_len: AtomicUsize,
    failed: AtomicBool,
    need: Cell<usize>,
    memory: Cell<Vec<u8>>,
}

impl Shared {
    /// Gets the scratch memory that the nodes made so far need.
    pub(super) fn allocate(&self) -> Result<()> {
        let mut memory = Vec::new();
        let need = self.need.get();
        memory.try_reserve_exact(need).map_err(|_| Error::Memory(format!("{need} bytes of scratch")))?;
        memory.resize(need, 0);
        self.scratch.store(memory.as_mut_ptr(), Ordering::Release);
        self.scratch_len.store(need, Ordering::Release);
        self.memory.set(memory);
        Ok(())
    }

    /// Whether a node could not run since the last call.
    pub(super) fn take_failure(&self) -> bool {
        self.failed.swap(false, Ordering::AcqRel)
    }

    fn reserve(&self, bytes: usize) {
        self.need.set(self.need.get().max(bytes));
    }
}

/// One custom node; ggml keeps the address as the node's user data.
pub(super) struct NodeData {
    job: Job,
    shared: *const Shared,
}

/// What a node computes; operands are the node's sources, in the order given here.
enum Job {
    /// x, weight, bias if there is one.
    Linear(MatMul),
    /// x, weight, bias if there is one.
    Conv(Conv),
    /// q, k, v, mask if there is one.
    Attention(Attention),
    /// x, weight, bias.
    GroupNorm(GroupNorm),
    /// x, then weight and bias where said.
    Norm { kernels: RowKernels, kind: RowNorm, eps: f32, weight: bool, bias: bool },
    /// x; halves of its rows are value and gate.
    Glu { kernels: RowKernels, act: Activation, gate_first: bool },
    /// x.
    Activate { kernels: RowKernels, act: Activation },
    /// x `[C, W, H, N]`.
    Upsample { factor: usize },
}

impl Graph {
    /// Whether kernels stand in for ggml's nodes, so that feature maps keep their channels fastest.
    pub fn has_kernels(&self) -> bool {
        self.math.kernels && RowKernels::new().is_some()
    }

    fn precision(&self) -> Precision {
        if self.math.fast { Precision::Fast } else { Precision::Accurate }
    }
}

/// The kernels' name of an activation.
fn activation(act: Act) -> Activation {
    match act {
        Act::None => Activation::None,
        Act::Silu => Activation::Silu,
        Act::Gelu => Activation::Gelu,
        Act::GeluQuick => Activation::GeluQuick,
        Act::GeluErf => Activation::GeluErf,
        Act::Relu => Activation::Relu,
    }
}

/// The kernels' name of a type; `None` for those they cannot read.
fn weight_type(ty: Type) -> Option<WeightType> {
    Some(match ty.0 {
        sys::GGML_TYPE_F32 => WeightType::F32,
        sys::GGML_TYPE_F16 => WeightType::F16,
        sys::GGML_TYPE_BF16 => WeightType::Bf16,
        sys::GGML_TYPE_Q8_0 => WeightType::Q8_0,
        sys::GGML_TYPE_Q4_0 => WeightType::Q4_0,
        sys::GGML_TYPE_Q4_1 => WeightType::Q4_1,
        sys::GGML_TYPE_Q5_0 => WeightType::Q5_0,
        sys::GGML_TYPE_Q5_1 => WeightType::Q5_1,
        _ if ty.is_quantized() => {
            // SAFETY: traits of a valid type are a static table.
            let to_float = unsafe { (*sys::ggml_get_type_traits(ty.0)).to_float }?;
            WeightType::Other { block: ty.block(), bytes: ty.bytes(), to_float }
        }
        _ => return None,
    })
}

/// Adds a node of `shape` (f32) that computes `job` from `operands` with `scratch` bytes.
fn node<'g>(
    graph: &'g Graph,
    shape: [usize; 4],
    operands: &[Tensor<'g>],
    job: Job,
    scratch: usize,
) -> Result<Tensor<'g>> {
    for operand in operands {
        operand.same_graph("custom", operands[0])?;
    }
    graph.shared.reserve(scratch);
    let data = Box::new(NodeData { job, shared: &raw const *graph.shared });
    let address = (&raw const *data).cast_mut().cast::<c_void>();
    graph.custom.borrow_mut().push(data);
    let mut sources: Vec<_> = operands.iter().map(|t| t.raw()).collect();
    let [a, b, c, d] = shape.map(|n| n as i64);
    graph.reserve(1)?;
    // SAFETY: at most four live operands; the node data are boxed and live as long as the graph.
    let ptr = unsafe {
        sys::ggml_custom_4d(
            graph.ctx.as_ptr(),
            sys::GGML_TYPE_F32,
            a,
            b,
            c,
            d,
            sources.as_mut_ptr(),
            sources.len() as c_int,
            Some(run_node),
            sys::GGML_N_TASKS_MAX as c_int,
            address,
        )
    };
    graph.wrap(ptr)
}

/// A kernel for `x` times `weight`, or `None` for ggml's own path.
pub(super) fn linear<'g>(
    x: Tensor<'g>,
    weight: Tensor<'g>,
    bias: Option<Tensor<'g>>,
    act: Act,
) -> Result<Option<Tensor<'g>>> {
    let graph = x.graph();
    let (Some(ty), true) = (weight_type(weight.ty()), graph.has_kernels()) else { return Ok(None) };
    let (k, n) = (weight.dim(0), weight.dim(1));
    let Some(plan) = MatMul::new(x.count() / k, n, k, ty, graph.precision()) else { return Ok(None) };
    let plan = plan.with_activation(activation(act));
    let x = x.cont()?;
    let [_, a, b, c] = x.shape();
    let mut operands = vec![x, weight];
    operands.extend(bias);
    let scratch = plan.scratch_bytes(graph.threads);
    node(graph, [n, a, b, c], &operands, Job::Linear(plan), scratch).map(Some)
}

/// A kernel for attention, or `None` for ggml's own path. The mask may be shared by queries, heads and batch.
pub(super) fn attention<'g>(
    q: Tensor<'g>,
    k: Tensor<'g>,
    v: Tensor<'g>,
    mask: Option<Tensor<'g>>,
    scale: f32,
) -> Result<Option<Tensor<'g>>> {
    let graph = q.graph();
    let [head, queries, heads, batch] = q.shape();
    let [value, keys, kv_heads, _] = v.shape();
    let whole = |extent: usize, of: usize| extent == 1 || extent == of;
    let mask_fits =
        mask.is_none_or(|m| whole(m.dim(1), queries) && whole(m.dim(2), heads) && whole(m.dim(3), batch));
    if !graph.has_kernels() || !mask_fits {
        return Ok(None);
    }
    let shape = AttentionShape { head, value, heads, kv_heads, queries, keys, batch, scale };
    let Some(plan) = Attention::new(shape, graph.precision()) else { return Ok(None) };
    let mut operands = vec![q, k, v];
    operands.extend(mask.map(|m| m.cont()).transpose()?);
    let scratch = plan.scratch_bytes(graph.threads);
    let y = node(graph, [value, heads, queries, batch], &operands, Job::Attention(plan), scratch)?;
    y.reshape([value * heads, queries, batch, 1]).map(Some)
}

/// A convolution of a map with its channels fastest, `[C, W, H, N]`.
pub(super) fn conv2d_last<'g>(
    x: Tensor<'g>,
    weight: Tensor<'g>,
    bias: Option<Tensor<'g>>,
    conv: &Conv2d,
) -> Result<Option<Tensor<'g>>> {
    let graph = x.graph();
    let [c, w, h, n] = x.shape();
    let [kw, kh, input, output] = weight.shape();
    let [left, right, top, bottom] = conv.pad;
    let shape = ConvShape {
        size: [w, h, 1],
        input: c,
        output,
        batch: n,
        kernel: [kw, kh, 1],
        stride: [conv.stride[0], conv.stride[1], 1],
        pad: [[left, right], [top, bottom], [0; 2]],
        circular: conv.circular,
    };
    let plan = weight_type(weight.ty()).filter(|_| input == c && conv.dilation == [1; 2]);
    let plan = plan.and_then(|ty| Conv::new(shape, ty, graph.precision())).zip(shape.output_size());
    let Some((plan, [out_w, out_h, _])) = plan else {
        return Ok(None);
    };
    x.check_bias("conv2d", bias, output)?;
    let plan = plan.with_layouts(MapLayout::ChannelsLast, MapLayout::ChannelsLast);
    let mut operands = vec![x.cont()?, weight.cont()?];
    operands.extend(bias);
    let scratch = plan.scratch_bytes(graph.threads);
    node(graph, [output, out_w, out_h, n], &operands, Job::Conv(plan), scratch).map(Some)
}

/// Group norm of a map with its channels fastest, scaled, shifted, activated.
pub(super) fn group_norm_last<'g>(
    x: Tensor<'g>,
    weight: Tensor<'g>,
    bias: Tensor<'g>,
    (groups, eps, act): (usize, f32, Act),
) -> Result<Tensor<'g>> {
    let graph = x.graph();
    let [c, w, h, n] = x.shape();
    let plan = GroupNorm::new(w * h, c, groups, n, eps)
        .ok_or_else(|| Error::shape("group_norm", format!("{x:?}: no kernel for {groups} groups")))?
        .with_activation(activation(act))
        .with_layout(MapLayout::ChannelsLast);
    x.check_bias("group_norm", Some(weight), c)?;
    x.check_bias("group_norm", Some(bias), c)?;
    let scratch = plan.scratch_bytes(graph.threads);
    node(graph, [c, w, h, n], &[x.cont()?, weight, bias], Job::GroupNorm(plan), scratch)
}

/// Norm of rows with scale and shift, or `None` for ggml's own path.
pub(super) fn norm<'g>(
    x: Tensor<'g>,
    layer: bool,
    (weight, bias): (Option<Tensor<'g>>, Option<Tensor<'g>>),
    eps: f32,
) -> Result<Option<Tensor<'g>>> {
    let graph = x.graph();
    let Some(kernels) = RowKernels::new().filter(|_| graph.math.kernels) else { return Ok(None) };
    if weight.is_none() && bias.is_some() {
        return Ok(None);
    }
    x.check_bias("norm", weight, x.dim(0))?;
    x.check_bias("norm", bias, x.dim(0))?;
    let x = x.cont()?;
    let kind = if layer { RowNorm::Layer } else { RowNorm::Rms };
    let job = Job::Norm { kernels, kind, eps, weight: weight.is_some(), bias: bias.is_some() };
    let operands: Vec<_> = [Some(x), weight, bias].into_iter().flatten().collect();
    node(graph, x.shape(), &operands, job, 0).map(Some)
}

/// Value times activated gate, the halves of each row, or `None` for ggml's own path.
pub(super) fn glu(x: Tensor<'_>, act: Act, gate_first: bool) -> Result<Option<Tensor<'_>>> {
    let graph = x.graph();
    let Some(kernels) = RowKernels::new().filter(|_| graph.math.kernels) else { return Ok(None) };
    let x = x.cont()?;
    let [width, a, b, c] = x.shape();
    let job = Job::Glu { kernels, act: activation(act), gate_first };
    node(graph, [width / 2, a, b, c], &[x], job, 0).map(Some)
}

/// An activation, or `None` for ggml's own path.
pub(super) fn activate(x: Tensor<'_>, act: Act) -> Result<Option<Tensor<'_>>> {
    let graph = x.graph();
    let Some(kernels) = RowKernels::new().filter(|_| graph.math.kernels) else { return Ok(None) };
    let x = x.cont()?;
    node(graph, x.shape(), &[x], Job::Activate { kernels, act: activation(act) }, 0).map(Some)
}

/// Each pixel of `[C, W, H, N]` becomes `factor` x `factor` equal ones.
pub(super) fn upsample_last(x: Tensor<'_>, factor: usize) -> Result<Tensor<'_>> {
    let x = x.cont()?;
    let [c, w, h, n] = x.shape();
    node(x.graph(), [c, w * factor, h * factor, n], &[x], Job::Upsample { factor }, 0)
}

/// What ggml calls for each custom node, on every thread.
unsafe extern "C-unwind" fn run_node(dst: *mut sys::ggml_tensor, ith: c_int, nth: c_int, data: *mut c_void) {
    // SAFETY: `node` passes boxed data that live as long as the graph; ggml passes the node itself.
    let (dst, data) = unsafe { (&*dst, &*data.cast::<NodeData>()) };
    // SAFETY: the graph owns `Shared` and outlives its computation.
    let shared = unsafe { &*data.shared };
    let team = Team {
        ith: ith as usize,
        nth: nth as usize,
        barrier: &shared.barrier,
        scratch: shared.scratch.load(Ordering::Acquire),
        scratch_len: shared.scratch_len.load(Ordering::Acquire),
    };
    // SAFETY: operands were checked when the node was made; all threads of ggml's pool call this with the same node.
    if !unsafe { run_job(&data.job, dst, &team) } {
        shared.failed.store(true, Ordering::Release);
    }
}

/// # Safety
/// `dst` is a node made by [`node`] for `job`, its operands have memory, and all threads of `team` call this.
unsafe fn run_job(job: &Job, dst: &sys::ggml_tensor, team: &Team<'_>) -> bool {
    let source = |i: usize| {
        // SAFETY: `i` is below the number of operands that `job` has, all live.
        unsafe { &*dst.src[i] }
    };
    let optional =
        |i: usize| if dst.src[i].is_null() { std::ptr::null() } else { source(i).data.cast::<f32>() };
    let y = dst.data.cast::<f32>();
    // SAFETY: shapes and types of the operands are those the plan was made from, contiguous where the kernel wants it;
    // `dst` is a tensor of its own. The pointers come from live tensors with memory.
    unsafe {
        match job {
            Job::Linear(plan) => {
                let args = MatMulArgs {
                    x: source(0).data.cast(),
                    x_stride: source(0).nb[1],
                    w: source(1).data.cast(),
                    w_stride: source(1).nb[1],
                    packed: std::ptr::null(),
                    bias: optional(2),
                    residual: std::ptr::null(),
                    residual_stride: 0,
                    y,
                    y_stride: dst.nb[1],
                };
                plan.run(&args, team)
            }
            Job::Conv(plan) => {
                let args = ConvArgs {
                    x: source(0).data.cast(),
                    w: source(1).data.cast(),
                    bias: optional(2),
                    channel_add: std::ptr::null(),
                    residual: std::ptr::null(),
                    y,
                };
                plan.run(&args, team)
            }
            Job::Attention(plan) => {
                let mask = (!dst.src[3].is_null()).then(|| heads(source(3), true));
                let [q, k, v] = [0, 1, 2].map(|i| heads(source(i), false));
                plan.run(&AttentionArgs { q, k, v, mask, y }, team)
            }
            Job::GroupNorm(plan) => plan.run(
                &GroupNormArgs { x: source(0).data.cast(), y, weight: optional(1), bias: optional(2) },
                team,
            ),
            _ => {
                run_rows(job, source(0), (optional(1), optional(2)), dst, team);
                true
            }
        }
    }
}

/// The jobs that go row by row and need no scratch memory.
///
/// # Safety
/// As [`run_job`].
unsafe fn run_rows(
    job: &Job,
    x: &sys::ggml_tensor,
    (first, second): (*const f32, *const f32),
    dst: &sys::ggml_tensor,
    team: &Team<'_>,
) {
    let (from, y) = (x.data.cast::<f32>().cast_const(), dst.data.cast::<f32>());
    let width = x.ne[0] as usize;
    let rows = (x.ne[1] * x.ne[2] * x.ne[3]) as usize;
    // SAFETY: contiguous tensors of these shapes, checked when the node was made.
    unsafe {
        match job {
            Job::Norm { kernels, kind, eps, weight, bias } => {
                let none = std::ptr::null();
                let args = NormArgs {
                    x: from,
                    y,
                    rows,
                    width,
                    eps: *eps,
                    weight: if *weight { first } else { none },
                    bias: if *bias { second } else { none },
                    scale: none,
                    shift: none,
                    modulation_stride: 0,
                    rows_per_sample: rows.max(1),
                };
                kernels.norm(*kind, &args, team);
            }
            Job::Glu { kernels, act, gate_first } => {
                let half = width / 2;
                let (value, gate) = if *gate_first { (from.add(half), from) } else { (from, from.add(half)) };
                kernels.glu(*act, &GluArgs { value, gate, x_stride: width, y, rows, width: half }, team);
            }
            Job::Activate { kernels, act } => kernels.activate(*act, from, y, rows * width, team),
            Job::Upsample { factor } => {
                let [c, w, h, n] = x.ne.map(|e| e as usize);
                upsample_rows(from, y, ([c, w, h * n], *factor), team);
            }
            _ => {}
        }
    }
}

/// Copies each pixel of `[C, W, H]` `factor` times along both axes, output row by output row.
///
/// # Safety
/// `x` holds `c * w * h` values, `y` `factor * factor` times as many; all threads of `team` call this.
unsafe fn upsample_rows(
    x: *const f32,
    y: *mut f32,
    ([c, w, h], factor): ([usize; 3], usize),
    team: &Team<'_>,
) {
    let rows = h * factor;
    for row in team.ith * rows / team.nth..(team.ith + 1) * rows / team.nth {
        for column in 0..w * factor {
            let (from, to) = ((row / factor * w + column / factor) * c, (row * w * factor + column) * c);
            // SAFETY: row and column are inside the map; each output row is one thread's.
            unsafe { std::ptr::copy_nonoverlapping(x.add(from), y.add(to), c) };
        }
    }
}

/// An operand of attention; a mask's axes of extent 1 are shared.
fn heads(tensor: &sys::ggml_tensor, shared: bool) -> Heads {
    let stride = |axis: usize| if shared && tensor.ne[axis] == 1 { 0 } else { tensor.nb[axis] };
    Heads { data: tensor.data.cast(), kind: WeightType::F32, strides: [stride(1), stride(2), stride(3)] }
}
