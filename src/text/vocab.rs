//! Vocabularies as compiled-in data: `assets/vocab/*.bin`, written by `scripts/vocab.py`, which describes the layout.
#![forbid(unsafe_code)]

use std::io::Read;

use crate::error::{Error, Result};

/// Tokens by id and ids by token.
pub(crate) struct Vocab {
    /// All tokens one after another.
    bytes: Vec<u8>,
    /// End of token `id` in `bytes`.
    ends: Vec<u32>,
    /// Length of the left part of a token that was stored as a pair, else 0.
    left: Vec<u8>,
    /// Open addressing: id + 1, 0 when free; empty for a vocabulary with scores.
    slots: Vec<u32>,
    longest: usize,
    /// Special tokens in matching order.
    pub(crate) specials: Vec<(Vec<u8>, u32)>,
    /// Log probability of each token; empty for byte pair vocabularies.
    pub(crate) scores: Vec<f32>,
}

/// Stands for the length of an empty token; 0 marks a pair.
const EMPTY: u8 = 255;

/// Reads little-endian numbers and slices; an error instead of reading past the end.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, n: usize) -> Result<&'a [u8]> {
        if n > self.0.len() {
            return Err(damaged("ends early"));
        }
        let (head, tail) = self.0.split_at(n);
        self.0 = tail;
        Ok(head)
    }

    fn u32(&mut self) -> Result<u32> {
        let b = self.take(4)?;
        Ok(u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
    }

    fn size(&mut self) -> Result<usize> {
        Ok(self.u32()? as usize)
    }

    fn varint(&mut self) -> Result<u32> {
        let mut value = 0u64;
        for shift in (0..35).step_by(7) {
            let b = self.take(1)?[0];
            value |= u64::from(b & 127) << shift;
            if b < 128 {
                return u32::try_from(value).map_err(|_| damaged("has a number out of range"));
            }
        }
        Err(damaged("has a number out of range"))
    }
}

fn damaged(what: &str) -> Error {
    Error::Internal(format!("compiled-in vocabulary {what}"))
}

