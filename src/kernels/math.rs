//! Scalar functions written so that loops over them become vector code, and activations.
//!
//! Every function here is inlined into callers that enable AVX-512 or AVX2 with FMA.

/// Activation fused into a product.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Activation {
    /// The value itself.
    #[default]
    None,
    /// `x * sigmoid(x)`.
    Silu,
    /// Tanh approximation of GELU.
    Gelu,
    /// `x * sigmoid(1.702 x)`.
    GeluQuick,
    /// GELU with the error function.
    GeluErf,
    /// `max(x, 0)`.
    Relu,
}

/// `e^x` with relative error below 2e-7; 0 below -87.3, finite above 88.
#[inline(always)]
pub(super) fn exp(x: f32) -> f32 {
    const ROUND: f32 = 12_582_912.0;
    let clamped = x.clamp(-87.33, 88.0);
    let shifted = clamped.mul_add(std::f32::consts::LOG2_E, ROUND);
    let n = shifted - ROUND;
    // ln 2 in two parts, the first short enough that n times it is exact.
    let r = n.mul_add(-0.693_145_75, clamped);
    let r = n.mul_add(-1.428_606_8e-6, r);
    let p = r.mul_add(1.987_569_2e-4, 1.398_199_9e-3);
    let p = p.mul_add(r, 8.333_452e-3);
    let p = p.mul_add(r, 4.166_579_6e-2);
    let p = p.mul_add(r, 0.166_666_65);
    let p = p.mul_add(r, 0.5);
    let p = p.mul_add(r * r, r) + 1.0;
    let power = f32::from_bits((shifted.to_bits() << 23).wrapping_add(0x3f80_0000));
    if x < -87.33 { 0.0 } else { p * power }
}

/// `2^x` with relative error below 2e-7 for `x` up to 126; 0 below -126.
#[inline(always)]
pub(super) fn exp2(x: f32) -> f32 {
    const ROUND: f32 = 12_582_912.0;
    let clamped = x.max(-126.0);
    let shifted = clamped + ROUND;
    let r = clamped - (shifted - ROUND);
    // Coefficients of 2^r on -1/2 .. 1/2 (ln 2 to the n over n factorial).
    let p = r.mul_add(1.540_353e-4, 1.333_355_8e-3);
    let p = p.mul_add(r, 9.618_129e-3);
    let p = p.mul_add(r, 5.550_411e-2);
    let p = p.mul_add(r, 0.240_226_5);
    let p = p.mul_add(r, std::f32::consts::LN_2);
    let p = p.mul_add(r, 1.0);
    let power = f32::from_bits((shifted.to_bits() << 23).wrapping_add(0x3f80_0000));
    if x < -126.0 { 0.0 } else { p * power }
}

/// `x * sigmoid(x)`.
#[inline(always)]
pub(super) fn silu(x: f32) -> f32 {
    x / (1.0 + exp(-x))
}

/// Tanh approximation of GELU.
#[inline(always)]
pub(super) fn gelu(x: f32) -> f32 {
    // 0.5 (1 + tanh u) = 1 / (1 + e^(-2 u)).
    let u = 0.797_884_6 * x * (0.044_715 * x).mul_add(x, 1.0);
    x / (1.0 + exp(-2.0 * u))
}

/// `x * sigmoid(1.702 x)`.
#[inline(always)]
pub(super) fn gelu_quick(x: f32) -> f32 {
    x / (1.0 + exp(-1.702 * x))
}

/// GELU with the error function (Abramowitz and Stegun 7.1.26, absolute error 1.5e-7).
#[inline(always)]
pub(super) fn gelu_erf(x: f32) -> f32 {
    let z = x.abs() * std::f32::consts::FRAC_1_SQRT_2;
    let t = 1.0 / z.mul_add(0.327_591_1, 1.0);
    let p = t.mul_add(1.061_405_4, -1.453_152);
    let p = p.mul_add(t, 1.421_413_7);
    let p = p.mul_add(t, -0.284_496_74);
    let p = p.mul_add(t, 0.254_829_6);
    // erfc(z) / 2 of the positive argument.
    let tail = 0.5 * p * t * exp(-z * z);
    if x < 0.0 { x * tail } else { x * (1.0 - tail) }
}

