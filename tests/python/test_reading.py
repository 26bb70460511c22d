"""`spdl_cluster.open`: single records, compared with what was written and with Pillow."""

from __future__ import annotations

import json
import os
import pathlib

import numpy
import pytest
import spdl_cluster
from PIL import Image, ImageOps
from test_info import npy, picture, write_tar


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Indexes records of many kinds."""
    folder = tmp_path_factory.mktemp("records")
    records = []
    for number in range(30):
        record = {"png": picture(7 + number, 5, "PNG"), "cls": str(number).encode(), "score": b"0.5\n", "txt": f"caption {number}".encode()}
        record |= {"arr.npy": npy(numpy.full((2, number + 1), number, "i2")), "json": json.dumps({"n": number}).encode(), "bin": bytes([255, number])}
        if number % 2:
            del record["txt"]
        records.append(record)
    write_tar(folder / "0.tar", records[:20])
    write_tar(folder / "1.tar", records[20:])
    spdl_cluster.index(folder)
    return folder


def test_a_record_has_its_fields_decoded(folder: pathlib.Path) -> None:
    dataset = spdl_cluster.open(folder)
    assert (len(dataset), dataset.format, dataset.classes) == (30, "tar", None)
    for number in (0, 21):
        record = dataset[number]
        assert (record["cls"], record["score"], record["json"], record["bin"]) == (number, 0.5, {"n": number}, bytes([255, number]))
        assert record["png"].shape == (5, 7 + number, 3)
        assert numpy.array_equal(record["arr.npy"], numpy.full((2, number + 1), number, "i2"))
        assert record["arr.npy"].dtype == numpy.int16
        assert (record.sample, record.sample_in_record) == (number, 0)
    assert dataset[0]["txt"] == "caption 0" and "txt" not in dataset[21]
    assert repr(dataset[0]).startswith("<spdl_cluster.Record `")


def test_pictures_are_those_of_pillow(tmp_path: pathlib.Path) -> None:
    turned = Image.effect_noise((24, 16), 60).convert("RGB")
    exif = Image.Exif()
    exif[0x0112] = 6
    (tmp_path / "photos/a").mkdir(parents=True)
    turned.save(tmp_path / "photos/a/turned.png", exif=exif)
    Image.effect_noise((24, 16), 60).save(tmp_path / "photos/a/grey.png")
    Image.radial_gradient("L").resize((40, 30)).convert("RGB").save(tmp_path / "photos/a/smooth.jpg", quality=95)
    spdl_cluster.index(tmp_path / "photos")
    dataset = spdl_cluster.open(tmp_path / "photos")
    for record in dataset:
        [name] = [name for name in ("png", "jpg") if name in record]
        path = next((tmp_path / "photos/a").glob(f"{record.key.rsplit('/')[-1]}.*"))
        expected = numpy.asarray(ImageOps.exif_transpose(Image.open(path)).convert("RGB")).astype(int)
        assert record[name].shape == expected.shape
        # Decoders of JPEG may round in other ways.
        assert abs(record[name].astype(int) - expected).max() <= (0 if name == "png" else 3)
    assert dataset.classes == ["a"]


def test_records_are_found_by_number_slice_and_key(folder: pathlib.Path) -> None:
    dataset = spdl_cluster.open(folder)
    assert [record["cls"] for record in dataset[18:23]] == [18, 19, 20, 21, 22]
    assert dataset[-1]["cls"] == dataset[numpy.int64(29)]["cls"] == 29
    assert [record["cls"] for record in dataset][::7] == [0, 7, 14, 21, 28]
    key = dataset[11].key
    assert dataset[key]["cls"] == 11 and key in dataset and "nothing" not in dataset
    for wrong in (30, -31):
        with pytest.raises(IndexError, match=f"sample {wrong} of 30"):
            dataset[wrong]
    with pytest.raises(KeyError):
        dataset["nothing"]


def test_the_ids_of_a_batch_are_numbers_of_records(folder: pathlib.Path) -> None:
    dataset = spdl_cluster.open(folder)
    column = {"name": "label", "from": "cls", "decode": "int"}
    with spdl_cluster.local({"name": "ids", "dataset": folder, "global_batch": 8, "column": [column]}, tensors="numpy") as loader:
        batch = next(iter(loader))
    assert [dataset[int(number)]["cls"] for number in batch.ids] == batch["label"].tolist()


def test_what_cannot_be_read_is_named(tmp_path: pathlib.Path) -> None:
    with pytest.raises(spdl_cluster.DataError):
        spdl_cluster.open(tmp_path)
    whole = picture(64, 64, "PNG")
    write_tar(tmp_path / "0.tar", [{"png": whole[:100]}, {"png": whole}])
    spdl_cluster.index(tmp_path)
    dataset = spdl_cluster.open(tmp_path)
    with pytest.raises(spdl_cluster.DataError, match="record `0000`, field `png`"):
        dataset[0]
    assert dataset[1]["png"].shape == (64, 64, 3)


def test_parquet_is_read_as_pyarrow_reads_it(tmp_path: pathlib.Path) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    parquet = pytest.importorskip("pyarrow.parquet")
    columns = {"text": ["a", None, "ccc"], "number": [1, 2, 3], "list": [[1.5], [], [2.5, 3.5]], "names": [["x", "y"], [], ["z"]]}
    parquet.write_table(pyarrow.table(columns), tmp_path / "part.parquet")
    spdl_cluster.index(tmp_path)
    dataset = spdl_cluster.open(tmp_path)
    for record, row in zip(dataset, parquet.read_table(tmp_path / "part.parquet").to_pylist(), strict=True):
        assert record.get("text") == row["text"]
        assert (record["number"], record["list"].tolist()) == (row["number"], row["list"])
        assert record["names"] == row["names"]


def test_a_forked_child_gets_an_error(folder: pathlib.Path) -> None:
    dataset = spdl_cluster.open(folder)
    if (child := os.fork()) == 0:
        try:
            dataset[0]
        except spdl_cluster.ForkedError:
            os._exit(7)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
