"""The sound of clips: of files of several containers and codecs, beside the sound that they were made of."""

from __future__ import annotations

import pathlib
from typing import Any

import numpy
import pytest
import spdl_cluster
from conftest import ctl, samples
from numpy.typing import NDArray
from test_video import RATE, VP9, X264, YUV, ffmpeg, job, run, video

__all__ = ["ffmpeg"]
FROM = "mp4|mov|mkv|webm"
HERTZ = 16_000
SECONDS = 3
FRAMES = SECONDS * RATE
#: Files: how `ffmpeg` writes their sound, its rate, and how far what is decoded may be from it.
KINDS: dict[str, tuple[list[str], int, float]] = {
    "aac.mp4": (["-c:a", "aac", "-b:a", "96k"], HERTZ, 0.1),
    "opus.mp4": (["-c:a", "libopus", "-b:a", "96k"], 48_000, 0.1),
    "flac.mp4": (["-c:a", "flac", "-strict", "-2"], HERTZ, 1e-3),
    "mp3.mp4": (["-c:a", "libmp3lame", "-b:a", "96k"], HERTZ, 0.1),
    "fragments.mp4": (["-c:a", "aac", "-b:a", "96k", "-movflags", "frag_keyframe+delay_moov"], HERTZ, 0.1),
    "twos.mov": (["-c:a", "pcm_s16be"], HERTZ, 1e-3),
    "sowt.mov": (["-c:a", "pcm_s16le"], HERTZ, 1e-3),
    "in24.mov": (["-c:a", "pcm_s24le"], HERTZ, 1e-3),
    "fl32.mov": (["-c:a", "pcm_f32be"], HERTZ, 1e-3),
    "lpcm.mov": (["-c:a", "pcm_s32le", "-ar", "96000"], 96_000, 0.02),
    "alaw.mov": (["-c:a", "pcm_alaw"], HERTZ, 0.05),
    "opus.webm": (["-c:a", "libopus", "-b:a", "96k"], 48_000, 0.1),
    "vorbis.webm": (["-c:a", "libvorbis", "-q:a", "6"], HERTZ, 0.1),
    "aac.mkv": (["-c:a", "aac", "-b:a", "96k"], HERTZ, 0.1),
    "flac.mkv": (["-c:a", "flac"], HERTZ, 1e-3),
    "mp3.mkv": (["-c:a", "libmp3lame", "-b:a", "96k"], HERTZ, 0.1),
    "pcm.mkv": (["-c:a", "pcm_s16le"], HERTZ, 1e-3),
    "big.mkv": (["-c:a", "pcm_s24be"], HERTZ, 1e-3),
    "float.mkv": (["-c:a", "pcm_f32le"], HERTZ, 1e-3),
}


def tone(seconds: NDArray[Any]) -> NDArray[Any]:
    """Returns what is heard then, in files whose sound begins with their pictures: a tone that rises, so that each time sounds otherwise."""
    wave: NDArray[Any] = 0.4 * numpy.sin(2 * numpy.pi * (150 * seconds + 120 * seconds**2))
    return wave


def write(ffmpeg: str, path: pathlib.Path, sound: list[str], late: float = 0, seconds: float = SECONDS) -> None:
    """Writes a video with a sound of so many seconds, which begins so late."""
    pictures = ["-f", "lavfi", "-i", f"testsrc2=size=96x64:rate={RATE}:duration={SECONDS}"]
    source = f"aevalsrc=0.4*sin(2*PI*(150*t+120*t*t)):s={HERTZ}:d={seconds}"
    coded = VP9 if path.suffix == ".webm" else X264
    run(ffmpeg, "-v", "error", *pictures, "-itsoffset", late, "-f", "lavfi", "-i", source, *coded, *YUV, *sound, path)


def sound(**keys: Any) -> dict[str, Any]:
    return {"name": "sound", "from": FROM, "decode": "audio", "follows": "video", **keys}


def column(name: str, kind: str, follows: str) -> dict[str, Any]:
    return {"name": name, "from": FROM, "decode": kind, "follows": follows}


def taken(folder: pathlib.Path, *columns: dict[str, Any], **keys: Any) -> list[dict[str, Any]]:
    made = job(folder, *columns, bad_samples="fail", epoch_end="partial", **keys)
    with spdl_cluster.local(made, tensors="numpy") as loader:
        return [one for _ in range(keys.get("epochs", 1)) for one in samples(loader)]


def start(path: pathlib.Path) -> float:
    """Returns when the first frame is shown: `ffmpeg` puts all of a Matroska file behind what coders put before the sound."""
    shown = ["-select_streams", "v", "-show_entries", "stream=start_time", "-of", "csv=p=0"]
    return float(run("ffprobe", "-v", "error", *shown, path))


def shift(ours: NDArray[Any], begin: float, rate: int) -> tuple[float, float]:
    """Returns by how many seconds a sound is late, and how far it then is from what it was made of."""
    times = begin + numpy.arange(len(ours)) / rate
    shifts = numpy.arange(-0.006, 0.006, 0.5 / rate)
    far = [float(numpy.abs(ours - tone(times - late)).max()) for late in shifts]
    return float(shifts[int(numpy.argmin(far))]), min(far)


def exact(name: str, rate: int) -> float:
    """Returns how late a sound may be: `ffmpeg` rounds times and delays in Matroska to thousandths of a second, each by itself."""
    return 0.004 if name.endswith(("mkv", "webm")) else 2 / rate


