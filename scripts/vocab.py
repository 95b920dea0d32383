#!/usr/bin/env python3
"""Packs tokenizer vocabularies into assets/vocab/*.bin.

usage: scripts/vocab.py TOKENIZERS_DIR [OUT_DIR]

TOKENIZERS_DIR is the folder `stable-diffusion.cpp/src/tokenizers` of the cargo package diffusion-rs-sys 0.1.20
(unpack the package; nothing is downloaded here). It carries each vocabulary as a C array in `vocab/*.hpp`:
merge lists, JSON vocabularies and tokenizer.json files; `tokenize_util.cpp` has the list of Unicode letters.
The same input gives the same bytes with the same zlib.

Layout of a .bin file (little endian):
  8 bytes  "SDVOCAB1"
  u32      size of the inflated body
  u32      number of tokens N
  u32      number L of literal bytes
  u32      number P of pairs (tokens that are two earlier tokens joined)
  u32      number S of specials
  u32      number of score bytes, 0 without scores
  zlib stream of the body:
    N  bytes   length of a literal token, 0 for a pair, 255 for an empty token
    L  bytes   the literal tokens, one after another, in id order
    6P bytes   ids of the pairs: planes of bits 0-7, 8-15, 16-23 of the left ids, then of the right ids
    S  entries u32 id, u8 length, bytes: the special tokens in matching order
    scores     N zigzag varints: difference of the f32 bits to the score before
In merge-list vocabularies (clip, qwen2) the pair is the merge that makes the token. Elsewhere it is the longest left
part, only to save space: there every split into two known tokens is a merge (checked against the merge lists below).
"""

import json
import os
import re
import struct
import sys
import zlib


def c_array(path):
    """Bytes of the only `unsigned char` array in a C header."""
    body = re.search(r"unsigned char \w+\[\]\s*=\s*\{(.*?)\}", open(path).read(), re.S)[1]
    return bytes.fromhex(re.sub(r"0x|[,\s]", "", body))


def byte_letters():
    """GPT-2's printable stand-ins for the 256 bytes: (byte, character) in vocabulary order."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [b for b in range(256) if b not in plain]
    return [(b, chr(b)) for b in plain] + [(b, chr(256 + i)) for i, b in enumerate(rest)]


LETTERS = byte_letters()
TO_BYTE = {c: b for b, c in LETTERS}


def raw(token):
    """A token in byte letters as its real bytes."""
    return bytes(TO_BYTE[c] for c in token)


def merges(data, skip=0):
    """(left, right) of each line; text behind the last newline does not count."""
    lines = data.decode().split("\n")[skip:-1]
    return [tuple(line.split(" ", 1)) for line in lines]


def escape(token):
    """The merge lists taken out of JSON files still have JSON's escapes."""
    return json.dumps(token, ensure_ascii=False)[1:-1]


def split_merges(vocab, order):
    """Merges of a vocabulary in which each split into two tokens is one."""
    out = []
    for token, index in sorted(vocab.items(), key=lambda kv: kv[1]):
        for k in range(1, len(token)):
            if token[:k] in vocab and token[k:] in vocab:
                out.append((order(vocab, token, index, k), token[:k], token[k:]))
    out.sort(key=lambda m: m[0])
    return [(a, b) for _, a, b in out]


def by_left_id(vocab, token, index, k):
    return (index, vocab[token[:k]])


def by_left_length(vocab, token, index, k):
    # user-defined tokens (whitespace runs, markup) share one score and come first, longest parts first
    user = index < 240 or index >= 255969
    return (0, -k, k - len(token), index) if user else (1, index, -k)


def check(name, made, listed, allowed):
    """The rule that the library applies must give the listed merges."""
    wrong = [(a, b) for a, b in zip(made, listed) if a != b]
    if len(wrong) > allowed or len(set(made) ^ set(listed)) > 1:
        sys.exit(f"{name}: merges do not follow the rule: {wrong[:5]}")


def varint(n):
    out = bytearray()
    while n >= 128:
        out.append(n & 127 | 128)
        n >>= 7
    out.append(n)
    return bytes(out)


def score_bytes(scores):
    out, last = bytearray(), 0
    for score in scores:
        (bits,) = struct.unpack("<i", struct.pack("<f", score))
        delta = bits - last
        out += varint(delta << 1 if delta >= 0 else (-delta << 1) - 1)
        last = bits
    return bytes(out)


