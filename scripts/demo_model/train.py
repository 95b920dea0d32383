"""Trains the demo model from random values and writes one LDM checkpoint in F16.

    python train.py --minutes 150 --font NotoColorEmoji.ttf --bpe bpe_simple_vocab_16e6.txt.gz --out emoji-sd.safetensors

The font comes from the Debian package fonts-noto-color-emoji, the vocabulary from the PyPI package open_clip_torch.  Two processes
run side by side: one trains the text encoder and the UNet, the other the decoder; both work on latents that are fixed
beforehand (data.Latents).  At the end the decoder is trained a little on latents that the UNet made."""

import argparse, copy, os, random, time
import numpy as np, torch, torch.nn.functional as F, torch.multiprocessing as mp
from safetensors.torch import save_file
import models
from clip_bpe import Tok
from data import BG, ON, SUFFIX, TEMPLATES, Emoji, Latents, caption

S = 0.18215
ABAR = torch.cumprod(1 - torch.linspace(0.00085**0.5, 0.012**0.5, 1000, dtype=torch.float64) ** 2, 0)
SA, SB = ABAR.sqrt().float().view(-1, 1, 1, 1), (1 - ABAR).sqrt().float().view(-1, 1, 1, 1)
SNR = (ABAR / (1 - ABAR)).float()
WEIGHT = ((SNR + 1).clamp(max=5.0) / SNR).clamp(
    max=15.0
)  # the few decisive noisy steps would else be learned too slowly
WEIGHT = WEIGHT / WEIGHT.mean()


class Words:
    """CLIP's tokens, but a table only of those that captions can contain; all others share row 0."""

    def __init__(self, bpe, em):
        self.tok, seen = Tok(bpe), set()
        texts = (
            [t.replace("{}", " ") for t in TEMPLATES + SUFFIX + ON]
            + BG
            + ["an"]
            + [n for i in em.items for n in i[1]]
        )
        for t in texts:
            seen.update(self.tok(t))
        self.vocab = sorted(seen)
        self.row = {k: i + 1 for i, k in enumerate(self.vocab)}

    def __call__(self, text, r=None):
        ids = [self.row.get(i, 0) for i in self.tok(text)]
        if r and r.random() < 0.06:  # a few unknown words here and there
            bos, eos = self.row[49406], self.row[49407]
            ids = ids[1 : ids.index(eos)]
            for _ in range(r.choice((1, 1, 2, 3))):
                ids.insert(r.randrange(len(ids) + 1), 0)
            ids = [bos] + ids[:75]
            ids += [eos] * (77 - len(ids))
        return ids


class Net(torch.nn.Module):
    def __init__(self, words):
        super().__init__()
        self.unet, self.text = models.UNet(32, 64), models.TextModel(64, 3, 1, vocab=len(words.vocab) + 1)


def setup(a):
    torch.set_num_threads(a.threads)
    em = Emoji(a.font, a.objects)
    return em, Latents(em), Words(a.bpe, em), random.Random(time.time_ns())


def schedule(opt, lr, n, done, warm=50, final=0.02):
    for g in opt.param_groups:
        g["lr"] = lr * min(1, (n + 1) / warm) * max(final, 0.5 * (1 + np.cos(np.pi * min(1, done))))


def average(ema, live, n, decay):
    with torch.no_grad():
        torch._foreach_lerp_(
            list(ema.parameters()), list(live.parameters()), 1 - min(decay, (n + 1) / (n + 20))
        )


def log(what, n, t0, acc):
    print(
        "%s step %d  %.1f min  %s"
        % (what, n, (time.time() - t0) / 60, " ".join("%.4f" % v for v in np.mean(acc, 0))),
        flush=True,
    )
    acc.clear()


def train_text(a, em, lat, words, r, text, minutes):
    """Warm-up: a linear head predicts the picture's latents from the hidden state at the end token."""
    head = torch.nn.Linear(64, 1024)
    torch.nn.init.zeros_(head.weight)
    with torch.no_grad():
        text.embeddings.token_embedding.weight.mul_(5.0)
    opt = torch.optim.AdamW(
        list(text.parameters()) + list(head.parameters()), lr=1e-3, betas=(0.9, 0.99), weight_decay=0.0
    )
    t0, n, acc, eos = time.time(), 0, [], words.row[49407]
    while (done := (time.time() - t0) / (60 * minutes)) < 1:
        schedule(opt, 1e-3, n, done)
        ss = [em.choose(r) for _ in range(32)]
        z = torch.from_numpy(lat(np.stack([em.picture(i, c, p) for i, _, c, p in ss]))).flatten(1)
        ids = torch.tensor([words(caption(em.items[i][1], b, r), r) for i, b, _, _ in ss])
        h = text(ids)[torch.arange(32), (ids == eos).float().argmax(1)]
        loss = (head(h) - z).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        n += 1
        acc.append((loss.item(),))
        if n % 100 == 0:
            log("text", n, t0, acc)


