"""The command `benches/peers/run --rows`: rows of numbers from the same Parquet files, by this project's loader and others, in
turns, on the same cores, as batches of numpy arrays."""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys

import install
import loaders
import main
import measure
import pipelines
import table
from data import Data, Settings
from install import Failed
from peer import rows

BATCH = 8192
#: Names of the loaders, ours first.
LOADERS = ["ours", "ray_data", "hf_mapped", "hf_streaming", "arrow"]
#: The columns of the table: title, figure, form, and whether more is better.
COLUMNS = [
    ("rows/s", "images_per_s", "{:,.0f}", True),
    ("CPU s / 1,000,000", "cpu_s_per_million", "{:.2f}", False),
    ("peak MB", "peak_mb", "{:,.0f}", False),
    ("first batch s", "first_batch_s", "{:.2f}", False),
]


def run() -> None:
    args = arguments()
    cores = measure.begin(args.cores)
    data = Data(args.home / "data" / f"rows-{rows.ROWS}")
    data.home.mkdir(parents=True, exist_ok=True)
    contestants = [loaders.Peer(f"rows.{name}", args.home / "venvs", data) for name in args.loaders]
    prepare(contestants, args.no_build)
    runs = []
    for number in range(args.repeats):
        for columns in args.columns:
            settings = Settings(cores=cores, batch=BATCH, columns=columns)
            for loader in contestants if number % 2 == 0 else contestants[::-1]:
                main.warm_cache(loader)
                measure.wait_for_quiet(args.quiet)
                about = {"loader": loader.title, "columns": columns, "round": number}
                runs.append(about | measured(loader, settings, measure.Timing(args.warm, args.seconds)))
                measure.progress(f"{loader.title}, {columns} columns: {text(runs[-1])}")
    titles = [loader.title for loader in contestants]
    others = statistics.median(run.get("others_cores", 0) for run in runs)
    setting = (
        f"{rows.ROWS:,} rows of {len(rows.COLUMNS)} columns, batches of {BATCH}, {cores} cores of {main.processor()}; "
        f"medians of {args.repeats} rounds in turns; other programs used {others:.1f} cores"
    )
    versions = {package: version for loader in contestants for package, version in loader.versions.items()}
    print(setting, markdown(runs, titles, args.columns), sep="\n\n", end="\n\n")
    print("- versions: " + ", ".join(f"{package} {version}" for package, version in sorted(versions.items())))
    if args.json:
        print(json.dumps({"setting": setting, "versions": versions, "runs": runs}))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benches/peers/run --rows", description=__doc__)
    parser.add_argument("--loaders", default=",".join(LOADERS), help="names, with commas between (default: all)")
    parser.add_argument("--columns", default="2,20", help="numbers of columns to read (default 2,20)")
    parser.add_argument("--home", type=pathlib.Path, default=main.HOME, help="environment and data")
    measure.add_options(parser, repeats=3, warm=2, seconds=5, quiet=10)
    args = parser.parse_args()
    args.loaders, args.columns = args.loaders.split(","), [int(count) for count in args.columns.split(",")]
    for name in args.loaders:
        if name not in LOADERS:
            parser.error(f"--loaders: there is no `{name}`, but {', '.join(LOADERS)}")
    for count in args.columns:
        if count % 2 or not 2 <= count <= len(rows.COLUMNS):
            parser.error(f"--columns: {count} is no even number up to {len(rows.COLUMNS)}")
    return args


def prepare(contestants: list, no_build: bool) -> None:
    """Installs everything, and writes and indexes the data."""
    if not no_build:
        python = install.environment(contestants[0].venvs, rows.ENVIRONMENT, tuple(rows.REQUIREMENTS))
        pipelines.install_ours(python)
        loaders.build()
    for loader in contestants:
        loader.versions = loader.install()
        loader.prepare()
    loaders.run([loaders.BINARIES / "spdl-ctl", "index", contestants[0].data.format(rows.FORMAT), "--force"])


def measured(loader, settings: Settings, timing: measure.Timing) -> dict:
    try:
        figures = measure.measure(loader, settings, timing)
    except Failed as error:
        return {"error": str(error)}
    return figures | {"cpu_s_per_million": figures["cpu_s_per_1000"] * 1000}


def text(run: dict) -> str:
    return run["error"] if "error" in run else f"{run['images_per_s']:,.0f} rows/s"


def markdown(runs: list[dict], titles: list[str], columns: list[int]) -> str:
    """Returns a line for each loader and number of columns, with how many times the rows/s the first loader gives."""
    lines = [
        "| columns | loader | " + " | ".join(column[0] for column in COLUMNS) + " | ours / it |",
        "|---|---" + "|---:" * (len(COLUMNS) + 1) + "|",
    ]
    for count in columns:
        ours = rounds(runs, titles[0], count)
        for title in titles:
            own = rounds(runs, title, count)
            if not own:
                errors = [
                    run.get("error", "others used the machine whenever it ran")
                    for run in runs
                    if (run["loader"], run["columns"]) == (title, count)
                ]
                lines.append(f"| {count} | {title} | {errors[-1]} |" + " |" * len(COLUMNS))
                continue
            cells = [form.format(statistics.median(run[key] for run in own.values())) for _, key, form, _ in COLUMNS]
            ratios = [ours[number]["images_per_s"] / own[number]["images_per_s"] for number in ours if number in own]
            cells.append(f"{statistics.median(ratios):.2f}" if ratios else "")
            lines.append(f"| {count} | {title} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def rounds(runs: list[dict], title: str, columns: int) -> dict[int, dict]:
    """Returns the good runs of a loader by round."""
    own = [run for run in runs if (run["loader"], run["columns"]) == (title, columns)]
    return {run["round"]: run for run in own if table.is_good(run)}


if __name__ == "__main__":
    try:
        run()
    except (Failed, OSError, subprocess.SubprocessError) as error:
        sys.exit(f"benches/peers/run --rows: {error}")
