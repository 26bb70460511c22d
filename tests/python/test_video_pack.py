"""Videos that `pack` codes anew: how far their key frames are from each other, what they look like, and what is packed as it is."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import tarfile

import numpy
import pytest
import spdl_cluster
from conftest import LIMIT_S, ctl_json, samples
from test_video import KINDS, RATE, VP9, X264, YUV, ffmpeg, job, original, run, video, write

__all__ = ["ffmpeg"]
GOP = 8
FRAMES = 30
FIELDS = "mp4,mkv,webm,txt"


@pytest.fixture
def folder(ffmpeg: str, tmp_path: pathlib.Path) -> pathlib.Path:
    """Writes videos with few key frames, one of them with sound, and a file that is none."""
    files = tmp_path / "files/one"
    files.mkdir(parents=True)
    for name in ("one.mp4", "two.mkv"):
        write(ffmpeg, files / name, ["-c:v", "libx264", "-g", "250", "-bf", "3", *YUV], FRAMES)
    pictures = f"testsrc2=size=96x64:rate={RATE}"
    sound = ["-f", "lavfi", "-i", "sine=duration=1.2", "-c:a", "libopus"]
    run(ffmpeg, "-v", "error", "-f", "lavfi", "-i", pictures, *sound, *VP9[:-2], "-g", "250", *YUV, "-frames:v", FRAMES, files / "three.webm")
    (files / "broken.mp4").write_bytes(b"no video at all")
    (files / "one.txt").write_text("what is seen")
    return files.parent


def packets(path: pathlib.Path, track: str) -> list[tuple[str, bool]]:
    """Returns the bytes of each packet of a track, as a digest, and whether it is a key frame."""
    shown = ["-select_streams", track, "-show_data_hash", "md5", "-show_entries", "packet=flags,data_hash", "-of", "csv=p=0"]
    lines = [line.split(",") for line in run("ffprobe", "-v", "error", *shown, path).decode().split()]
    return [(digest, flags.startswith("K")) for flags, digest, *_ in lines]


def members(dataset: pathlib.Path, to: pathlib.Path) -> pathlib.Path:
    for shard in dataset.glob("*.tar"):
        with tarfile.open(shard) as tar:
            tar.extractall(to, filter="data")
    return to


@pytest.mark.filterwarnings("ignore:.*of the samples")
def test_videos_get_key_frames_and_stay_what_they_show(ffmpeg: str, folder: pathlib.Path, tmp_path: pathlib.Path) -> None:
    told = ctl_json("pack", folder, tmp_path / "a", "--fields", FIELDS, "--gop", GOP, "--no-shuffle", "--name", "set")
    found = members(tmp_path / "a", tmp_path / "members")
    videos = {path.suffix: path for path in found.rglob("*.*") if path.suffix in (".mp4", ".mkv", ".webm") and path.stem != "broken"}
    sizes = [sum((where / path.name).stat().st_size for where in (path.parent, folder / "one")) for path in videos.values()]
    assert told["coded_videos"] == 3 and told["coded_video_bytes"] + told["coded_video_source_bytes"] == sum(sizes), told
    assert [note for note in told["notes"] if "broken.mp4` was packed as it is and not coded anew: `ffmpeg` fails" in note], told["notes"]
    [broken] = found.rglob("broken.mp4")
    assert broken.read_bytes() == b"no video at all" and next(found.rglob("one.txt")).read_text() == "what is seen"
    for path in videos.values():
        before = folder / "one" / path.name
        assert sum(is_key for _, is_key in packets(before, "v")) < 3, path.name
        keys = [number for number, (_, is_key) in enumerate(packets(path, "v")) if is_key]
        assert keys[0] == 0 and max(numpy.diff([*keys, FRAMES])) <= GOP, (path.name, keys)
        ours, theirs = original(ffmpeg, path), original(ffmpeg, before)
        assert ours.shape == theirs.shape == (FRAMES, 64, 96, 3)
        far = abs(ours.astype(int) - theirs).mean(axis=(1, 2, 3))
        assert far.max() < 8, (path.name, far)
        assert packets(path, "a") == packets(before, "a"), path.name
    assert packets(videos[".webm"], "a"), "it has sound"
    command = [os.environ["SPDL_TEST_CTL"], "verify", tmp_path / "a", "--against", folder, "--fields", FIELDS, "--json"]
    verified = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=LIMIT_S)
    report = json.loads(verified.stdout)
    # The file that is no video, the text and the label of each of four records are as they were.
    assert (verified.returncode, report["same_fields"], len(report["faults"])) == (1, 6, 3), report
    for name in ("one.mp4", "two.mkv", "three.webm"):
        [fault] = [fault for fault in report["faults"] if name in fault["problem"]]
        assert "has other bytes than its original, " in fault["problem"], fault
    again = spdl_cluster.pack(folder, tmp_path / "b", fields=FIELDS, gop=GOP, no_shuffle=True, name="set", progress=False)
    assert again.fingerprint == told["fingerprint"]
    made = job(tmp_path / "a", {**video(frames=4), "from": "mkv|webm"}, bad_samples="mask", max_bad_fraction=0.9, epoch_end="partial")
    with spdl_cluster.local(made, tensors="numpy") as loader:
        assert sum(one["video"].any() for one in samples(loader)) == 2


def test_without_it_videos_are_copied_and_wrong_values_are_named(folder: pathlib.Path, tmp_path: pathlib.Path) -> None:
    told = ctl_json("pack", folder, tmp_path / "a", "--fields", FIELDS, "--name", "set")
    assert told["coded_videos"] == 0
    for path in members(tmp_path / "a", tmp_path / "members").rglob("*.m*"):
        assert path.read_bytes() == (folder / "one" / path.name).read_bytes()
    with pytest.raises(spdl_cluster.SpdlError, match="`gop` is 601, not in 1..=600"):
        spdl_cluster.pack(folder, tmp_path / "b", gop=601, progress=False)
    (tmp_path / "empty").mkdir()
    environment = {**os.environ, "PATH": str(tmp_path / "empty")}
    command = [os.environ["SPDL_TEST_CTL"], "pack", str(folder), str(tmp_path / "b"), "--gop", "8"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, env=environment)
    assert done.returncode == 1 and "`gop` needs the program `ffmpeg`, which does not run: install it" in done.stderr, done.stderr
    assert not (tmp_path / "b").exists()


def test_a_bucket_gives_what_a_folder_gives(ffmpeg: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import stores

    (tmp_path / "bucket/clips").mkdir(parents=True)
    write(ffmpeg, tmp_path / "bucket/clips/one.mp4", [*X264, *YUV], FRAMES)
    write(ffmpeg, tmp_path / "bucket/clips/two.mkv", KINDS["open.mkv"], FRAMES)
    options = ["--fields", FIELDS, "--gop", GOP, "--name", "set"]
    here = ctl_json("pack", tmp_path / "bucket", tmp_path / "a", *options)
    with stores.bucket("videos", tmp_path / "bucket") as variables:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        there = ctl_json("pack", "s3://videos", tmp_path / "b", *options)
    assert here["coded_videos"] == there["coded_videos"] == 2 and here["fingerprint"] == there["fingerprint"]
