use super::build::{Folder, f32s};
use stable_diffusion::files::{
    Array, Container, Dtype, Metadata, ModelFile, Planned, Value, Writer, same_file,
};
use std::path::Path;

fn plan() -> Vec<Planned> {
    let p = |name: &str, dtype, shape: &[usize]| Planned { name: name.into(), dtype, shape: shape.to_vec() };
    vec![
        p("a \"quoted\" \u{1} name", Dtype::F16, &[3]),
        p("b.weight", Dtype::F32, &[2, 3, 1, 1]),
        p("c.scalar", Dtype::BF16, &[]),
        p("d.empty", Dtype::F32, &[0, 5]),
        p("e", Dtype::I32, &[4]),
    ]
}

fn bytes(index: usize, len: u64) -> Vec<u8> {
    (0..len).map(|i| (i as u8).wrapping_mul(31).wrapping_add(index as u8)).collect()
}

fn write(target: &Path, container: Container, plan: &[Planned], metadata: &Metadata) {
    let writer = Writer::create(target, container, plan, metadata).unwrap();
    std::thread::scope(|scope| {
        for start in 0..3 {
            let writer = &writer;
            scope.spawn(move || {
                for i in (start..plan.len()).step_by(3) {
                    let data = bytes(i, writer.nbytes(i));
                    let half = data.len() / 2;
                    writer.write_part(i, half as u64, &data[half..]).unwrap();
                    writer.write_part(i, 0, &data[..half]).unwrap();
                }
            });
        }
    });
    let total = writer.file_bytes();
    writer.finish().unwrap();
    assert_eq!(std::fs::metadata(target).unwrap().len(), total);
}

fn check(target: &Path, plan: &[Planned]) -> ModelFile {
    let file = ModelFile::open(target).unwrap();
    assert_eq!(file.tensors().len(), plan.len());
    for (i, p) in plan.iter().enumerate() {
        let entry = file.get(&p.name).unwrap();
        assert_eq!(entry.dtype, p.dtype);
        assert_eq!(entry.elements(), p.shape.iter().product::<usize>());
        assert_eq!(file.read(entry).unwrap(), bytes(i, entry.nbytes), "{}", p.name);
    }
    file
}

#[test]
fn what_is_written_is_read_again() {
    let folder = Folder::new("write");
    let mut text = Metadata::default();
    assert!(text.insert("format", Value::String("p\"t".into())));
    assert!(!text.insert("format", Value::Bool(true)));
    let path = folder.path("x.safetensors");
    write(&path, Container::of_path(&path), &plan(), &text);
    assert_eq!(check(&path, &plan()).metadata().str("format"), Some("p\"t"));
    let raw = std::fs::read(&path).unwrap();
    let header = u64::from_le_bytes(raw[..8].try_into().unwrap());
    assert_eq!(header % 4, 0, "f32 data is aligned");
    let view = safetensors::SafeTensors::deserialize(&raw).unwrap();
    assert_eq!(view.tensor("b.weight").unwrap().shape(), [1, 1, 3, 2]);

    let mut all = Metadata::default();
    let values = [
        Value::U8(1),
        Value::I8(-1),
        Value::U16(2),
        Value::I16(-2),
        Value::U32(3),
        Value::I32(-3),
        Value::U64(4),
        Value::I64(-4),
        Value::F32(0.5),
        Value::F64(0.25),
        Value::Bool(true),
        Value::String("text".into()),
        Value::Array(Array::String(vec!["a".into(), String::new()])),
        Value::Array(Array::F32(vec![1.0, 2.0])),
        Value::Array(Array::Bool(vec![true, false])),
        Value::Array(Array::I64(vec![])),
    ];
    for (i, value) in values.iter().enumerate() {
        assert!(all.insert(format!("key.{i}"), value.clone()));
    }
    let mut with_blocks = plan();
    with_blocks.push(Planned { name: "q".into(), dtype: Dtype::Q4_K, shape: vec![512, 3] });
    let path = folder.path("x.gguf");
    write(&path, Container::of_path(&path), &with_blocks, &all);
    let file = check(&path, &with_blocks);
    for (i, value) in values.iter().enumerate() {
        assert_eq!(file.metadata().get(&format!("key.{i}")), Some(value));
    }
    assert!(file.tensors().iter().all(|t| t.offset % 32 == 0));
    assert_eq!(std::fs::metadata(&path).unwrap().len() % 32, 0);
    assert_eq!(file.get("c.scalar").unwrap().shape, [1]);
    // an older file of that name is replaced
    write(&path, Container::Gguf, &plan()[..2], &Metadata::default());
    check(&path, &plan()[..2]);
}

