"""Native operations: what they make of files, URLs, pictures and lists, alone and in a pipeline."""

from __future__ import annotations

import functools
import http.server
import io
import os
import pathlib
import tarfile
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

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


@pytest.fixture
def signed(pictures: list[pathlib.Path]) -> Iterator[tuple[str, list[int]]]:
    """Serves a picture at URLs whose signature is right, on connections that it counts."""
    connections: list[int] = []

    class Signed(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def setup(self) -> None:
            connections.append(self.client_address[1])
            super().setup()

        def do_GET(self) -> None:
            is_right = self.path.endswith("/a%2Fb.jpg?X-Sig=se/cret%3D&n=1")
            body = pictures[0].read_bytes() if is_right else b""
            self.send_response(200 if is_right else 403)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Signed) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/set", connections
        server.shutdown()


def test_presigned_urls_are_sent_as_they_are_and_never_shown(
    pictures: list[pathlib.Path], signed: tuple[str, list[int]]
) -> None:
    folder, connections = signed
    url = f"{folder}/a%2Fb.jpg?X-Sig=se/cret%3D&n=1"
    for _ in range(20):
        assert ops.download(url) == pictures[0].read_bytes()
    # Calls outside of a pipeline use a connection again, unless the next one comes before the last one has put it back.
    # On a busy machine that happens now and then, and never most of the time.
    assert len(connections) <= 10
    refused = [
        (ops.download, url.replace("n=1", "n=2"), "403 Forbidden; a signature in the URL may have expired"),
        (ops.download, "http://127.0.0.1:1/a?X-Sig=se/cret", "cannot be read"),
        (ops.download_up_to(100), url, "100"),
    ]
    for download, wrong, problem in refused:
        with pytest.raises(spdl_cluster.DataError, match=problem) as raised:
            download(wrong)
        shown = "".join(traceback.format_exception(raised.value))
        assert "cret" not in shown.replace(wrong, "") and "?***" in shown
        pipeline = PipelineBuilder().add_source([wrong]).pipe(download).add_sink(1).build(num_threads=1)
        with pipeline.auto_stop(timeout=LIMIT_S), pytest.raises(PipelineFailure, match=problem) as failed:
            pipeline.get_item(timeout=LIMIT_S)
        assert "cret" not in str(failed.value)


