use super::build::{Gguf, f32s};
use stable_diffusion::files::{Array, Dtype, Format, ModelFile, Value};

fn message(file: Vec<u8>) -> String {
    ModelFile::from_bytes("t", file).expect_err("refused").to_string()
}

#[test]
fn reads_metadata_table_and_data() {
    for version in [2, 3] {
        let file = Gguf::new(version, 2, 4)
            .pair("general.alignment", 4, &64u32.to_le_bytes())
            .pair("general.architecture", 8, &[&4u64.to_le_bytes()[..], b"flux"].concat())
            .pair(
                "list",
                9,
                &[&5u32.to_le_bytes()[..], &2u64.to_le_bytes(), &7i32.to_le_bytes(), &(-1i32).to_le_bytes()]
                    .concat(),
            )
            .pair(
                "texts",
                9,
                &[&8u32.to_le_bytes()[..], &1u64.to_le_bytes(), &2u64.to_le_bytes(), b"ab"].concat(),
            )
            .tensor("q", &[32, 2], 8, 0)
            .tensor("f", &[3], 0, 128)
            .data(64, &[&[9; 68][..], &[0; 60], &f32s(&[1.0, 2.0, 3.0])].concat());
        let file = ModelFile::from_bytes("t", file).unwrap();
        assert_eq!(file.format(), Format::Gguf);
        assert_eq!(file.metadata().str("general.architecture"), Some("flux"));
        assert_eq!(file.metadata().get("list"), Some(&Value::Array(Array::I32(vec![7, -1]))));
        assert_eq!(file.metadata().get("texts").unwrap().as_strings().unwrap(), ["ab"]);
        let q = file.get("q").unwrap();
        assert_eq!((q.dtype, q.shape.as_slice(), q.nbytes), (Dtype::Q8_0, &[32, 2][..], 68));
        assert_eq!(file.read(q).unwrap(), [9; 68]);
        assert_eq!(file.read(file.get("f").unwrap()).unwrap(), f32s(&[1.0, 2.0, 3.0]));
    }
}

#[test]
fn refuses_what_does_not_fit() {
    let one = || Gguf::new(3, 1, 0);
    let long = [&[4u8; 4][..], &u64::MAX.to_le_bytes()].concat();
    for (file, expected) in [
        (Gguf::new(1, 0, 0).bytes, "version 1"),
        (Gguf::new(3u32.swap_bytes(), 0, 0).bytes, "big-endian"),
        (Gguf::new(3, u64::MAX, 0).bytes, "claims 18446744073709551615 tensors"),
        (Gguf::new(3, 1 << 20, 0).data(1 << 20, &[0; 1 << 20]), "claims 1048576 tensors"),
        (Gguf::new(3, 0, 9).bytes, "claims 9 metadata pairs"),
        (Gguf::new(3, 0, 1).text(b"k").raw(&[8, 0, 0, 0]).raw(&u64::MAX.to_le_bytes()).bytes, "k claims"),
        (Gguf::new(3, 0, 1).pair("k", 9, &long).bytes, "'k' claims"),
        (
            Gguf::new(3, 0, 1)
                .pair("k", 9, &[&9u32.to_le_bytes()[..], &1u64.to_le_bytes(), &[0; 9]].concat())
                .bytes,
            "unsupported type 9",
        ),
        (Gguf::new(3, 0, 1).pair("k", 99, &[0]).bytes, "unknown value type 99"),
        (Gguf::new(3, 0, 2).pair("k", 0, &[0]).pair("k", 0, &[0]).bytes, "occurs twice"),
        (Gguf::new(3, 0, 1).pair("general.alignment", 4, &[3, 0, 0, 0]).bytes, "power of two"),
        (Gguf::new(3, 0, 1).pair("general.alignment", 4, &[0; 4]).bytes, "power of two"),
        (Gguf::new(3, 0, 1).pair("general.alignment", 8, &[0; 8]).bytes, "power of two"),
        (one().tensor("a", &[1; 9], 0, 0).bytes, "9 axes"),
        (one().tensor("a", &[1], 4, 0).bytes, "'a' has the withdrawn type 4"),
        (one().tensor("a", &[1], 77, 0).bytes, "'a' has the unsupported type 77"),
        (one().tensor("a", &[33], 8, 0).data(32, &[0; 64]), "multiple of 32"),
        (one().tensor("a", &[4], 0, 4).data(32, &[0; 64]), "no multiple of the alignment"),
        (one().tensor("a", &[64], 0, 0).data(32, &[0; 64]), "cut off"),
        (one().tensor("a", &[1], 0, u64::MAX - 31).data(32, &[0; 64]), "cut off"),
        (one().tensor("a", &[1 << 40, 1 << 40], 0, 0).bytes, "elements in all"),
        (one().tensor("a", &[u64::MAX], 0, 0).bytes, "elements in all"),
        (one().tensor("", &[1], 0, 0).data(32, &[0; 4]), "name is 0 bytes"),
        (
            Gguf::new(3, 2, 0).tensor("a", &[1], 0, 0).tensor("a", &[1], 0, 32).data(32, &[0; 64]),
            "'a' occurs twice",
        ),
        (
            Gguf::new(3, 2, 0).tensor("a", &[16], 0, 0).tensor("b", &[1], 0, 32).data(32, &[0; 64]),
            "'a' and 'b' overlap",
        ),
    ] {
        let got = message(file);
        assert!(got.contains(expected), "{expected}: {got}");
    }
}
