"""CLIP byte-pair tokenizer (OpenAI vocabulary, bpe_simple_vocab_16e6.txt.gz as shipped by open_clip_torch)."""

import gzip, re


def byte_unicode():
    bs = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    cs = bs[:]
    n = 0
    for b in range(256):
        if b not in bs:
            bs.append(b)
            cs.append(256 + n)
            n += 1
    return dict(zip(bs, map(chr, cs)))


class Tok:
    def __init__(s, path):
        m = gzip.open(path).read().decode("utf8").split("\n")[1 : 49152 - 256 - 2 + 1]
        m = [tuple(x.split()) for x in m]
        s.b = byte_unicode()
        v = list(s.b.values())
        v = v + [x + "</w>" for x in v] + ["".join(x) for x in m] + ["<|startoftext|>", "<|endoftext|>"]
        s.enc = {x: i for i, x in enumerate(v)}
        s.rank = {x: i for i, x in enumerate(m)}
        s.cache = {}
        # ASCII form of CLIP's pattern, enough for the captions used here
        s.pat = re.compile(r"'s|'t|'re|'ve|'m|'ll|'d|[^\W\d_]+|\d|[^\s\w]+|_+", re.I)

    def bpe(s, w):
        if w in s.cache:
            return s.cache[w]
        t = [s.b[c] for c in w.encode("utf8")]
        t[-1] += "</w>"
        while len(t) > 1:
            i = min(range(len(t) - 1), key=lambda i: s.rank.get((t[i], t[i + 1]), 1e9))
            p = (t[i], t[i + 1])
            if p not in s.rank:
                break
            o = []
            j = 0
            while j < len(t):
                if j < len(t) - 1 and (t[j], t[j + 1]) == p:
                    o.append(t[j] + t[j + 1])
                    j += 2
                else:
                    o.append(t[j])
                    j += 1
            t = o
        s.cache[w] = r = [s.enc[x] for x in t]
        return r

    def __call__(s, text, n=77):
        ids = [i for w in s.pat.findall(" ".join(text.lower().split())) for i in s.bpe(w)][: n - 2]
        return [49406] + ids + [49407] * (n - 1 - len(ids))


if __name__ == "__main__":
    import sys

    t = Tok(sys.argv[1])
    print(len(t.enc), t("a photo of a cat, t-rex 4k")[:14])
