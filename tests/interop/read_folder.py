"""Reads a folder as other programs do: with pyarrow if it has Parquet, and with the Hub's `datasets`.

usage: read_folder.py FOLDER CACHE

Prints the number of rows that each of them finds, as JSON.
"""

import json
import os
import pathlib
import sys


def main(folder: str, cache: str) -> None:
    os.environ.update(HF_HOME=cache, HF_HUB_OFFLINE="1", HF_HUB_DISABLE_TELEMETRY="1")
    import datasets
    import pyarrow.dataset
    import pyarrow.parquet

    datasets.disable_progress_bars()
    rows = {name: split.num_rows for name, split in datasets.load_dataset(folder).items()}
    found = {"datasets": rows}
    if list(pathlib.Path(folder).rglob("*.parquet")):
        found["pyarrow.parquet"] = pyarrow.parquet.read_table(folder).num_rows
        found["pyarrow.dataset"] = pyarrow.dataset.dataset(folder).count_rows()
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
