//! Recipes: how a family turns a prompt into its encoder's tokens. A family names a vocabulary, a template and a length.
#![forbid(unsafe_code)]

use super::prompt::{Fragment, parse, spell_quotes};
use super::sequence::{Fit, Tokens};
use super::tokenizer::{Marks, Vocabulary};
use crate::error::Result;

/// Fixed text around a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Template<'a> {
    /// Before the prompt, tokenized on its own.
    pub before: &'a str,
    /// Joined to the prompt's start.
    pub lead: &'a str,
    /// Behind the prompt, tokenized on its own.
    pub after: &'a str,
    /// Leading states that the model does not get to see: the tokens of the instruction.
    pub skip: usize,
}

/// What the emphasis syntax does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Emphasis {
    /// Parsed; weights count in the prompt, template text has weight 1.
    Weighted,
    /// Parsed, so brackets vanish, but all weights are 1.
    Uniform,
    /// Not parsed; template and prompt are tokenized as one text.
    Verbatim,
}

/// How a prompt becomes tokens.
#[derive(Clone, Copy, Debug)]
pub struct Recipe<'a> {
    /// Which tokenizer.
    pub vocabulary: Vocabulary,
    /// Begin, end and padding, where they are not the tokenizer's.
    pub marks: Option<Marks>,
    /// Text around the prompt.
    pub template: Template<'a>,
    /// The emphasis syntax.
    pub emphasis: Emphasis,
    /// Quoted parts are tokenized character by character.
    pub spell_quotes: bool,
    /// Length.
    pub fit: Fit,
    /// The only token of a prompt that has none.
    pub if_empty: Option<i32>,
}

impl<'a> Recipe<'a> {
    /// Weighted, without quirks.
    pub const fn new(vocabulary: Vocabulary, template: Template<'a>, fit: Fit) -> Self {
        let emphasis = Emphasis::Weighted;
        Self { vocabulary, marks: None, template, emphasis, spell_quotes: false, fit, if_empty: None }
    }

    /// Tokens of `prompt`, any bytes.
    pub fn encode(&self, prompt: &[u8]) -> Result<Tokens> {
        let tokenizer = self.vocabulary.tokenizer()?;
        let mut tokens = Tokens::default();
        for Fragment { text, weight } in self.fragments(prompt) {
            let weight = if self.emphasis == Emphasis::Weighted { weight } else { 1.0 };
            tokens.extend(&tokenizer.encode(&text), weight);
        }
        if let (true, Some(id)) = (tokens.is_empty(), self.if_empty) {
            tokens.extend(&[id], 1.0);
        }
        Ok(tokens.fitted(&self.marks.unwrap_or_else(|| tokenizer.marks()), self.fit))
    }

    fn fragments(&self, prompt: &[u8]) -> Vec<Fragment> {
        let Template { before, lead, after, .. } = self.template;
        let fixed = |text: &str| Fragment { text: text.into(), weight: 1.0 };
        let led = [lead.as_bytes(), prompt].concat();
        if self.emphasis == Emphasis::Verbatim {
            return vec![Fragment {
                text: [before.as_bytes(), &led, after.as_bytes()].concat(),
                weight: 1.0,
            }];
        }
        let mut parsed = parse(&led);
        if self.spell_quotes {
            parsed = spell_quotes(&parsed);
        }
        let mut out = Vec::with_capacity(parsed.len() + 2);
        if !before.is_empty() {
            out.push(fixed(before));
        }
        out.extend(parsed);
        if !after.is_empty() {
            out.push(fixed(after));
        }
        out
    }
}

impl<'a> Template<'a> {
    /// The bare prompt.
    pub const NONE: Template<'static> = Template::around("", "", 0);

    /// Text before and behind, `skip` leading states dropped.
    pub const fn around(before: &'a str, after: &'a str, skip: usize) -> Self {
        Self { before, lead: "", after, skip }
    }

    /// A bare prompt behind a space.
    pub const SPACED: Template<'static> = Template { before: "", lead: " ", after: "", skip: 0 };

    /// ChatML: the user's message, then the assistant's turn.
    pub const CHAT: Template<'static> =
        Template::around("<|im_start|>user\n", "<|im_end|>\n<|im_start|>assistant\n", 0);

