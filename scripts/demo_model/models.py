"""Stable Diffusion 1.x networks (plain PyTorch) with the parameter names of the single-file
LDM checkpoint, but with free widths."""

import math, torch, torch.nn as nn, torch.nn.functional as F


def gn(m, x, act=True):
    x = m(x)
    return F.silu(x) if act else x


def GN(c, eps):
    return nn.GroupNorm(32, c, eps=eps)


def conv(i, o, k=3, s=1):
    return nn.Conv2d(i, o, k, s, k // 2)


# ------------------------------------------------------------------ VAE (first_stage_model)
class VRes(nn.Module):
    def __init__(s, i, o):
        super().__init__()
        s.norm1 = GN(i, 1e-6)
        s.conv1 = conv(i, o)
        s.norm2 = GN(o, 1e-6)
        s.conv2 = conv(o, o)
        if i != o:
            s.nin_shortcut = conv(i, o, 1)

    def forward(s, x):
        h = s.conv1(gn(s.norm1, x))
        h = s.conv2(gn(s.norm2, h))
        return (s.nin_shortcut(x) if hasattr(s, "nin_shortcut") else x) + h


class VAttn(nn.Module):
    def __init__(s, c):
        super().__init__()
        s.norm = GN(c, 1e-6)
        s.q = conv(c, c, 1)
        s.k = conv(c, c, 1)
        s.v = conv(c, c, 1)
        s.proj_out = conv(c, c, 1)

    def forward(s, x):
        b, c, h, w = x.shape
        y = gn(s.norm, x, False)
        q, k, v = [m(y).flatten(2).transpose(1, 2).unsqueeze(1) for m in (s.q, s.k, s.v)]
        y = F.scaled_dot_product_attention(q, k, v).squeeze(1).transpose(1, 2).reshape(b, c, h, w)
        return x + s.proj_out(y)


class VDown(nn.Module):
    def __init__(s, c):
        super().__init__()
        s.conv = nn.Conv2d(c, c, 3, 2, 0)

    def forward(s, x):
        return s.conv(F.pad(x, (0, 1, 0, 1)))


class VUp(nn.Module):
    def __init__(s, c):
        super().__init__()
        s.conv = conv(c, c)

    def forward(s, x):
        return s.conv(F.interpolate(x, scale_factor=2.0, mode="nearest"))


class Bag(nn.Module):
    pass


def vmid(c):
    m = Bag()
    m.block_1 = VRes(c, c)
    m.attn_1 = VAttn(c)
    m.block_2 = VRes(c, c)
    return m


class Encoder(nn.Module):
    def __init__(s, ch=32, mult=(1, 2, 4, 4), nres=2, z=4):
        super().__init__()
        s.conv_in = conv(3, ch)
        s.down = nn.ModuleList()
        c = ch
        for l, m in enumerate(mult):
            d = Bag()
            d.block = nn.ModuleList()
            for _ in range(nres):
                d.block.append(VRes(c, ch * m))
                c = ch * m
            if l < len(mult) - 1:
                d.downsample = VDown(c)
            s.down.append(d)
        s.mid = vmid(c)
        s.norm_out = GN(c, 1e-6)
        s.conv_out = conv(c, 2 * z)

    def forward(s, x):
        h = s.conv_in(x)
        for d in s.down:
            for b in d.block:
                h = b(h)
            if hasattr(d, "downsample"):
                h = d.downsample(h)
        h = s.mid.block_2(s.mid.attn_1(s.mid.block_1(h)))
        return s.conv_out(gn(s.norm_out, h))


class Decoder(nn.Module):
    def __init__(s, ch=32, mult=(1, 2, 4, 4), nres=2, z=4):
        super().__init__()
        c = ch * mult[-1]
        s.conv_in = conv(z, c)
        s.mid = vmid(c)
        ups = []
        for l in reversed(range(len(mult))):
            u = Bag()
            u.block = nn.ModuleList()
            for _ in range(nres + 1):
                u.block.append(VRes(c, ch * mult[l]))
                c = ch * mult[l]
            if l > 0:
                u.upsample = VUp(c)
            ups.insert(0, u)
        s.up = nn.ModuleList(ups)
        s.norm_out = GN(c, 1e-6)
        s.conv_out = conv(c, 3)

    def forward(s, z):
        h = s.conv_in(z)
        h = s.mid.block_2(s.mid.attn_1(s.mid.block_1(h)))
        for u in reversed(s.up):
            for b in u.block:
                h = b(h)
            if hasattr(u, "upsample"):
                h = u.upsample(h)
        return s.conv_out(gn(s.norm_out, h))


class VAE(nn.Module):
    def __init__(s, ch=32):
        super().__init__()
        s.encoder = Encoder(ch)
        s.decoder = Decoder(ch)
        s.quant_conv = nn.Conv2d(8, 8, 1)
        s.post_quant_conv = nn.Conv2d(4, 4, 1)

    def moments(s, x):
        return s.quant_conv(s.encoder(x)).chunk(2, 1)

    def decode(s, z):
        return s.decoder(s.post_quant_conv(z))


# ------------------------------------------------------------------ CLIP text encoder
class Attn(nn.Module):
    def __init__(s, d, heads):
        super().__init__()
        s.h = heads
        s.k_proj = nn.Linear(d, d)
        s.v_proj = nn.Linear(d, d)
        s.q_proj = nn.Linear(d, d)
        s.out_proj = nn.Linear(d, d)

    def forward(s, x):
        b, n, d = x.shape
        q, k, v = [m(x).view(b, n, s.h, -1).transpose(1, 2) for m in (s.q_proj, s.k_proj, s.v_proj)]
        return s.out_proj(
            F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, n, d)
        )


