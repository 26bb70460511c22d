"""Sounds that others have made, of packages: what `soundfile` (libsndfile) or FFmpeg accepts of them, columns have; what is broken of them
is a bad sample, or has other samples."""

from __future__ import annotations

import json
import pathlib
import shutil
import subprocess
import tarfile
import warnings
from typing import Any

import numpy
import pytest
import spdl_cluster
from conftest import LIMIT_S, ctl
from debian import package
from numpy.typing import NDArray
from test_audio import KEY

soundfile = pytest.importorskip("soundfile")

#: Packages with small sounds, and the endings of these.
PACKAGES = {
    "pocketsphinx-testdata": {".wav"},
    "sound-theme-freedesktop": {".oga"},
    # One of each container, for a program that recognises files.
    "golang-github-gabriel-vasile-mimetype-dev": {".3gp", ".mkv", ".mov", ".mp4", ".webm"},
}
#: What is decoded, by the names that `ffprobe` has, with the most channels.
DECODED = {"mp3": 2, "vorbis": 8, "opus": 8, "aac": 2, "flac": 8}


def found(folder: pathlib.Path) -> dict[str, pathlib.Path]:
    """Copies the sounds of all packages into folders of their kinds; returns them by their keys."""
    paths: dict[str, pathlib.Path] = {}
    for name, suffixes in PACKAGES.items():
        for path in sorted(package(name).rglob("*")):
            # The package of recognised files has others of these kinds that are cut short.
            if path.is_file() and not path.is_symlink() and path.suffix in suffixes and path.stat().st_size > 1000:
                key = f"{len(paths):03}-{path.stem.replace('.', '-')}"
                (folder / f"{key}{path.suffix}").write_bytes(path.read_bytes())
                paths[key] = folder / f"{key}{path.suffix}"
    return paths


def read(folder: pathlib.Path, paths: dict[str, pathlib.Path]) -> dict[str, tuple[NDArray[Any], int]]:
    """Returns the samples and the rate of each file that is no bad sample."""
    # In a tar, as a folder of sounds leaves videos out.
    shards = folder / "shards"
    shards.mkdir()
    with tarfile.open(shards / "sounds.tar", "w") as tar:
        for key, path in paths.items():
            tar.add(path, f"{key}{path.suffix}")
    ctl("index", shards)
    kinds = "|".join(sorted({path.suffix[1:] for path in paths.values()}))
    wave = {"name": "wave", "from": kinds, "decode": "audio", "max_seconds": 600}
    rate = {"name": "rate", "from": kinds, "decode": "audio_rate", "follows": "wave"}
    job = {"name": "foreign", "dataset": str(shards), "global_batch": 1, "shuffle": False, "bad_samples": "mask", "epoch_end": "partial"}
    with warnings.catch_warnings(action="ignore"), spdl_cluster.local({**job, "max_bad_fraction": 1.0, "column": [wave, rate, KEY]}, tensors="numpy") as loader:
        return {batch["key"].text()[0]: (numpy.array(batch["wave"][0]), int(batch["rate"][0])) for batch in loader if batch.valid[0]}


def is_decoded(path: pathlib.Path) -> bool:
    """Returns whether the first sound of a file is of a codec and of channels that are decoded."""
    command = ["ffprobe", "-v", "error", "-select_streams", "a:0", "-show_entries", "stream=codec_name,profile,channels", "-of", "json", str(path)]
    streams = json.loads(subprocess.run(command, capture_output=True, timeout=LIMIT_S).stdout or b"{}").get("streams")
    if not streams or streams[0].get("profile", "LC") not in ("LC", "unknown"):
        return False
    return bool(streams[0]["channels"] <= DECODED.get(streams[0]["codec_name"], 0))


def test_what_others_accept_of_their_sounds_is_accepted(tmp_path: pathlib.Path) -> None:
    paths = found(tmp_path)
    assert len(paths) > 30
    ours = read(tmp_path, paths)
    compared = 0
    for key, path in paths.items():
        try:
            theirs, rate = soundfile.read(path, dtype="float32", always_2d=True)
        except soundfile.LibsndfileError:
            if shutil.which("ffprobe") is not None:
                assert (key in ours) == is_decoded(path), path.name
            continue
        samples, our_rate = ours[key]
        assert our_rate == rate and len(samples) == len(theirs), path.name
        assert abs(samples - theirs.mean(axis=1)).max(initial=0) <= 1e-5, path.name
        compared += 1
    assert compared > 30


def test_what_is_broken_of_them_ends_nothing(tmp_path: pathlib.Path) -> None:
    whole = found(tmp_path)
    by_kind = {path.suffix: (key, path) for key, path in whole.items()}
    random = numpy.random.Generator(numpy.random.PCG64(5))
    broken: dict[str, pathlib.Path] = {}
    for _, path in by_kind.values():
        content = numpy.frombuffer(path.read_bytes(), "u1")[: 1 << 19]
        for number in range(24):
            changed = content[: len(content) * (number % 4 + 1) // 4].copy()
            places = random.integers(0, 4096 if number % 2 == 0 else len(changed), number // 4)
            changed[places % len(changed)] = random.integers(0, 256, len(places), "u1")
            key = f"{path.stem}-{number}"
            broken[key] = tmp_path / f"{key}{path.suffix}"
            broken[key].write_bytes(changed.tobytes())
    good = {f"good-{key}": path for key, path in by_kind.values() if path.suffix in (".wav", ".oga")}
    ours = read(tmp_path, {**broken, **good})
    assert good.keys() <= ours.keys()
    assert all(numpy.isfinite(samples).all() for samples, _ in ours.values())
