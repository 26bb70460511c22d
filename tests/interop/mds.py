"""Writes an MDS dataset with MosaicML Streaming's own writer, or compares what `spdl-ctl unpack` made of one with what its own
reader gives.

usage: mds.py write PICTURES PICKLE [OUT COMPRESSION HASHES]... | mds.py compare [DATASET UNPACKED]...

COMPRESSION and HASHES can be empty; PICKLE is `pickle` for a column of Python objects, too. `compare` prints one JSON object: the
number of samples and of values that are the same in all datasets.
"""

import importlib.util
import io
import json
import pathlib
import sys
import types
from decimal import Decimal
from typing import Any

import numpy
from PIL import Image


def without_torch() -> None:
    """Makes the package importable without PyTorch and the clients of clouds, which reading and writing do not use."""
    spec = importlib.util.find_spec("streaming")
    home = pathlib.Path(spec.submodule_search_locations[0])
    for name in ["streaming", "streaming.base", "streaming.base.format", "streaming.base.storage"]:
        module = types.ModuleType(name)
        module.__path__ = [str(home.joinpath(*name.split(".")[1:]))]
        sys.modules[name] = module
    empty = ["torch", "torch.distributed", "streaming.base.shared", "streaming.base.shared.prefix"]
    for name in empty:
        sys.modules[name] = types.ModuleType(name)
    sys.modules["torch"].distributed = sys.modules["torch.distributed"]
    sys.modules["torch"].Tensor = type(None)
    sys.modules["streaming.base.shared.prefix"]._get_path = None


without_torch()
from streaming.base.compression import decompress  # noqa: E402
from streaming.base.format.mds.reader import MDSReader  # noqa: E402
from streaming.base.format.mds.writer import MDSWriter  # noqa: E402

NUMBERS = [f"{kind}{bits}" for kind in ("uint", "int") for bits in (8, 16, 32, 64)] + ["float16", "float32", "float64"]
MODES = ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "YCbCr", "HSV", "I", "F", "I;16"]
COLUMNS = {
    "image": "jpeg",
    "raw": "bytes",
    "caption": "str",
    "cls": "int",
    "png": "png",
    "meta": "json",
    "digits": "str_int",
    "real": "str_float",
    "exact": "str_decimal",
    "frames": "jpegarray",
    "more_frames": "jpeg_array",
    "jpegs": "list[jpeg]",
    "pngs": "list[png]",
    "pils": "list[pil]",
    "any_array": "ndarray",
    "typed_array": "ndarray:int16",
    "fixed_array": "ndarray:float32:2,3",
    **{f"n_{name}": name for name in NUMBERS},
    **{f"pil_{number}": "pil" for number in range(len(MODES))},
}


def picture_of(mode: str, number: int) -> Image.Image:
    random = numpy.random.default_rng(number)
    if mode == "I;16":
        return Image.fromarray(random.integers(0, 65536, (5, 11), numpy.uint16))
    picture = Image.fromarray(random.integers(0, 256, (5, 11, 3), numpy.uint8))
    return picture.convert("L").convert(mode) if mode in ("LA", "I", "F") else picture.convert(mode)


def array_of(number: int) -> numpy.ndarray:
    kind = NUMBERS[number % len(NUMBERS)]
    shape = [(3,), (1, 2, 4), (300, 2), (1,), (2, 1, 1, 1, 5)][number % 5]
    return numpy.random.default_rng(number).integers(0, 100, shape).astype(kind)


def sample_of(number: int, jpeg: bytes) -> dict[str, Any]:
    random = numpy.random.default_rng(number)
    picture = Image.fromarray(random.integers(0, 256, (9, 7, 3), numpy.uint8))
    sample = {
        "image": jpeg,
        "raw": random.bytes(number * 37 % 5000),
        "caption": f"Nümber {number} " * (number % 4),
        "cls": number * 3 - 5,
        "png": picture,
        "meta": {"number": number, "deep": {"half": number / 2}},
        "digits": -(10 ** (number % 18)),
        "real": number / 7,
        "exact": Decimal(number) / Decimal(8),
        "frames": [jpeg, jpeg[:2] + jpeg[2:]],
        "more_frames": [jpeg],
        "jpegs": [picture] * (number % 3),
        "pngs": [picture],
        "pils": [picture, picture.convert("L")],
        "any_array": array_of(number),
        "typed_array": array_of(number).astype(numpy.int16),
        "fixed_array": random.standard_normal((2, 3)).astype(numpy.float32),
    }
    for name in NUMBERS:
        info = numpy.finfo(name) if name.startswith("f") else numpy.iinfo(name)
        sample[f"n_{name}"] = [info.min, info.max, 1][number % 3]
    for nth, mode in enumerate(MODES):
        sample[f"pil_{nth}"] = picture_of(mode, number)
    return sample


