"""A job that is a dict: its errors use the job's keys, and mention no TOML, Rust or line numbers."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import spdl_cluster
from conftest import MakeJob


def refusal(job: Any) -> str:
    """Returns the error for this job."""
    with pytest.raises(spdl_cluster.SettingError) as error:
        spdl_cluster.local(job, tensors="numpy").__enter__()
    text = str(error.value)
    for leak in ("TOML", "line", "untagged", "variant", "struct", "serde", "None", "panicked"):
        assert leak not in text, f"`{leak}` is in: {text}"
    return text


@pytest.mark.parametrize(
    ("ops", "text"),
    [
        ([{"resize": {}}], "job: column image, ops[0]: resize expects { size = 256 }; `size` is missing"),
        ([{"resize": 64}, {"center_crop": "64"}], "job: column image, ops[1]: center_crop expects { size = 224 }, not the text \"64\""),
        ([{"resize": 64}, "random_flop"], "job: column image, ops[1]: there is no step `random_flop`; did you mean `random_flip`?"),
        ([64], "job: column image: ops[0] expects a step, such as { resize = { size = 256 } } or \"random_flip\", not 64"),
    ],
)
def test_a_wrong_step_is_named_by_its_column_and_place(job: MakeJob, ops: list[Any], text: str) -> None:
    wrong = job()
    wrong["column"][0]["ops"] = ops
    assert refusal(wrong) == text


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ({"global_batch": "24"}, 'job: global_batch expects a whole number, not the text "24"; leave out the quotes'),
        ({"global_batch": -1}, "job: global_batch expects a whole number from 0 to 4294967295, not -1"),
        ({"seed": 1.5}, "job: seed expects a whole number, not 1.5"),
        ({"shuffle": "no"}, 'job: shuffle expects true or false, not the text "no"'),
        ({"order": 3}, "job: order expects a table of keys, not 3"),
        ({"epoch_end": 3}, "job: epoch_end expects one of drop, pad, continuous, exact, partial, not 3"),
    ],
)
def test_a_wrong_value_is_named_by_its_key_with_what_it_should_be(job: MakeJob, keys: dict[str, Any], text: str) -> None:
    assert refusal(job(**keys)) == text


def test_a_key_that_no_job_has_and_a_value_that_no_job_file_can_hold_are_named(job: MakeJob) -> None:
    assert "global_bach" in refusal(job(global_bach=24)) and "`global_batch`" in refusal(job(global_bach=24))
    assert refusal(job(seed={1, 2})) == "job.seed is a `set`, which no key of a job is"
    assert refusal({**job(), 3: 4}) == "job has a key that is not a string"
    assert refusal([job()]) == "job is a `list`, neither a dict nor the path of a job file"


def test_what_is_obvious_is_taken_for_what_it_is(job: MakeJob) -> None:
    right = job()
    right["column"][0]["ops"] = [{"resize": [48, 48]}, {"center_crop": 32}, "random_flip"]
    with spdl_cluster.local(right, tensors="numpy") as loader:
        assert next(iter(loader))["image"].shape == (24, 32, 32, 3)


@dataclasses.dataclass
class MyColumn:
    """A column as a program has it."""

    name: str
    from_: str
    decode: str
    ops: tuple[Any, ...] | None = None
    max_bytes: int | None = None


@dataclasses.dataclass(frozen=True)
class MyJob:
    """A job as a program has it."""

    name: str
    dataset: str
    global_batch: int
    column: list[MyColumn]
    seed: int | None = None


def test_an_object_of_a_dataclass_is_the_dict_of_its_fields(job: MakeJob) -> None:
    wanted = job()
    columns = [MyColumn("image", "jpg", "image", ({"resize": (32, 32)},)), MyColumn("label", "cls", "int")]
    made = MyJob(wanted["name"], str(wanted["dataset"]), 24, columns)
    same = {
        "name": made.name,
        "dataset": made.dataset,
        "global_batch": 24,
        "column": [
            {"name": "image", "from": "jpg", "decode": "image", "ops": [{"resize": [32, 32]}]},
            {"name": "label", "from": "cls", "decode": "int"},
        ],
    }
    with spdl_cluster.local(made, tensors="numpy") as mine, spdl_cluster.local(same, tensors="numpy") as theirs:
        for ours, other in zip(mine, theirs, strict=True):
            assert ours["image"].tobytes() == other["image"].tobytes() and ours["label"].tolist() == other["label"].tolist()
    with spdl_cluster.local({**same, "column": columns}, tensors="numpy") as loader:
        assert next(iter(loader))["image"].shape == (24, 32, 32, 3)
    wrong = MyJob(made.name, made.dataset, 24, [MyColumn("label", "cls", "whole")])
    assert "column label" in refusal(wrong)
    assert refusal(MyJob) == "job is a `type`, neither a dict nor the path of a job file"
    within: dict[str, Any] = dict(same)
    within["column"] = [within]
    assert "is nested too deep for a job" in refusal(within)
