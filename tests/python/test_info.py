"""`spdl-ctl info`: what it shows is what is in the dataset, and a job reads what it suggests."""

from __future__ import annotations

import io
import json
import pathlib
import statistics
import struct
import tarfile
from collections.abc import Sequence
from typing import Any

import mds
import numpy
import pytest
import spdl_cluster
from conftest import ctl, ctl_json
from PIL import Image


def picture(width: int, height: int, kind: str = "JPEG") -> bytes:
    file = io.BytesIO()
    Image.effect_noise((width, height), 60).convert("RGB").save(file, kind)
    return file.getvalue()


def npy(array: Any) -> bytes:
    file = io.BytesIO()
    numpy.save(file, array)
    return file.getvalue()


def write_tar(path: pathlib.Path, records: Sequence[dict[str, bytes]]) -> None:
    with tarfile.open(path, "w") as tar:
        for number, fields in enumerate(records):
            for name, content in fields.items():
                member = tarfile.TarInfo(f"{number:04}.{name}")
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))


def fields(report: Any) -> dict[str, Any]:
    return {field["name"]: field for field in report["fields"]}


def check_text(dataset: pathlib.Path, *options: object) -> str:
    """Returns what it prints, which has no line beyond 80 columns but for the dataset's path."""
    text = ctl("info", dataset, *options).stdout
    assert [line for line in text.splitlines() if len(line) > 80 and str(dataset) not in line] == []
    return text


def check_job(report: Any, folder: pathlib.Path) -> spdl_cluster.Batch:
    """Returns the first batch of the suggested job, none of whose samples is bad."""
    path = folder / "suggested.toml"
    path.write_text(report["job"])
    with spdl_cluster.local(path, tensors="numpy") as loader:
        batch = next(iter(loader))
        assert not numpy.asarray(batch.flags).any(), report["job"]
        return batch


