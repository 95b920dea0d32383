//! The rewriting engine: rules as data, applied in stages.
//!
//! In `from`, `#` stands for a decimal number. In `to`, braces hold a linear form of those numbers, named
//! `a`, `b`, `c` in their order: `down_blocks.#.resnets.#.` -> `input_blocks.{3a+b+1}.0.`
#![forbid(unsafe_code)]

use std::borrow::Cow;
use std::ops::Range;

/// Most numbers that one pattern captures.
const MAX_NUMBERS: usize = 4;

/// Where in a name a pattern has to match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// The whole name.
    Whole,
    /// Its beginning.
    Head,
    /// Anywhere; the first occurrence counts.
    Part,
    /// A module's whole path: `.weight` or `.bias` follows, and stays.
    Module,
    /// As `Module`, but the tensor becomes the rows with this number of a weight which is joined from several.
    Rows(u8),
}

/// One replacement.
#[derive(Clone, Copy, Debug)]
pub struct Rename {
    /// Where `from` has to be found.
    pub at: At,
    /// Spelling in the file; `#` is a number.
    pub from: &'static str,
    /// Canonical spelling; `{3a+b+1}` computes with the numbers found.
    pub to: &'static str,
}

/// A rule for a complete name.
pub const fn whole(from: &'static str, to: &'static str) -> Rename {
    Rename { at: At::Whole, from, to }
}

/// A rule for the beginning of a name.
pub const fn head(from: &'static str, to: &'static str) -> Rename {
    Rename { at: At::Head, from, to }
}

/// A rule for any place in a name.
pub const fn part(from: &'static str, to: &'static str) -> Rename {
    Rename { at: At::Part, from, to }
}

/// A rule for the path of a module, before `.weight` or `.bias`.
pub const fn module(from: &'static str, to: &'static str) -> Rename {
    Rename { at: At::Module, from, to }
}

/// A rule for the path of a module whose weight and bias become part `number` of the joined ones of `to`: q, k, v of
/// a fused projection are parts 0 (see [`module`]), 1 and 2.
pub const fn rows(from: &'static str, to: &'static str, number: u8) -> Rename {
    Rename { at: At::Rows(number), from, to }
}

/// How many rules of a stage take effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Take {
    /// Each that matches, one after the other.
    Every,
    /// The first that matches.
    First,
    /// The first that matches, which also ends the translation.
    FirstAndEnd,
}

/// Rules that belong together. A translation is a list of stages, each seeing the result of the one before.
#[derive(Clone, Copy, Debug)]
pub struct Stage {
    /// The stage counts only for names that contain this text.
    pub when: Option<&'static str>,
    /// How many of the rules take effect.
    pub take: Take,
    /// The rules, in order.
    pub rules: &'static [Rename],
}

/// A stage whose first matching rule is applied.
pub const fn first(rules: &'static [Rename]) -> Stage {
    Stage { when: None, take: Take::First, rules }
}

/// A stage whose matching rules are all applied, in order.
pub const fn every(rules: &'static [Rename]) -> Stage {
    Stage { when: None, take: Take::Every, rules }
}

/// A stage for names that contain `text`; its matching rules are all applied, in order.
pub const fn every_when(text: &'static str, rules: &'static [Rename]) -> Stage {
    Stage { when: Some(text), take: Take::Every, rules }
}

/// A stage whose first matching rule gives the final name.
pub const fn first_and_end(rules: &'static [Rename]) -> Stage {
    Stage { when: None, take: Take::FirstAndEnd, rules }
}

/// Applies `stages` to `name`; borrowed when nothing matched.
pub fn apply<'n>(name: &'n str, stages: &[Stage]) -> Cow<'n, str> {
    let mut name = Cow::Borrowed(name);
    for stage in stages {
        if stage.when.is_some_and(|text| !name.contains(text)) {
            continue;
        }
        for rule in stage.rules {
            let Some(new) = rule.rewrite(&name) else { continue };
            name = Cow::Owned(new);
            match stage.take {
                Take::Every => {}
                Take::First => break,
                Take::FirstAndEnd => return name,
            }
        }
    }
    name
}

impl Rename {
    /// The name with this rule applied, when it matches.
    fn rewrite(&self, name: &str) -> Option<String> {
        let mut numbers = [0u32; MAX_NUMBERS];
        let span = self.find(name, &mut numbers)?;
        let mut new = String::with_capacity(name.len() + self.to.len());
        new.push_str(&name[..span.start]);
        push_template(&mut new, self.to, &numbers);
        let rest = &name[span.end..];
        if let At::Rows(number) = self.at {
            let (param, rest) = rest.split_at(param_len(rest)?);
            new.push_str(param);
            new.push_str(&format!(".{number}"));
            new.push_str(rest);
        } else {
            new.push_str(rest);
        }
        Some(new)
    }

    fn find(&self, name: &str, numbers: &mut [u32; MAX_NUMBERS]) -> Option<Range<usize>> {
        // most rules fail at their first letter
        let anchored = self.at != At::Part;
        if anchored
            && !self.from.starts_with('#')
            && !self.from.is_empty()
            && self.from.as_bytes().first() != name.as_bytes().first()
        {
            return None;
        }
        match self.at {
            At::Head => match_here(name, self.from, numbers).map(|end| 0..end),
            At::Whole => {
                match_here(name, self.from, numbers).filter(|&end| end == name.len()).map(|end| 0..end)
            }
            At::Module | At::Rows(_) => {
                let end = match_here(name, self.from, numbers)?;
                param_len(&name[end..]).map(|_| 0..end)
            }
            At::Part => {
                let literal = self.from.split('#').next().unwrap_or_default();
                let mut start = 0;
                while let Some(offset) = name[start..].find(literal) {
                    let found = start + offset;
                    if let Some(length) = match_here(&name[found..], self.from, numbers) {
                        return Some(found..found + length);
                    }
                    start = found + literal.len().max(1);
                    if !name.is_char_boundary(start) {
                        return None;
                    }
                }
                None
            }
        }
    }
}

