"""`spdl_cluster.Writer`: what it writes is read by this package, by WebDataset and by `tarfile`."""

from __future__ import annotations

import io
import json
import os
import pathlib
import signal
import subprocess
import tarfile
import time
import warnings
from typing import Any

import pytest
import spdl_cluster
from conftest import LIMIT_S, ctl, ctl_json, run_python
from spdl_cluster import Writer

np = pytest.importorskip("numpy")
PIL = pytest.importorskip("PIL.Image")


def picture(number: int, mode: str = "RGB", size: int = 24) -> Any:
    """Returns a picture of Pillow, smooth so that JPEG keeps it."""
    ramp = np.add.outer(np.arange(size) * 4, np.arange(size) * 3) + number
    return PIL.fromarray(np.stack([ramp, ramp + 20, ramp + 40], axis=-1).astype(np.uint8)).convert(mode)


def load(folder: pathlib.Path, *columns: dict[str, Any], batch: int = 4) -> dict[str, Any]:
    """Returns a batch in the order of the dataset."""
    job = {"name": "job", "dataset": folder, "global_batch": batch, "shuffle": False, "column": list(columns)}
    with spdl_cluster.local(job, tensors="numpy") as loader:
        return {name: value.copy() if hasattr(value, "copy") else value for name, value in next(iter(loader)).items()}


def members(folder: pathlib.Path) -> dict[str, bytes]:
    """Returns the members of all shards, by their paths."""
    found: dict[str, bytes] = {}
    for shard in sorted(folder.glob("*.tar")):
        with tarfile.open(shard) as tar:
            for member in tar:
                content = tar.extractfile(member)
                assert content is not None and member.name not in found
                found[member.name] = content.read()
    return found


def test_each_type_is_read_back_as_it_was_written(tmp_path: pathlib.Path) -> None:
    arrays = [np.arange(6, dtype=np.float32).reshape(2, 3) * number for number in range(4)]
    with Writer(tmp_path / "set", name="mine", classes=["ant", "bee"]) as writer:
        for number in range(4):
            sample = {
                "image": picture(number),
                "mask": picture(number, "RGBA"),
                "label": np.int64(number % 2),
                "offset": np.int64(number - 2),
                "weight": number / 3,
                "flag": number % 2 == 0,
                "caption": f"Übung {number}",
                "state": arrays[number],
                "about": {"deep": {"value": [number, 0.5]}},
                "raw": bytes([number]) * number,
            }
            writer.write(sample)
            assert writer.samples == number + 1
    report = writer.report
    assert report is not None and (report.samples, report.shards, report.class_names) == (4, 1, ["ant", "bee"])
    assert report.fields == dict.fromkeys(sample, 4) and report.bytes == os.path.getsize(tmp_path / "set/shard-000000.tar")
    tar = members(tmp_path / "set")
    assert [path for path in tar if path.startswith("000000003.")] == [f"000000003.{name}" for name in sample]
    assert tar["000000000.image"][:2] == b"\xff\xd8" and tar["000000000.mask"][:4] == b"\x89PNG"
    found = load(
        tmp_path / "set",
        {"name": "image", "from": "image", "decode": "image", "ops": [{"center_crop": 24}]},
        {"name": "label", "from": "label", "decode": "int"},
        {"name": "offset", "from": "offset", "decode": "int"},
        {"name": "weight", "from": "weight", "decode": "float", "dtype": "f64"},
        {"name": "flag", "from": "flag", "decode": "bool"},
        {"name": "caption", "from": "caption", "decode": "text", "max_bytes": 100},
        {"name": "state", "from": "state", "decode": "tensor", "shape": [2, 3], "dtype": "f32"},
        {"name": "raw", "from": "raw", "decode": "bytes", "max_bytes": 100},
    )
    for number in range(4):
        assert np.abs(found["image"][number].astype(int) - np.asarray(picture(number)).astype(int)).max() < 12
        assert (found["label"][number], found["offset"][number]) == (number % 2, number - 2)
        assert (found["weight"][number], found["flag"][number]) == (number / 3, number % 2 == 0)
        assert (found["state"][number] == arrays[number]).all()
        assert bytes(found["raw"][number]) == bytes([number]) * number
    assert found["caption"].text() == [f"Übung {number}" for number in range(4)]
    assert json.loads(tar["000000002.about"]) == {"deep": {"value": [2, 0.5]}}
    assert ctl_json("verify", tmp_path / "set")["faults"] == []


