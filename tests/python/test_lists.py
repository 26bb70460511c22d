"""Lists of pictures: from a dataset of MDS, which a few lines write, into ragged batches and into those of one shape."""

from __future__ import annotations

import pathlib
import struct
from typing import Any

import mds
import numpy
import pytest
import spdl_cluster
from conftest import MakeJob, ctl, ctl_json
from numpy.typing import NDArray

SAMPLES = 48
HEIGHT, WIDTH = 6, 5
#: The sample of which a picture is no picture, in the field `broken`.
BROKEN = 29


def picture(sample: int, place: int) -> NDArray[numpy.uint8]:
    random = numpy.random.Generator(numpy.random.PCG64([sample, place]))
    return random.integers(0, 256, (HEIGHT, WIDTH, 3), numpy.uint8)


def frames(sample: int) -> NDArray[numpy.uint8]:
    """Returns the pictures of a sample: none, one, two or three."""
    return numpy.array([picture(sample, place) for place in range(sample % 4)], numpy.uint8).reshape(-1, HEIGHT, WIDTH, 3)


def file(pixels: NDArray[numpy.uint8]) -> bytes:
    return b"P6\n%d %d\n255\n" % (WIDTH, HEIGHT) + pixels.tobytes()


def listed(files: list[bytes]) -> bytes:
    """Encodes a list as MDS does: the number of its files, their sizes, and the files."""
    return struct.pack(f"<{1 + len(files)}I", len(files), *map(len, files)) + b"".join(files)


def encoded(sample: int) -> bytes:
    files = [file(pixels) for pixels in frames(sample)]
    pair = [file(picture(sample, 7)), file(picture(sample, 8))]
    broken = [*pair, b"no picture" if sample == BROKEN else pair[0]]
    values = [listed(files), listed(pair), listed(broken)]
    return struct.pack("<3I", *map(len, values)) + struct.pack("<q", sample) + b"".join(values)