class MLP(nn.Module):
    def __init__(s, d):
        super().__init__()
        s.fc1 = nn.Linear(d, 4 * d)
        s.fc2 = nn.Linear(4 * d, d)

    def forward(s, x):
        x = s.fc1(x)
        return s.fc2(x * torch.sigmoid(1.702 * x))


class CLIPLayer(nn.Module):
    def __init__(s, d, heads):
        super().__init__()
        s.self_attn = Attn(d, heads)
        s.layer_norm1 = nn.LayerNorm(d)
        s.mlp = MLP(d)
        s.layer_norm2 = nn.LayerNorm(d)

    def forward(s, x):
        x = x + s.self_attn(s.layer_norm1(x))
        return x + s.mlp(s.layer_norm2(x))


class TextModel(nn.Module):
    def __init__(s, d=128, layers=3, heads=2, vocab=49408, n=77):
        super().__init__()
        s.embeddings = Bag()
        s.embeddings.token_embedding = nn.Embedding(vocab, d)
        s.embeddings.position_embedding = nn.Embedding(n, d)
        s.encoder = Bag()
        s.encoder.layers = nn.ModuleList(CLIPLayer(d, heads) for _ in range(layers))
        s.final_layer_norm = nn.LayerNorm(d)
        nn.init.normal_(s.embeddings.token_embedding.weight, std=0.02)
        nn.init.normal_(s.embeddings.position_embedding.weight, std=0.01)

    def forward(s, ids):
        x = s.embeddings.token_embedding(ids) + s.embeddings.position_embedding.weight
        for l in s.encoder.layers:
            x = l(x)
        return s.final_layer_norm(x)


# ------------------------------------------------------------------ UNet (model.diffusion_model)
class TEmb(nn.Module):
    pass


class URes(nn.Module):
    def __init__(s, i, o, e):
        super().__init__()
        s.in_layers = nn.Sequential(GN(i, 1e-5), nn.SiLU(), conv(i, o))
        s.emb_layers = nn.Sequential(nn.SiLU(), nn.Linear(e, o))
        s.out_layers = nn.Sequential(GN(o, 1e-5), nn.SiLU(), nn.Dropout(0.0), conv(o, o))
        nn.init.zeros_(s.out_layers[3].weight)
        nn.init.zeros_(s.out_layers[3].bias)
        s.skip_connection = conv(i, o, 1) if i != o else nn.Identity()

    def forward(s, x, emb):
        h = s.in_layers[2](gn(s.in_layers[0], x)) + s.emb_layers(emb)[:, :, None, None]
        return s.skip_connection(x) + s.out_layers[3](gn(s.out_layers[0], h))


