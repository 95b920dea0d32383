//! Equality with the recorded files.

use super::support::*;
use serde_json::Value;
use stable_diffusion::files::{Dtype, ModelFile};
use std::path::Path;

const NAME: &str = "model.diffusion_model.t.weight";

/// The whole network that holds the one tensor.
fn one_tensor(folder: &Folder, dtype: &str, shape: Vec<usize>, bytes: Vec<u8>) -> std::path::PathBuf {
    let path = folder.path("in.safetensors");
    write_safetensors(&path, &[Given(NAME, dtype, shape, bytes)]);
    path
}

#[test]
fn bytes_of_every_type() {
    let folder = Folder::new("types");
    let input = one_tensor(&folder, "F32", vec![4, 256], f32s(&wave(1024)));
    let recorded = recorded();
    let mut checked = 0;
    for (name, want) in recorded["quantised"].as_object().unwrap() {
        let output = folder.path("out.gguf");
        let mut request = request(&input, &output);
        request.output_type = type_number(name);
        let result = run(&request);
        if want["status"] != "ok" {
            // the recorded library aborts
            let error = result.unwrap_err().to_string();
            assert!(error.contains("output_type"), "{name}: {error}");
            continue;
        }
        result.unwrap();
        let file = ModelFile::open(&output).unwrap();
        let tensor = file.get(NAME).unwrap();
        let bytes = file.read(tensor).unwrap();
        assert_eq!(tensor.dtype.ggml_id(), want["gguf_type"].as_u64().map(|n| n as u32), "{name}");
        assert_eq!(tensor.shape, [256, 4], "{name}");
        let start = want["hex"].as_str().unwrap();
        assert_eq!(&hex(&bytes[..start.len() / 2]), start, "{name}");
        assert_eq!(sha256(&bytes), want["sha256"].as_str().unwrap(), "{name}");
        checked += 1;
    }
    assert_eq!(checked, 27);
}

/// Writes the file of the recorded selection; gives its path.
fn selection(folder: &Folder, recorded: &Value) -> std::path::PathBuf {
    let path = folder.path("in.safetensors");
    let shapes = recorded["which_tensors"]["shapes"].as_object().unwrap();
    let tensors: Vec<_> = shapes
        .iter()
        .map(|(name, shape)| {
            let shape: Vec<usize> = serde_json::from_value(shape.clone()).unwrap();
            let count = shape.iter().product();
            Given(name, "F32", shape, f32s(&wave(count)))
        })
        .collect();
    write_safetensors(&path, &tensors);
    path
}

/// `SD_TYPE_X rules '...'`, maybe with ` convert_name` behind it.
fn parse(setting: &str) -> (Option<u32>, Option<String>, bool) {
    let (ty, rest) = setting.split_once(" rules '").unwrap();
    let (rules, flags) = rest.rsplit_once('\'').unwrap();
    (type_number(ty), (!rules.is_empty()).then(|| rules.to_owned()), flags.contains("convert_name"))
}

#[test]
fn which_tensors_change_their_type() {
    let folder = Folder::new("which");
    let recorded = recorded();
    let input = selection(&folder, &recorded);
    for (setting, want) in recorded["which_tensors"]["results"].as_object().unwrap() {
        let output = folder.path("out.gguf");
        let mut request = request(&input, &output);
        (request.output_type, request.tensor_type_rules, request.convert_name) = parse(setting);
        if setting.contains("bogus") || setting.contains("nonsense") {
            // the recorded library passes over rules that it cannot read, see docs/differences.md
            assert!(run(&request).unwrap_err().to_string().contains("tensor_type_rules"));
            continue;
        }
        run(&request).unwrap();
        let file = ModelFile::open(&output).unwrap();
        let found: Vec<_> =
            file.tensors().iter().map(|t| (t.name.clone(), t.dtype.ggml_id(), t.shape.clone())).collect();
        let want: Vec<_> = want
            .as_object()
            .unwrap()
            .iter()
            .map(|(name, v)| {
                let shape: Vec<usize> = serde_json::from_value(v[1].clone()).unwrap();
                (name.clone(), v[0].as_u64().map(|n| n as u32), shape)
            })
            .collect();
        assert_eq!(found, want, "{setting}");
    }
    let output = folder.path("out.gguf");
    run(&request(&input, &output)).unwrap();
    let bytes = std::fs::read(&output).unwrap();
    let version = u32::from_le_bytes(bytes[4..8].try_into().unwrap());
    assert_eq!(recorded["which_tensors"]["gguf_metadata"][0], version);
    assert!(ModelFile::open(&output).unwrap().metadata().is_empty());
}

