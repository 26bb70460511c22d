"""What a job names of its dataset: fields, places in documents and classes, and the values of samples that lack them."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Callable
from typing import Any

import pytest
import spdl_cluster
from conftest import Cluster

SAMPLES = 12
#: Every third sample lacks a caption, and every fourth its document.
CAPTIONS = [None if number % 3 == 2 else f"caption {number}" for number in range(SAMPLES)]
ANIMALS = ["ant", "bee", "cat", "dog"]

Column = dict[str, Any]
MakeColumns = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Writes a dataset of documents with captions and animals."""
    folder = tmp_path_factory.mktemp("names") / "records"
    with spdl_cluster.Writer(folder, classes=ANIMALS) as writer:
        for number in range(SAMPLES):
            document = {"caption": CAPTIONS[number], "camera": {"iso": 100 + number}, "objects": [{"name": ANIMALS[number % 4]}]}
            writer.write({"cls": number % 4, "json": None if number % 4 == 3 else document})
    return folder


@pytest.fixture
def columns(records: pathlib.Path) -> MakeColumns:
    """Returns a function that makes a job of columns of these records, in their order."""

    def make(*some: Column, **keys: Any) -> dict[str, Any]:
        named = [{"name": f"column{number}", **column} for number, column in enumerate(some)]
        return {"name": "names", "dataset": records, "global_batch": 4, "shuffle": False, **keys, "column": named}

    return make


def values(job: dict[str, Any], name: str = "column0") -> list[Any]:
    """Returns the values of a column that are valid."""
    found: list[Any] = []
    with spdl_cluster.local(job, tensors="numpy") as loader:
        for batch in loader:
            column = batch[name]
            some = column.text() if hasattr(column, "text") else column.tolist()
            found += [value for value, is_valid in zip(some, batch.valid) if is_valid]
    return found


WRONG: list[tuple[Column, str]] = [
    ({"from": "jsn", "decode": "bytes"}, "`from` is `jsn`, which no record of the dataset has; did you mean `json`? its fields are cls, json"),
    ({"from": "json", "decode": "text", "path": "captoin"}, "`path` is `captoin`, .* did you mean `caption`? there are camera, caption, objects"),
    ({"from": "json", "decode": "json", "path": "camera.exposure"}, "`path` is `camera.exposure`, which none of the .* has; there are camera.iso"),
    ({"from": "cls", "decode": "int", "classes": ["cta"]}, "`classes` has `cta`, which is none of the dataset's classes; did you mean `cat`?"),
    (
        {"from": "json", "decode": "category", "path": "objects.0.name", "names": ["ants", "bees"]},
        "`names` are in none of the .* which have `ant`, `bee`, `cat`; did you mean `ants`?",
    ),
]


@pytest.mark.parametrize(("column", "text"), WRONG, ids=[column["decode"] + column["from"] for column, _ in WRONG])
def test_a_name_that_the_dataset_does_not_have_is_an_error_before_the_first_batch(
    columns: MakeColumns, cluster: Cluster, column: Column, text: str
) -> None:
    match = "job `names`: column `column0`: " + text.replace("?", r"\?")
    with spdl_cluster.local(columns(column)) as loader, pytest.raises(spdl_cluster.SettingError, match=match):
        loader.next()
    with pytest.raises(spdl_cluster.RefusedError, match=match):
        spdl_cluster.submit(columns(column), coordinators=cluster.coordinators, certs=cluster.folder / "certs/client")


