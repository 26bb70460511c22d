"""Writes Parquet files with pyarrow, in every combination of page version, encoding and compression, and one with pictures.

usage: write_parquet.py types FOLDER | write_parquet.py pictures FOLDER PICTURE... | write_parquet.py detection FOLDER PICTURE... |
       write_parquet.py groups FOLDER
"""

import decimal
import json
import pathlib
import sys

import numpy
import pyarrow
import pyarrow.parquet
from write_imagenet import jpeg_size

ROWS = 25


def table(seed: int) -> pyarrow.Table:
    """Rows with a column of every type; the numbers span the range of their types."""
    random = numpy.random.default_rng(seed)
    columns = {}
    for kind in ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]:
        limits = numpy.iinfo(kind)
        columns[kind] = random.integers(limits.min, limits.max, ROWS, dtype=kind, endpoint=True)
    for kind in ["float32", "float64"]:
        columns[kind] = random.normal(size=ROWS).astype(kind)
    columns["float16"] = pyarrow.array(random.normal(size=ROWS).astype("float16"))
    columns["flag"] = random.integers(0, 2, ROWS).astype(bool)
    columns["small"] = random.integers(0, 4, ROWS)
    columns["day"] = pyarrow.array(random.integers(0, 20000, ROWS).astype("int32"), pyarrow.date32())
    columns["moment"] = pyarrow.array(random.integers(0, 2**50, ROWS), pyarrow.timestamp("us"))
    blobs = [random.bytes(int(size)) for size in random.integers(0, 3000, ROWS)]
    columns["blob"] = pyarrow.array(blobs, pyarrow.binary())
    columns["large"] = pyarrow.array(blobs[::-1], pyarrow.large_binary())
    columns["fixed"] = pyarrow.array([random.bytes(7) for _ in range(ROWS)], pyarrow.binary(7))
    columns["text"] = [f"prefix {row % 7} Zürich" for row in range(ROWS)]
    triples = pyarrow.array(random.normal(size=3 * ROWS).astype("float32"))
    columns["triple"] = pyarrow.FixedSizeListArray.from_arrays(triples, 3)
    lists = [list(random.integers(-9, 9, int(length))) for length in random.integers(0, 6, ROWS)]
    columns["ragged"] = pyarrow.array(lists, pyarrow.list_(pyarrow.int32()))
    files = [{"bytes": blob, "path": f"{row}.jpg"} for row, blob in enumerate(blobs)]
    columns["image"] = pyarrow.array(files, pyarrow.struct([("bytes", pyarrow.binary()), ("path", pyarrow.string())]))
    points = [[{"x": float(item), "name": "p"} for item in list] for list in lists]
    columns["points"] = pyarrow.array(points)
    columns["maybe"] = pyarrow.array([None if row % 3 == 0 else row for row in range(ROWS)], pyarrow.int64())
    columns["gaps"] = pyarrow.array([[1, None] if row % 4 == 0 else [row, 1] for row in range(ROWS)])
    columns["words"] = [None if row % 5 == 4 else ["Zürich", "", None, "ä"][: row % 5] for row in range(ROWS)]
    frames = [[files[(row + step) % ROWS] for step in range(row % 4)] + [None] * (row % 7 == 6) for row in range(ROWS)]
    columns["frames"] = pyarrow.array(frames, pyarrow.list_(columns["image"].type))
    columns["pages"] = [[["no", "field"]]] * ROWS
    columns["nested"] = [[[row, 2], [3, seed]] for row in range(ROWS)]
    pairs = [[[float(item), row / 8] for item in list] for row, list in enumerate(lists)]
    objects = [{"bbox": pair, "category": list} for pair, list in zip(pairs, lists, strict=True)]
    columns["objects"] = pyarrow.array(objects)
    each = [[{"bbox": box, "category": row} for box in pair] for row, pair in enumerate(pairs)]
    columns["each"] = pyarrow.array(each)
    prices = [decimal.Decimal(int(cents)).scaleb(-2) for cents in random.integers(-(10**8), 10**8, ROWS)]
    columns["price"] = pyarrow.array(prices, pyarrow.decimal128(9 + seed % 3 * 9, 2))
    wide = [decimal.Decimal(int(random.integers(2**62))) * 10**11 + row for row in range(ROWS)]
    columns["wide"] = pyarrow.array([value.scaleb(-20) for value in wide], pyarrow.decimal128(38, 20))
    columns["count"] = pyarrow.array([int(n) for n in random.integers(-(2**59), 2**59, ROWS)]).cast(pyarrow.decimal128(38, 0))
    scores = [[(f"{number}", number) for number in list] for list in lists]
    columns["scores"] = pyarrow.array(scores, pyarrow.map_(pyarrow.string(), pyarrow.int64()))
    columns["uneven"] = [[[1, 2], [3]] if row % 4 == 0 else [[], []] if row % 4 == 1 else [[row]] for row in range(ROWS)]
    columns["holes"] = [[[1, None]] if row % 4 == 0 else [None] if row % 4 == 1 else [[row], [2]] for row in range(ROWS)]
    columns["deep"] = [[[[1, 2]]]] * ROWS
    # Programs may keep bytes there that are no text.
    return pyarrow.table(columns).replace_schema_metadata({b"made by": b"\xff\xfe"})


