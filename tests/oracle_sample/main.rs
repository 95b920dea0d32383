//! Recorded results of random generators, schedules, predictions, guidance and samplers.
//!
//! The files under `tests/data/units` are cut from `oracle/units`: schedules that do not depend on the
//! denoiser are kept once, and of each sampler's result every 7th value. "nan" and "inf" stand for those
//! floats, "crash: signal N" says that the recorded library crashed; there and where it gave NaN, ours must
//! be finite.

#![allow(clippy::unwrap_used)] // a test fails by panicking

mod guidance;
mod samplers;
mod schedules;
mod support;

use stable_diffusion::sample::Rng;
use support::{close, floats, integer, load, number, rng_kind, text};

/// All draws are equal bit by bit.
#[test]
fn random_generators() {
    let data = load("rng");
    let draws = data["draws"].as_array().unwrap();
    assert_eq!(draws.len(), 105);
    for draw in draws {
        let what = format!("{} seed {} sizes {}", draw["rng"], draw["seed"], draw["sizes"]);
        let mut rng = Rng::new(rng_kind(text(draw, "rng")), text(draw, "seed").parse().unwrap());
        let mut values = Vec::new();
        for size in draw["sizes"].as_array().unwrap() {
            let mut part = vec![0.0; integer(size)];
            rng.normal(&mut part);
            values.append(&mut part);
        }
        if let Some(expected) = draw.get("values") {
            close(&values, &floats(expected), 0.0, 0.0, &what);
        } else {
            close(&values[values.len() - 16..], &floats(&draw["last16"]), 0.0, 0.0, &what);
            let sum: f64 = values.iter().map(|&v| f64::from(v)).sum();
            let squares: f64 = values.iter().map(|&v| f64::from(v) * f64::from(v)).sum();
            assert!((sum - number(&draw["sum"])).abs() < 1e-4, "{what}: sum {sum}");
            assert!((squares - number(&draw["sumsq"])).abs() < 1e-3, "{what}: squares {squares}");
        }
    }
}