def write(pictures: str, pickle: str, *outs: str) -> None:
    for out, compression, hashes in zip(outs[::3], outs[1::3], outs[2::3]):
        write_one(pictures, pickle, out, compression, hashes)
    print("{}")


def write_one(pictures: str, pickle: str, out: str, compression: str, hashes: str) -> None:
    columns = {**COLUMNS, "object": "pkl"} if pickle else COLUMNS
    settings = {"compression": compression or None, "hashes": hashes.split(",") if hashes else None}
    with MDSWriter(columns=columns, out=out, size_limit=1 << 19, **settings) as writer:
        for number, path in enumerate(sorted(pathlib.Path(pictures).rglob("*.jpg"))):
            sample = sample_of(number, path.read_bytes())
            writer.write({**sample, "object": {"any": number}} if pickle else sample)


def same(ours: bytes, theirs: Any, encoding: str) -> bool:
    if encoding == "pil" and not ours.startswith(b"\x93NUMPY"):
        return pixels(ours) == [theirs.size, theirs.tobytes()]
    if encoding == "pil":
        array = numpy.load(io.BytesIO(ours), allow_pickle=False)
        return array.shape[:2] == theirs.size[::-1] and array.tobytes() == theirs.tobytes()
    if isinstance(theirs, Image.Image):
        return pixels(ours) == [theirs.size, theirs.tobytes()]
    if isinstance(theirs, (numpy.ndarray, numpy.generic)) or encoding == "int":
        theirs = numpy.asarray(theirs)
        array = numpy.load(io.BytesIO(ours), allow_pickle=False)
        return (array.dtype, array.shape) == (theirs.dtype, theirs.shape) and array.tobytes() == theirs.tobytes()
    if encoding == "json":
        return json.loads(ours) == theirs
    return ours == (theirs if isinstance(theirs, bytes) else str(theirs).encode())


def pixels(file: bytes) -> list[Any]:
    if not file.startswith(b"P7"):
        picture = Image.open(io.BytesIO(file))
        # Pillow opens a grey map of 16 bits as 32 bits.
        raw = numpy.asarray(picture).astype(numpy.uint16).tobytes() if picture.mode == "I" else picture.tobytes()
        return [picture.size, raw]
    head, data = file.split(b"ENDHDR\n", 1)
    values = dict(line.split(b" ", 1) for line in head.split(b"\n")[1:-1])
    assert len(data) == int(values[b"WIDTH"]) * int(values[b"HEIGHT"]) * int(values[b"DEPTH"])
    return [(int(values[b"WIDTH"]), int(values[b"HEIGHT"])), data]


def compare(*folders: str) -> None:
    totals = [compare_one(*pair) for pair in zip(folders[::2], folders[1::2])]
    print(json.dumps({"samples": sum(samples for samples, _ in totals), "values": sum(values for _, values in totals)}))


def compare_one(dataset: str, unpacked: str) -> tuple[int, int]:
    folder, values, samples = pathlib.Path(dataset), 0, 0
    for shard in json.loads((folder / "index.json").read_text())["shards"]:
        if shard["zip_data"]:
            zipped = (folder / shard["zip_data"]["basename"]).read_bytes()
            (folder / shard["raw_data"]["basename"]).write_bytes(decompress(shard["compression"], zipped))
        reader = MDSReader.from_json(dataset, "", shard)
        for number in range(shard["samples"]):
            sample = reader.get_item(number)
            key = f"{shard['raw_data']['basename'].removesuffix('.mds')}/{number:06}"
            for name, encoding in zip(shard["column_names"], shard["column_encodings"]):
                path = pathlib.Path(unpacked) / f"{key}.{name}"
                if isinstance(sample[name], list) and encoding != "json":
                    # A list becomes a file for each picture.
                    ours = [path.with_name(f"{path.name}.{nth}").read_bytes() for nth in range(len(sample[name]))]
                    found = len(list(path.parent.glob(f"{path.name}*")))
                    is_same = found == len(ours) and all(same(a, b, "list") for a, b in zip(ours, sample[name]))
                else:
                    ours = path.read_bytes()
                    is_same = same(ours, sample[name], encoding)
                if not is_same:
                    sys.exit(f"{key}.{name}, {encoding}: {ours[:200]!r} is not {sample[name]!r}")
                values += 1
            samples += 1
    return samples, values


if __name__ == "__main__":
    commands = {"write": write, "compare": compare}
    if len(sys.argv) < 2 or sys.argv[1] not in commands:
        sys.exit(__doc__)
    commands[sys.argv[1]](*sys.argv[2:])