def test_a_sample_without_a_value_has_the_default(columns: MakeColumns) -> None:
    there = [CAPTIONS[number] if number % 4 < 3 else None for number in range(SAMPLES)]
    caption = {"from": "json", "decode": "text", "path": "caption"}
    with pytest.warns(UserWarning, match="6 of the samples"):
        assert values(columns(caption, max_bad_fraction=1.0)) == [text for text in there if text is not None]
    assert values(columns({**caption, "default": "none"})) == ["none" if text is None else text for text in there]
    iso = [-1 if number % 4 == 3 else 100 + number for number in range(SAMPLES)]
    assert values(columns({"from": "json", "decode": "int", "path": "camera.iso", "default": -1})) == iso
    assert values(columns({"from": "json", "decode": "json", "path": "camera.iso", "default": -1})) == iso
    mean = columns({"from": "json", "decode": "float", "path": "camera.iso", "default": float("nan")})
    assert [value != value for value in values(mean)] == [value == -1 for value in iso]
    with spdl_cluster.local(columns({**caption, "default": "x"})) as one, spdl_cluster.local(columns({**caption, "default": "y"})) as other:
        with pytest.raises(spdl_cluster.StateError):
            other.load_state_dict(one.state_dict())
            other.next()


def test_names_in_documents_are_numbered_by_the_dataset_s_classes(columns: MakeColumns) -> None:
    name = {"from": "json", "decode": "category", "path": "objects.0.name", "default": "dog"}
    assert values(columns(name)) == [number % 4 for number in range(SAMPLES)]
    assert values(columns({**name, "names": ["cat", "bee", "ant"], "default": -100})) == [[2, 1, 0, -100][number % 4] for number in range(SAMPLES)]


def test_some_classes_are_numbered_in_the_order_of_a_list(columns: MakeColumns) -> None:
    label = {"from": "cls", "decode": "int", "classes": ["dog", "ant"]}
    view = {"where": "cls in ['ant', 'dog']"}
    job = columns(label, {"from": "cls", "decode": "one_hot", "classes": ["dog", "ant"]}, view=view)
    assert values(job) == [1, 0] * 3
    assert values(job, "column1") == [[0, 1], [1, 0]] * 3
    with spdl_cluster.local(job) as loader:
        assert (loader.classes, loader.class_to_idx) == (["dog", "ant"], {"dog": 0, "ant": 1})
    with spdl_cluster.local(columns(label, bad_samples="fail")) as loader:
        with pytest.raises(spdl_cluster.DataError, match="`cls` is of class `bee`, which is none of the column's `classes`; a view"):
            list(loader)
    with pytest.raises(spdl_cluster.DataError, match="`bees` is none of the dataset's classes; did you mean `bee`"):
        values(columns(label, view={"where": "cls in ['ant', 'bees']"}))


@pytest.mark.parametrize("transport", ["local", "quic"])
def test_a_loader_of_a_cluster_knows_the_classes(columns: MakeColumns, cluster: Cluster, transport: str) -> None:
    label = {"from": "cls", "decode": "int"}
    jobs = {"all-classes": (columns(label), ANIMALS), "some-classes": (columns({**label, "classes": ["dog", "ant"]}, max_bad_fraction=1.0), ["dog", "ant"])}
    for name, (job, expected) in jobs.items():
        with cluster.connect(0, 1, job=cluster.submit({**job, "name": name}), transport=transport) as loader:
            assert loader.classes == expected
            assert "not opened" in repr(loader)
            assert loader.next() is not None
            assert (loader.classes, loader.stats()["serving"]["transport"]) == (expected, transport)


def test_the_classes_of_a_table_of_the_hub_are_the_dataset_s(tmp_path: pathlib.Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    features = {"label": {"names": ANIMALS, "_type": "ClassLabel"}, "width": {"dtype": "int64", "_type": "Value"}}
    table = pyarrow.table({"label": [number % 4 for number in range(SAMPLES)], "width": list(range(SAMPLES))})
    metadata = {"huggingface": json.dumps({"info": {"features": features}})}
    parquet.write_table(table.replace_schema_metadata(metadata), tmp_path / "train.parquet")
    report = spdl_cluster.index(tmp_path)
    assert report.class_names == ANIMALS
    label = {"name": "label", "from": "label", "decode": "int"}
    job = {"name": "hub", "dataset": tmp_path, "global_batch": 4, "shuffle": False, "column": [label]}
    with spdl_cluster.local(job) as loader:
        assert loader.classes == ANIMALS
    some = {**job, "view": {"where": "label in ['bee', 'dog']"}, "column": [{**label, "classes": ["dog", "bee"]}]}
    assert values(some, "label") == [1, 0] * 3
