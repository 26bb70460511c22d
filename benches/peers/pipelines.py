"""The command `benches/peers/run --pipelines`: pipelines of this package beside the same pipelines of the package
`spdl`, in turns and in one Python."""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

import install
import loaders
import measure
from install import Failed
from pipeline_worker import BATCH, SIZE

HERE = pathlib.Path(__file__).resolve().parent
PACKAGES = ["spdl_cluster", "spdl"]
#: The environment of both. The package `spdl` decodes with FFmpeg's libraries, which the system has to have.
REQUIREMENTS = ("spdl==0.8.0", "numpy", "maturin==1.16.0")
KINDS = {"function": "function", "async": "`async def`"}
CASES = [*(f"{kind}-{count}-{at_once}" for kind in KINDS for count in (1, 4, 8) for at_once in (1, 4)), "decode"]
#: The columns of a case: title, figure, form, and whether more is better.
COLUMNS = [
    ("items/s", "items_per_s", "{:,.0f}", True),
    ("µs per item and stage", "stage_us", "{:.1f}", False),
    ("CPU ms / 1,000", "cpu_ms_per_1000", "{:.1f}", False),
    ("peak MB", "peak_mb", "{:.1f}", False),
    ("first item ms", "first_item_ms", "{:.1f}", False),
    ("stop ms", "stop_ms", "{:.1f}", False),
]
#: What does not depend on the case.
START = [
    ("import ms", "import_ms", "{:.0f}", False),
    ("import MB", "import_mb", "{:.1f}", False),
    ("start to first item ms", "start_to_first_item_ms", "{:.0f}", False),
]
LEGEND = "spdl_cluster / spdl: **how many times better ours is**, the median of the rounds' ratios"


def main() -> None:
    args = arguments()
    cores = sorted(os.sched_getaffinity(0))[: args.threads]
    os.sched_setaffinity(0, cores)
    python = install.environment(args.home / "venvs", "pipelines", REQUIREMENTS)
    if not args.no_build:
        install_ours(python)
    versions = install.versions(python, ["spdl-cluster", "spdl", "spdl-io", "numpy"])
    pictures = args.home / "data" / f"pipelines-{args.images}"
    if "decode" in args.cases:
        write_pictures(python, pictures, args.images)
    runs = []
    for number in range(args.repeats):
        for case in args.cases:
            for package in PACKAGES if number % 2 == 0 else PACKAGES[::-1]:
                measure.wait_for_quiet(args.quiet)
                about = {"case": case, "package": package, "round": number}
                runs.append(about | run(python, case, package, args, pictures))
    others = statistics.median(run["others_cores"] for run in runs)
    setting = (
        f"Python {python_version(python)}, {len(cores)} cores and as many threads, a sink of 3, "
        f"{args.repeats} rounds in turns; other programs used {others:.1f} cores"
    )
    print(setting, LEGEND, table(runs, args.cases), start_table(runs), sep="\n\n", end="\n\n")
    print(*failures(runs), sep="\n")
    print("- versions: " + ", ".join(f"{package} {version}" for package, version in versions.items()))
    if args.json:
        print(json.dumps({"setting": setting, "versions": versions, "runs": runs}))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benches/peers/run --pipelines", description=__doc__)
    parser.add_argument("--cases", default=",".join(CASES), help="names, with commas between (default: all)")
    parser.add_argument("--repeats", type=int, default=5, help="rounds of all cases (default 5)")
    parser.add_argument("--seconds", type=float, default=2, help="how long items are taken (default 2)")
    parser.add_argument("--threads", type=int, default=2, help="threads of a pipeline, and cores (default 2)")
    parser.add_argument("--images", type=int, default=200, help="pictures, of about 107 KB each (default 200)")
    parser.add_argument(
        "--quiet", type=float, default=10, help="waits so many seconds for a quiet machine (default 10)"
    )
    parser.add_argument("--no-build", action="store_true", help="takes our package as it is installed")
    home = loaders.ROOT / "target/peers"
    parser.add_argument("--home", type=pathlib.Path, default=home, help="environment and data (default target/peers)")
    parser.add_argument("--json", action="store_true", help="the last line is a JSON object with every run")
    args = parser.parse_args()
    args.cases = args.cases.split(",")
    for case in args.cases:
        if case not in CASES:
            parser.error(f"--cases: there is no `{case}`, but {', '.join(CASES)}")
    return args


def install_ours(python: pathlib.Path) -> None:
    """Builds our package and installs it."""
    measure.progress("building spdl-cluster")
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    # The build uses this environment's maturin, whose program must be on `PATH`.
    path = f"{python.parent}{os.pathsep}{os.environ['PATH']}"
    options = ["--no-build-isolation", "--no-deps", "--force-reinstall", "--config-settings", "profile=release"]
    loaders.run([*pip, *options, loaders.ROOT / "python"], env=os.environ | {"PATH": path})


