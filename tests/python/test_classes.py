"""The classes of loaders: their names, and what happens where two loaders number them differently."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator
from typing import Any

import pytest
import spdl_cluster
from conftest import FRAMEWORKS_HERE
from PIL import Image

LABEL = {"name": "label", "from": "cls", "decode": "int"}


def dataset(folder: pathlib.Path, name: str, classes: str, **options: Any) -> pathlib.Path:
    """Packs three pictures of each class."""
    for number, picture in enumerate(classes.split() * 3):
        path = folder / "photos" / name / picture / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8), (number, 0, 0)).save(path)
    spdl_cluster.pack(folder / "photos" / name, folder / name, **options)
    return folder / name


def local(dataset: pathlib.Path, column: dict[str, Any] = LABEL, **settings: Any) -> spdl_cluster.Loader:
    job = {"name": dataset.name, "dataset": dataset, "global_batch": 3, "shuffle": False, "column": [column]}
    return spdl_cluster.local(job, tensors="numpy", **settings)


@pytest.fixture
def train(tmp_path: pathlib.Path) -> Iterator[spdl_cluster.Loader]:
    """Makes a loader of classes `ant` and `bee`."""
    with local(dataset(tmp_path, "train", "ant bee")) as loader:
        yield loader


@FRAMEWORKS_HERE
def test_the_classes_of_a_loader_are_those_of_torchvision(train: spdl_cluster.Loader, tmp_path: pathlib.Path) -> None:
    assert train.classes == ["ant", "bee"]
    assert repr(train).endswith("not opened>")
    next(iter(train))
    assert (train.classes, train.class_to_idx) == (["ant", "bee"], {"ant": 0, "bee": 1})
    folders = pytest.importorskip("torchvision.datasets").ImageFolder(tmp_path / "photos/train")
    assert (train.classes, train.class_to_idx) == (folders.classes, folders.class_to_idx)


def test_validation_folders_that_lack_a_class_are_an_error_before_training(train: spdl_cluster.Loader, tmp_path: pathlib.Path) -> None:
    with local(dataset(tmp_path, "val", "bee")) as val:
        for loader, said in [
            (train, "class 0 is `ant` for job `train` and `bee` for job `val`: the classes of one are 0 `ant`, 1 `bee`; those of the other 0 `bee`"),
            (val, "class 0 is `bee` for job `val` and `ant` for job `train`: the classes of one are 0 `bee`; those of the other 0 `ant`, 1 `bee`"),
        ]:
            with pytest.raises(spdl_cluster.SettingError) as raised:
                next(iter(loader))
            assert said in str(raised.value) and "classes_from=" in str(raised.value)
    # The one that differs is closed.
    assert next(iter(train)).samples == 3


def test_lists_whose_numbers_mean_the_same_are_no_error(train: spdl_cluster.Loader, tmp_path: pathlib.Path) -> None:
    alike = [dataset(tmp_path, "beginning", "ant"), dataset(tmp_path, "longer", "ant bee cat")]
    alike.append(dataset(tmp_path, "taken", "bee", classes_from=tmp_path / "train"))
    for folder in alike:
        with local(folder) as loader:
            next(iter(loader))
    next(iter(train))
    with local(tmp_path / "taken") as taken:
        assert next(iter(taken))["label"].tolist() == [1, 1, 1]
        assert taken.classes == ["ant", "bee"]


def test_only_numbers_of_classes_are_compared(train: spdl_cluster.Loader, tmp_path: pathlib.Path) -> None:
    val = dataset(tmp_path, "val", "bee")
    with local(val, own_classes=True) as own, local(val, {"name": "raw", "from": "png", "decode": "bytes"}) as raw:
        for loader in (train, own, raw):
            next(iter(loader))
        assert raw.classes == ["bee"]
    named = {"name": "label", "from": "cls", "decode": "category", "names": ["0", "1"]}
    with local(val, named) as loader:
        next(iter(loader))


def test_a_long_list_is_shown_where_it_differs(tmp_path: pathlib.Path) -> None:
    names = [f"c{number:03}" for number in range(100)]
    one, other = dataset(tmp_path, "one", " ".join(names)), dataset(tmp_path, "other", " ".join(n for n in names if n != "c050"))
    with local(one) as loader, local(other):
        with pytest.raises(spdl_cluster.SettingError, match=r"class 50 is `c050`.*are 45 `c045`, .*, 54 `c054` \(of 100\); .* 54 `c055` \(of 99\)"):
            next(iter(loader))


def test_a_dataset_that_cannot_be_read_is_the_error_of_its_own_loader(train: spdl_cluster.Loader, tmp_path: pathlib.Path) -> None:
    with local(tmp_path / "nothing") as other:
        next(iter(train))
        with pytest.raises(spdl_cluster.DataError):
            assert other.classes
