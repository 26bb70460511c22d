"""Writes a folder of class folders as WebDataset shards, with the package `webdataset` itself.

usage: write_webdataset.py FOLDER OUT SAMPLES_PER_SHARD

Prints one JSON object: {"shards": [file name, ...], "records": {key: {field: SHA-256 of its bytes}}}.
"""

import hashlib
import json
import pathlib
import sys

import webdataset


def main(folder: str, out: str, samples_per_shard: str) -> None:
    classes = sorted(path for path in pathlib.Path(folder).iterdir() if path.is_dir())
    records: dict[str, dict[str, str]] = {}
    pathlib.Path(out).mkdir(parents=True, exist_ok=True)
    with webdataset.ShardWriter(f"{out}/part-%05d.tar", maxcount=int(samples_per_shard), verbose=0) as writer:
        for number, folder_of_class in enumerate(classes):
            for picture in sorted(folder_of_class.iterdir()):
                fields = {
                    "jpg": picture.read_bytes(),
                    "cls": str(number).encode(),
                    "json": json.dumps({"class": folder_of_class.name, "camera": {"exposure": number / 8}}).encode(),
                }
                key = f"{folder_of_class.name}/{picture.stem}"
                writer.write({"__key__": key, **fields})
                records[key] = {name: hashlib.sha256(value).hexdigest() for name, value in fields.items()}
    shards = sorted(path.name for path in pathlib.Path(out).glob("*.tar"))
    print(json.dumps({"shards": shards, "records": records}))


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
