//! Reading the recorded results.

use std::io::Read;

use serde_json::Value;
use stable_diffusion::sample::RngKind;

pub fn load(name: &str) -> Value {
    let path = format!("{}/tests/data/units/{name}.json.gz", env!("CARGO_MANIFEST_DIR"));
    let mut text = String::new();
    flate2::read::GzDecoder::new(std::fs::File::open(path).unwrap()).read_to_string(&mut text).unwrap();
    serde_json::from_str(&text).unwrap()
}

pub fn number(value: &Value) -> f64 {
    match value {
        Value::String(text) => text.parse().unwrap_or_else(|_| panic!("not a number: {text}")),
        other => other.as_f64().unwrap_or_else(|| panic!("not a number: {other}")),
    }
}

pub fn float(value: &Value) -> f32 {
    number(value) as f32
}

pub fn floats(value: &Value) -> Vec<f32> {
    value.as_array().unwrap_or_else(|| panic!("not a list: {value}")).iter().map(float).collect()
}

pub fn integer(value: &Value) -> usize {
    number(value) as usize
}

pub fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or("")
}

/// Equal to `tolerance`, relative to the larger of the two values and `scale`; the recorded values have 9
/// digits.
#[track_caller]
pub fn close(found: &[f32], expected: &[f32], scale: f32, tolerance: f32, what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}: number of values");
    for (i, (&f, &e)) in found.iter().zip(expected).enumerate() {
        let same = f == e || (f.is_nan() && e.is_nan());
        let bound = tolerance * f.abs().max(e.abs()).max(scale);
        assert!(same || (f - e).abs() <= bound, "{what}: value {i} is {f}, recorded {e}");
    }
}

pub fn rng_kind(name: &str) -> RngKind {
    match name {
        "std_default" => RngKind::StdDefault,
        "cuda" => RngKind::Cuda,
        "cpu" => RngKind::Cpu,
        other => panic!("generator {other}"),
    }
}
