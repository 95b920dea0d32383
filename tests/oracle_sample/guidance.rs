//! Guidance and the parsing of `extra_sample_args`.

use serde_json::Value;
use stable_diffusion::sample::SampleArgs;
use stable_diffusion::sample::args::{key_values, strict_bool, strict_float, strict_int};
use stable_diffusion::sample::guidance::{
    AdaptiveGuidance, ApgParams, GuidanceSchedule, Outputs, Scales, SkipLayers, combine,
};

use crate::support::{close, float, floats, integer, load, text};

fn parse_optional(value: &Value) -> Option<f32> {
    (!value.is_null()).then(|| float(value))
}

/// Within 1e-6, relative to 1 at least.
#[test]
fn guidance() {
    let data = load("guidance");
    let input = |name: &str| floats(&data["inputs"][name]);
    let (cond, uncond, img) = (input("cond"), input("uncond"), input("img"));
    let scaled = |values: &[f32], factor: f32| values.iter().map(|v| v * factor).collect::<Vec<f32>>();
    for entry in data["results"].as_array().unwrap() {
        let scales = Scales { text: float(&entry["scale"]), image: float(&entry["image_scale"]) };
        let override_ = parse_optional(&entry["scale_override"]);
        let mut adaptive = AdaptiveGuidance::new(ApgParams {
            eta: float(&entry["eta"]),
            momentum: float(&entry["momentum"]),
            norm_threshold: float(&entry["norm_threshold"]),
            norm_threshold_smoothing: float(&entry["norm_threshold_smoothing"]),
        });
        for (i, factor) in [1.0f32, 1.1, 1.2].into_iter().enumerate() {
            let (c, u, m) = (scaled(&cond, factor), scaled(&uncond, factor), scaled(&img, factor));
            let given = |key: &str| entry[key].as_bool().unwrap();
            let outputs = Outputs {
                positive: &c,
                negative: given("uncond").then_some(&u),
                image_negative: given("img_uncond").then_some(&m),
            };
            let mut out = vec![0.0; c.len()];
            if text(entry, "kind") == "cfg" {
                let text = override_.unwrap_or(scales.text);
                combine(outputs, Scales { text, ..scales }, &mut out);
            } else {
                adaptive.combine(outputs, scales, override_, &mut out);
            }
            close(&out, &floats(&entry["pred"][i]), 1.0, 1e-6, &format!("step {i} of {entry}"));
        }
    }
}

#[test]
fn skip_layer_guidance() {
    let data = load("guidance");
    let input = |name: &str| floats(&data["inputs"][name]);
    let (cond, uncond, skip) = (input("cond"), input("uncond"), input("skip"));
    for entry in data["skip_layer"].as_array().unwrap() {
        let guidance = SkipLayers {
            layers: vec![7, 8, 9],
            scale: float(&entry["scale"]),
            start: float(&entry["start"]),
            stop: float(&entry["stop"]),
        };
        let size = integer(&entry["schedule_size"]);
        let enabled = entry["enabled_at_steps_0_to_size_plus_1"].as_array().unwrap();
        for (step, enabled) in enabled.iter().enumerate() {
            assert_eq!(
                guidance.enabled(step as i32, size),
                enabled.as_bool().unwrap(),
                "{entry} step {step}"
            );
            assert!(!guidance.enabled(-(step as i32), size));
        }
        let mut out = uncond.clone();
        if guidance.scale != 0.0 && guidance.enabled(size as i32 / 2, size) {
            guidance.apply(&cond, &skip, &mut out);
        }
        close(&out, &floats(&entry["pred_at_middle_step"]), 0.0, 1e-6, &format!("{entry}"));
    }
}

#[test]
fn extra_sample_args() {
    let data = load("guidance");
    for entry in data["parse"].as_array().unwrap() {
        let list = text(entry, "args");
        let (pairs, _) = key_values(list);
        let expected: Vec<(&str, &str)> = (entry["key_values"].as_array().unwrap().iter())
            .map(|pair| (pair[0].as_str().unwrap(), pair[1].as_str().unwrap()))
            .collect();
        assert_eq!(pairs, expected, "{list}");
        let args = SampleArgs::parse(list);
        let apg = args.apg;
        let found = [apg.eta, apg.momentum, apg.norm_threshold, apg.norm_threshold_smoothing];
        close(&found, &floats(&entry["apg"]), 0.0, 0.0, list);
        assert_eq!(apg.enabled(), entry["apg_enabled"].as_bool().unwrap(), "{list}");
        assert_eq!(args.slg_uncond, entry["slg_uncond"].as_bool().unwrap(), "{list}");
        close(args.guidance_schedule.scales(), &floats(&entry["guidance_schedule"]), 0.0, 0.0, list);
    }
    for entry in data["strict"].as_array().unwrap() {
        let source = text(entry, "text");
        let found = strict_float(source);
        match parse_optional(&entry["float"]) {
            Some(expected) => close(&[found.unwrap()], &[expected], 0.0, 0.0, source),
            None => assert_eq!(found, None, "{source}"),
        }
        assert_eq!(strict_int(source).map(i64::from), entry["int"].as_i64(), "{source}");
        assert_eq!(strict_bool(source), entry["bool"].as_bool(), "{source}");
    }
}

#[test]
fn unreadable_extra_sample_args_warn_and_name_the_key() {
    let args = SampleArgs::parse("gamma=abc,typo=3,alone,guidance_schedule=7x0");
    assert_eq!(args.gamma, 2.0);
    for word in ["gamma=abc", "typo", "alone", "guidance_schedule"] {
        assert!(args.warnings.iter().any(|warning| warning.contains(word)), "{word}: {:?}", args.warnings);
    }
    assert!(GuidanceSchedule::parse("1x4000000000").is_err());
    for odd in [
        "",
        "=",
        ";;,",
        "a=",
        "\u{0}=\u{7f}",
        "guidance_schedule=\u{1F600}x2",
        "gamma=0x",
        "gamma=0xp",
        "gamma=-",
    ] {
        SampleArgs::parse(odd);
    }
}