#[test]
fn sources_of_every_type() {
    let folder = Folder::new("sources");
    for (name, source) in recorded()["sources"].as_object().unwrap() {
        let shape: Vec<usize> = serde_json::from_value(source["shape"].clone()).unwrap();
        let bytes = unhex(source["hex"].as_str().unwrap());
        let input = one_tensor(&folder, source["dtype"].as_str().unwrap(), shape.clone(), bytes.clone());
        for ty in ["SD_TYPE_F32", "SD_TYPE_F16", "SD_TYPE_BF16", "SD_TYPE_COUNT"] {
            let output = folder.path("out.gguf");
            std::fs::remove_file(&output).ok();
            let mut request = request(&input, &output);
            request.output_type = type_number(ty);
            let result = run(&request);
            let want = &source[ty];
            let wide = ["I64", "I32"].contains(&name.as_str());
            if want.as_object().is_some_and(serde_json::Map::is_empty) || name == "BOOL" {
                // a file without a single tensor is no success for us
                assert!(result.is_err() && !output.exists(), "{name} {ty}");
                continue;
            }
            result.unwrap();
            let (dtype, found) = read_one(&output);
            if let Some(want) = want.get(NAME) {
                assert_eq!(Some(u64::from(dtype)), want[0].as_u64(), "{name} {ty}");
                assert_eq!(hex(&found), want[2].as_str().unwrap(), "{name} {ty}");
            } else if wide {
                // a crash there; whole numbers stay what they are
                assert_eq!(Some(u64::from(dtype)), source["SD_TYPE_COUNT"][NAME][0].as_u64(), "{name} {ty}");
            } else {
                // refused there; copied here
                assert_eq!(found, bytes, "{name} {ty}");
            }
        }
    }
}

fn read_one(path: &Path) -> (u32, Vec<u8>) {
    let file = ModelFile::open(path).unwrap();
    let tensor = file.get(NAME).unwrap();
    (tensor.dtype.ggml_id().unwrap(), file.read(tensor).unwrap())
}

#[test]
fn safetensors_as_output() {
    let folder = Folder::new("container");
    let recorded = recorded();
    let input = selection(&folder, &recorded);
    for (ty, want) in recorded["safetensors_out"].as_object().unwrap() {
        if !ty.starts_with("SD_TYPE") {
            // other endings than .safetensors mean GGUF
            let output = folder.path(ty.strip_prefix("output named ").unwrap());
            run(&request(&input, &output)).unwrap();
            assert!(std::fs::read(&output).unwrap().starts_with(b"GGUF"));
            continue;
        }
        let output = folder.path("out.safetensors");
        let mut request = request(&input, &output);
        request.output_type = type_number(ty);
        let result = run(&request);
        if want == "refused" {
            let error = result.unwrap_err().to_string();
            assert!(error.contains("output_path") && error.contains("output_type"), "{error}");
            continue;
        }
        result.unwrap();
        let bytes = std::fs::read(&output).unwrap();
        let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
        let header: Value = serde_json::from_slice(&bytes[8..8 + length]).unwrap();
        assert_eq!(header, want["header"], "{ty}");
        // the values of the recorded tensors are not known, those of one written here are
        let place = &header[NAME]["data_offsets"];
        let [start, end] = [0, 1].map(|i| 8 + length + place[i].as_u64().unwrap() as usize);
        if header[NAME]["dtype"] == "F32" {
            assert_eq!(bytes[start..end], f32s(&wave(1024)), "{ty}");
        }
    }
}

#[test]
fn threads_do_not_change_the_bytes() {
    let folder = Folder::new("threads");
    let input = folder.path("in.safetensors");
    let wide = wave(1 << 21);
    write_safetensors(
        &input,
        &[
            Given("model.diffusion_model.a.weight", "F32", vec![1 << 11, 1 << 10], f32s(&wide)),
            Given("model.diffusion_model.b.weight", "F32", vec![1 << 9, 1 << 9], f32s(&wide[..1 << 18])),
        ],
    );
    for ty in [Dtype::F16, Dtype::Q8_0, Dtype::Q4_K] {
        let outputs = [1, 3, 64].map(|threads| {
            let output = folder.path("out.gguf");
            let mut request = request(&input, &output);
            (request.output_type, request.n_threads) = (ty.ggml_id(), threads);
            run(&request).unwrap();
            std::fs::read(output).unwrap()
        });
        assert!(outputs[0] == outputs[1] && outputs[1] == outputs[2], "{ty}");
    }
}

#[test]
fn scaled_small_floats_are_written_multiplied() {
    let folder = Folder::new("scaled");
    let input = folder.path("in.safetensors");
    let codes: Vec<u8> = (0..64).collect();
    write_safetensors(
        &input,
        &[
            Given("model.diffusion_model.a.weight", "F8_E4M3", vec![4, 16], codes.clone()),
            Given("model.diffusion_model.a.scale_weight", "F32", vec![4], f32s(&[1.0, 2.0, 0.5, 4.0])),
            Given("scaled_fp8", "F8_E4M3", vec![0], Vec::new()),
        ],
    );
    let output = folder.path("out.gguf");
    let mut request = request(&input, &output);
    request.output_type = Dtype::F32.ggml_id();
    run(&request).unwrap();
    let file = ModelFile::open(&output).unwrap();
    assert_eq!(file.tensors().len(), 1);
    let bytes = file.read(&file.tensors()[0]).unwrap();
    let want: Vec<f32> = codes
        .iter()
        .enumerate()
        .map(|(i, &c)| stable_diffusion::files::e4m3_to_f32(c) * [1.0, 2.0, 0.5, 4.0][i / 16])
        .collect();
    assert_eq!(bytes, f32s(&want));
}