def write_pictures(python: pathlib.Path, folder: pathlib.Path, count: int) -> None:
    """Writes the pictures, once."""
    done = folder.with_suffix(".complete")
    if not done.exists():
        measure.progress(f"writing {folder}")
        folder.parent.mkdir(parents=True, exist_ok=True)
        code = "import sys; from spdl_cluster.demo import pack_pictures; pack_pictures(sys.argv[1], int(sys.argv[2]))"
        loaders.run([python, "-c", code, folder, count])
        done.touch()


def run(python: pathlib.Path, case: str, package: str, args: argparse.Namespace, pictures: pathlib.Path) -> dict:
    """Runs a case in a process of its own and returns its figures, or the reason why there are none."""
    command = [python, HERE / "pipeline_worker.py", package, case, "--threads", args.threads, "--seconds", args.seconds]
    command += ["--pictures", pictures] if case == "decode" else []
    own, whole, began = children_s(), measure.machine_cpu_s(), time.monotonic()
    options = {"capture_output": True, "text": True, "timeout": args.seconds + measure.GRACE_S}
    done = subprocess.run([str(part) for part in [*command, "--started-ns", time.time_ns()]], **options)
    others = (measure.machine_cpu_s() - whole - (children_s() - own)) / (time.monotonic() - began)
    figures: dict = {"others_cores": max(0.0, others)}
    if done.returncode:
        figures["error"] = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        measure.progress(f"{package}: {case}: {figures['error']}")
        return figures
    figures |= json.loads(done.stdout)
    if case != "decode":
        figures["stage_us"] = 1e6 / figures["items_per_s"] / int(case.split("-")[1])
    measure.progress(f"{package}: {case}: {figures['items_per_s']:,.0f} items/s")
    return figures


def children_s() -> float:
    times = os.times()
    return times.children_user + times.children_system


def table(runs: list[dict], cases: list[str]) -> str:
    """Returns a line for each case: for every figure ours, theirs, and how many times ours is better."""
    lines = [head("case", COLUMNS)]
    for case in cases:
        of_case = [run for run in runs if run["case"] == case]
        lines.append(f"| {title(case)} | " + " | ".join(cell(of_case, *column) for column in COLUMNS) + " |")
    return "\n".join(lines)


def start_table(runs: list[dict]) -> str:
    return "\n".join([head("", START), "| | " + " | ".join(cell(runs, *column) for column in START) + " |"])


def head(first: str, columns: list[tuple]) -> str:
    titles = " | ".join(f"{column[0]}" for column in columns)
    return f"| {first} | {titles} |\n|---" + "|---:" * len(columns) + "|"


def title(case: str) -> str:
    if case == "decode":
        return f"decode JPEGs, batches of {BATCH} x {SIZE} x {SIZE}"
    kind, count, at_once = case.split("-")
    return f"{count} x {KINDS[kind]}, {at_once} at a time"


def cell(runs: list[dict], _title: str, key: str, form: str, more_is_better: bool) -> str:
    """Returns the medians of both packages and the median of the rounds' ratios."""
    ours, theirs = (
        {(run["case"], run["round"]): run[key] for run in runs if run["package"] == package and key in run}
        for package in PACKAGES
    )
    if not ours and not theirs:
        return ""
    text = " / ".join(form.format(statistics.median(one.values())) if one else "-" for one in (ours, theirs))
    pairs = [(ours[place], theirs[place]) for place in ours if place in theirs]
    if not pairs:
        return text
    times = statistics.median(one / other if more_is_better else other / one for one, other in pairs)
    return f"{text}: **{times:.2f}**" if times < 10 else f"{text}: **{times:.0f}**"


def failures(runs: list[dict]) -> list[str]:
    """Returns a line for each case that did not run, and for each that left threads behind."""
    lines = {f"- not measured: {run['package']}, {run['case']}: {run['error']}": None for run in runs if "error" in run}
    for run in runs:
        if run.get("threads_left", 0) > 0:
            lines[f"- {run['package']} left threads running after a stop: {run['case']}"] = None
    return list(lines)


def python_version(python: pathlib.Path) -> str:
    return subprocess.run([python, "--version"], check=True, capture_output=True, text=True).stdout.split()[-1]


if __name__ == "__main__":
    try:
        main()
    except (Failed, OSError, subprocess.SubprocessError) as error:
        sys.exit(f"benches/peers/run --pipelines: {error}")
