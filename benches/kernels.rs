//! CPU kernels against ggml's nodes, in one run.
//!
//! `cargo bench --bench kernels -- [filter] [threads] [rounds]`
//!
//! Each line gives medians over interleaved rounds: GFLOP/s of ggml's node, of the kernel in accurate and in fast mode,
//! their ratios to ggml, and the share of the inner product's peak that was measured between the same rounds.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use ggml_sys as sys;
use stable_diffusion::kernels::*;
use std::time::Instant;

/// A ggml graph of one node.
struct Node {
    context: *mut sys::ggml_context,
    graph: *mut sys::ggml_cgraph,
}

impl Node {
    fn new(bytes: usize, build: impl FnOnce(*mut sys::ggml_context) -> *mut sys::ggml_tensor) -> Self {
        let params =
            sys::ggml_init_params { mem_size: bytes, mem_buffer: std::ptr::null_mut(), no_alloc: false };
        // SAFETY: plain construction of one graph in a context that lives as long as the node.
        unsafe {
            let context = sys::ggml_init(params);
            let graph = sys::ggml_new_graph(context);
            sys::ggml_build_forward_expand(graph, build(context));
            Self { context, graph }
        }
    }

    fn run(&self, nth: usize) {
        // SAFETY: the graph belongs to the context, which has room for the work buffer.
        unsafe { sys::ggml_graph_compute_with_ctx(self.context, self.graph, nth as i32) };
        // The work buffer stays in the context; `bytes` has room for all rounds.
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // SAFETY: nothing refers to the context any more.
        unsafe { sys::ggml_free(self.context) };
    }
}

/// A kernel with its scratch memory.
type Kernel<'a> = Box<dyn Fn(&Team) + Sync + 'a>;

struct Case<'a> {
    name: String,
    flop: f64,
    node: Option<Node>,
    /// Accurate, then fast.
    kernels: Vec<(Kernel<'a>, usize)>,
}

/// Seconds of `body`: of wall clock, or of processor time with one thread, so that a busy machine disturbs less.
fn seconds(nth: usize, body: impl FnOnce()) -> f64 {
    let processor = || {
        let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: writes the structure given.
        unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut t) };
        t.tv_sec as f64 + t.tv_nsec as f64 * 1e-9
    };
    let (start, used) = (Instant::now(), processor());
    body();
    if nth == 1 { processor() - used } else { start.elapsed().as_secs_f64() }
}

fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or(f64::NAN)
}

impl Case<'_> {
    fn report(&self, nth: usize, rounds: usize) {
        let path = cpu_path().expect("a kernel path");
        let mut scratch: Vec<Vec<u8>> = self.kernels.iter().map(|k| vec![0; k.1]).collect();
        let mut times = vec![vec![]; self.kernels.len() + 2];
        for _ in 0..rounds {
            times[0].push(seconds(nth, || {
                if let Some(node) = &self.node {
                    node.run(nth);
                }
            }));
            for (i, (kernel, _)) in self.kernels.iter().enumerate() {
                times[i + 1].push(seconds(nth, || run_team_in(nth, &mut scratch[i], kernel)));
            }
            let mut flop = 0.0;
            let time = seconds(1, || flop = inner_product(path, Precision::Accurate, 2000).unwrap_or(0.0));
            times[self.kernels.len() + 1].push(time / flop);
        }
        let medians: Vec<f64> = times.iter_mut().map(|t| median(t)).collect();
        let speed = |i: usize| self.flop / medians[i] * 1e-9;
        let peak = 1e-9 / medians[self.kernels.len() + 1] * nth as f64;
        print!(
            "{:44} {nth} thr  ggml {:7.1}",
            self.name,
            if self.node.is_some() { speed(0) } else { f64::NAN }
        );
        for i in 1..=self.kernels.len() {
            print!("  {} {:7.1} ({:5.1}x)", ["accurate", "fast"][i - 1], speed(i), medians[0] / medians[i]);
        }
        println!("  accurate/peak {:4.0}%", 100.0 * speed(1) / peak);
    }
}

/// A tensor of small values.
fn tensor(context: *mut sys::ggml_context, kind: sys::ggml_type, ne: [usize; 4]) -> *mut sys::ggml_tensor {
    // SAFETY: the context has room; types here are f32, f16 or quantised from f32.
    unsafe {
        let t =
            sys::ggml_new_tensor_4d(context, kind, ne[0] as i64, ne[1] as i64, ne[2] as i64, ne[3] as i64);
        let count: usize = ne.iter().product();
        let mut state = 1u64;
        let values: Vec<f32> = (0..count)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 40) as f32 / (1u64 << 24) as f32 - 0.5
            })
            .collect();
        let rows = (count / ne[0]) as i64;
        if kind == sys::GGML_TYPE_F32 {
            std::ptr::copy_nonoverlapping(values.as_ptr(), (*t).data.cast(), count);
        } else {
            let data = (*t).data;
            sys::ggml_quantize_chunk(kind, values.as_ptr(), data, 0, rows, ne[0] as i64, std::ptr::null());
        }
        t
    }
}

