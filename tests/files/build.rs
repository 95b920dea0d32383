//! Builders of small files, right and wrong ones.

use std::path::PathBuf;

/// A folder below the target directory that goes away with the value.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("files-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, bytes).unwrap();
        path
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}

/// A safetensors file of a header text and data.
pub fn safetensors(header: &str, data: &[u8]) -> Vec<u8> {
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend_from_slice(header.as_bytes());
    file.extend_from_slice(data);
    file
}

/// A GGUF file, piece by piece.
pub struct Gguf {
    pub bytes: Vec<u8>,
}

impl Gguf {
    pub fn new(version: u32, tensors: u64, pairs: u64) -> Self {
        let mut bytes = b"GGUF".to_vec();
        bytes.extend(version.to_le_bytes());
        bytes.extend(tensors.to_le_bytes());
        bytes.extend(pairs.to_le_bytes());
        Self { bytes }
    }

    pub fn text(mut self, text: &[u8]) -> Self {
        self.bytes.extend((text.len() as u64).to_le_bytes());
        self.bytes.extend(text);
        self
    }

    pub fn raw(mut self, bytes: &[u8]) -> Self {
        self.bytes.extend(bytes);
        self
    }

    pub fn pair(self, key: &str, kind: u32, value: &[u8]) -> Self {
        self.text(key.as_bytes()).raw(&kind.to_le_bytes()).raw(value)
    }

    pub fn tensor(self, name: &str, shape: &[u64], kind: u32, offset: u64) -> Self {
        let mut s = self.text(name.as_bytes()).raw(&(shape.len() as u32).to_le_bytes());
        for d in shape {
            s = s.raw(&d.to_le_bytes());
        }
        s.raw(&kind.to_le_bytes()).raw(&offset.to_le_bytes())
    }

    pub fn data(mut self, alignment: usize, data: &[u8]) -> Vec<u8> {
        self.bytes.resize(self.bytes.len().next_multiple_of(alignment), 0);
        self.bytes.extend(data);
        self.bytes
    }
}

pub fn f32s(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}
