"""A job as a typed dict: its types are those of the JSON Schema of job files, and it is accepted wherever a job is."""

from __future__ import annotations

import pathlib
import subprocess
import sys
import typing

import job_reference
import job_types
import pytest
import spdl_cluster
from conftest import LIMIT_S, Cluster
from spdl_cluster import job as types


def test_the_types_are_made_from_the_schema() -> None:
    made = job_types.Types(job_types.read_schema()).text() + "\n"
    found = pathlib.Path(job_types.ROOT, "python/spdl_cluster/job.py").read_text()
    assert found == made, "run `python tests/python/job_types.py > python/spdl_cluster/job.py`"


def test_the_reference_is_made_from_the_schema() -> None:
    made = job_reference.Reference(job_types.read_schema()).text() + "\n"
    found = pathlib.Path(job_types.ROOT, job_reference.PAGE).read_text(encoding="utf-8")
    assert found == made, f"run `python tests/python/job_reference.py > {job_reference.PAGE}`"


def test_each_key_of_a_kind_of_column_is_in_the_section_of_the_kind() -> None:
    sections = pathlib.Path(job_types.ROOT, job_reference.PAGE).read_text(encoding="utf-8").split("\n### ")
    kinds = {section.split("`")[1]: section for section in sections if section.startswith("`") and "- Types: " in section}
    schema = job_types.read_schema()["definitions"]
    assert kinds.keys() == {kind["const"] for kind in schema["DecodeFile"]["oneOf"]}
    for key, value in schema["ColumnFile"]["properties"].items():
        described = set(job_reference.of_kinds(value["description"], kinds))
        assert described == {kind for kind, section in kinds.items() if f"\n| `{key}` |" in section.split("\n## ")[0]}, key


def test_each_key_of_the_schema_has_its_place_in_the_types() -> None:
    schema = job_types.read_schema()
    for name, table in {"Job": schema, **schema["definitions"]}.items():
        if "properties" not in table:
            continue
        found = getattr(types, job_types.NAMES.get(name, name.removesuffix("File")))
        assert set(typing.get_type_hints(found, vars(types))) == set(table["properties"]), name
        assert found.__required_keys__ == set(table.get("required", [])), name
    operations = {key for table in schema["definitions"]["ImageOp"]["oneOf"] for key in table["properties"]}
    assert operations and set(types.Operations.__annotations__) == operations


@pytest.mark.xdist_group("types")
def test_a_type_checker_finds_what_is_wrong(mypy_config: pathlib.Path, tmp_path: pathlib.Path) -> None:
    pytest.importorskip("mypy")
    (tmp_path / "wrong.py").write_text(
        """
import spdl_cluster
image: spdl_cluster.Column = {"name": "image", "from": "jpg", "decode": "image", "ops": [{"resize": 256}, "random_flip", {"center_crop": {"size": 224}}]}
right: spdl_cluster.Job = {"name": "first", "dataset": "dataset", "global_batch": 64, "column": [image], "epoch_end": "exact"}
spdl_cluster.local(right)
wrong: spdl_cluster.Job = {"name": "first", "dataset": "dataset", "global_bach": 64, "column": [image], "epoch_end": "never"}
column: spdl_cluster.Column = {"name": "image", "from": "jpg", "decode": "picture"}
wave: spdl_cluster.Column = {"name": "wave", "from": "flac", "decode": "audio", "ops": [{"speed": [0.9, 1.1]}, {"gain": 6, "noise": {"snr": 10}}]}
"""
    )
    command = [sys.executable, "-m", "mypy", "--config-file", str(mypy_config), "wrong.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=2 * LIMIT_S)
    lines = [line for line in done.stdout.splitlines() if ": error: " in line]
    assert lines and all(line.startswith(("wrong.py:6:", "wrong.py:7:")) for line in lines), done.stdout
    assert "global_bach" in done.stdout and "epoch_end" in done.stdout and "decode" in done.stdout


def test_connect_submits_a_dict_and_the_same_one_again(cluster: Cluster, dataset: pathlib.Path) -> None:
    label: spdl_cluster.Column = {"name": "label", "from": "cls", "decode": "int"}
    job: spdl_cluster.Job = {"name": "as-a-dict", "dataset": dataset, "global_batch": 20, "column": [label]}
    for _ in range(2):
        with cluster.connect(0, 1, job=job) as loader:
            assert loader.job == "as-a-dict"
            assert sum(len(batch["label"]) for batch in loader) == 200
    with pytest.raises(spdl_cluster.RefusedError, match="differs in `seed`"):
        cluster.connect(0, 1, job={**job, "seed": 3})
