//! Prompts that nobody should write: any bytes, any length, in bounded time, with finite weights and ids in range.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::time::{Duration, Instant};

use stable_diffusion::text::prompt::{Fragment, parse, spell_quotes};
use stable_diffusion::text::{
    ClipTokenizer, CustomWords, Fit, Marks, Recipe, Template, Tokenizer, Tokens, Vocabulary, apply_weights,
    clip, clip_tokenizer,
};

const ALL: [Vocabulary; 8] = [
    Vocabulary::Clip,
    Vocabulary::T5,
    Vocabulary::Umt5,
    Vocabulary::Qwen2,
    Vocabulary::Mistral,
    Vocabulary::Gemma2,
    Vocabulary::Gemma3,
    Vocabulary::GptOss,
];

/// Far above what is needed (well under a second for a megabyte), so that a busy machine does not fail the test.
const LIMIT: Duration = Duration::from_secs(60);

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }
}

fn check(text: &[u8], vocabularies: &[Vocabulary]) {
    let shown = || String::from_utf8_lossy(&text[..text.len().min(40)]).into_owned();
    let fragments = parse(text);
    assert!(!fragments.is_empty());
    assert!(fragments.iter().all(|f| f.weight.is_finite()), "{}", shown());
    assert!(fragments.windows(2).all(|w| w[0].weight != w[1].weight), "{}", shown());
    let spelled: usize = spell_quotes(&fragments).iter().map(|f| f.text.len()).sum();
    assert_eq!(spelled, fragments.iter().map(|f| f.text.len()).sum::<usize>(), "{}", shown());
    for &vocabulary in vocabularies {
        let tokenizer = vocabulary.tokenizer().unwrap();
        let ids = tokenizer.encode(text);
        let range = 0..tokenizer.size() as i32;
        assert!(ids.iter().all(|id| range.contains(id)), "{vocabulary:?} {}", shown());
        assert!(ids.len() <= 4 * text.len() + 4, "{vocabulary:?} {}", shown());
        tokenizer.decode(&ids);
    }
}

#[test]
fn every_byte_and_pair() {
    for a in 0..=255u8 {
        check(&[a], &ALL);
        check(&[b'x', a, b'y'], &ALL);
        for b in [0, b' ', b'a', b'(', b':', 0x80, 0xbf, 0xc3, 0xe4, 0xf0, 0xff] {
            check(&[a, b], &ALL);
        }
    }
}

#[test]
fn text_cut_anywhere() {
    let text = "(né:1.2) 猫 🐱\u{200d}👤 \u{f0000} [क्षि] \u{2581}<0x41> don't \"‘“quote”’\"\r\n\t".as_bytes();
    for i in 0..=text.len() {
        check(&text[..i], &ALL);
        check(&text[i..], &ALL);
    }
}

#[test]
fn random_bytes() {
    let mut random = Random(42);
    let syntax = b"()[]\\:.+-0159BREAK'\" \n\xe2\x80\x98\x99\xf0\x9f\x90\xb1az";
    for round in 0..600 {
        let text: Vec<u8> = (0..random.below(60))
            .map(|_| if round % 2 == 0 { random.next() as u8 } else { syntax[random.below(syntax.len())] })
            .collect();
        check(&text, &ALL);
    }
}

#[test]
fn ill_formed_sequences() {
    // overlong forms, surrogates, beyond Unicode, bytes that never occur, lone continuations
    let bad: [&[u8]; 10] = [
        b"\xc0\x80",
        b"\xe0\x80\xaf",
        b"\xf0\x80\x80\x80",
        b"\xed\xa0\x80\xed\xb0\x80",
        b"\xf4\x90\x80\x80",
        b"\xf7\xbf\xbf\xbf",
        b"\xf8\x88\x80\x80\x80",
        b"\xfe\xff",
        b"\x80\x80\x80\x80",
        b"a\xe2\x96",
    ];
    for text in bad {
        check(text, &ALL);
        check(&[b"a ", text, b" b"].concat(), &ALL);
    }
}

