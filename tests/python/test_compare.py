"""Reports of runs, and the page on the ceiling and on two runs side by side."""

from __future__ import annotations

import json
import pathlib
import subprocess

import pytest
import spdl_cluster
from conftest import LIMIT_S, PICTURES, Cluster, MakeJob, ctl, ctl_json, write_job
from test_recipes import Recipe

STEPS = PICTURES // 24


def test_a_report_is_what_a_loader_came_to(job: MakeJob, tmp_path: pathlib.Path) -> None:
    with spdl_cluster.local(job(epochs=2), tensors="numpy") as loader:
        early = loader.report()
        assert (early["batches"], early["samples_per_s"], early["waiting"]) == (0, None, None)
        for _ in range(2):
            for batch in loader:
                size = sum(column.nbytes for column in batch.values())
        report, stats = loader.report(), loader.stats()
    assert (report["job"], report["run"], report["world"], report["global_batch"]) == ("test", "test", 1, 24)
    assert (report["batches"], report["repeated_batches"], report["bad_fraction"]) == (2 * STEPS, 0, 0)
    assert sorted(report["columns"]) == ["image", "label"]
    assert report["samples_per_s"] == pytest.approx(24 * (report["batches_per_s"] or 0))
    assert report["bytes_per_sample"] == stats["bytes"] / stats["samples"] >= size / 24
    assert report["cpu_s_per_sample"]["decode"] > 0
    path = tmp_path / "run.json"
    path.write_text(json.dumps(report, indent=1))
    compared = ctl_json("compare", path, path, "--at-most", "0%")
    assert (compared["base"].keys(), compared["base"]["columns"], compared["regressions"]) == (report.keys(), report["columns"], [])
    assert compared["run"]["samples_per_s"] == pytest.approx(report["samples_per_s"])


def test_ranks_of_a_cluster_report_their_run(job: MakeJob, cluster: Cluster, tmp_path: pathlib.Path) -> None:
    name = cluster.submit(job(name="reported", epochs=1))
    with cluster.connect(0, 2, job=name, run="lr-1") as first, cluster.connect(1, 2, job=name, run="lr-1") as second:
        batches = [list(map(len, (batch.ids for batch in loader))) for loader in (first, second)]
        reports = [first.report(), second.report()]
    assert batches == [[12] * STEPS] * 2
    for report in reports:
        assert (report["run"], report["world"], report["batches"]) == ("lr-1", 2, STEPS)
        assert report["samples_per_s"] == pytest.approx(24 * (report["batches_per_s"] or 0)), "as if both were as fast"
    of_cluster = ctl_json("run", "show", "reported/lr-1", *cluster.admin)
    assert (of_cluster["batches"], of_cluster["columns"], of_cluster["dataset"]) == (STEPS, reports[0]["columns"], reports[0]["dataset"])


def test_the_page_on_runs_side_by_side_runs_as_it_is_written(job: MakeJob, tmp_path: pathlib.Path, temporary: pathlib.Path) -> None:
    write_job(job(name="train"), tmp_path / "train.toml")
    page = Recipe("../guide/observe/compare.md", tmp_path, temporary, {}, {})
    shown = page.run("python measure.py ceiling")
    assert f"{20 * STEPS}, {20 * STEPS - 4} of them repeated" in shown, shown
    shown = page.run("python measure.py base")
    assert "samples/s" in shown and "  decode" in shown, shown
    # The build of the page passes on a machine that does other things, too.
    (tmp_path / "run.json").write_text((tmp_path / "base.json").read_text())
    assert page.run("spdl-ctl compare").endswith("no figure is worse than allowed\n")
    page.end()
    base = json.loads((tmp_path / "base.json").read_text())
    (tmp_path / "run.json").write_text(json.dumps({**base, "samples_per_s": base["samples_per_s"] / 2}))
    done = subprocess.run(
        [ctl("--version").args[0], "compare", "base.json", "run.json", "--at-most", "rate=30%"], cwd=tmp_path, capture_output=True, text=True, timeout=LIMIT_S
    )
    assert (done.returncode, done.stdout.splitlines()[-1]) == (1, "worse than allowed: samples/s is 50.0 % lower, and 30 % are allowed")
