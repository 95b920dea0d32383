//! The tokenizers and their compiled-in vocabularies.
#![forbid(unsafe_code)]

use once_cell::sync::OnceCell;

use super::bpe::{Bpe, Merges, Scratch};
use super::special::{Choice, Piece, Table, split};
use super::unigram::Unigram;
use super::vocab::Vocab;
use super::words::{clip_words, is_c_blank, language_words};
use crate::error::Result;

/// The tokens that a tokenizer puts around and behind a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marks {
    /// Put before each sequence.
    pub begin: Option<i32>,
    /// Put behind each sequence.
    pub end: Option<i32>,
    /// Fills a sequence up.
    pub pad: i32,
    /// Filling goes before the text.
    pub pad_left: bool,
}

/// Text to token ids.
pub trait Tokenizer: Send + Sync {
    /// Ids of `text`, without begin, end and padding. Any bytes are fine; each tokenizer says what becomes of broken UTF-8.
    fn encode(&self, text: &[u8]) -> Vec<i32>;
    /// Text of the tokens, special ones included.
    fn decode(&self, ids: &[i32]) -> Vec<u8>;
    /// Begin, end and padding.
    fn marks(&self) -> Marks;
    /// Number of tokens; ids are below it.
    fn size(&self) -> usize;
}

/// The vocabularies that are compiled in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Vocabulary {
    /// CLIP's 49,408 byte pairs.
    Clip,
    /// T5's 32,100 unigram pieces.
    T5,
    /// UMT5's 256,300 unigram pieces.
    Umt5,
    /// Qwen 2 to 3 and their vision models, 151,674 byte pairs.
    Qwen2,
    /// Mistral's Tekken, 131,072 byte pairs.
    Mistral,
    /// Gemma 2's 256,000 pieces.
    Gemma2,
    /// Gemma 3's 262,144 pieces.
    Gemma3,
    /// o200k with the harmony tokens, 200,019 byte pairs.
    GptOss,
}

impl Vocabulary {
    /// The tokenizer; unpacked at the first call.
    pub fn tokenizer(self) -> Result<&'static dyn Tokenizer> {
        Ok(match self {
            Self::Clip => clip()?,
            Self::T5 => t5()?,
            Self::Umt5 => umt5()?,
            Self::Qwen2 => qwen2()?,
            Self::Mistral => mistral()?,
            Self::Gemma2 => gemma2()?,
            Self::Gemma3 => gemma3()?,
            Self::GptOss => gpt_oss()?,
        })
    }
}

macro_rules! asset {
    ($name:literal) => {
        include_bytes!(concat!("../../assets/vocab/", $name, ".bin"))
    };
}

/// CLIP's tokenizer: blanks are collapsed, ASCII letters lowered, other bytes taken as they are.
pub fn clip() -> Result<&'static ClipTokenizer> {
    static CELL: OnceCell<ClipTokenizer> = OnceCell::new();
    CELL.get_or_try_init(|| {
        let mut bpe = byte_pairs(asset!("clip"), Merges::Listed, ClipTokenizer::END as u32)?;
        bpe.word_end = b"</w>";
        Ok(ClipTokenizer { specials: specials(&bpe.vocab), bpe })
    })
}

/// T5's tokenizer. Runs of spaces count as one; bytes that no piece holds become one unknown token per character.
pub fn t5() -> Result<&'static Unigram> {
    static CELL: OnceCell<Unigram> = OnceCell::new();
    CELL.get_or_try_init(|| Unigram::new(Vocab::open(asset!("t5"))?, 2))
}

/// UMT5's tokenizer; see [`t5`].
pub fn umt5() -> Result<&'static Unigram> {
    static CELL: OnceCell<Unigram> = OnceCell::new();
    CELL.get_or_try_init(|| Unigram::new(Vocab::open(asset!("umt5"))?, 3))
}

/// The tokenizer of Qwen 2, 2.5 and 3.
pub fn qwen2() -> Result<&'static BpeTokenizer> {
    static CELL: OnceCell<BpeTokenizer> = OnceCell::new();
    CELL.get_or_try_init(|| {
        let bpe = byte_pairs(asset!("qwen2"), Merges::Listed, 151_643)?;
        Ok(BpeTokenizer::new(bpe, Marks { begin: None, end: None, pad: 151_643, pad_left: false }))
    })
}