/// Applies `activation` to every value.
#[inline(always)]
pub(super) fn activate(activation: Activation, values: &mut [f32]) {
    match activation {
        Activation::None => {}
        Activation::Silu => values.iter_mut().for_each(|v| *v = silu(*v)),
        Activation::Gelu => values.iter_mut().for_each(|v| *v = gelu(*v)),
        Activation::GeluQuick => values.iter_mut().for_each(|v| *v = gelu_quick(*v)),
        Activation::GeluErf => values.iter_mut().for_each(|v| *v = gelu_erf(*v)),
        Activation::Relu => values.iter_mut().for_each(|v| *v = v.max(0.0)),
    }
}

/// Defines `$name(isa, args)` that runs the inlined body `$body(args)` compiled for the features of `isa`.
///
/// `$body` must be `#[inline(always)]`; its safety contract, if any, is that of the function defined.
macro_rules! dispatch {
    ($(#[$meta:meta])* $vis:vis unsafe fn $name:ident = $body:ident ( $($arg:ident : $ty:ty),* $(,)? )) => {
        $(#[$meta])*
        #[allow(clippy::too_many_arguments)]
        $vis unsafe fn $name(isa: $crate::kernels::isa::Isa, $($arg: $ty),*) {
            #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
            #[allow(clippy::too_many_arguments)]
            unsafe fn wide($($arg: $ty),*) {
                // SAFETY: the contract of the body is the caller's.
                unsafe { $body($($arg),*) }
            }
            #[target_feature(enable = "avx2,fma,f16c")]
            #[allow(clippy::too_many_arguments)]
            unsafe fn narrow($($arg: $ty),*) {
                // SAFETY: the contract of the body is the caller's.
                unsafe { $body($($arg),*) }
            }
            // SAFETY: `Isa` values prove their features; the rest is the caller's promise.
            unsafe {
                match isa {
                    $crate::kernels::isa::Isa::Avx2 => narrow($($arg),*),
                    _ => wide($($arg),*),
                }
            }
        }
    };
}
pub(super) use dispatch;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_match_double_precision() {
        let erf = |x: f64| {
            // Series; exact enough within the range used here.
            let (mut sum, mut term) = (x, x);
            for n in 1..200 {
                term *= -x * x / f64::from(n);
                sum += term / f64::from(2 * n + 1);
            }
            sum * 2.0 / std::f64::consts::PI.sqrt()
        };
        for i in -4000..4000 {
            let x = i as f32 * 0.001;
            let d = f64::from(x);
            assert!((f64::from(exp(x)) / d.exp() - 1.0).abs() < 3e-7, "exp {x}");
            assert!((f64::from(exp2(x * 20.0)) / f64::from(x * 20.0).exp2() - 1.0).abs() < 3e-7, "exp2 {x}");
            let close = |ours: f32, exact: f64| {
                assert!((f64::from(ours) - exact).abs() < 1e-6, "{x}: {ours} {exact}")
            };
            close(silu(x), d / (1.0 + (-d).exp()));
            close(gelu_quick(x), d / (1.0 + (-1.702 * d).exp()));
            close(
                gelu(x),
                0.5 * d * (1.0 + (0.797_884_560_802_865_4 * d * (1.0 + 0.044_715 * d * d)).tanh()),
            );
            close(gelu_erf(x), 0.5 * d * (1.0 + erf(d / std::f64::consts::SQRT_2)));
        }
        assert_eq!(exp(f32::NEG_INFINITY), 0.0);
        assert_eq!(exp2(f32::NEG_INFINITY), 0.0);
        assert!((f64::from(exp(-80.0)) / (-80f64).exp() - 1.0).abs() < 1e-5);
        assert!(exp(200.0).is_finite());
        assert!(silu(-200.0).abs() < 1e-30);
    }
}
