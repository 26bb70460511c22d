"""Loaders of one kind of data in turns: the same cases, cores and rounds for each, and one table. `--rows`, `--tokens`,
`--videos`, `--robots` and `--sounds` run it."""

import argparse
import collections.abc
import dataclasses
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


@dataclasses.dataclass(frozen=True)
class Kind:
    """What is compared."""

    name: str  # of the option, and of the folder with the loaders
    names: list[str]  # of the loaders, ours first
    data: str  # name of the folder of the data, and what it has
    holds: str
    format: str  # of the files that ours reads
    unit: str
    unit_of_cpu: str
    case: str  # what differs between cases
    requirements: tuple[str, ...]  # of our environment
    indexes: collections.abc.Callable[[Data], list[list]] | None = None  # arguments of each `spdl-ctl index`, unless the files are all
    more: collections.abc.Callable[[pathlib.Path, Data], list[str]] | None = None  # lines behind the table, by our Python

    def units(self, settings: Settings) -> int:
        """Units in a batch."""
        return settings.batch * max(1, settings.seq_len)


def columns(kind: Kind) -> list[tuple[str, str, str]]:
    """Returns the columns of the table: title, figure and form."""
    return [
        (f"{kind.unit}/s", "units_per_s", "{:,.0f}"),
        (f"CPU s / {kind.unit_of_cpu}", "cpu_s", "{:.2f}"),
        ("peak MB", "peak_mb", "{:,.0f}"),
        ("first batch s", "first_batch_s", "{:.2f}"),
    ]


def run(kind: Kind, parser: argparse.ArgumentParser, cases) -> None:
    """Parses the arguments and runs all rounds. `cases(args)` returns the settings of each case by its name."""
    parser.add_argument("--loaders", default=",".join(kind.names), help="names, with commas between (default: all)")
    parser.add_argument("--home", type=pathlib.Path, default=main.HOME, help="environments and data")
    measure.add_options(parser, repeats=3, warm=2, seconds=5, quiet=10)
    args = parser.parse_args()
    chosen = args.loaders.split(",")
    for name in chosen:
        if name not in kind.names:
            parser.error(f"--loaders: there is no `{name}`, but {', '.join(kind.names)}")
    cores = measure.begin(args.cores)
    cases = {name: dataclasses.replace(settings, cores=cores) for name, settings in cases(args).items()}
    data = Data(args.home / "data" / kind.data)
    data.home.mkdir(parents=True, exist_ok=True)
    contestants = [loaders.Peer(f"{kind.name}.{name}", args.home / "venvs", data) for name in chosen]
    ready, runs = prepare(kind, contestants, args.no_build)
    for number in range(args.repeats):
        for case, settings in cases.items():
            for loader in ready if number % 2 == 0 else ready[::-1]:
                main.warm_cache(loader)
                measure.wait_for_quiet(args.quiet)
                about = {"loader": loader.title, "case": case, "round": number}
                timing = measure.Timing(args.warm, args.seconds)
                runs.append(about | measured(kind, loader, settings, timing))
                measure.progress(f"{loader.title}, {kind.case} {case}: {text(kind, runs[-1])}")
    others = statistics.median(run.get("others_cores", 0) for run in runs)
    setting = (
        f"{kind.holds}, batches of {next(iter(cases.values())).batch}, {cores} cores of {main.processor()}; "
        f"medians of {args.repeats} rounds in turns; other programs used {others:.1f} cores"
    )
    versions = {package: version for loader in ready for package, version in loader.versions.items()}
    print(setting, markdown(kind, runs, [loader.title for loader in contestants], list(cases)), sep="\n\n", end="\n\n")
    for line in more_lines(kind, args.home / "venvs", data):
        print(f"- {line}")
    print("- versions: " + ", ".join(f"{package} {version}" for package, version in sorted(versions.items())))
    if args.json:
        print(json.dumps({"setting": setting, "versions": versions, "runs": runs}))


def more_lines(kind: Kind, venvs: pathlib.Path, data: Data) -> list[str]:
    return kind.more(install.environment(venvs, kind.name, kind.requirements), data) if kind.more else []


def prepare(kind: Kind, contestants: list, no_build: bool) -> tuple[list, list[dict]]:
    """Installs everything, and writes and indexes the data. Returns the loaders that can run, and why the others cannot."""
    ours = install.environment(contestants[0].venvs, kind.name, kind.requirements)
    if not no_build:
        pipelines.install_ours(ours)
    ready, failed = [], []
    for number, loader in enumerate(contestants):
        try:
            loader.versions = loader.install()
            loader.prepare()
            ready.append(loader)
        except (Failed, OSError, subprocess.SubprocessError) as error:
            if number == 0:
                raise
            measure.progress(f"{loader.title}: {error}")
            failed.append({"loader": loader.title, "case": None, "error": str(error)})
    data = contestants[0].data
    for arguments in kind.indexes(data) if kind.indexes else [[data.format(kind.format)]]:
        loaders.run([ours.parent / "spdl-ctl", "index", *arguments, "--force"])
    return ready, failed


def measured(kind: Kind, loader, settings: Settings, timing: measure.Timing) -> dict:
    try:
        figures = measure.measure(loader, settings, timing)
    except Failed as error:
        return {"error": str(error)}
    of_sample = kind.units(settings) / settings.batch
    of_cpu = int(kind.unit_of_cpu.replace(",", ""))
    figures["units_per_s"] = figures["images_per_s"] * of_sample
    figures["cpu_s"] = figures["cpu_s_per_1000"] / 1000 / of_sample * of_cpu
    return figures


def text(kind: Kind, run: dict) -> str:
    return run["error"] if "error" in run else f"{run['units_per_s']:,.0f} {kind.unit}/s"


def markdown(kind: Kind, runs: list[dict], titles: list[str], cases: list[str]) -> str:
    """Returns a line for each case and loader, with how many times its pace the first loader has."""
    shown = columns(kind)
    lines = [
        f"| {kind.case} | loader | " + " | ".join(title for title, _, _ in shown) + " | ours / it |",
        "|---|---" + "|---:" * (len(shown) + 1) + "|",
    ]
    for case in cases:
        ours = rounds(runs, titles[0], case)
        for title in titles:
            own = rounds(runs, title, case)
            if not own:
                of_loader = [run for run in runs if run["loader"] == title and run["case"] in (case, None)]
                errors = [run.get("error", "others used the machine whenever it ran") for run in of_loader]
                lines.append(f"| {case} | {title} | {errors[-1]} |" + " |" * len(shown))
                continue
            cells = [form.format(statistics.median(run[key] for run in own.values())) for _, key, form in shown]
            ratios = [ours[number]["units_per_s"] / own[number]["units_per_s"] for number in ours if number in own]
            cells.append(f"{statistics.median(ratios):.2f}" if ratios else "")
            lines.append(f"| {case} | {title} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def rounds(runs: list[dict], title: str, case: str) -> dict[int, dict]:
    """Returns the good runs of a loader by round."""
    own = [run for run in runs if (run["loader"], run["case"]) == (title, case)]
    return {run["round"]: run for run in own if table.is_good(run)}


def command(kind: Kind, parser: argparse.ArgumentParser, cases) -> None:
    """Runs the comparison as a program that ends with one line if it cannot."""
    try:
        run(kind, parser, cases)
    except (Failed, OSError, subprocess.SubprocessError) as error:
        sys.exit(f"benches/peers/run --{kind.name}: {error}")