def test_a_tar_has_the_fields_that_tarfile_finds(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "dataset"
    folder.mkdir()
    records = []
    for number in range(60):
        record = {"jpg": picture(16 + number, 12), "cls": str(number % 7).encode(), "score": b"0.5", "vec.npy": npy(numpy.zeros((number % 4 + 1, 3), "f4"))}
        record |= {"meta.json": json.dumps({"name": "x", "size": {"w": number}}).encode(), "blob": bytes([255, number])}
        if number % 3 == 0:
            record["txt"] = b"a caption" * (number + 1)
        records.append(record)
    write_tar(folder / "train-0.tar", records[:40])
    write_tar(folder / "train-1.tar", records[40:])
    spdl_cluster.index(folder)
    report = ctl_json("info", folder, "--all")

    there: dict[str, list[int]] = {}
    for shard in sorted(folder.glob("*.tar")):
        with tarfile.open(shard) as tar:
            for member in tar:
                there.setdefault(member.name.split(".", 1)[1], []).append(member.size)
    found = fields(report)
    assert set(found) == set(there)
    for name, sizes in there.items():
        field = found[name]
        assert field["records"] == len(sizes)
        assert [field["min_bytes"], field["median_bytes"], field["max_bytes"]] == [min(sizes), statistics.median_low(sizes), max(sizes)]
    kinds = {name: field["kinds"] for name, field in found.items()}
    assert kinds == {
        "jpg": {"JPEG": 60},
        "cls": {"whole number": 60},
        "score": {"number": 60},
        "vec.npy": {"npy f32": 60},
        "meta.json": {"JSON": 60},
        "blob": {"bytes": 60},
        "txt": {"text": 20},
    }
    assert (found["jpg"]["sides"], found["vec.npy"]["sides"]) == ([[16, 12], [75, 12]], [[1, 3], [4, 3]])
    assert (report["looked_at"], report["records"], report["shards"], report["format"]) == (60, 60, 2, "tar")
    assert (report["splits"], report["first_keys"], report["classes"]) == ({"train": 60}, ["0000", "0001", "0002"], [])
    batch = check_job(report, tmp_path)
    assert sorted(batch) == ["blob", "image", "label", "meta_json", "score", "vec_npy"]
    assert "`txt`: only in 20 of 60 records" in check_text(folder, "--all")


def test_a_packed_folder_has_its_classes_with_their_counts(tmp_path: pathlib.Path) -> None:
    counts = {"ant": 5, "bee": 9, "cat": 1}
    for name, count in counts.items():
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(count):
            kind = "png" if number % 2 else "jpg"
            (tmp_path / "photos" / name / f"{number}.{kind}").write_bytes(picture(20, 10, "PNG" if number % 2 else "JPEG"))
    spdl_cluster.pack(tmp_path / "photos", tmp_path / "dataset")
    report = ctl_json("info", tmp_path / "dataset")
    assert {entry["name"]: entry["records"] for entry in report["classes"]} == counts
    assert fields(report)["cls"]["records"] == 15
    # Of each record one of the two.
    assert 'from = "jpg|png"' in report["job"]
    assert sorted(check_job(report, tmp_path)) == ["image", "label"]
    assert "0 ant (5), 1 bee (9), 2 cat (1)" in check_text(tmp_path / "dataset")


def test_loose_files_and_mds_are_looked_at_alike(tmp_path: pathlib.Path) -> None:
    loose = tmp_path / "loose"
    for number in range(12):
        path = loose / ("ant" if number % 3 else "bee") / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(picture(8, 6, "PNG"))
    spdl_cluster.index(loose)
    report = ctl_json("info", loose)
    assert {entry["name"]: entry["records"] for entry in report["classes"]} == {"ant": 8, "bee": 4}
    assert (fields(report)["png"]["kinds"], fields(report)["png"]["sides"]) == ({"PNG": 12}, [[8, 6], [8, 6]])
    assert check_job(report, tmp_path)["image"].shape == (12, 6, 8, 3)
    check_text(loose)

    streamed = tmp_path / "mds"
    streamed.mkdir()
    texts = [f"caption {number}" * (number + 1) for number in range(9)]
    samples = [struct.pack("<I", len(text)) + text.encode() + struct.pack("<q", number) for number, text in enumerate(texts)]
    mds.write_shard(streamed, {"text": ("str", None), "number": ("int", 8)}, samples)
    spdl_cluster.index(streamed)
    found = fields(ctl_json("info", streamed, "--all"))
    assert (found["number"]["kinds"], found["number"]["records"]) == ({"number i64": 9}, 9)
    assert (found["text"]["min_bytes"], found["text"]["max_bytes"]) == (len(texts[0]), len(texts[-1]))
    check_job(ctl_json("info", streamed), tmp_path)


def test_parquet_has_the_columns_that_pyarrow_reads(tmp_path: pathlib.Path) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    parquet = pytest.importorskip("pyarrow.parquet")
    folder = tmp_path / "dataset"
    folder.mkdir()
    rows = 300
    columns = {
        "caption": [None if row % 4 == 0 else "word " * (row % 9 + 1) for row in range(rows)],
        "label": list(range(rows)),
        "weight": [row / 8 for row in range(rows)],
        "embedding": [[float(row)] * 5 for row in range(rows)],
        "image": [{"bytes": picture(16, 16, "PNG"), "path": None} for _ in range(rows)],
    }
    parquet.write_table(pyarrow.table(columns), folder / "part.parquet", row_group_size=100)
    spdl_cluster.index(folder)
    report = ctl_json("info", folder, "--all")
    found, table = fields(report), parquet.read_table(folder / "part.parquet")
    assert report["looked_at"] == table.num_rows == rows
    captions = [len(text) for text in table["caption"].to_pylist() if text is not None]
    caption = found["caption"]
    assert (caption["records"], caption["kinds"]) == (len(captions), {"text": len(captions)})
    assert [caption["min_bytes"], caption["median_bytes"], caption["max_bytes"]] == [min(captions), statistics.median_low(captions), max(captions)]
    assert (found["label"]["kinds"], found["weight"]["kinds"]) == ({"number i64": rows}, {"number f64": rows})
    assert (found["embedding"]["kinds"], found["embedding"]["sides"]) == ({"array f64": rows}, [[5], [5]])
    [image] = [name for name in found if name.startswith("image")]
    assert (found[image]["kinds"], found[image]["sides"]) == ({"PNG": rows}, [[16, 16], [16, 16]])
    assert set(check_job(report, tmp_path)) >= {"label", "weight", "embedding", "image"}
    check_text(folder)


def test_it_looks_at_a_bounded_number_of_records(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "dataset"
    folder.mkdir()
    write_tar(folder / "part.tar", [{"txt": b"x" * 900, "cls": b"1"} for _ in range(2000)])
    spdl_cluster.index(folder, block_size="64KiB")
    report = ctl_json("info", folder, "--records", 48)
    assert 16 <= report["looked_at"] <= 64
    assert report["records"] == 2000
    assert f"fields of {report['looked_at']} records, spread over the dataset (--all looks at all)" in check_text(folder, "--records", 48)
    assert fields(ctl_json("info", folder, "--all"))["txt"]["records"] == 2000


def test_boxes_of_pascal_voc_are_suggested_and_drawn(tmp_path: pathlib.Path) -> None:
    photos = tmp_path / "photos"
    photos.mkdir()
    for number, name in enumerate(["ant", "bee", "ant"]):
        (photos / f"{number}.jpg").write_bytes(picture(64, 48))
        box = "<bndbox><xmin>11</xmin><ymin>6</ymin><xmax>40</xmax><ymax>30</ymax></bndbox>"
        (photos / f"{number}.xml").write_text(f"<annotation><object><name>{name}</name>{box}</object></annotation>")
    (photos / "files.txt").write_text("".join(f"{number}.jpg\n" for number in range(3)))
    spdl_cluster.pack(photos / "files.txt", tmp_path / "dataset", annotations=photos)
    report = ctl_json("info", tmp_path / "dataset", "--sheet", tmp_path / "sheet.png")
    assert [(entry["name"], entry["records"]) for entry in report["classes"]] == [("ant", None), ("bee", None)]
    assert "0 ant, 1 bee" in check_text(tmp_path / "dataset")
    batch = check_job(report, tmp_path)
    assert sorted(batch) == ["boxes", "image", "labels"]
    assert sorted(numpy.asarray(batch["labels"].values).tolist()) == [0, 0, 1]
    # The box is drawn on the picture of 192 pixels, and so is its label.
    drawn = numpy.asarray(Image.open(tmp_path / "sheet.png"))
    assert (drawn == [230, 159, 0]).all(axis=2).sum() > 300
