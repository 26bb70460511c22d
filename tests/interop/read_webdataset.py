"""Reads WebDataset shards in order, with the package `webdataset` itself.

usage: read_webdataset.py SHARD.tar...

Prints one JSON object: {"records": [{"key": .., "fields": {field: SHA-256 of its bytes}}, ...]}, in the order read.
A byte of a key that is not UTF-8, which is a lone surrogate in Python, is shown as `\\xe9`.
"""

import hashlib
import json
import sys

import webdataset


def main(*shards: str) -> None:
    dataset = webdataset.WebDataset(
        list(shards), shardshuffle=False, nodesplitter=None, workersplitter=None, empty_check=False
    )
    records = []
    for record in dataset:
        fields = {
            name: hashlib.sha256(value).hexdigest() for name, value in record.items() if not name.startswith("__")
        }
        key = record["__key__"].encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
        records.append({"key": key, "fields": fields})
    print(json.dumps({"records": records}))


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(*sys.argv[1:])