#[test]
fn a_megabyte() {
    let whole = ["x", " ", "the quick brown fox, 3 lazy dogs. "];
    let tenth = ["\n", "\n ", "'", "\"", "a'", "猫", "\u{2581}", "<", "0", "ab"];
    let sized = whole.map(|unit| (unit, 1_000_000)).into_iter().chain(tenth.map(|unit| (unit, 100_000)));
    for (unit, size) in sized {
        let text = unit.repeat(size / unit.len());
        for vocabulary in ALL {
            let start = Instant::now();
            check(text.as_bytes(), &[vocabulary]);
            assert!(start.elapsed() < LIMIT, "{vocabulary:?} {unit:?}: {:?}", start.elapsed());
        }
    }
}

#[test]
fn deep_brackets() {
    let units =
        ["(", "[", ")", "]", "(a", "[a", "(a:1.01)", "([a", "\\(", ":", ":1", "(a:", "B", "BREAK ", "‘", "“"];
    for unit in units {
        let start = Instant::now();
        let text = unit.repeat(100_000);
        let closed = format!("{text}{}", "x:1.001)".repeat(100_000));
        check(text.as_bytes(), &[Vocabulary::Clip]);
        check(closed.as_bytes(), &[]);
        assert!(start.elapsed() < LIMIT, "{unit}: {:?}", start.elapsed());
    }
    let deep = parse("(".repeat(100_000).as_bytes());
    assert_eq!(deep, [Fragment { text: Vec::new(), weight: 1.0 }]);
}

fn parsed(text: &str) -> Vec<(String, f32)> {
    parse(text.as_bytes()).into_iter().map(|f| (String::from_utf8(f.text).unwrap(), f.weight)).collect()
}

fn one(text: &str, weight: f32) -> Vec<(String, f32)> {
    vec![(text.to_string(), weight)]
}

#[test]
fn numbers_that_are_none() {
    assert_eq!(parsed("(x:.)"), one("x:.", 1.1));
    assert_eq!(parsed("(x:+.)"), one("x:+.", 1.1));
    assert_eq!(parsed("(x:...)"), one("x:...", 1.1));
    let digits = "9".repeat(60);
    assert_eq!(parsed(&format!("(x:{digits})")), one(&format!("x:{digits}"), 1.1));
    assert_eq!(parsed("(x:1.2.3)"), one("x", 1.2));
    assert_eq!(parsed("(x:1,5)"), one("x:1,5", 1.1));
    assert_eq!(parsed("(x:0)"), one("x", 0.0));
    assert_eq!(parsed(&format!("(x:0.{}1)", "0".repeat(60))), one("x", 0.0));
    // products stay finite
    let big = "9".repeat(30);
    let weights = parse(format!("((a:{big}):{big}) ((b:{big}):-{big})").as_bytes());
    assert!(weights.iter().all(|f| f.weight.abs() <= 1e9));
}

#[test]
fn brackets_next_to_each_other() {
    assert_eq!(parsed("(unnecessary)(parens)"), one("unnecessaryparens", 1.1));
    assert_eq!(parsed("(a:1)b"), one("ab", 1.0));
    assert_eq!(parsed("a:1.5)"), one("a", 1.0));
    assert_eq!(parsed("\\(literal\\)"), one("(literal\\)", 1.0));
    let crossing: Vec<_> = parsed("(a[b)c]").into_iter().map(|(t, _)| t).collect();
    assert_eq!(crossing, ["a", "b", "c"]);
    assert!(parse(b"a BREAK b")[1].is_break());
}

