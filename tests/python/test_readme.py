"""Runs the commands and the Python of the README's section "From a folder to a batch", and checks the guide's table of
settings."""

from __future__ import annotations

import inspect
import os
import pathlib
import re
import shlex
import subprocess
import sys

import spdl_cluster
from conftest import LIMIT_S, PICTURES

README = pathlib.Path(__file__).parents[2] / "README.md"


def blocks(language: str) -> list[str]:
    """Returns the section's code blocks in a language."""
    section = README.read_text(encoding="utf-8").split("\n## From a folder to a batch\n", 1)[1].split("\n## ", 1)[0]
    return re.findall(rf"^```{language}\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)


def test_the_readme_leads_from_a_folder_to_batches(tmp_path: pathlib.Path) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "spdl-ctl").symlink_to(os.environ["SPDL_TEST_CTL"])
    variables = {**os.environ, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}

    def run(*command: str) -> str:
        done = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=LIMIT_S)
        assert done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    commands = [shlex.split(line, comments=True) for line in blocks("sh")[0].splitlines() if line.startswith("spdl-ctl")]
    assert [command[:2] for command in commands] == [["spdl-ctl", "pictures"]]
    # Fewer pictures than the README's command makes.
    run(*commands[0][:-1], str(PICTURES))

    [code] = blocks("python")
    assert len(code.splitlines()) <= 12, "the README promises few lines"
    printed = [line for line in run(sys.executable, "-c", code).splitlines() if line.startswith("(64, 224, 224, 3)")]
    assert len(printed) == PICTURES // 64, printed


def test_the_guide_has_a_row_for_each_setting_and_no_other() -> None:
    page = (README.parent / "docs/guide/python.md").read_text(encoding="utf-8")
    table = page.split("\n## Settings\n", 1)[1].split("\n## ", 1)[0]
    rows: dict[str, set[str]] = {"connect": set(), "local": set()}
    for line in table.splitlines():
        if line.startswith("| `"):
            settings, of = line.strip("|").split("|")[:2]
            for name in rows if of.strip() == "both" else [of.strip(" `")]:
                rows[name].update(re.findall(r"`(\w+)`", settings))
    assert rows["connect"] == set(inspect.signature(spdl_cluster.connect).parameters)
    assert rows["local"] == set(inspect.signature(spdl_cluster.local).parameters)
