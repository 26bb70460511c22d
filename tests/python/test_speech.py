"""Corpora of speech: what samples have of the lists of NeMo, LibriSpeech, Common Voice and Kaldi, segments of long recordings beside what
`soundfile` reads of them, and the page of the guide."""

from __future__ import annotations

import json
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
from test_audio import FROM, KEY, LENGTH, RATE, WAVE, sound
from test_recipes import Recipe

soundfile = pytest.importorskip("soundfile")

#: Seconds of a recording of Kaldi's folder.
LONG_S = 20
TEXT = {"name": "text", "from": "text", "decode": "text"}
SPAN = {"start": "offset", "seconds": "duration"}


def write(path: pathlib.Path, number: int, frames: int, rate: int = RATE) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, sound(number, frames), rate, subtype="PCM_16")


def librispeech(folder: pathlib.Path) -> None:
    """Writes two chapters with their transcripts."""
    for chapter, speaker in (("84-121", "84"), ("174-50", "174")):
        place = folder / speaker / chapter.partition("-")[2]
        for number in range(8):
            write(place / f"{chapter}-{number:04}.flac", number, 4000 + 300 * number)
        lines = [f"{chapter}-{number:04} TEXT {number} OF {chapter}\n" for number in range(8)]
        (place / f"{chapter}.trans.txt").write_text("".join(lines))


def nemo(folder: pathlib.Path) -> None:
    """Writes sounds and a manifest of NeMo's, whose paths are relative to it."""
    with (folder / "train.json").open("w") as manifest:
        for number in range(8):
            path = folder / "wav" / f"{number}.wav"
            write(path, number, 3000 + 100 * number)
            named = f"wav/{number}.wav" if number % 2 else str(path)
            line = {"audio_filepath": named, "duration": (3000 + 100 * number) / RATE, "text": f"line {number}", "lang": "en"}
            manifest.write(json.dumps(line) + "\n")


def common_voice(folder: pathlib.Path) -> None:
    """Writes clips and a table of Common Voice."""
    rows = ["client_id\tpath\tsentence\tup_votes\taccents"]
    for number in range(8):
        write(folder / "clips" / f"common_voice_{number}.wav", number, 3000)
        rows.append(f'{number:04x}\tcommon_voice_{number}.wav\tShe said "{number}".\t2\t')
    (folder / "train.tsv").write_text("\n".join(rows) + "\n")


def kaldi(folder: pathlib.Path, data: pathlib.Path) -> dict[str, tuple[str, float, float]]:
    """Writes recordings and a data folder of Kaldi's; returns for each utterance its recording, start and length."""
    data.mkdir(parents=True)
    utterances = {}
    lines: dict[str, list[str]] = {"wav.scp": [], "segments": [], "text": [], "utt2spk": []}
    for number in range(3):
        path = f"talks/{number}.flac"
        write(folder / path, number, LONG_S * RATE)
        lines["wav.scp"].append(f"rec-{number} {path}")
        for part in range(12):
            start, length = 1.6 * part + 0.013 * number, 0.5 + 0.1 * part
            name = f"spk-{number}-{part:02}"
            utterances[name] = (path, start, length)
            lines["segments"].append(f"{name} rec-{number} {start:.3f} {start + length:.3f}")
            lines["text"].append(f"{name} WORDS {part} OF {number}")
            lines["utt2spk"].append(f"{name} spk-{number}")
    for name, some in lines.items():
        (data / name).write_text("\n".join(some) + "\n")
    return utterances


def job(dataset: pathlib.Path, *columns: dict[str, Any], **keys: Any) -> dict[str, Any]:
    return {"name": "speech", "dataset": dataset, "seed": 5, "global_batch": 4, **keys, "column": [*columns, KEY]}


def part(path: pathlib.Path, start_s: float, seconds: float) -> NDArray[Any]:
    """Returns what `soundfile` reads of a recording."""
    read, rate = soundfile.read(path, start=round(start_s * RATE), frames=round(seconds * RATE), dtype="float32")
    assert rate == RATE
    return numpy.asarray(read)


def texts(dataset: pathlib.Path, **fields: str) -> dict[str, list[str]]:
    """Returns the texts that each sample of a dataset has in these fields, by its key."""
    columns = [{"name": name, "from": field, "decode": "text"} for name, field in fields.items()]
    found: dict[str, list[str]] = {}
    with spdl_cluster.local(job(dataset, *columns), tensors="numpy") as loader:
        for batch in loader:
            found.update(zip(batch["key"].text(), map(list, zip(*(batch[name].text() for name in fields)))))
    return found


