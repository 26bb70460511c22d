"""The command `benches/peers/run`: installs, prepares, measures in turn, and reports."""

import argparse
import json
import os
import pathlib
import platform
import subprocess
import sys
import time

import install
import loaders
import measure
import table
from data import Data, Settings
from install import Failed

HOME = loaders.ROOT / "target/peers"


def main() -> None:
    args = arguments()
    cores = measure.begin(args.cores)
    settings = Settings(cores=cores, slow_ms=args.slow_ms if args.slow_objects else 0)
    data = Data(args.home / "data" / str(args.images))
    results = args.results or args.home / "results.jsonl"
    if not args.results:
        results.unlink(missing_ok=True)
    if not args.report_only:
        contestants = prepare(args, data, results)
        if not args.install_only:
            run_rounds(contestants, args, settings, results)
    report(args, results, settings)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benches/peers/run", description=__doc__)
    parser.add_argument(
        "--peers", default=",".join(loaders.PEERS), help="names, with commas between, or none (default: all)"
    )
    parser.add_argument("--ours", default=",".join(loaders.OURS[:6]), help=f"our own ways to run: {', '.join(loaders.OURS)}, or none")
    parser.add_argument("--images", type=int, default=2000, help="pictures, of about 107 KB each (default 2000)")
    parser.add_argument("--repeats", type=int, default=5, help="rounds, in which every loader runs once (default 5)")
    parser.add_argument(
        "--quiet", type=float, default=30, help="waits so many seconds for a quiet machine (default 30)"
    )
    parser.add_argument("--no-build", action="store_true", help="takes our binaries as they are")
    parser.add_argument("--first-round", type=int, default=1, help="number of the first (default 1)")
    parser.add_argument(
        "--warm", type=float, default=3, help="seconds from a first batch on that are not measured (default 3)"
    )
    parser.add_argument("--seconds", type=float, default=10, help="seconds measured after them (default 10)")
    parser.add_argument(
        "--cores", type=int, default=os.cpu_count(), help="cores that everything is pinned to (default: all)"
    )
    parser.add_argument(
        "--slow-objects", action="store_true", help="one object in a hundred is slow, and a step takes its time"
    )
    parser.add_argument("--slow-ms", type=int, default=500, help="how slow (default 500 ms)")
    parser.add_argument(
        "--step-ms", type=float, default=320, help="with --slow-objects: time of a step (default 320: 200 images/s)"
    )
    parser.add_argument(
        "--results", type=pathlib.Path, help="appends every run to this file, and leaves out what is in it already"
    )
    parser.add_argument("--home", type=pathlib.Path, default=HOME, help="environments and data (default target/peers)")
    parser.add_argument(
        "--install-only", action="store_true", help="installs and writes the data, and measures nothing"
    )
    parser.add_argument(
        "--report-only", action="store_true", help="reports what is in the results, and measures nothing"
    )
    parser.add_argument("--plot", type=pathlib.Path, help="where the picture goes (default: beside the results)")
    parser.add_argument("--no-plot", action="store_true", help="draws none, and so needs no matplotlib")
    parser.add_argument("--json", action="store_true", help="the last line is a JSON object with everything")
    args = parser.parse_args()
    for name, known in (("peers", loaders.PEERS), ("ours", loaders.OURS)):
        chosen = [part for part in getattr(args, name).split(",") if part not in ("", "none")]
        unknown = [part for part in chosen if part not in known]
        if unknown:
            parser.error(f"--{name}: there is no `{unknown[0]}`, but {', '.join(known)}")
        setattr(args, name, chosen)
    return args


def prepare(args: argparse.Namespace, data: Data, results: pathlib.Path) -> list:
    """Returns all loaders that can run, installed and with their data."""
    if not args.no_build:
        loaders.build()
    loaders.once(data, "pictures", lambda folder: make_pictures(folder, args.images))
    everybody = [loaders.Ours(name, args.home / "venvs", data, args.slow_objects) for name in args.ours]
    everybody += [loaders.Peer(name, args.home / "venvs", data) for name in args.peers]
    ready = []
    for loader in everybody:
        try:
            if args.slow_objects and not loader.slow:
                raise Failed("its storage cannot be delayed simply")
            loader.versions = loader.install()
            loader.prepare()
            ready.append(loader)
        except (Failed, OSError, subprocess.SubprocessError) as error:
            append(results, loader, 0, {"error": str(error)})
            measure.progress(f"{loader.name}: {error}")
    return ready


