"""Native operations: what they make of files, URLs, pictures and lists, alone and in a pipeline."""

from __future__ import annotations

import functools
import http.server
import pathlib
import tarfile
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import spdl_cluster
from conftest import LIMIT_S, MakeJob
from spdl_cluster import ops
from spdl_cluster.pipeline import PipelineBuilder, PipelineFailure

numpy = pytest.importorskip("numpy")


@pytest.fixture(scope="module")
def pictures(dataset: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> list[pathlib.Path]:
    """Returns the dataset's pictures as files, in the dataset's order."""
    folder = tmp_path_factory.mktemp("pictures")
    paths = []
    for shard in sorted(dataset.glob("**/*.tar")):
        with tarfile.open(shard) as archive:
            for member in archive:
                if member.name.endswith(".jpg"):
                    data = archive.extractfile(member)
                    assert data is not None
                    paths.append(folder / pathlib.Path(member.name).name)
                    paths[-1].write_bytes(data.read())
    return paths


@pytest.fixture(scope="module")
def server(pictures: list[pathlib.Path]) -> Iterator[str]:
    """Serves the pictures on loopback."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None:
            pass

    handler = functools.partial(Quiet, directory=str(pictures[0].parent))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_objects_are_downloaded_from_paths_and_urls(pictures: list[pathlib.Path], server: str) -> None:
    path = pictures[0]
    urls = [str(path), path.as_uri(), f"{server}/{path.name}"]
    assert [ops.download(url) for url in urls] == [path.read_bytes()] * 3
    assert ops.download(urls) == [path.read_bytes()] * 3
    for url, problem in (
        (f"{path}.none", "does not exist"),
        (f"{server}/none.jpg", "none.jpg"),
        ("http://127.0.0.1/", "names no object"),
        (str(path.parent / ".."), "names no object"),
    ):
        with pytest.raises(spdl_cluster.DataError, match=problem):
            ops.download(url)
    with pytest.raises(spdl_cluster.DataError, match="100"):
        ops.download_up_to(100)(str(path))


def test_pictures_have_the_bytes_of_a_jobs(pictures: list[pathlib.Path], job: MakeJob) -> None:
    steps = [{"resize": {"size": [48, 64]}}]
    normalise = {"mean": [0.5, 0.4, 0.3], "std": [0.2, 0.3, 0.4]}
    plain = {"from": "jpg", "decode": "image", "ops": steps}
    floats = {**plain, "name": "floats", "dtype": "f32", "layout": "nchw", "normalise": normalise}
    columns = ({**plain, "name": "bytes"}, floats)
    expected: dict[int, tuple[Any, Any]] = {}
    with spdl_cluster.local(job(*columns, epochs=1, shuffle=False, epoch_end="exact"), tensors="numpy") as loader:
        for batch in loader:
            for at in numpy.flatnonzero(batch.valid):
                expected[int(batch.ids[at])] = (batch["bytes"][at].copy(), batch["floats"][at].copy())
    as_bytes = ops.decode_image((48, 64))
    as_floats = ops.decode_image((48, 64), dtype="f32", layout="nchw", mean=normalise["mean"], std=normalise["std"])
    assert len(expected) == len(pictures)
    for number, path in enumerate(pictures):
        picture = path.read_bytes()
        assert numpy.array_equal(as_bytes(picture), expected[number][0])
        assert numpy.array_equal(as_floats(picture), expected[number][1])


def test_the_centre_is_cut_out_in_the_proportions_of_the_result(pictures: list[pathlib.Path]) -> None:
    whole = ops.decode_image()(pictures[0].read_bytes())
    height, width, _ = whole.shape
    side = min(height, width)
    top, left = (height - side) // 2, (width - side) // 2
    middle = ops.decode_image(side, crop="centre")(pictures[0].read_bytes())
    assert numpy.array_equal(middle, whole[top : top + side, left : left + side])
    # Arrays are memory of their own, which may be written to.
    middle[:] = 0
    assert whole.any()


def test_a_pipeline_of_native_operations_makes_batches(pictures: list[pathlib.Path], server: str) -> None:
    pipeline = (
        PipelineBuilder()
        .add_source(f"{server}/{path.name}" for path in pictures)
        .aggregate(8)
        .pipe(ops.download, concurrency=4, output_order="input")
        .disaggregate()
        .pipe(ops.decode_image(32), concurrency=4, output_order="input")
        .aggregate(32)
        .pipe(ops.collate)
        .add_sink(3)
        .build(num_threads=4)
    )
    with pipeline.auto_stop(timeout=LIMIT_S):
        found = numpy.concatenate(list(pipeline.get_iterator(timeout=LIMIT_S)))
    decode = ops.decode_image(32)
    assert numpy.array_equal(found, numpy.stack([decode(path.read_bytes()) for path in pictures]))


def test_what_is_wrong_with_an_item_is_said() -> None:
    decode = ops.decode_image(32)
    cases: list[tuple[Callable[[], Any], str]] = [
        (lambda: decode(b"no picture"), "a picture of 10 bytes cannot be decoded: the bytes are of no format"),
        (lambda: decode("text"), "takes the bytes of a picture"),  # type: ignore[call-overload]
        (lambda: ops.collate([1]), "arrays that native operations made"),
        (lambda: ops.collate(1), "put `aggregate` in front"),  # type: ignore[call-overload]
    ]
    for call, problem in cases:
        with pytest.raises(spdl_cluster.DataError, match=problem):
            call()
    pipeline = PipelineBuilder().add_source([b"no picture"]).pipe(decode).add_sink(1).build(num_threads=1)
    with pipeline.auto_stop(timeout=LIMIT_S):
        with pytest.raises(PipelineFailure, match="stage `decode_image` failed: a picture of 10 bytes") as raised:
            pipeline.get_item(timeout=LIMIT_S)
        assert raised.value.stage == "decode_image"
    pipeline = PipelineBuilder().add_source([b"no picture"]).pipe(decode, max_failures=1).add_sink(1).build(num_threads=1)
    with pipeline.auto_stop(timeout=LIMIT_S):
        assert list(pipeline.get_iterator(timeout=LIMIT_S)) == []


def test_settings_that_make_no_sense_are_refused() -> None:
    refused: list[dict[str, Any]] = [
        {"size": (0, 3)},
        {"size": 32, "crop": "left"},
        {"layout": "hwc"},
        {"dtype": "u16"},
        {"mean": (0, 0, 0), "std": (1, 1, 1)},
        {"dtype": "f32", "mean": (0, 0, 0)},
        {"dtype": "f32", "mean": (0, 0, 0), "std": (1, 0, 1)},
    ]
    for settings in refused:
        with pytest.raises(spdl_cluster.SettingError):
            ops.decode_image(**settings)
    with pytest.raises(spdl_cluster.SettingError):
        ops.download_up_to(0)