def train_unet(a, minutes):
    """eps prediction.  A random constant is added to each channel of the latents: their mean stays free, so that the start
    noise need not have the right one; the decoder ignores it and takes the white frame as its reference."""
    em, lat, words, r = setup(a)
    torch.manual_seed(0)
    m = Net(words)
    models.unet_init(m.unet)
    train_text(a, em, lat, words, r, m.text, 0.06 * minutes)
    m.unet.to(memory_format=torch.channels_last)
    ema = copy.deepcopy(m)
    opt = torch.optim.AdamW(
        [
            {"params": m.unet.parameters(), "weight_decay": 1e-3},
            {"params": m.text.parameters(), "weight_decay": 0.0},
        ],
        lr=1e-3,
        betas=(0.9, 0.99),
    )
    t0, n, acc, B = time.time(), 0, [], 16
    while (done := (time.time() - t0) / (0.94 * 60 * minutes)) < 1:
        schedule(opt, 1e-3, n, done, 100)
        ss = [em.choose(r) for _ in range(B)]
        x0 = torch.from_numpy(lat(np.stack([em.picture(i, c, p) for i, _, c, p in ss]))) + 0.8 * torch.randn(
            B, 4, 1, 1
        )
        ids = torch.tensor(
            [words("" if r.random() < 0.1 else caption(em.items[i][1], b, r), r) for i, b, _, _ in ss]
        )
        t = (
            ((torch.arange(B) + torch.rand(B)) * (1000 / B)).long().clamp(max=999)
        )  # one step of each part of the range
        e = torch.randn_like(x0)
        x = (SA[t] * x0 + SB[t] * e).contiguous(memory_format=torch.channels_last)
        with torch.autocast("cpu", torch.bfloat16):
            y = m.unet(x, t, m.text(ids))
        l = (y.float() - e).pow(2).mean((1, 2, 3))
        opt.zero_grad()
        (l * WEIGHT[t]).mean().backward()
        torch.nn.utils.clip_grad_norm_(m.parameters(), 1.0)
        opt.step()
        n += 1
        average(ema, m, n, 0.9985)
        acc.append(((l * WEIGHT[t]).mean().item(), l.mean().item()))
        if n % 50 == 0:
            log("unet", n, t0, acc)
    torch.save(ema.state_dict(), a.out + ".net")


def vae_batch(pictures):
    return torch.from_numpy(np.stack(pictures)).permute(0, 3, 1, 2).float().div(127.5).sub(1)


def decoder_steps(what, m, ema, batch, lr, minutes):
    """batch() -> latents (deviation 1), pictures"""
    ps = list(m.decoder.parameters()) + list(m.post_quant_conv.parameters())
    opt = torch.optim.AdamW(ps, lr=lr, betas=(0.9, 0.99), weight_decay=1e-4)
    t0, n, acc = time.time(), 0, []
    while (done := (time.time() - t0) / (60 * minutes)) < 1:
        schedule(opt, lr, n, done)
        z, x = batch()
        B = len(z)
        z = (
            z
            + 0.8 * torch.randn(B, 4, 1, 1) * (torch.rand(B, 1, 1, 1) < 0.8)
            + 0.4 * torch.rand(B, 1, 1, 1) ** 2 * torch.randn_like(z)
        )
        with torch.autocast("cpu", torch.bfloat16):
            y = m.decode((z / S).contiguous(memory_format=torch.channels_last))
        d = y.float() - x
        edges = (d[..., 1:] - d[..., :-1]).abs().mean() + (d[:, :, 1:] - d[:, :, :-1]).abs().mean()
        loss = d.abs().mean() + 2 * d.pow(2).mean() + 0.5 * edges + F.avg_pool2d(d, 8).abs().mean()
        opt.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(ps, 1.0)
        opt.step()
        n += 1
        average(ema, m, n, 0.998)
        acc.append((loss.item(), d.pow(2).mean().item()))
        if n % 50 == 0:
            log(what, n, t0, acc)


def train_decoder(a, minutes):
    em, lat, _, r = setup(a)
    torch.manual_seed(1)
    m = models.VAE(32)
    models.easy_init(m)
    with torch.no_grad():
        m.post_quant_conv.weight *= S
    m.to(memory_format=torch.channels_last)
    ema = copy.deepcopy(m)

    def batch():
        xs = [em.any_picture(r) for _ in range(4)]
        return torch.from_numpy(lat(np.stack(xs))), vae_batch(xs)

    decoder_steps("decoder", m, ema, batch, 1e-3, minutes)
    models.encoder_init(ema, lat.A, lat.b, vae_batch([em.any_picture(r) for _ in range(24)]), S)
    torch.save(ema.state_dict(), a.out + ".vae")


