use super::{Values, relative_rms};
use crate::kernels::*;
use half::{bf16, f16};

#[derive(Clone, Copy)]
struct Case {
    shape: ConvShape,
    kind: WeightType,
    layouts: [MapLayout; 2],
    fused: bool,
    precision: Precision,
}

impl Case {
    fn new(shape: ConvShape) -> Self {
        let layouts = [MapLayout::Planes; 2];
        Self { shape, kind: WeightType::F16, layouts, fused: false, precision: Precision::Accurate }
    }

    fn out(&self) -> [usize; 3] {
        self.shape.output_size().unwrap()
    }

    fn input(&self) -> Vec<f32> {
        Values::new(3).many(self.shape.size.iter().product::<usize>() * self.shape.input * self.shape.batch)
    }

    /// Weight bytes and values.
    fn weights(&self) -> (Vec<u8>, Vec<f32>) {
        let taps: usize = self.shape.kernel.iter().product();
        let values = Values::new(4).many(taps * self.shape.input * self.shape.output);
        match self.kind {
            WeightType::F32 => (values.iter().flat_map(|v| v.to_le_bytes()).collect(), values),
            WeightType::Bf16 => {
                let halves: Vec<bf16> = values.into_iter().map(bf16::from_f32).collect();
                (
                    halves.iter().flat_map(|v| v.to_le_bytes()).collect(),
                    halves.iter().map(|v| v.to_f32()).collect(),
                )
            }
            _ => {
                let halves: Vec<f16> = values.into_iter().map(f16::from_f32).collect();
                (
                    halves.iter().flat_map(|v| v.to_le_bytes()).collect(),
                    halves.iter().map(|v| v.to_f32()).collect(),
                )
            }
        }
    }

    fn outputs(&self) -> usize {
        self.out().iter().product::<usize>() * self.shape.output * self.shape.batch
    }

    fn run(&self, path: CpuPath, nth: usize) -> Vec<f32> {
        let (x, (w, _)) = (self.input(), self.weights());
        let bias = Values::new(5).many(self.shape.output);
        let add = Values::new(6).many(self.shape.output * self.shape.batch);
        let residual = Values::new(7).many(self.outputs());
        let mut y = vec![f32::NAN; self.outputs()];
        let mut plan = Conv::on(path, self.shape, self.kind, self.precision)
            .unwrap()
            .with_layouts(self.layouts[0], self.layouts[1]);
        if self.fused {
            plan = plan.with_activation(Activation::Silu);
        }
        let p = [x.as_ptr() as usize, w.as_ptr() as usize, bias.as_ptr() as usize, add.as_ptr() as usize];
        let (r, out) = (residual.as_ptr() as usize, y.as_mut_ptr() as usize);
        run_team(nth, plan.scratch_bytes(nth), |team| {
            let fused = |p: usize| if self.fused { p as *const f32 } else { std::ptr::null() };
            let args = ConvArgs {
                x: p[0] as *const f32,
                w: p[1] as *const u8,
                bias: fused(p[2]),
                channel_add: fused(p[3]),
                residual: fused(r),
                y: out as *mut f32,
            };
            // SAFETY: all operands are the vectors above.
            assert!(unsafe { plan.run(&args, team) });
        });
        y
    }

    fn index(
        layout: MapLayout,
        size: [usize; 3],
        channels: usize,
        at: [usize; 3],
        c: usize,
        n: usize,
    ) -> usize {
        let [w, h, d] = size;
        let [x, y, z] = at;
        match layout {
            MapLayout::Planes => (((n * channels + c) * d + z) * h + y) * w + x,
            MapLayout::ChannelsLast => (((n * d + z) * h + y) * w + x) * channels + c,
        }
    }

    fn exact(&self) -> Vec<f64> {
        let (s, out) = (&self.shape, self.out());
        let (x, (_, w)) = (self.input(), self.weights());
        let bias = Values::new(5).many(s.output);
        let add = Values::new(6).many(s.output * s.batch);
        let mut y: Vec<f64> = Values::new(7).many(self.outputs()).into_iter().map(f64::from).collect();
        let source = |axis: usize, o: usize, k: usize| -> Option<usize> {
            let i = (o * s.stride[axis] + k) as isize - s.pad[axis][0] as isize;
            let size = s.size[axis] as isize;
            if axis < 2 && s.circular[axis] {
                return Some(i.rem_euclid(size) as usize);
            }
            (0..size).contains(&i).then_some(i as usize)
        };
        let positions = |size: [usize; 3]| {
            (0..size[2])
                .flat_map(move |z| (0..size[1]).flat_map(move |y| (0..size[0]).map(move |x| [x, y, z])))
        };
        for n in 0..s.batch {
            for at in positions(out) {
                for oc in 0..s.output {
                    let mut sum = 0f64;
                    for k in positions(s.kernel) {
                        let (Some(a), Some(b), Some(c)) =
                            (source(0, at[0], k[0]), source(1, at[1], k[1]), source(2, at[2], k[2]))
                        else {
                            continue;
                        };
                        for ic in 0..s.input {
                            let i = Self::index(self.layouts[0], s.size, s.input, [a, b, c], ic, n);
                            let j = Self::index(MapLayout::Planes, s.kernel, s.input, k, ic, oc);
                            sum += f64::from(x[i]) * f64::from(w[j]);
                        }
                    }
                    let i = Self::index(self.layouts[1], out, s.output, at, oc, n);
                    if self.fused {
                        sum += f64::from(bias[oc]) + f64::from(add[n * s.output + oc]);
                        y[i] += sum / (1.0 + (-sum).exp());
                    } else {
                        y[i] = sum;
                    }
                }
            }
        }
        y
    }

