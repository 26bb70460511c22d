"""Stills of AVIF and HEIC in a column of pictures, beside what Pillow and `ffmpeg` make of them."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
from typing import Any

import heif
import numpy
import pytest
import spdl_cluster
from conftest import LIMIT_S, ctl, ctl_json, samples
from numpy.typing import NDArray
from PIL import Image, features
from test_video import NEAR, difference, ffmpeg, original, run, video

#: `ffmpeg` is a fixture, `video` a column: the names are used below.
__all__ = ["ffmpeg"]

HEIGHT, WIDTH = 64, 96
FROM = "avif|heic"
HEVC = ["-c:v", "libx265", "-preset", "ultrafast", "-x265-params", "log-level=none:info=0", "-pix_fmt", "yuv420p", "-tag:v", "hvc1"]


def job(dataset: str | pathlib.Path, size: tuple[int, int] = (HEIGHT, WIDTH), **keys: Any) -> dict[str, Any]:
    image = {"name": "image", "from": FROM, "decode": "image", "ops": [{"center_crop": list(size)}]}
    key = {"name": "key", "from": "__key__", "decode": "text"}
    return {"name": "stills", "dataset": dataset, "global_batch": 1, "bad_samples": "fail", **keys, "column": [image, key]}


def decoded(dataset: pathlib.Path, size: tuple[int, int] = (HEIGHT, WIDTH)) -> dict[str, NDArray[Any]]:
    ctl("index", dataset)
    with spdl_cluster.local(job(dataset, size), tensors="numpy") as loader:
        return {one["key"]: one["image"] for one in samples(loader)}


def photo(size: tuple[int, int] = (WIDTH, HEIGHT)) -> Image.Image:
    """Returns a smooth picture, without colours at the ends of their range."""
    x, y = numpy.meshgrid(numpy.linspace(0, 3, size[0]), numpy.linspace(0, 2, size[1]))
    planes = [120 + 70 * numpy.sin(x + 2 * y), 110 + 60 * numpy.cos(2 * x - y), 130 + 50 * numpy.sin(x * y)]
    return Image.fromarray(numpy.stack(planes, 2).astype(numpy.uint8))


def tile(ffmpeg: str, path: pathlib.Path, number: int, size: str) -> tuple[bytes, bytes]:
    """Encodes a picture of HEVC, each number another one."""
    run(ffmpeg, "-v", "error", "-f", "lavfi", "-i", f"testsrc2=size={size}:rate=5", "-vf", f"select='eq(n,{number})'", *HEVC, "-frames:v", 1, path)
    return heif.coded(path)


@pytest.mark.skipif(not features.check("avif"), reason="this Pillow has no AVIF")
@pytest.mark.parametrize("sampling", ["4:4:4", "4:0:0", "4:2:0"])
def test_a_folder_of_avif_is_read_as_pillow_reads_it(ffmpeg: str, tmp_path: pathlib.Path, sampling: str) -> None:
    assert ffmpeg, "its library decodes"
    photo().save(tmp_path / "one.avif", quality=80, subsampling=sampling)
    opaque = photo().convert("RGBA")
    opaque.putalpha(Image.linear_gradient("L").resize((WIDTH, HEIGHT)))
    opaque.save(tmp_path / "opacity.avif", quality=80, subsampling=sampling)
    photo().save(tmp_path / "turned.avif", quality=80, subsampling=sampling, exif=b"Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x03\0\0\0\0\0\0")
    found = decoded(tmp_path)
    assert sorted(found) == ["one", "opacity", "turned"]
    for key, pixels in found.items():
        # Pillow leaves it to its user to turn a picture, whose pixels are stored as those of the first.
        theirs = numpy.asarray(Image.open(tmp_path / f"{'one' if key == 'turned' else key}.avif").convert("RGB"))
        theirs = numpy.rot90(theirs, 2 if key == "turned" else 0)
        # Pillow smooths colours that are stored once for four pixels.
        assert difference(pixels, theirs) <= (2 if sampling != "4:2:0" else 6), key


def test_a_grid_of_hevc_is_composed_turned_and_mirrored(ffmpeg: str, tmp_path: pathlib.Path) -> None:
    stills = tmp_path / "stills"
    stills.mkdir()
    tiles = [tile(ffmpeg, tmp_path / f"{number}.mp4", number, f"{WIDTH}x{HEIGHT}") for number in range(6)]
    pixels = [original(ffmpeg, tmp_path / f"{number}.mp4")[0] for number in range(6)]
    config = tiles[0][0]
    (stills / "one.heic").write_bytes(heif.heic([tiles[3][1]], config, (HEIGHT, WIDTH)))
    expected = {"one": pixels[3]}
    size = (100, 250)
    whole = numpy.concatenate([numpy.concatenate(pixels[:3], 1), numpy.concatenate(pixels[3:], 1)])[: size[0], : size[1]]
    for turns in range(4):
        for mirror in (None, 0, 1):
            key = f"grid-{turns}-{mirror}"
            file = heif.heic([packet for _, packet in tiles], config, (HEIGHT, WIDTH), grid=(2, 3), size=size, turns=turns, mirror=mirror)
            (stills / f"{key}.heic").write_bytes(file)
            turned = numpy.rot90(whole, turns)
            expected[key] = turned if mirror is None else numpy.flip(turned, mirror)
    ctl("index", stills)
    for key, theirs in expected.items():
        alone = tmp_path / "alone" / key
        alone.mkdir(parents=True)
        (stills / f"{key}.heic").rename(alone / f"{key}.heic")
        [ours] = decoded(alone, theirs.shape[:2]).values()
        assert difference(ours, theirs) <= NEAR, key
    assert "HEIC 100x250" in ctl("info", tmp_path / "alone/grid-1-None").stdout
    assert "1 picture was decoded whole" in ctl("verify", tmp_path / "alone/grid-1-None", "--decode").stdout


def test_what_is_wrong_with_a_still_is_named_and_so_is_a_library_that_is_missing(ffmpeg: str, tmp_path: pathlib.Path) -> None:
    config, packet = tile(ffmpeg, tmp_path / "one.mp4", 0, f"{WIDTH}x{HEIGHT}")
    whole = heif.heic([packet], config, (HEIGHT, WIDTH))
    noise = numpy.random.default_rng(1).bytes(len(packet))
    for key, file, problem in [
        ("cut", whole[:-10], "is a damaged AVIF or HEIC file: it is cut off within a picture"),
        ("noise", heif.heic([noise], config, (HEIGHT, WIDTH)), "does not decode"),
        ("large", heif.heic([packet], config, (HEIGHT, 2 * WIDTH)), f"has a tile of {WIDTH}x{HEIGHT}, and says that it is of {2 * WIDTH}x{HEIGHT}"),
    ]:
        folder = tmp_path / key
        folder.mkdir()
        (folder / f"{key}.heic").write_bytes(file)
        with pytest.raises(spdl_cluster.SpdlError) as error:
            decoded(folder)
        assert problem in str(error.value) and f"`{key}`" in str(error.value), error.value
    good = tmp_path / "good"
    good.mkdir()
    (good / "one.heic").write_bytes(whole)
    assert decoded(good)["one"].shape == (HEIGHT, WIDTH, 3)
    program = f"import spdl_cluster\nwith spdl_cluster.local({job(str(good))!r}) as loader:\n    next(iter(loader))\n"
    empty = tmp_path / "empty"
    empty.mkdir()
    environment = {**os.environ, "SPDL_LIBAV": str(empty)}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=LIMIT_S, env=environment)
    assert done.returncode != 0
    assert "has stills of AVIF or HEIC" in done.stderr and "pip install av" in done.stderr, done.stderr


def test_frames_of_a_folder_may_be_stills(ffmpeg: str, tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "videos/v0"
    folder.mkdir(parents=True)
    for number in range(4):
        config, packet = tile(ffmpeg, tmp_path / f"{number}.mp4", number, f"{WIDTH}x{HEIGHT}")
        (folder / f"{number}.heic").write_bytes(heif.heic([packet], config, (HEIGHT, WIDTH)))
    told = ctl_json("index", tmp_path / "videos", "--frames")
    assert told["samples"] == 1
    made = job(tmp_path / "videos")
    made["column"][0] = {**video(frames=4, pick="start"), "name": "image", "from": "heic"}
    with spdl_cluster.local(made, tensors="numpy") as loader:
        [one] = samples(loader)
    for number in range(4):
        assert difference(one["image"][number], original(ffmpeg, tmp_path / f"{number}.mp4")[0]) <= NEAR