#[test]
fn recorded_safetensors_header() {
    // oracle/units/convert.json: names in order, no spaces, data right after the header
    let plan = [
        Planned { name: "a.w".into(), dtype: Dtype::F32, shape: vec![256, 4] },
        Planned { name: "b".into(), dtype: Dtype::F16, shape: vec![1] },
    ];
    let folder = Folder::new("header");
    let path = folder.path("x.safetensors");
    write(&path, Container::Safetensors, &plan, &Metadata::default());
    let raw = std::fs::read(&path).unwrap();
    let text = r#"{"a.w":{"dtype":"F32","shape":[4,256],"data_offsets":[0,4096]},"b":{"dtype":"F16","shape":[1],"data_offsets":[4096,4098]}}"#;
    assert_eq!(std::str::from_utf8(&raw[8..8 + text.len()]).unwrap(), text);
    assert_eq!(raw.len(), 8 + text.len().next_multiple_of(4) + 4098);
}

#[test]
fn failures_leave_the_target_alone() {
    let folder = Folder::new("fail");
    let target = folder.file("x.gguf", b"old");
    let entries = || std::fs::read_dir(folder.path("")).unwrap().count();
    let none = Metadata::default();
    let before = entries();
    let writer = Writer::create(&target, Container::Gguf, &plan(), &none).unwrap();
    assert_eq!(entries(), before + 1);
    writer.write_at(0, &[0; 6]).unwrap();
    assert!(writer.write_at(1, &[0; 6]).is_err());
    assert!(writer.write_part(0, 6, &[0]).is_err());
    assert!(writer.write_part(99, 0, &[]).is_err());
    assert!(writer.finish().unwrap_err().to_string().contains("'b.weight' was written by 0 of 24 bytes"));
    assert_eq!((entries(), std::fs::read(&target).unwrap().as_slice()), (before, &b"old"[..]));
    drop(Writer::create(&target, Container::Gguf, &plan(), &none).unwrap());
    assert_eq!((entries(), std::fs::read(&target).unwrap().as_slice()), (before, &b"old"[..]));

    let refused = |target: &Path, container, plan: &[Planned]| {
        Writer::create(target, container, plan, &none).expect_err("refused").to_string()
    };
    assert!(refused(&folder.path("none/x.gguf"), Container::Gguf, &plan()).contains("folder does not exist"));
    assert!(refused(&folder.path(""), Container::Gguf, &plan()).contains("is a folder"));
    assert!(refused(Path::new("/dev/null"), Container::Gguf, &plan()).contains("pipe or device"));
    assert!(refused(Path::new(""), Container::Gguf, &plan()).contains("names no file"));
    assert!(refused(&folder.path(&"n".repeat(300)), Container::Gguf, &plan()).contains("cannot be written"));
    assert!(refused(Path::new("/proc/x.gguf"), Container::Gguf, &plan()).contains("/proc/x.gguf: "));
    let one =
        |name: &str, dtype, shape: &[usize]| [Planned { name: name.into(), dtype, shape: shape.to_vec() }];
    for (container, plan, expected) in [
        (Container::Safetensors, one("q", Dtype::Q8_0, &[32]), "safetensors has no type q8_0"),
        (Container::Safetensors, one("__metadata__", Dtype::F32, &[1]), "named __metadata__"),
        (Container::Gguf, one("q", Dtype::F8_E4M3, &[32]), "GGUF has no type f8_e4m3"),
        (Container::Gguf, one("q", Dtype::Q8_0, &[33]), "shape [33] cannot be written"),
        (Container::Gguf, one("q", Dtype::F32, &[1, 1, 1, 1, 2]), "5 axes"),
        (Container::Gguf, one("q", Dtype::F32, &[usize::MAX, 2]), "cannot be written"),
        (Container::Gguf, one("", Dtype::F32, &[1]), "name that cannot be written"),
    ] {
        let got = refused(&target, container, &plan);
        assert!(got.contains(expected), "{got}");
    }
    let twice = [plan()[0].clone(), plan()[0].clone()];
    assert!(refused(&target, Container::Gguf, &twice).contains("written twice"));
    assert_eq!(entries(), before);
}

