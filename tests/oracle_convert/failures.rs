//! Conversions that fail: a message that names the field, nothing written, nothing lost.

use super::support::*;
use stable_diffusion::engine::request::ConvertRequest;
use stable_diffusion::report::Callbacks;
use std::cell::RefCell;
use std::path::PathBuf;
use std::rc::Rc;

fn input(folder: &Folder) -> PathBuf {
    let path = folder.path("in.safetensors");
    write_safetensors(
        &path,
        &[Given("model.diffusion_model.t.weight", "F32", vec![4, 256], f32s(&wave(1024)))],
    );
    path
}

/// Converts, expects a failure, and that no file is there which was not before.
fn refused(folder: &Folder, request: &ConvertRequest) -> String {
    let before = folder.names();
    let error = run(request).expect_err("refused").to_string();
    assert_eq!(folder.names(), before, "{error}");
    error
}

#[test]
fn every_refusal_names_its_field() {
    let folder = Folder::new("refusals");
    let input = input(&folder);
    let base = request(&input, &folder.path("out.gguf"));
    let with = |change: &dyn Fn(&mut ConvertRequest)| {
        let mut request = base.clone();
        change(&mut request);
        refused(&folder, &request)
    };
    for ty in [9, 15, 24, 25, 26, 27, 28, 31, 999] {
        let error = with(&|r| r.output_type = Some(ty));
        assert!(error.contains("output_type"), "{ty}: {error}");
    }
    for rules in ["bogus", "t=nonsense", "(=f16", "t=q8_K", "t="] {
        let error = with(&|r| r.tensor_type_rules = Some(rules.into()));
        assert!(error.contains("tensor_type_rules"), "{rules}: {error}");
    }
    let error = with(&|r| r.output = folder.path("no/such/folder/out.gguf"));
    assert!(error.contains("output_path") && error.contains("folder"), "{error}");
    let error = with(&|r| r.output = folder.path(""));
    assert!(error.contains("output_path") && error.contains("is a folder"), "{error}");
    let error = with(&|r| r.model = Some(folder.path("missing.safetensors")));
    assert!(error.contains("model_path") && error.contains("no such file"), "{error}");
    let error = with(&|r| r.vae = Some(folder.path("missing.gguf")));
    assert!(error.contains("vae_path"), "{error}");
    let error = with(&|r| r.model = None);
    assert!(error.contains("model_path"), "{error}");
    let error = with(&|r| r.output = input.clone());
    assert!(error.contains("output_path") && error.contains("is the input"), "{error}");
    assert!(std::fs::metadata(&input).unwrap().len() > 4096);
}

#[test]
#[cfg(unix)]
fn an_input_behind_a_link_is_not_overwritten() {
    let folder = Folder::new("links");
    let input = input(&folder);
    let before = std::fs::read(&input).unwrap();
    let (soft, hard) = (folder.path("soft.gguf"), folder.path("hard.gguf"));
    std::os::unix::fs::symlink(&input, &soft).unwrap();
    std::fs::hard_link(&input, &hard).unwrap();
    for output in [&soft, &hard] {
        let error = refused(&folder, &request(&input, output));
        assert!(error.contains("is the input"), "{error}");
    }
    assert_eq!(std::fs::read(&input).unwrap(), before);
}

#[test]
fn a_file_without_tensors_of_a_model_is_refused() {
    let folder = Folder::new("nothing");
    let path = folder.path("in.safetensors");
    write_safetensors(&path, &[Given("betas", "F32", vec![4], f32s(&wave(4)))]);
    let error = refused(&folder, &request(&path, &folder.path("out.gguf")));
    assert!(error.contains("no tensor of a model"), "{error}");
}

#[test]
fn what_was_there_stays_until_the_output_is_whole() {
    let folder = Folder::new("whole");
    let input = input(&folder);
    let output = folder.path("out.gguf");
    std::fs::write(&output, b"before").unwrap();
    let mut bad = request(&input, &output);
    bad.output_type = Some(9);
    refused(&folder, &bad);
    assert_eq!(std::fs::read(&output).unwrap(), b"before");
    // cut after its header was checked: the data ends while it is being read
    run(&request(&input, &output)).unwrap();
    assert!(std::fs::read(&output).unwrap().starts_with(b"GGUF"));
}

#[test]
fn progress_ends_with_everything() {
    let folder = Folder::new("progress");
    let input = folder.path("in.safetensors");
    let values = f32s(&wave(1 << 20));
    write_safetensors(&input, &[Given("model.diffusion_model.t.weight", "F32", vec![1 << 12, 256], values)]);
    let heard = Rc::new(RefCell::new(Vec::new()));
    let hearing = heard.clone();
    let callbacks = Callbacks {
        progress: Some(Box::new(move |step, steps, _| hearing.borrow_mut().push((step, steps)))),
        ..Callbacks::default()
    };
    stable_diffusion::engine::convert(&request(&input, &folder.path("out.gguf")), &callbacks).unwrap();
    let heard = heard.borrow();
    assert_eq!(heard.last(), Some(&(4, 4)), "{heard:?}");
    assert!(heard.windows(2).all(|pair| pair[0].0 <= pair[1].0), "{heard:?}");
}
