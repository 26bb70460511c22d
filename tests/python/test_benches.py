"""Runs the benchmarks of pipelines and of heavy tails for a moment: that they work, not what they measure. Of those of rows, of tokens
and of accelerators, checks the tables and how they are made of measurements."""

from __future__ import annotations

import importlib
import json
import math
import pathlib
import subprocess
import sys
from typing import Any

import pytest
from conftest import LIMIT_S, needs

BENCHES = pathlib.Path(__file__).parents[2] / "benches"
PEERS = BENCHES / "peers"
CASES = ["function-1-1", "async-4-4", "decode"]
#: Each runs a benchmark as a program of its own.
MEASURES = pytest.mark.drawn(1, group="benchmarks")


def run_case(case: str, pictures: pathlib.Path) -> Any:
    """Returns the figures of a case."""
    command = [sys.executable, str(PEERS / "pipeline_worker.py"), "spdl_cluster", case]
    command += ["--seconds", "0.1", "--pictures", str(pictures)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@MEASURES
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


@MEASURES
def test_the_benchmark_of_heavy_tails_measures_each_loader_and_compares_the_bytes_of_ours() -> None:
    command = [sys.executable, str(BENCHES / "tails.py"), "--kinds", "function,object", "--loaders", "ours,minato", "--json"]
    command += ["--samples", "200", "--batch", "16", "--steps", "20"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 0, done.stderr
    runs = json.loads(done.stdout.splitlines()[-1])["runs"]
    assert [(run["kind"], run["loader"]) for run in runs] == [(kind, name) for kind in ("function", "object") for name in ("ours", "minato")]
    for run in runs:
        assert 0 <= run["waiting"] < 1 and run["step_ms"] > 0 and run["peak_mb"] > 0
        assert run["loader"] != "ours" or run["is_equal"], "with other slots and steps"


@pytest.mark.parametrize("kind", ["rows", "tokens", "robots"])
def test_the_benchmarks_in_turns_report_every_loader_with_its_ratio(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(PEERS))
    turns: Any = importlib.import_module("turns")
    program: Any = importlib.import_module(kind)
    of_kind = program.kind(0) if kind == "tokens" else program.KIND
    good = {"cpu_s": 1, "peak_mb": 2, "first_batch_s": 3, "others_cores": 0.0}
    runs = [
        good | {"loader": "ours", "case": "2", "round": 0, "units_per_s": 3_000_000},
        good | {"loader": "theirs", "case": "2", "round": 0, "units_per_s": 1_500_000},
        good | {"loader": "ours", "case": "20", "round": 0, "units_per_s": 1_000_000},
        {"loader": "theirs", "case": "20", "round": 0, "error": "it does not run"},
        {"loader": "absent", "case": None, "error": "it does not install"},
    ]
    lines = turns.markdown(of_kind, runs, ["ours", "theirs", "absent"], ["2", "20"]).splitlines()
    assert f"| {of_kind.case} | loader | {of_kind.unit}/s |" in lines[0]
    assert lines[2:] == [
        "| 2 | ours | 3,000,000 | 1.00 | 2 | 3.00 | 1.00 |",
        "| 2 | theirs | 1,500,000 | 1.00 | 2 | 3.00 | 2.00 |",
        "| 2 | absent | it does not install | | | | |",
        "| 20 | ours | 1,000,000 | 1.00 | 2 | 3.00 | 1.00 |",
        "| 20 | theirs | it does not run | | | | |",
        "| 20 | absent | it does not install | | | | |",
    ]
    assert {line.count("|") for line in lines} == {8}


def test_the_benchmark_of_accelerators_finds_the_shortest_step_that_reaches_the_bar(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(str(PEERS))
    au: Any = importlib.import_module("au")
    data: Any = importlib.import_module("data")
    workload = au.WORKLOADS["retinanet"]
    steps = []

    def figures(_loader: object, settings: Any, _args: object, step_ms: float) -> dict[str, float]:
        """Returns the figures of a loader that gives a batch each 100 ms, and takes 20 ms of each step."""
        steps.append(step_ms)
        period_s = max(0.1, step_ms / 1000 + 0.02)
        per_s = settings.batch / period_s
        return {"images_per_s": per_s, "cpu_s_per_1000": 1.0, "peak_mb": 2.0}

    monkeypatch.setattr(au, "measure_one", figures)
    settings = data.Settings(cores=2, batch=workload.batch)
    run = au.measured(None, workload, settings, None)
    assert len(steps) > 3 and steps[0] == 0 and run["step_ms"] == steps[-1] and run["free_per_s"] == settings.batch / 0.1
    assert workload.least_au <= run["au"] < workload.least_au + 0.05
    assert run["cores"] == pytest.approx(2 * run["step_ms"] / 1000 / workload.step_s)

    def hurried(*given: Any) -> dict[str, float]:
        """Returns the figures of a loader that is slower where nobody waits."""
        return figures(*given) | ({} if given[3] else {"images_per_s": settings.batch / 0.4})

    steps.clear()
    monkeypatch.setattr(au, "measure_one", hurried)
    run = au.measured(None, workload, settings, None)
    assert run["step_ms"] == steps[-1] < 0.7 * steps[1] and run["au"] >= workload.least_au
    never = figures
    monkeypatch.setattr(au, "measure_one", lambda *given: never(*given) | {"images_per_s": 1.0 if given[3] else 500.0})
    assert "an AU of" in au.measured(None, workload, settings, None)["error"]


def test_the_table_of_accelerators_compares_each_loader_with_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(PEERS))
    au: Any = importlib.import_module("au")
    good = {"au": 0.9, "step_ms": 38.0, "free_per_s": 1000.0, "cpu_s_per_1000": 1.5, "peak_mb": 300.0}
    runs = [
        good | {"loader": "ours", "cores": 2.0},
        good | {"loader": "theirs", "cores": 5.0},
        good | {"loader": "theirs", "cores": 7.0},
        {"loader": "broken", "error": "it does not run"},
    ]
    lines = au.markdown(runs).splitlines()
    assert lines[2:] == [
        "| ours | 2.00 | 0.900 | 38 | 1,000 | 1.50 | 300 | 1.00 |",
        "| theirs | 6.00 | 0.900 | 38 | 1,000 | 1.50 | 300 | 3.00 |",
        "| broken | it does not run | | | | | | |",
    ]
    assert {line.count("|") for line in lines} == {9}


def test_the_arrays_of_accelerators_have_the_bytes_that_are_stated_and_columns_in_our_job(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    monkeypatch.syspath_prepend(str(PEERS))
    au: Any = importlib.import_module("au")
    arrays: Any = importlib.import_module("arrays")
    tomllib = pytest.importorskip("tomllib")
    data: Any = importlib.import_module("data")
    bytes_of = {"u8": 1, "i32": 4, "f32": 4}
    stated = {"flux": 2_164_832, "dlrm": 40 * 4, "cosmoflow": 2_828_486 + 16, "unet3d": 146_600_000 // 16}
    assert set(stated) == {name for name, workload in au.WORKLOADS.items() if workload.pictures is None}
    for name, sample_bytes in stated.items():
        workload = au.WORKLOADS[name]
        ours = arrays.OurArrays(workload.peers[0], tmp_path, data.Data(tmp_path / f"au-{name}"), 1 << 30)
        job = tomllib.loads(ours.job(tmp_path, au.settings_of(name, 2)).read_text())
        assert job["global_batch"] == workload.batch
        assert [column["name"] for column in job["column"]] == list(arrays.ARRAYS[name].columns)
        sizes = [bytes_of[column["dtype"]] * math.prod(column["shape"]) for column in job["column"]]
        assert sum(sizes) == sample_bytes, name


@MEASURES
def test_the_training_on_a_device_is_fed_by_each_of_its_feeds() -> None:
    needs("torchvision")
    command = [sys.executable, str(BENCHES / "gpu_training.py"), "--device", "cpu", "--models", "squeezenet1_1"]
    command += ["--batch", "2", "--seconds", "0.1", "--pictures", "8"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 0, done.stderr
    rows = [line.rsplit(maxsplit=3) for line in done.stdout.splitlines()[2:]]
    feeds = ["one batch on the device", "spdl_cluster", "spdl_cluster, crop-ready", "spdl_cluster, scalable", "DataLoader"]
    assert [row[0].split(maxsplit=1)[1] for row in rows] == feeds
    assert all(float(row[1]) > 0 for row in rows), done.stdout


@MEASURES
def test_the_training_over_epochs_runs_on_both_packings() -> None:
    pytest.importorskip("torch")
    command = [sys.executable, str(BENCHES / "epoch_borders.py"), "--documents", "100", "--epochs", "2"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 0, done.stderr
    first, *losses = done.stdout.splitlines()
    assert "4.16 is that of a guess" in first
    for line in losses:
        # A hundred documents make 13 sequences, so an epoch has one whole batch, and the first is of an untrained model.
        name, _, numbers = line.partition(": ")
        assert name in {"packed once", "packed anew in each epoch"} and len(numbers.split()) == 2, line
        assert 5 < float(numbers.split()[0]) < 7, line
    assert len(losses) == 2
