"""MP3, Vorbis, Opus and AAC: what columns have of files of several encoders beside what `soundfile` (libsndfile) and `ffmpeg` read."""

from __future__ import annotations

import pathlib
import shutil
import struct
import subprocess
from typing import Any

import numpy
import pytest
import spdl_cluster
from conftest import LIMIT_S, ctl, samples
from numpy.typing import NDArray
from test_audio import job

soundfile = pytest.importorskip("soundfile")

FROM = "mp3|ogg|oga|opus|aac|m4a|mka"
WAVE = {"name": "wave", "from": FROM, "decode": "audio"}
FIRST = {**WAVE, "name": "first", "channels": "first"}
LENGTH = {"name": "length", "from": FROM, "decode": "audio_length", "follows": "wave"}
RATE = {"name": "rate", "from": FROM, "decode": "audio_rate", "follows": "wave"}

#: What makes FFmpeg put the packets of an MP4 into several fragments.
FRAGMENTS = ["-movflags", "frag_keyframe+empty_moov", "-frag_duration", "700000"]


def sound(number: int, frames: int, channels: int, rate: int) -> NDArray[Any]:
    """Returns a sound with tones that rise, noise and silence, each a little different."""
    random = numpy.random.Generator(numpy.random.PCG64([number, channels]))
    time = numpy.arange(frames)[:, None] / rate
    tones = 0.4 * numpy.sin(2 * numpy.pi * (110 + 13 * number + 70 * numpy.arange(channels)) * time * (1 + 0.3 * time))
    sound = tones + [0.0, 0.01, 0.1][number % 3] * random.standard_normal((frames, channels))
    sound[frames // 2 : frames // 2 + frames // 8] = 0
    return numpy.clip(sound, -1, 0.9999)


def program(name: str) -> str:
    """Returns the path of an encoder."""
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"there is no `{name}`: install the package of that name")
    return path


def run(*command: object) -> None:
    subprocess.run([str(part) for part in command], check=True, timeout=LIMIT_S, stdin=subprocess.DEVNULL)