fn weight_type(kind: sys::ggml_type) -> WeightType {
    match kind {
        sys::GGML_TYPE_F32 => WeightType::F32,
        sys::GGML_TYPE_F16 => WeightType::F16,
        sys::GGML_TYPE_BF16 => WeightType::Bf16,
        sys::GGML_TYPE_Q8_0 => WeightType::Q8_0,
        sys::GGML_TYPE_Q4_0 => WeightType::Q4_0,
        _ => {
            // SAFETY: traits of a valid type are static.
            let traits = unsafe { &*sys::ggml_get_type_traits(kind) };
            WeightType::Other {
                block: traits.blck_size as usize,
                bytes: traits.type_size,
                to_float: traits.to_float.unwrap(),
            }
        }
    }
}

/// Address and row stride of a tensor, to be shared with threads.
fn view(t: *mut sys::ggml_tensor) -> (usize, usize) {
    // SAFETY: a tensor of a live context.
    unsafe { ((*t).data as usize, (*t).nb[1]) }
}

const MODES: [Precision; 2] = [Precision::Accurate, Precision::Fast];

fn matmul(kind: sys::ggml_type, label: &str, m: usize, n: usize, k: usize, nth: usize) -> Case<'static> {
    let mut w = std::ptr::null_mut();
    let mut x = w;
    let node = Node::new((m + n) * k * 8 + m * n * 4 + (1 << 28), |context| {
        w = tensor(context, kind, [k, n, 1, 1]);
        x = tensor(context, sys::GGML_TYPE_F32, [k, m, 1, 1]);
        // SAFETY: both tensors have `k` columns.
        unsafe { sys::ggml_mul_mat(context, w, x) }
    });
    let ((w, w_stride), (x, x_stride)) = (view(w), view(x));
    let kernels = MODES.map(|mode| {
        let plan = MatMul::new(m, n, k, weight_type(kind), mode).unwrap();
        let y = vec![0f32; m * n].leak().as_mut_ptr() as usize;
        let kernel: Kernel = Box::new(move |team| {
            let null = std::ptr::null();
            let args = MatMulArgs {
                x: x as *const u8,
                x_stride,
                w: w as *const u8,
                w_stride,
                packed: null,
                bias: null.cast(),
                residual: null.cast(),
                residual_stride: 0,
                y: y as *mut f32,
                y_stride: n * 4,
            };
            // SAFETY: tensors live as long as the case, y forever.
            assert!(unsafe { plan.run(&args, team) });
        });
        (kernel, plan.scratch_bytes(nth))
    });
    let name = format!("product {label} {m} x {n} x {k}");
    Case { name, flop: 2.0 * (m * n * k) as f64, node: Some(node), kernels: kernels.into() }
}

fn conv(side: usize, ic: usize, oc: usize, kernel: usize, nth: usize) -> Case<'static> {
    let mut w = std::ptr::null_mut();
    let mut x = w;
    let taps = kernel * kernel;
    let unrolled = side * side * ic * taps * 2;
    let bytes = unrolled + side * side * (ic + 2 * oc) * 4 + taps * ic * oc * 2 + (1 << 28);
    let node = Node::new(bytes, |context| {
        w = tensor(context, sys::GGML_TYPE_F16, [kernel, kernel, ic, oc]);
        x = tensor(context, sys::GGML_TYPE_F32, [side, side, ic, 1]);
        let pad = kernel as i32 / 2;
        // SAFETY: kernel and map have `ic` channels.
        unsafe { sys::ggml_conv_2d(context, w, x, 1, 1, pad, pad, 1, 1) }
    });
    let ((w, _), (x, _)) = (view(w), view(x));
    let kernels = MODES.map(|mode| {
        let plan = Conv::new(ConvShape::same(side, side, ic, oc, kernel), WeightType::F16, mode).unwrap();
        let y = vec![0f32; side * side * oc].leak().as_mut_ptr() as usize;
        let kernel: Kernel = Box::new(move |team| {
            let null = std::ptr::null();
            let args = ConvArgs {
                x: x as *const f32,
                w: w as *const u8,
                bias: null,
                channel_add: null,
                residual: null,
                y: y as *mut f32,
            };
            // SAFETY: tensors live as long as the case, y forever.
            assert!(unsafe { plan.run(&args, team) });
        });
        (kernel, plan.scratch_bytes(nth))
    });
    let memory = 100.0 * kernels[0].1 as f64 / unrolled as f64;
    let name = format!("conv {kernel}x{kernel} {ic}->{oc} at {side} (mem {memory:.0}%)");
    Case {
        name,
        flop: 2.0 * (side * side * ic * oc * taps) as f64,
        node: Some(node),
        kernels: kernels.into(),
    }
}

