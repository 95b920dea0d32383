//! Loops over latents that the compiler turns into vector code.
#![forbid(unsafe_code)]

/// -ln(sigma), the time of exponential integrators; the logarithm in double precision, as the reference's
/// compiler chose it in some samplers.
pub(super) fn log_time(sigma: f32) -> f32 {
    -f64::from(sigma).ln() as f32
}

/// e^t by way of double precision.
pub(super) fn exp(t: f32) -> f32 {
    f64::from(t).exp() as f32
}

/// e^t - 1, the difference in double precision too.
pub(super) fn exp_minus_one(t: f32) -> f32 {
    (f64::from(t).exp() - 1.0) as f32
}

/// `x = f(x, a)`.
pub(super) fn each(x: &mut [f32], a: &[f32], f: impl Fn(f32, f32) -> f32) {
    for (x, &a) in x.iter_mut().zip(a) {
        *x = f(*x, a);
    }
}

/// `x = f(x, a, b)`.
pub(super) fn each2(x: &mut [f32], a: &[f32], b: &[f32], f: impl Fn(f32, f32, f32) -> f32) {
    for ((x, &a), &b) in x.iter_mut().zip(a).zip(b) {
        *x = f(*x, a, b);
    }
}

/// `out = f(a, b)`.
pub(super) fn write(out: &mut [f32], a: &[f32], b: &[f32], f: impl Fn(f32, f32) -> f32) {
    for ((out, &a), &b) in out.iter_mut().zip(a).zip(b) {
        *out = f(a, b);
    }
}
