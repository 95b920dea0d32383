//! What CLIP encoders are fed: chunks of 77 tokens, BREAK, custom words, the trigger word of identity adapters.
#![forbid(unsafe_code)]

use super::prompt::parse;
use super::sequence::{Fit, Tokens};
use super::tokenizer::{ClipTokenizer, CustomWords, Marks, Tokenizer, clip};
use crate::error::Result;

/// Tokens of a chunk.
pub const CHUNK: usize = 77;
/// Tokens of a chunk without begin and end.
pub const ROOM: usize = CHUNK - 2;

/// Begin, end and `pad`: OpenAI's encoder is padded with the end token, OpenCLIP's with 0.
pub fn marks(pad: i32) -> Marks {
    Marks { begin: Some(ClipTokenizer::BEGIN), end: Some(ClipTokenizer::END), pad, pad_left: false }
}

/// Chunks of 77 tokens of a prompt with emphasis, BREAK and custom words.
///
/// Long prompts are cut every 75 tokens, wherever that is. BREAK fills its chunk with end tokens.
pub fn encode(prompt: &[u8], pad: i32, words: &CustomWords) -> Result<Tokens> {
    Ok(plain(prompt, words)?.fitted(&marks(pad), Fit::chunks(CHUNK)))
}

/// Tokens without begin, end and padding.
fn plain(prompt: &[u8], words: &CustomWords) -> Result<Tokens> {
    let tokenizer = clip()?;
    let mut tokens = Tokens::default();
    for fragment in parse(prompt) {
        if fragment.is_break() {
            let fill = tokens.len().next_multiple_of(ROOM) - tokens.len();
            tokens.extend(&vec![ClipTokenizer::END; fill], 1.0);
        } else {
            tokens.extend(&tokenizer.encode_with(&fragment.text, words), fragment.weight);
        }
    }
    Ok(tokens)
}

/// Place of the first end token of a chunk, whose state is the pooled one; the last token where there is none.
pub fn end_position(chunk: &[i32]) -> usize {
    chunk.iter().position(|&id| id == ClipTokenizer::END).unwrap_or(chunk.len().saturating_sub(1))
}

/// A chunk for a second encoder that is padded with 0: all ids behind the first end token become 0.
pub fn zero_padded(chunk: &[i32]) -> Vec<i32> {
    let end = end_position(chunk);
    chunk.iter().enumerate().map(|(i, &id)| if i > end { 0 } else { id }).collect()
}

/// A prompt whose trigger word ("man img") marks the class word before it.
#[derive(Clone, Debug, PartialEq)]
pub struct Triggered {
    /// The prompt without the trigger, the class token repeated once per identity picture.
    pub with_identity: Tokens,
    /// True for the class tokens in `with_identity`.
    pub class: Vec<bool>,
    /// The prompt without the trigger.
    pub without_identity: Tokens,
}

/// Chunks of 77 tokens with the class token `count` times in place of class and trigger word.
///
/// None where the trigger is not one token, does not occur behind another word, or `count` is 0. Of several triggers each
/// multiplies the word before it, and the last one's are the class tokens.
pub fn triggered(
    prompt: &[u8],
    trigger: &str,
    count: usize,
    pad: i32,
    words: &CustomWords,
) -> Result<Option<Triggered>> {
    let [trigger] = clip()?.encode(trigger.as_bytes())[..] else { return Ok(None) };
    let source = plain(prompt, words)?;
    let (mut with, mut without) = (Tokens::default(), Tokens::default());
    let mut class = None;
    for (&id, &weight) in source.ids.iter().zip(&source.weights) {
        if id != trigger {
            with.extend(&[id], weight);
            without.extend(&[id], weight);
        } else if let (Some(&id), Some(&weight)) = (with.ids.last(), with.weights.last()) {
            class = Some(with.len() - 1);
            with.extend(&vec![id; count.saturating_sub(1)], weight);
        }
    }
    let Some(class) = class.filter(|_| count > 0) else { return Ok(None) };
    let fit = |tokens: &Tokens| tokens.fitted(&marks(pad), Fit::chunks(CHUNK));
    let with_identity = fit(&with);
    let mut flags = vec![false; with_identity.len()];
    for i in class..class + count {
        // each chunk has a begin token before its 75 and an end token behind them
        if let Some(flag) = flags.get_mut(i / ROOM * CHUNK + i % ROOM + 1) {
            *flag = true;
        }
    }
    Ok(Some(Triggered { with_identity, class: flags, without_identity: fit(&without) }))
}