    fn check(&self, limit: f64) {
        let exact = self.exact();
        for path in available_paths() {
            let one = self.run(path, 1);
            let error = relative_rms(&one, &exact);
            assert!(error < limit, "{path:?} {:?} {:?}: {error:e}", self.shape, self.layouts);
            for nth in [2, 3] {
                assert!(self.run(path, nth) == one, "{path:?} {:?} differs with {nth} threads", self.shape);
            }
        }
    }
}

const LAYOUTS: [[MapLayout; 2]; 3] = [
    [MapLayout::Planes, MapLayout::Planes],
    [MapLayout::ChannelsLast, MapLayout::ChannelsLast],
    [MapLayout::Planes, MapLayout::ChannelsLast],
];

#[test]
fn sizes_and_kernels() {
    for (w, h, ic, oc, k) in [
        (1, 1, 1, 1, 1),
        (1, 1, 3, 5, 3),
        (5, 7, 4, 33, 3),
        (16, 16, 40, 20, 3),
        (33, 9, 70, 40, 1),
        (64, 20, 32, 64, 3),
        (9, 9, 33, 17, 5),
    ] {
        for layouts in LAYOUTS {
            Case { layouts, ..Case::new(ConvShape::same(w, h, ic, oc, k)) }.check(1e-5);
        }
    }
}

#[test]
fn strides_and_paddings() {
    for stride in [1, 2, 3] {
        for pad in [[0, 0], [1, 1], [0, 1], [2, 0]] {
            for circular in [[false, false], [true, false], [true, true]] {
                let shape = ConvShape {
                    stride: [stride, stride, 1],
                    pad: [pad, [pad[1], pad[0]], [0; 2]],
                    circular,
                    batch: 2,
                    ..ConvShape::same(13, 10, 35, 34, 3)
                };
                for layouts in &LAYOUTS[..2] {
                    Case { layouts: *layouts, ..Case::new(shape) }.check(1e-5);
                }
            }
        }
    }
    let patches = ConvShape { stride: [2, 2, 1], pad: [[0; 2]; 3], ..ConvShape::same(12, 8, 16, 40, 2) };
    Case::new(patches).check(1e-5);
}

#[test]
fn three_dimensions() {
    for (pad, stride) in [([2, 0], 1), ([1, 1], 2), ([0, 0], 1)] {
        let shape = ConvShape {
            size: [8, 6, 5],
            kernel: [3, 3, 3],
            stride: [1, 1, stride],
            pad: [[1, 1], [1, 1], pad],
            ..ConvShape::same(8, 6, 36, 20, 3)
        };
        for layouts in &LAYOUTS[..2] {
            Case { layouts: *layouts, ..Case::new(shape) }.check(1e-5);
        }
    }
}

#[test]
fn weight_types_and_fusion() {
    for kind in [WeightType::F32, WeightType::F16, WeightType::Bf16] {
        for layouts in LAYOUTS {
            let shape = ConvShape { batch: 2, ..ConvShape::same(12, 11, 32, 36, 3) };
            Case { kind, layouts, fused: true, ..Case::new(shape) }.check(1e-5);
        }
    }
    Case { precision: Precision::Fast, ..Case::new(ConvShape::same(12, 11, 32, 36, 3)) }.check(6e-3);
}

#[test]
fn many_slabs_and_chunks() {
    // More than one slab of rows, and more than one chunk of output channels.
    Case::new(ConvShape::same(220, 200, 32, 8, 3)).check(1e-5);
    Case::new(ConvShape::same(4, 4, 512, 96, 3)).check(1e-5);
}

#[test]
fn small_maps_by_panel() {
    // Enough panels of output channels for three threads.
    for (kernel, stride) in [(3, 1), (3, 2), (1, 1)] {
        let shape = ConvShape { stride: [stride, stride, 1], ..ConvShape::same(7, 6, 100, 200, kernel) };
        for layouts in LAYOUTS {
            Case { layouts, fused: true, ..Case::new(shape) }.check(1e-5);
        }
    }
}

#[test]
fn working_memory_is_small() {
    for path in available_paths() {
        for (side, channels) in [(64, 320), (256, 128)] {
            let plan = Conv::on(
                path,
                ConvShape::same(side, side, channels, channels, 3),
                WeightType::F16,
                Precision::Accurate,
            )
            .unwrap();
            let unrolled = side * side * channels * 9 * 2;
            let bytes = plan.scratch_bytes(2);
            assert!(bytes * 10 < unrolled, "{path:?}: {bytes} of {unrolled}");
        }
    }
}

#[test]
fn impossible_shapes_are_refused() {
    for path in available_paths() {
        let none = |shape: ConvShape| Conv::on(path, shape, WeightType::F16, Precision::Accurate).is_none();
        assert!(none(ConvShape::same(0, 4, 4, 4, 3)));
        assert!(none(ConvShape { pad: [[0; 2]; 3], ..ConvShape::same(2, 2, 4, 4, 3) }));
        assert!(none(ConvShape { stride: [0, 1, 1], ..ConvShape::same(4, 4, 4, 4, 3) }));
        assert!(none(ConvShape::same(20, 20, 4, 4, 9)));
    }
}
