"""Writes small pictures of every kind of pixel, and what Pillow makes of them.

Run: python make.py (Pillow 12 or later, NumPy)
"""

from pathlib import Path

import numpy
from PIL import Image

FOLDER = Path(__file__).parent
BACKGROUND = (255, 128, 0)
HEIGHT, WIDTH = 6, 10

random = numpy.random.default_rng(7)
rgba = random.integers(0, 256, (HEIGHT, WIDTH, 4), "u1")
rgba[0, :, 3], rgba[1, :, 3] = 0, 255
color = Image.fromarray(rgba[..., :3])
with_alpha = Image.fromarray(rgba)
palette = color.quantize(9)
bits = Image.fromarray(rgba[..., 0] > 99)


def expected(path: Path) -> None:
    """Writes RGB without opacity, the grey values, RGBA, and RGB on a background, one after the other."""
    with Image.open(path) as picture:
        seen = picture.convert("RGBA")
    with Image.open(path) as picture:
        plain = seen.convert("RGB")
        laid = Image.alpha_composite(Image.new("RGBA", seen.size, (*BACKGROUND, 255)), seen).convert("RGB")
        parts = [plain, plain.convert("L"), seen, laid]
    path.with_name(path.name + ".expected").write_bytes(b"".join(part.tobytes() for part in parts))


def put(name: str, picture: Image.Image, **options: object) -> None:
    picture.save(FOLDER / name, **options)
    expected(FOLDER / name)


put("rgb.png", color)
put("rgba.png", with_alpha)
put("rgba.webp", with_alpha, lossless=True, exact=True)
put("rgba.tiff", with_alpha)
put("grey.png", color.convert("L"))
put("grey_alpha.png", with_alpha.convert("LA"))
put("palette_trns.png", palette, transparency=bytes([0, 60, 120, 255, 200]))
put("palette_trns.gif", palette, transparency=2)
put("grey_trns.png", color.convert("L").point(lambda value: value // 16 * 16), transparency=64)
put("rgb_trns.png", color, transparency=tuple(int(value) for value in rgba[3, 4, :3]))
put("bits.png", bits)
put("bits_trns.png", bits, transparency=1)
