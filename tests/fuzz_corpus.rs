//! Replays the corpus of the fuzz targets: inputs that once went wrong, and those that reach the most code (`-set_cover_merge=1 -use_counters=0` of two minutes per target).
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used)]

#[path = "../fuzz/fuzz_targets/readers.rs"]
mod readers;

fn replay(target: &str, run: fn(&[u8])) {
    let folder = format!("{}/fuzz/corpus/{target}", env!("CARGO_MANIFEST_DIR"));
    let mut count = 0;
    for entry in std::fs::read_dir(&folder).unwrap() {
        run(&std::fs::read(entry.unwrap().path()).unwrap());
        count += 1;
    }
    assert!(count > 0, "{folder} is empty");
    // the least inputs are always tried
    (0..4).for_each(|len| run(&vec![0; len]));
}

#[test]
fn safetensors() {
    replay("safetensors", readers::safetensors);
}

#[test]
fn gguf() {
    replay("gguf", readers::gguf);
}

#[test]
fn zip() {
    replay("zip", readers::zip);
}

#[test]
fn pickle() {
    replay("pickle", readers::pickle);
}

#[test]
fn legacy_torch() {
    replay("legacy_torch", readers::legacy_torch);
}

#[test]
fn index_json() {
    replay("index_json", readers::index_json);
}

#[test]
fn imatrix() {
    replay("imatrix", readers::imatrix);
}
