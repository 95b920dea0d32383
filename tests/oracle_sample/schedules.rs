//! Schedules and conversions of each kind of prediction.

use serde_json::Value;
use stable_diffusion::sample::SampleArgs;
use stable_diffusion::sample::prediction::{Denoiser, NoiseTable, Prediction};
use stable_diffusion::sample::schedule::{self, AysLevels, ScheduleRequest, Scheduler};

use crate::support::{close, float, floats, integer, load, text};

fn denoiser(entry: &Value) -> Denoiser {
    let prediction = match text(entry, "denoiser") {
        "eps" => Prediction::Epsilon,
        "v" => Prediction::Velocity,
        "edm_v" => Prediction::EdmVelocity,
        "flow" => Prediction::Flow,
        "flux_flow" => Prediction::FlowExponential,
        "sefi_flow" => Prediction::FlowDual,
        "minit2i_flow" => Prediction::FlowClean,
        other => panic!("denoiser {other}"),
    };
    let denoiser = Denoiser::new(prediction);
    match float(&entry["shift"]) {
        0.0 => denoiser,
        shift => denoiser.with_shift(shift),
    }
}

const SCHEDULERS: [&str; 16] = [
    "discrete",
    "karras",
    "exponential",
    "ays",
    "gits",
    "sgm_uniform",
    "simple",
    "smoothstep",
    "kl_optimal",
    "lcm",
    "bong_tangent",
    "ltx2",
    "logit_normal",
    "flux2",
    "flux",
    "beta",
];

fn scheduler(name: &str) -> Scheduler {
    Scheduler::ALL[SCHEDULERS.iter().position(|known| *known == name).unwrap()]
}

/// Within 2e-6 of each sigma, where the logarithms of different C libraries end.
#[test]
fn sigmas() {
    let data = load("sigmas");
    let entries = data["sigmas"].as_array().unwrap();
    assert!(entries.len() > 1000);
    let mut own = 0;
    for entry in entries {
        let args = SampleArgs::parse(text(entry, "extra_sample_args"));
        let ays = match text(entry, "version") {
            "SD1" => Some(AysLevels::Image512),
            "SDXL" => Some(AysLevels::Image1024),
            "SVD" => Some(AysLevels::Video),
            _ => None,
        };
        let steps = integer(&entry["steps"]);
        let request = ScheduleRequest {
            scheduler: scheduler(text(entry, "scheduler")),
            steps,
            image_seq_len: integer(&entry["image_seq_len"]),
            ays,
            args: &args,
        };
        let what = format!("{entry}");
        let found = schedule::sigmas(&mut denoiser(entry), &request).unwrap();
        assert!(found.iter().all(|sigma| sigma.is_finite()), "{what}");
        let recorded = &entry["sigmas"];
        let crashed = recorded.is_string();
        let unusable = !crashed && floats(recorded).iter().any(|sigma| sigma.is_nan());
        let all_zero = !crashed && floats(recorded).iter().all(|&sigma| sigma == 0.0);
        if crashed || unusable || all_zero {
            // Ours is the largest sigma and 0 for one step, equal time steps where no table was published.
            assert_eq!(found.len(), steps + 1, "{what}");
            assert!(
                found.windows(2).all(|pair| pair[0] > pair[1]) && found[steps] == 0.0,
                "{what}: {found:?}"
            );
            own += 1;
        } else {
            close(&found, &floats(recorded), 0.0, 2e-6, &what);
        }
    }
    assert!(own < 80, "{own} schedules were not compared");
}

#[test]
fn schedules_are_finite_and_fall_for_any_number_of_steps() {
    let args = SampleArgs::default();
    for prediction in Prediction::ALL {
        for scheduler in Scheduler::ALL {
            for steps in [1, 2, 3, 7, 49, 1000, 1500] {
                let mut denoiser = Denoiser::new(prediction);
                let request =
                    ScheduleRequest { scheduler, steps, image_seq_len: 1024, ays: None, args: &args };
                let sigmas = schedule::sigmas(&mut denoiser, &request).unwrap();
                assert!(sigmas.len() <= steps + 1 && sigmas.len() >= 2);
                assert!(sigmas.iter().all(|sigma| sigma.is_finite()), "{prediction:?} {scheduler:?} {steps}");
                assert!(
                    sigmas.windows(2).all(|pair| pair[0] >= pair[1]),
                    "{prediction:?} {scheduler:?} {steps}: {sigmas:?}"
                );
            }
        }
        let request = ScheduleRequest {
            scheduler: Scheduler::Karras,
            steps: 0,
            image_seq_len: 1024,
            ays: None,
            args: &args,
        };
        assert!(schedule::sigmas(&mut Denoiser::new(prediction), &request).is_err());
    }
}