@pytest.fixture(scope="module")
def lists(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("lists")
    columns: dict[str, tuple[str, int | None]] = {"number": ("int", 8)}
    columns |= dict.fromkeys(["frames", "pair", "broken"], ("jpeg_array", None))
    mds.write_shard(folder, columns, [encoded(sample) for sample in range(SAMPLES)])
    ctl("index", folder, "--json")
    return folder


def column(name: str, **keys: Any) -> dict[str, Any]:
    return {"name": name, "from": name, "decode": "image", "ops": [{"center_crop": [HEIGHT, WIDTH]}], **keys}


@pytest.fixture
def list_job(lists: pathlib.Path, job: MakeJob) -> MakeJob:
    """Returns a function that makes a job with these columns and the sample's number."""
    number = {"name": "number", "from": "number", "decode": "int"}
    return lambda *columns, **keys: {**job(dataset=lists, **keys), "column": [number, *columns]}


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_lists_of_any_length_are_ragged_and_those_of_one_length_have_a_dimension_more(list_job: MakeJob, kind: str) -> None:
    torch = pytest.importorskip("torch") if kind == "torch" else None
    columns = [column("frames", max_rows=3), column("pair", pictures=2, layout="nchw", dtype="f32")]
    seen = set()
    with spdl_cluster.local(list_job(*columns), tensors=kind) as loader:  # type: ignore[arg-type]
        for batch in loader:
            samples = batch["number"].tolist()
            seen |= set(samples)
            ragged, expected = batch["frames"], [frames(sample) for sample in samples]
            assert ragged.lengths.tolist() == [len(pictures) for pictures in expected]
            assert tuple(ragged.values.shape) == (sum(map(len, expected)), HEIGHT, WIDTH, 3)
            assert numpy.array_equal(numpy.asarray(ragged.values), numpy.concatenate(expected))
            for pictures, wanted in zip(ragged, expected):
                assert numpy.array_equal(numpy.asarray(pictures), wanted)
            if torch is not None:
                nested = torch.nested.nested_tensor_from_jagged(ragged.values, ragged.offsets)
                assert [tensor.tolist() for tensor in nested.unbind()] == [pictures.tolist() for pictures in expected]
            pairs = numpy.stack([[picture(sample, 7), picture(sample, 8)] for sample in samples])
            planes = pairs.transpose(0, 1, 4, 2, 3).astype("f4") / numpy.float32(255)
            assert tuple(batch["pair"].shape) == (24, 2, 3, HEIGHT, WIDTH)
            assert numpy.array_equal(numpy.asarray(batch["pair"]), planes)
    assert seen == set(range(SAMPLES))


def test_each_picture_of_a_list_draws_for_itself_and_the_same_whatever_the_batches(list_job: MakeJob) -> None:
    flipped = column("pair", pictures=2, ops=[{"random_flip": 0.5}, {"center_crop": [HEIGHT, WIDTH]}])
    found: dict[int, list[Any]] = {}
    for global_batch in (24, 12):
        made = list_job(flipped, epochs=1, global_batch=global_batch)
        with spdl_cluster.local(made, tensors="numpy") as loader:
            for batch in loader:
                for sample, pair in zip(batch["number"].tolist(), batch["pair"]):
                    found.setdefault(sample, []).append(pair.copy())
    ways = set()
    for sample, (first, second) in found.items():
        assert numpy.array_equal(first, second)
        whole = [picture(sample, 7), picture(sample, 8)]
        ways.add(tuple(numpy.array_equal(pixels, stored[:, ::-1]) for pixels, stored in zip(first, whole)))
        assert all(numpy.array_equal(a, b) or numpy.array_equal(a, b[:, ::-1]) for a, b in zip(first, whole))
    assert len(found) == SAMPLES
    assert len(ways) == 4, "each picture of a pair is mirrored or not"


def test_a_function_gets_all_pictures_of_a_sample_in_one_array(list_job: MakeJob) -> None:
    totals = column("frames", max_rows=3, transform="user_functions:total", returns={"shape": []})
    turned = column("pair", pictures=2, transform="user_functions:turned_over")
    with spdl_cluster.local(list_job(totals, turned), tensors="numpy") as loader:
        for batch in loader:
            for at, sample in enumerate(batch["number"].tolist()):
                assert batch["frames"][at] == frames(sample).sum() % 256
                assert numpy.array_equal(batch["pair"][at], [picture(sample, 8), picture(sample, 7)])


def test_replay_writes_each_picture(list_job: MakeJob, job_file: Any, tmp_path: pathlib.Path) -> None:
    image = pytest.importorskip("PIL.Image")
    made = list_job(column("frames", max_rows=3), column("pair", pictures=2))
    ctl("replay", job_file(made), "--out", tmp_path / "replayed")
    (folder,) = (path.parent for path in (tmp_path / "replayed").rglob("batch.json"))
    for at, sample in enumerate(numpy.load(folder / "number.npy").tolist()):
        assert numpy.array_equal(numpy.load(folder / f"frames-{at:05}.npy"), frames(sample))
        written = sorted(folder.glob(f"frames-{at:05}-*.png"))
        assert [numpy.asarray(image.open(path)).tolist() for path in written] == frames(sample).tolist()
        assert numpy.array_equal(numpy.asarray(image.open(folder / f"pair-{at:05}-1.png")), picture(sample, 8))


def test_what_is_wrong_with_a_list_names_the_sample_the_field_and_the_picture(list_job: MakeJob) -> None:
    for made, text in [
        (column("broken", pictures=3), "picture 2 of the list, from 0: field `broken` does not decode"),
        (column("frames", max_rows=2), "field `frames` has 3 pictures; `max_rows` is 2"),
        (column("frames", pictures=2), "field `frames` has [013] pictures; `pictures` is 2"),
        (column("pair"), "field `pair` is a list of 2 values, and one is wanted"),
    ]:
        with spdl_cluster.local(list_job(made, bad_samples="fail")) as loader:
            with pytest.raises(spdl_cluster.DataError, match=f"record `shard.00000/0000..`.*{text}"):
                for _ in loader:
                    pass
    masked = list_job(column("broken", max_rows=3), bad_samples="mask", max_bad_fraction=1)
    with spdl_cluster.local(masked, tensors="numpy") as loader:
        lengths = [length for batch in loader for length in batch["broken"].lengths.tolist()]
    assert sorted(lengths) == [0, *[3] * (SAMPLES - 1)], "the list of a masked sample is empty"


def test_a_job_says_what_it_does_not_take(list_job: MakeJob) -> None:
    follower = {"name": "size", "from": "frames", "decode": "image_size", "follows": "frames"}
    for columns, text in [
        ([column("frames", max_rows=0)], "column `frames`: `max_rows` is 0, not in 1..=65536"),
        ([column("frames", max_rows=2, pictures=2)], "`pictures` is for lists of one length"),
        ([column("frames", max_rows=2), follower], "column `size`: `follows` is `frames`, whose samples are lists of pictures"),
    ]:
        with pytest.raises(spdl_cluster.SettingError, match=text):
            spdl_cluster.local(list_job(*columns)).position


def test_pictures_of_lists_are_verified_and_unpacked_one_by_one(lists: pathlib.Path, tmp_path: pathlib.Path) -> None:
    verified = ctl_json("verify", lists, "--decode")
    assert (verified["records"], verified["faults"]) == (SAMPLES, [])
    ctl("unpack", lists, tmp_path / "files", "--json")
    for sample in range(SAMPLES):
        record = tmp_path / "files" / "shard.00000" / f"{sample:06}"
        found = [path.read_bytes() for path in sorted(record.parent.glob(f"{record.name}.frames.*"))]
        assert found == [file(pixels) for pixels in frames(sample)]
        assert record.with_name(f"{record.name}.pair.1").read_bytes() == file(picture(sample, 8))