#[test]
fn links_are_followed() {
    let folder = Folder::new("links");
    let real = folder.file("real.gguf", b"old");
    let (soft, hard) = (folder.path("soft.gguf"), folder.path("hard.gguf"));
    std::os::unix::fs::symlink(&real, &soft).unwrap();
    std::fs::hard_link(&real, &hard).unwrap();
    assert!(same_file(&real, &soft) && same_file(&soft, &hard) && same_file(&real, &real));
    assert!(!same_file(&real, &folder.path("none")) && !same_file(&real, &folder.file("other", b"old")));
    write(&soft, Container::Gguf, &plan(), &Metadata::default());
    assert!(std::fs::symlink_metadata(&soft).unwrap().is_symlink());
    check(&real, &plan());
    assert_eq!(std::fs::read(&hard).unwrap(), b"old");
}

#[test]
fn a_full_disk_is_reported() {
    // a file system with no room at all, where the system lets us have one
    let folder = Folder::new("full");
    let disk = folder.path("disk");
    std::fs::create_dir_all(&disk).unwrap();
    let mount = |args: &[&str]| std::process::Command::new("mount").args(args).arg(&disk).output();
    let mounted = mount(&["-t", "tmpfs", "-o", "size=64k", "none"]).is_ok_and(|o| o.status.success());
    if !mounted {
        return;
    }
    let plan = [Planned { name: "a".into(), dtype: Dtype::F32, shape: vec![1 << 20] }];
    let writer = Writer::create(&disk.join("x.gguf"), Container::Gguf, &plan, &Metadata::default()).unwrap();
    let error = writer.write_at(0, &vec![1; 4 << 20]).unwrap_err().to_string();
    drop(writer);
    let left = std::fs::read_dir(&disk).unwrap().count();
    std::process::Command::new("umount").arg(&disk).status().unwrap();
    assert!(error.contains("disk is full"), "{error}");
    assert_eq!(left, 0);
}

#[test]
fn values_of_one_file_go_to_another() {
    let folder = Folder::new("copy");
    let path = folder.path("a.safetensors");
    let plan = [Planned { name: "a".into(), dtype: Dtype::F32, shape: vec![3] }];
    let writer = Writer::create(&path, Container::Safetensors, &plan, &Metadata::default()).unwrap();
    writer.write_at(0, &f32s(&[1.0, 2.0, 3.0])).unwrap();
    writer.finish().unwrap();
    let source = ModelFile::open(&path).unwrap();
    let out = folder.path("b.gguf");
    let writer = Writer::create(&out, Container::Gguf, &plan, &Metadata::default()).unwrap();
    writer.write_at(0, source.mapped(&source.tensors()[0]).unwrap()).unwrap();
    writer.finish().unwrap();
    let copy = ModelFile::open(&out).unwrap();
    assert_eq!(copy.read(&copy.tensors()[0]).unwrap(), f32s(&[1.0, 2.0, 3.0]));
}
