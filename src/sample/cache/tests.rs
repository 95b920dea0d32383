//! Decisions and results of the policies on a toy network, against those of the reference's own policies on
//! the same.

use super::*;
use crate::sample::prediction::Prediction;

const VALUES: usize = 64;

fn sigmas(steps: usize) -> Vec<f32> {
    let denoiser = Denoiser::new(Prediction::Flow);
    let time = |i: usize| 999.0 - 999.0 / (steps - 1) as f32 * i as f32;
    (0..steps).map(|i| denoiser.t_to_sigma(time(i))).chain([0.0]).collect()
}

fn toy_input(i: usize, sigma: f32) -> f32 {
    let i = i as f64;
    (0.3 * i + 0.2).sin() as f32 * sigma + (0.1 * i).cos() as f32 * (1.0 - sigma)
}

fn toy_output(x: f32, i: usize, sigma: f32, branch: Branch) -> f32 {
    let share = if branch == Branch::Positive { 0.5 } else { 0.3 };
    0.8 * x + share * (0.7 * i as f64).sin() as f32 * sigma
}

/// Steps that were skipped, and the sum of magnitudes of a latent that the outputs feed back into.
fn run(params: &CacheParams, network: NetworkKind, steps: usize) -> (Vec<usize>, f64) {
    let sigmas = sigmas(steps);
    let denoiser = Denoiser::new(Prediction::Flow);
    let setup = CacheSetup { network, denoiser: &denoiser, sigmas: &sigmas, needs_uncond: false };
    let (mut cache, warnings) = StepCache::new(params, &setup);
    assert_eq!(warnings, Vec::<String>::new());
    let mut drift = vec![0f32; VALUES];
    let mut skipped = Vec::new();
    for (step, &sigma) in sigmas[..steps].iter().enumerate() {
        let input: Vec<f32> = drift.iter().enumerate().map(|(i, d)| toy_input(i, sigma) + d).collect();
        cache.begin(step as i32 + 1, sigma);
        let mut outputs = [vec![0f32; VALUES], vec![0f32; VALUES]];
        for (branch, out) in [Branch::Positive, Branch::Negative].into_iter().zip(&mut outputs) {
            if !cache.reuse(branch, &input, out) {
                assert!(!cache.skipping());
                for (i, out) in out.iter_mut().enumerate() {
                    *out = toy_output(input[i], i, sigma, branch);
                }
                cache.store(branch, &input, out);
            }
        }
        if cache.skipping() {
            skipped.push(step);
        }
        for (i, drift) in drift.iter_mut().enumerate() {
            *drift += 0.02 * (outputs[0][i] + outputs[1][i]);
        }
    }
    assert_eq!(cache.skipped(), skipped.len());
    (skipped, drift.iter().map(|&d| f64::from(d.abs())).sum())
}

#[track_caller]
fn check(params: CacheParams, network: NetworkKind, steps: usize, skipped: &[usize], sum: f64) {
    let found = run(&params, network, steps);
    assert_eq!(found.0, skipped);
    assert!((found.1 - sum).abs() < 1e-3, "{} expected {sum}", found.1);
}

#[test]
fn easycache() {
    let params = |threshold| CacheParams {
        mode: CacheMode::EasyCache,
        reuse_threshold: threshold,
        ..CacheParams::default()
    };
    let net = NetworkKind::Transformer;
    check(params(None), net, 12, &[4, 5, 7, 9], 14.149472);
    check(params(Some(0.5)), net, 12, &[4, 5, 6, 8, 9], 14.177316);
    check(params(Some(2.0)), net, 12, &[4, 5, 6, 7, 8, 9], 14.296328);
    let whole = CacheParams { start_percent: 0.0, end_percent: 1.0, ..params(Some(0.3)) };
    let skipped = [2, 3, 4, 5, 7, 8, 9, 10, 12, 13, 14, 15, 17, 18, 19, 21, 22, 23, 25, 26, 28, 29];
    check(whole, net, 30, &skipped, 52.059605);
}

