//! Models split over several files: `*.index.json` names the file of each tensor.
//!
//! `{"metadata": {...}, "weight_map": {"tensor": "model-00001-of-00003.safetensors", ...}}`; the files lie beside it.
#![forbid(unsafe_code)]

use super::limits;
use super::model::{Contents, Format, ModelFile, read_contents};
use super::source::Source;
use crate::error::{Error, Result};
use serde::de::{self, Deserializer, MapAccess, Visitor};
use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::path::{Component, Path};

/// Whether the file is text that starts an object. The length at the start of a safetensors file may begin
/// with the same byte, but has a zero among its eight.
pub(super) fn sniff(source: &Source) -> Result<bool> {
    let mut start = [0; 64];
    let len = source.len().min(start.len() as u64) as usize;
    source.read_at(0, &mut start[..len])?;
    let text = &start[..len];
    Ok(text.iter().find(|b| !b.is_ascii_whitespace()) == Some(&b'{') && !text[..len.min(8)].contains(&0))
}

/// Opens all files that the index names.
pub(super) fn open(source: &Source) -> Result<ModelFile> {
    if source.len() > limits::INDEX_BYTES {
        return Err(source.error(format!(
            "is an index of {} bytes, at most {} were expected",
            source.len(),
            limits::INDEX_BYTES
        )));
    }
    let text = source.read_vec(0, source.len())?;
    let map = parse(&text).map_err(|e| source.error(format!("index of shards: {e}")))?;
    if map.is_empty() {
        return Err(source.error("is an index that names no file"));
    }
    if map.len() > limits::SHARDS {
        return Err(source.error(format!(
            "names {} files, at most {} were expected",
            map.len(),
            limits::SHARDS
        )));
    }
    let folder = source.path().parent().unwrap_or(Path::new(""));
    let mut parts = Vec::with_capacity(map.len());
    for (file, tensors) in &map {
        let shard = shard(source, folder, file)?;
        let contents = read_contents(&shard)?;
        complete(source, file, tensors, &contents)?;
        parts.push((shard, contents));
    }
    ModelFile::build(source.path().to_path_buf(), Format::Sharded, parts)
}

/// Shards lie beside the index; a link of that name is fine, a path is not.
fn shard(index: &Source, folder: &Path, file: &str) -> Result<Source> {
    let mut parts = Path::new(file).components();
    let plain = matches!((parts.next(), parts.next()), (Some(Component::Normal(n)), None) if n == file);
    if !plain || file.contains(['\\', '\0']) {
        return Err(index.error(format!(
            "names the shard '{}', a file beside the index was expected",
            file.escape_debug()
        )));
    }
    let path = folder.join(file);
    let shard = Source::open(&path).map_err(|e| match e {
        Error::File { message, .. } => index.error(format!("shard '{file}': {message}")),
        other => other,
    })?;
    if sniff(&shard)? {
        return Err(index.error(format!("names the shard '{file}', which is an index itself")));
    }
    Ok(shard)
}

/// Every tensor that the index puts into a shard is there.
fn complete(index: &Source, file: &str, tensors: &[String], contents: &Contents) -> Result<()> {
    let held: HashSet<&str> = contents.tensors.iter().map(|t| t.name.as_str()).collect();
    match tensors.iter().find(|t| !held.contains(t.as_str())) {
        Some(missing) => Err(index.error(format!("puts tensor '{missing}' into '{file}', which lacks it"))),
        None => Ok(()),
    }
}

/// File -> its tensors.
type Shards = BTreeMap<String, Vec<String>>;

fn parse(text: &[u8]) -> std::result::Result<Shards, serde_json::Error> {
    let mut json = serde_json::Deserializer::from_slice(text);
    let shards = json.deserialize_map(IndexVisitor)?;
    json.end()?;
    Ok(shards)
}

struct IndexVisitor;

impl<'de> Visitor<'de> for IndexVisitor {
    type Value = Shards;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with weight_map")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<Shards, A::Error> {
        let mut shards = None;
        while let Some(key) = map.next_key::<String>()? {
            if key != "weight_map" {
                map.next_value::<de::IgnoredAny>()?;
            } else if shards.replace(map.next_value::<WeightMap>()?.0).is_some() {
                return Err(de::Error::custom("weight_map occurs twice"));
            }
        }
        shards.ok_or_else(|| de::Error::missing_field("weight_map"))
    }
}

struct WeightMap(Shards);

impl<'de> de::Deserialize<'de> for WeightMap {
    fn deserialize<D: Deserializer<'de>>(d: D) -> std::result::Result<Self, D::Error> {
        struct MapVisitor;
        impl<'de> Visitor<'de> for MapVisitor {
            type Value = WeightMap;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of file names")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<WeightMap, A::Error> {
                let mut shards = Shards::new();
                let mut seen = HashSet::new();
                while let Some((tensor, file)) = map.next_entry::<String, String>()? {
                    if seen.len() as u64 == limits::TENSORS {
                        return Err(de::Error::custom(format_args!("more than {} tensors", limits::TENSORS)));
                    }
                    if !seen.insert(tensor.clone()) {
                        return Err(de::Error::custom(format_args!("tensor '{tensor}' occurs twice")));
                    }
                    shards.entry(file).or_default().push(tensor);
                }
                Ok(WeightMap(shards))
            }
        }
        d.deserialize_map(MapVisitor)
    }
}