#[test]
fn dual_schedule() {
    for entry in load("sigmas")["sefi_dual"].as_array().unwrap() {
        let args = SampleArgs::parse(text(entry, "extra_sample_args"));
        let mut denoiser = Denoiser::new(Prediction::FlowDual);
        let request = ScheduleRequest {
            scheduler: Scheduler::Discrete,
            steps: integer(&entry["steps"]),
            image_seq_len: 1024,
            ays: None,
            args: &args,
        };
        let sigmas = schedule::sigmas(&mut denoiser, &request).unwrap();
        let dual = denoiser.dual();
        close(&sigmas, &floats(&entry["tex_sigmas"]), 0.0, 0.0, "texture sigmas");
        close(&dual.texture_sigmas, &floats(&entry["tex_sigmas"]), 0.0, 0.0, "texture sigmas");
        close(&dual.semantic_sigmas, &floats(&entry["sem_sigmas"]), 0.0, 0.0, "semantic sigmas");
        close(&dual.texture_times, &floats(&entry["tex_timesteps"]), 0.0, 0.0, "texture times");
        close(&dual.semantic_times, &floats(&entry["sem_timesteps"]), 0.0, 0.0, "semantic times");
        assert_eq!(dual.times(-1), dual.times(1));
        assert_eq!(dual.times(1000), dual.times(dual.texture_times.len() as i32));
    }
}

/// Within 1e-6 of each value.
#[test]
fn conversions() {
    for entry in load("sigmas")["conversions"].as_array().unwrap() {
        let denoiser = denoiser(entry);
        let what = format!("{} {}", entry["denoiser"], entry["shift"]);
        let compare = |found: Vec<f32>, key: &str| {
            close(&found, &floats(&entry[key]), 0.0, 1e-6, &format!("{what} {key}"));
        };
        let range = [denoiser.sigma_min(), denoiser.sigma_max()];
        let recorded = [float(&entry["sigma_min"]), float(&entry["sigma_max"])];
        close(&range, &recorded, 0.0, 1e-6, &what);
        compare(floats(&entry["t"]).into_iter().map(|t| denoiser.t_to_sigma(t)).collect(), "t_to_sigma");
        compare(floats(&entry["sigma"]).into_iter().map(|s| denoiser.sigma_to_t(s)).collect(), "sigma_to_t");
        let scalings = floats(&entry["sigma"]).into_iter().flat_map(|sigma| {
            let scalings = denoiser.scalings(sigma);
            [scalings.c_skip, scalings.c_out, scalings.c_in]
        });
        compare(scalings.collect(), "scalings_skip_out_in");
        let levels = floats(&entry["noise_level"]);
        compare(
            levels.into_iter().map(|level| denoiser.noise_level_to_sigma(level)).collect(),
            "noise_level_to_sigma",
        );
        let (noise, latent) = (floats(&entry["noise"]), floats(&entry["latent"]));
        for (i, sigma) in floats(&entry["at_sigma"]).into_iter().enumerate() {
            let mut noisy = latent.clone();
            denoiser.add_noise(sigma, &noise, &mut noisy);
            close(&noisy, &floats(&entry["noise_scaling"][i]), 0.0, 1e-6, &format!("{what} noise"));
            let mut clean = latent.clone();
            denoiser.remove_noise_scale(sigma, &mut clean);
            close(&clean, &floats(&entry["inverse_noise_scaling"][i]), 0.0, 1e-6, &format!("{what} inverse"));
        }
    }
}

#[test]
fn noise_table() {
    let expected = floats(&load("sigmas")["compvis_sigmas"]);
    close(NoiseTable::scaled_linear().sigmas(), &expected, 0.0, 1e-6, "table");
    assert!(NoiseTable::from_alphas_cumprod(&[0.5; 10]).is_err());
    assert!(NoiseTable::from_alphas_cumprod(&[0.0; 1000]).is_err());
    let table = NoiseTable::from_alphas_cumprod(&[0.5; 1000]).unwrap();
    assert_eq!(table.sigmas()[7], 1.0);
}