#[test]
fn ucache() {
    let params = |threshold| CacheParams {
        mode: CacheMode::UCache,
        reuse_threshold: threshold,
        ..CacheParams::default()
    };
    let net = NetworkKind::UNet;
    check(params(None), net, 30, &[6, 7, 9, 10, 12, 13, 15, 16, 18, 19, 21, 22, 24, 25, 27], 51.586965);
    let skipped = [6, 7, 8, 9, 10, 12, 13, 14, 15, 16, 18, 19, 20, 21, 22, 24, 25, 26, 27];
    check(params(Some(10.0)), net, 30, &skipped, 52.128844);
    check(params(Some(0.1)), net, 30, &[], 51.221868);
    let absolute = CacheParams {
        use_relative_threshold: false,
        reset_error_on_compute: false,
        error_decay_rate: 0.8,
        ..params(Some(0.3))
    };
    check(absolute, net, 30, &[6, 7, 10, 13, 14, 16, 18, 20, 23], 51.422620);
}

#[test]
fn block_caches() {
    let net = NetworkKind::Transformer;
    for mode in [CacheMode::DbCache, CacheMode::TaylorSeer, CacheMode::CacheDit] {
        let params = |threshold, front, back| CacheParams {
            mode,
            residual_diff_threshold: threshold,
            front_compute_blocks: front,
            back_compute_blocks: back,
            ..CacheParams::default()
        };
        check(params(0.08, 8, 0), net, 30, &[5, 6, 8, 9, 11, 12, 14, 15, 17, 18, 20, 22, 24, 26], 51.560143);
        check(params(0.08, 1, 0), net, 30, &[5, 6, 8, 9, 11, 12, 14, 15, 17, 19, 21, 23, 25], 51.531049);
        check(
            params(0.08, 20, 4),
            net,
            30,
            &[5, 6, 7, 9, 10, 11, 13, 14, 16, 17, 19, 20, 22, 24, 26],
            51.657283,
        );
        let skipped = [5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 16, 17, 18, 19, 20, 21, 22, 24, 25, 26, 27];
        check(params(0.3, 20, 4), net, 30, &skipped, 52.845660);
    }
}

#[test]
fn spectrum() {
    let cases: [(SpectrumParams, &[usize], f64); 3] = [
        (SpectrumParams::default(), &[4, 6, 8, 9, 11, 12, 14, 15, 16], 615.251210),
        (
            SpectrumParams { warmup_steps: 3, flex_window: 0.0, ..SpectrumParams::default() },
            &[3, 5, 7, 9, 11, 13, 15, 17],
            621.098556,
        ),
        (
            SpectrumParams {
                w: 0.7,
                m: 5,
                lam: 0.1,
                window_size: 3,
                stop_percent: 1.0,
                ..SpectrumParams::default()
            },
            &[4, 5, 7, 8, 10, 11, 12, 14, 15, 16, 18, 19],
            613.484756,
        ),
    ];
    for (spectrum, expected, sum) in cases {
        let params = CacheParams { mode: CacheMode::Spectrum, spectrum, ..CacheParams::default() };
        let (sigmas, denoiser) = (sigmas(20), Denoiser::new(Prediction::Flow));
        let setup = CacheSetup {
            network: NetworkKind::UNet,
            denoiser: &denoiser,
            sigmas: &sigmas,
            needs_uncond: false,
        };
        let (mut cache, _) = StepCache::new(&params, &setup);
        let (mut skipped, mut total) = (Vec::new(), 0.0);
        for step in 0..20 {
            let mut latent = vec![0f32; VALUES];
            if cache.predict(&mut latent) {
                skipped.push(step);
            } else {
                latent.iter_mut().enumerate().for_each(|(i, x)| *x = toy_input(i, 1.0 - step as f32 / 20.0));
                cache.record(&latent);
            }
            total += latent.iter().map(|&x| f64::from(x.abs())).sum::<f64>();
        }
        assert_eq!(skipped, expected);
        assert!((total - sum).abs() < 1e-2, "{total} expected {sum}");
    }
}