def pack(tokens, specials, pairs=None, scores=()):
    """tokens: bytes by id; pairs: id -> (left, right), by default found by search."""
    if pairs is None:
        pairs, seen = {}, {}
        for i, token in enumerate(tokens):
            for k in range(len(token) - 1, 0, -1):
                if token[:k] in seen and token[k:] in seen:
                    pairs[i] = (seen[token[:k]], seen[token[k:]])
                    break
            seen.setdefault(token, i)
    lengths, literals, left, right = bytearray(), bytearray(), [], []
    for i, token in enumerate(tokens):
        if i in pairs:
            a, b = pairs[i]
            assert a < i and b < i and tokens[a] + tokens[b] == token
            lengths.append(0)
            left.append(a)
            right.append(b)
        else:
            assert len(token) < 255
            lengths.append(len(token) or 255)
            literals += token
    body = bytes(lengths) + bytes(literals)
    for ids in (left, right):
        for shift in (0, 8, 16):
            body += bytes(i >> shift & 255 for i in ids)
    for text, index in specials:
        text = text.encode()
        body += struct.pack("<IB", index, len(text)) + text
    score = score_bytes(scores)
    body += score
    head = struct.pack("<6I", len(body), len(tokens), len(literals), len(left), len(specials), len(score))
    return b"SDVOCAB1" + head + zlib.compress(body, 9)


def from_merges(data, skip, word_end, specials):
    """Vocabulary made by a merge list: bytes, bytes at a word's end, merges, specials."""
    listed = merges(data, skip)
    names = [c for _, c in LETTERS]
    if word_end:
        names += [c + word_end for c in names]
    index = {t: i for i, t in enumerate(names)}
    pairs = {}
    for a, b in listed:
        pairs[len(names)] = (index[a], index[b])
        index[a + b] = len(names)
        names.append(a + b)
    assert len(index) == len(names)
    numbered = [(s, len(names) + i) for i, s in enumerate(specials)]
    end = len(word_end)
    tokens = [raw(t[:-end]) + word_end.encode() if end and t.endswith(word_end) else raw(t) for t in names]
    return pack(tokens + [s.encode() for s in specials], numbered, pairs)


def from_json(vocab, specials, decode, append):
    """Vocabulary given as JSON; specials that it lacks get the ids behind it, or become padding."""
    tokens = [None] * len(vocab)
    for token, index in vocab.items():
        tokens[index] = decode(token)
    numbered = []
    for special in specials:
        if special not in vocab and append:
            vocab = {**vocab, special: len(tokens)}
            tokens.append(special.encode())
        numbered.append((special, vocab.get(special, 0)))
    return pack(tokens, numbered)


def from_unigram(data, specials):
    vocab = json.loads(data)["model"]["vocab"]
    index = {}
    for i, (token, _) in enumerate(vocab):
        index.setdefault(token, i)
    tokens = [token.encode() for token, _ in vocab]
    return pack(tokens, [(s, index[s]) for s in specials], scores=[score for _, score in vocab])


def letter_ranges(path):
    """Unicode general category L as gaps and lengths, varints."""
    text = open(path).read()
    text = text[text.index("is_letter") : text.index("is_space")]
    out, end = bytearray(), 0
    for a, b in re.findall(r"\{0x([0-9A-F]+), 0x([0-9A-F]+)\}", text):
        a, b = int(a, 16), int(b, 16)
        assert end <= a <= b
        out += varint(a - end) + varint(b - a)
        end = b
    return bytes(out)