def read(folder: pathlib.Path, *columns: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Returns the columns of each file."""
    ctl("index", folder)
    made = job(folder, WAVE, FIRST, LENGTH, RATE, *columns, bad_samples="fail", shuffle=False, epoch_end="partial")
    with spdl_cluster.local(made, tensors="numpy") as loader:
        return {one["key"]: one for one in samples(loader)}


def check(one: dict[str, Any], theirs: NDArray[Any], rate: int, near: float) -> None:
    """Compares the columns of a file with what another program reads."""
    assert (one["length"], one["rate"]) == (len(theirs), rate), one["key"]
    assert abs(one["first"] - theirs[:, 0]).max(initial=0) <= near, one["key"]
    assert abs(one["wave"] - theirs.mean(axis=1)).max(initial=0) <= near, one["key"]


def check_all(folder: pathlib.Path, near: float) -> None:
    found = read(folder)
    paths = [path for path in folder.iterdir() if path.suffix in (".mp3", ".ogg", ".opus")]
    assert len(found) == len(paths) > 0
    for path in paths:
        theirs, rate = soundfile.read(path, dtype="float32", always_2d=True)
        check(found[path.stem], theirs, rate, near)


def test_mp3_of_all_rates_is_what_soundfile_reads(tmp_path: pathlib.Path) -> None:
    for number, rate in enumerate((8000, 11025, 12000, 16000, 22050, 24000, 32000, 44100, 48000)):
        for channels in (1, 2):
            for mode in ("CONSTANT", "AVERAGE", "VARIABLE"):
                made = sound(number, rate + 371 * number, channels, rate)
                path = tmp_path / f"{rate}-{channels}-{mode}.mp3"
                soundfile.write(path, made, rate, format="MP3", bitrate_mode=mode, compression_level=0.3 + 0.05 * number)
    check_all(tmp_path, 1e-5)


def test_tags_and_files_that_are_joined_or_cut_off_are_what_soundfile_reads(tmp_path: pathlib.Path) -> None:
    soundfile.write(tmp_path / "plain.mp3", sound(1, 20000, 1, 16000), 16000, format="MP3", bitrate_mode="VARIABLE")
    plain = (tmp_path / "plain.mp3").read_bytes()
    id3 = b"ID3\x03\0\0\0\0\x02\x2c" + b"\xff\xfb" * 150
    ape = b"APETAGEX" + struct.pack("<IIII", 2000, 32, 0, 0x80000000) + bytes(8)
    tag = b"TAG" + b"x" * 125
    for name, content in {
        "id3": id3 + plain,
        "twice": id3 + id3 + plain,
        "behind": plain + tag,
        "ape": plain + ape + tag,
        "zeros": plain + bytes(1000),
        "joined": plain + plain,
        # The head counts more packets than there are.
        "cut": plain[: len(plain) // 2],
        "short": plain[:-20],
    }.items():
        (tmp_path / f"{name}.mp3").write_bytes(content)
    check_all(tmp_path, 1e-5)


def test_mp3_and_vorbis_of_ffmpeg_are_what_soundfile_reads(tmp_path: pathlib.Path) -> None:
    ffmpeg = program("ffmpeg")
    kinds = {
        "info.mp3": ["-c:a", "libmp3lame", "-b:a", "48k"],
        "joint.mp3": ["-c:a", "libmp3lame", "-q:a", "7", "-joint_stereo", "1"],
        "bare.mp3": ["-c:a", "libmp3lame", "-b:a", "64k", "-write_xing", "0", "-id3v2_version", "0"],
        "low.ogg": ["-c:a", "libvorbis", "-q:a", "0"],
        "high.ogg": ["-c:a", "libvorbis", "-q:a", "9"],
    }
    for number, (rate, channels) in enumerate([(16000, 1), (22050, 2), (44100, 1), (44100, 2), (48000, 2)]):
        wav = tmp_path / "source.wav"
        soundfile.write(wav, sound(number, 2 * rate + 37 * number, channels, rate), rate, subtype="PCM_16")
        for name, arguments in kinds.items():
            run(ffmpeg, "-v", "error", "-i", wav, *arguments, tmp_path / f"{rate}-{channels}-{name}")
        wav.unlink()
    check_all(tmp_path, 1e-5)


def test_vorbis_of_all_lengths_and_channels_is_what_soundfile_reads(tmp_path: pathlib.Path) -> None:
    for number, rate in enumerate((8000, 16000, 22050, 44100, 48000)):
        for channels in (1, 2, 6) if rate > 40000 else (1, 2):
            made = sound(number, rate + 371 * number, channels, rate)
            soundfile.write(tmp_path / f"{rate}-{channels}.ogg", made, rate, format="OGG", subtype="VORBIS")
    for frames in (1, 100, 1000, 5000):
        soundfile.write(tmp_path / f"short-{frames}.ogg", sound(1, frames, 1, 44100), 44100, format="OGG", subtype="VORBIS")
    check_all(tmp_path, 1e-5)


def test_opus_of_all_rates_and_channels_is_what_soundfile_reads(tmp_path: pathlib.Path) -> None:
    # libsndfile decodes to the rate that the file was made from, and spdl-cluster to 48 kHz.
    for number, channels in enumerate((1, 2, 3, 6, 8)):
        for level in (0.0, 0.5, 0.9, 0.99):
            made = sound(number, 48000 + 371 * number, channels, 48000)
            path = tmp_path / f"{channels}-{level}.opus"
            soundfile.write(path, made, 48000, format="OGG", subtype="OPUS", compression_level=level)
    for frames in (1, 100, 1000, 5000):
        soundfile.write(tmp_path / f"short-{frames}.opus", sound(1, frames, 1, 48000), 48000, format="OGG", subtype="OPUS")
    check_all(tmp_path, 1e-4)


def test_opus_of_ffmpeg_is_what_soundfile_reads(tmp_path: pathlib.Path) -> None:
    ffmpeg = program("ffmpeg")
    kinds = [(mode, rate) for mode in ("voip", "audio", "lowdelay") for rate in ("8k", "16k", "28k", "64k")]
    durations = (2.5, 5, 10, 20, 40, 60, 80, 100, 120)
    for channels in (1, 2):
        wav = tmp_path / "source.wav"
        soundfile.write(wav, 0.5 * sound(channels, 3 * 48000 + 37, channels, 48000), 48000, subtype="PCM_16")
        for number, (mode, rate) in enumerate(kinds * 2):
            duration = durations[number % len(durations)]
            codec = ["-c:a", "libopus", "-application", mode, "-b:a", rate, "-frame_duration", duration]
            run(ffmpeg, "-v", "error", "-y", "-i", wav, *codec, tmp_path / f"{channels}-{mode}-{rate}-{duration}.opus")
        wav.unlink()
    check_all(tmp_path, 1e-4)


def test_opus_in_mp4_is_what_was_encoded(tmp_path: pathlib.Path) -> None:
    ffmpeg = program("ffmpeg")
    for channels in (1, 2):
        wav = tmp_path / "source.wav"
        soundfile.write(wav, sound(0, 48000 + 37, channels, 48000), 48000, subtype="PCM_16")
        for kind, arguments in {"tables": [], "fragments": FRAGMENTS}.items():
            path = tmp_path / f"{channels}-{kind}.m4a"
            run(ffmpeg, "-v", "error", "-i", wav, "-c:a", "libopus", "-b:a", "96k", "-f", "mp4", *arguments, path)
        wav.unlink()
    found = read(tmp_path)
    assert len(found) == 4
    for key, one in found.items():
        command = [ffmpeg, "-v", "error", "-c:a", "libopus", "-i", str(tmp_path / f"{key}.m4a"), "-f", "f32le", "-"]
        raw = subprocess.run(command, check=True, capture_output=True, timeout=LIMIT_S)
        theirs = numpy.frombuffer(raw.stdout, "<f4").reshape(-1, int(key[0]))
        # FFmpeg leaves what the encoder has put behind the sound, and so do we where packets are in fragments.
        assert len(theirs) > 48000 + 37
        check(one, theirs if "fragments" in key else theirs[: 48000 + 37], 48000, 1e-4)


def test_aac_is_what_ffmpeg_decodes(tmp_path: pathlib.Path) -> None:
    ffmpeg = program("ffmpeg")
    # Without noise that decoders make up.
    kinds = {
        "a.m4a": ["-b:a", "48k"],
        "b.aac": ["-b:a", "64k"],
        "c.m4a": ["-q:a", "1", "-movflags", "+faststart"],
        "d.m4a": ["-b:a", "48k", *FRAGMENTS],
    }
    for number, (rate, channels) in enumerate([(8000, 1), (16000, 1), (22050, 2), (44100, 2), (48000, 1)]):
        wav = tmp_path / "source.wav"
        soundfile.write(wav, sound(number, 5 * rate + 37 * number, channels, rate), rate, subtype="PCM_16")
        for name, arguments in kinds.items():
            run(ffmpeg, "-v", "error", "-i", wav, "-c:a", "aac", "-aac_pns", "0", *arguments, tmp_path / f"{rate}-{channels}-{name}")
        wav.unlink()
    part = {**FIRST, "name": "part", "rate": 48000, "segment": {"seconds": 0.5, "pick": "middle"}}
    found = read(tmp_path, part)
    assert len(found) == 20
    for key, one in found.items():
        [path] = tmp_path.glob(f"{key}.*")
        rate, channels = (int(number) for number in key.split("-")[:2])
        raw = subprocess.run([ffmpeg, "-v", "error", "-i", path, "-f", "f32le", "-"], check=True, capture_output=True, timeout=LIMIT_S)
        check(one, numpy.frombuffer(raw.stdout, "<f4").reshape(-1, channels), rate, 1e-4)
        if rate == 48000:
            start = (len(one["first"]) - 24000) // 2
            assert numpy.array_equal(one["part"], one["first"][start : start + 24000]), key


def test_sounds_in_other_containers_are_what_ffmpeg_decodes(tmp_path: pathlib.Path) -> None:
    ffmpeg = program("ffmpeg")
    # How they are written, their rate, and how far samples may be from FFmpeg's.
    kinds: dict[str, tuple[list[str], int, float]] = {
        "flac-ogg.oga": (["-c:a", "flac"], 44100, 0),
        "flac24.oga": (["-c:a", "flac", "-sample_fmt", "s32"], 44100, 0),
        "flac-mp4.m4a": (["-c:a", "flac", "-strict", "-2", "-f", "mp4"], 44100, 0),
        "flac-mka.mka": (["-c:a", "flac"], 44100, 0),
        "s16.mka": (["-c:a", "pcm_s16le"], 44100, 0),
        "s24be.mka": (["-c:a", "pcm_s24be"], 44100, 0),
        "u8.mka": (["-c:a", "pcm_u8"], 44100, 0),
        "f32.mka": (["-c:a", "pcm_f32le"], 44100, 0),
        "s16be.m4a": (["-c:a", "pcm_s16be", "-f", "mov"], 44100, 0),
        "f64.m4a": (["-c:a", "pcm_f64le", "-f", "mov"], 44100, 0),
        "mp3-mka.mka": (["-c:a", "libmp3lame", "-b:a", "96k"], 44100, 1e-5),
        "mp3-mp4.m4a": (["-c:a", "libmp3lame", "-b:a", "96k", "-f", "mp4"], 44100, 1e-5),
        "vorbis.mka": (["-c:a", "libvorbis", "-q:a", "4"], 44100, 1e-5),
        "opus.mka": (["-c:a", "libopus", "-b:a", "96k"], 48000, 1e-4),
        "aac.mka": (["-c:a", "aac", "-aac_pns", "0", "-b:a", "96k"], 44100, 1e-4),
    }
    for channels in (1, 2):
        wav = tmp_path / "source.wav"
        soundfile.write(wav, sound(1, 3 * 44100 + 37, channels, 44100), 44100, subtype="PCM_16")
        for name, (arguments, rate, _) in kinds.items():
            run(ffmpeg, "-v", "error", "-i", wav, *arguments, "-ar", rate, tmp_path / f"{channels}-{name}")
        wav.unlink()
    part = {**FIRST, "name": "part", "segment": {"seconds": 0.5, "pick": "middle"}, "rate": 44100}
    found = read(tmp_path, part)
    assert len(found) == 2 * len(kinds)
    for key, one in found.items():
        [path] = tmp_path.glob(f"{key}.*")
        _, rate, near = kinds[path.name[2:]]
        decoder = ["-c:a", "libopus"] if "opus" in path.name else []
        command = [ffmpeg, "-v", "error", *decoder, "-i", str(path), "-f", "f32le", "-"]
        raw = subprocess.run(command, check=True, capture_output=True, timeout=LIMIT_S)
        theirs = numpy.frombuffer(raw.stdout, "<f4").reshape(-1, int(path.name[0]))
        check(one, theirs, rate, near)
        if rate == 44100:
            start = (len(one["first"]) - 22050) // 2
            assert numpy.array_equal(one["part"], one["first"][start : start + 22050]), key


def test_segments_are_parts_of_the_whole(tmp_path: pathlib.Path) -> None:
    kinds = [("mp3", "MP3", "MPEG_LAYER_III"), ("ogg", "OGG", "VORBIS"), ("opus", "OGG", "OPUS")]
    for number, (name, format, subtype) in enumerate(kinds):
        soundfile.write(tmp_path / f"{number}.{name}", sound(number, 480000, 1, 48000), 48000, format=format, subtype=subtype)
    parts = [{**WAVE, "name": f"part-{pick}", "rate": 48000, "segment": {"seconds": 0.5, "pick": pick}} for pick in ("start", "middle")]
    found = read(tmp_path, *parts)
    for key, one in found.items():
        for part, start in (("part-start", 0), ("part-middle", (480000 - 24000) // 2)):
            expected = one["wave"][start : start + 24000]
            assert numpy.array_equal(one[part], expected), key


def test_a_folder_of_them_is_found_and_told(tmp_path: pathlib.Path) -> None:
    for number in range(6):
        name, format, subtype = [("mp3", "MP3", "MPEG_LAYER_III"), ("oga", "OGG", "VORBIS"), ("opus", "OGG", "OPUS")][number % 3]
        soundfile.write(tmp_path / f"{number}.{name}", sound(number, 16000, 1, 16000), 16000, format=format, subtype=subtype)
    for name, format in (("aiff", "AIFF"), ("au", "AU"), ("caf", "CAF"), ("w64", "W64")):
        soundfile.write(tmp_path / f"{name}.{name}", sound(1, 16000, 1, 16000), 16000, format=format)
    assert "10 samples in 10 records" in ctl("index", tmp_path).stdout
    assert {"MP3", "Vorbis", "Opus", "AIFF", "AU", "CAF", "WAV"} <= {word.strip(",.") for word in ctl("info", tmp_path).stdout.split()}
    ctl("job", "init", tmp_path, "--out", tmp_path / "job.toml")
    made = (tmp_path / "job.toml").read_text()
    assert 'decode = "audio"' in made and all(name in made for name in ("mp3", "oga", "opus", "aiff", "au")), made


def test_what_cannot_be_read_is_named(tmp_path: pathlib.Path) -> None:
    soundfile.write(tmp_path / "good.ogg", sound(1, 20000, 1, 16000), 16000, format="OGG", subtype="VORBIS")
    soundfile.write(tmp_path / "apart.ogg", sound(1, 20000, 3, 44100), 44100, format="OGG", subtype="VORBIS")
    soundfile.write(tmp_path / "good.opus", sound(1, 20000, 1, 16000), 16000, format="OGG", subtype="OPUS")
    ogg, opus = ((tmp_path / f"good.{name}").read_bytes() for name in ("ogg", "opus"))
    for number, (name, content, problem) in enumerate(
        [
            ("ogg", ogg[:-5], "the file ends within this page"),
            ("ogg", ogg[:6000] + bytes([ogg[6000] ^ 1]) + ogg[6001:], "the page has a wrong checksum"),
            ("ogg", ogg + ogg, "a chained Ogg file"),
            ("opus", opus[:-5], "the file ends within this page"),
            ("opus", opus[:20] + bytes([opus[20] ^ 1]) + opus[21:], "the page has a wrong checksum"),
            ("opus", opus + opus, "a chained Ogg file"),
            ("ogg", (tmp_path / "apart.ogg").read_bytes(), "has Vorbis with several channels that are not coupled"),
            ("mp3", b"ID3\x04\0\0\0\0\0\x01x and no packet of any codec", "no packet of MP3 follows the tag"),
        ]
    ):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / f"bad.{name}").write_bytes(content)
        ctl("index", folder)
        failing = job(folder, WAVE, bad_samples="fail", global_batch=1)
        with pytest.raises(spdl_cluster.SpdlError) as error, spdl_cluster.local(failing, tensors="numpy") as loader:
            samples(loader)
        assert problem in str(error.value) and "`bad`" in str(error.value), error.value
