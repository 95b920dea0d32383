//! Files that are truly large in what they describe: time and memory stay bounded.

use super::build::{Folder, Member, pickle, zip};
use super::{PATIENCE, peak_mib};
use stable_diffusion::files::{ModelFile, imatrix::Imatrix};
use std::io::{BufWriter, Write};
use std::path::Path;
use std::time::Instant;

fn write(path: &Path, content: impl FnOnce(&mut BufWriter<std::fs::File>)) {
    let mut out = BufWriter::new(std::fs::File::create(path).unwrap());
    content(&mut out);
    out.flush().unwrap();
}

fn message(path: &Path) -> String {
    let start = Instant::now();
    let message = ModelFile::open(path).map(|f| f.tensors().len()).expect_err("refused").to_string();
    assert!(start.elapsed() < PATIENCE, "{message} took {:?}", start.elapsed());
    assert!(peak_mib() < 200, "{message} took {} MiB", peak_mib());
    message
}

#[test]
fn crowds_are_bounded() {
    let folder = Folder::new("bulk");
    let path = folder.path("x");
    // 60 MB of header that names one tensor after the other
    write(&path, |out| {
        let line = |i: u32| format!(r#""{i:07}":{{"dtype":"U8","shape":[0],"data_offsets":[0,0]}},"#);
        let count = 1_000_000;
        let len = line(0).len() as u64 * u64::from(count) + 1;
        out.write_all(&len.to_le_bytes()).unwrap();
        out.write_all(b"{").unwrap();
        (0..count).for_each(|i| out.write_all(line(i).as_bytes()).unwrap());
    });
    assert!(message(&path).contains("more than 262144 tensors"));
    // one text of 60 MB
    write(&path, |out| {
        out.write_all(&(60u64 << 20).to_le_bytes()).unwrap();
        out.write_all(b"{\"").unwrap();
        (0..60 << 10).for_each(|_| out.write_all(&[b'a'; 1024]).unwrap());
    });
    assert!(message(&path).contains("EOF"));
    // a header of 200 MB
    write(&path, |out| {
        out.write_all(&(200u64 << 20).to_le_bytes()).unwrap();
        out.write_all(b"{").unwrap();
        out.get_mut().set_len(201 << 20).unwrap();
    });
    assert!(message(&path).contains("the limit is"));
    // five million metadata texts of no length
    write(&path, |out| {
        out.write_all(b"GGUF\x03\0\0\0").unwrap();
        out.write_all(&[[0; 8], 1u64.to_le_bytes(), 1u64.to_le_bytes()].concat()).unwrap();
        out.write_all(b"k\x09\0\0\0\x08\0\0\0").unwrap();
        out.write_all(&5_000_000u64.to_le_bytes()).unwrap();
        (0..40 << 10).for_each(|_| out.write_all(&[0; 1024]).unwrap());
    });
    assert!(message(&path).contains("claims 5000000 elements"));
    // an index that names a million tensors
    write(&path, |out| {
        out.write_all(b"{\"weight_map\":{").unwrap();
        (0..1_000_000).for_each(|i| write!(out, "\"{i}\":\"s\",").unwrap());
    });
    assert!(message(&path).contains("more than 262144 tensors"));
    // an archive of many members
    let pkl = Member::stored("data.pkl", &pickle::plain());
    let many: Vec<Member> = (0..60_000).map(|i| Member::stored(&format!("{i}"), &[])).collect();
    std::fs::write(&path, zip(&[vec![pkl], many].concat())).unwrap();
    assert!(message(&path).contains("is missing"));
    // a pickle of 30 MB of small values
    let mut values = b"\x80\x02(".to_vec();
    values.resize(30 << 20, b')');
    std::fs::write(&path, zip(&[Member::stored("data.pkl", &values)])).unwrap();
    drop(values);
    assert!(message(&path).contains("operations"));
    // an importance matrix that claims much
    let claim = [1i32, 1, i32::from_le_bytes(*b"aaaa"), 1].map(i32::to_le_bytes).concat();
    std::fs::write(&path, claim).unwrap();
    assert!(Imatrix::open(&path).is_err());
    assert!(peak_mib() < 200);
}
