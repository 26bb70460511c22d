"""The example of speech recognition under torchrun, on the speech of a Debian package: killed in the middle and resumed, over both
transports and in the process."""

from __future__ import annotations

import fcntl
import os
import pathlib
import re
import subprocess
import tomllib

import pytest
from conftest import Cluster, ctl, ctl_json, write_job
from debian import package
from test_recipes import Recipe
from torchrun import finish, kill, torchrun

torch = pytest.importorskip("torch", reason=os.environ.get("SPDL_TEST_NO_TORCH", "torch is not installed"))

EXAMPLE = pathlib.Path(__file__).parents[2] / "python/examples/train_speech.py"
#: What the package has of LibriVox, and the shortest of it: a step of training takes as long as its longest sound.
SOUNDS, SHORT = 5, 3
#: A line of a package's transcripts.
TRANSCRIPT = re.compile(r"<s>\s*(.*?)\s*</s> \((.*)\)")
BATCH, EPOCHS = 2, 40
STEPS = 2 * EPOCHS
#: Losses are printed with three digits.
CLOSE = 0.002


def speech(folder: pathlib.Path, sounds: int = SOUNDS) -> pathlib.Path:
    """Makes a folder of the shortest speech with texts, and indexes it."""
    stored = package("pocketsphinx-testdata") / "usr/share/pocketsphinx/test/data/librivox"
    of_speaker = folder / "clips/librivox"
    of_speaker.mkdir(parents=True)
    texts = TRANSCRIPT.findall((stored / "transcription").read_text())
    assert len(texts) == SOUNDS
    for text, name in sorted(texts, key=lambda line: (stored / f"{line[1]}.wav").stat().st_size)[:sounds]:
        (of_speaker / f"{name}.wav").write_bytes((stored / f"{name}.wav").read_bytes())
        (of_speaker / f"{name}.txt").write_text(text)
    assert f"{sounds} samples in {sounds} records" in ctl("index", folder / "clips").stdout
    return folder / "clips"


def losses(output: str) -> list[tuple[tuple[int, int], float]]:
    """Returns the position and the loss of each step."""
    found = re.findall(r"^epoch (\d+), sample (\d+): loss (\d+\.\d+)$", output, re.MULTILINE)
    return [((int(epoch), int(offset)), float(loss)) for epoch, offset, loss in found]


def receipt(output: str) -> str:
    """Returns the receipt that a training ends with."""
    [found] = re.findall(r"^audit with --receipt ([0-9a-f]{32})$", output, re.MULTILINE)
    return str(found)


def falls(trained: list[tuple[tuple[int, int], float]]) -> None:
    """Asserts that a model learns: it begins with letters that are all alike, of which there are 257."""
    first, last = (sum(loss for _, loss in some) / 5 for some in (trained[:5], trained[-5:]))
    assert last < 3 < 5 < first, trained


def killed_after(process: subprocess.Popen[str], steps: int) -> str:
    """Kills a training after the lines of some steps, long before its end; returns what it has printed."""
    assert process.stdout is not None
    descriptor = process.stdout.fileno()
    fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, 4096)
    text = b""
    try:
        while text.count(b"\n") < steps:
            read = os.read(descriptor, 256)
            assert read, process.communicate()
            text += read
    finally:
        kill(process)
    while read := os.read(descriptor, 4096):
        text += read
    process.stdout.close()
    return text.decode()


@pytest.mark.drawn(1, group="trainings of examples that are killed")
@pytest.mark.parametrize("transport", ["local", "quic"])
def test_the_training_of_the_page_is_killed_and_resumed_with_one_receipt(
    cluster: Cluster, tmp_path: pathlib.Path, temporary: pathlib.Path, transport: str
) -> None:
    Recipe("../guide/audio.md", tmp_path, temporary, {}, {})
    job = tomllib.loads((tmp_path / "recogniser.toml").read_text())
    job.update(name=f"recogniser-{transport}", dataset=speech(tmp_path, SHORT), global_batch=BATCH, epochs=EPOCHS, epoch_end="exact", bad_samples="fail")
    path = write_job(job, tmp_path / "job.toml")
    cluster.submit(job)
    variables = {"SPDL_COORD": cluster.coordinators, "SPDL_JOB": job["name"], "SPDL_CERTS": str(cluster.folder / "certs/client")}
    variables |= {"SPDL_RUN": f"speech-{transport}", "SPDL_TRANSPORT": transport}
    positions = [(step // 2, step % 2 * BATCH) for step in range(STEPS)]
    whole = finish(torchrun(EXAMPLE, 2, "--job", path))
    expected = losses(whole)
    assert [at for at, _ in expected] == positions, whole
    falls(expected)
    checkpoint = tmp_path / "checkpoint.pt"
    first = losses(killed_after(torchrun(EXAMPLE, 2, "--checkpoint", checkpoint, "--every", 7, **variables), 18))
    last = finish(torchrun(EXAMPLE, 2, "--checkpoint", checkpoint, **variables))
    resumed_at = positions.index(losses(last)[0][0])
    assert 14 <= resumed_at <= len(first) < STEPS and resumed_at % 7 == 0
    trained = first[:resumed_at] + losses(last)
    assert [at for at, _ in trained] == positions
    assert [loss for _, loss in trained] == pytest.approx([loss for _, loss in expected], abs=CLOSE)
    assert receipt(last) == receipt(whole)
    assert ctl_json("audit", path, "--receipt", receipt(whole))["equal"]


@pytest.mark.drawn(1, group="trainings of pages")
def test_the_page_on_audio_trains_a_recogniser(tmp_path: pathlib.Path, temporary: pathlib.Path) -> None:
    page = Recipe("../guide/audio.md", tmp_path, temporary, {"epochs = 100": "epochs = 5"}, {})
    speech(tmp_path)
    page.skip_to("spdl-run --job recogniser.toml")
    first = losses(page.run("spdl-run --job recogniser.toml"))
    assert [at for at, _ in first] == [(epoch, 0) for epoch in range(5)]
    page.run("spdl-ctl audit recogniser.toml $(grep")
    page.end()
