//! What each fuzz target does with its bytes. `tests/fuzz_corpus.rs` replays the corpus through the same functions.
#![allow(dead_code)]

use stable_diffusion::files::ModelFile;
use stable_diffusion::files::imatrix::Imatrix;

/// Opens a model and reads what it holds; a refusal is as good as a success.
fn model(data: Vec<u8>) {
    let Ok(file) = ModelFile::from_bytes("fuzz/no-such-folder/model", data) else { return };
    let mut left = 1u64 << 20;
    for entry in file.tensors() {
        // tensors may share bytes, so the work of a small file is bounded here
        let Some(rest) = left.checked_sub(entry.nbytes + 1) else { continue };
        left = rest;
        if let Ok(bytes) = file.read(entry) {
            assert_eq!(bytes.len() as u64, entry.nbytes);
            assert!(file.mapped(entry).is_none_or(|mapped| mapped == bytes));
        }
    }
}

pub fn safetensors(data: &[u8]) {
    model(data.to_vec());
}

pub fn gguf(data: &[u8]) {
    model([b"GGUF", data].concat());
}

pub fn zip(data: &[u8]) {
    model([b"PK\x03\x04", data].concat());
}

pub fn legacy_torch(data: &[u8]) {
    model([b"\x80\x02", data].concat());
}

pub fn index_json(data: &[u8]) {
    model([b"{", data].concat());
}

pub fn imatrix(data: &[u8]) {
    let Ok(matrix) = Imatrix::from_bytes("fuzz", data.to_vec()) else { return };
    let mut twice = matrix.clone();
    assert!(twice.merge(matrix).is_ok());
}

/// The pickle of a torch archive with the storages `0` and `1` of 16 bytes.
pub fn pickle(data: &[u8]) {
    let members: [(&str, &[u8]); 3] = [("a/data.pkl", data), ("a/data/0", &[1; 16]), ("a/data/1", &[2; 16])];
    let (mut out, mut table) = (Vec::new(), Vec::new());
    for (name, content) in members {
        let len = (content.len() as u32).to_le_bytes();
        let name_len = [name.len() as u8, 0, 0, 0];
        let at = (out.len() as u32).to_le_bytes();
        let common = [&[20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0][..], &len, &len, &name_len].concat();
        out.extend([b"PK\x03\x04", common.as_slice(), name.as_bytes(), content].concat());
        table.extend([b"PK\x01\x02\x14\x00", common.as_slice(), &[0; 10], &at, name.as_bytes()].concat());
    }
    let end = [(table.len() as u32).to_le_bytes(), (out.len() as u32).to_le_bytes()].concat();
    out.extend(table);
    out.extend([b"PK\x05\x06\0\0\0\0\x03\0\x03\0", end.as_slice(), &[0, 0]].concat());
    model(out);
}
