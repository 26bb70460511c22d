"""Summarises many runs: medians, and ratios within a round."""

import json
import pathlib
import statistics

from measure import OTHERS_CORES

COLUMNS = [
    ("images/s", "images_per_s", "{:,.0f}"),
    ("CPU s / 1,000", "cpu_s_per_1000", "{:.2f}"),
    ("peak MB", "peak_mb", "{:,.0f}"),
    ("of it mapped files", "peak_files_mb", "{:,.0f}"),
    ("first batch s", "first_batch_s", "{:.2f}"),
    ("wait p50 ms", "wait_ms_p50", "{:.1f}"),
    ("p99 ms", "wait_ms_p99", "{:.1f}"),
    ("max ms", "wait_ms_max", "{:.1f}"),
]
# The columns that are meaningful when a step takes time and objects are slow.
SLOW_COLUMNS = {"images_per_s", "wait_ms_p50", "wait_ms_p99", "wait_ms_max"}


def load(path: pathlib.Path) -> list[dict]:
    """Returns all runs in a file of results, which has a line of JSON for each."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def is_good(run: dict) -> bool:
    """Whether a run counts: it succeeded, and other processes hardly used the machine."""
    return "error" not in run and run["others_cores"] <= OTHERS_CORES


def summary(runs: list[dict]) -> dict[str, dict]:
    """Returns for each loader, sorted by images/s, the medians over its runs and how often it ran, or the reason why it
    did not run."""
    loaders: dict[str, dict] = {}
    for run in runs:
        entry = loaders.setdefault(run["loader"], {"runs": []})
        entry |= {key: run[key] for key in ("title", "versions", "ours", "slow") if key in run}
        entry["runs"].append(run)
    for entry in loaders.values():
        good = [run for run in entry["runs"] if is_good(run)]
        entry["rounds"] = {run["round"]: run["images_per_s"] for run in good}
        if good:
            for _, key, _ in COLUMNS:
                entry[key] = statistics.median(run[key] for run in good)
        else:
            entry["error"] = entry["runs"][-1].get("error", "others used the machine whenever it ran")
        del entry["runs"]
    return dict(sorted(loaders.items(), key=lambda item: -item[1].get("images_per_s", 0)))


def ratio(one: dict, other: dict) -> float | None:
    """Returns the ratio of images/s: the median over the rounds in which both ran."""
    both = [one["rounds"][number] / other["rounds"][number] for number in one["rounds"] if number in other["rounds"]]
    return statistics.median(both) if both else None


def markdown(loaders: dict[str, dict], against: list[str], slow_objects: bool) -> str:
    """Returns the table. `against`: the loaders that the others are compared with, with a column of ratios for each."""
    against = [name for name in against if "error" not in loaders.get(name, {"error": ""}) and not slow_objects]
    columns = [column for column in COLUMNS if not slow_objects or column[1] in SLOW_COLUMNS]
    head = ["loader", *(title for title, _, _ in columns), *(f"`{name}` / it" for name in against), "runs"]
    head += ["an object is"] if slow_objects else []
    lines = ["| " + " | ".join(head) + " |", "|---" + "|---:" * (len(head) - 1) + "|"]
    for entry in loaders.values():
        if "error" in entry:
            continue
        cells = [entry["title"], *(form.format(entry[key]) for _, key, form in columns)]
        for name in against:
            times = ratio(loaders[name], entry)
            cells.append("" if times is None else f"{times:.2f}")
        cells.append(str(len(entry["rounds"])))
        cells += [entry["slow"]] if slow_objects else []
        lines.append("| " + " | ".join(cells) + " |")
    lines.append("")
    versions = {}
    for entry in loaders.values():
        versions |= entry.get("versions", {})
        if "error" in entry:
            lines.append(f"- not measured: {entry['title']}: {entry['error']}")
    lines.append("- versions: " + ", ".join(f"{package} {version}" for package, version in sorted(versions.items())))
    return "\n".join(lines)