#[test]
fn custom_words() {
    let clip = clip_tokenizer().unwrap();
    let mut words = CustomWords::default();
    let size = ClipTokenizer::SIZE;
    assert_eq!(words.add(b"MyEmb", 1), size..size + 1);
    assert_eq!(words.add(b"myemb-large", 3), size + 1..size + 4);
    assert_eq!(words.add("stíl".as_bytes(), 2), size + 4..size + 6);
    assert_eq!(words.add(b"", 1), size + 6..size + 7);
    assert_eq!(words.vectors(), 7);
    let encode = |text: &str| clip.encode_with(text.as_bytes(), &words);
    let plain = |text: &str| clip.encode(text.as_bytes());
    let one = vec![size];
    for text in ["MyEmb", "myemb", "MYEMB", "  myemb\n"] {
        assert_eq!(encode(text), one, "{text}");
    }
    assert_eq!(encode("myemb,"), [one.clone(), plain(",")].concat());
    assert_eq!(encode("a photo of myemb."), [plain("a photo of"), one.clone(), plain(".")].concat());
    assert_eq!(encode("myemb-large"), [size + 1, size + 2, size + 3]);
    assert_eq!(encode("myemb-small"), [one.clone(), plain("-small")].concat());
    assert_eq!(encode("in stíl"), [plain("in"), vec![size + 4, size + 5]].concat());
    // the same words again, in a prompt with weights
    for _ in 0..2 {
        let tokens = clip::encode(b"(MyEmb:1.5) x", 0, &words).unwrap();
        assert_eq!((tokens.ids[1], tokens.weights[1]), (size, 1.5));
        assert_eq!(tokens.weights[2], 1.0);
    }
    // begin and end tokens are not hidden by a word
    words.add(b"<|", 1);
    assert_eq!(clip.encode_with(b"<|endoftext|>", &words), [ClipTokenizer::END]);
}

#[test]
fn trigger_words() {
    let words = CustomWords::default();
    let run = |prompt: &str, count| clip::triggered(prompt.as_bytes(), "img", count, 49_407, &words).unwrap();
    let man = clip_tokenizer().unwrap().encode(b"man")[0];
    let two = run("a man img, (portrait:1.2)", 2).unwrap();
    assert_eq!(&two.with_identity.ids[1..5], &[320, man, man, 267]);
    assert_eq!(&two.without_identity.ids[1..4], &[320, man, 267]);
    assert_eq!(two.without_identity, clip::encode(b"a man, (portrait:1.2)", 49_407, &words).unwrap());
    let places: Vec<_> = (0..77).filter(|&i| two.class[i]).collect();
    assert_eq!(places, [2, 3]);
    assert_eq!(two.with_identity.len(), 77);
    // none, first, or no pictures: no identity, no crash
    assert_eq!(run("a man", 1), None);
    assert_eq!(run("img", 1), None);
    assert_eq!(run("", 1), None);
    assert_eq!(run("a man img", 0), None);
    assert_eq!(clip::triggered(b"a", "two words", 1, 0, &words).unwrap(), None);
    // the class word may stand in a later chunk, and its copies on both sides of a chunk's edge
    let long = format!("{}man img", "a ".repeat(73));
    let three = run(&long, 3).unwrap();
    let places: Vec<_> = (0..three.class.len()).filter(|&i| three.class[i]).collect();
    assert_eq!((three.class.len(), places), (154, vec![74, 75, 78]));
    assert!(three.class.iter().zip(&three.with_identity.ids).all(|(&c, &id)| !c || id == man));
}

#[test]
fn second_encoders() {
    let tokens = clip::encode(b"a cat", 49_407, &CustomWords::default()).unwrap();
    assert_eq!(clip::end_position(&tokens.ids), 3);
    let second = clip::zero_padded(&tokens.ids);
    assert_eq!(second[..4], tokens.ids[..4]);
    assert!(second[4..].iter().all(|&id| id == 0));
    assert_eq!(clip::end_position(&[1, 2]), 1);
    assert_eq!(clip::end_position(&[]), 0);
    assert!(clip::zero_padded(&[]).is_empty());
}