fn attention(head: usize, heads: usize, queries: usize, keys: usize, nth: usize) -> Case<'static> {
    let mut t = [std::ptr::null_mut(); 3];
    let scale = 1.0 / (head as f32).sqrt();
    let bytes = head * heads * (2 * queries + 2 * keys) * 4 + (1 << 28);
    let node = Node::new(bytes, |context| {
        t[0] = tensor(context, sys::GGML_TYPE_F32, [head, queries, heads, 1]);
        t[1] = tensor(context, sys::GGML_TYPE_F16, [head, keys, heads, 1]);
        t[2] = tensor(context, sys::GGML_TYPE_F16, [head, keys, heads, 1]);
        // SAFETY: heads and head sizes agree.
        unsafe { sys::ggml_flash_attn_ext(context, t[0], t[1], t[2], std::ptr::null_mut(), scale, 0.0, 0.0) }
    });
    let data = t.map(|t| view(t).0);
    let kernels = MODES.map(|mode| {
        let shape =
            AttentionShape { head, value: head, heads, kv_heads: heads, queries, keys, batch: 1, scale };
        let plan = Attention::new(shape, mode).unwrap();
        let y = vec![0f32; queries * heads * head].leak().as_mut_ptr() as usize;
        let kernel: Kernel = Box::new(move |team| {
            let side = |i: usize, kind: WeightType, bytes: usize, tokens: usize| Heads {
                data: data[i] as *const u8,
                kind,
                strides: [head * bytes, head * tokens * bytes, 0],
            };
            let args = AttentionArgs {
                q: side(0, WeightType::F32, 4, queries),
                k: side(1, WeightType::F16, 2, keys),
                v: side(2, WeightType::F16, 2, keys),
                mask: None,
                y: y as *mut f32,
            };
            // SAFETY: tensors live as long as the case, y forever.
            assert!(unsafe { plan.run(&args, team) });
        });
        (kernel, plan.scratch_bytes(nth))
    });
    let name = format!("attention {heads} x {head}, {queries} x {keys}");
    Case {
        name,
        flop: 4.0 * (queries * keys * heads * head) as f64,
        node: Some(node),
        kernels: kernels.into(),
    }
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let filter = args.first().cloned().unwrap_or_default();
    let number = |i: usize, default: usize| args.get(i).and_then(|a| a.parse().ok()).unwrap_or(default);
    let (nth, rounds) = (number(1, 2), number(2, 5));
    println!("path {:?}; GFLOP/s, medians of {rounds} rounds", cpu_path());
    type Make = Box<dyn Fn() -> Case<'static>>;
    let mut cases: Vec<(&str, Make)> = vec![];
    for side in [640, 1280, 3072] {
        cases.push((
            "product f16",
            Box::new(move || matmul(sys::GGML_TYPE_F16, "f16", 4096, side, side, nth)),
        ));
    }
    for (kind, label) in [
        (sys::GGML_TYPE_F32, "f32"),
        (sys::GGML_TYPE_BF16, "bf16"),
        (sys::GGML_TYPE_Q8_0, "q8_0"),
        (sys::GGML_TYPE_Q4_0, "q4_0"),
        (sys::GGML_TYPE_Q4_K, "q4_K"),
    ] {
        cases.push(("product types", Box::new(move || matmul(kind, label, 4096, 1280, 1280, nth))));
    }
    for (m, n, k) in
        [(4096, 320, 320), (77, 2560, 768), (256, 10240, 1280), (1, 1280, 320), (512, 4096, 4096)]
    {
        cases.push(("product shapes", Box::new(move || matmul(sys::GGML_TYPE_F16, "f16", m, n, k, nth))));
    }
    for (side, ic, oc, k) in [
        (64, 320, 320, 3),
        (32, 640, 640, 3),
        (16, 1280, 1280, 3),
        (8, 1280, 1280, 3),
        (256, 128, 128, 3),
        (64, 320, 320, 1),
    ] {
        cases.push(("conv", Box::new(move || conv(side, ic, oc, k, nth))));
    }
    for (d, h, q, k) in [
        (40, 8, 4096, 4096),
        (40, 8, 4096, 77),
        (80, 8, 1024, 1024),
        (128, 4, 1024, 1024),
        (64, 10, 1024, 1024),
        (512, 1, 4096, 4096),
    ] {
        cases.push(("attention", Box::new(move || attention(d, h, q, k, nth))));
    }
    for (group, make) in &cases {
        if group.contains(&filter) {
            make().report(nth, rounds);
        }
    }
}