class CrossAttn(nn.Module):
    def __init__(s, d, ctx, heads):
        super().__init__()
        s.h = heads
        s.to_q = nn.Linear(d, d, bias=False)
        s.to_k = nn.Linear(ctx, d, bias=False)
        s.to_v = nn.Linear(ctx, d, bias=False)
        s.to_out = nn.Sequential(nn.Linear(d, d), nn.Dropout(0.0))

    def forward(s, x, c):
        b, n, d = x.shape
        q, k, v = s.to_q(x), s.to_k(c), s.to_v(c)
        q, k, v = [t.view(b, -1, s.h, d // s.h).transpose(1, 2) for t in (q, k, v)]
        return s.to_out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, n, d))


class GEGLU(nn.Module):
    def __init__(s, d, o):
        super().__init__()
        s.proj = nn.Linear(d, 2 * o)

    def forward(s, x):
        a, g = s.proj(x).chunk(2, -1)
        return a * F.gelu(g)


class FF(nn.Module):
    def __init__(s, d):
        super().__init__()
        s.net = nn.Sequential(GEGLU(d, 4 * d), nn.Dropout(0.0), nn.Linear(4 * d, d))

    def forward(s, x):
        return s.net(x)


class TBlock(nn.Module):
    def __init__(s, d, ctx, heads):
        super().__init__()
        s.attn1 = CrossAttn(d, d, heads)
        s.ff = FF(d)
        s.attn2 = CrossAttn(d, ctx, heads)
        s.norm1 = nn.LayerNorm(d)
        s.norm2 = nn.LayerNorm(d)
        s.norm3 = nn.LayerNorm(d)

    def forward(s, x, c):
        y = s.norm1(x)
        x = x + s.attn1(y, y)
        x = x + s.attn2(s.norm2(x), c)
        return x + s.ff(s.norm3(x))


class ST(nn.Module):
    def __init__(s, d, ctx, heads):
        super().__init__()
        s.norm = GN(d, 1e-6)
        s.proj_in = conv(d, d, 1)
        s.transformer_blocks = nn.ModuleList([TBlock(d, ctx, heads)])
        s.proj_out = conv(d, d, 1)
        nn.init.zeros_(s.proj_out.weight)
        nn.init.zeros_(s.proj_out.bias)

    def forward(s, x, c):
        b, d, h, w = x.shape
        y = s.proj_in(gn(s.norm, x, False)).permute(0, 2, 3, 1).reshape(b, h * w, d)
        y = s.transformer_blocks[0](y, c)
        return x + s.proj_out(y.view(b, h, w, d).permute(0, 3, 1, 2))


class UDown(nn.Module):
    def __init__(s, c):
        super().__init__()
        s.op = conv(c, c, 3, 2)

    def forward(s, x):
        return s.op(x)


class UUp(nn.Module):
    def __init__(s, c):
        super().__init__()
        s.conv = conv(c, c)

    def forward(s, x):
        return s.conv(F.interpolate(x, scale_factor=2.0, mode="nearest"))


def run(mods, h, emb, c):
    for m in mods:
        h = m(h, emb) if isinstance(m, URes) else m(h, c) if isinstance(m, ST) else m(h)
    return h