#[test]
fn lengths() {
    let marks = Marks { begin: Some(1), end: Some(2), pad: 0, pad_left: false };
    let mut tokens = Tokens::default();
    tokens.extend(&[7, 8, 9], 0.5);
    let ids = |fit| tokens.fitted(&marks, fit).ids;
    assert_eq!(ids(Fit::FREE), [1, 7, 8, 9, 2]);
    assert_eq!(ids(Fit::at_least(7)), [1, 7, 8, 9, 2, 0, 0]);
    assert_eq!(ids(Fit::at_most(4)), [1, 7, 8, 2]);
    assert_eq!(ids(Fit::exactly(4)), [1, 7, 8, 2]);
    assert_eq!(ids(Fit::chunks(4)), [1, 7, 8, 2, 1, 9, 2, 0]);
    assert_eq!(ids(Fit::chunks(2)), [1, 2]);
    assert_eq!(ids(Fit::at_most(0)), [0i32; 0]);
    let left = tokens.fitted(&Marks { pad_left: true, end: None, ..marks }, Fit::exactly(6));
    assert_eq!(left.ids, [0, 0, 1, 7, 8, 9]);
    assert_eq!(left.mask, [false, false, true, true, true, true]);
    assert_eq!(left.weights, [1.0, 1.0, 1.0, 0.5, 0.5, 0.5]);
    assert_eq!(left.additive_mask()[1..3], [f32::NEG_INFINITY, 0.0]);
    let chunks: Vec<_> = tokens.fitted(&marks, Fit::chunks(4)).chunks(4).map(|c| c.ids[1]).collect();
    assert_eq!(chunks, [7, 9]);
    assert_eq!(tokens.chunks(0).count(), 3);
}

#[test]
fn weights_keep_the_mean() {
    let mut states = vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
    apply_weights(&mut states, &[1.0, 2.0, 1.0]).unwrap();
    let scale = 21.0 / 28.0;
    assert_eq!(states, [1.0, 2.0, 6.0, 8.0, 5.0, 6.0].map(|v: f32| v * scale));
    let mut plain = vec![f32::NAN, 1.0];
    apply_weights(&mut plain, &[1.0]).unwrap();
    assert_eq!(plain[1], 1.0);
    let mut nothing = vec![1.0, 1.0];
    apply_weights(&mut nothing, &[0.0]).unwrap();
    assert_eq!(nothing, [0.0, 0.0]);
    assert!(apply_weights(&mut nothing, &[0.5, 1.0, 1.0]).is_err());
    assert!(apply_weights(&mut nothing, &[1.0, 1.0, 1.0]).is_ok());
}

#[test]
fn text_comes_back() {
    let text = "the quick brown fox, 3 lazy dogs; naïve café 猫 🐱 — ok";
    for vocabulary in
        [Vocabulary::Qwen2, Vocabulary::Mistral, Vocabulary::GptOss, Vocabulary::Gemma2, Vocabulary::Gemma3]
    {
        let tokenizer = vocabulary.tokenizer().unwrap();
        let ids = tokenizer.encode(text.as_bytes());
        assert_eq!(String::from_utf8(tokenizer.decode(&ids)).unwrap(), text, "{vocabulary:?}");
    }
    let clip = clip_tokenizer().unwrap();
    let decoded = clip.decode(&clip.encode("A Man , naïve".as_bytes()));
    assert_eq!(String::from_utf8(decoded).unwrap(), "a man, na ï ve");
    let t5 = Vocabulary::T5.tokenizer().unwrap();
    assert_eq!(t5.decode(&t5.encode(b"a small house")), b"a small house");
    // ids from nowhere
    for vocabulary in ALL {
        vocabulary.tokenizer().unwrap().decode(&[-1, i32::MAX, i32::MIN, 0]);
    }
}

#[test]
fn recipes_take_any_bytes() {
    let recipe = Recipe::new(Vocabulary::Qwen2, Template::DESCRIBE, Fit::FREE);
    let empty = recipe.encode(b"").unwrap();
    assert_eq!(empty.len(), 39);
    assert!(recipe.encode(b"\xff\xfe").unwrap().len() >= empty.len());
    let weighted = recipe.encode(b"(a:2)").unwrap();
    assert_eq!(weighted.weights.iter().filter(|&&w| w != 1.0).count(), 1);
}
