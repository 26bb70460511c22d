"""Folders of frames: clips of pictures that lie as they are, in a folder and in a bucket, without a library that decodes videos."""

from __future__ import annotations

import pathlib
from typing import Any

import numpy
import pytest
import spdl_cluster
import stores
from conftest import Cluster, ctl, ctl_json, samples
from numpy.typing import NDArray
from PIL import Image

HEIGHT, WIDTH = 24, 32
#: Videos: how many frames they have, and what is before the number in their names.
VIDEOS = {"running/v0": (30, ""), "running/v1": (5, "frame_"), "waving/v2": (12, "img "), "waving/v3": (40, "2024-v3.")}
RATE = 12


def frame(video: str, number: int) -> NDArray[numpy.uint8]:
    random = numpy.random.Generator(numpy.random.PCG64([int(video[-1]), number]))
    return random.integers(0, 256, (HEIGHT, WIDTH, 3), numpy.uint8)


@pytest.fixture
def videos(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """Writes the frames as PNGs; no library for videos is found."""
    monkeypatch.setenv("SPDL_LIBAV", str(tmp_path))
    folder = tmp_path / "videos"
    for video, (count, prefix) in VIDEOS.items():
        (folder / video).mkdir(parents=True)
        for number in range(count):
            Image.fromarray(frame(video, number)).save(folder / video / f"{prefix}{number + 8}.png")
    (folder / "waving/v2/cover.png").write_bytes(b"no frame")
    (folder / "waving/v2/about.txt").write_text("no frame")
    return folder


def job(dataset: Any, **clip: Any) -> dict[str, Any]:
    video = {"name": "video", "from": "png", "decode": "video", "clip": clip, "ops": [{"center_crop": [HEIGHT, WIDTH]}]}
    others = [{"name": name, "from": "png", "decode": f"video_{name}", "follows": "video"} for name in ("times", "mask")]
    more = [{"name": "label", "from": "cls", "decode": "int"}, {"name": "key", "from": "__key__", "decode": "text"}]
    columns = [video, *(others if "source_rate" in clip else others[1:]), *more]
    return {"name": "frames", "dataset": dataset, "seed": 3, "global_batch": 2, "bad_samples": "fail", "column": columns}


def numbers_of(one: dict[str, Any]) -> list[int]:
    """Returns which frames of its video the clip of a sample has."""
    count, _ = VIDEOS[one["key"]]
    all_frames = {frame(one["key"], number).tobytes(): number for number in range(count)}
    return [all_frames[pixels.tobytes()] for pixels in one["video"]]


def test_each_folder_is_a_sample_and_a_clip_has_its_frames_in_order(videos: pathlib.Path) -> None:
    told = ctl_json("index", videos, "--frames")
    assert (told["samples"], told["class_names"]) == (4, ["running", "waving"])
    assert {entry["example"]: entry["why"] for entry in told["left_out"]} == {"waving/v2/about.txt": "no_frame", "waving/v2/cover.png": "no_frame"}
    starts: dict[str, set[int]] = {}
    with spdl_cluster.local({**job(videos, frames=4, stride=3), "epochs": 6}, tensors="numpy") as loader:
        for one in (one for _ in range(6) for one in samples(loader)):
            numbers, (count, _) = numbers_of(one), VIDEOS[one["key"]]
            assert numbers == [min(numbers[0] + 3 * nth, count - 1) for nth in range(4)]
            assert one["mask"].tolist() == [numbers[0] + 3 * nth < count for nth in range(4)]
            assert one["label"] == ["running", "waving"].index(one["key"].partition("/")[0])
            starts.setdefault(one["key"], set()).add(numbers[0])
    assert all(len(starts[video]) > 1 for video in ("running/v0", "waving/v3")), starts
    assert starts["running/v1"] == {0}
    with spdl_cluster.local({**job(videos, frames=5, rate=4, source_rate=RATE, pick="start"), "epochs": 1}, tensors="numpy") as loader:
        for one in samples(loader):
            numbers, (count, _) = numbers_of(one), VIDEOS[one["key"]]
            assert numbers == [min(3 * nth, count - 1) for nth in range(5)]
            assert numpy.allclose(one["times"], [number / RATE for number in numbers])
            assert one["mask"].tolist() == [3 * nth < count for nth in range(5)]


def test_from_a_bucket_only_the_frames_of_clips_are_read_and_ranks_share_them(videos: pathlib.Path, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    report = spdl_cluster.index(videos, frames=True, progress=False)
    assert report.samples == 4
    made = {**job(videos, frames=3, stride=2), "epochs": 2}
    with spdl_cluster.local(made, tensors="numpy") as loader:
        alone = [one for _ in range(2) for one in samples(loader)]
    sent: list[tuple[str, int]] = []
    with stores.bucket("frames", videos, sent) as variables:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        with spdl_cluster.local({**made, "dataset": "s3://frames"}, tensors="numpy") as loader:
            of_bucket = [one for _ in range(2) for one in samples(loader)]
    assert [one["key"] for one in of_bucket] == [one["key"] for one in alone]
    assert all(numpy.array_equal(a["video"], b["video"]) for a, b in zip(alone, of_bucket))
    wanted = []
    for one in alone:
        prefix = VIDEOS[one["key"]][1]
        wanted += sorted({f"{prefix}{number + 8}.png" for number in numbers_of(one)})
    read = [name for name, _ in sent if name.endswith(".png")]
    assert sorted(read) == sorted(wanted)
    sizes = {path.name: path.stat().st_size for path in videos.rglob("*.png")}
    assert all(bytes <= max(sizes.values()) for name, bytes in sent if name in sizes)
    name = cluster.submit({**made, "name": "frames-of-ranks"})
    with cluster.connect(0, 2, job=name, tensors="numpy") as first, cluster.connect(1, 2, job=name, tensors="numpy") as second:
        for number, batches in enumerate(zip(first, second)):
            rows = sorted(row.tobytes() for batch in batches for row in batch["video"])
            assert rows == sorted(one["video"].tobytes() for one in alone[2 * number : 2 * number + 2])


def test_a_job_is_suggested_and_what_is_wrong_with_a_frame_is_named(videos: pathlib.Path, tmp_path: pathlib.Path) -> None:
    (videos / "running/v1/frame_9.png").write_bytes(b"no picture")
    ctl("index", videos, "--frames")
    ctl("job", "init", videos, "--out", tmp_path / "suggested.toml")
    assert 'from = "png"\ndecode = "video"\nclip = { frames = 16, stride = 4 }' in (tmp_path / "suggested.toml").read_text()
    with pytest.raises(spdl_cluster.SpdlError) as error, spdl_cluster.local(job(videos, frames=5, pick="start"), tensors="numpy") as loader:
        samples(loader)
    assert "`running/v1`" in str(error.value) and "picture 1 of the list, from 0: field `png`" in str(error.value), error.value
    with pytest.raises(spdl_cluster.SpdlError) as error, spdl_cluster.local(job(videos, frames=2, rate=2), tensors="numpy") as loader:
        samples(loader)
    assert "give `source_rate`" in str(error.value), error.value
    assert len(spdl_cluster.open(videos)[0]["png"]) == VIDEOS["running/v0"][0]
