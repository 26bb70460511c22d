"""Segments of long recordings of each format, in files and in tars, from a bucket: each costs its own bytes, and is what the whole recording
has there."""

from __future__ import annotations

import csv
import pathlib
import shutil
import subprocess
import tarfile
from typing import Any

import numpy
import pytest
import spdl_cluster
import stores
from conftest import LIMIT_S, ctl, samples
from numpy.typing import NDArray
from test_audio import KEY

soundfile = pytest.importorskip("soundfile")

FROM = "wav|rf64|w64|aiff|au|caf|flac|oga|mka|mp3|ogg|opus|aac|m4a"
WAVE = {"name": "wave", "from": FROM, "decode": "audio", "channels": "first", "max_seconds": 300}
LENGTH = {"name": "length", "from": FROM, "decode": "audio_length", "follows": "wave"}
RATE = 44100
#: Seconds of a recording, and of each of its segments.
LONG_S, SEGMENT_S = 240, 8
SEGMENTS = 16
#: The frames of a packet, where each has equally many, and the frames before a segment that decoding it takes, at the most: the packets
#: whose bits MP3 takes, a second of Opus, 64 packets of AAC and one before them.
PACKET_FRAMES = {"mp3": 1152, "aac": 1024, "m4a": 1024, "opus": 960}
BEFORE_S = {"mp3": 12 * 1152 / RATE, "aac": 65 * 1024 / RATE, "m4a": 65 * 1024 / RATE, "opus": 1.2}


def noise(frames: int) -> NDArray[Any]:
    """Returns two channels that take encoders many bits."""
    random = numpy.random.Generator(numpy.random.PCG64(3))
    time = numpy.arange(frames)[:, None] / RATE
    return 0.3 * numpy.sin(2 * numpy.pi * 220 * time * (1 + time / 1000)) + 0.1 * random.standard_normal((frames, 2))


def write(path: pathlib.Path, sound: NDArray[Any], rate: int, **keys: Any) -> None:
    """Writes a sound a second at a time: libsndfile's encoder of Vorbis ends the process at more."""
    with soundfile.SoundFile(path, "w", rate, 2, **keys) as file:
        for start in range(0, len(sound), rate):
            file.write(sound[start : start + rate])