CLIP = ["<|startoftext|>", "<|endoftext|>"]
QWEN2 = """<|endoftext|> <|im_start|> <|im_end|> <|object_ref_start|> <|object_ref_end|> <|box_start|> <|box_end|>
<|quad_start|> <|quad_end|> <|vision_start|> <|vision_end|> <|vision_pad|> <|image_pad|> <|video_pad|> <tool_call>
</tool_call> <|fim_prefix|> <|fim_middle|> <|fim_suffix|> <|fim_pad|> <|repo_name|> <|file_sep|> <tool_response>
</tool_response> <think> </think> <|boi_token|> <|bor_token|> <|eor_token|> <|bot_token|> <|tms_token|>""".split()
MISTRAL = """<unk> <s> </s> [INST] [/INST] [AVAILABLE_TOOLS] [/AVAILABLE_TOOLS] [TOOL_RESULTS] [/TOOL_RESULTS]
[TOOL_CALLS] [IMG] <pad> [IMG_BREAK] [IMG_END] [PREFIX] [MIDDLE] [SUFFIX] [SYSTEM_PROMPT] [/SYSTEM_PROMPT]
[TOOL_CONTENT]""".split() + [f"<SPECIAL_{i}>" for i in range(20, 1000)]
GPT_OSS = """<|startoftext|> <|endoftext|> <|reserved_200000|> <|reserved_200001|> <|return|> <|constrain|>
<|reserved_200004|> <|channel|> <|start|> <|end|> <|message|> <|reserved_200009|> <|reserved_200010|>
<|reserved_200011|> <|call|> <|reserved_200013|> <|reserved_200014|> <|reserved_200015|> <|reserved_200016|>
<|reserved_200017|> <|endofprompt|>""".split()
MARKUP = """<table> <caption> <thead> <tbody> <tfoot> <tr> <th> <td> </table> </caption> </thead> </tbody> </tfoot>
</tr> </th> </td> <h1> <h2> <h3> <h4> <h5> <h6> <blockquote> </h1> </h2> </h3> </h4> </h5> </h6> </blockquote>
<strong> <em> <b> <i> <u> <s> <sub> <sup> <code> </strong> </em> </b> </i> </u> </s> </sub> </sup> </code>""".split()
MARKUP3 = """<a> <html> <body> <img> <span> <bbox> <ul> <li> <div> <iframe> <footer> </a> </html> </body> </img>
</span> </bbox> </ul> </li> </div> </iframe> </footer>""".split()


def gemma(third, fourth, markup, late, unused):
    """The special tokens of a Gemma generation. Of several that start at one place the first listed wins."""
    return (
        ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>", third, *fourth]
        + [f"<unused{i}>" for i in range(99)]
        + ["<start_of_turn>", "<end_of_turn>"]
        + ["\n" * i for i in range(1, 32)]
        + ["\u2581" * i for i in range(2, 32)]
        + markup
        + [f"<0x{i:02X}>" for i in range(256)]
        + ["\t" * i for i in range(1, 32)]
        + late
        + [f"<unused{i}>" for i in unused]
    )


GEMMA3 = gemma(
    "[multimodal]", [], MARKUP + MARKUP3, ["<start_of_image>", "<end_of_image>"], range(99, 6242)
) + ["<image_soft_token>"]
GEMMA2 = gemma("<2mass>", ["[@BOS@]"], MARKUP, ["[toxicity=0]"], range(99, 100))


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    source = sys.argv[1]
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    out = sys.argv[2] if len(sys.argv) == 3 else os.path.join(root, "assets", "vocab")
    header = lambda name: c_array(os.path.join(source, "vocab", name))

    def vocabulary(name, listed, vocab, skip, order, specials, decode, allowed):
        words = json.loads(header(vocab))
        made = [(escape(a), escape(b)) if name != "mistral" else (a, b) for a, b in split_merges(words, order)]
        check(name, made, merges(header(listed), skip), allowed)
        return from_json(words, specials, decode, name == "gpt_oss")

    files = {
        "clip": from_merges(header("clip_merges.hpp"), 1, "</w>", CLIP),
        "qwen2": from_merges(header("qwen_merges.hpp"), 0, "", QWEN2),
        "mistral": vocabulary(
            "mistral", "mistral_merges.hpp", "mistral_vocab.hpp", 0, by_left_id, MISTRAL, raw, 0
        ),
        "gpt_oss": vocabulary(
            "gpt_oss", "gpt_oss_merges.hpp", "gpt_oss_vocab.hpp", 0, by_left_id, GPT_OSS, raw, 0
        ),
        "gemma3": vocabulary(
            "gemma3", "gemma_merges.hpp", "gemma_vocab.hpp", 0, by_left_length, GEMMA3, str.encode, 2
        ),
        "gemma2": vocabulary(
            "gemma2", "gemma2_merges.hpp", "gemma2_vocab.hpp", 1, by_left_length, GEMMA2, str.encode, 2
        ),
        "t5": from_unigram(header("t5.hpp"), ["<pad>", "</s>", "<unk>"]),
        "umt5": from_unigram(header("umt5.hpp"), ["<pad>", "</s>", "<unk>", "<s>"]),
        "letters": letter_ranges(os.path.join(source, "tokenize_util.cpp")),
    }
    os.makedirs(out, exist_ok=True)
    for name, data in files.items():
        with open(os.path.join(out, name + ".bin"), "wb") as f:
            f.write(data)
        print(f"{name}.bin {len(data)} bytes")


if __name__ == "__main__":
    main()
