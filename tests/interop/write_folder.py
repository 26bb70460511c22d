"""Writes a folder of 24 rows in two files of Parquet, or in two tars of WebDataset.

usage: write_folder.py parquet|tars FOLDER
"""

import io
import json
import pathlib
import sys
import tarfile


def main(kind: str, folder: str) -> None:
    path = pathlib.Path(folder)
    path.mkdir(parents=True)
    for number in range(2):
        rows = range(12 * number, 12 * number + 12)
        if kind == "parquet":
            import pyarrow
            import pyarrow.parquet

            table = pyarrow.table({"text": [f"row {row}" for row in rows], "label": list(rows)})
            pyarrow.parquet.write_table(table, path / f"part-{number}.parquet")
            continue
        with tarfile.open(path / f"part-{number}.tar", "w") as tar:
            for row in rows:
                for field, content in [("txt", f"row {row}"), ("cls", str(row))]:
                    member = tarfile.TarInfo(f"{row:06}.{field}")
                    member.size = len(content)
                    tar.addfile(member, io.BytesIO(content.encode()))
    print(json.dumps({"rows": 24}))


if __name__ == "__main__":
    main(*sys.argv[1:])
