use super::build::{Folder, safetensors};
use stable_diffusion::files::ModelFile;
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, Instant};

fn message(path: &std::path::Path) -> String {
    let start = Instant::now();
    let text = ModelFile::open(path).expect_err("refused").to_string();
    assert!(start.elapsed() < Duration::from_secs(1), "{text} took {:?}", start.elapsed());
    text
}

#[test]
fn odd_paths_are_refused_at_once() {
    let folder = Folder::new("paths");
    assert!(message(&folder.path("")).contains("is a folder"));
    assert!(message(&folder.path("none")).contains("no such file"));
    assert!(message(&folder.file("empty", b"")).contains("is empty"));
    assert!(message(&folder.file("text", b"hello")).contains("is no"));
    assert!(message(&folder.path(&"n".repeat(300))).contains("cannot be opened"));
    assert!(message(std::path::Path::new("/dev/zero")).contains("pipe or device"));
    assert!(message(std::path::Path::new("")).contains("no such file"));
    let odd = std::path::Path::new(std::ffi::OsStr::from_bytes(b"/tmp/\xff\xfe/x"));
    assert!(message(odd).contains("no such file"));
    let fifo = folder.path("fifo");
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    assert!(message(&fifo).contains("pipe or device"));
}

#[test]
fn read_only_files_can_be_mapped_and_names_need_not_be_text() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new("readonly");
    let header = r#"{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}"#;
    let plain = folder.file("x", &safetensors(header, &[5, 6]));
    let path = folder.path("").join(std::ffi::OsStr::from_bytes(b"\xff.safetensors"));
    std::fs::rename(plain, &path).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o444)).unwrap();
    let file = ModelFile::open(&path).unwrap();
    assert_eq!(file.mapped(&file.tensors()[0]).unwrap(), [5, 6]);
    assert_eq!(file.read(&file.tensors()[0]).unwrap(), [5, 6]);
}