    /// [`Template::CHAT`] with thinking switched off.
    pub const CHAT_NO_THINKING: Template<'static> = Template::around(
        "<|im_start|>user\n",
        "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n",
        0,
    );

    /// ChatML with the instruction to describe the image in the system message.
    pub const DESCRIBE: Template<'static> = Template::around(
        "<|im_start|>system\nDescribe the image by detailing the color, shape, size, texture, quantity, text, spatial relationships of the objects and background:<|im_end|>\n<|im_start|>user\n",
        "<|im_end|>\n<|im_start|>assistant\n",
        34,
    );

    /// ChatML with the instruction to describe the image before the prompt in the user's message, thinking off.
    pub const DESCRIBE_AS_USER: Template<'static> = Template {
        before: "<|im_start|>user\nDescribe the image by detailing the color, quantity, text, shape, size, texture, spatial relationships of the objects and background:",
        lead: " ",
        after: "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n",
        skip: 28,
    };

    /// ChatML that asks an image captioning expert for a prompt.
    pub const CAPTIONING_EXPERT: Template<'static> = Template::around(
        "<|im_start|>system\nAs an image captioning expert, generate a descriptive text prompt based on an image content, suitable for input to a text-to-image model.<|im_end|>\n<|im_start|>user\n",
        "<|im_end|>\n<|im_start|>assistant\n",
        36,
    );

    /// ChatML without the assistant's turn, for a helpful assistant that generates images.
    pub const HELPFUL_ASSISTANT: Template<'static> = Template::around(
        "<|im_start|>system\nYou are a helpful assistant that generates high-quality images based on user instructions. The instructions are as follows.<|im_end|>\n<|im_start|>user\n",
        "<|im_end|>\n",
        0,
    );

    /// ChatML with the instruction to explain an edit; pictures go between it and the prompt.
    pub const EDIT_INSTRUCTION: &'static str = "<|im_start|>system\nDescribe the key features of the input image (color, shape, size, texture, objects, background), then explain how the user's text instruction should alter or modify the image. Generate a new image that meets the user's requirements while maintaining consistency with the original input where appropriate.<|im_end|>\n<|im_start|>user\n";

    /// Mistral's chat for a model that reasons about image descriptions.
    pub const MISTRAL_IMAGE_REASONER: Template<'static> = Template::around(
        "[SYSTEM_PROMPT]You are an AI that reasons about image descriptions. You give structured responses focusing on object relationships, object\nattribution and actions without speculation.[/SYSTEM_PROMPT][INST]",
        "[/INST]",
        0,
    );

    /// The harmony chat of GPT-OSS with the instruction to describe the image; the answer's start is given.
    pub const HARMONY_DESCRIBE: Template<'static> = Template::around(
        "<|start|>system<|message|>You are ChatGPT, a large language model trained by OpenAI.\nKnowledge cutoff: 2024-06\nCurrent date: 2026-05-26\n\nReasoning: medium\n\n# Valid channels: analysis, commentary, final. Channel must be included for every message.<|end|><|start|>developer<|message|># Instructions\n\nDescribe the image by detailing the color, shape, size, texture, quantity, text, spatial relationships of the objects and background.\n\n<|end|><|start|>user<|message|>",
        "<|end|><|start|>assistant<|channel|>analysis<|message|>Need to generate one image according to the description.<|end|><|start|>assistant<|channel|>final<|message|>",
        97,
    );

    /// An instruction to enhance a prompt, which only counts: texts are padded to its length.
    pub const ENHANCE_INSTRUCTION: &'static str = concat!(
        "Given a user prompt, generate an \"Enhanced prompt\" that provides detailed visual descriptions suitable for image generation. Evaluate the level of detail in the user prompt:\n",
        "- If the prompt is simple, focus on adding specifics about colors, shapes, sizes, textures, and spatial relationships to create vivid and concrete scenes.\n",
        "- If the prompt is already detailed, refine and enhance the existing details slightly without overcomplicating.\n",
        "Here are examples of how to transform or refine prompts:\n",
        "- User Prompt: A cat sleeping -> Enhanced: A small, fluffy white cat curled up in a round shape, sleeping peacefully on a warm sunny windowsill, surrounded by pots of blooming red flowers.\n",
        "- User Prompt: A busy city street -> Enhanced: A bustling city street scene at dusk, featuring glowing street lamps, a diverse crowd of people in colorful clothing, and a double-decker bus passing by towering glass skyscrapers.\n",
        "Please generate only the enhanced description for the prompt below and avoid including any additional commentary or evaluations:\n",
        "User Prompt: ",
    );

    /// ChatML with the instruction of an image editing expert; pictures go between it and the prompt.
    pub const EDITING_EXPERT_INSTRUCTION: &'static str = "<|im_start|>system\nAs an image editing expert, first analyze the content and attributes of the input image(s). Then, based on the user's editing instructions, clearly and precisely determine how to modify the given image(s), ensuring that only the specified parts are altered and all other aspects remain consistent with the original(s).<|im_end|>\n<|im_start|>user\n";
}