def types(folder: pathlib.Path) -> dict:
    number = 0
    for codec in ["none", "snappy", "gzip", "brotli", "zstd", "lz4"]:
        for version in ["1.0", "2.0"]:
            for dictionary in [True, False]:
                delta = {"text": "DELTA_BYTE_ARRAY", "blob": "DELTA_LENGTH_BYTE_ARRAY", "int64": "DELTA_BINARY_PACKED"}
                split = {"float32": "BYTE_STREAM_SPLIT", "float64": "BYTE_STREAM_SPLIT"}
                target = folder / f"codec={codec}" / f"part-{number:03}.parquet"
                target.parent.mkdir(parents=True, exist_ok=True)
                pyarrow.parquet.write_table(
                    table(number),
                    target,
                    compression=codec,
                    data_page_version=version,
                    use_dictionary=dictionary,
                    column_encoding=None if dictionary or version == "1.0" else {**delta, **split},
                    write_page_index=number % 3 > 0,
                    write_page_checksum=number % 2 == 0,
                    row_group_size=10,
                    # Small pages: several in a row group, and rows of different columns end in different ones.
                    data_page_size=2000,
                    write_batch_size=5,
                )
                number += 1
    return {"files": number, "rows": number * ROWS}


def pictures(folder: pathlib.Path, *files: str) -> dict:
    """Writes pictures as `datasets` does: struct{bytes, path}, also in a list as for `Sequence(Image())`, a page index, a label."""
    rows = []
    paths = [pathlib.Path(file) for file in sorted(files)]
    for row, path in enumerate(paths):
        frames = [{"bytes": frame.read_bytes(), "path": frame.name} for frame in (paths * 2)[row : row + row % 4]]
        pair = [path.read_bytes(), paths[row - 1].read_bytes()]
        image = {"bytes": path.read_bytes(), "path": path.name}
        rows.append({"image": image, "label": row % 5, "frames": frames, "views": {"pair": pair}})
    image = pyarrow.struct([("bytes", pyarrow.binary()), ("path", pyarrow.string())])
    views = pyarrow.struct([("pair", pyarrow.list_(pyarrow.binary()))])
    fields = [("image", image), ("label", pyarrow.int64()), ("frames", pyarrow.list_(image)), ("views", views)]
    schema = pyarrow.schema(fields)
    folder.mkdir(parents=True, exist_ok=True)
    shards = 3
    for shard in range(shards):
        part = rows[shard * len(rows) // shards : (shard + 1) * len(rows) // shards]
        pyarrow.parquet.write_table(
            pyarrow.Table.from_pylist(part, schema),
            folder / f"train-{shard:05}-of-{shards:05}.parquet",
            write_page_index=True,
            use_content_defined_chunking=True,
            data_page_size=64 << 10,
            write_batch_size=1,
        )
    return {"rows": len(rows)}


def detection(folder: pathlib.Path, *files: str) -> dict:
    """Writes pictures with boxes as `datasets` does: lists of boxes and of classes, and the same as lists of objects. `expected`
    has the boxes in pictures of 96x64."""
    rows = []
    for row, file in enumerate(sorted(files)):
        jpg = pathlib.Path(file).read_bytes()
        height, width = jpeg_size(jpg)
        eighths = [[left, 1, 2, 1 + left] for left in range(row % 5)]
        boxes = [[x * width / 8, y * height / 8, w * width / 8, h * height / 8] for x, y, w, h in eighths]
        classes = [7 * row + x for x, *_ in eighths]
        rows.append(
            {
                "image": {"bytes": jpg, "path": f"{row}.jpg"},
                "objects": {"bbox": boxes, "category": classes},
                "each": [{"bbox": box, "category": number} for box, number in zip(boxes, classes, strict=True)],
                "expected": [[x * 12.0, y * 8.0, (x + w) * 12.0, (y + h) * 8.0] for x, y, w, h in eighths],
            }
        )
    box, number = pyarrow.list_(pyarrow.float32(), 4), pyarrow.int64()
    schema = pyarrow.schema(
        [
            ("image", pyarrow.struct([("bytes", pyarrow.binary()), ("path", pyarrow.string())])),
            ("objects", pyarrow.struct([("bbox", pyarrow.list_(box)), ("category", pyarrow.list_(number))])),
            ("each", pyarrow.list_(pyarrow.struct([("bbox", pyarrow.list_(pyarrow.float64())), ("category", number)]))),
            ("expected", pyarrow.list_(box)),
        ]
    )
    folder.mkdir(parents=True, exist_ok=True)
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows, schema), folder / "train.parquet", write_page_index=True)
    return {"rows": len(rows)}


def groups(folder: pathlib.Path) -> dict:
    """Writes files of one row group of 24 MB each, as pandas does by default: without a page index, and with as many rows in a page as
    are written at once. Between them lies a file of 10 kB with a page of 240 MB."""
    folder.mkdir(parents=True, exist_ok=True)
    random, rows = numpy.random.default_rng(7), 4000
    for number in range(4):
        blobs = [random.bytes(6000) for _ in range(rows)]
        table = pyarrow.table({"blob": pyarrow.array(blobs, pyarrow.binary()), "label": range(number * rows, (number + 1) * rows)})
        pyarrow.parquet.write_table(table, folder / f"{number}.parquet", row_group_size=rows)
    blobs = pyarrow.array([bytes(60_000_000)] * 4 + [b"short"] * 4, pyarrow.large_binary())
    table = pyarrow.table({"blob": blobs, "label": [-1] * 8})
    pyarrow.parquet.write_table(table, folder / "2-large-page.parquet", compression="zstd", use_dictionary=False)
    return {"rows": 4 * rows}


if __name__ == "__main__":
    command, folder, *arguments = sys.argv[1:]
    commands = {"types": types, "pictures": pictures, "detection": detection, "groups": groups}
    print(json.dumps(commands[command](pathlib.Path(folder), *arguments)))
