//! Byte pair merging of one word.
#![forbid(unsafe_code)]

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::vocab::Vocab;

/// Which pairs merge, and in which order.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Merges {
    /// Each token has one pair, ranked by the token's id.
    Listed,
    /// Each split of a token into two tokens, ranked by the token's id, then the left part's.
    ById,
    /// Each split of a token into two tokens, ranked by the token's id, longer left parts first; tokens up to `user` and
    /// from `user_end` on count as one, in which longer parts come first (SentencePiece's user-defined symbols).
    ByLength {
        /// First id that is not user-defined.
        user: u32,
        /// First of the user-defined ids at the end.
        user_end: u32,
    },
}

/// A merge engine over a vocabulary.
pub(crate) struct Bpe {
    pub(crate) vocab: Vocab,
    pub(crate) merges: Merges,
    /// Bytes that never merge. The published merge lists of some vocabularies still carry JSON's escapes, so that no
    /// merge of a quote, a backslash or (without byte letters) a control character is ever found.
    pub(crate) frozen: fn(u8) -> bool,
    /// The one pair that a truncated list lacks.
    pub(crate) missing: Option<(&'static str, &'static str)>,
    /// Put behind the last byte of a word, part of its last symbol.
    pub(crate) word_end: &'static [u8],
    /// Words start as characters instead of bytes.
    pub(crate) characters: bool,
    /// Tokens for the bytes of an unknown symbol; without them it becomes `unknown`.
    pub(crate) byte_tokens: Option<Vec<u32>>,
    pub(crate) unknown: u32,
}

const NONE: u32 = u32::MAX;

#[derive(Clone, Copy)]
struct Symbol {
    start: u32,
    end: u32,
    /// Index of the neighbours, `NONE` at the ends.
    left: u32,
    right: u32,
    /// Token id or `NONE`.
    id: u32,
    frozen: bool,
}

/// A pair that may merge: rank, index of the left symbol, end of it, end of the right one.
type Candidate = Reverse<(u64, u32, u32, u32)>;

/// Buffers kept from word to word.
#[derive(Default)]
pub(crate) struct Scratch {
    word: Vec<u8>,
    symbols: Vec<Symbol>,
    heap: BinaryHeap<Candidate>,
    fresh: Vec<Candidate>,
}

/// Length of the UTF-8 sequence that starts with `b`, 1 for what starts none.
pub(crate) fn sequence_length(b: u8) -> usize {
    match b {
        0xc0..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xf7 => 4,
        _ => 1,
    }
}

impl Bpe {
    /// Appends the ids of `word`.
    pub(crate) fn encode(&self, word: &[u8], scratch: &mut Scratch, out: &mut Vec<i32>) {
        if word.is_empty() {
            return;
        }
        scratch.word.clear();
        scratch.word.extend_from_slice(word);
        scratch.word.extend_from_slice(self.word_end);
        self.symbols(word.len(), scratch);
        self.merge(scratch);
        let mut at = 0;
        while let Some(symbol) = scratch.symbols.get(at as usize) {
            self.emit(symbol, &scratch.word, out);
            at = symbol.right;
        }
    }

    fn symbols(&self, length: usize, scratch: &mut Scratch) {
        scratch.symbols.clear();
        let mut start = 0;
        while start < length {
            let step = if self.characters { sequence_length(scratch.word[start]) } else { 1 };
            let last = start + step >= length;
            let end = if last { scratch.word.len() } else { start + step };
            let index = scratch.symbols.len() as u32;
            let text = &scratch.word[start..end];
            scratch.symbols.push(Symbol {
                start: start as u32,
                end: end as u32,
                left: index.wrapping_sub(1),
                right: if last { NONE } else { index + 1 },
                id: self.vocab.find(text).unwrap_or(NONE),
                frozen: step == 1 && (self.frozen)(text[0]),
            });
            start += step;
        }
    }

    /// Merges the lowest rank everywhere from left to right, then looks at the pairs that came up, until none is left.
    fn merge(&self, scratch: &mut Scratch) {
        let Scratch { word, symbols, heap, fresh } = scratch;
        heap.clear();
        fresh.clear();
        for i in 1..symbols.len() as u32 {
            fresh.extend(self.candidate(word, symbols, i - 1));
        }
        heap.extend(fresh.drain(..));
        while let Some(&Reverse((rank, ..))) = heap.peek() {
            while let Some(&Reverse((r, at, middle, end))) = heap.peek() {
                if r != rank {
                    break;
                }
                heap.pop();
                let left = symbols[at as usize];
                let Some(&right) = symbols.get(left.right as usize) else { continue };
                if left.end != middle || right.end != end {
                    continue;
                }
                self.join(word, symbols, at);
                fresh.extend(self.candidate(word, symbols, at));
                if left.left != NONE {
                    fresh.extend(self.candidate(word, symbols, left.left));
                }
            }
            heap.extend(fresh.drain(..));
        }
    }

    /// Joins symbol `at` with its right neighbour, which stays behind without neighbours.
    fn join(&self, word: &[u8], symbols: &mut [Symbol], at: u32) {
        let index = symbols[at as usize].right as usize;
        let right = symbols[index];
        symbols[index].right = NONE;
        if let Some(next) = symbols.get_mut(right.right as usize) {
            next.left = at;
        }
        let symbol = &mut symbols[at as usize];
        symbol.end = right.end;
        symbol.right = right.right;
        symbol.id = self.vocab.find(&word[symbol.start as usize..symbol.end as usize]).unwrap_or(NONE);
    }

    fn candidate(&self, word: &[u8], symbols: &[Symbol], at: u32) -> Option<Candidate> {
        let left = symbols[at as usize];
        let right = symbols.get(left.right as usize)?;
        let rank = self.rank(word, &left, right)?;
        Some(Reverse((rank, at, left.end, right.end)))
    }

    fn rank(&self, word: &[u8], left: &Symbol, right: &Symbol) -> Option<u64> {
        if left.frozen || right.frozen || left.id == NONE || right.id == NONE {
            return None;
        }
        let joined = &word[left.start as usize..right.end as usize];
        let (first, second) = joined.split_at((left.end - left.start) as usize);
        let id = self.vocab.find(joined)?;
        match self.merges {
            Merges::Listed => (self.vocab.left_length(id) == first.len()).then_some(u64::from(id)),
            Merges::ById => Some(u64::from(id) << 32 | u64::from(left.id)),
            Merges::ByLength { user, user_end } => {
                if self.missing.is_some_and(|(a, b)| a.as_bytes() == first && b.as_bytes() == second) {
                    return None;
                }
                // lengths are below 256
                let inverse = |part: &[u8]| 255 - part.iter().filter(|&&b| b & 0xc0 != 0x80).count() as u64;
                Some(if id < user || id >= user_end {
                    inverse(first) << 40 | inverse(second) << 32 | u64::from(id)
                } else {
                    1 << 60 | u64::from(id) << 8 | inverse(first)
                })
            }
        }
    }

    fn emit(&self, symbol: &Symbol, word: &[u8], out: &mut Vec<i32>) {
        if symbol.id != NONE {
            out.push(symbol.id as i32);
            return;
        }
        let text = &word[symbol.start as usize..symbol.end as usize];
        match &self.byte_tokens {
            Some(tokens) => out.extend(text.iter().map(|&b| tokens[usize::from(b)] as i32)),
            None => out.push(self.unknown as i32),
        }
    }
}
