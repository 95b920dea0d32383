//! Small model files, conversions and digests.

use serde_json::{Value, json};
use stable_diffusion::engine::convert;
use stable_diffusion::engine::request::ConvertRequest;
use stable_diffusion::error::Result;
use stable_diffusion::report::Callbacks;
use std::path::{Path, PathBuf};

/// A folder that goes away with the value.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("convert-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Names of the files that are there, sorted.
    pub fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.0).unwrap();
        let mut names: Vec<_> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}

/// The recorded results.
pub fn recorded() -> Value {
    let packed = include_bytes!("../data/units/convert.json.gz");
    serde_json::from_reader(flate2::read::GzDecoder::new(&packed[..])).unwrap()
}

/// A tensor of a file: name, safetensors type, shape slowest axis first, bytes.
pub struct Given<'a>(pub &'a str, pub &'a str, pub Vec<usize>, pub Vec<u8>);

/// Writes a safetensors file.
pub fn write_safetensors(path: &Path, tensors: &[Given<'_>]) {
    let mut header = serde_json::Map::new();
    let mut data: Vec<u8> = Vec::new();
    for Given(name, dtype, shape, bytes) in tensors {
        let range = [data.len(), data.len() + bytes.len()];
        header.insert((*name).into(), json!({"dtype": dtype, "shape": shape, "data_offsets": range}));
        data.extend(bytes);
    }
    let header = Value::Object(header).to_string();
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header.as_bytes());
    file.extend(data);
    std::fs::write(path, file).unwrap();
}

pub fn f32s(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

/// The values that the recorded bytes were made from.
pub fn wave(count: usize) -> Vec<f32> {
    let value = |i: usize| 0.25 * (0.37 * i as f64 + 0.1).sin() * (1 + i % 7) as f64;
    (0..count).map(|i| value(i) as f32).collect()
}

pub fn request(input: &Path, output: &Path) -> ConvertRequest {
    ConvertRequest {
        model: Some(input.to_path_buf()),
        clip_l: None,
        clip_g: None,
        t5xxl: None,
        diffusion_model: None,
        vae: None,
        output: output.to_path_buf(),
        output_type: None,
        tensor_type_rules: None,
        convert_name: false,
        n_threads: 2,
    }
}

pub fn run(request: &ConvertRequest) -> Result<()> {
    convert(request, &Callbacks::default())
}

/// Number of a type by its name in the C interface; `None` for "as stored".
pub fn type_number(name: &str) -> Option<u32> {
    let name = name.strip_prefix("SD_TYPE_").unwrap();
    (name != "COUNT").then(|| stable_diffusion::files::Dtype::from_name(name).unwrap().ggml_id().unwrap())
}

pub fn unhex(text: &str) -> Vec<u8> {
    (0..text.len() / 2).map(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).unwrap()).collect()
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// SHA-256 (FIPS 180-4), as hexadecimal digits.
pub fn sha256(bytes: &[u8]) -> String {
    let mut state: [u32; 8] = std::array::from_fn(|i| root_bits(prime(i), 2));
    let constants: [u32; 64] = std::array::from_fn(|i| root_bits(prime(i), 3));
    let mut message = bytes.to_vec();
    message.push(0x80);
    message.resize((message.len() + 8).next_multiple_of(64) - 8, 0);
    message.extend((bytes.len() as u64 * 8).to_be_bytes());
    for block in message.chunks_exact(64) {
        let mut w = [0u32; 64];
        for i in 0..64 {
            w[i] = if i < 16 {
                u32::from_be_bytes(block[4 * i..4 * i + 4].try_into().unwrap())
            } else {
                let (a, b) = (w[i - 15], w[i - 2]);
                let a = a.rotate_right(7) ^ a.rotate_right(18) ^ (a >> 3);
                let b = b.rotate_right(17) ^ b.rotate_right(19) ^ (b >> 10);
                w[i - 16].wrapping_add(a).wrapping_add(w[i - 7]).wrapping_add(b)
            };
        }
        let mut s = state;
        for i in 0..64 {
            let e = s[4].rotate_right(6) ^ s[4].rotate_right(11) ^ s[4].rotate_right(25);
            let choice = (s[4] & s[5]) ^ (!s[4] & s[6]);
            let one = s[7].wrapping_add(e).wrapping_add(choice).wrapping_add(constants[i]).wrapping_add(w[i]);
            let a = s[0].rotate_right(2) ^ s[0].rotate_right(13) ^ s[0].rotate_right(22);
            let two = a.wrapping_add((s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]));
            s = [one.wrapping_add(two), s[0], s[1], s[2], s[3].wrapping_add(one), s[4], s[5], s[6]];
        }
        state.iter_mut().zip(s).for_each(|(a, b)| *a = a.wrapping_add(b));
    }
    state.iter().map(|v| format!("{v:08x}")).collect()
}

fn prime(index: usize) -> u64 {
    (2u64..).filter(|n| (2..*n).all(|d| n % d != 0)).nth(index).unwrap()
}

/// The first 32 bits after the point of the square or cube root.
fn root_bits(n: u64, degree: u32) -> u32 {
    // floor(root(n) * 2^32), by bisection in whole numbers
    let scaled = |x: u128| x.pow(degree) <= u128::from(n) << (32 * degree);
    let (mut low, mut high) = (0u128, 1 << 38);
    while high - low > 1 {
        let middle = (low + high) / 2;
        if scaled(middle) { low = middle } else { high = middle }
    }
    low as u32
}

#[test]
fn digest_of_the_standard() {
    assert_eq!(sha256(b"abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}
