"""Pictures of batches: `show`, `loader.sheet` and `spdl-ctl info --sheet`, read with Pillow."""

from __future__ import annotations

import io
import pathlib
from typing import Any

import numpy
import pytest
import spdl_cluster
from conftest import MakeJob, ctl
from PIL import Image


def pixels(png: bytes) -> Any:
    picture = Image.open(io.BytesIO(png))
    assert picture.format == "PNG"
    return numpy.asarray(picture.convert("RGB"))


def test_a_batch_is_drawn_with_its_boxes_and_labels() -> None:
    image = numpy.full((3, 100, 100, 3), 200, "u1")
    boxes = spdl_cluster.Ragged(numpy.array([[10, 20, 50, 60]], "f4"), numpy.array([0, 0, 1, 1]), [0, 0, 1, 1])
    labels = spdl_cluster.Ragged(numpy.array([1]), numpy.array([0, 0, 1, 1]), [0, 0, 1, 1])
    batch = {"image": image, "boxes": boxes, "labels": labels, "label": numpy.array([0, 1, 1]), "notes": ["not an array"]}
    sheet = spdl_cluster.show(batch, classes=["ant", "bee"])
    drawn = pixels(sheet._repr_png_())
    # Two beside each other and two rows, each of 100 pixels and room for text.
    assert drawn.shape == (6 + 2 * 136, 6 + 2 * 106, 3)
    assert (drawn[6:106, 6:106] == 200).all()
    second = drawn[6:106, 112:212]
    assert (second[20, 10:50] == [86, 180, 233]).all() and (second[20:60, 50] == [86, 180, 233]).all()
    assert (second[62:] == 200).all()
    below = drawn[106:136, 112:212]
    assert (below == 0).any() and not numpy.array_equal(below, drawn[106:136, 6:106])
    assert pixels(spdl_cluster.show(batch, samples=1).png).shape == (142, 112, 3)


def test_tensors_of_torch_are_drawn_as_arrays_are() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    planes = numpy.zeros((1, 3, 96, 96), "f4")
    planes[:, 1] = 1
    mask = numpy.zeros((1, 96, 96), "i8")
    mask[0, :10] = 3
    of_numpy = spdl_cluster.show({"image": planes, "mask": mask}).png
    assert spdl_cluster.show({"image": torch.from_numpy(planes).to(torch.bfloat16), "mask": torch.from_numpy(mask)}).png == of_numpy
    drawn = pixels(of_numpy)
    assert drawn[50, 50].tolist() == [0, 255, 0] and drawn[8, 50].tolist() != [0, 255, 0]
    # What was normalised is stretched to all levels.
    assert pixels(spdl_cluster.show({"image": planes * 4 - 2}).png)[50, 50].tolist() == [0, 255, 0]


def test_a_batch_without_pictures_is_an_error() -> None:
    with pytest.raises(spdl_cluster.SettingError, match="no column has pictures"):
        spdl_cluster.show({"label": numpy.arange(3)})


def test_a_loader_draws_the_batch_that_it_begins_with(job: MakeJob, tmp_path: pathlib.Path) -> None:
    with spdl_cluster.local(job(), tensors="numpy") as loader:
        sheet = loader.sheet(samples=9)
        sheet.save(tmp_path / "sheet.png")
        first = next(iter(loader))
        assert first.position == (0, 0)
        assert spdl_cluster.show(first, classes=loader.classes, samples=9).png == sheet.png == (tmp_path / "sheet.png").read_bytes()
        with pytest.raises(spdl_cluster.UsageError, match="has begun"):
            loader.sheet()


def test_info_draws_a_dataset(dataset: pathlib.Path, tmp_path: pathlib.Path) -> None:
    ctl("info", dataset, "--sheet", tmp_path / "sheet.png")
    drawn = pixels((tmp_path / "sheet.png").read_bytes())
    assert drawn.shape == (6 + 4 * 228, 6 + 4 * 198, 3)
    assert len(numpy.unique(drawn.reshape(-1, 3), axis=0)) > 1000
