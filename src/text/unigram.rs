//! SentencePiece's unigram model: the most probable cut of a text into pieces.
#![forbid(unsafe_code)]

use super::special::{Piece, Table, split};
use super::tokenizer::{Marks, Tokenizer, specials};
use super::vocab::Vocab;
use crate::error::{Error, Result};

/// Stands for a space, and is put before each stretch of text.
const SPACE: &[u8] = "▁".as_bytes();
/// How much less probable than the rarest piece an unknown character is.
const UNKNOWN_PENALTY: f32 = 10.0;

const PAD: u32 = 0;
const END: u32 = 1;

/// Tokenizer of T5 and UMT5.
///
/// No Unicode normalisation, as recorded. Broken UTF-8: a character is as long as its first byte says, continuation bytes
/// on their own count as characters; each that no piece holds becomes one unknown token.
pub struct Unigram {
    vocab: Vocab,
    specials: Table,
    unknown: u32,
    /// Ids of the pieces in the order of their bytes.
    sorted: Vec<u32>,
    /// Start in `sorted` of the pieces that begin with each byte, and the end of the last.
    first: Vec<u32>,
    /// The same for the byte behind a leading space mark, which half of the pieces have.
    second: Vec<u32>,
    /// The space mark as a piece; nothing shorter begins with its bytes.
    space: Option<u32>,
    unknown_score: f32,
}

/// Best way to reach a place in the text.
#[derive(Clone, Copy)]
struct Step {
    score: f32,
    from: u32,
    id: u32,
}

const UNREACHED: Step = Step { score: 0.0, from: u32::MAX, id: 0 };

impl Unigram {
    pub(crate) fn new(vocab: Vocab, unknown: u32) -> Result<Self> {
        if vocab.scores.len() != vocab.len() {
            return Err(Error::Internal("compiled-in vocabulary has no scores".into()));
        }
        // the first sixteen bytes decide nearly always
        let key = |id: u32| {
            let token = vocab.token(id);
            let n = token.len().min(16);
            let mut head = [0u8; 16];
            head[..n].copy_from_slice(&token[..n]);
            (u128::from_be_bytes(head), id)
        };
        let mut keys: Vec<_> =
            (0..vocab.len() as u32).filter(|&id| !vocab.token(id).is_empty()).map(key).collect();
        keys.sort_unstable_by(|a, b| a.0.cmp(&b.0).then_with(|| vocab.token(a.1).cmp(vocab.token(b.1))));
        let sorted: Vec<u32> = keys.into_iter().map(|k| k.1).collect();
        let starts = |prefix: &[u8]| -> Vec<u32> {
            (0..=256u16)
                .map(|b| {
                    let below = |id: &u32| match vocab.token(*id).strip_prefix(prefix) {
                        Some(rest) => rest.first().is_none_or(|&c| u16::from(c) < b),
                        None => vocab.token(*id) < prefix,
                    };
                    sorted.partition_point(below) as u32
                })
                .collect()
        };
        let (first, second) = (starts(b""), starts(SPACE));
        let space = sorted.iter().copied().find(|&id| vocab.token(id) == SPACE);
        let lowest = vocab.scores.iter().copied().fold(f32::MAX, f32::min);
        let specials = specials(&vocab);
        let unknown_score = lowest - UNKNOWN_PENALTY;
        Ok(Self { vocab, specials, unknown, sorted, first, second, space, unknown_score })
    }

    /// Calls `found(length, id)` for each piece that `text` starts with, shortest first.
    fn pieces(&self, text: &[u8], mut found: impl FnMut(usize, u32)) {
        let (table, mut depth) = match text.strip_prefix(SPACE) {
            Some(_) => (&self.second, SPACE.len() + 1),
            None => (&self.first, 1),
        };
        if let (true, Some(id)) = (depth > 1, self.space) {
            found(SPACE.len(), id);
        }
        let Some(&b) = text.get(depth - 1) else { return };
        let (mut low, mut high) = (table[usize::from(b)] as usize, table[usize::from(b) + 1] as usize);
        while low < high {
            // of equal beginnings the shortest sorts first
            while low < high && self.vocab.token(self.sorted[low]).len() == depth {
                found(depth, self.sorted[low]);
                low += 1;
            }
            let Some(&b) = text.get(depth) else { return };
            let range = &self.sorted[low..high];
            let at = |id: &u32| self.vocab.token(*id)[depth];
            let start = range.partition_point(|id| at(id) < b);
            high = low + start + range[start..].partition_point(|id| at(id) == b);
            low += start;
            depth += 1;
        }
    }

    /// Appends the most probable pieces of `text`.
    fn best(&self, text: &[u8], out: &mut Vec<i32>) {
        let mut steps = vec![UNREACHED; text.len() + 1];
        let mut at = 0;
        while at < text.len() {
            let score = steps[at].score;
            let length = character_length(text[at]).min(text.len() - at);
            let mut known = false;
            let mut reach = |n: usize, id: u32, score: f32| {
                let step = &mut steps[at + n];
                if step.from == u32::MAX || score > step.score {
                    *step = Step { score, from: at as u32, id };
                }
            };
            self.pieces(&text[at..], |n, id| {
                reach(n, id, self.vocab.scores[id as usize] + score);
                known |= n == length;
            });
            if !known {
                reach(length, self.unknown, self.unknown_score + score);
            }
            at += length;
        }
        let start = out.len();
        let mut end = text.len();
        while end > 0 {
            out.push(steps[end].id as i32);
            end = steps[end].from as usize;
        }
        out[start..].reverse();
    }
}

/// Length by the first byte; continuation bytes stand alone.
fn character_length(b: u8) -> usize {
    match b {
        0xf0.. => 4,
        0xe0..=0xef => 3,
        0xc0..=0xdf => 2,
        _ => 1,
    }
}

/// Spaces as the pieces have them; the last space of a stretch is not seen.
fn with_spaces(text: &[u8]) -> Vec<u8> {
    let text = text.strip_suffix(b" ").unwrap_or(text);
    let mut out = Vec::with_capacity(text.len() + text.len() / 3 + 3);
    out.extend_from_slice(SPACE);
    for &b in text {
        if b == b' ' { out.extend_from_slice(SPACE) } else { out.push(b) }
    }
    out
}

impl Tokenizer for Unigram {
    fn encode(&self, text: &[u8]) -> Vec<i32> {
        let mut text = text.to_vec();
        text.dedup_by(|b, a| *a == b' ' && *b == b' ');
        let mut out = Vec::with_capacity(text.len() / 3 + 1);
        if text.is_empty() {
            self.best(SPACE, &mut out);
        }
        for piece in split(&text, &[&self.specials]) {
            match piece {
                Piece::Text(text) => self.best(&with_spaces(text), &mut out),
                Piece::Entry { index, .. } => {
                    // UMT5's begin token is cut out and leaves nothing
                    let id = self.vocab.specials[index].1;
                    if [PAD, END, self.unknown].contains(&id) {
                        out.push(id as i32);
                    }
                }
            }
        }
        out
    }

    fn decode(&self, ids: &[i32]) -> Vec<u8> {
        let text: Vec<u8> = ids.iter().flat_map(|&id| self.vocab.token(id as u32)).copied().collect();
        String::from_utf8_lossy(&text).replace('▁', " ").trim_start().as_bytes().to_vec()
    }

    fn marks(&self) -> Marks {
        Marks { begin: None, end: Some(END as i32), pad: PAD as i32, pad_left: false }
    }

    fn size(&self) -> usize {
        self.vocab.len()
    }
}
