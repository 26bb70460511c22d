"""Reads WebDataset shards in order, with the package `webdataset` itself.

usage: read_webdataset.py SHARD.tar...

Prints one JSON object: {"records": [{"key": .., "fields": {field: SHA-256 of its bytes}}, ...]}, in the order read.
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
        records.append({"key": record["__key__"], "fields": fields})
    print(json.dumps({"records": records}))


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(*sys.argv[1:])
