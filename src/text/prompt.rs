//! The prompt's emphasis syntax: `(more)`, `[less]`, `(this much:1.3)`, `BREAK`; `docs/prompts.md` describes it.
#![forbid(unsafe_code)]

use std::ops::Range;

/// A stretch of a prompt and how much it counts.
#[derive(Clone, Debug, PartialEq)]
pub struct Fragment {
    /// Bytes as the user wrote them, without the brackets; may be broken UTF-8.
    pub text: Vec<u8>,
    /// 1 is plain; the states of the stretch's tokens are multiplied by it.
    pub weight: f32,
}

impl Fragment {
    /// Whether this is the word BREAK by itself, which has weight -1 and starts a new chunk where the encoder has chunks.
    pub fn is_break(&self) -> bool {
        self.text == BREAK && self.weight == -1.0
    }
}

const BREAK: &[u8] = b"BREAK";
const ROUND: f32 = 1.1;
const SQUARE: f32 = 1.0 / 1.1;
/// Weights stay finite: larger ones would turn states into infinities and pictures white.
const LIMIT: f32 = 1e9;
/// Brackets of a kind that are open at once; further ones are matched, but change nothing. Keeps the time linear.
const DEPTH: usize = 100;

/// Splits a prompt into weighted fragments; always at least one. Neighbours of equal weight are one fragment.
///
/// Linear in time, for any bytes. A number that cannot be read, or is beyond f32, is text like any other.
pub fn parse(prompt: &[u8]) -> Vec<Fragment> {
    let mut parser = Parser { prompt, pieces: Vec::new(), round: Vec::new(), square: Vec::new() };
    let mut at = 0;
    while at < prompt.len() {
        at += parser.step(at);
    }
    parser.finish()
}

/// What a stretch of the prompt gives: its bytes and its weight so far.
struct Parser<'a> {
    prompt: &'a [u8],
    pieces: Vec<(Range<usize>, f32)>,
    /// Number of pieces before each open bracket.
    round: Vec<usize>,
    square: Vec<usize>,
}

impl Parser<'_> {
    /// Takes what starts at `at` and returns its length.
    fn step(&mut self, at: usize) -> usize {
        let rest = &self.prompt[at..];
        match rest {
            // of the escapes only this one loses its backslash, as recorded
            [b'\\', b'(', ..] => {
                self.pieces.push((at + 1..at + 2, 1.0));
                2
            }
            [b'\\', b')' | b'[' | b']' | b'\\', ..] => self.text(at, 2),
            [b'(', ..] => {
                self.round.push(self.pieces.len());
                1
            }
            [b'[', ..] => {
                self.square.push(self.pieces.len());
                1
            }
            [b':', ..] => self.colon(at),
            [b')', ..] if !self.round.is_empty() => {
                self.close_round(ROUND);
                1
            }
            [b']', ..] if !self.square.is_empty() => {
                let start = self.square.pop().unwrap_or(0);
                if self.square.len() < DEPTH {
                    self.multiply(start, SQUARE);
                }
                1
            }
            [b'B', ..] if is_break(rest) => {
                self.pieces.push((at..at + BREAK.len(), -1.0));
                BREAK.len()
            }
            [b'\\' | b')' | b']' | b'B', ..] => self.text(at, 1),
            _ => {
                let end = rest.iter().position(|b| br"\()[]:B".contains(b));
                self.text(at, end.unwrap_or(rest.len()))
            }
        }
    }

    fn text(&mut self, at: usize, length: usize) -> usize {
        self.pieces.push((at..at + length, 1.0));
        length
    }

    /// `:1.3)` gives the innermost round bracket its weight; without one it is dropped. Other colons are text.
    fn colon(&mut self, at: usize) -> usize {
        let rest = &self.prompt[at + 1..];
        let sign = usize::from(matches!(rest, [b'+' | b'-', ..]));
        let digits = rest[sign..].iter().position(|b| !b.is_ascii_digit() && *b != b'.');
        match digits {
            Some(n) if n > 0 && rest[sign + n] == b')' => {
                if self.round.is_empty() {
                    return sign + n + 2;
                }
                match number(&rest[..sign + n]) {
                    Some(weight) => {
                        self.close_round(weight);
                        sign + n + 2
                    }
                    None => self.text(at, 1),
                }
            }
            _ => self.text(at, 1),
        }
    }

    fn close_round(&mut self, factor: f32) {
        let start = self.round.pop().unwrap_or(0);
        if self.round.len() < DEPTH {
            self.multiply(start, factor);
        }
    }

    fn multiply(&mut self, start: usize, factor: f32) {
        for piece in &mut self.pieces[start..] {
            piece.1 = (piece.1 * factor).clamp(-LIMIT, LIMIT);
        }
    }

    fn finish(mut self) -> Vec<Fragment> {
        for start in self.round.split_off(0).into_iter().take(DEPTH) {
            self.multiply(start, ROUND);
        }
        for start in self.square.split_off(0).into_iter().take(DEPTH) {
            self.multiply(start, SQUARE);
        }
        let mut out: Vec<Fragment> = Vec::new();
        for (range, weight) in self.pieces {
            let text = &self.prompt[range];
            match out.last_mut() {
                Some(last) if last.weight == weight => last.text.extend_from_slice(text),
                _ => out.push(Fragment { text: text.to_vec(), weight }),
            }
        }
        if out.is_empty() {
            out.push(Fragment { text: Vec::new(), weight: 1.0 });
        }
        out
    }
}