/// Mistral's tokenizer (Tekken).
pub fn mistral() -> Result<&'static BpeTokenizer> {
    static CELL: OnceCell<BpeTokenizer> = OnceCell::new();
    CELL.get_or_try_init(|| {
        let bpe = byte_pairs(asset!("mistral"), Merges::ById, 0)?;
        Ok(BpeTokenizer::new(bpe, Marks { begin: Some(1), end: None, pad: 11, pad_left: false }))
    })
}

/// The tokenizer of GPT-OSS.
pub fn gpt_oss() -> Result<&'static BpeTokenizer> {
    static CELL: OnceCell<BpeTokenizer> = OnceCell::new();
    CELL.get_or_try_init(|| {
        let mut bpe = byte_pairs(asset!("gpt_oss"), Merges::ById, 199_999)?;
        bpe.frozen = |b| b == b'"' || b == b'\\';
        Ok(BpeTokenizer::new(bpe, Marks { begin: None, end: None, pad: 199_999, pad_left: false }))
    })
}

/// Gemma 2's tokenizer.
pub fn gemma2() -> Result<&'static BpeTokenizer> {
    static CELL: OnceCell<BpeTokenizer> = OnceCell::new();
    CELL.get_or_try_init(|| gemma(asset!("gemma2"), None, false))
}

/// Gemma 3's tokenizer.
pub fn gemma3() -> Result<&'static BpeTokenizer> {
    static CELL: OnceCell<BpeTokenizer> = OnceCell::new();
    CELL.get_or_try_init(|| gemma(asset!("gemma3"), Some(("▁द", "िलाई")), true))
}

fn gemma(asset: &[u8], missing: Option<(&'static str, &'static str)>, left: bool) -> Result<BpeTokenizer> {
    let vocab = Vocab::open(asset)?;
    let unknown = 3;
    let bytes =
        (0..=255u32).map(|b| vocab.find(format!("<0x{b:02X}>").as_bytes()).unwrap_or(unknown)).collect();
    let bpe = Bpe {
        vocab,
        merges: Merges::ByLength { user: 240, user_end: 255_969 },
        frozen: |b| b == b'"' || b == b'\\' || b < 0x20,
        missing,
        word_end: b"",
        characters: true,
        byte_tokens: Some(bytes),
        unknown,
    };
    Ok(BpeTokenizer::new(bpe, Marks { begin: Some(2), end: None, pad: 0, pad_left: left }))
}

fn byte_pairs(asset: &[u8], merges: Merges, unknown: u32) -> Result<Bpe> {
    Ok(Bpe {
        vocab: Vocab::open(asset)?,
        merges,
        frozen: |_| false,
        missing: None,
        word_end: b"",
        characters: false,
        byte_tokens: None,
        unknown,
    })
}

/// The special tokens of a vocabulary; entries are their places in its list.
pub(crate) fn specials(vocab: &Vocab) -> Table {
    let mut table = Table::new(Choice::First);
    for (index, (word, _)) in vocab.specials.iter().enumerate() {
        table.insert(word, index);
    }
    table
}

/// Byte pair tokenizer of a language model.
///
/// Broken UTF-8: stray bytes and a sequence cut off at the end are dropped, a sequence broken in its middle takes the
/// bytes that follow for its own.
pub struct BpeTokenizer {
    bpe: Bpe,
    specials: Table,
    marks: Marks,
}

impl BpeTokenizer {
    fn new(bpe: Bpe, marks: Marks) -> Self {
        Self { specials: specials(&bpe.vocab), bpe, marks }
    }

    fn text(&self, text: &[u8], scratch: &mut Scratch, out: &mut Vec<i32>) {
        let mut spaced = Vec::new();
        for word in language_words(text).iter() {
            if self.bpe.characters && word.contains(&b' ') {
                spaced.clear();
                for &b in word {
                    if b == b' ' { spaced.extend("▁".bytes()) } else { spaced.push(b) }
                }
                self.bpe.encode(&spaced, scratch, out);
            } else {
                self.bpe.encode(word, scratch, out);
            }
        }
    }
}

impl Tokenizer for BpeTokenizer {
    fn encode(&self, text: &[u8]) -> Vec<i32> {
        let mut out = Vec::with_capacity(text.len() / 4);
        let mut scratch = Scratch::default();
        for piece in split(text, &[&self.specials]) {
            match piece {
                Piece::Text(text) => self.text(text, &mut scratch, &mut out),
                Piece::Entry { index, .. } => out.push(self.bpe.vocab.specials[index].1 as i32),
            }
        }
        out
    }

