//! Names and shapes of LoRA files in every style, against the models they were recorded with.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;
use std::fs::File;

use serde_json::Value;
use stable_diffusion::adapt::lora::{Delta, Entry, Parsed, Targets, parse};
use stable_diffusion::family::names as dialects;
use stable_diffusion::weights::names::{DENOISER, Dialect, canonical};

struct Case {
    group: String,
    file: String,
    dialect: Dialect,
    targets: Targets,
    entries: Vec<Entry>,
}

fn dialect(group: &str) -> Dialect {
    match group {
        "SD1" => dialects::SD1,
        "SDXL" => dialects::SDXL,
        "SD3" => dialects::SD3,
        "FLUX" => dialects::FLUX,
        "FLUX2" => dialects::FLUX2,
        "Z_IMAGE" => dialects::Z_IMAGE,
        _ => dialects::WAN,
    }
}

fn shapes(list: &Value) -> Vec<(String, Vec<usize>)> {
    let pair = |pair: &Value| {
        let shape = pair[1].as_array().unwrap().iter().map(|d| usize::try_from(d.as_u64().unwrap()).unwrap());
        (pair[0].as_str().unwrap().to_string(), shape.collect())
    };
    list.as_array().unwrap().iter().map(pair).collect()
}

fn cases() -> Vec<Case> {
    let file =
        File::open(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/units/lora_files.json.gz")).unwrap();
    let json: Value = serde_json::from_reader(flate2::read::GzDecoder::new(file)).unwrap();
    let mut cases = Vec::new();
    for (group, content) in json.as_object().unwrap() {
        let dialect = dialect(group);
        let model: BTreeMap<String, Vec<usize>> = shapes(&content["model"])
            .into_iter()
            .map(|(name, shape)| (canonical(&name, &dialect).into_owned(), shape))
            .collect();
        let targets = Targets::new(model.iter().map(|(name, shape)| (name.as_str(), shape.as_slice())));
        for (file, tensors) in content["loras"].as_object().unwrap() {
            let entries = shapes(tensors).into_iter().map(|(name, shape)| Entry { name, shape }).collect();
            let (group, file, targets) = (group.clone(), file.clone(), targets.clone());
            cases.push(Case { group, file, dialect, targets, entries });
        }
    }
    cases
}

fn parsed(case: &Case) -> Parsed {
    parse(&case.entries, &case.targets, &case.dialect, DENOISER)
}

#[test]
fn every_tensor_of_every_recorded_style_is_used() {
    let cases = cases();
    assert_eq!(cases.len(), 20);
    for case in &cases {
        let parsed = parsed(case);
        let what = format!("{} {}", case.group, case.file);
        if case.file == "lora_peft" {
            // the recorded library finds no weight for a UNet family's `text_encoder.` names
            assert!(parsed.unmatched.iter().all(|name| name.starts_with("text_encoder.")), "{what}");
            assert_eq!((parsed.unmatched.len(), parsed.used), (144, parsed.total - 144), "{what}");
            continue;
        }
        assert!(
            parsed.unmatched.is_empty(),
            "{what}: {:?}",
            &parsed.unmatched[..parsed.unmatched.len().min(5)]
        );
        assert!(parsed.malformed.is_empty(), "{what}: {:?}", parsed.malformed.first());
        assert_eq!(parsed.used + parsed.ignored, parsed.total, "{what}");
        assert_eq!(parsed.ignored > 0, case.file == "lora_dora", "{what}");
        assert_eq!(parsed.warning(), None);
        for adapter in &parsed.adapters {
            let shape = case.targets.shape(&adapter.target).unwrap();
            let rows = *shape.last().unwrap();
            assert!(
                adapter.rows.end <= rows && adapter.columns * rows == shape.iter().product::<usize>(),
                "{what} {adapter:?}"
            );
        }
    }
}

#[test]
fn adapters_go_where_the_recorded_names_say() {
    for case in &cases() {
        let parsed = parsed(case);
        let mut expected: Vec<String> = case
            .entries
            .iter()
            .filter_map(|entry| {
                let name = canonical(&format!("lora.{}", entry.name), &case.dialect).into_owned();
                let name = name.strip_prefix("lora.").unwrap();
                let (target, member) = name.rsplit_once('.').unwrap();
                let firsts = ["lora_up", "hada_w1_a", "lokr_w1", "lokr_w1_a", "diff"];
                (firsts.contains(&member) && !target.starts_with("text.encoder.")).then(|| target.to_string())
            })
            .collect();
        let mut found = Vec::new();
        let mut parts: BTreeMap<&str, usize> = BTreeMap::new();
        for adapter in &parsed.adapters {
            let part = parts.entry(&adapter.target).or_default();
            found.push(if *part == 0 {
                adapter.target.clone()
            } else {
                format!("{}.{part}", adapter.target)
            });
            *part += 1;
        }
        found.sort();
        // text encoders that join q, k, v: the recorded library renames them once more when it knows the model
        for name in &mut expected {
            for (projection, part) in
                [("q_proj.weight", ""), ("k_proj.weight", ".1"), ("v_proj.weight", ".2")]
            {
                if name.ends_with(projection) && case.targets.shape(name).is_none() {
                    *name = name.replace(projection, "in_proj.weight") + part;
                }
            }
        }
        expected.sort();
        let differ: Vec<_> = found.iter().zip(&expected).filter(|(f, e)| f != e).take(3).collect();
        assert!(
            differ.is_empty() && found.len() == expected.len(),
            "{} {}: {differ:?}",
            case.group,
            case.file
        );
    }
}

#[test]
fn split_projections_take_their_rows_of_the_joined_weight() {
    let cases = cases();
    let case = cases.iter().find(|case| case.file == "lora_z_image").unwrap();
    let parsed = parsed(case);
    let joined: Vec<_> =
        parsed.adapters.iter().filter(|a| a.target.ends_with("layers.0.attention.qkv.weight")).collect();
    assert_eq!(joined.iter().map(|a| a.rows.clone()).collect::<Vec<_>>(), [0..256, 256..512, 512..768]);
    assert!(joined.iter().all(|a| matches!(a.delta, Delta::LowRank(f) if f.rank == 4)));

    // without q and k, v still takes the last third
    let only_v = Case {
        entries: case
            .entries
            .iter()
            .filter(|e| !e.name.contains("to_q") && !e.name.contains("to_k"))
            .cloned()
            .collect(),
        group: case.group.clone(),
        file: case.file.clone(),
        dialect: case.dialect,
        targets: case.targets.clone(),
    };
    let parsed = self::parsed(&only_v);
    let v = parsed.adapters.iter().find(|a| a.target.ends_with("layers.0.attention.qkv.weight")).unwrap();
    assert_eq!(v.rows, 512..768);
}

#[test]
fn a_lora_of_another_model_is_counted_and_left_out() {
    let cases = cases();
    let find = |file: &str| cases.iter().find(|case| case.file == file).unwrap();
    let (sd1, flux) = (find("lora_kohya"), find("lora_flux_kohya"));
    let parsed = parse(&flux.entries, &sd1.targets, &sd1.dialect, DENOISER);
    // both models have the same first text encoder
    assert!(parsed.adapters.iter().all(|a| a.target.starts_with("cond_stage_model.")));
    assert!(!parsed.unmatched.is_empty() && parsed.warning().is_some());
}

#[test]
fn each_member_may_be_missing_and_the_rest_is_applied() {
    for case in cases().iter().filter(|case| case.entries.len() < 1000) {
        let whole = parsed(case);
        for missing in case.entries.iter().step_by(7) {
            let entries: Vec<_> = case.entries.iter().filter(|e| e.name != missing.name).cloned().collect();
            let rest = parse(&entries, &case.targets, &case.dialect, DENOISER);
            assert!(
                rest.adapters.len() + 1 >= whole.adapters.len(),
                "{} without {}",
                case.file,
                missing.name
            );
            assert_eq!(rest.total, entries.len());
        }
    }
}
