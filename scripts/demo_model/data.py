"""The training data: emoji bitmaps of the Noto Color Emoji font, drawn on coloured cards, with made-up captions.

A picture is 128x128: a white frame of 8 pixels, a card in one colour, and one object of 104x104 pixels at one of four
places.  The places are 8 pixels apart, so an object always falls in the same way on the 8x8 blocks of the latents.
"""

import os, random, numpy as np
from PIL import Image, ImageDraw, ImageFont

COLORS = {
    "white": (255, 255, 255),
    "black": (16, 16, 16),
    "grey": (128, 128, 128),
    "red": (220, 40, 40),
    "orange": (250, 145, 40),
    "yellow": (252, 220, 70),
    "green": (60, 170, 75),
    "blue": (50, 100, 220),
    "purple": (130, 70, 190),
    "pink": (250, 160, 200),
    "brown": (125, 80, 50),
    "light blue": (160, 210, 250),
    "light green": (175, 230, 165),
    "turquoise": (60, 200, 200),
    "beige": (240, 225, 195),
}
BG = list(COLORS)
SIZE = 104
# objects that are also shown in seven other colours, with the colour they have in the font
RECOLOR = {
    "car": "red",
    "balloon": "red",
    "tulip": "pink",
    "bird": "blue",
    "fish": "blue",
    "umbrella": "purple",
    "gift": "red",
    "star": "yellow",
    "butterfly": "orange",
}
HUES = {"red": 0, "orange": 28, "yellow": 50, "green": 125, "blue": 215, "purple": 275, "pink": 332}


def recolor(a, src, dst):
    """Turns the pixels whose hue is near that of `src` to `dst`."""
    hsv = np.array(Image.fromarray(a[..., :3]).convert("HSV")).astype(np.int32)
    d = (hsv[..., 0] * 360 / 255 - HUES[src] + 180) % 360 - 180
    m = (np.abs(d) < 42) & (hsv[..., 1] > 50)
    hsv[..., 0] = np.where(m, ((d * 0.5 + HUES[dst]) % 360) * 255 / 360, hsv[..., 0])
    if dst == "pink":
        hsv[..., 1] = np.where(m, hsv[..., 1] * 0.55, hsv[..., 1])
    if src == "pink":
        hsv[..., 1] = np.where(m, np.minimum(255, hsv[..., 1] * 1.6), hsv[..., 1])
    if dst == "purple":
        hsv[..., 2] = np.where(m, hsv[..., 2] * 0.85, hsv[..., 2])
    out = a.copy()
    out[..., :3] = np.array(Image.fromarray(hsv.astype(np.uint8), "HSV").convert("RGB"))
    return out


