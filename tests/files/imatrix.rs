use super::build::{Folder, Gguf, f32s};
use stable_diffusion::files::imatrix::{Entry, Imatrix};

fn int(v: i32) -> [u8; 4] {
    v.to_le_bytes()
}

fn dat(entries: &[(&str, i32, &[f32])], tail: &[u8]) -> Vec<u8> {
    let mut out = int(entries.len() as i32).to_vec();
    for (name, calls, values) in entries {
        out.extend(int(name.len() as i32));
        out.extend(name.as_bytes());
        out.extend(int(*calls));
        out.extend(int(values.len() as i32));
        out.extend(f32s(values));
    }
    out.extend(tail);
    out
}

fn message(bytes: Vec<u8>) -> String {
    Imatrix::from_bytes("m", bytes).expect_err("refused").to_string()
}

#[test]
fn reads_adds_and_writes() {
    let bytes = dat(&[("b", 2, &[1.0, 2.0]), ("a", 1, &[4.0]), ("b", 3, &[10.0, 20.0])], &int(7));
    let matrix = Imatrix::from_bytes("m", bytes).unwrap();
    assert_eq!(matrix.get("b"), Some(&Entry { calls: 5, values: vec![11.0, 22.0] }));
    assert_eq!((matrix.len(), matrix.chunks), (2, 7));
    let folder = Folder::new("imatrix");
    let path = folder.path("m.dat");
    matrix.save(&path).unwrap();
    assert_eq!(Imatrix::open(&path).unwrap(), matrix);
    let mut twice = matrix.clone();
    twice.merge(matrix.clone()).unwrap();
    assert_eq!(twice.get("a"), Some(&Entry { calls: 2, values: vec![8.0] }));
    let mut wrong = Imatrix::default();
    wrong.add("c", Entry { calls: 1, values: vec![1.0] }).unwrap();
    wrong.add("a", Entry { calls: 1, values: vec![1.0; 3] }).unwrap();
    assert!(twice.merge(wrong).unwrap_err().to_string().contains("1 columns in one place and 3"));
    assert!(twice.get("c").is_none());
    let named = [&int(3)[..], &int(4), b"wiki"].concat();
    let named = Imatrix::from_bytes("m", dat(&[("a", 1, &[4.0])], &named)).unwrap();
    assert_eq!(named.dataset.as_deref(), Some("wiki"));
    named.save(&path).unwrap();
    assert_eq!(Imatrix::open(&path).unwrap(), named);
    // without a tail, as old tools write it
    assert_eq!(Imatrix::from_bytes("m", dat(&[("a", 1, &[4.0])], &[])).unwrap().chunks, 0);
}

#[test]
fn reads_the_gguf_form() {
    let file = Gguf::new(3, 2, 2)
        .pair("general.type", 8, &[&7u64.to_le_bytes()[..], b"imatrix"].concat())
        .pair("imatrix.chunk_count", 4, &int(9))
        .tensor("w.in_sum2", &[2, 2], 0, 0)
        .tensor("w.counts", &[1, 2], 0, 32)
        .data(32, &[f32s(&[2.0, 4.0, 30.0, 60.0]), vec![0; 16], f32s(&[2.0, 10.0])].concat());
    let matrix = Imatrix::from_bytes("m", file).unwrap();
    assert_eq!(matrix.get("w"), Some(&Entry { calls: 10, values: vec![10.0, 20.0, 30.0, 60.0] }));
    assert_eq!(matrix.chunks, 9);
    assert!(message(Gguf::new(3, 0, 0).bytes).contains("no importance matrix"));
}

#[test]
fn refuses_what_does_not_fit() {
    for (bytes, expected) in [
        (dat(&[], &[]), "claims 0 entries"),
        (int(-1).to_vec(), "claims 4294967295 entries"),
        (dat(&[("", 1, &[1.0])], &[]), "a name claims 0 bytes"),
        ([int(1), int(1 << 20)].concat(), "a name claims 1048576 bytes"),
        (dat(&[("a", 1, &[])], &[]), "claims 0 values"),
        (dat(&[("a", -1, &[1.0])], &[]), "4294967295 calls"),
        ([&int(1)[..], &int(1), b"a", &int(1), &int(-5)].concat(), "claims 4294967291 values"),
        ([&int(1)[..], &int(1), b"a", &int(1), &int(1 << 20)].concat(), "ends within values"),
        (dat(&[("a", 1, &[1.0]), ("a", 1, &[1.0, 2.0])], &[]), "1 columns in one place and 2"),
        (dat(&[("a", 1, &[f32::NAN])], &[]), "holds the value NaN"),
        (dat(&[("a", 1, &[-1.0])], &[]), "holds the value -1"),
        (dat(&[("a", 1, &[1.0])], &[int(1), int(1 << 20)].concat()), "claims 1048576 bytes"),
    ] {
        let got = message(bytes);
        assert!(got.contains(expected), "{expected}: {got}");
    }
}
