"""Sounds: what columns have of WAV, AIFF, AU, CAF and FLAC files beside what `soundfile` reads, and the page of the guide."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
from typing import Any

import numpy
import pytest
import spdl_cluster
from conftest import LIMIT_S, Cluster, ctl, ctl_json, samples
from numpy.typing import NDArray
from test_recipes import Recipe

soundfile = pytest.importorskip("soundfile")

SOUNDS = 40
RATE = 16000
FROM = "flac|wav|aiff|au|caf"
WAVE = {"name": "wave", "from": FROM, "decode": "audio", "rate": RATE}
LENGTH = {"name": "length", "from": FROM, "decode": "audio_length", "follows": "wave"}
KEY = {"name": "key", "from": "__key__", "decode": "text"}

#: The kinds of samples that files have, by their containers.
SUBTYPES = {
    "WAV": ["PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE", "ULAW", "ALAW"],
    "WAVEX": ["PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE", "ULAW", "ALAW"],
    "RF64": ["PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE", "ULAW", "ALAW"],
    "W64": ["PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE", "ULAW", "ALAW"],
    "FLAC": ["PCM_S8", "PCM_16", "PCM_24"],
    "AIFF": ["PCM_S8", "PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE", "ULAW", "ALAW"],
    "CAF": ["PCM_S8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE", "ULAW", "ALAW"],
    "AU": ["PCM_S8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE", "ULAW", "ALAW"],
}


def sound(number: int, frames: int, channels: int = 1) -> NDArray[Any]:
    """Returns a sound with tones, noise and silence, each a little different."""
    random = numpy.random.Generator(numpy.random.PCG64([number, channels]))
    time = numpy.arange(frames)[:, None] / RATE
    tones = 0.4 * numpy.sin(2 * numpy.pi * (110 + 13 * number + 7 * numpy.arange(channels)) * time)
    sound = tones + [0.0, 0.01, 0.3][number % 3] * random.standard_normal((frames, channels))
    sound[frames // 2 : frames // 2 + frames // 8] = 0
    return numpy.clip(sound, -1, 0.9999)


def frames_of(number: int) -> int:
    return 1000 + number * number * 71


@pytest.fixture(scope="module")
def clips(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Writes a folder of sounds with their texts, half of them FLAC, and indexes it."""
    folder = tmp_path_factory.mktemp("clips")
    for number in range(SOUNDS):
        speaker = folder / f"speaker-{number % 3}"
        speaker.mkdir(exist_ok=True)
        suffix = "flac" if number % 2 else "wav"
        soundfile.write(speaker / f"{number:03}.{suffix}", sound(number, frames_of(number)), RATE, subtype="PCM_16")
        (speaker / f"{number:03}.txt").write_text(f"this is clip {number}")
    report = ctl("index", folder).stdout
    assert f"{SOUNDS} samples in {SOUNDS} records" in report, report
    return folder


def job(dataset: pathlib.Path, *columns: dict[str, Any], **keys: Any) -> dict[str, Any]:
    return {"name": "sounds", "dataset": dataset, "seed": 5, "global_batch": 8, **keys, "column": [*columns, KEY]}


def original(dataset: pathlib.Path, key: str, **keys: Any) -> NDArray[Any]:
    [path] = [path for path in dataset.glob(f"{key}.*") if path.suffix[1:] in FROM.split("|")]
    read, _ = soundfile.read(path, dtype="float32", **keys)
    return numpy.asarray(read)


def test_whole_sounds_are_bit_for_bit_what_soundfile_reads_over_both_transports(clips: pathlib.Path, cluster: Cluster) -> None:
    made = job(clips, WAVE, LENGTH, {**WAVE, "name": "i16", "dtype": "i16"}, name="whole-sounds")
    name = cluster.submit(made)
    with spdl_cluster.local(made, tensors="numpy") as loader:
        local = samples(loader)
    assert len({one["key"] for one in local}) == SOUNDS
    for one in local:
        theirs = original(clips, one["key"])
        assert one["wave"].dtype == numpy.float32
        assert numpy.array_equal(one["wave"], theirs), one["key"]
        assert one["length"] == len(theirs) == frames_of(int(one["key"][-3:]))
        assert numpy.array_equal(one["i16"], theirs * 32768)
    for transport in ("local", "quic"):
        with cluster.connect(0, 1, job=name, run=transport, transport=transport, tensors="numpy") as loader:
            there = samples(loader)
        assert [one["key"] for one in there] == [one["key"] for one in local]
        assert all(numpy.array_equal(a["wave"], b["wave"]) for a, b in zip(there, local))


