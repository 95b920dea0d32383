use super::build::{f32s, safetensors};
use stable_diffusion::files::{Dtype, Format, ModelFile};

fn message(header: &str, data: usize) -> String {
    let file = safetensors(header, &vec![0; data]);
    ModelFile::from_bytes("t", file).expect_err(header).to_string()
}

#[test]
fn reads_names_shapes_values_and_metadata() {
    let header = r#"{"__metadata__":{"format":"pt"},
        "a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24],"extra":[1,{"x":null}]},
        "empty":{"dtype":"F8_E4M3","shape":[0],"data_offsets":[24,24]},
        "s":{"dtype":"BOOL","shape":[],"data_offsets":[24,25]}}   "#;
    let mut data = f32s(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    data.push(1);
    let file = ModelFile::from_bytes("t", safetensors(header, &data)).unwrap();
    assert_eq!(file.format(), Format::Safetensors);
    assert_eq!(file.metadata().str("format"), Some("pt"));
    let a = file.get("a").unwrap();
    assert_eq!((a.dtype, a.shape.as_slice(), a.shape4()), (Dtype::F32, &[3, 2][..], [3, 2, 1, 1]));
    assert_eq!(file.read(a).unwrap(), &data[..24]);
    assert_eq!(file.mapped(a).unwrap(), &data[..24]);
    let mut part = [0; 8];
    file.read_range(a, 8, &mut part).unwrap();
    assert_eq!(part, data[8..16]);
    assert!(file.read_range(a, 20, &mut part).is_err());
    assert!(file.get("s").unwrap().shape.is_empty());
    assert_eq!(file.tensors().len(), 3);
}

#[test]
fn written_by_the_reference_library() {
    let data = f32s(&[0.5; 12]);
    let view = safetensors::tensor::TensorView::new(safetensors::Dtype::F16, vec![4, 6], &data).unwrap();
    let bytes = safetensors::serialize([("x.weight", view)], None).unwrap();
    let file = ModelFile::from_bytes("t", bytes).unwrap();
    assert_eq!(file.tensors()[0].shape, [6, 4]);
    assert_eq!(file.read(&file.tensors()[0]).unwrap(), data);
}

#[test]
fn refuses_what_does_not_fit() {
    let t = |rest: &str| format!(r#"{{"a.b":{{{rest}}}}}"#);
    for (header, expected) in [
        (t(r#""dtype":"F4","shape":[2],"data_offsets":[0,1]"#), "'a.b' has the unsupported type 'F4'"),
        (t(r#""dtype":"F8_E8M0","shape":[1],"data_offsets":[0,1]"#), "'a.b' has the unsupported type"),
        (t(r#""dtype":"F32","shape":[2],"data_offsets":[0,4]"#), "'a.b' of type F32 and shape [2] has 4"),
        (t(r#""dtype":"F32","shape":[1],"data_offsets":[4,0]"#), "'a.b' lies at"),
        (t(r#""dtype":"F32","shape":[1],"data_offsets":[0,400]"#), "cut off"),
        (t(r#""dtype":"F32","shape":[-1],"data_offsets":[0,4]"#), "tensor 'a.b': invalid value"),
        (t(r#""dtype":"F32","shape":[1.5],"data_offsets":[0,4]"#), "tensor 'a.b': invalid type"),
        (t(r#""dtype":"F32","shape":"x","data_offsets":[0,4]"#), "tensor 'a.b': invalid type"),
        (t(r#""dtype":7,"shape":[1],"data_offsets":[0,4]"#), "tensor 'a.b': invalid type"),
        (t(r#""dtype":"F32","shape":[1],"data_offsets":[0]"#), "tensor 'a.b': invalid length"),
        (t(r#""dtype":"F32","shape":[1],"data_offsets":[0,4,8]"#), "tensor 'a.b'"),
        (t(r#""dtype":"F32","shape":[1]"#), "missing field `data_offsets`"),
        (t(r#""dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]"#), "dtype occurs twice"),
        (t(r#""dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]"#), "elements in all"),
        (t(r#""dtype":"F32","shape":[0,18446744073709551615],"data_offsets":[0,0]"#), "elements in all"),
        (t(r#""dtype":"U8","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,1]"#), "more than 8 axes"),
        (r#"{"a":3}"#.into(), "tensor 'a': invalid type"),
        (r#"{"__metadata__":[]}"#.into(), "invalid type"),
        (r#"{"__metadata__":{"a":1}}"#.into(), "invalid type"),
        (r#"{"__metadata__":{"a":"1","a":"2"}}"#.into(), "twice"),
        (r#"{"":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}"#.into(), "name is 0 bytes"),
        (r#"{"x\u0000":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}"#.into(), "without NUL"),
        (r#"{} x"#.into(), "trailing"),
        (
            r#"{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}}"#.into(),
            "'a' and 'b' overlap",
        ),
        (
            r#"{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}"#.into(),
            "'a' occurs twice",
        ),
        (format!("{{\"a\":{}", "[".repeat(200_000)), "tensor 'a'"),
        (format!("{{\"a\":{}", "{\"a\":".repeat(200_000)), "tensor 'a'"),
        (format!(r#"{{"a":{{"z":{}"#, "[".repeat(200_000)), "tensor 'a': EOF"),
    ] {
        let got = message(&header, 8);
        assert!(got.contains(expected), "{}: {got}", &header[..header.len().min(200)]);
    }
}

#[test]
fn scaled_weights_are_linked() {
    for scale in ["scale_weight", "weight_scale"] {
        for (shape, bytes) in [("[]", 4), ("[1]", 4), ("[2]", 8), ("[2,1]", 8)] {
            let header = format!(
                r#"{{"l.weight":{{"dtype":"F8_E4M3","shape":[2,3],"data_offsets":[0,6]}},
                "l.{scale}":{{"dtype":"F32","shape":{shape},"data_offsets":[6,{}]}},
                "scaled_fp8":{{"dtype":"F8_E4M3","shape":[0],"data_offsets":[6,6]}},
                "l.comfy_quant":{{"dtype":"U8","shape":[0],"data_offsets":[6,6]}}}}"#,
                6 + bytes
            );
            let file = ModelFile::from_bytes("t", safetensors(&header, &[0; 14])).unwrap();
            let found = file.scale_of(file.get("l.weight").unwrap()).unwrap();
            assert_eq!(found.name, format!("l.{scale}"));
        }
    }
    let wrong = r#"{"l.weight":{"dtype":"F8_E4M3","shape":[2,3],"data_offsets":[0,6]},
        "l.scale_weight":{"dtype":"F32","shape":[3],"data_offsets":[6,18]}}"#;
    assert!(message(wrong, 18).contains("1 or 2 floats"));
}