class UNet(nn.Module):
    def __init__(s, mc=32, ctx=128, mult=(1, 2, 4, 4), nres=2, heads=8):
        super().__init__()
        s.mc = mc
        e = 4 * mc
        L = nn.ModuleList
        s.time_embed = nn.Sequential(nn.Linear(mc, e), nn.SiLU(), nn.Linear(e, e))
        s.input_blocks = L([L([conv(4, mc)])])
        skips = [mc]
        c = mc
        for l, m in enumerate(mult):
            for _ in range(nres):
                b = [URes(c, mc * m, e)]
                c = mc * m
                if l < 3:
                    b.append(ST(c, ctx, heads))
                s.input_blocks.append(L(b))
                skips.append(c)
            if l < len(mult) - 1:
                s.input_blocks.append(L([UDown(c)]))
                skips.append(c)
        s.middle_block = L([URes(c, c, e), ST(c, ctx, heads), URes(c, c, e)])
        s.output_blocks = L()
        for l, m in reversed(list(enumerate(mult))):
            for i in range(nres + 1):
                b = [URes(c + skips.pop(), mc * m, e)]
                c = mc * m
                if l < 3:
                    b.append(ST(c, ctx, heads))
                if l and i == nres:
                    b.append(UUp(c))
                s.output_blocks.append(L(b))
        s.out = nn.Sequential(GN(c, 1e-5), nn.SiLU(), conv(c, 4))
        nn.init.zeros_(s.out[2].weight)
        nn.init.zeros_(s.out[2].bias)

    def forward(s, x, t, c):
        half = s.mc // 2
        f = torch.exp(-math.log(10000) * torch.arange(half, dtype=torch.float32) / half)
        a = t.float()[:, None] * f
        emb = s.time_embed(torch.cat([a.cos(), a.sin()], 1).to(s.time_embed[0].weight.dtype))
        h, hs = x, []
        for m in s.input_blocks:
            h = run(m, h, emb, c)
            hs.append(h)
        h = run(s.middle_block, h, emb, c)
        for m in s.output_blocks:
            h = run(m, torch.cat([h, hs.pop()], 1), emb, c)
        return s.out[2](gn(s.out[0], h))


@torch.no_grad()
def unet_init(u):
    """start as eps = normalised x_t (silu(a)-silu(-a)=a), and keep 8 of the 32 last channels free of noise so that they can
    carry the mean of each latent channel through the one-channel-per-group norms"""
    w = u.input_blocks[0][0].weight
    w[:8] *= 0.1
    u.input_blocks[0][0].bias[:8] = 0
    for j in range(4):
        w[j, j, 1, 1] += 1
        w[j + 4, j, 1, 1] -= 1
    a = u.output_blocks[9][0].skip_connection
    a.weight[8:16, 64:] *= 0.05  # level 1 features only
    for k in (10, 11):
        q = u.output_blocks[k][0].skip_connection
        q.weight[8:16] *= 0.05
        for j in range(8, 16):
            q.weight[j, j] += 1
    q.weight[:8] *= 0.1
    for j in range(8):
        q.weight[j, 32 + j] += 1  # the skip from input_blocks.0
    for j in range(4):
        u.out[2].weight[j, j, 1, 1] = 1
        u.out[2].weight[j, j + 4, 1, 1] = -1
    for l in (9, 10, 11):
        nn.init.normal_(u.output_blocks[l][0].out_layers[3].weight, std=0.01)
    u.out[0].bias[8:16].normal_(0, 0.5)
    nn.init.normal_(u.out[2].weight[:, 8:], std=0.01)


@torch.no_grad()
def easy_init(vae):
    """start as a nearly linear pyramid (identity residual blocks, average-pool down, nearest up): trains far faster"""
    for m in vae.modules():
        if isinstance(m, VRes):
            m.conv2.weight *= 0.1
            if hasattr(m, "nin_shortcut"):
                o, i = m.nin_shortcut.weight.shape[:2]
                w = torch.zeros(o, i)
                for j in range(max(o, i)):
                    w[j % o, j % i] = 1 if o >= i else o / i
                m.nin_shortcut.weight.copy_(w[:, :, None, None] + 0.03 * torch.randn(o, i, 1, 1) / i**0.5)
                m.nin_shortcut.bias.zero_()
        if isinstance(m, VAttn):
            m.proj_out.weight *= 0.1
        if isinstance(m, (VDown, VUp)):
            w = m.conv.weight
            w *= 0.3
            e = torch.eye(w.shape[0])
            if isinstance(m, VDown):
                w[:, :, :2, :2] += e[:, :, None, None] / 4
            else:
                w[:, :, 1, 1] += e
    for n in (vae.encoder.norm_out, vae.decoder.norm_out):
        n.bias.normal_(0, 0.7)
    # a constant before the zero-padded conv_in gives every decoder channel a fixed border pattern: with one channel per
    # GroupNorm group (width 32) a flat colour is lost unless it can be compared with something known
    vae.post_quant_conv.weight.copy_(torch.eye(4)[:, :, None, None] * 0.6)
    vae.post_quant_conv.bias.fill_(2.0)
    vae.decoder.conv_in.weight *= 1.5
    vae.quant_conv.weight[4:] *= 0.1
    vae.quant_conv.bias[4:] = -6.0  # little posterior noise at the start


