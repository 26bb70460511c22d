"""Loaders of numbers in Parquet, as `benches/peers/run --rows` compares them: peers as those of pictures, whose batches are
dicts of arrays of numpy."""

import pathlib

ROWS, FILES, GROUP, INTEGERS, FLOATS = 2_000_000, 4, 100_000, 10, 10
FORMAT = "numbers"
#: Rows that are shuffled among themselves, where a loader takes a number.
BUFFER = 100_000
#: The environment that all share.
ENVIRONMENT = "rows"
REQUIREMENTS = ["numpy==2.4.6", "pyarrow==26.0.1", "datasets==5.2.0", "ray[data]==2.60.0", "maturin==1.16.0"]
COLUMNS = [f"i{number}" for number in range(INTEGERS)] + [f"f{number}" for number in range(FLOATS)]


def prepare(data) -> None:
    """Writes rows of random numbers: half of the columns are whole numbers of 8 bytes, half are floats of 4."""
    import numpy
    import pyarrow
    import pyarrow.parquet

    for file in range(FILES):
        random, rows = numpy.random.default_rng(file), ROWS // FILES
        columns = {name: random.integers(0, 1 << 40, rows) for name in COLUMNS[:INTEGERS]}
        columns |= {name: random.normal(size=rows).astype("float32") for name in COLUMNS[INTEGERS:]}
        path = data.format(FORMAT) / f"part-{file}.parquet"
        options = {"row_group_size": GROUP, "compression": "snappy", "use_dictionary": False, "write_page_index": True}
        pyarrow.parquet.write_table(pyarrow.table(columns), path, **options)


def files(data) -> list[str]:
    return sorted(map(str, pathlib.Path(data.format(FORMAT)).glob("*.parquet")))


def names(settings) -> list[str]:
    """Returns the columns to read: as many whole numbers as floats."""
    half = settings.columns // 2
    return COLUMNS[:half] + COLUMNS[INTEGERS : INTEGERS + half]
