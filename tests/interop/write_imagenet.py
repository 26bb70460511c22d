"""Writes a shard with the fields that examples/imagenet-train.toml names. Needs NumPy.

usage: write_imagenet.py PICTURE.jpg SHARD.tar RECORDS

All records have the same picture. Prints one JSON object: {"records": number of records}.
"""

import io
import json
import sys
import tarfile

import numpy


def main(picture: str, shard: str, records: int) -> None:
    with open(picture, "rb") as file:
        jpg = file.read()
    with tarfile.open(shard, "w") as tar:
        for record in range(records):
            embedding = io.BytesIO()
            numpy.save(embedding, numpy.full((record % 4, 768), record, "f4"))
            fields = {
                "jpg": jpg,
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
