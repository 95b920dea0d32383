use super::build::Folder;
use stable_diffusion::files::{Dtype, Format, ModelFile, TensorEntry, Value, convert_source};

fn values(file: &ModelFile, name: &str) -> Vec<f32> {
    let entry = file.get(name).unwrap_or_else(|| panic!("{name}"));
    let bytes = file.read(entry).unwrap();
    let mut out = vec![0.0; entry.elements()];
    convert_source(entry.dtype, &bytes, &mut out).unwrap();
    out
}

fn open(name: &str) -> ModelFile {
    ModelFile::open(format!("{}/tests/data/files/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

fn counting(n: usize) -> Vec<f32> {
    (0..n).map(|i| i as f32).collect()
}

#[test]
fn all_types_shapes_and_strides() {
    for (name, format) in [
        ("stored.pt", Format::TorchZip),
        ("deflated.pt", Format::TorchZip),
        ("legacy.pt", Format::TorchLegacy),
    ] {
        let file = open(name);
        assert_eq!(file.format(), format);
        for (kind, dtype) in [
            ("Float", Dtype::F32),
            ("Double", Dtype::F64),
            ("Half", Dtype::F16),
            ("Long", Dtype::I64),
            ("Int", Dtype::I32),
            ("Short", Dtype::I16),
            ("Char", Dtype::I8),
            ("Byte", Dtype::U8),
        ] {
            let tensor = format!("type.{kind}Storage");
            assert_eq!(file.get(&tensor).unwrap().dtype, dtype);
            assert_eq!(values(&file, &tensor), [1.0, 2.0, 3.0], "{name} {tensor}");
        }
        assert_eq!(values(&file, "type.BFloat16Storage"), [1.0, -2.0, 3.0]);
        assert_eq!(values(&file, "type.BoolStorage"), [1.0, 0.0, 1.0]);
        assert_eq!(file.get("whole").unwrap().shape, [6, 4]);
        assert_eq!(values(&file, "whole"), counting(24));
        let transposed: Vec<f32> = (0..24).map(|i| (i % 4 * 6 + i / 4) as f32).collect();
        assert_eq!(values(&file, "transposed"), transposed);
        assert_eq!(values(&file, "slice"), [7.0, 8.0, 9.0, 13.0, 14.0, 15.0]);
        assert_eq!(values(&file, "row"), [12.0, 13.0, 14.0, 15.0, 16.0, 17.0]);
        assert_eq!(values(&file, "expanded"), [3.0, 4.0, 5.0, 3.0, 4.0, 5.0]);
        assert_eq!(values(&file, "parameter"), [22.0, 23.0]);
        assert_eq!(values(&file, "scalar"), [5.0]);
        assert_eq!(
            (file.get("empty").unwrap().shape.as_slice(), file.get("empty").unwrap().nbytes),
            (&[4, 0][..], 0)
        );
        assert_eq!(file.get("conv").unwrap().shape, [2, 2, 3, 2]);
        assert_eq!(values(&file, "conv"), counting(24));
        let last: Vec<f32> = (0..24).map(|i| (i / 12 * 12 + i % 12 / 4 + i % 4 * 3) as f32).collect();
        assert_eq!(values(&file, "channels_last"), last);
        assert_eq!(file.metadata().get("global_step"), Some(&Value::I64(470_000)));
        assert_eq!(file.metadata().str("version"), Some("1.4.2"));
        assert!(file.get("best").is_none() && file.get("exp_avg").is_none());
        if format == Format::TorchZip {
            assert_eq!(values(&file, "float8_e4m3"), [1.0, -2.0, 448.0]);
            let e5m2 = values(&file, "float8_e5m2");
            assert!(e5m2[0] == -2.0 && e5m2[1].is_nan());
        }
        parts(&file);
    }
}

/// Reading in pieces gives the same as reading the whole; only plain tensors are mapped.
fn parts(file: &ModelFile) {
    for entry in file.tensors() {
        let whole = file.read(entry).unwrap();
        let size = entry.dtype.type_size();
        for (i, piece) in whole.chunks(size * 5).enumerate() {
            let mut out = vec![0; piece.len()];
            file.read_range(entry, (i * size * 5) as u64, &mut out).unwrap();
            assert_eq!(out, piece, "{}", entry.name);
        }
        let plain = |t: &TensorEntry| t.strides.is_none();
        if let Some(mapped) = file.mapped(entry) {
            assert!(plain(entry));
            assert_eq!(mapped, whole);
        }
    }
}

#[test]
fn averaged_weights_win() {
    for name in ["small.pt", "small_deflated.pt", "small_legacy.pt"] {
        let file = open(name);
        assert_eq!(file.tensors().len(), 1);
        assert_eq!(values(&file, "w"), [1.5]);
    }
}

#[test]
fn shards_and_folders() {
    use super::build::{f32s, safetensors};
    use stable_diffusion::files::diffusers;
    let folder = Folder::new("shards");
    let header = |name: &str| format!(r#"{{"{name}":{{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}}}"#);
    folder.file("unet/a-1.safetensors", &safetensors(&header("x"), &f32s(&[1.0])));
    folder.file("unet/a-2.safetensors", &safetensors(&header("y"), &f32s(&[2.0])));
    let index =
        r#" {"metadata":{"total_size":8},"weight_map":{"x":"a-1.safetensors","y":"a-2.safetensors"}}"#;
    let path = folder.file("unet/diffusion_pytorch_model.safetensors.index.json", index.as_bytes());
    let file = ModelFile::open(&path).unwrap();
    assert_eq!(
        (file.format(), values(&file, "x"), values(&file, "y")),
        (Format::Sharded, vec![1.0], vec![2.0])
    );
    assert_eq!(file.mapped(file.get("y").unwrap()).unwrap(), f32s(&[2.0]));

    folder.file("text_encoder/model.fp16.safetensors", b"x");
    folder.file("vae/diffusion_pytorch_model.bin", b"x");
    folder.file("vae/diffusion_pytorch_model.fp16.safetensors", b"x");
    let classes = r#"{"_class_name":"StableDiffusionPipeline","unet":["diffusers","UNet2DConditionModel"]}"#;
    folder.file("model_index.json", classes.as_bytes());
    let layout = diffusers::layout(&folder.path("")).unwrap();
    assert_eq!(layout.pipeline.as_deref(), Some("StableDiffusionPipeline"));
    let found: Vec<_> = layout.components.iter().map(|c| (c.name.as_str(), c.file.clone())).collect();
    assert_eq!(
        found,
        [
            ("unet", path.clone()),
            ("vae", folder.path("vae/diffusion_pytorch_model.fp16.safetensors")),
            ("text_encoder", folder.path("text_encoder/model.fp16.safetensors")),
        ]
    );
    assert_eq!(layout.components[0].class.as_deref(), Some("UNet2DConditionModel"));
    assert!(diffusers::layout(&folder.path("unet")).is_err());

    let refused = |text: &str| {
        let path = folder.file("unet/bad.index.json", text.as_bytes());
        ModelFile::open(path).expect_err(text).to_string()
    };
    for (shard, expected) in [
        ("../a.safetensors", "file beside the index"),
        ("/etc/passwd", "file beside the index"),
        ("a/b", "file beside the index"),
        ("..", "file beside the index"),
        (".", "file beside the index"),
        ("", "file beside the index"),
        ("a\\\\b", "file beside the index"),
        ("none", "shard 'none': no such file"),
        ("bad.index.json", "an index itself"),
        ("diffusion_pytorch_model.safetensors.index.json", "an index itself"),
        ("a-2.safetensors", "puts tensor 'x' into 'a-2.safetensors', which lacks it"),
    ] {
        let got = refused(&format!(r#"{{"weight_map":{{"x":"{shard}"}}}}"#));
        assert!(got.contains(expected), "{shard}: {got}");
    }
    for (text, expected) in [
        (r#"{"weight_map":{}}"#, "names no file"),
        (r#"{"weight_map":[]}"#, "invalid type"),
        (r#"{"weight_map":{"x":1}}"#, "invalid type"),
        (r#"{"weight_map":{"x":"a-1.safetensors","x":"a-1.safetensors"}}"#, "occurs twice"),
        (r#"{"weight_map":{},"weight_map":{}}"#, "occurs twice"),
        (r#"{}"#, "missing field"),
        (r#"{"weight_map":{"x":"a"}"#, "EOF"),
    ] {
        assert!(refused(text).contains(expected), "{text}: {}", refused(text));
    }
    let many: Vec<String> = (0..300).map(|i| format!(r#""t{i}":"s{i}""#)).collect();
    assert!(refused(&format!(r#"{{"weight_map":{{{}}}}}"#, many.join(","))).contains("names 300 files"));
}