/// The word BREAK; what stands before it does not matter, as recorded.
fn is_break(rest: &[u8]) -> bool {
    rest.strip_prefix(BREAK)
        .is_some_and(|tail| tail.first().is_none_or(|b| !b.is_ascii_alphanumeric() && *b != b'_'))
}

/// The number at the start of a run of digits and points, whatever the locale: `1.2.3` is 1.2.
fn number(text: &[u8]) -> Option<f32> {
    let mut points = 0;
    let end = text.iter().position(|&b| {
        points += usize::from(b == b'.');
        points == 2
    });
    let text = std::str::from_utf8(&text[..end.unwrap_or(text.len())]).ok()?;
    text.parse().ok().filter(|w: &f32| w.is_finite())
}

/// Cuts quoted parts into single characters, quotes included, so that an encoder spells them: '…', "…", ‘…’ and “…”.
///
/// An apostrophe between ASCII letters quotes nothing. A curly quote that opens twice before it closes does not either.
pub fn spell_quotes(fragments: &[Fragment]) -> Vec<Fragment> {
    let mut out = Vec::new();
    for fragment in fragments {
        let mut push = |text: &[u8]| out.push(Fragment { text: text.to_vec(), weight: fragment.weight });
        let text = &fragment.text;
        let (mut done, mut at) = (0, 0);
        while at < text.len() {
            let Some(end) = quoted(text, at) else {
                at += character(text, at);
                continue;
            };
            if at > done {
                push(&text[done..at]);
            }
            while at < end {
                let n = character(text, at);
                push(&text[at..at + n]);
                at += n;
            }
            done = end;
        }
        if done < text.len() {
            push(&text[done..]);
        }
    }
    out
}

/// End of the quotation that opens at `at`.
fn quoted(text: &[u8], at: usize) -> Option<usize> {
    let (open, close): (&[u8], &[u8]) = match &text[at..] {
        [b'\'', ..] if !inside_word(text, at) => (b"'", b"'"),
        [b'"', ..] => (b"\"", b"\""),
        rest if rest.starts_with("‘".as_bytes()) => ("‘".as_bytes(), "’".as_bytes()),
        rest if rest.starts_with("“".as_bytes()) => ("“".as_bytes(), "”".as_bytes()),
        _ => return None,
    };
    let mut i = at + open.len();
    while i < text.len() {
        let rest = &text[i..];
        if open != close && rest.starts_with(open) {
            return None;
        }
        if rest.starts_with(close) && !(close == b"'" && inside_word(text, i)) {
            return Some(i + close.len());
        }
        i += character(text, i);
    }
    None
}

fn inside_word(text: &[u8], at: usize) -> bool {
    let letter = |i: usize| text.get(i).is_some_and(u8::is_ascii_alphabetic);
    at > 0 && letter(at - 1) && letter(at + 1)
}

/// Length of the character at `at` by its first byte; 1 when the text ends within it.
fn character(text: &[u8], at: usize) -> usize {
    let n = super::bpe::sequence_length(text[at]);
    if at + n > text.len() { 1 } else { n }
}
