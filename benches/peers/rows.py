"""The command `benches/peers/run --rows`: rows of numbers from the same Parquet files, by this project's loader and others, in
turns, on the same cores, as batches of numpy arrays."""

import argparse

import turns
from data import Settings
from peer import rows

BATCH = 8192
KIND = turns.Kind(
    name="rows",
    names=["ours", "ray_data", "hf_mapped", "hf_streaming", "arrow"],
    data=f"rows-{rows.ROWS}",
    holds=f"{rows.ROWS:,} rows of {len(rows.COLUMNS)} columns",
    format=rows.FORMAT,
    unit="rows",
    unit_of_cpu="1,000,000",
    case="columns",
    requirements=tuple(rows.REQUIREMENTS),
)


def cases(args: argparse.Namespace) -> dict[str, Settings]:
    counts = [int(count) for count in args.columns.split(",")]
    for count in counts:
        if count % 2 or not 2 <= count <= len(rows.COLUMNS):
            raise turns.Failed(f"--columns: {count} is no even number up to {len(rows.COLUMNS)}")
    return {str(count): Settings(cores=0, batch=BATCH, columns=count) for count in counts}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="benches/peers/run --rows", description=__doc__)
    parser.add_argument("--columns", default="2,20", help="numbers of columns to read (default 2,20)")
    turns.command(KIND, parser, cases)