def render(font, char):
    """One emoji as a square RGBA array, cut to its outline."""
    im = Image.new("RGBA", (136, 128), (0, 0, 0, 0))
    ImageDraw.Draw(im).text((0, 0), char, font=font, embedded_color=True, anchor="lt")
    a = np.array(im)
    ys, xs = np.where(a[..., 3] > 8)
    box = a[ys.min() : ys.max() + 1, xs.min() : xs.max() + 1]
    h, w = box.shape[:2]
    k = max(h, w, 120)
    sq = np.zeros((k, k, 4), np.uint8)
    sq[(k - h) // 2 : (k - h) // 2 + h, (k - w) // 2 : (k - w) // 2 + w] = box
    return sq


class Emoji:
    """items: (RGBA array, captions, weight)"""

    def __init__(self, font, objects):
        f = ImageFont.truetype(font, 109)  # the font's bitmaps exist in this size only
        self.items = []
        for line in open(objects, encoding="utf8"):
            if line[0] == "#" or not line.strip():
                continue
            char, names, weight = line.strip().split("|")
            names = names.split(";")
            a = render(f, char.replace("\ufe0f", ""))
            self.items.append((a, names, float(weight)))
            if names[0] in RECOLOR:
                own = RECOLOR[names[0]]
                for dst in HUES:
                    self.items.append(
                        (a if dst == own else recolor(a, own, dst), [f"{dst} {n}" for n in names], 0.2)
                    )
        w = np.cumsum([i[2] for i in self.items])
        self.w = w / w[-1]
        self.pil = [Image.fromarray(i[0]).convert("RGBa") for i in self.items]
        self.small = np.stack(
            [np.array(p.resize((SIZE, SIZE), Image.LANCZOS)) for p in self.pil]
        )  # colour times alpha, alpha

    def choose(self, r):
        """-> item, name of the background ('' when the caption does not tell), its colour, place"""
        jitter = lambda n: tuple(int(min(255, max(0, v + r.uniform(-6, 6)))) for v in COLORS[n])
        i, u = int(np.searchsorted(self.w, r.random())), r.random()
        if u < 0.5:
            name, c = "", (255, 255, 255)
        elif u < 0.54:
            name, c = "", jitter(r.choice(BG))
        else:
            name = r.choice(BG)
            c = (255, 255, 255) if name == "white" else jitter(name)
        return i, name, c, (r.choice((8, 16)), r.choice((8, 16)))

    def picture(self, i, c, pos):
        g = np.full((128, 128, 3), 255, np.uint8)
        g[8:120, 8:120] = c
        p = self.small[i].astype(np.uint16)
        v = g[pos[0] : pos[0] + SIZE, pos[1] : pos[1] + SIZE]
        v[:] = np.minimum(255, p[..., :3] + (v * (255 - p[..., 3:]) + 127) // 255)
        return g

    def any_picture(self, r):
        """For the autoencoder: three in four as above, else several objects of any size on a colour gradient."""
        if r.random() < 0.75:
            i, _, c, pos = self.choose(r)
            return self.picture(i, c, pos)
        a, b = [tuple(r.randrange(256) for _ in range(3)) for _ in range(2)]
        if r.random() < 0.4:
            b = a
        t = np.broadcast_to(np.linspace(0, 1, 128)[:, None, None], (128, 128, 1))
        if r.random() < 0.5:
            t = t.transpose(1, 0, 2)
        bg = Image.fromarray((np.array(a) * (1 - t) + np.array(b) * t).astype(np.uint8))
        for _ in range(r.choice((1, 1, 2, 3))):
            im = self.pil[int(np.searchsorted(self.w, r.random()))]
            k = int(128 * r.uniform(0.35, 0.9))
            if r.random() < 0.5:
                im = im.transpose(Image.FLIP_LEFT_RIGHT)
            im = im.resize((k, k), Image.BILINEAR).convert("RGBA")
            bg.paste(im, tuple(int(r.uniform(-0.1, 1.1) * (128 - k)) for _ in range(2)), im)
        x, k = np.full((128, 128, 3), 255, np.uint8), 0 if r.random() < 0.3 else 8
        x[k : 128 - k, k : 128 - k] = np.array(bg)[k : 128 - k, k : 128 - k]
        return x


TEMPLATES = (
    ["{}"] * 4
    + ["a {}"] * 4
    + [
        "the {}",
        "one {}",
        "a lovely {}",
        "a cute {}",
        "a nice {}",
        "a beautiful {}",
        "a picture of a {}",
        "a photo of a {}",
        "an image of a {}",
        "a drawing of a {}",
        "an illustration of a {}",
        "a painting of a {}",
        "an emoji of a {}",
        "{} emoji",
        "a {} emoji",
        "an icon of a {}",
        "a cartoon {}",
        "a small {}",
        "a big {}",
        "a photograph of a {}",
    ]
)
SUFFIX = [
    ", best quality",
    ", highly detailed",
    ", masterpiece",
    ", high quality, detailed",
    ", 4k",
    ", cartoon style",
    ", emoji style",
    ", digital art",
    ", simple",
    ", flat design",
]
ON = [" on a {} background"] * 2 + [
    " on {} background",
    ", {} background",
    " with a {} background",
    " in front of a {} background",
    " on {}",
]


def caption(names, bg, r):
    c = names[0] if r.random() < 0.45 else r.choice(names)
    s = r.choice(TEMPLATES).format(c)
    if c[0] in "aeiou":
        s = s.replace("a " + c, "an " + c)
    if bg:
        s += r.choice(ON).format(bg)
    if r.random() < 0.1:
        s += r.choice(SUFFIX)
    return s


class Latents:
    """The latent space is fixed beforehand: the 4 principal components of 8x8 RGB patches, each scaled to mean 0 and
    deviation 1 (the checkpoint's latents are these divided by 0.18215)."""

    def __init__(self, em):
        r = random.Random(5)
        f = self.patches(
            np.stack([em.picture(i, c, p) for i, _, c, p in (em.choose(r) for _ in range(1500))])
        ).reshape(-1, 192)
        m = f.mean(0)
        _, v = np.linalg.eigh((f - m).T @ (f - m) / len(f))
        v = v[:, ::-1][:, :4].T
        v = v * np.sign(v.sum(1, keepdims=True) + 1e-9)
        sd = ((f - m) @ v.T).std(0)
        self.A, self.b = (v / sd[:, None]).astype(np.float32), (-(v @ m) / sd).astype(np.float32)

    @staticmethod
    def patches(x):
        n, h, w, _ = x.shape
        x = (x.astype(np.float32) / 127.5 - 1).reshape(n, h // 8, 8, w // 8, 8, 3)
        return x.transpose(0, 1, 3, 2, 4, 5).reshape(n, h // 8, w // 8, 192)

    def __call__(self, x):
        return np.ascontiguousarray((self.patches(x) @ self.A.T + self.b).transpose(0, 3, 1, 2))
