"""usage: python widen.py emoji-sd.safetensors emoji-sd-wide.ckpt
Writes the same model with a text encoder of the full CLIP ViT-L/14 size (width 768, 12 heads, 12 layers), for programs that
know no other size.  The function is unchanged: every hidden vector is repeated 12 times (so the layer norms see the same mean
and variance), one attention head of 64 does the work and the others are zero, and the layers that are not needed add zero.
The VAE encoder is brought
to width 128 in the same way: every channel is repeated four times inside its group.  Zeros of one size share a storage and the zip entries are deflated, so the file stays small; torch.load reads it like any checkpoint.
"""

import sys, os, re, zipfile, torch
from safetensors.torch import load_file


def widen(w):
    P = "cond_stage_model.transformer.text_model."
    o = {}
    zeros = {}

    def z(*s):  # one storage for each size
        n = int(torch.tensor(s).prod())
        zeros.setdefault(n, torch.zeros(n, dtype=torch.float16))
        return zeros[n].view(*s)

    d = w[P + "final_layer_norm.weight"].shape[0]
    T = 768 // d
    ff = w[P + "encoder.layers.0.mlp.fc1.weight"].shape[0]
    n = 1 + max(
        int(m.group(1)) for k in w for m in [re.search(r"text_model\.encoder\.layers\.(\d+)\.", k)] if m
    )
    assert d == 64, "one head of 64"
    rep = lambda v: v.repeat(T) if v.dim() == 1 else v.repeat(1, T)

    def pad(m, r, c):
        x = torch.zeros(r, c, dtype=m.dtype)
        x[: m.shape[0], : m.shape[1]] = m
        return x

    def padv(v, r):
        x = torch.zeros(r, dtype=v.dtype)
        x[: len(v)] = v
        return x

    E = "first_stage_model.encoder."
    R = 128 // w[E + "conv_in.weight"].shape[0]
    for k, v in w.items():
        if k.startswith(E):  # channel c -> channels R c ... R c + R - 1
            if k == E + "conv_in.weight":
                o[k] = v.repeat_interleave(R, 0)
            elif v.dim() == 1:
                o[k] = v if "conv_out" in k else v.repeat_interleave(R)
            else:
                x = torch.zeros(v.shape[0], v.shape[1] * R, *v.shape[2:], dtype=v.dtype)
                x[:, ::R] = v  # reads the first copy
                o[k] = x if "conv_out" in k else x.repeat_interleave(R, 0)
            if (
                ".attn_1.q." in k or ".attn_1.k." in k
            ):  # one copy only, and sqrt(R) for the changed 1/sqrt(width)
                x = torch.zeros_like(o[k])
                x[::R] = o[k][::R] * (R**0.5 if ".attn_1.q." in k else 1)
                o[k] = x
        elif not k.startswith(P):
            o[k] = pad(v, v.shape[0], 768) if re.search(r"attn2\.to_[kv]\.weight$", k) else v.clone()
    for k in (
        "embeddings.token_embedding.weight",
        "embeddings.position_embedding.weight",
        "final_layer_norm.weight",
        "final_layer_norm.bias",
    ):
        o[P + k] = rep(w[P + k])
    for l in range(12):
        q = P + "encoder.layers.%d." % l
        for ln in ("layer_norm1", "layer_norm2"):
            o[q + ln + ".weight"] = (
                rep(w[q + ln + ".weight"]) if l < n else torch.ones(768, dtype=torch.float16)
            )
            o[q + ln + ".bias"] = rep(w[q + ln + ".bias"]) if l < n else z(768)
        for a in ("q_proj", "k_proj", "v_proj"):
            a = q + "self_attn." + a
            o[a + ".weight"] = pad(w[a + ".weight"], 768, 768) if l < n else z(768, 768)
            o[a + ".bias"] = padv(w[a + ".bias"], 768) if l < n else z(768)
        a = q + "self_attn.out_proj"
        o[a + ".weight"] = pad(w[a + ".weight"].repeat(T, 1), 768, 768) if l < n else z(768, 768)
        o[a + ".bias"] = w[a + ".bias"].repeat(T) if l < n else z(768)
        a = q + "mlp.fc1"
        o[a + ".weight"] = pad(w[a + ".weight"], 3072, 768) if l < n else z(3072, 768)
        o[a + ".bias"] = padv(w[a + ".bias"], 3072) if l < n else z(3072)
        a = q + "mlp.fc2"
        o[a + ".weight"] = pad(w[a + ".weight"].repeat(T, 1), 768, 3072) if l < n else z(768, 3072)
        o[a + ".bias"] = w[a + ".bias"].repeat(T) if l < n else z(768)
    return o


if __name__ == "__main__":
    w = load_file(sys.argv[1])
    o = widen(w)
    torch.save({"state_dict": o}, sys.argv[2] + ".tmp")
    with zipfile.ZipFile(sys.argv[2] + ".tmp") as a, zipfile.ZipFile(
        sys.argv[2], "w", zipfile.ZIP_DEFLATED, compresslevel=6
    ) as b:
        for i in a.infolist():
            b.writestr(i.filename, a.read(i.filename))
    os.remove(sys.argv[2] + ".tmp")
    t = torch.load(sys.argv[2], weights_only=True)["state_dict"]
    assert all((t[k] == o[k]).all() for k in o)
    print(len(o), "tensors", os.path.getsize(sys.argv[2]) / 1e6, "MB")