    fn decode(&self, ids: &[i32]) -> Vec<u8> {
        let bytes = ids.iter().flat_map(|&id| self.bpe.vocab.token(id as u32));
        if self.bpe.characters {
            let text: Vec<u8> = bytes.copied().collect();
            return String::from_utf8_lossy(&text).replace('▁', " ").into_bytes();
        }
        bytes.copied().collect()
    }

    fn marks(&self) -> Marks {
        self.marks
    }

    fn size(&self) -> usize {
        self.bpe.vocab.len()
    }
}

/// Words that stand for learned embeddings (textual inversion) in CLIP prompts.
///
/// A word is found without regard to the case of ASCII letters, wherever its letters occur, next to or within other words;
/// where several start, the longest is taken.
#[derive(Clone, Debug)]
pub struct CustomWords {
    table: Table,
    ids: Vec<std::ops::Range<i32>>,
    next: i32,
}

impl Default for CustomWords {
    fn default() -> Self {
        Self { table: Table::new(Choice::Longest), ids: Vec::new(), next: ClipTokenizer::SIZE }
    }
}

impl CustomWords {
    /// Adds `name` for `vectors` embeddings and returns their token ids, which count on from the vocabulary's size.
    /// An empty name, or one that is there already, is never found.
    pub fn add(&mut self, name: &[u8], vectors: usize) -> std::ops::Range<i32> {
        let ids = self.next..self.next + i32::try_from(vectors).unwrap_or(0);
        self.next = ids.end;
        self.table.insert(&name.to_ascii_lowercase(), self.ids.len());
        self.ids.push(ids.clone());
        ids
    }

    /// Number of embeddings of all words.
    pub fn vectors(&self) -> usize {
        (self.next - ClipTokenizer::SIZE) as usize
    }
}

/// CLIP's byte pair tokenizer.
pub struct ClipTokenizer {
    bpe: Bpe,
    specials: Table,
}

impl ClipTokenizer {
    /// Begin of text.
    pub const BEGIN: i32 = 49_406;
    /// End of text.
    pub const END: i32 = 49_407;
    /// Number of tokens; the first id of a custom word.
    pub const SIZE: i32 = 49_408;

    /// Ids of `text`, in which the custom words stand for their embeddings' ids.
    pub fn encode_with(&self, text: &[u8], words: &CustomWords) -> Vec<i32> {
        let text = normalize(text);
        let mut out = Vec::with_capacity(text.len() / 3);
        let mut scratch = Scratch::default();
        for piece in split(&text, &[&self.specials, &words.table]) {
            match piece {
                Piece::Text(text) => {
                    for word in clip_words(text) {
                        self.bpe.encode(word, &mut scratch, &mut out);
                    }
                }
                Piece::Entry { table: 0, index } => out.push(self.bpe.vocab.specials[index].1 as i32),
                Piece::Entry { index, .. } => out.extend(words.ids[index].clone()),
            }
        }
        out
    }
}

/// One space for each run of blanks, none at the ends, ASCII letters lowered.
fn normalize(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    for word in text.split(|&b| is_c_blank(b)).filter(|w| !w.is_empty()) {
        if !out.is_empty() {
            out.push(b' ');
        }
        out.extend(word.iter().map(u8::to_ascii_lowercase));
    }
    out
}

impl Tokenizer for ClipTokenizer {
    fn encode(&self, text: &[u8]) -> Vec<i32> {
        self.encode_with(text, &CustomWords::default())
    }

    /// A space behind each word, none before a comma or at the ends; begin and end tokens and custom ids leave no trace.
    fn decode(&self, ids: &[i32]) -> Vec<u8> {
        let mut out: Vec<u8> = Vec::new();
        for &id in ids.iter().filter(|&&id| id != Self::BEGIN && id != Self::END) {
            let token = self.bpe.vocab.token(id as u32);
            if token.first() == Some(&b',') && out.last() == Some(&b' ') {
                out.pop();
            }
            match token.strip_suffix(b"</w>") {
                Some(word) => {
                    out.extend_from_slice(word);
                    out.push(b' ');
                }
                None => out.extend_from_slice(token),
            }
        }
        out.trim_ascii().to_vec()
    }

    fn marks(&self) -> Marks {
        Marks { begin: Some(Self::BEGIN), end: Some(Self::END), pad: Self::END, pad_left: false }
    }

    fn size(&self) -> usize {
        self.bpe.vocab.len()
    }
}
