//! Builders of small files, right and wrong ones.
#![allow(dead_code)]

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

/// One member of a zip archive; the fields that hostile archives lie about are open.
#[derive(Clone)]
pub struct Member {
    pub name: String,
    pub method: u16,
    pub flags: u16,
    pub crc: u32,
    /// Bytes as packed.
    pub data: Vec<u8>,
    /// Claimed sizes, packed and unpacked.
    pub sizes: (u32, u32),
    /// Place of the header, if it is not the true one.
    pub header: Option<u32>,
}

impl Member {
    pub fn stored(name: &str, data: &[u8]) -> Self {
        let len = data.len() as u32;
        let name = name.to_owned();
        Self { name, method: 0, flags: 0, crc: 0, data: data.to_vec(), sizes: (len, len), header: None }
    }

    /// `data` deflated, with its true checksum and sizes.
    pub fn deflated(name: &str, data: &[u8]) -> Self {
        use std::io::Write;
        let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::best());
        encoder.write_all(data).unwrap();
        let packed = encoder.finish().unwrap();
        let mut crc = flate2::Crc::new();
        crc.update(data);
        let sizes = (packed.len() as u32, data.len() as u32);
        Self { method: 8, crc: crc.sum(), sizes, ..Self::stored(name, &packed) }
    }
}

/// A zip archive.
pub fn zip(members: &[Member]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut table = Vec::new();
    for m in members {
        let header = m.header.unwrap_or(out.len() as u32);
        let common = |out: &mut Vec<u8>| {
            out.extend([20, 0]);
            for v in [m.flags, m.method, 0, 0] {
                out.extend(v.to_le_bytes());
            }
            for v in [m.crc, m.sizes.0, m.sizes.1] {
                out.extend(v.to_le_bytes());
            }
            out.extend((m.name.len() as u16).to_le_bytes());
            out.extend([0, 0]);
        };
        out.extend(b"PK\x03\x04");
        common(&mut out);
        out.extend(m.name.as_bytes());
        out.extend(&m.data);
        table.extend(b"PK\x01\x02\x14\x00");
        common(&mut table);
        table.extend([0; 10]);
        table.extend(header.to_le_bytes());
        table.extend(m.name.as_bytes());
    }
    let start = out.len() as u32;
    out.extend(&table);
    out.extend(b"PK\x05\x06\0\0\0\0");
    out.extend((members.len() as u16).to_le_bytes());
    out.extend((members.len() as u16).to_le_bytes());
    out.extend((table.len() as u32).to_le_bytes());
    out.extend(start.to_le_bytes());
    out.extend([0, 0]);
    out
}

/// Pieces of pickles, protocol 2.
pub mod pickle {
    pub fn text(s: &str) -> Vec<u8> {
        [&b"X"[..], &(s.len() as u32).to_le_bytes(), s.as_bytes()].concat()
    }

    pub fn int(v: i64) -> Vec<u8> {
        [&b"\x8a\x08"[..], &v.to_le_bytes()].concat()
    }

    pub fn tuple(items: &[i64]) -> Vec<u8> {
        [b"(".to_vec(), items.iter().flat_map(|&v| int(v)).collect(), b"t".to_vec()].concat()
    }

    pub fn storage(class: &str, key: &str, elements: i64) -> Vec<u8> {
        let class = format!("ctorch\n{class}\n").into_bytes();
        [b"(".to_vec(), text("storage"), class, text(key), text("cpu"), int(elements), b"tQ".to_vec()]
            .concat()
    }

    pub fn tensor(storage: &[u8], first: i64, shape: &[i64], strides: &[i64]) -> Vec<u8> {
        let call = b"ctorch._utils\n_rebuild_tensor_v2\n(".to_vec();
        let hooks = b"\x89ccollections\nOrderedDict\n)RtR".to_vec();
        [call, storage.to_vec(), int(first), tuple(shape), tuple(strides), hooks].concat()
    }

    /// A dictionary of one value.
    pub fn dict(key: &str, value: &[u8]) -> Vec<u8> {
        [b"\x80\x02}".to_vec(), text(key), value.to_vec(), b"s.".to_vec()].concat()
    }

    /// A checkpoint of one tensor `w` of four f32 in storage `0`.
    pub fn plain() -> Vec<u8> {
        dict("w", &tensor(&storage("FloatStorage", "0", 4), 0, &[4], &[1]))
    }
}

/// A torch archive of a pickle and storage `0` of 16 bytes.
pub fn torch_zip(pickle: &[u8]) -> Vec<u8> {
    zip(&[Member::stored("a/data.pkl", pickle), Member::stored("a/data/0", &[7; 16])])
}