def test_webdataset_reads_it_with_its_decoders(tmp_path: pathlib.Path) -> None:
    webdataset = pytest.importorskip("webdataset")
    with Writer(tmp_path, records_per_shard=3) as writer:
        for number in range(7):
            sample = {"jpg": picture(number), "cls": number, "txt": f"text {number}", "npy": np.full(3, number), "json": {"n": number}}
            writer.write(sample, key=f"part/{number:03}")
    assert writer.report is not None and writer.report.shards == 3
    shards = sorted(str(shard) for shard in tmp_path.glob("*.tar"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = list(webdataset.WebDataset(shards, shardshuffle=False).decode("rgb8"))
    assert [sample["__key__"] for sample in found] == [f"part/{number:03}" for number in range(7)]
    for number, sample in enumerate(found):
        assert (sample["cls"], sample["txt"], sample["json"]) == (number, f"text {number}", {"n": number})
        assert (sample["npy"] == number).all() and sample["jpg"].shape == (24, 24, 3)


def test_fields_choose_the_types_and_encoded_bytes_stay_as_they_are(tmp_path: pathlib.Path) -> None:
    jpeg, png = io.BytesIO(), io.BytesIO()
    picture(1).save(jpeg, "JPEG")
    picture(1).save(png, "PNG")
    fields = {"a": "jpeg:40", "b": "jpeg", "c": "png", "d": "png", "e": "json", "f": "float", "g": "ndarray"}
    pixels = np.asarray(picture(1))
    with Writer(tmp_path / "set", fields) as writer:
        writer.write({"a": pixels, "b": jpeg.getvalue(), "c": pixels[:, :, 0], "d": png.getvalue(), "e": [1, np.float32(2)], "f": 3, "g": [1, 2]})
        writer.write({"g": None, "f": np.float32(0.5), "e": None, "d": None, "c": None, "b": picture(1, "L"), "a": picture(1)})
    tar = members(tmp_path / "set")
    tables = {name: PIL.open(io.BytesIO(tar[name])).quantization[0][0] for name in ("000000000.a", "000000001.b")}
    assert tables["000000000.a"] > tables["000000001.b"] and tar["000000000.b"] == jpeg.getvalue()
    assert (np.asarray(PIL.open(io.BytesIO(tar["000000000.c"]))) == pixels[:, :, 0]).all()
    assert tar["000000000.d"] == png.getvalue() and json.loads(tar["000000000.e"]) == [1, 2.0]
    assert float(tar["000000000.f"]) == 3 and float(tar["000000001.f"]) == 0.5
    assert np.load(io.BytesIO(tar["000000000.g"])).tolist() == [1, 2]
    assert {path.partition(".")[2] for path in tar if path.startswith("000000001")} == {"a", "b", "f"}


def test_a_wrong_value_names_its_field_and_sample_and_the_next_one_is_written(tmp_path: pathlib.Path) -> None:
    class Odd:
        """Something that no field holds."""

    right = {"image": picture(0), "label": 1, "state": np.zeros(3)}
    with Writer(tmp_path / "set") as writer:
        writer.write(right)
        cases: list[tuple[dict[str, Any], str]] = [
            ({"label": "one"}, "sample 1: field `label` of the type `int` is a `str`, not a whole number"),
            ({"label": True}, "sample 1: field `label` of the type `int` is a `bool`, not a whole number"),
            ({"label": 1 << 70}, "which 64 bits cannot hold"),
            ({"image": b"GIF89a"}, "field `image` of the type `jpeg` has bytes that are not a JPEG\nhint: the type `bytes` takes"),
            ({"image": picture(0, "RGBA")}, "of the mode `RGBA`, which JPEG does not have\nhint: give `picture.convert"),
            ({"image": np.zeros((2, 2, 7), np.uint8)}, "is an array of 2x2x7 `uint8`, which is no picture"),
            ({"state": np.array(["a"])}, "not of numbers or flags"),
            ({"state": Odd()}, "field `state` of the type `ndarray` is a `Odd`, not an array"),
            ({"other": 1}, "sample 1 has not the fields of the others: `other`"),
            ({"__key__": "a"}, "give the key as `write(sample, key=...)`"),
        ]
        for wrong, text in cases:
            with pytest.raises(spdl_cluster.SettingError) as error:
                writer.write({**right, **wrong})
            assert text in str(error.value)
        with pytest.raises(spdl_cluster.SettingError, match="a dot in its key"):
            writer.write(right, key="a.b")
        with pytest.raises(spdl_cluster.SettingError, match=r"has the field `BIG`: a name has no capitals"), Writer(tmp_path / "other") as other:
            other.write({"BIG": 1})
        writer.write(right)
    assert writer.report is not None and writer.report.samples == 2
    assert not (tmp_path / "other").exists()
    for fields, text in [({"a": "pkl"}, "type `pkl`, which does not exist"), ({"a": "jpeg:101"}, "not a number from 1 to 100")]:
        with pytest.raises(spdl_cluster.SettingError, match=text):
            Writer(tmp_path / "third", fields)
    with pytest.raises(spdl_cluster.SettingError, match="field `odd` is a `Odd`, for which there is no type"), Writer(tmp_path / "third") as third:
        third.write({"odd": Odd()})
    with pytest.raises(spdl_cluster.SettingError, match="the field `1`, whose name is no text"), Writer(tmp_path / "third") as third:
        third.write({1: 1})  # type: ignore[dict-item]
    with pytest.raises(spdl_cluster.SettingError, match="sample 0 has the key `3`, which is no text"), Writer(tmp_path / "third") as third:
        third.write({"x": b"1"}, key=3)  # type: ignore[arg-type]
    options: list[tuple[dict[str, Any], str]] = [
        ({"shard_size": "much"}, "size `much`"),
        ({"block_size": -5}, "size `-5`: write a number of bytes, or a text"),
        ({"records_per_shard": -1}, "`records_per_shard` is -1, not a number from 1"),
        ({"classes": "abc"}, "`classes` is the text `abc`, not a list of names"),
    ]
    for wrong, text in options:
        with pytest.raises(spdl_cluster.SettingError, match=text):
            Writer(tmp_path / "third", **wrong)
    assert not (tmp_path / "third").exists()


def test_a_number_that_no_class_has_is_refused_and_the_next_sample_is_written(tmp_path: pathlib.Path) -> None:
    with Writer(tmp_path / "set", {"label": "int"}, classes=["ant", "bee"]) as writer:
        for label in (2, -1):
            problem = rf"sample 0 .*has the number {label} in the field `label`, which is not that of a class: the 2 classes have the numbers 0 to 1"
            with pytest.raises(spdl_cluster.SettingError, match=problem):
                writer.write({"label": label})
        writer.write({"label": 1})
    assert writer.report is not None and writer.report.samples == 1


def test_an_exception_leaves_nothing_and_a_closed_writer_writes_nothing(tmp_path: pathlib.Path) -> None:
    with pytest.raises(ZeroDivisionError), Writer(tmp_path / "set", records_per_shard=1) as writer:
        for number in range(20):
            writer.write({"x": bytes(200_000)})
        1 // 0
    assert not (tmp_path / "set").exists()
    with pytest.raises(spdl_cluster.ClosedError, match="is closed"):
        writer.write({"x": b"1"})
    with pytest.raises(spdl_cluster.DataError, match="no sample was written"):
        Writer(tmp_path / "set").close()
    with Writer(tmp_path / "set") as writer:
        writer.write({"x": b"1"})
    assert writer.close() == writer.report
    with pytest.raises(spdl_cluster.DataError, match=r"exists already\nhint: choose another folder, or replace the existing one with `force=True`"):
        Writer(tmp_path / "set")
    with Writer(tmp_path / "set", force=True) as writer:
        writer.write({"x": b"2"})
        assert members(tmp_path / "set") == {"000000000.x": b"1"}, "the old one, until the new one is complete"
    assert members(tmp_path / "set") == {"000000000.x": b"2"}


def test_two_samples_with_one_key_are_an_error_and_not_a_dataset(tmp_path: pathlib.Path) -> None:
    with pytest.raises(spdl_cluster.SettingError, match="two samples of a shard have the key `a`"), Writer(tmp_path / "set") as writer:
        for key in "aba":
            writer.write({"x": b"1"}, key=key)
    assert not (tmp_path / "set").exists()


def test_a_killed_writer_leaves_no_dataset_and_the_next_one_says_what_to_do(tmp_path: pathlib.Path) -> None:
    process = run_python(
        """
        import sys, spdl_cluster
        writer = spdl_cluster.Writer(sys.argv[1], records_per_shard=2)
        for number in range(20):
            writer.write({"x": bytes(200_000)})
        print("written", flush=True)
        sys.stdin.read()
        """,
        tmp_path / "set",
    )
    assert process.stdout is not None and process.stdout.readline() == "written\n"
    # The shards are written by threads of the writer's.
    deadline = time.monotonic() + LIMIT_S
    while not (tmp_path / "set/.spdl/unfinished.spdl").exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait(LIMIT_S)
    assert not (tmp_path / "set/.spdl/manifest.spdl").exists() and (tmp_path / "set/.spdl/unfinished.spdl").exists()
    with pytest.raises(spdl_cluster.DataError, match=r"begun and is not finished\nhint: .*`force=True`"):
        Writer(tmp_path / "set")
    with Writer(tmp_path / "set", force=True) as writer:
        writer.write({"x": b"1"})
    assert sorted(path.name for path in (tmp_path / "set").iterdir()) == [".spdl", "shard-000000.tar"]


@pytest.mark.parametrize("end", ["", "raise KeyboardInterrupt", "import os; os.fork() or os._exit(0)"])
def test_a_writer_that_the_program_leaves_open_is_no_dataset(tmp_path: pathlib.Path, end: str) -> None:
    process = run_python(
        f"""
        import sys, spdl_cluster
        writer = spdl_cluster.Writer(sys.argv[1])
        writer.write({{"x": b"1"}})
        {end}
        """,
        tmp_path / "set",
    )
    try:
        process.communicate(timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    assert not (tmp_path / "set").exists()


def test_a_writer_belongs_to_its_process(tmp_path: pathlib.Path) -> None:
    with Writer(tmp_path / "set") as writer:
        writer.write({"x": b"1"})
        child = os.fork()
        if child == 0:
            try:
                writer.write({"x": b"2"})
            except spdl_cluster.ForkedError:
                os._exit(0)
            os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
    assert writer.report is not None and writer.report.samples == 1


def test_scalable_pictures_are_restored(tmp_path: pathlib.Path) -> None:
    for name, scalable in (("plain", False), ("scalable", True)):
        with Writer(tmp_path / name, {"jpg": "jpeg"}, scalable=scalable) as writer:
            for number in range(3):
                writer.write({"jpg": picture(number, size=160)})
        ctl("unpack", tmp_path / name, tmp_path / f"{name}-files")
    plain, packed = members(tmp_path / "plain"), members(tmp_path / "scalable")
    assert plain.keys() == packed.keys() and all(content.startswith(b"SPJ\n\x01") for content in packed.values())
    for name, content in plain.items():
        assert (tmp_path / "scalable-files" / name).read_bytes() == content == (tmp_path / "plain-files" / name).read_bytes()
    with pytest.raises(spdl_cluster.SettingError, match="`crop_ready` and `scalable` are both given"):
        Writer(tmp_path / "both", {"jpg": "jpeg"}, crop_ready=True, scalable=True)


def test_crop_ready_pictures_have_the_same_pixels(tmp_path: pathlib.Path) -> None:
    for name, crop_ready in (("plain", False), ("ready", True)):
        with Writer(tmp_path / name, {"jpg": "jpeg"}, crop_ready=crop_ready) as writer:
            for number in range(3):
                writer.write({"jpg": picture(number, size=160)})
    plain, ready = members(tmp_path / "plain"), members(tmp_path / "ready")
    assert plain.keys() == ready.keys() and all(plain[name] != ready[name] for name in plain)
    for name in plain:
        assert (np.asarray(PIL.open(io.BytesIO(plain[name]))) == np.asarray(PIL.open(io.BytesIO(ready[name])))).all()
