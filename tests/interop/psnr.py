"""Measures the difference of crops from Pillow's: decode the whole picture, crop, resize (antialiased bilinear).

usage: psnr.py CASES, a JSON list of {"jpeg", "rect": [left, top, width, height], "size", "ours"}, where `ours` holds the RGB
pixels of the crop at size x size that another decoder made. For each case prints, in dB and as one JSON list, [ours, scaled, scale]:
`scaled` is libjpeg-turbo's way, which Pillow offers as `draft`: decode at the smallest scale of 1, 1/2, 1/4 and 1/8 that covers the
result, then crop and resize.
"""

import json
import math
import pathlib
import sys

from PIL import Image, ImageChops


def psnr(one: Image.Image, other: Image.Image) -> float:
    histogram = ImageChops.difference(one, other).histogram()
    squares = sum(count * (value % 256) ** 2 for value, count in enumerate(histogram))
    return 10 * math.log10(255**2 * one.width * one.height * 3 / squares) if squares else 99.0


def scale_of(rect: list, size: int) -> int:
    return next(scale for scale in (8, 4, 2, 1) if scale == 1 or min(rect[2:]) >= size * scale)


def resized(picture: Image.Image, box: list, size: int) -> Image.Image:
    left, top, right, bottom = box
    return picture.crop((left, top, right, bottom)).resize((size, size), Image.Resampling.BILINEAR)


def case(jpeg: str, rect: list, size: int, ours: str) -> list:
    left, top, width, height = rect
    with Image.open(jpeg) as picture:
        exact = resized(picture.convert("RGB"), [left, top, left + width, top + height], size)
    scale = scale_of(rect, size)
    with Image.open(jpeg) as picture:
        whole = picture.size
        picture.draft("RGB", tuple(side // scale for side in whole))
        reduced = picture.convert("RGB")
    assert reduced.size == tuple(-(-side // scale) for side in whole), "the scale that was asked for"
    # The crop's edges may lie between samples: take the surrounding whole samples, and let `box` weight the edges.
    box = [left / scale, top / scale, (left + width) / scale, (top + height) / scale]
    inside = [math.floor(box[0]), math.floor(box[1]), math.ceil(box[2]), math.ceil(box[3])]
    placed = [box[0] - inside[0], box[1] - inside[1], box[2] - inside[0], box[3] - inside[1]]
    scaled = reduced.crop(inside).resize((size, size), Image.Resampling.BILINEAR, box=placed)
    mine = Image.frombytes("RGB", (size, size), pathlib.Path(ours).read_bytes())
    return [psnr(mine, exact), psnr(scaled, exact), scale]


print(json.dumps([case(**each) for each in json.loads(pathlib.Path(sys.argv[1]).read_text())]))