@torch.no_grad()
def encoder_init(v, A, b, xs, S):
    """Linear path: RGB -> 2x2 pixels -> 16 partial sums of 4x4 pixels -> the 4 components, each next to its negative (silu(a)-silu(-a)=a)
    and to a strong fixed border pattern in the same norm group, so that the last norm divides by a constant.
    """
    e = v.encoder
    A8 = torch.from_numpy(A).view(4, 8, 8, 3)
    for m in e.modules():
        if isinstance(m, VRes):
            m.conv2.weight *= 0.1
            m.conv2.bias.zero_()
            m.conv2.weight[:16] = 0
        if isinstance(m, VAttn):
            m.proj_out.weight *= 0.1
            m.proj_out.weight[:16] = 0
            m.proj_out.bias[:16] = 0
    e.conv_in.weight[:3] = 0
    e.conv_in.bias.zero_()
    for c in range(3):
        e.conv_in.weight[c, c, 1, 1] = 1
    for l, n in ((1, 12), (2, 16)):
        q = e.down[l].block[0].nin_shortcut
        q.weight[:n] = 0
        q.bias[:n] = 0
        for j in range(n):
            q.weight[j, j] = 1
    d0, d1, d2 = [e.down[l].downsample.conv for l in range(3)]
    for d in (d0, d1, d2):
        d.weight[:16] = 0
        d.bias[:16] = 0
        d.weight *= 0.5
    for c in range(3):
        for y in range(2):
            for x in range(2):
                d0.weight[c * 4 + y * 2 + x, c, y, x] = 1
    for k in range(4):
        for Y in range(2):
            for X in range(2):
                for c in range(3):
                    for sy in range(2):
                        for sx in range(2):
                            d1.weight[k * 4 + Y * 2 + X, c * 4 + sy * 2 + sx, :2, :2] = A8[
                                k, 4 * Y + sy : 4 * Y + 4 : 2, 4 * X + sx : 4 * X + 4 : 2, c
                            ]
                d2.weight[4 * k, k * 4 + Y * 2 + X, Y, X] = 1
                d2.weight[4 * k + 1, k * 4 + Y * 2 + X, Y, X] = -1
    p = e.down[3].block[0]
    p.norm1.weight[127] = 0
    p.norm1.bias[127] = 1
    p.conv1.weight[124:] = 0
    p.conv1.bias[124:] = 0
    p.conv1.weight[127, 127] = 1
    for k in range(4):
        p.conv2.weight[4 * k + 2, 127, 1, 1] = 20
    e.conv_out.weight *= 0.02
    e.conv_out.weight[:, :16] = 0
    e.conv_out.bias.zero_()
    h = {}
    hook = e.norm_out.register_forward_hook(lambda m, i, o: h.update(x=i[0]))
    e(xs)
    hook.remove()
    g = h["x"].reshape(len(xs), 32, -1)
    mu, sd = g.mean(2).mean(0), g.var(2, unbiased=False).mean(0).sqrt()
    for k in range(4):
        e.norm_out.weight[4 * k : 4 * k + 2] = sd[k]
        e.norm_out.bias[4 * k : 4 * k + 2] = mu[k]
        e.conv_out.weight[k, 4 * k, 1, 1] = 1
        e.conv_out.weight[k, 4 * k + 1, 1, 1] = -1
        e.conv_out.bias[k] = float(b[k])
    v.quant_conv.weight.zero_()
    v.quant_conv.bias.zero_()
    v.quant_conv.weight[:4, :4, 0, 0] = torch.eye(4) / S
    v.quant_conv.bias[4:] = -9.0