fn hash(token: &[u8]) -> usize {
    const K: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut h = (token.len() as u64).wrapping_mul(K);
    for chunk in token.chunks(8) {
        let mut word = [0u8; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        h = (h ^ u64::from_le_bytes(word)).wrapping_mul(K);
        h ^= h >> 32;
    }
    h as usize
}

impl Vocab {
    /// Unpacks a `.bin` asset.
    pub(crate) fn open(asset: &[u8]) -> Result<Self> {
        let mut head = Reader(asset);
        if head.take(8)? != b"SDVOCAB1" {
            return Err(damaged("is of another kind"));
        }
        let [size, count, literals, pairs, specials, scores] =
            [head.size()?, head.size()?, head.size()?, head.size()?, head.size()?, head.size()?];
        let mut body = Vec::with_capacity(size);
        flate2::read::ZlibDecoder::new(head.0)
            .take(size as u64)
            .read_to_end(&mut body)
            .map_err(|e| damaged(&format!("cannot be inflated: {e}")))?;
        let mut body = Reader(&body);
        let lengths = body.take(count)?;
        let mut literals = Reader(body.take(literals)?);
        let planes = body.take(6 * pairs)?;
        let mut vocab = Self::tokens(lengths, &mut literals, planes)?;
        for _ in 0..specials {
            let id = body.u32()?;
            let n = usize::from(body.take(1)?[0]);
            vocab.specials.push((body.take(n)?.to_vec(), id));
        }
        vocab.scores = scores_of(Reader(body.take(scores)?), count)?;
        if scores == 0 {
            vocab.index();
        }
        Ok(vocab)
    }

    fn tokens(lengths: &[u8], literals: &mut Reader, planes: &[u8]) -> Result<Self> {
        let count = lengths.len();
        let pairs = planes.len() / 6;
        let id = |plane: usize, i: usize| -> usize {
            (0..3).map(|k| usize::from(planes[(3 * plane + k) * pairs + i]) << (8 * k)).sum()
        };
        let mut bytes: Vec<u8> = Vec::with_capacity(count * 12);
        let mut ends: Vec<u32> = Vec::with_capacity(count);
        let mut left = vec![0u8; count];
        let (mut pair, mut longest) = (0, 0);
        for (i, &n) in lengths.iter().enumerate() {
            let start = bytes.len();
            if n == EMPTY {
                // UMT5 has two of them
            } else if n > 0 {
                bytes.extend_from_slice(literals.take(usize::from(n))?);
            } else {
                if pair >= pairs {
                    return Err(damaged("lacks a pair"));
                }
                for (plane, part) in [id(0, pair), id(1, pair)].into_iter().enumerate() {
                    let end = *ends.get(part).ok_or_else(|| damaged("has a pair of later tokens"))? as usize;
                    let begin = if part == 0 { 0 } else { ends[part - 1] as usize };
                    if plane == 0 {
                        left[i] = u8::try_from(end - begin).map_err(|_| damaged("has a long token"))?;
                    }
                    bytes.extend_from_within(begin..end);
                }
                pair += 1;
            }
            longest = longest.max(bytes.len() - start);
            ends.push(u32::try_from(bytes.len()).map_err(|_| damaged("is too large"))?);
        }
        Ok(Self { bytes, ends, left, slots: Vec::new(), longest, specials: Vec::new(), scores: Vec::new() })
    }

    /// Fills the hash table; the first of equal tokens is the one found.
    fn index(&mut self) {
        self.slots = vec![0; (2 * self.len()).next_power_of_two().max(2)];
        let mask = self.slots.len() - 1;
        for id in 0..self.ends.len() {
            let token = self.token(id as u32);
            let mut slot = hash(token) & mask;
            while self.slots[slot] != 0 && self.token(self.slots[slot] - 1) != token {
                slot = (slot + 1) & mask;
            }
            if self.slots[slot] == 0 {
                self.slots[slot] = id as u32 + 1;
            }
        }
    }

    /// Number of tokens.
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Bytes of a token, empty for an id out of range.
    pub(crate) fn token(&self, id: u32) -> &[u8] {
        let id = id as usize;
        let Some(&end) = self.ends.get(id) else { return &[] };
        let start = if id == 0 { 0 } else { self.ends[id - 1] };
        &self.bytes[start as usize..end as usize]
    }

    /// Id of a token; none in a vocabulary with scores.
    pub(crate) fn find(&self, token: &[u8]) -> Option<u32> {
        if token.len() > self.longest || self.slots.is_empty() {
            return None;
        }
        let mask = self.slots.len() - 1;
        let mut slot = hash(token) & mask;
        loop {
            match self.slots[slot] {
                0 => return None,
                id if self.token(id - 1) == token => return Some(id - 1),
                _ => slot = (slot + 1) & mask,
            }
        }
    }

    /// Length of the left part of the merge that makes token `id`, 0 when none does.
    pub(crate) fn left_length(&self, id: u32) -> usize {
        self.left.get(id as usize).map_or(0, |&n| usize::from(n))
    }
}

fn scores_of(mut data: Reader, count: usize) -> Result<Vec<f32>> {
    if data.0.is_empty() {
        return Ok(Vec::new());
    }
    let mut bits = 0u32;
    (0..count)
        .map(|_| {
            let z = data.varint()?;
            bits = bits.wrapping_add((z >> 1) ^ (z & 1).wrapping_neg());
            Ok(f32::from_bits(bits))
        })
        .collect()
}

/// Ranges (first, last) of the code points of Unicode's general category L, from `letters.bin`.
pub(crate) fn letter_ranges(asset: &[u8]) -> Vec<(u32, u32)> {
    let (mut data, mut end, mut ranges) = (Reader(asset), 0, Vec::new());
    while let (Ok(gap), Ok(length)) = (data.varint(), data.varint()) {
        let start = end + gap;
        end = start + length;
        ranges.push((start, end));
    }
    ranges
}
