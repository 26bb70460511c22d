"""Compares the batches that `replay --out` wrote with what pyarrow reads from the same files, in the order of their names; or
the files that `unpack` wrote with lists of text or bytes.

usage: check_parquet.py FOLDER OUT COLUMN=FIELD... | check_parquet.py lists FOLDER UNPACKED FIELD...

Prints the number of values that were compared for each column, and the differences.
"""

import json
import pathlib
import sys

import numpy
import pyarrow
import pyarrow.parquet


def theirs(folder: pathlib.Path, field: str) -> list:
    """Returns the values of a field, as pyarrow has them."""
    first, *rest = field.split(".")
    values = []
    for path in sorted(folder.rglob("*.parquet"), key=str) if folder.is_dir() else [folder]:
        column = pyarrow.parquet.ParquetFile(path).read(columns=[first])[first]
        column = column.combine_chunks()
        for name in rest:
            if pyarrow.types.is_map(column.type):
                column = pyarrow.ListArray.from_arrays(column.offsets, column.keys if name == "key" else column.items)
            elif pyarrow.types.is_list(column.type):
                column = pyarrow.ListArray.from_arrays(column.offsets, column.flatten().field(name))
            else:
                column = column.field(name)
        kind = column.type
        if pyarrow.types.is_date32(kind):
            column = column.cast(pyarrow.int32())
        elif pyarrow.types.is_timestamp(kind):
            column = column.cast(pyarrow.int64())
        found = column.to_pylist()
        if pyarrow.types.is_decimal(kind):
            found = [float(value) if kind.scale else int(value) for value in found]
        values += found
    return values


def ours(out: pathlib.Path, column: str) -> list:
    """Returns the values of a column of all batches, in order."""
    values = []
    for step in sorted(out.iterdir()):
        fixed = step / f"{column}.npy"
        if fixed.exists():
            values += numpy.load(fixed).tolist()
            continue
        for path in sorted(step.glob(f"{column}-*")):
            values.append(path.read_bytes() if path.suffix == ".bin" else numpy.load(path).tolist())
    return values


def main(folder: pathlib.Path, out: pathlib.Path, *columns: str) -> dict:
    compared, different = {}, []
    for column, field in (pair.split("=") for pair in columns):
        expected, found = theirs(folder, field), ours(out, column)
        expected = [value.encode() if isinstance(value, str) else value for value in expected]
        expected = [int(value) if isinstance(value, bool) else value for value in expected]
        found = [int(value) if isinstance(value, bool) else value for value in found]
        compared[column] = len(found)
        if len(expected) != len(found):
            different.append(f"{column}: {len(found)} of {len(expected)} values")
        pairs = zip(expected, found, strict=False)
        wrong = [(row, mine, yours) for row, (mine, yours) in enumerate(pairs) if mine != yours]
        different += [f"{column}, row {row}: {str(a)[:60]} is {str(b)[:60]}" for row, a, b in wrong[:3]]
    return {"compared": compared, "different": different}


def lists(folder: pathlib.Path, unpacked: pathlib.Path, *fields: str) -> dict:
    """Compares lists of text or bytes with the files that became of them: one for each value that is not null."""
    compared, different = dict.fromkeys(fields, 0), []
    for path in sorted(folder.rglob("*.parquet")):
        for field in fields:
            values = theirs(path, field)
            for row, expected in enumerate(values):
                record = unpacked / path.relative_to(folder).with_suffix("") / f"{row:06}.{field}"
                files = {found.name: found.read_bytes() for found in record.parent.glob(f"{record.name}*")}
                expected = [value.encode() if isinstance(value, str) else value for value in expected or []]
                wanted = {f"{record.name}.{n}": value for n, value in enumerate(expected) if value is not None}
                compared[field] += len(wanted)
                if files != wanted:
                    different.append(f"{record}: {sorted(files)} are not {sorted(wanted)}")
    return {"compared": compared, "different": different[:5]}


if __name__ == "__main__" and sys.argv[1] == "lists":
    folder, out, *fields = sys.argv[2:]
    print(json.dumps(lists(pathlib.Path(folder), pathlib.Path(out), *fields)))
elif __name__ == "__main__":
    folder, out, *columns = sys.argv[1:]
    print(json.dumps(main(pathlib.Path(folder), pathlib.Path(out), *columns)))