def test_random_segments_depend_on_seed_epoch_and_sample_and_not_on_the_number_of_ranks(clips: pathlib.Path, cluster: Cluster) -> None:
    segment = {"seconds": 0.5, "pick": "random"}
    made = job(clips, {**WAVE, "segment": segment}, LENGTH, name="random-segments", epochs=2)
    name = cluster.submit(made)
    with spdl_cluster.local(made, tensors="numpy") as loader:
        # Each loop is an epoch.
        alone = samples(loader) + samples(loader)
    starts: dict[str, list[int]] = {}
    for one in alone:
        theirs, length = original(clips, one["key"]), int(one["length"])
        assert one["wave"].shape == (RATE // 2,) and length == min(RATE // 2, len(theirs))
        assert not one["wave"][length:].any()
        places = [start for start in range(len(theirs) - length + 1) if theirs[start] == one["wave"][0]]
        found = [start for start in places if numpy.array_equal(theirs[start : start + length], one["wave"][:length])]
        assert found, one["key"]
        starts.setdefault(one["key"], []).append(found[0])
    long = [of_key for key, of_key in starts.items() if frames_of(int(key[-3:])) > RATE]
    assert len(long) > 20
    assert sum(first != second for first, second in long) > len(long) * 0.9, "each epoch draws anew"
    with cluster.connect(0, 2, job=name, tensors="numpy") as first, cluster.connect(1, 2, job=name, tensors="numpy") as second:
        for number, batches in enumerate(zip(first, second)):
            rows = numpy.concatenate([batch["wave"] for batch in batches])
            expected = [one["wave"] for one in alone[number * 8 : number * 8 + 8]]
            assert sorted(row.tobytes() for row in rows) == sorted(row.tobytes() for row in expected)


@pytest.mark.parametrize("pick", ["start", "middle"])
def test_segments_from_a_fixed_place(clips: pathlib.Path, pick: str) -> None:
    made = job(clips, {**WAVE, "segment": {"seconds": 0.25, "pick": pick}})
    with spdl_cluster.local(made, tensors="numpy") as loader:
        for one in samples(loader):
            theirs = original(clips, one["key"])
            start = max(0, len(theirs) - 4000) // 2 if pick == "middle" else 0
            expected = theirs[start : start + 4000]
            assert numpy.array_equal(one["wave"][: len(expected)], expected) and not one["wave"][len(expected) :].any()


def write_kinds(folder: pathlib.Path) -> None:
    """Writes a file of each kind, with several numbers of channels and frames."""
    for container, subtypes in SUBTYPES.items():
        for subtype in subtypes:
            for channels in (1, 2, 5, 8):
                for frames in (1, 17, 4097, 9000):
                    suffix = container.lower() if container in ("FLAC", "AIFF", "AU", "CAF") else "wav"
                    path = folder / f"{container}-{subtype}-{channels}-{frames}.{suffix}"
                    rate = 44100 if channels == 2 else RATE
                    soundfile.write(path, sound(frames, frames, channels), rate, subtype=subtype, format=container)


def test_files_of_every_kind_are_what_soundfile_reads(tmp_path: pathlib.Path) -> None:
    write_kinds(tmp_path)
    ctl("index", tmp_path)
    whole = {"name": "wave", "from": FROM, "decode": "audio"}
    first = {**whole, "name": "first", "channels": "first"}
    rate = {"name": "rate", "from": FROM, "decode": "audio_rate", "follows": "wave"}
    made = job(tmp_path, whole, first, LENGTH, rate, bad_samples="fail", shuffle=False, epoch_end="partial")
    with spdl_cluster.local(made, tensors="numpy") as loader:
        found = samples(loader)
    assert len(found) == sum(path.is_file() for path in tmp_path.iterdir())
    for one in found:
        theirs = original(tmp_path, one["key"], always_2d=True)
        assert one["length"] == len(theirs)
        assert one["rate"] == (44100 if theirs.shape[1] == 2 else RATE)
        assert numpy.array_equal(one["first"], theirs[:, 0]), one["key"]
        mean = theirs[:, 0].copy()
        for channel in theirs.T[1:]:
            mean += channel
        mean /= numpy.float32(theirs.shape[1])
        assert numpy.array_equal(one["wave"], mean), one["key"]


def test_channels_can_be_kept(tmp_path: pathlib.Path) -> None:
    for number in range(8):
        soundfile.write(tmp_path / f"{number}.wav", sound(number, 500 + number, 2), RATE, subtype="PCM_24")
    ctl("index", tmp_path)
    whole = {"name": "wave", "from": "wav", "decode": "audio", "channels": 2}
    part = {**whole, "name": "part", "rate": RATE, "segment": {"seconds": 0.02, "pick": "start"}}
    with spdl_cluster.local(job(tmp_path, whole, part), tensors="numpy") as loader:
        for one in samples(loader):
            theirs = original(tmp_path, one["key"])
            assert numpy.array_equal(one["wave"], theirs)
            assert numpy.array_equal(one["part"], theirs[:320])


def test_files_of_another_rate_are_resampled_and_segments_are_parts_of_that(tmp_path: pathlib.Path) -> None:
    def tone(number: int, rate: int, frames: int) -> NDArray[Any]:
        return 0.4 * numpy.sin(2 * numpy.pi * (300 + 400 * number) * numpy.arange(frames) / rate)

    for number in range(8):
        soundfile.write(tmp_path / f"{number}.flac", tone(number, 44100, 30000 + number), 44100, subtype="PCM_16")
    ctl("index", tmp_path)
    part = {**WAVE, "name": "part", "segment": {"seconds": 0.1, "pick": "middle"}}
    with spdl_cluster.local(job(tmp_path, WAVE, part, LENGTH), tensors="numpy") as loader:
        for one in samples(loader):
            wave, number = one["wave"], int(one["key"])
            assert one["length"] == len(wave) == -(-(30000 + number) * RATE // 44100)
            start = (len(wave) - 1600) // 2
            assert numpy.array_equal(one["part"], wave[start : start + 1600])
            # Near the ends, the filter meets the silence around the sound.
            error = abs(wave - tone(number, RATE, len(wave)))[100:-100].max()
            assert error < 0.003, (number, error)


@pytest.mark.parametrize("preset", ["whisper", "kaldi", "lhotse", "torchaudio"])
def test_features_are_those_of_the_code_that_they_are_named_after(clips: pathlib.Path, preset: str) -> None:
    torch = pytest.importorskip("torch")
    torchaudio = pytest.importorskip("torchaudio")

    def expected(wave: NDArray[Any]) -> Any:
        sound = torch.from_numpy(wave)
        if preset == "torchaudio":
            return torchaudio.transforms.MelSpectrogram(RATE, n_fft=400, hop_length=160, n_mels=40)(sound).T.numpy()
        if preset == "whisper":
            banks = torchaudio.functional.melscale_fbanks(201, 0, 8000, 40, RATE, norm="slaney", mel_scale="slaney")
            spectrum = torch.stft(sound, 400, 160, window=torch.hann_window(400), return_complex=True)[:, :-1].abs() ** 2
            logs = (banks.T @ spectrum).clamp(min=1e-10).log10()
            return ((logs.maximum(logs.max() - 8) + 4) / 4).T.numpy()
        scale = 32768 if preset == "kaldi" else 1
        return torchaudio.compliance.kaldi.fbank(scale * sound[None], num_mel_bins=40, sample_frequency=RATE).numpy()

    sides = {"hop_length": 160} if preset == "torchaudio" else {}
    features = {**WAVE, "name": "features", "features": {"preset": preset, "mels": 40, **sides}}
    length = {**LENGTH, "follows": "features"}
    with spdl_cluster.local(job(clips, WAVE, features, length), tensors="numpy") as loader:
        for one in samples(loader):
            wanted = expected(one["wave"])
            assert one["features"].shape == wanted.shape == (one["length"], 40)
            # Energies of silent bands are rounding errors, which logarithms enlarge.
            loud = wanted > wanted.max() - 8 if preset != "torchaudio" else wanted > -1
            assert abs(one["features"] - wanted)[loud].max() <= 1e-3 * max(1, abs(wanted).max())


def broken(folder: pathlib.Path) -> dict[str, str]:
    """Writes ten good sounds and some that are not; returns what is said of these."""
    for number in range(10):
        soundfile.write(folder / f"good-{number}.flac", sound(number, 5000), RATE, subtype="PCM_16")
    whole = (folder / "good-1.flac").read_bytes()
    (folder / "cut.flac").write_bytes(whole[:-700])
    (folder / "flipped.flac").write_bytes(whole[:3000] + bytes([whole[3000] ^ 8]) + whole[3001:])
    (folder / "head.flac").write_bytes(whole[:20])
    (folder / "text.flac").write_bytes(b"no sound at all")
    soundfile.write(folder / "none.wav", sound(1, 0), RATE, subtype="PCM_16")
    soundfile.write(folder / "nan.wav", numpy.array([0.5, numpy.nan, 0.5]), RATE, subtype="FLOAT")
    soundfile.write(folder / "long.wav", sound(1, 3 * RATE), RATE, subtype="PCM_16")
    return {
        "cut": "is damaged at byte",
        "flipped": "is damaged at byte",
        "head": "ends at byte 20, within its STREAMINFO",
        "text": 'is no WAV, AIFF, AU, CAF, FLAC, MP3, Ogg, AAC, MP4 or Matroska file: it begins with "no sound at all"',
        "none": "has no samples",
        "nan": "has a sample that is not a finite number, in frame 1",
        "long": "has 48000 frames of 16000 Hz; `max_seconds` allows 32000",
    }


def test_what_is_no_sound_is_a_bad_sample_that_is_named(tmp_path: pathlib.Path) -> None:
    said = broken(tmp_path)
    ctl("index", tmp_path)
    made = job(tmp_path, {**WAVE, "max_seconds": 2}, bad_samples="mask", max_bad_fraction=0.9, shuffle=False, epoch_end="partial")
    with spdl_cluster.local(made, tensors="numpy") as loader, pytest.warns(UserWarning, match="7 of the samples"):
        good = [bytes(key).decode() for batch in loader for key, valid in zip(batch["key"], batch.valid) if valid]
    assert sorted(good) == [f"good-{number}" for number in range(10)]
    for key, problem in said.items():
        for path in tmp_path.glob("good-*"):
            path.unlink()
        alone = tmp_path / "alone" / key
        alone.mkdir(parents=True)
        [path] = tmp_path.glob(f"{key}.*")
        path.rename(alone / path.name)
        ctl("index", alone)
        failing = job(alone, {**WAVE, "max_seconds": 2}, bad_samples="fail", global_batch=1)
        with pytest.raises(spdl_cluster.SpdlError) as error, spdl_cluster.local(failing, tensors="numpy") as loader:
            samples(loader)
        assert problem in str(error.value) and f"`{key}`" in str(error.value), error.value


def test_the_page_on_audio_runs_as_it_is_written(clips: pathlib.Path, tmp_path: pathlib.Path, temporary: pathlib.Path) -> None:
    (tmp_path / "clips").mkdir()
    for number in range(16):
        speaker = tmp_path / "clips" / f"speaker-{number % 2}"
        speaker.mkdir(exist_ok=True)
        soundfile.write(speaker / f"{number}.flac", sound(number, frames_of(number)), RATE, subtype="PCM_16")
        (speaker / f"{number}.txt").write_text(f"clip {number}")
    page = Recipe("../guide/audio.md", tmp_path, temporary, {}, {})
    told = page.run("spdl-ctl index clips")
    assert "16000 Hz x1" in told and "wave: f32" in told, told
    looked = subprocess.run([sys.executable, "look.py"], cwd=tmp_path, capture_output=True, text=True, timeout=LIMIT_S, env=os.environ)
    assert looked.returncode == 0, looked.stderr
    assert "float32 clip 7\n" in looked.stdout
    assert "16 samples in 16 records" in page.run("spdl-ctl pack clips packed")
    page.run("spdl-ctl replay segments.toml")
    assert page.next().startswith("spdl-run"), "test_train_speech.py has the rest"
    report = ctl_json("replay", tmp_path / "segments.toml", "--all")
    assert report["samples"] == 160
