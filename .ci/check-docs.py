#!/usr/bin/env python3
"""Checks the links and paths in the Markdown pages of the repository. Needs only the standard library.

usage: check-docs.py

- Each relative link leads to an existing file or folder; if it has an anchor, the page has a heading of that name.
- Each path in backticks that begins with a folder of the repository, such as `crates/core/order/src`, exists; `NAME` in it stands
  for any name. CHANGELOG.md is left out: it may name removed files.
- Each metric has a row on its page, and each row a metric.
- Each limit that a diagnosis can name has a section on the page on tuning.
- Each message of the page on troubleshooting is in a test, which provokes and checks it.

Prints each fault with its page and line, and fails if there is one. Links to other sites are not followed.
"""

from __future__ import annotations

import pathlib
import re
import subprocess
import sys
import urllib.parse

ROOT = pathlib.Path(__file__).resolve().parent.parent
#: The target of `[text](target)` and `![text](target "title")`, or of `[name]: target`, or of `src="..."` and `srcset="..."`.
LINK = re.compile(r"""\]\(\s*<?([^)\s>]+)>?[^)]*\)|^\[[^\]]+\]:\s+(\S+)|\bsrc(?:set)?="([^"]+)\"""")
CODE_SPAN = re.compile(r"`+[^`]*`+")
PATH = re.compile(r"`([A-Za-z0-9_.-]+/[A-Za-z0-9_./-]*)`")
HEADING = re.compile(r"^#{1,6}\s+(.*?)\s*#*$")
FENCE = re.compile(r"^\s*(```|~~~)")
METRICS_PAGE = "docs/guide/observe/metrics.md"
#: Begins a table of counts, each of which is a metric.
COUNTS = "counts! {\n"
METRIC = re.compile(r'"(spdl_[a-z]+_[a-z_]+)"')
LIMITS = "crates/core/insight/src/limit.rs"
LIMIT = re.compile(r'^    \w+ = "(\w+)",$', re.MULTILINE)
LIMITS_PAGE = "docs/guide/tuning.md"
LIMIT_SECTION = re.compile(r"^## `(\w+)`$", re.MULTILINE)
MESSAGES_PAGE = "docs/guide/troubleshooting.md"
#: The message in a row of the page's tables.
MESSAGE_ROW = re.compile(r"^\| `([^`]+)` \|")
#: Files with tests.
TESTS = re.compile(r"(^|/)tests(/|\.rs$)")
#: The shortest part of a message, between what stands for names and numbers, that has to be in a test.
MIN_PART = 8
METRIC_ROW = re.compile(r"^\| `(spdl_[a-z_]+)` \|", re.MULTILINE)


def tracked() -> list[str]:
    """Returns the paths of all files of the repository, including new files that git does not ignore."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [name for name in listed.split("\0") if name and (ROOT / name).exists()]


def lines(page: pathlib.Path) -> list[tuple[int, str]]:
    """Returns the page's lines with their numbers, without those of code blocks."""
    found, fenced = [], False
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        if FENCE.match(line):
            fenced = not fenced
        elif not fenced:
            found.append((number, line))
    return found


def anchors(page: pathlib.Path) -> set[str]:
    """Returns the anchors of a page's headings, as GitHub makes them."""
    found: set[str] = set()
    for _, line in lines(page):
        if heading := HEADING.match(line):
            text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading[1]).replace("`", "")
            slug = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
            name, count = slug, 0
            while name in found:
                count += 1
                name = f"{slug}-{count}"
            found.add(name)
    return found


def faults(name: str, top: set[str]) -> list[str]:
    """Returns the faults of a page."""
    page, wrong = ROOT / name, []
    for number, line in lines(page):
        for link in LINK.finditer(CODE_SPAN.sub("", line)):
            target = next(filter(None, link.groups()))
            if re.match(r"[a-z][a-z0-9+.-]*:", target):
                continue
            path, _, anchor = target.partition("#")
            there = page.parent / urllib.parse.unquote(path) if path else page
            if not there.exists():
                wrong.append(f"{name}:{number}: `{target}` leads nowhere")
            elif anchor and there.suffix == ".md" and anchor not in anchors(there):
                wrong.append(f"{name}:{number}: `{target}`: the page has no heading of that name")
        if name != "CHANGELOG.md":
            for path in PATH.findall(line):
                if path.split("/")[0] in top and not any(ROOT.glob(path.replace("NAME", "*"))):
                    wrong.append(f"{name}:{number}: `{path}` is not there")
    return wrong


def metric_faults(names: list[str]) -> list[str]:
    """Returns the metrics without a row on their page, and the rows without a metric."""
    sources = {name: (ROOT / name).read_text(encoding="utf-8") for name in names if name.endswith(".rs")}
    metrics = {metric for name, text in sources.items() if name.endswith("/metrics.rs") or COUNTS in text for metric in METRIC.findall(text)}
    rows = set(METRIC_ROW.findall((ROOT / METRICS_PAGE).read_text(encoding="utf-8")))
    missing = [f"{METRICS_PAGE}: metric `{metric}` has no row" for metric in sorted(metrics - rows)]
    return missing + [f"{METRICS_PAGE}: there is no metric `{row}`" for row in sorted(rows - metrics)]


def limit_faults() -> list[str]:
    """Returns the limits without a section on their page, and the sections without a limit."""
    limits = set(LIMIT.findall((ROOT / LIMITS).read_text(encoding="utf-8")))
    sections = set(LIMIT_SECTION.findall((ROOT / LIMITS_PAGE).read_text(encoding="utf-8")))
    missing = [f"{LIMITS_PAGE}: limit `{limit}` has no section" for limit in sorted(limits - sections)]
    return missing + [f"{LIMITS_PAGE}: there is no limit `{section}`" for section in sorted(sections - limits)]


def message_faults(names: list[str]) -> list[str]:
    """Returns the messages without a test that has all of their parts."""
    tests = [(ROOT / name).read_text(encoding="utf-8") for name in names if TESTS.search(name) and name.endswith((".rs", ".py"))]
    tests = [text.replace("\\", "").replace("`", "") for text in tests]
    wrong = []
    for number, line in lines(ROOT / MESSAGES_PAGE):
        if message := MESSAGE_ROW.match(line):
            parts = [part for part in map(str.strip, message[1].split("…")) if len(part) >= MIN_PART]
            if not parts or not any(all(part in text for part in parts) for text in tests):
                wrong.append(f"{MESSAGES_PAGE}:{number}: no test has the message `{message[1]}`")
    return wrong


def main() -> None:
    names = tracked()
    top = {name.split("/")[0] for name in names if "/" in name}
    pages = [name for name in names if name.endswith(".md")]
    wrong = [fault for page in pages for fault in faults(page, top)] + metric_faults(names) + limit_faults() + message_faults(names)
    print("\n".join([*wrong, f"{len(pages)} pages, {len(wrong)} faults"]))
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