def test_each_corpus_gives_the_texts_of_its_list(tmp_path: pathlib.Path) -> None:
    librispeech(tmp_path / "dev-clean")
    ctl("index", tmp_path / "dev-clean")
    found = texts(tmp_path / "dev-clean", text="txt", speaker="cls")
    assert len(found) == 16 and found["84/121/84-121-0003"] == ["TEXT 3 OF 84-121", "1"]
    (tmp_path / "corpus").mkdir()
    nemo(tmp_path / "corpus")
    ctl("index", tmp_path / "corpus", "--table", tmp_path / "corpus/train.json")
    found = texts(tmp_path / "corpus", text="text", lang="lang", seconds="duration")
    assert len(found) == 8 and found["wav/5"] == ["line 5", "en", str(3500 / RATE)]
    common_voice(tmp_path / "cv")
    spdl_cluster.index(tmp_path / "cv", table=tmp_path / "cv/train.tsv", out=tmp_path / "cv-train")
    found = texts(tmp_path / "cv-train", text="sentence", client="client_id")
    assert len(found) == 8 and found["clips/common_voice_5"] == ['She said "5".', "0005"]


def test_segments_of_recordings_are_what_soundfile_reads_there_and_replays_and_audits_hold(
    tmp_path: pathlib.Path, cluster: Cluster
) -> None:
    corpus = tmp_path / "corpus"
    utterances = kaldi(corpus, tmp_path / "data")
    report = ctl_json("index", corpus, "--table", tmp_path / "data")
    assert (report["records"], report["blocks"]) == (len(utterances), 1), report
    of_key = {f"{path.removesuffix('.flac')}@{start:.3f}".rstrip("0").rstrip("."): (path, start, length) for path, start, length in utterances.values()}
    made = job(corpus, {**WAVE, "span": SPAN}, LENGTH, TEXT, {"name": "name", "from": "utterance", "decode": "text"}, name="segments-of-talks")
    name = cluster.submit(made)
    with spdl_cluster.local(made, tensors="numpy") as loader:
        local = samples(loader)
    assert sorted(one["key"] for one in local) == sorted(of_key)
    for one in local:
        path, start, length = of_key[one["key"]]
        expected = part(corpus / path, start, length)
        assert one["length"] == len(expected) and numpy.array_equal(one["wave"], expected), one["key"]
        assert utterances[bytes(one["name"]).decode()] == (path, start, length)
    with cluster.connect(0, 1, job=name, tensors="numpy") as loader:
        there = samples(loader)
    assert [one["key"] for one in there] == [one["key"] for one in local]
    assert all(numpy.array_equal(a["wave"], b["wave"]) for a, b in zip(there, local))
    verified = ctl_json("verify", corpus)
    assert verified["faults"] == [], verified


