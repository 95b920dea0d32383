//! Cutting a text into the words that are merged on their own.
#![forbid(unsafe_code)]

use once_cell::sync::OnceCell;

use super::bpe::sequence_length;
use super::vocab::letter_ranges;

/// Words of a text, one after another.
#[derive(Default)]
pub(crate) struct Words {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Words {
    pub(crate) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(a, &b)| &self.bytes[a..b])
    }

    fn push(&mut self, c: u32) {
        encode(c, &mut self.bytes);
    }

    fn end(&mut self) {
        self.ends.push(self.bytes.len());
    }
}

fn letters() -> &'static [(u32, u32)] {
    static LETTERS: OnceCell<Vec<(u32, u32)>> = OnceCell::new();
    LETTERS.get_or_init(|| letter_ranges(include_bytes!("../../assets/vocab/letters.bin")))
}

fn is_letter(c: u32) -> bool {
    if c < 0x80 {
        return matches!(c, 0x41..=0x5a | 0x61..=0x7a);
    }
    let ranges = letters();
    let i = ranges.partition_point(|r| r.1 < c);
    ranges.get(i).is_some_and(|r| r.0 <= c)
}

/// Decimal digits of ASCII only, as recorded.
fn is_digit(c: u32) -> bool {
    matches!(c, 0x30..=0x39)
}

/// Blanks of ASCII; only these keep a run of symbols apart.
fn is_ascii_blank(c: u32) -> bool {
    matches!(c, 9..=13 | 32)
}

fn is_blank(c: u32) -> bool {
    is_ascii_blank(c) || matches!(c, 0xa0 | 0x1680 | 0x2000..=0x200a | 0x202f | 0x205f | 0x3000)
}

fn is_line_end(c: u32) -> bool {
    c == 10 || c == 13
}

fn is_symbol(c: u32) -> bool {
    !is_ascii_blank(c) && !is_letter(c) && !is_digit(c)
}

/// Code points by the lead byte's length; continuation bytes are taken as they are (so a broken sequence swallows what
/// follows), stray bytes are dropped, and so is a sequence that is cut off at the end.
pub(crate) fn code_points(text: &[u8]) -> Vec<u32> {
    let mut points = Vec::with_capacity(text.len());
    let mut i = 0;
    while let Some(&b) = text.get(i) {
        let n = sequence_length(b);
        if n == 1 && b >= 0x80 {
            i += 1;
            continue;
        }
        let Some(rest) = text.get(i + 1..i + n) else { break };
        let lead = if n == 1 { u32::from(b) } else { u32::from(b) & (0x7f >> n) };
        points.push(rest.iter().fold(lead, |c, &b| c << 6 | u32::from(b & 0x3f)));
        i += n;
    }
    points
}

/// UTF-8 of a code point; also of surrogates and of values up to 0x1fffff.
fn encode(c: u32, out: &mut Vec<u8>) {
    let tail = |shift: u32| 0x80 | (c >> shift & 0x3f) as u8;
    match c {
        0..=0x7f => out.push(c as u8),
        0x80..=0x7ff => out.extend([0xc0 | (c >> 6) as u8, tail(0)]),
        0x800..=0xffff => out.extend([0xe0 | (c >> 12) as u8, tail(6), tail(0)]),
        _ => out.extend([0xf0 | (c >> 18 & 7) as u8, tail(12), tail(6), tail(0)]),
    }
}

/// Words of the language models' tokenizers.
///
/// Close to Qwen2's pattern `'s|'t|'re|'ve|'m|'ll|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s+`, with the
/// quirks of the recorded tokens: contractions are lowered, `'d` is none, digits are ASCII only, a run of blanks does not
/// leave its last one to the next word, and what follows a line end's blanks starts anew.
pub(crate) fn language_words(text: &[u8]) -> Words {
    let points = code_points(text);
    let mut words =
        Words { bytes: Vec::with_capacity(text.len()), ends: Vec::with_capacity(text.len() / 4 + 1) };
    let mut i = 0;
    while i < points.len() {
        i = word(&points, i, &mut words);
        words.end();
    }
    words
}

/// Writes the word that starts at `i` and returns where the next one starts.
fn word(points: &[u32], i: usize, words: &mut Words) -> usize {
    let c = points[i];
    let next = points.get(i + 1).copied();
    if let Some(n) = contraction(&points[i..]) {
        for &p in &points[i..i + n] {
            words.push(lower(p));
        }
        return i + n;
    }
    let run = |words: &mut Words, mut j: usize, fits: fn(u32) -> bool| {
        while j < points.len() && fits(points[j]) {
            words.push(points[j]);
            j += 1;
        }
        j
    };
    words.push(c);
    if is_digit(c) {
        i + 1
    } else if is_letter(c) || !is_line_end(c) && next.is_some_and(is_letter) {
        run(words, i + 1, is_letter)
    } else if is_symbol(c) || c == 0x20 && next.is_some_and(is_symbol) {
        let j = run(words, i + 1, is_symbol);
        run(words, j, is_line_end)
    } else {
        blanks(points, i, words)
    }
}

/// A run of blanks, ending with the line ends in it; the first blank is written already.
fn blanks(points: &[u32], i: usize, words: &mut Words) -> usize {
    let mut line_end = is_line_end(points[i]);
    let mut j = i + 1;
    while j < points.len() && is_blank(points[j]) {
        let is_end = is_line_end(points[j]);
        words.push(points[j]);
        if line_end && !is_end {
            // the blank that ends the run is written, and read again as the start of the next word
            break;
        }
        line_end |= is_end;
        j += 1;
    }
    j
}

fn lower(c: u32) -> u32 {
    if matches!(c, 0x41..=0x5a) { c + 0x20 } else { c }
}

/// Length of the contraction at the start of `points`.
fn contraction(points: &[u32]) -> Option<usize> {
    if points[0] != 0x27 {
        return None;
    }
    let letter = |i: usize| points.get(i).and_then(|&c| u8::try_from(lower(c)).ok());
    match (letter(1)?, letter(2)) {
        (b's' | b't' | b'm', _) => Some(2),
        (b'r' | b'v', Some(b'e')) | (b'l', Some(b'l')) => Some(3),
        _ => None,
    }
}

/// Words of CLIP's pattern `'s|'t|'re|'ve|'m|'ll|'d|[a-z]+|[0-9]|[^\s a-z 0-9]+` on bytes; `text` is lowered already.
pub(crate) fn clip_words(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let start = rest.iter().position(|b| !is_c_blank(*b))?;
        rest = &rest[start..];
        let length = match rest {
            [b'\'', b's' | b't' | b'm' | b'd', ..] => 2,
            [b'\'', b'r' | b'v', b'e', ..] | [b'\'', b'l', b'l', ..] => 3,
            [b'0'..=b'9', ..] => 1,
            [b, ..] if b.is_ascii_alphabetic() => run(rest, |b| b.is_ascii_alphabetic()),
            _ => run(rest, |b| !is_c_blank(b) && !b.is_ascii_alphanumeric()),
        };
        let (word, tail) = rest.split_at(length);
        rest = tail;
        Some(word)
    })
}

fn run(text: &[u8], fits: fn(u8) -> bool) -> usize {
    text.iter().position(|&b| !fits(b)).unwrap_or(text.len())
}

/// `isspace` of the C locale.
pub(crate) fn is_c_blank(b: u8) -> bool {
    matches!(b, 9..=13 | 32)
}
