"""Writes a shard with the fields that examples/imagenet-train.toml names. Needs NumPy.

usage: write_imagenet.py PICTURE.jpg SHARD.tar RECORDS

All records have the same picture. Prints one JSON object: {"records": number of records}.
"""

import io
import json
import struct
import sys
import tarfile
import zlib

import numpy


def grey_png(classes: numpy.ndarray) -> bytes:
    """Returns a PNG of grey values."""
    height, width = classes.shape

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = struct.pack(">2I5B", width, height, 8, 0, 0, 0, 0)
    rows = b"".join(b"\0" + row.tobytes() for row in classes.astype("u1"))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def jpeg_size(jpg: bytes) -> tuple[int, int]:
    """Returns the height and width of a JPEG."""
    at = 2
    while jpg[at + 1] not in (0xC0, 0xC1, 0xC2):
        at += 2 + int.from_bytes(jpg[at + 2 : at + 4], "big")
    return int.from_bytes(jpg[at + 5 : at + 7], "big"), int.from_bytes(jpg[at + 7 : at + 9], "big")


def main(picture: str, shard: str, records: int) -> None:
    with open(picture, "rb") as file:
        jpg = file.read()
    mask = grey_png(numpy.full(jpeg_size(jpg), 3, "u1"))
    with tarfile.open(shard, "w") as tar:
        for record in range(records):
            embedding = io.BytesIO()
            numpy.save(embedding, numpy.full((record % 4, 768), record, "f4"))
            fields = {
                "jpg": jpg,
                "seg.png": mask,
                "objects.json": json.dumps([{"bbox": [5 * box, 7, 60, 40], "category_id": box} for box in range(record % 3)]).encode(),
                "cls": str(record % 1000).encode(),
                "json": json.dumps({"camera": {"exposure": record / 8}}).encode(),
                "txt": f"picture number {record}".encode(),
                "npy": embedding.getvalue(),
                "weather": ("sun", "clouds", "rain")[record % 3].encode(),
            }
            for field, data in fields.items():
                member = tarfile.TarInfo(f"{record:06}.{field}")
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
    print(json.dumps({"records": records}))


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
