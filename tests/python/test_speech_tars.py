"""Speech in tars with lists of what is said: NeMo's manifests of tars, and Shar as lhotse writes it."""

from __future__ import annotations

import io
import json
import os
import pathlib
import tarfile

import numpy
import pytest
import spdl_cluster
from conftest import FRAMEWORKS_HERE, Cluster, ctl, ctl_json, samples
from test_audio import FROM, LENGTH, RATE, WAVE
from test_speech import SPAN, TEXT, job, part, write

soundfile = pytest.importorskip("soundfile")

TALK_S = 30


def nemo(folder: pathlib.Path) -> dict[str, tuple[pathlib.Path, float, float]]:
    """Writes tars and their manifest as NeMo's `convert_to_tarred_audio_dataset.py` does without cutting: paths become names, and a line of
    a member that another line has already is called `-subN`. Returns the original, the start and the length of each text."""
    said, lines = {}, []
    for shard in range(2):
        with tarfile.open(folder / f"tars/audio_{shard}.tar", "w") as tar:
            for number in range(4 * shard, 4 * shard + 4):
                path = folder / f"talks/day.{number % 3}/{number}.flac"
                write(path, number, TALK_S * RATE)
                name = str(path.relative_to(folder).with_suffix("")).replace("/", "_").replace(".", "_")
                tar.add(path, f"{name}.flac")
                for segment in range(3 + number % 2):
                    start, length = 4.125 * segment + 0.25, 1.0 + 0.5 * segment
                    text = f"words {segment} of {number}"
                    said[text] = (path, start, length)
                    member = f"{name}-sub{segment}.flac" if segment else f"{name}.flac"
                    lines.append({"audio_filepath": member, "offset": start, "duration": length, "text": text, "shard_id": shard})
            content = b"of no line"
            unknown = tarfile.TarInfo(f"unknown-{shard}.flac")
            unknown.size = len(content)
            tar.addfile(unknown, io.BytesIO(content))
    (folder / "tarred_audio_manifest.json").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return said


def test_the_lines_of_nemos_tars_are_the_segments_that_soundfile_reads(tmp_path: pathlib.Path, cluster: Cluster) -> None:
    (tmp_path / "tars").mkdir()
    said = nemo(tmp_path)
    report = ctl("index", tmp_path / "tars", "--table", tmp_path / "tarred_audio_manifest.json").stdout
    assert f"{len(said)} samples in {len(said)} records" in report and "no row in the table" in report, report
    assert ctl_json("verify", tmp_path / "tars")["faults"] == []
    ctl("job", "init", tmp_path / "tars", "--out", tmp_path / "suggested.toml")
    suggested = (tmp_path / "suggested.toml").read_text()
    assert 'span = { start = "offset", seconds = "duration" }' in suggested, suggested
    made = job(tmp_path / "tars", {**WAVE, "span": SPAN}, LENGTH, TEXT, name="nemo-tars")
    name = cluster.submit(made)
    with spdl_cluster.local(made, tensors="numpy") as loader:
        local = samples(loader)
    assert sorted(bytes(one["text"]).decode() for one in local) == sorted(said)
    for one in local:
        path, start, length = said[bytes(one["text"]).decode()]
        expected = part(path, start, length)
        assert one["length"] == len(expected) and numpy.array_equal(one["wave"], expected), one["key"]
    with cluster.connect(0, 1, job=name, tensors="numpy") as loader:
        there = samples(loader)
    assert [(one["key"], one["wave"].tobytes()) for one in there] == [(one["key"], one["wave"].tobytes()) for one in local]


@FRAMEWORKS_HERE
@pytest.mark.parametrize("stored", ["flac", "wav"])
def test_a_shar_has_the_sounds_and_texts_that_lhotse_reads(stored: str, tmp_path: pathlib.Path) -> None:
    lhotse = pytest.importorskip("lhotse", reason=os.environ.get("SPDL_TEST_NO_FRAMEWORKS", "lhotse is not installed"))
    cuts = []
    for number in range(4):
        path = tmp_path / f"talks/{number}.wav"
        write(path, number, TALK_S * RATE)
        recording = lhotse.Recording.from_file(path, recording_id=f"talk.{number}")
        for segment in range(3):
            start, length = 4.125 * segment + 0.25, 1.0 + 0.5 * segment
            names = {"id": f"s-{number}-{segment}", "recording_id": recording.id, "start": 0.0, "duration": length}
            said = lhotse.SupervisionSegment(**names, text=f"words {segment} of {number}", speaker=f"speaker-{number}", language="en")
            cuts.append(lhotse.MonoCut(f"talk.{number}-{segment}", start, length, 0, supervisions=[said], recording=recording))
    (tmp_path / "shar").mkdir()
    lhotse.CutSet.from_cuts(cuts).to_shar(tmp_path / "shar", fields={"recording": stored}, shard_size=5)
    # lhotse takes everything in the folder for a field of its cuts.
    spdl_cluster.index(tmp_path / "shar", table=tmp_path / "shar", out=tmp_path / "index")
    texts = [{"name": field, "from": field, "decode": "text"} for field in ("text", "speaker", "language", "duration")]
    nested = {"name": "nested", "from": "cut", "decode": "text", "path": "supervisions.0.text"}
    with spdl_cluster.local(job(tmp_path / "index", {**WAVE, "from": FROM}, *texts, nested), tensors="numpy") as loader:
        found = {one["key"]: one for one in samples(loader)}
    theirs = list(lhotse.CutSet.from_shar(in_dir=tmp_path / "shar"))
    assert len(theirs) == len(cuts) and sorted(found) == sorted(cut.id for cut in theirs)
    for cut in theirs:
        one, [supervision] = found[cut.id], cut.supervisions
        assert numpy.array_equal(one["wave"], cut.load_audio()[0]), cut.id
        said = [bytes(one[name]).decode() for name in ("text", "nested", "speaker", "language", "duration")]
        assert said == [supervision.text, supervision.text, supervision.speaker, "en", str(cut.duration)]
