"""Trainings on sequences of a job on several ranks: torchtitan's goes on with more of them, and the losses of Hugging Face's `Trainer` do not depend on their
number."""

from __future__ import annotations

import hashlib
import json
import os
import pathlib

import pytest
import spdl_cluster
from conftest import needs, write_job
from test_adapters import SEQ_LEN, a_job, paired, run, uneven
from test_recipes import ABSENT

pytest.importorskip("torch", reason=os.environ.get("SPDL_TEST_NO_TORCH", "torch is not installed"))
pytestmark = pytest.mark.drawn(1, group="trainings on tokens")


def test_torchtitan_goes_on_with_more_ranks_to_the_end_of_a_finite_epoch(tmp_path: pathlib.Path) -> None:
    needs("torchtitan", ABSENT)
    job = a_job(tmp_path, paired(54), 6)
    with spdl_cluster.local(job, tensors="torch") as loader:
        rows = [hashlib.sha256(row.long().numpy().tobytes()).hexdigest() for batch in loader for row in batch["tokens"]]
    settings = {"job": str(write_job(job, tmp_path / "job.toml")), "rows": 2, "seq_len": SEQ_LEN, "steps": 1000, "every": 3}
    two = run("torchtitan_program.py", tmp_path, json.dumps({**settings, "stop": 6}), world=2)
    three = run("torchtitan_program.py", tmp_path, json.dumps(settings), world=3)
    trained = []
    for ranks in (two, three):
        steps = zip(*(of_rank["seen"] for of_rank in sorted(ranks, key=lambda of_rank: of_rank["rank"])))
        trained.append([row for step in steps for part in step for row in part])
    assert [len(part) for part in trained] == [6 * 4, 5 * 6] and trained[0] + trained[1] == rows
    assert {rank["step"] for rank in two} == {6} and {rank["step"] for rank in three} == {12}, "the step that has no data is canceled"
    assert len({tuple(rank["losses"]) for rank in three}) == 1


def test_losses_of_trainer_do_not_depend_on_the_number_of_ranks(tmp_path: pathlib.Path) -> None:
    """Ranks have different numbers of labels, and none asks another for its number."""
    needs("transformers", ABSENT)
    job = write_job(a_job(tmp_path, uneven(120), 4, labels={"shifted": False}), tmp_path / "job.toml")
    training = json.dumps({"job": str(job), "steps": 6, "accumulate": 2})
    [alone], [both] = run("trainer_program.py", tmp_path, training), run("trainer_program.py", tmp_path, training, world=2)
    assert len(alone["losses"]) == 6 and both["losses"] == pytest.approx(alone["losses"], rel=1e-4)
