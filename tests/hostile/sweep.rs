//! Small files of each format cut off at every byte and changed at every byte.

use super::build::{Folder, Gguf, Member, f32s, pickle, safetensors, torch_zip, zip};
use super::open;
use stable_diffusion::files::{ModelFile, imatrix::Imatrix};

fn sample_safetensors() -> Vec<u8> {
    let header = r#"{"__metadata__":{"format":"pt"},"l.weight":{"dtype":"F8_E4M3","shape":[2,3],"data_offsets":[0,6]},"l.scale_weight":{"dtype":"F32","shape":[2],"data_offsets":[6,14]},"b":{"dtype":"BF16","shape":[1,5],"data_offsets":[14,24]}}"#;
    safetensors(header, &[3; 24])
}

fn sample_gguf() -> Vec<u8> {
    Gguf::new(3, 2, 4)
        .pair("general.alignment", 4, &32u32.to_le_bytes())
        .pair("general.architecture", 8, &[&4u64.to_le_bytes()[..], b"flux"].concat())
        .pair("list", 9, &[&5u32.to_le_bytes()[..], &2u64.to_le_bytes(), &[1; 8]].concat())
        .pair(
            "texts",
            9,
            &[&8u32.to_le_bytes()[..], &1u64.to_le_bytes(), &2u64.to_le_bytes(), b"ab"].concat(),
        )
        .tensor("q", &[32, 2], 8, 0)
        .tensor("f", &[3], 0, 96)
        .data(32, &[&[9; 96][..], &f32s(&[1.0, 2.0, 3.0])].concat())
}

fn sample_imatrix() -> Vec<u8> {
    let int = |v: i32| v.to_le_bytes();
    let entry = |name: &str| [&int(1)[..], name.as_bytes(), &int(2), &int(2), &f32s(&[1.0, 2.0])].concat();
    [&int(2)[..], &entry("a"), &entry("b"), &int(1), &int(1), b"d"].concat()
}

fn sample_deflated() -> Vec<u8> {
    zip(&[Member::deflated("a/data.pkl", &pickle::plain()), Member::deflated("a/data/0", &[7; 16])])
}

fn file(name: &str) -> Vec<u8> {
    std::fs::read(format!("{}/tests/data/files/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

/// Each bit by itself, and all of them.
const CHANGES: [u8; 9] = [1, 2, 4, 8, 16, 32, 64, 128, 255];

fn changed(bytes: &[u8], mut each: impl FnMut(Vec<u8>)) {
    for at in 0..bytes.len() {
        for change in CHANGES {
            let mut bytes = bytes.to_vec();
            bytes[at] ^= change;
            each(bytes);
        }
    }
}

#[test]
fn cut_off_at_every_byte() {
    for (name, bytes, slack) in [
        ("safetensors", sample_safetensors(), 0),
        ("gguf", sample_gguf(), 0),
        ("zip", torch_zip(&pickle::plain()), 0),
        ("zip deflated", sample_deflated(), 0),
        ("zip by python", file("stored.pt"), 0),
        ("legacy", file("small_legacy.pt"), 0),
        ("all legacy types", file("legacy.pt"), 0),
    ] {
        open(name, bytes.clone()).unwrap();
        for len in 0..bytes.len() - slack {
            assert!(open(name, bytes[..len].to_vec()).is_err(), "{name} of {len} bytes");
        }
    }
}

#[test]
fn changed_at_every_byte() {
    for (name, bytes) in [
        ("safetensors", sample_safetensors()),
        ("gguf", sample_gguf()),
        ("zip", torch_zip(&pickle::plain())),
        ("zip deflated", sample_deflated()),
        ("zip by python", file("small.pt")),
        ("zip deflated by python", file("small_deflated.pt")),
        ("legacy", file("small_legacy.pt")),
    ] {
        changed(&bytes, |bytes| drop(open(name, bytes)));
    }
}

#[test]
fn changed_importance_matrices() {
    let bytes = sample_imatrix();
    Imatrix::from_bytes("m", bytes.clone()).unwrap();
    // what follows the two entries may be missing
    let entries = bytes.len() - 9;
    for len in 0..bytes.len() {
        let result = Imatrix::from_bytes("m", bytes[..len].to_vec());
        assert!(len >= entries || result.is_err(), "{len} bytes");
    }
    changed(&bytes, |bytes| drop(Imatrix::from_bytes("m", bytes)));
}

#[test]
fn changed_indexes() {
    let folder = Folder::new("sweep");
    folder.file("s1", &safetensors(r#"{"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}"#, &[1]));
    let index = br#"{"metadata":{},"weight_map":{"x":"s1"}}"#;
    let path = folder.file("i", index);
    ModelFile::open(&path).unwrap();
    for len in 0..index.len() {
        folder.file("i", &index[..len]);
        assert!(ModelFile::open(&path).is_err(), "{len} bytes");
    }
    changed(index, |bytes| {
        folder.file("i", &bytes);
        drop(ModelFile::open(&path));
    });
}
