"""Writes small pictures of every kind of pixel, and what Pillow makes of them. Of pictures of more than 8 bits, writes the values.

Run: python make.py (Pillow 12 or later, NumPy, tifffile and imagecodecs)
"""

import struct
import zlib
from pathlib import Path
from typing import Any

import numpy
import tifffile
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
with Image.open(FOLDER / "rgba.png") as stored:
    resized = stored.resize((4, 5), Image.Resampling.BILINEAR)
    (FOLDER / "rgba.png.resized").write_bytes(resized.tobytes())


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def put_png(path: Path, values: Any) -> None:
    """Writes a PNG of 16 bits; Pillow writes none of colours."""
    color = {1: 0, 2: 4, 3: 2, 4: 6}[values.shape[2]]
    header = struct.pack(">IIBBBBB", values.shape[1], values.shape[0], 16, color, 0, 0, 0)
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in values)
    chunks = [chunk(b"IHDR", header), chunk(b"IDAT", zlib.compress(rows)), chunk(b"IEND", b"")]
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(chunks))


def put_values(name: str, values: Any, **options: object) -> None:
    """Writes a picture, with options of tifffile, and its values as little-endian bytes."""
    path = FOLDER / name
    if path.suffix == ".png":
        put_png(path, values)
    elif path.suffix == ".pgm":
        path.write_bytes(b"P5 %d %d 65535\n" % (WIDTH, HEIGHT) + values.astype(">u2").tobytes())
    else:
        photometric = "rgb" if values.shape[2] > 2 else "minisblack"
        extra = {"extrasamples": ["unassalpha"]} if values.shape[2] % 2 == 0 else {}
        tifffile.imwrite(path, values.squeeze(), photometric=photometric, planarconfig="contig", **extra, **options)
        assert numpy.array_equal(tifffile.imread(path), values.squeeze())
    path.with_name(name + ".values").write_bytes(values.tobytes())


for channels in (1, 2, 3, 4):
    values = random.integers(0, 65536, (HEIGHT, WIDTH, channels), "u2")
    put_values(f"deep{channels}.png", values)
    put_values(f"deep{channels}.tiff", values)
put_values("deep1.pgm", random.integers(0, 65536, (HEIGHT, WIDTH, 1), "u2"))
for channels in (1, 3):
    put_values(f"float{channels}.tiff", random.normal(0, 1000, (HEIGHT, WIDTH, channels)).astype("f4"))
for name, options in {"big": {"bigtiff": True}, "bigger": {"bigtiff": True, "byteorder": ">"}, "zstd": {"compression": "zstd"}}.items():
    for channels in (1, 3):
        put_values(f"{name}{channels}.tiff", random.integers(0, 65536, (HEIGHT, WIDTH, channels), "u2"), **options)
put_values("bigfloat1.tiff", random.normal(0, 1000, (HEIGHT, WIDTH, 1)).astype("f4"), bigtiff=True)
put("big_palette.tiff", palette, big_tiff=True)
tifffile.imwrite(FOLDER / "lzma3.tiff", rgba[..., :3], photometric="rgb", compression="lzma")
