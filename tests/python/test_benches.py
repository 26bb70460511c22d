"""Runs the benchmark of pipelines with this package alone, for a moment: that it works, not what it measures."""

from __future__ import annotations

import importlib
import json
import pathlib
import subprocess
import sys
from typing import Any

import pytest
from conftest import LIMIT_S

PEERS = pathlib.Path(__file__).parents[2] / "benches/peers"
CASES = ["function-1-1", "async-4-4", "decode"]


def run_case(case: str, pictures: pathlib.Path) -> Any:
    """Returns the figures of a case."""
    command = [sys.executable, str(PEERS / "pipeline_worker.py"), "spdl_cluster", case]
    command += ["--seconds", "0.1", "--pictures", str(pictures)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_benchmark_of_pipelines_measures_and_reports_every_case(
    dataset: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(PEERS))
    pipelines: Any = importlib.import_module("pipelines")
    runs = []
    for case in CASES:
        figures = run_case(case, dataset)
        assert figures["threads_left"] == 0
        assert figures["items_per_s"] > 0 and figures["peak_mb"] > 0
        runs += [figures | {"case": case, "package": package, "round": 0} for package in pipelines.PACKAGES]
    runs.append({"case": CASES[0], "package": "spdl", "round": 1, "error": "it does not run"})
    lines = pipelines.table(runs, CASES).splitlines()
    assert [line.count("|") for line in lines] == [len(pipelines.COLUMNS) + 2] * (len(CASES) + 2)
    assert all("**1.00**" in line for line in lines[2:]), "a package is as good as itself"
    assert "**1.00**" in pipelines.start_table(runs)
    assert pipelines.failures(runs) == ["- not measured: spdl, function-1-1: it does not run"]