@pytest.mark.parametrize("name", KINDS)
def test_the_sound_of_a_clip_is_heard_while_the_clip_is_shown(ffmpeg: str, tmp_path: pathlib.Path, name: str) -> None:
    written, rate, near = KINDS[name]
    write(ffmpeg, tmp_path / name, written)
    ctl("index", tmp_path)
    columns = [video(frames=20), column("times", "video_times", "video"), sound(), column("length", "audio_length", "sound")]
    begins, first = set(), start(tmp_path / name)
    for one in taken(tmp_path, *columns, epochs=4):
        begin = float(one["times"][0])
        begins.add(begin)
        assert one["sound"].shape == (rate * 20 // RATE,) and one["length"] == len(one["sound"])
        # Coders change the beginning of a sound.
        within = one["sound"][rate // 10 :]
        late, far = shift(within, begin - first + 0.1, rate)
        assert far <= near and abs(late) <= exact(name, rate), (begin, late, far)
    assert len(begins) > 1, begins


@pytest.mark.parametrize("name", ["aac.mp4", "twos.mov", "opus.webm", "flac.mkv"])
def test_a_sound_that_begins_late_and_ends_early_is_silent_there(ffmpeg: str, tmp_path: pathlib.Path, name: str) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    write(ffmpeg, folder / name, KINDS[name][0], late=0.5, seconds=1.5)
    ctl("index", folder)
    clip: dict[str, Any] = {"frames": FRAMES, "pick": "start"}
    columns = [video(**clip), sound(rate=HERTZ, segment={"seconds": SECONDS}), column("length", "audio_length", "sound")]
    [one] = taken(folder, *columns, {**sound(rate=HERTZ), "name": "ragged"})
    heard = numpy.abs(one["sound"]) > 0.01
    first, last = numpy.flatnonzero(heard)[[0, -1]] / HERTZ
    assert one["sound"].shape == (SECONDS * HERTZ,) and abs(first - 0.5) < 0.03 and abs(last - 2.0) < 0.06, (first, last)
    late, far = shift(one["sound"][HERTZ : 3 * HERTZ // 2], 0.5, HERTZ)
    assert abs(late) < exact(name, HERTZ) and far < 0.1, (late, far)
    assert abs(one["length"] / HERTZ - 2.0) < 0.06 and (one["sound"][one["length"] :] == 0).all()
    assert numpy.array_equal(one["ragged"], one["sound"][: one["length"]])
    # A clip behind its end.
    clip = {"frames": 2, "at": "times"}
    (tmp_path / "times.csv").write_text(f"file,times\n{name},2.6 2.8\n")
    ctl("index", folder, "--table", tmp_path / "times.csv", "--force")
    [one] = taken(folder, video(**clip), sound(rate=HERTZ, segment={"seconds": 1}), column("length", "audio_length", "sound"))
    assert one["length"] == 0 and one["sound"].shape == (HERTZ,) and not one["sound"].any()
    with pytest.raises(spdl_cluster.SpdlError, match="has no sound while the clip is shown"):
        taken(folder, video(**clip), sound())


def test_the_length_is_that_of_the_clip_or_of_the_segment(ffmpeg: str, tmp_path: pathlib.Path) -> None:
    write(ffmpeg, tmp_path / "one.mp4", KINDS["aac.mp4"][0])
    ctl("index", tmp_path)
    clips: list[tuple[dict[str, Any], float]] = [
        ({"frames": 10, "pick": "start"}, 0.4),
        ({"frames": 10, "stride": 3, "pick": "start"}, 1.2),
        ({"frames": 8, "rate": 5, "pick": "start"}, 1.6),
        ({"frames": 8, "pick": "uniform"}, SECONDS),
        ({"frames": 99, "pick": "all", "rate": 5}, SECONDS),
    ]
    for clip, seconds in clips:
        columns = [video(**clip), sound(rate=HERTZ), {**sound(rate=HERTZ, segment={"seconds": 0.25}), "name": "part"}]
        columns.append({**sound(rate=HERTZ, segment={"seconds": 0.5}, features={"preset": "kaldi"}), "name": "features"})
        [one] = taken(tmp_path, *columns)
        assert abs(len(one["sound"]) - seconds * HERTZ) <= 0.05 * HERTZ, (clip, len(one["sound"]))
        assert numpy.array_equal(one["part"], one["sound"][: HERTZ // 4]) and one["features"].shape == (48, 80)


def test_a_video_without_sound_is_a_bad_sample_and_whole_sounds_are_read(ffmpeg: str, tmp_path: pathlib.Path) -> None:
    (tmp_path / "silent").mkdir()
    for name in ("silent.mp4", "silent.mkv"):
        run(ffmpeg, "-v", "error", "-f", "lavfi", "-i", f"testsrc2=size=96x64:rate={RATE}", *X264, *YUV, "-frames:v", 20, tmp_path / "silent" / name)
        ctl("index", tmp_path / "silent", "--force")
        with pytest.raises(spdl_cluster.SpdlError, match="has no track of sound"):
            taken(tmp_path / "silent", video(frames=4), sound())
        (tmp_path / "silent" / name).unlink()
    (tmp_path / "heard").mkdir()
    write(ffmpeg, tmp_path / "heard/one.mkv", KINDS["flac.mkv"][0])
    ctl("index", tmp_path / "heard")
    [one] = taken(tmp_path / "heard", {"name": "sound", "from": "mkv", "decode": "audio"})
    assert one["sound"].shape == (SECONDS * HERTZ,)
    assert float(numpy.abs(one["sound"] - tone(numpy.arange(SECONDS * HERTZ) / HERTZ)).max()) < 1e-3