/// With `limits` the parameters take effect that the reference ignores.
#[test]
fn limits() {
    let net = NetworkKind::Transformer;
    let base = CacheParams {
        mode: CacheMode::DbCache,
        residual_diff_threshold: 10.0,
        max_warmup_steps: 0,
        limits: true,
        ..CacheParams::default()
    };
    let inside: Vec<usize> = (5..28).collect();
    assert_eq!(run(&base, net, 30).0, inside);
    let warm = CacheParams { max_warmup_steps: 8, ..base.clone() };
    assert_eq!(run(&warm, net, 30).0, inside[7..]);
    let few = CacheParams { max_cached_steps: 3, ..base.clone() };
    assert_eq!(run(&few, net, 30).0, [5, 6, 7]);
    let row = CacheParams { max_continuous_cached_steps: 2, ..base.clone() };
    assert_eq!(run(&row, net, 30).0[..4], [5, 6, 8, 9]);
    let mask = |dynamic, threshold| CacheParams {
        scm_mask: Some("1,1,1,1,1,1,1,0, 1,0,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1".into()),
        scm_policy_dynamic: dynamic,
        residual_diff_threshold: threshold,
        ..base.clone()
    };
    assert_eq!(run(&mask(true, 10.0), net, 30).0, [7, 9]);
    assert!(run(&mask(true, 0.0), net, 30).0.is_empty());
    assert_eq!(run(&mask(false, 0.0), net, 30).0, [7, 9]);
}

#[test]
fn taylor_expansion_follows_a_parabola() {
    let params = CacheParams { taylorseer_n_derivatives: 2, ..CacheParams::default() };
    let mut expansions = taylorseer::Expansions::new(&params);
    let mut out = [0f32];
    assert!(!expansions.extrapolate(Branch::Positive, 0, &mut out));
    for step in 0..6usize {
        expansions.update(Branch::Positive, &[(step * step) as f32], step);
    }
    // Backward differences at 5: 25, 9, 2.
    assert!(expansions.extrapolate(Branch::Positive, 7, &mut out));
    assert_eq!(out, [25.0 + 2.0 * 9.0 + 2.0 * 2.0]);
    assert!(!expansions.extrapolate(Branch::Negative, 7, &mut out));
}

#[test]
fn taylorseer_and_the_combination_skip_by_interval_and_by_change() {
    let net = NetworkKind::Transformer;
    let base = CacheParams {
        mode: CacheMode::TaylorSeer,
        max_warmup_steps: 2,
        taylorseer_skip_interval: 2,
        limits: true,
        ..CacheParams::default()
    };
    assert_eq!(run(&base, net, 12).0, [2, 4, 5, 7, 8, 10, 11]);
    let computed = run(&CacheParams::default(), net, 12).1;
    let extrapolated = run(&base, net, 12).1;
    assert!((extrapolated - computed).abs() < 0.1 * computed, "{extrapolated} {computed}");
    let both = CacheParams { mode: CacheMode::CacheDit, residual_diff_threshold: 10.0, ..base };
    assert_eq!(run(&both, net, 12).0, [3, 4, 5, 6, 7, 8, 9, 10]);
}

#[test]
fn what_does_not_fit_is_left_out_with_a_warning() {
    let (sigmas, denoiser) = (sigmas(4), Denoiser::new(Prediction::Flow));
    let warn = |params: CacheParams, network, needs_uncond| {
        let setup = CacheSetup { network, denoiser: &denoiser, sigmas: &sigmas, needs_uncond };
        let (cache, warnings) = StepCache::new(&params, &setup);
        assert_eq!((cache.summary(4), warnings.len()), (None, 1));
    };
    let mode = |mode| CacheParams { mode, ..CacheParams::default() };
    for block in [CacheMode::EasyCache, CacheMode::DbCache, CacheMode::TaylorSeer, CacheMode::CacheDit] {
        warn(mode(block), NetworkKind::UNet, false);
    }
    warn(mode(CacheMode::UCache), NetworkKind::Transformer, false);
    warn(mode(CacheMode::Spectrum), NetworkKind::Other, false);
    warn(mode(CacheMode::Spectrum), NetworkKind::UNet, true);
    for (start_percent, end_percent) in [(0.5, 0.5), (-0.1, 0.9), (0.1, 1.5), (f32::NAN, 0.9)] {
        let params = CacheParams { start_percent, end_percent, ..mode(CacheMode::UCache) };
        warn(params, NetworkKind::UNet, false);
    }
}
