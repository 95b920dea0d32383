use super::*;
use crate::tensor::HostTensor;

fn run(
    inputs: &[(&str, Input<'_>)],
    describe: impl for<'g> FnOnce(&'g Graph, &[Tensor<'g>]) -> crate::Result<Vec<Tensor<'g>>>,
) -> crate::Result<Vec<HostTensor>> {
    let device = Device::cpu(2)?;
    let mut program = Program::build(&device, Math::default(), 256, inputs, describe)?;
    let values: Vec<_> = inputs.iter().map(|(_, i)| *i).collect();
    program.run(&device, &values, &NoWatch)
}

fn tensor(shape: &[usize], f: impl Fn(usize) -> f32) -> HostTensor {
    let n = shape.iter().product();
    HostTensor::new(shape, (0..n).map(f).collect()).unwrap()
}

#[test]
fn linear_adds_bias_and_activation() {
    let storage = Storage::new(2).unwrap();
    let w = storage.declare("w", Type::F32, [3, 2, 1, 1]).unwrap();
    let b = storage.declare("b", Type::F32, [2, 1, 1, 1]).unwrap();
    storage.allocate(&Device::cpu(1).unwrap()).unwrap();
    w.write(0, bytemuck::cast_slice(&[1.0f32, 2.0, 3.0, -1.0, 0.0, 1.0])).unwrap();
    b.write(0, bytemuck::cast_slice(&[0.5f32, -10.0])).unwrap();
    let x = tensor(&[3, 2], |i| i as f32);
    let y = run(&[("x", Input::F32(&x))], |g, t| {
        Ok(vec![t[0].linear(g.weight(&w), Some(g.weight(&b)), Act::Relu)?])
    })
    .unwrap();
    assert_eq!(y[0].data, [8.5, 0.0, 26.5, 0.0]);
    assert_eq!(y[0].shape, [2, 2, 1, 1]);
}

#[test]
fn attention_paths_agree() {
    let (q, k, v) = (
        tensor(&[8, 5, 2], |i| (i as f32 * 0.37).sin()),
        tensor(&[8, 7, 2], |i| (i as f32 * 0.11).cos()),
        tensor(&[8, 7, 2], |i| (i as f32 * 0.05).sin()),
    );
    let device = Device::cpu(1).unwrap();
    let inputs = [("q", Input::F32(&q)), ("k", Input::F32(&k)), ("v", Input::F32(&v))];
    let values = inputs.map(|(_, i)| i);
    let result = |flash| {
        let math = Math { flash, ..Math::default() };
        let mut p = Program::build(&device, math, 64, &inputs, |_, t| {
            Ok(vec![t[0].attention(t[1], t[2], None, 0.35)?])
        })
        .unwrap();
        p.run(&device, &values, &NoWatch).unwrap().remove(0)
    };
    let (a, b) = (result(false), result(true));
    assert_eq!(a.shape, [16, 5, 1, 1]);
    for (x, y) in a.data.iter().zip(&b.data) {
        assert!((x - y).abs() < 2e-3, "{x} {y}");
    }
}

#[test]
fn convolution_wraps_around_when_circular() {
    let storage = Storage::new(1).unwrap();
    let w = storage.declare("w", Type::F32, [3, 1, 1, 1]).unwrap();
    storage.allocate(&Device::cpu(1).unwrap()).unwrap();
    w.write(0, bytemuck::cast_slice(&[1.0f32, 0.0, 0.0])).unwrap();
    let x = tensor(&[4, 1, 1, 1], |i| i as f32 + 1.0);
    for (circular, expected) in [(false, [0.0, 1.0, 2.0, 3.0]), (true, [4.0, 1.0, 2.0, 3.0])] {
        let conv = Conv2d { pad: [1, 1, 0, 0], circular: [circular, false], ..Conv2d::default() };
        let y =
            run(&[("x", Input::F32(&x))], |g, t| Ok(vec![t[0].conv2d(g.weight(&w), None, conv)?])).unwrap();
        assert_eq!(y[0].data, expected);
    }
}

#[test]
fn bad_shapes_are_errors_that_name_the_operation() {
    let (a, b) = (tensor(&[3, 2], |_| 0.0), tensor(&[4, 2], |_| 0.0));
    let inputs = [("a", Input::F32(&a)), ("b", Input::F32(&b))];
    for (op, f) in [
        (
            "mul_mat",
            (|t: &[Tensor<'_>]| t[0].mul_mat(t[1]).map(|_| ())) as fn(&[Tensor<'_>]) -> crate::Result<()>,
        ),
        ("add", |t| t[0].add(t[1]).map(|_| ())),
        ("concat", |t| t[0].concat(t[1], 1).map(|_| ())),
        ("reshape", |t| t[0].reshape([7, 1, 1, 1]).map(|_| ())),
        ("narrow", |t| t[0].narrow(1, 1, 2).map(|_| ())),
        ("group_norm", |t| t[0].group_norm(32, 1e-6).map(|_| ())),
        ("attention", |t| t[0].attention(t[1], t[1], None, 1.0).map(|_| ())),
    ] {
        let error = run(&inputs, |_, t| f(t).map(|()| vec![])).unwrap_err();
        assert!(error.to_string().starts_with(op), "{op}: {error}");
    }
}

#[test]
fn a_program_runs_again_with_new_inputs_and_notices_moved_weights() {
    let device = Device::cpu(1).unwrap();
    let storage = Storage::new(1).unwrap();
    let w = storage.declare("w", Type::F32, [2, 1, 1, 1]).unwrap();
    storage.allocate(&device).unwrap();
    w.write(0, bytemuck::cast_slice(&[2.0f32, 3.0])).unwrap();
    let x = tensor(&[2], |i| i as f32 + 1.0);
    let mut p = Program::build(&device, Math::default(), 64, &[("x", Input::F32(&x))], |g, t| {
        Ok(vec![t[0].mul(g.weight(&w))?])
    })
    .unwrap();
    assert_eq!(p.run(&device, &[Input::F32(&x)], &NoWatch).unwrap()[0].data, [2.0, 6.0]);
    let z = tensor(&[2], |_| 1.0);
    assert_eq!(p.run(&device, &[Input::F32(&z)], &NoWatch).unwrap()[0].data, [2.0, 3.0]);
    assert!(p.run(&device, &[Input::F32(&tensor(&[3], |_| 0.0))], &NoWatch).is_err());
    storage.release();
    assert!(!p.is_current());
    assert!(p.run(&device, &[Input::F32(&z)], &NoWatch).is_err());
}

#[test]
fn a_cancelled_run_says_so() {
    struct Stop;
    impl Watch for Stop {
        fn cancelled(&self) -> bool {
            true
        }
    }
    let device = Device::cpu(2).unwrap();
    let x = tensor(&[2], |i| i as f32);
    let mut p =
        Program::build(&device, Math::default(), 64, &[("x", Input::F32(&x))], |_, t| Ok(vec![t[0].exp()?]))
            .unwrap();
    assert!(matches!(p.run(&device, &[Input::F32(&x)], &Stop), Err(crate::Error::Cancelled)));
    assert!(p.run(&device, &[Input::F32(&x)], &NoWatch).is_ok());
}

#[test]
fn quantised_rows_come_back_close() {
    let values: Vec<f32> = (0..256).map(|i| (i as f32 * 0.1).sin()).collect();
    for (name, limit) in [("f16", 1e-3), ("q8_0", 1e-2), ("q4_K", 0.1), ("q6_K", 0.04)] {
        let ty = (0..43).filter_map(Type::from_ggml).find(|t| t.name() == name).unwrap();
        let mut bytes = vec![0; ty.row_bytes(256).unwrap()];
        quantize(ty, &values, 256, None, &mut bytes).unwrap();
        let mut back = vec![0.0; 256];
        dequantize(ty, &bytes, &mut back).unwrap();
        let worst = values.iter().zip(&back).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(worst < limit, "{name}: {worst}");
    }
}
