"""Pictures in sizes of their own, as Qwen-VL's preprocessors resize them: a ragged column, whose pixels are those of a resize to each size."""

from __future__ import annotations

import math
import pathlib
from typing import Any

import numpy
import pytest
import spdl_cluster

#: Heights and widths of pictures: usual, small, at a rounding of a half, and narrow.
SIZES = [(375, 500), (500, 375), (30, 31), (1, 1), (42, 98), (70, 126), (14, 2000), (900, 5), (640, 481), (57, 800)]
LIMITS = [(28, 3136, 1003520), (28, 3136, 100352), (14, 200000, 300000), (32, 65536, 65536)]


def smart_resize(height: int, width: int, factor: int, min_pixels: int, max_pixels: int) -> tuple[int, int]:
    """Returns the height and width that transformers' function of this name gives."""
    assert max(height, width) / min(height, width) <= 200
    h_bar = round(height / factor) * factor
    w_bar = round(width / factor) * factor
    if h_bar * w_bar > max_pixels:
        beta = math.sqrt((height * width) / max_pixels)
        h_bar = max(factor, math.floor(height / beta / factor) * factor)
        w_bar = max(factor, math.floor(width / beta / factor) * factor)
    elif h_bar * w_bar < min_pixels:
        beta = math.sqrt(min_pixels / (height * width))
        h_bar = math.ceil(height * beta / factor) * factor
        w_bar = math.ceil(width * beta / factor) * factor
    return h_bar, w_bar


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Writes a dataset of pictures of these sizes, and returns its folder."""
    folder = tmp_path_factory.mktemp("pictures") / "set"
    drawn = numpy.random.default_rng(7)
    with spdl_cluster.Writer(folder) as writer:
        for number, (height, width) in enumerate(SIZES):
            pixels = drawn.integers(0, 256, (height, width, 3), numpy.uint8)
            writer.write({"ppm": b"P6\n%d %d\n255\n" % (width, height) + pixels.tobytes()}, key=f"{number:04}")
    return folder


def make(pictures: pathlib.Path, *columns: dict[str, Any]) -> dict[str, Any]:
    """Makes a job that gives all pictures in one batch, in their order."""
    return {"name": "sizes", "dataset": pictures, "global_batch": len(SIZES), "shuffle": False, "column": [{"from": "ppm", **column} for column in columns]}


@pytest.mark.parametrize("limits", LIMITS, ids=str)
@pytest.mark.parametrize("layout", ["nhwc", "nchw"])
def test_pictures_have_the_sizes_of_transformers_and_the_pixels_of_a_resize(pictures: pathlib.Path, limits: tuple[int, int, int], layout: str) -> None:
    resize = {"smart_resize": dict(zip(("factor", "min_pixels", "max_pixels"), limits)) | {"interpolation": "bicubic"}}
    size = {"decode": "image_size", "follows": "image"}
    columns: list[dict[str, Any]] = [{"name": "image", "decode": "image", "layout": layout, "ops": [resize]}, {"name": "before", **size}, {"name": "size", "after_ops": True, **size}]
    expected = [smart_resize(*stored, *limits) for stored in SIZES]
    with spdl_cluster.local(make(pictures, *columns), tensors="numpy") as loader:
        batch = next(iter(loader))
        assert batch["before"].tolist() == [list(stored) for stored in SIZES]
        assert batch["size"].tolist() == [list(sides) for sides in expected]
        ragged = batch["image"]
        shapes = [(height, width, 3) if layout == "nhwc" else (3, height, width) for height, width in expected]
        made = [numpy.array(ragged[number]).reshape(shape) for number, shape in enumerate(shapes)]
    fixed = [
        {"name": f"{number}", "decode": "image", "layout": layout, "ops": [{"resize": {"size": list(sides), "interpolation": "bicubic"}}]}
        for number, sides in enumerate(expected)
    ]
    with spdl_cluster.local(make(pictures, *fixed), tensors="numpy") as loader:
        batch = next(iter(loader))
        for number, picture in enumerate(made):
            assert numpy.array_equal(batch[f"{number}"][number], picture), (number, SIZES[number])


def test_ordinary_mistakes_say_what_to_do(pictures: pathlib.Path) -> None:
    mistakes: list[tuple[list[Any], dict[str, Any], str]] = [
        ([{"smart_resize": {"max_pixels": 700}}], {}, r"`max_pixels` is 700, not in 784\.\.=268435456"),
        ([{"smart_resize": 28}, {"pad": 1}], {}, "`ops` leave pictures of different sizes; end with .* or with smart_resize for a ragged column"),
        (["smart_resize"], {"pictures": 2}, "`pictures` is for lists of pictures of one size"),
        (["smart_resize"], {"decode": "video", "clip": {"frames": 2}}, "`ops` give frames of different sizes, and those of videos have one"),
    ]
    for ops, more, expected in mistakes:
        with pytest.raises(spdl_cluster.SpdlError, match=expected):
            spdl_cluster.local(make(pictures, {"name": "image", "decode": "image", "ops": ops, **more})).next()