/// Length of the parameter's name at the beginning of `text`.
fn param_len(text: &str) -> Option<usize> {
    [".weight", ".bias"].iter().find(|param| text.starts_with(**param)).map(|param| param.len())
}

/// Length of the match of `pattern` at the beginning of `text`.
fn match_here(text: &str, pattern: &str, numbers: &mut [u32; MAX_NUMBERS]) -> Option<usize> {
    let (text, pattern) = (text.as_bytes(), pattern.as_bytes());
    let (mut at, mut captured) = (0, 0);
    for &wanted in pattern {
        if wanted != b'#' {
            if text.get(at) != Some(&wanted) {
                return None;
            }
            at += 1;
            continue;
        }
        let start = at;
        let mut number = 0u32;
        while let Some(digit) = text.get(at).filter(|byte| byte.is_ascii_digit()) {
            number = number.checked_mul(10)?.checked_add(u32::from(digit - b'0'))?;
            at += 1;
        }
        if at == start {
            return None;
        }
        *numbers.get_mut(captured)? = number;
        captured += 1;
    }
    Some(at)
}

/// Appends `template` with its braces computed.
fn push_template(out: &mut String, template: &str, numbers: &[u32; MAX_NUMBERS]) {
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('{') {
        let (form, after) = after.split_once('}').unwrap_or((after, ""));
        out.push_str(before);
        out.push_str(&linear(form, numbers).to_string());
        rest = after;
    }
    out.push_str(rest);
}

/// Value of a form such as `3a+b+1` or `3-a`.
fn linear(form: &str, numbers: &[u32; MAX_NUMBERS]) -> i64 {
    let mut sum = 0;
    for term in form.split_inclusive(['+', '-']).scan('+', |sign, piece| {
        let bare = piece.trim_end_matches(['+', '-']);
        let term = (*sign, bare);
        *sign = piece.chars().last().unwrap_or('+');
        Some(term)
    }) {
        let (sign, bare) = term;
        let (factor, variable) = match bare.bytes().last() {
            Some(letter @ b'a'..=b'd') => {
                (&bare[..bare.len() - 1], i64::from(numbers[usize::from(letter - b'a')]))
            }
            _ => (bare, 1),
        };
        let value = variable * factor.parse::<i64>().unwrap_or(1);
        sum += if sign == '-' { -value } else { value };
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_captured_and_computed() {
        const STAGES: &[Stage] = &[first(&[
            head("down.#.res.#.", "in.{3a+b+1}.0."),
            head("up.#.", "up.{3-a}."),
            whole("x.#", "y.{a}"),
        ])];
        assert_eq!(apply("down.2.res.1.w", STAGES), "in.8.0.w");
        assert_eq!(apply("up.1.w", STAGES), "up.2.w");
        assert_eq!(apply("x.12", STAGES), "y.12");
        assert_eq!(apply("x.12.w", STAGES), "x.12.w");
        assert_eq!(apply("down.x.res.1.w", STAGES), "down.x.res.1.w");
        assert_eq!(apply("down.99999999999.res.1.w", STAGES), "down.99999999999.res.1.w");
    }

    #[test]
    fn stages_see_the_result_of_the_one_before() {
        const STAGES: &[Stage] =
            &[every(&[part(".a.", ".b."), part(".b.", ".c.")]), every_when("c", &[part(".c.", ".d.")])];
        assert_eq!(apply("x.a.y", STAGES), "x.d.y");
        assert!(matches!(apply("plain", STAGES), Cow::Borrowed("plain")));
        const ENDING: &[Stage] = &[first_and_end(&[whole("a", "b")]), first(&[whole("b", "c")])];
        assert_eq!(apply("a", ENDING), "b");
    }

    #[test]
    fn modules_keep_their_parameter_and_rows_get_a_number() {
        const STAGES: &[Stage] = &[first(&[module("b.#.q", "B.{a}.qkv"), rows("b.#.k", "B.{a}.qkv", 1)])];
        assert_eq!(apply("b.3.q.weight", STAGES), "B.3.qkv.weight");
        assert_eq!(apply("b.3.k.bias", STAGES), "B.3.qkv.bias.1");
        assert_eq!(apply("b.3.k.weight.up", STAGES), "B.3.qkv.weight.1.up");
        assert_eq!(apply("b.3.k.scale", STAGES), "b.3.k.scale");
        assert_eq!(apply("b.3.qq.weight", STAGES), "b.3.qq.weight");
    }

    #[test]
    fn names_of_any_bytes_are_safe() {
        const STAGES: &[Stage] = &[every(&[part("é#", "x{a}"), part("#", "n{a}")])];
        for name in ["", "é", "éé1", "日本é7", "#", "1"] {
            let _ = apply(name, STAGES);
        }
        assert_eq!(apply("éé1", STAGES), "éx1");
    }
}
