"""Writes networks.json.gz: toy networks with their outputs, computed by NumPy in double precision.

Written from the papers and the published layouts of the tensors, independently of the Rust code. The weights are not
stored: both sides draw them from the name of the tensor (see `draw`).
"""
import gzip, json
import numpy as np


def draw(name, shape):
    """Uniform values in -1 .. 1: FNV-1a of the name, then a linear congruential generator."""
    state = 0xCBF29CE484222325
    for byte in name.encode():
        state = ((state ^ byte) * 0x100000001B3) % 2**64
    out = np.empty(int(np.prod(shape)))
    for i in range(out.size):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        out[i] = np.float32((state >> 40) / 2.0**23 - 1.0)
    return out.reshape(shape)


class Weights:
    def __init__(self):
        self.shapes = {}

    def __call__(self, name, *shape):
        self.shapes[name] = list(shape)
        u = draw(name, shape)
        if len(shape) > 1:
            u = (u.astype(np.float32) * np.float32(np.sqrt(3.0 / np.prod(shape[1:])))).astype(np.float64)
        elif name.endswith("weight"):
            u = (1 + np.float32(0.2) * u.astype(np.float32)).astype(np.float64)
        else:
            u = (np.float32(0.1) * u.astype(np.float32)).astype(np.float64)
        return u


def gelu(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def quick(x):
    return x / (1 + np.exp(-1.702 * x))


def silu(x):
    return x / (1 + np.exp(-x))


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def linear(w, name, x, out, bias=True):
    y = x @ w(name + ".weight", out, x.shape[-1]).T
    return y + w(name + ".bias", out) if bias else y


def conv(w, name, x, out, k=3, stride=1, bias=True, point=False):
    """x [C, H, W], padded by half of the kernel; `point`: stored without the two axes of the kernel."""
    c, p = x.shape[0], k // 2
    shape = (out, c) if point else (out, c, k, k)
    kernel = w(name + ".weight", *shape).reshape(out, c, k, k)
    x = np.pad(x, ((0, 0), (p, p), (p, p)))
    h, wd = (x.shape[1] - k) // stride + 1, (x.shape[2] - k) // stride + 1
    y = np.zeros((out, h, wd))
    for i in range(k):
        for j in range(k):
            part = x[:, i : i + stride * h : stride, j : j + stride * wd : stride]
            y += np.tensordot(kernel[:, :, i, j], part, 1)
    return y + w(name + ".bias", out)[:, None, None] if bias else y


def layer_norm(w, name, x, eps=1e-5):
    y = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + eps)
    return y * w(name + ".weight", x.shape[-1]) + w(name + ".bias", x.shape[-1])


def rms_norm(w, name, x, eps=1e-6):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * w(name + ".weight", x.shape[-1])


def group_norm(w, name, x, groups=32, eps=1e-6):
    g = x.reshape(groups, -1)
    g = (g - g.mean(1, keepdims=True)) / np.sqrt(g.var(1, keepdims=True) + eps)
    c = x.shape[0]
    return g.reshape(x.shape) * w(name + ".weight", c)[:, None, None] + w(name + ".bias", c)[:, None, None]


def attend(q, k, v, heads, mask=0.0, scale=None):
    d = q.shape[-1] // heads
    scale = 1 / np.sqrt(d) if scale is None else scale
    q, k, v = (t.reshape(t.shape[0], heads, d).transpose(1, 0, 2) for t in (q, k, v))
    out = softmax(q @ k.transpose(0, 2, 1) * scale + mask) @ v
    return out.transpose(1, 0, 2).reshape(out.shape[1], -1)


# --- UNet -----------------------------------------------------------------------------------------------------------

def res(w, name, x, emb, out):
    h = conv(w, name + ".in_layers.2", silu(group_norm(w, name + ".in_layers.0", x)), out)
    h = h + linear(w, name + ".emb_layers.1", silu(emb), out)[:, None, None]
    h = conv(w, name + ".out_layers.3", silu(group_norm(w, name + ".out_layers.0", h)), out)
    return h + (x if x.shape[0] == out else conv(w, name + ".skip_connection", x, out, 1))


