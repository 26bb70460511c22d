"""Runs the benchmark of pipelines with this package alone, for a moment: that it works, not what it measures. Of that of rows,
checks the table."""

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


def test_the_benchmark_of_rows_reports_every_loader_with_its_ratio(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(PEERS))
    rows: Any = importlib.import_module("rows")
    good = {"cpu_s_per_million": 1, "peak_mb": 2, "first_batch_s": 3, "others_cores": 0.0}
    runs = [
        good | {"loader": "ours", "columns": 2, "round": 0, "images_per_s": 3_000_000},
        good | {"loader": "theirs", "columns": 2, "round": 0, "images_per_s": 1_500_000},
        good | {"loader": "ours", "columns": 20, "round": 0, "images_per_s": 1_000_000},
        {"loader": "theirs", "columns": 20, "round": 0, "error": "it does not run"},
    ]
    lines = rows.markdown(runs, ["ours", "theirs"], [2, 20]).splitlines()
    assert lines[2:] == [
        "| 2 | ours | 3,000,000 | 1.00 | 2 | 3.00 | 1.00 |",
        "| 2 | theirs | 1,500,000 | 1.00 | 2 | 3.00 | 2.00 |",
        "| 20 | ours | 1,000,000 | 1.00 | 2 | 3.00 | 1.00 |",
        "| 20 | theirs | it does not run | | | | |",
    ]
    assert {line.count("|") for line in lines} == {8}