def make_pictures(folder: pathlib.Path, count: int) -> None:
    loaders.run([loaders.BINARIES / "spdl-ctl", "pictures", folder, "--count", count, "--quiet"])


def run_rounds(contestants: list, args: argparse.Namespace, settings: Settings, results: pathlib.Path) -> None:
    """Runs the rounds. Each loader runs once in each round; every second round has the reverse order."""
    done = {(run["loader"], run["round"]) for run in table.load(results) if table.is_good(run)}
    timing = measure.Timing(args.warm, args.seconds, args.step_ms if args.slow_objects else 0)
    for number in range(args.first_round, args.first_round + args.repeats):
        for loader in contestants if number % 2 else contestants[::-1]:
            if (loader.name, number) in done:
                continue
            warm_cache(loader)
            measure.wait_for_quiet(args.quiet)
            try:
                run = measure.measure(loader, settings, timing)
                measure.progress(f"round {number}: {loader.title}: {run['images_per_s']:,.0f} images/s{disturbed(run)}")
            except Failed as error:
                run = {"error": str(error)}
                measure.progress(f"round {number}: {loader.title}: {error}")
            append(results, loader, number, run)


def disturbed(run: dict) -> str:
    return "" if table.is_good(run) else f", disturbed: others used {run['others_cores']:.1f} cores"


def warm_cache(loader) -> None:
    """Reads a loader's data into the page cache."""
    for path in loader.data.format(loader.format).rglob("*"):
        if path.is_file():
            with open(path, "rb", buffering=0) as file:
                while file.read(1 << 20):
                    pass


def append(results: pathlib.Path, loader, number: int, run: dict) -> None:
    about = {"loader": loader.name, "title": loader.title, "ours": isinstance(loader, loaders.Ours), "round": number}
    about |= {"slow": loader.slow, "versions": getattr(loader, "versions", {}), "at": int(time.time())}
    results.parent.mkdir(parents=True, exist_ok=True)
    with open(results, "a") as file:
        file.write(json.dumps(about | run) + "\n")


def report(args: argparse.Namespace, results: pathlib.Path, settings: Settings) -> None:
    """Prints the table to standard output, writes the plot beside the results, and with --json prints everything in one
    line."""
    summary = table.summary(table.load(results))
    if not summary:
        return
    setting = (
        f"random resized crop to {settings.size}, flip, bytes, batches of {settings.batch}; "
        f"{settings.cores} cores of {processor()}; medians of the rounds"
    )
    if args.slow_objects:
        setting += f"; one object in a hundred {args.slow_ms} ms late, a step of {args.step_ms:.0f} ms"
    against = [name for name in args.ours if name.startswith("cluster")]
    print(setting, table.markdown(summary, against, args.slow_objects), sep="\n\n")
    everything = {"setting": setting, "images": args.images, "python": platform.python_version(), "loaders": summary}
    picture = draw(args, results, everything)
    if args.json:
        print(json.dumps(everything | {"plot": str(picture) if picture else None}))


def draw(args: argparse.Namespace, results: pathlib.Path, everything: dict) -> pathlib.Path | None:
    """Draws the plot, unless matplotlib does not install or there is nothing to draw."""
    if args.no_plot or args.slow_objects or all("error" in entry for entry in everything["loaders"].values()):
        return None
    picture, summary = args.plot or results.with_suffix(".png"), results.with_suffix(".summary.json")
    summary.write_text(json.dumps(everything))
    try:
        python = install.environment(args.home / "venvs", "plot", ("matplotlib==3.11.2",))
        loaders.run([python, loaders.HERE / "plot.py", summary, picture])
    except Failed as error:
        measure.progress(f"no plot: {error}")
        return None
    measure.progress(f"plot: {picture}")
    return picture


def processor() -> str:
    lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


if __name__ == "__main__":
    main()
