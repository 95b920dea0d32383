use super::{Values, relative_rms};
use crate::kernels::*;
use ggml_sys as sys;

/// Random rows of `k` values in ggml type `kind`, and what ggml reads back; `None` for types that hold no such rows.
fn rows(kind: sys::ggml_type, n: usize, k: usize) -> Option<(WeightType, Vec<u8>, Vec<f32>)> {
    // SAFETY: `kind` is below the count; buffers have the sizes that ggml tells.
    unsafe {
        let traits = &*sys::ggml_get_type_traits(kind);
        let to_float = traits.to_float?;
        let block = traits.blck_size as usize;
        if block == 0 || !k.is_multiple_of(block) || traits.type_size == 0 {
            return None;
        }
        let row = sys::ggml_row_size(kind, k as i64);
        let mut bytes = vec![0u8; row * n];
        // Any code is a valid value; without the upper bits no scale is infinite. Quantising would take minutes for
        // types that search their codes.
        let mut random = Values::new(21);
        bytes.iter_mut().for_each(|b| *b = ((random.next() + 1.0) * 32.0) as u8 & 0x3f);
        let mut values = vec![0f32; n * k];
        to_float(bytes.as_ptr().cast(), values.as_mut_ptr(), (n * k) as i64);
        let weight = match kind {
            sys::GGML_TYPE_F16 => WeightType::F16,
            sys::GGML_TYPE_BF16 => WeightType::Bf16,
            sys::GGML_TYPE_Q8_0 => WeightType::Q8_0,
            sys::GGML_TYPE_Q4_0 => WeightType::Q4_0,
            sys::GGML_TYPE_Q4_1 => WeightType::Q4_1,
            sys::GGML_TYPE_Q5_0 => WeightType::Q5_0,
            sys::GGML_TYPE_Q5_1 => WeightType::Q5_1,
            _ => WeightType::Other { block, bytes: traits.type_size, to_float },
        };
        Some((weight, bytes, values))
    }
}

fn check(kind: sys::ggml_type) -> bool {
    let (m, n, k) = (20, 36, 512);
    let Some((weight, bytes, values)) = rows(kind, n, k) else { return false };
    let x = Values::new(22).many(m * k);
    let exact: Vec<f64> = (0..m * n)
        .map(|i| {
            let (row, column) = (&x[i / n * k..][..k], &values[i % n * k..][..k]);
            row.iter().zip(column).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum()
        })
        .collect();
    for path in available_paths() {
        let mut y = vec![0f32; m * n];
        let plan = MatMul::on(path, m, n, k, weight, Precision::Accurate).unwrap();
        let [px, pw] = [x.as_ptr() as usize, bytes.as_ptr() as usize];
        let out = y.as_mut_ptr() as usize;
        run_team(2, plan.scratch_bytes(2), |team| {
            let args = MatMulArgs {
                x: px as *const u8,
                x_stride: k * 4,
                w: pw as *const u8,
                w_stride: bytes.len() / n,
                packed: std::ptr::null(),
                bias: std::ptr::null(),
                residual: std::ptr::null(),
                residual_stride: 0,
                y: out as *mut f32,
                y_stride: n * 4,
            };
            // SAFETY: all operands are the vectors above.
            assert!(unsafe { plan.run(&args, team) });
        });
        let error = relative_rms(&y, &exact);
        assert!(error < 1e-5, "{path:?} type {kind}: {error:e}");
    }
    true
}

#[test]
fn every_type_that_ggml_reads_back() {
    // SAFETY: a plain call that fills ggml's tables.
    unsafe { sys::ggml_cpu_init() };
    let checked = (0..sys::GGML_TYPE_COUNT).filter(|&kind| kind != sys::GGML_TYPE_F32 && check(kind)).count();
    assert!(checked >= 20, "only {checked} types");
}