def polish(a, minutes):
    """The decoder sees latents as the UNet makes them: a known picture is noised to a random step and denoised again."""
    em, lat, words, r = setup(a)
    net = Net(words)
    net.load_state_dict(torch.load(a.out + ".net"))
    vae = models.VAE(32)
    vae.load_state_dict(torch.load(a.out + ".vae"))
    for q in (net.unet, vae):
        q.to(memory_format=torch.channels_last)
    sig, pool, t0, K = (1 / SNR).sqrt(), [], time.time(), 16
    while not pool or (len(pool) < 2000 and time.time() - t0 < 20 * minutes):
        ss = [em.choose(r) for _ in range(K)]
        xs = [em.picture(i, c, p) for i, _, c, p in ss]
        z = torch.from_numpy(lat(np.stack(xs)))
        ids = torch.tensor([words(caption(em.items[i][1], b, r)) for i, b, _, _ in ss] + [words("")] * K)
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            c, ts = net.text(ids), np.linspace(r.uniform(450, 900), 0, 8).astype(int)
            x = z + 0.8 * torch.randn(K, 4, 1, 1) + sig[ts[0]] * torch.randn_like(z)
            for t, u in zip(ts, list(ts[1:]) + [None]):
                e = net.unet(
                    (x / (sig[t] ** 2 + 1) ** 0.5).repeat(2, 1, 1, 1), torch.full((2 * K,), int(t)), c
                ).float()
                e = e[K:] + 3.5 * (e[:K] - e[K:])
                x = x + ((sig[u] if u is not None else 0.0) - sig[t]) * e
        x = x - x.mean((2, 3), keepdim=True) + z.mean((2, 3), keepdim=True)
        pool += [(q, p) for q, p in zip(x, xs)]

    def batch():
        b = [r.choice(pool) if r.random() < 0.5 else None for _ in range(4)]
        xs = [q[1] if q else em.any_picture(r) for q in b]
        z = lat(np.stack(xs))
        return torch.stack([q[0] if q else torch.from_numpy(z[k]) for k, q in enumerate(b)]), vae_batch(xs)

    live = copy.deepcopy(vae)
    decoder_steps("polish", live, vae, batch, 4e-4, max(0.01, minutes - (time.time() - t0) / 60))
    export(a, words, net.state_dict(), vae.state_dict())


def export(a, words, net, vae):
    """LDM names; the full token table, in which all words that were never seen share one vector."""
    T = "cond_stage_model.transformer.text_model."
    o = {
        ("model.diffusion_model." + k[5:] if k.startswith("unet.") else T + k[5:]): v for k, v in net.items()
    }
    small = o[T + "embeddings.token_embedding.weight"]
    big = small[0].repeat(49408, 1)
    big[torch.tensor(words.vocab)] = small[1:]
    o[T + "embeddings.token_embedding.weight"] = big
    o.update({"first_stage_model." + k: v for k, v in vae.items()})
    save_file(
        {k: v.to(torch.float16).contiguous() for k, v in o.items()},
        a.out,
        metadata={
            "format": "pt",
            "title": "emoji-sd",
            "prediction": "eps",
            "betas": "scaled_linear 0.00085 0.012 1000",
            "training_data": "Noto Color Emoji bitmaps, SIL Open Font License 1.1",
        },
    )
    print(a.out, len(o), "tensors", os.path.getsize(a.out), "bytes")


if __name__ == "__main__":
    here = os.path.dirname(os.path.abspath(__file__))
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--minutes", type=float, default=150)
    p.add_argument("--font", default="/usr/share/fonts/truetype/noto/NotoColorEmoji.ttf")
    p.add_argument("--bpe", default="bpe_simple_vocab_16e6.txt.gz")
    p.add_argument("--objects", default=os.path.join(here, "objects.txt"))
    p.add_argument("--out", default="emoji-sd.safetensors")
    p.add_argument(
        "--threads", type=int, default=max(1, (os.cpu_count() or 2) // 2), help="of each of the two processes"
    )
    a = p.parse_args()
    jobs = [
        mp.get_context("spawn").Process(target=f, args=(a, 0.85 * a.minutes))
        for f in (train_unet, train_decoder)
    ]
    for j in jobs:
        j.start()
    for j in jobs:
        j.join()
    assert all(j.exitcode == 0 for j in jobs)
    polish(a, 0.15 * a.minutes)
    for x in (".net", ".vae"):
        os.remove(a.out + x)
