"""Plays the tutorial as a newcomer would: its commands and its programs, taken out of the page, in a new environment with the wheel."""

from __future__ import annotations

import csv
import os
import pathlib
import re
import subprocess
import sys
import sysconfig

import pytest
from conftest import LAUNCHERS, LIMIT_S, needs

needs("torchvision", os.environ.get("SPDL_TEST_NO_TORCH"))

ROOT = pathlib.Path(__file__).parents[2]
PAGE = ROOT / "docs/guide/tutorial.md"
#: Those that the page's commands draw.
TRAINING, VALIDATION = 300, 60


def blocks(language: str) -> list[str]:
    """Returns the page's code in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


@pytest.fixture
def newcomer(tmp_path: pathlib.Path) -> dict[str, str]:
    """Puts a wheel into a folder, the wheel that these tests have installed if they have, and makes a new environment without the package;
    returns the variables of a shell in both. The environment sees torch where this one has it, as it takes minutes to install."""
    ours = pathlib.Path(sysconfig.get_path("purelib"))
    own = {name: value for name, value in os.environ.items() if name not in LAUNCHERS}
    if made := os.environ.get("SPDL_TEST_WHEEL"):
        (tmp_path / pathlib.Path(made).name).symlink_to(made)
    else:
        wheel = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(tmp_path), str(ROOT / "python")]
        path = os.pathsep.join([sysconfig.get_path("scripts"), os.environ["PATH"]])
        subprocess.run(wheel, check=True, timeout=LIMIT_S, env={**own, "PATH": path})
    home = tmp_path / "venv"
    options = [] if (ours / "torch").exists() else ["--system-site-packages"]
    subprocess.run([sys.executable, "-m", "venv", *options, str(home)], check=True, timeout=LIMIT_S)
    [theirs] = home.glob("lib/*/site-packages")
    packages = theirs / "packages"
    packages.mkdir()
    for package in ours.iterdir():
        if not package.name.startswith(("spdl_cluster", "__editable__", "pip", "__pycache__")) and package.suffix != ".pth":
            (packages / package.name).symlink_to(package)
    (theirs / "packages.pth").write_text(f"{packages}\n")
    # pip finds torch there, and no other package is asked for.
    return {**own, "PATH": f"{home / 'bin'}{os.pathsep}{os.environ['PATH']}", "PIP_NO_DEPS": "1", "PIP_NO_INDEX": "1", "OMP_NUM_THREADS": "1"}


@pytest.mark.drawn(1, group="trainings of pages")
def test_the_tutorial_leads_from_a_wheel_to_a_file_of_answers(newcomer: dict[str, str], tmp_path: pathlib.Path) -> None:
    programs, commands = blocks("python"), blocks("sh")
    assert sum(len(program.splitlines()) for program in programs) <= 40, "the page promises a short day"
    assert sum(len(re.split(r" & |\n", block.strip())) for block in commands) <= 12, commands
    for program in programs:
        name = program.splitlines()[0].removeprefix("# ")
        assert name in ("train.py", "look.py")
        (tmp_path / name).write_text(program)

    def play(begins: str) -> str:
        """Runs the next block, which begins with this, and returns what it prints."""
        text = commands.pop(0)
        assert text.startswith(begins), f"{text}\n does not begin with `{begins}`"
        shell = ["bash", "-euo", "pipefail", "-c", text]
        done = subprocess.run(shell, cwd=tmp_path, env=newcomer, capture_output=True, text=True, timeout=LIMIT_S)
        assert done.returncode == 0, f"{text}\n{done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    assert "Successfully installed spdl-cluster" in play("pip install spdl_cluster-*.whl")
    play("spdl-ctl pictures")
    assert f"{TRAINING} samples" in play("spdl-ctl info data/train")
    assert (tmp_path / "sheet.png").stat().st_size > 0
    play("spdl-ctl job init")
    assert "are right" not in play("python train.py &"), "it was killed in the first epoch"
    again = play("python train.py").splitlines()
    resumed = re.fullmatch(r"goes on at epoch 0, sample (\d+)", again[0])
    assert resumed and 0 < int(resumed[1]) < TRAINING, again
    assert [re.sub(r": \d+ of", ": of", line) for line in again[1:]] == [f"epoch {epoch}: of {VALIDATION} are right" for epoch in range(2)]

    worst = play("python look.py").splitlines()
    keys = [str(path.relative_to(tmp_path / "photos/val").with_suffix("")) for path in (tmp_path / "photos/val").glob("*/*.jpg")]
    classes = {path.name for path in (tmp_path / "photos/train").iterdir()}
    said = [re.fullmatch(r"(\S+): loss (\d+\.\d\d), answer (\S+)", line) for line in worst]
    assert len(said) == 10 and all(line and line[1] in keys and line[3] in classes for line in said), worst
    losses = [float(line[2]) for line in said if line]
    assert losses == sorted(losses, reverse=True)
    header, *answers = csv.reader((tmp_path / "answers.csv").read_text().splitlines())
    assert header == ["key", "class"] and sorted(key for key, _ in answers) == sorted(keys)
    assert {answer for _, answer in answers} <= classes
    assert not commands, f"not played: {commands}"
