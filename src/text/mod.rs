//! Tokenizers, prompt weights and templates.
//!
//! A family says which [`Vocabulary`], [`Template`] and [`Fit`] its encoder takes, and [`Recipe::encode`] gives the
//! [`Tokens`]; CLIP prompts with chunks, BREAK and custom words go through [`clip`]. [`apply_weights`] lets the weights act
//! on the encoder's states. Vocabularies are compiled in and unpacked when first asked for.
#![forbid(unsafe_code)]

mod bpe;
pub mod clip;
pub mod prompt;
mod recipe;
mod sequence;
mod special;
mod tokenizer;
mod unigram;
mod vocab;
mod words;

pub use recipe::{Emphasis, Recipe, Template};
pub use sequence::{Fit, Overflow, Tokens, apply_weights};
pub use tokenizer::{
    BpeTokenizer, ClipTokenizer, CustomWords, Marks, Tokenizer, Vocabulary, clip as clip_tokenizer, gemma2,
    gemma3, gpt_oss, mistral, qwen2, t5, umt5,
};
pub use unigram::Unigram;