def test_of_a_segment_another_segment_is_taken(tmp_path: pathlib.Path) -> None:
    corpus = tmp_path / "corpus"
    utterances = kaldi(corpus, tmp_path / "data")
    ctl("index", corpus, "--table", tmp_path / "data")
    middle = {**WAVE, "span": SPAN, "segment": {"seconds": 0.25, "pick": "middle"}}
    name = {"name": "name", "from": "utterance", "decode": "text"}
    with spdl_cluster.local(job(corpus, middle, LENGTH, name), tensors="numpy") as loader:
        for one in samples(loader):
            path, start, length = utterances[bytes(one["name"]).decode()]
            whole = part(corpus / path, start, length)
            first = (len(whole) - RATE // 4) // 2
            assert numpy.array_equal(one["wave"], whole[first : first + RATE // 4])


def test_a_field_that_no_record_has_is_named(tmp_path: pathlib.Path) -> None:
    (tmp_path / "corpus").mkdir()
    nemo(tmp_path / "corpus")
    ctl("index", tmp_path / "corpus", "--table", tmp_path / "corpus/train.json")
    wrong = job(tmp_path / "corpus", {**WAVE, "span": {"start": "ofset", "seconds": "duration"}})
    told = "column `wave`: `span` is `ofset`, which no record of the dataset has; its fields are duration, lang, text, wav"
    with spdl_cluster.local(wrong, tensors="numpy") as loader, pytest.raises(spdl_cluster.SettingError, match=told):
        loader.next()


def decibels(ratio: Any) -> float:
    return float(20 * numpy.log10(ratio))


def test_operations_are_those_of_their_draws_and_the_same_for_any_number_of_ranks(tmp_path: pathlib.Path) -> None:
    utterances = kaldi(tmp_path / "corpus", tmp_path / "data")
    ctl("index", tmp_path / "corpus", "--table", tmp_path / "data")
    plain = {**WAVE, "name": "plain", "span": SPAN}
    louder = {**plain, "name": "louder", "ops": [{"gain": [-6, 6]}]}
    noisy = {**plain, "name": "noisy", "ops": [{"noise": {"snr": [10, 30], "p": 0.5}}]}
    fast = {**plain, "name": "fast", "ops": [{"speed": [0.9, 1.0, 1.1]}]}
    fbank = {**plain, "name": "fbank", "features": {"preset": "kaldi", "mels": 40}}
    mask = {**fbank, "name": "mask", "ops": [{"time_mask": {"frames": 20, "value": -50}}, {"frequency_mask": {"bands": 10, "value": -50}}]}
    length = {**LENGTH, "follows": "fast"}
    made = job(tmp_path / "corpus", plain, louder, noisy, fast, length, fbank, mask, name="operations-on-sounds", epochs=2)
    with spdl_cluster.local(made, tensors="numpy") as loader:
        alone = samples(loader) + samples(loader)
    assert len(alone) == 2 * len(utterances)
    gains, ratios, speeds, masked = [], [], set(), []
    for one in alone:
        loud = abs(one["plain"]) > 0.05
        # One recording has silence in its middle.
        if loud.any():
            quotient = one["louder"][loud] / one["plain"][loud]
            assert quotient.max() - quotient.min() < 1e-5
            gains.append(decibels(quotient.mean()))
        noise = one["noisy"] - one["plain"]
        if noise.any():
            ratios.append(decibels(numpy.linalg.norm(one["plain"]) / numpy.linalg.norm(noise)))
        speed = round(len(one["plain"]) / len(one["fast"]), 2)
        assert one["length"] == len(one["fast"])
        speeds.add(speed)
        if speed == 1:
            assert numpy.array_equal(one["fast"], one["plain"])
        changed = one["mask"] != one["fbank"]
        assert (one["mask"][changed] == -50).all()
        rows, bands = changed.all(axis=1), changed.all(axis=0)
        assert numpy.array_equal(changed, rows[:, None] | bands) and rows.sum() <= 20 and bands.sum() <= 10
        masked.append((rows.sum(), bands.sum()))
    assert -6 <= min(gains) < -4 and 4 < max(gains) <= 6, gains
    assert len(alone) / 4 < len(ratios) < len(alone) * 3 / 4 and min(ratios) > 9.99 and max(ratios) < 30.01, ratios
    assert speeds == {0.9, 1, 1.1} and len(set(masked)) > 20
    there: dict[str, list[bytes]] = {}
    for rank in range(2):
        with spdl_cluster.local(made, rank=rank, world=2, tensors="numpy") as loader:
            for one in samples(loader):
                there.setdefault(one["key"], []).append(one["noisy"].tobytes() + one["fast"].tobytes() + one["mask"].tobytes())
    # The first epoch of both.
    assert sorted(there) == sorted({one["key"] for one in alone})
    for one in alone[: len(utterances)]:
        assert [one["noisy"].tobytes() + one["fast"].tobytes() + one["mask"].tobytes()] == there[one["key"]]


def test_the_page_on_speech_runs_as_it_is_written(tmp_path: pathlib.Path, temporary: pathlib.Path) -> None:
    librispeech(tmp_path / "dev-clean")
    (tmp_path / "corpus").mkdir()
    nemo(tmp_path / "corpus")
    common_voice(tmp_path / "cv")
    kaldi(tmp_path / "corpus", tmp_path / "data/train")
    for number, folder in enumerate(("noises", "rooms")):
        write(tmp_path / folder / "one.wav", number, 2000)
    page = Recipe("../guide/speech.md", tmp_path, temporary, {}, {})
    told = page.run("spdl-ctl index dev-clean")
    assert [f"{count} samples in {count} records" in told for count in (16, 8, 36)] == [True] * 3, told
    page.run("spdl-ctl job init dev-clean")
    looked = subprocess.run([sys.executable, "texts.py"], cwd=tmp_path, capture_output=True, text=True, timeout=LIMIT_S, env=os.environ)
    assert looked.returncode == 0, looked.stderr
    assert "TEXT 7 OF 174-50\n" in looked.stdout
    page.run("spdl-ctl replay segments.toml")
    page.run("spdl-ctl replay augmented.toml")
    page.run("spdl-ctl index noises")
    page.run("spdl-ctl replay noisy.toml")
    page.end()
    ctl("job", "init", tmp_path / "kaldi", "--out", tmp_path / "suggested.toml")
    suggested = (tmp_path / "suggested.toml").read_text()
    assert 'span = { start = "offset", seconds = "duration" }' in suggested, suggested