def recordings(folder: pathlib.Path) -> dict[str, pathlib.Path]:
    """Writes a recording of each format; returns them by the names of their fields."""
    folder.mkdir()
    sound = noise(LONG_S * RATE)
    quiet = 0.2 * sound[: LONG_S * RATE // 2]
    paths = {name: folder / f"long-{name}.{name}" for name in ("wav", "rf64", "w64", "aiff", "au", "caf", "flac", "mp3", "ogg", "opus")}
    write(paths["wav"], quiet, RATE, subtype="PCM_16")
    write(paths["rf64"], quiet, RATE, subtype="PCM_24", format="RF64")
    write(paths["w64"], quiet, RATE, subtype="FLOAT", format="W64")
    write(paths["aiff"], quiet, RATE, subtype="PCM_16", format="AIFF")
    write(paths["au"], quiet, RATE, subtype="PCM_24", format="AU")
    write(paths["caf"], quiet, RATE, subtype="PCM_16", format="CAF")
    write(paths["flac"], quiet, RATE, subtype="PCM_16")
    write(paths["mp3"], sound, RATE, format="MP3", bitrate_mode="VARIABLE", compression_level=0.2)
    write(paths["ogg"], sound, RATE, format="OGG", subtype="VORBIS", compression_level=0.2)
    write(paths["opus"], sound, 48000, format="OGG", subtype="OPUS", compression_level=0.2)
    if (ffmpeg := shutil.which("ffmpeg")) is not None:
        wave = folder.parent / "sound.wav"
        soundfile.write(wave, sound, RATE)
        # The same packets in both files.
        coded = [("m4a", wave, ["aac", "-b:a", "192k"]), ("aac", folder / "long-m4a.m4a", ["copy"])]
        for name, source, encoder in (*coded, ("oga", paths["flac"], ["copy"]), ("mka", paths["flac"], ["copy"])):
            paths[name] = folder / f"long-{name}.{name}"
            command = [ffmpeg, "-loglevel", "error", "-i", source, "-c:a", *encoder, paths[name]]
            subprocess.run([*map(str, command)], check=True, timeout=LIMIT_S, stdin=subprocess.DEVNULL)
    assert all(path.stat().st_size > 4 << 20 for path in paths.values()), {path.name: path.stat().st_size for path in paths.values()}
    return paths


def test_segments_of_each_format_cost_their_own_bytes_and_are_parts_of_the_whole(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = tmp_path / "bucket"
    paths = recordings(bucket)
    ctl("index", bucket, "--out", tmp_path / "whole")
    whole: dict[str, NDArray[Any]] = {}
    rates: dict[str, int] = {}
    rate = {"name": "rate", "from": FROM, "decode": "audio_rate", "follows": "wave"}
    made = {"name": "whole", "dataset": tmp_path / "whole", "global_batch": 1, "bad_samples": "fail", "epoch_end": "partial", "column": [WAVE, rate, KEY]}
    with spdl_cluster.local(made, tensors="numpy", slots=2) as loader:
        for batch in loader:
            key = batch["key"].text()[0]
            whole[key], rates[key] = numpy.array(batch["wave"][0]), int(batch["rate"][0])
    assert sorted(whole) == sorted(path.stem for path in paths.values())
    seconds = {path.stem: len(whole[path.stem]) / rates[path.stem] for path in paths.values()}
    with (tmp_path / "segments.csv").open("w", newline="") as table:
        writer = csv.writer(table)
        writer.writerow(["file", "offset", "duration"])
        for path in paths.values():
            starts = [number * 15 + 0.137 * (number % 5) for number in range(SEGMENTS)]
            for start in starts:
                if start < seconds[path.stem] - SEGMENT_S - 4:
                    writer.writerow([path.name, start, SEGMENT_S])
            # The last seconds, too.
            writer.writerow([path.name, int(seconds[path.stem] - 3), ""])
    ctl("index", bucket, "--table", tmp_path / "segments.csv")
    columns = [{**WAVE, "span": {"start": "offset", "seconds": "duration"}}, LENGTH, KEY]
    job = {"name": "segments", "dataset": bucket, "seed": 5, "bad_samples": "fail", "global_batch": 4, "epochs": 1, "epoch_end": "partial", "column": columns}
    with spdl_cluster.local(job, tensors="numpy") as loader:
        from_folder = samples(loader)
    sent: list[tuple[str, int]] = []
    with stores.bucket("talks", bucket, sent) as variables:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        with spdl_cluster.local({**job, "dataset": "s3://talks"}, tensors="numpy") as loader:
            from_bucket = samples(loader)
    taken: dict[str, list[float]] = {key: [] for key in whole}
    for one, other in zip(from_folder, from_bucket, strict=True):
        assert one["key"] == other["key"] and numpy.array_equal(one["wave"], other["wave"])
        key, _, start = one["key"].rpartition("@")
        first = round(float(start) * rates[key])
        length = SEGMENT_S * rates[key] if float(start) < seconds[key] - SEGMENT_S else len(whole[key]) - first
        assert one["length"] == length and numpy.array_equal(one["wave"], whole[key][first : first + length]), one["key"]
        taken[key].append(length / rates[key])
    check_bytes(sent, paths, {path.name: (taken[path.stem], seconds[path.stem]) for path in paths.values()})
    packets = sum(seconds[path.stem] * rates[path.stem] / PACKET_FRAMES.get(field, 4096) for field, path in paths.items())
    index = sum(path.stat().st_size for path in (bucket / ".spdl").glob("*.idx"))
    assert 0 < index < 5 * packets, (index, packets)

    # The same recordings in tars, one in each, so that the bytes of each are known.
    tars = tmp_path / "tars"
    tars.mkdir()
    for path in paths.values():
        with tarfile.open(tars / f"{path.stem}.tar", "w") as tar:
            tar.add(path, path.name)
    ctl("index", tars, "--table", tmp_path / "segments.csv", "--out", tmp_path / "of-segments")
    with spdl_cluster.local({**job, "dataset": tmp_path / "of-segments"}, tensors="numpy") as loader:
        from_tars = {sample["key"]: sample["wave"] for sample in samples(loader)}
    assert len(from_tars) == len(from_folder)
    assert all(numpy.array_equal(sample["wave"], from_tars[sample["key"]]) for sample in from_folder)
    # What is packed of a folder, too, with the list of its files.
    (tmp_path / "clips/talks").mkdir(parents=True)
    for path in paths.values():
        (tmp_path / "clips/talks" / path.name).hardlink_to(path)
    head, *rows = (tmp_path / "segments.csv").read_text().splitlines()
    (tmp_path / "packed.csv").write_text("\n".join([head, *(f"talks/{row}" for row in rows)]))
    ctl("pack", tmp_path / "clips", tmp_path / "packed", "--fields", ",".join(paths))
    ctl("index", tmp_path / "packed", "--table", tmp_path / "packed.csv", "--out", tmp_path / "of-packed")
    with spdl_cluster.local({**job, "dataset": tmp_path / "of-packed"}, tensors="numpy") as loader:
        from_packed = {sample["key"].removeprefix("talks/"): sample["wave"] for sample in samples(loader)}
    assert from_packed.keys() == from_tars.keys()
    assert all(numpy.array_equal(wave, from_tars[key]) for key, wave in from_packed.items())
    # Of recordings that are one sample each, a segment that is drawn.
    ctl("index", tars)
    wave = {key: value for key, value in WAVE.items() if key != "max_seconds"}
    drawn = {**job, "column": [{**wave, "rate": RATE, "segment": {"seconds": SEGMENT_S, "pick": "random"}}, KEY]}
    with spdl_cluster.local({**drawn, "dataset": tars}, tensors="numpy") as loader:
        drawn_here = samples(loader)
    sent.clear()
    with stores.bucket("tars", tars, sent) as variables:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        with spdl_cluster.local({**drawn, "dataset": "s3://tars"}, tensors="numpy") as loader:
            drawn_there = samples(loader)
    assert len(drawn_there) == len(paths)
    assert all(numpy.array_equal(one["wave"], other["wave"]) for one, other in zip(drawn_here, drawn_there, strict=True))
    check_bytes(sent, paths, {f"{path.stem}.tar": ([SEGMENT_S], seconds[path.stem]) for path in paths.values()})


def check_bytes(sent: list[tuple[str, int]], paths: dict[str, pathlib.Path], taken: dict[str, tuple[list[float], float]]) -> None:
    """Checks what was read of each object: that of the seconds that samples took of all that it has, with one request each."""
    assert len(taken) == len(paths)
    for (field, path), (name, (segments, seconds)) in zip(paths.items(), taken.items(), strict=True):
        read = [bytes for sent_name, bytes in sent if sent_name == name]
        own_s = sum(segments) + BEFORE_S.get(field, 0) * len(segments)
        own = own_s * path.stat().st_size / seconds
        assert 0 < sum(read) < 1.2 * own, (name, sum(read), own)
        assert len(read) <= len(segments), (name, read)