def transformer(w, name, x, context, depth, heads):
    c, height, width = x.shape
    t = group_norm(w, name + ".norm", x).reshape(c, -1).T
    t = linear(w, name + ".proj_in", t, c)
    for i in range(depth):
        n = f"{name}.transformer_blocks.{i}"
        for j, source in ((1, None), (2, context)):
            h = layer_norm(w, f"{n}.norm{j}", t)
            s = h if source is None else source
            q, k, v = (linear(w, f"{n}.attn{j}.to_{a}", b, c, False) for a, b in (("q", h), ("k", s), ("v", s)))
            t = t + linear(w, f"{n}.attn{j}.to_out.0", attend(q, k, v, heads), c)
        h = linear(w, n + ".ff.net.0.proj", layer_norm(w, n + ".norm3", t), 8 * c)
        t = t + linear(w, n + ".ff.net.2", h[:, : 4 * c] * gelu(h[:, 4 * c :]), c)
    return linear(w, name + ".proj_out", t, c).T.reshape(x.shape) + x


def sinusoids(t, width):
    angles = t * np.exp(-np.log(10000) * np.arange(width // 2) / (width // 2))
    return np.concatenate([np.cos(angles), np.sin(angles)])


def embed(w, name, x, out):
    return linear(w, name + ".2", silu(linear(w, name + ".0", x, out)), out)


def trunk(w, x, t, context, y, hint=None):
    """Two levels of 32 and 64 channels, one residual block each; attention at the second level only."""
    emb = embed(w, "time_embed", sinusoids(t, 32), 48) + embed(w, "label_emb.0", y, 48)
    h = conv(w, "input_blocks.0.0", x, 32)
    h = h if hint is None else h + hint
    hs = [h]
    hs.append(res(w, "input_blocks.1.0", hs[-1], emb, 32))
    hs.append(conv(w, "input_blocks.2.0.op", hs[-1], 32, stride=2))
    h = res(w, "input_blocks.3.0", hs[-1], emb, 64)
    hs.append(transformer(w, "input_blocks.3.1", h, context, 2, 4))
    h = res(w, "middle_block.0", hs[-1], emb, 64)
    h = transformer(w, "middle_block.1", h, context, 1, 4)
    return emb, hs, res(w, "middle_block.2", h, emb, 64)


def unet(w, x, t, context, y, control, strength):
    emb, hs, h = trunk(w, x, t, context, y)
    hs = [a + strength * b for a, b in zip(hs, control)]
    h = h + strength * control[-1]
    join = lambda h: np.concatenate([h, hs.pop()])
    h = transformer(w, "output_blocks.0.1", res(w, "output_blocks.0.0", join(h), emb, 64), context, 2, 4)
    h = transformer(w, "output_blocks.1.1", res(w, "output_blocks.1.0", join(h), emb, 64), context, 2, 4)
    h = conv(w, "output_blocks.1.2.conv", h.repeat(2, 1).repeat(2, 2), 64)
    h = res(w, "output_blocks.2.0", join(h), emb, 32)
    h = res(w, "output_blocks.3.0", join(h), emb, 32)
    return conv(w, "out.2", silu(group_norm(w, "out.0", h)), 4)


def control_net(w, x, t, context, y, picture):
    h = picture
    for i, (out, stride) in enumerate([(16, 1), (16, 1), (24, 2), (24, 1), (32, 2), (32, 1), (40, 2), (32, 1)]):
        h = conv(w, f"input_hint_block.{2 * i}", h if i == 0 else silu(h), out, stride=stride)
    _, hs, last = trunk(w, x, t, context, y, h)
    out = [conv(w, f"zero_convs.{i}.0", a, a.shape[0], 1) for i, a in enumerate(hs)]
    return out + [conv(w, "middle_block_out.0", last, last.shape[0], 1)]


# --- text and vision encoders ---------------------------------------------------------------------------------------

def clip_layer(w, n, x, heads, act, mask, joined):
    c = x.shape[-1]
    h = layer_norm(w, n + ".layer_norm1", x)
    if joined:
        q, k, v = np.split(linear(w, n + ".self_attn.in_proj", h, 3 * c), 3, -1)
    else:
        q, k, v = (linear(w, f"{n}.self_attn.{a}_proj", h, c) for a in "qkv")
    x = x + linear(w, n + ".self_attn.out_proj", attend(q, k, v, heads, mask), c)
    h = act(linear(w, n + ".mlp.fc1", layer_norm(w, n + ".layer_norm2", x), 3 * c))
    return x + linear(w, n + ".mlp.fc2", h, c)


def open_clip(w, ids, at):
    """Width 128 (two heads), three layers; gives the state before the last layer and the projected state at `at`."""
    n = len(ids)
    x = w("embeddings.token_embedding.weight", 40, 128)[ids] + w("embeddings.position_embedding.weight", 9, 128)[:n]
    mask = np.triu(np.full((n, n), -np.inf), 1)
    for i in range(3):
        hidden = x
        x = clip_layer(w, f"encoder.layers.{i}", x, 2, gelu, mask, True)
    pooled = layer_norm(w, "final_layer_norm", x)[at]
    return hidden, w("text_projection", 24, 128) @ pooled


def vision(w, pixels):
    """Width 32, four heads, two layers, 3 x 3 patches of 4 pixels; states of the first layer, projected class."""
    k = w("vision_model.embeddings.patch_embedding.weight", 32, 3, 4, 4).reshape(32, -1)
    rows = [k @ pixels[:, i : i + 4, j : j + 4].reshape(-1) for i in range(0, 12, 4) for j in range(0, 12, 4)]
    x = np.stack([w("vision_model.embeddings.class_embedding", 32)] + rows)
    x = x + w("vision_model.embeddings.position_embedding.weight", 10, 32)
    x = layer_norm(w, "vision_model.pre_layernorm", x)
    for i in range(2):
        hidden = x
        x = clip_layer(w, f"vision_model.encoder.layers.{i}", x, 4, quick, 0.0, False)
    pooled = layer_norm(w, "vision_model.post_layernorm", x)[:1]
    return hidden, linear(w, "visual_projection", pooled, 20, False)[0]


def t5(w, ids, mask, every):
    """Width 48, two heads of 64, two layers; `every`: biases in each layer (UMT5)."""
    n, bias = len(ids), None
    x = w("shared.weight", 30, 48)[ids]
    for i in range(2):
        b = f"encoder.block.{i}.layer"
        if every or i == 0:
            table = w(b + ".0.SelfAttention.relative_attention_bias.weight", 32, 2)
            bias = np.empty((2, n, n))
            for q in range(n):
                for k in range(n):
                    d = abs(k - q)
                    far = min(15, 8 + int(np.log(max(d, 1) / 8) / np.log(16) * 8)) if d >= 8 else d
                    bias[:, q, k] = table[far + (16 if k > q else 0)]
        h = rms_norm(w, b + ".0.layer_norm", x)
        q, k, v = (linear(w, f"{b}.0.SelfAttention.{a}", h, 128, False) for a in "qkv")
        h = attend(q, k, v, 2, bias + mask, 1.0)
        x = x + linear(w, b + ".0.SelfAttention.o", h, 48, False)
        h, d = rms_norm(w, b + ".1.layer_norm", x), b + ".1.DenseReluDense"
        h = gelu(linear(w, d + ".wi_0", h, 56, False)) * linear(w, d + ".wi_1", h, 56, False)
        x = x + linear(w, d + ".wo", h, 48, False)
    return rms_norm(w, "encoder.final_layer_norm", x)


# --- upscaler, tiny autoencoder of 32 channels ----------------------------------------------------------------------

def esrgan(w, x):
    """Eight features, growth of four, two blocks, scale 2."""
    leaky = lambda x: np.where(x > 0, x, 0.2 * x)
    first = h = conv(w, "conv_first", x, 8)
    for i in range(2):
        y = h
        for j in (1, 2, 3):
            n, seen = f"body.{i}.rdb{j}", y
            for k in (1, 2, 3, 4):
                seen = np.concatenate([seen, leaky(conv(w, f"{n}.conv{k}", seen, 4))])
            y = y + 0.2 * conv(w, n + ".conv5", seen, 8)
        h = h + 0.2 * y
    h = first + conv(w, "conv_body", h, 8)
    h = leaky(conv(w, "conv_up1", h.repeat(2, 1).repeat(2, 2), 8))
    return conv(w, "conv_last", leaky(conv(w, "conv_hr", h, 8)), 3)


def tae_block(w, n, x, pool):
    relu = lambda x: np.maximum(x, 0)
    c = x.shape[0]
    if pool:
        h = relu(group_norm(w, n + ".pool.1", conv(w, n + ".pool.0", x, 4 * c, 1, bias=False), 4, 1e-5))
        x = x + conv(w, n + ".pool.3", h, c, 1, bias=False)
    h = relu(conv(w, n + ".conv.0", x, c))
    h = relu(conv(w, n + ".conv.2", h, c))
    return relu(conv(w, n + ".conv.4", h, c) + x)


def tae(w, z):
    """A decoder of two enlargements with a packed latent [4 z, h, w], channel = c * 4 + row * 2 + column."""
    c, h, wd = z.shape[0] // 4, *z.shape[1:]
    z = z.reshape(c, 2, 2, h, wd).transpose(0, 3, 1, 4, 2).reshape(c, 2 * h, 2 * wd)
    x = np.maximum(conv(w, "decoder.layers.0", 3 * np.tanh(z / 3), 8), 0)
    x = tae_block(w, "decoder.layers.2", x, True)
    x = conv(w, "decoder.layers.4", x.repeat(2, 1).repeat(2, 2), 8, bias=False)
    x = tae_block(w, "decoder.layers.5", x, False)
    x = conv(w, "decoder.layers.7", x.repeat(2, 1).repeat(2, 2), 8, bias=False)
    return conv(w, "decoder.layers.8", x, 3)


def main():
    cases = {}

    def case(name, run):
        w = Weights()
        outputs = run(w)
        cases[name] = {
            "weights": w.shapes,
            "outputs": [[float(f"{v:.7g}") for v in np.asarray(o).reshape(-1)] for o in outputs],
        }

    x, y = draw("x", (4, 6, 8)), draw("y", (24,))
    context, picture = draw("context", (5, 20)), draw("picture", (3, 48, 64))
    shapes = [(32, 6, 8), (32, 6, 8), (32, 3, 4), (64, 3, 4), (64, 3, 4)]
    control = [draw(f"control.{i}", s) for i, s in enumerate(shapes)]
    case("unet", lambda w: [unet(w, x, 321.5, context, y, control, 0.7)])
    case("control_net", lambda w: control_net(w, x, 321.5, context, y, picture))
    ids = [3, 39, 0, 17, 17, 8, 21]
    case("open_clip", lambda w: open_clip(w, ids, 4))
    case("vision", lambda w: vision(w, draw("pixels", (3, 12, 12))))
    long = [(7 * i) % 30 for i in range(40)]
    mask = np.where(np.arange(40) < 33, 0.0, -np.inf)
    case("t5", lambda w: [t5(w, long, mask, False)])
    case("umt5", lambda w: [t5(w, long, mask, True)])
    case("esrgan", lambda w: [esrgan(w, draw("pixels", (3, 5, 7)))])
    case("tae", lambda w: [tae(w, draw("z", (12, 2, 3)))])
    text = json.dumps(cases, separators=(",", ":"))
    with open("networks.json.gz", "wb") as file:
        file.write(gzip.compress(text.encode(), 9, mtime=0))


main()