def test_a_forked_child_downloads_on_connections_of_its_own(pictures: list[pathlib.Path], server: str) -> None:
    url = f"{server}/{pictures[0].name}"
    assert ops.download(url) == pictures[0].read_bytes()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        os._exit(0 if ops.download(url) == pictures[0].read_bytes() else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_the_steps_of_decoding_can_be_taken_one_by_one(pictures: list[pathlib.Path]) -> None:
    mean, std = (0.5, 0.4, 0.3), (0.2, 0.3, 0.4)
    normalise = ops.normalise(layout="nchw", mean=mean, std=std)
    for path in pictures[:20]:
        data = path.read_bytes()
        whole = ops.decode_image()(data)
        height, width, _ = whole.shape
        assert numpy.array_equal(ops.resize((height, width))(whole), whole)
        small = ops.resize(20, crop="centre")(whole)
        side = min(height, width)
        top, left = (height - side) // 2, (width - side) // 2
        assert numpy.array_equal(small, ops.resize(20)(whole[top : top + side, left : left + side]))
        # Decoding to a size leaves out frequencies that the result hardly shows.
        in_one = ops.decode_image(20, crop="centre")(data)
        assert numpy.abs(in_one.astype(int) - small.astype(int)).mean() < 2
        assert numpy.array_equal(normalise(in_one), ops.decode_image(20, crop="centre", dtype="f32", layout="nchw", mean=mean, std=std)(data))
        assert numpy.array_equal(ops.normalise(dtype="f16")(in_one), ops.decode_image(20, crop="centre", dtype="f16")(data))
    builder = PipelineBuilder().add_source(pictures[:8]).pipe(pathlib.Path.read_bytes).aggregate(4).pipe(ops.decode_image())
    pipeline = builder.pipe(ops.resize(20)).pipe(normalise).pipe(ops.collate).add_sink(1).build(num_threads=2)
    with pipeline.auto_stop(timeout=LIMIT_S):
        found = numpy.concatenate(list(pipeline.get_iterator(timeout=LIMIT_S)))
    alone = [normalise(ops.resize(20)(ops.decode_image()(path.read_bytes()))) for path in pictures[:8]]
    assert numpy.array_equal(found, numpy.stack(alone))


def saved(save: Callable[..., Any], *arrays: Any, **named: Any) -> bytes:
    """Returns the file that NumPy writes."""
    file = io.BytesIO()
    save(file, *arrays, **named)
    return file.getvalue()


def test_tensors_are_numpys_arrays() -> None:
    decode = ops.decode_tensor()
    for dtype in ("u1", "i2", ">i4", "f2", "f4", ">f8", "u8"):
        for shape in ((), (5,), (2, 3, 4), (0, 3)):
            array = numpy.arange(numpy.prod(shape, dtype=int)).reshape(shape).astype(dtype)
            found = decode(saved(numpy.save, array))
            assert found.dtype == numpy.dtype(dtype).newbyteorder("=") and found.shape == shape
            assert numpy.array_equal(found, array)
    array = numpy.asfortranarray(numpy.arange(12.0).reshape(3, 4))
    assert numpy.array_equal(decode(saved(numpy.save, array)), array)
    both = saved(numpy.savez_compressed, a=array, b=array + 1)
    assert numpy.array_equal(ops.decode_tensor("b")(both), array + 1)
    for data, problem in (
        (both, "`a`"),
        (b"no array", "cannot be read"),
        (saved(numpy.save, numpy.array([{}]), allow_pickle=True), "Python objects"),
        (saved(numpy.save, numpy.zeros((1 << 10, 1 << 10), "f4"))[:200], "cut off"),
    ):
        with pytest.raises(spdl_cluster.DataError, match=problem):
            decode(data)
    with pytest.raises(spdl_cluster.DataError, match="more than 11 bytes"):
        ops.decode_tensor(max_bytes=11)(saved(numpy.save, numpy.zeros(3, "f4")))
    with pytest.raises(spdl_cluster.DataError, match="takes the bytes of a .npy or .npz file"):
        decode("text")  # type: ignore[call-overload]
    builder = PipelineBuilder().add_source([both] * 3).aggregate(3).pipe(ops.decode_tensor("a")).pipe(ops.collate)
    pipeline = builder.add_sink(1).build(num_threads=1)
    with pipeline.auto_stop(timeout=LIMIT_S):
        assert numpy.array_equal(pipeline.get_item(timeout=LIMIT_S), [array] * 3)


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
        (lambda: ops.resize(4)(numpy.zeros((3, 4), "u1")), "`resize` takes pictures as bytes .* this is u8 \\[3, 4\\]"),
        (lambda: ops.resize(4)(numpy.zeros((3, 0, 3), "u1")), "this is u8 \\[3, 0, 3\\]"),
        (lambda: ops.normalise()(numpy.zeros((3, 4, 3), "f4")), "`normalise` takes decoded pictures"),
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
    for make in (
        lambda: ops.download_up_to(0),
        lambda: ops.resize(0),
        lambda: ops.resize(4, crop="left"),  # type: ignore[arg-type]
        lambda: ops.normalise(layout="hwc"),  # type: ignore[arg-type]
        lambda: ops.normalise(dtype="u8", mean=(0, 0, 0), std=(1, 1, 1)),
    ):
        with pytest.raises(spdl_cluster.SettingError):
            make()


class Pair(NamedTuple):
    left: Any
    right: Any


def test_batches_are_copied_to_a_device_whatever_holds_their_arrays(pictures: list[pathlib.Path]) -> None:
    torch = pytest.importorskip("torch")
    to_device = ops.to_device("cpu")
    made = numpy.arange(6, dtype="f4").reshape(2, 3)
    ragged = spdl_cluster.Ragged(torch.arange(3), torch.tensor([0, 1, 3]))
    batch = {"image": made, "nested": [torch.ones(2), ("text", 7, None)], "pair": Pair(made, "b"), "ragged": ragged}
    copied = to_device(batch)
    assert list(copied) == list(batch) and isinstance(copied["image"], torch.Tensor)
    assert torch.equal(copied["image"], torch.from_numpy(made))
    assert torch.equal(copied["nested"][0], torch.ones(2)) and copied["nested"][1] == ("text", 7, None)
    assert isinstance(copied["pair"], Pair) and copied["pair"].right == "b"
    assert [rows.tolist() for rows in copied["ragged"]] == [[0], [1, 2]]
    pipeline = (
        PipelineBuilder()
        .add_source([str(path) for path in pictures[:8]])
        .pipe(ops.download)
        .pipe(ops.decode_image((16, 16)))
        .aggregate(4)
        .pipe(ops.collate)
        .pipe(to_device)
        .add_sink(2)
        .build(num_threads=2)
    )
    with pipeline.auto_stop():
        shapes = [tuple(batch.shape) for batch in pipeline.get_iterator(timeout=LIMIT_S)]
    assert shapes == [(4, 16, 16, 3)] * 2
    assert "to_device" in [stage.name for stage in pipeline.stats()]


def test_a_device_that_is_not_there_is_refused() -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(spdl_cluster.SettingError, match="`device` is `cuda`, and torch finds no GPU"):
        ops.to_device()


def test_batches_on_a_gpu_are_those_of_the_host() -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("torch finds no GPU")
    to_device, sums = ops.to_device("cuda"), []
    made = [torch.full((1 << 20,), number, dtype=torch.float32) for number in range(50)]
    for batch in made:
        sums.append(to_device({"values": batch})["values"].sum())
    assert [total.item() for total in sums] == [batch.sum().item() for batch in made]
