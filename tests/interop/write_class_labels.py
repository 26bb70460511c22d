"""Writes a table with a `ClassLabel` as the Hub's `datasets` writes it to Parquet.

usage: write_class_labels.py FILE CACHE

Prints the names of the classes, as JSON.
"""

import json
import os
import sys

NAMES = ["zebra", "ant", "bee"]


def main(file: str, cache: str) -> None:
    os.environ.update(HF_HOME=cache, HF_HUB_OFFLINE="1", HF_HUB_DISABLE_TELEMETRY="1")
    import datasets

    datasets.disable_progress_bars()
    features = datasets.Features({"label": datasets.ClassLabel(names=NAMES), "number": datasets.Value("int64")})
    rows = {"label": [number % 3 for number in range(12)], "number": list(range(12))}
    datasets.Dataset.from_dict(rows, features=features).to_parquet(file)
    print(json.dumps(NAMES))


if __name__ == "__main__":
    main(*sys.argv[1:])
