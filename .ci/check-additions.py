#!/usr/bin/env python3
"""Checks that something new is added by its own files and a line of each table: for each seam it takes an example that is there
already, finds the files that name it, and fails if these are others than the ones listed here. Documentation, tests, benchmarks,
comments and generated files may name it. Needs only the standard library.

usage: check-additions.py           checks, and that ARCHITECTURE.md has the table of what is found
       check-additions.py --write   writes the table there
"""

from __future__ import annotations

import dataclasses
import fnmatch
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
ARCHITECTURE = ROOT / "ARCHITECTURE.md"
HEAD = "| to add | such as | its own files | a line in | and, until the seam is whole |\n|---|---|---|---|---|\n"
TABLE = re.compile(re.escape(HEAD) + r"(?:\|.*\n)*")
LEFT_OUT = re.compile(r"(^|/)(docs|benches|fuzz|examples|\.ci)/|(^|/)(tests?|testing|testkit)(/|\.rs$)|(^|/)(tests?|conformance)(_\w+)?\.(rs|py)$")
GENERATED = "python/spdl_cluster/job.py"
UNIT_TESTS = re.compile(r"^#\[cfg\(test\)\]\n(?:#\[.*\n)*mod \w+ \{", re.MULTILINE)
COMMENTS = {".rs": re.compile(r"^\s*//.*$", re.MULTILINE), ".py": re.compile(r'^\s*#.*$|""".*?"""', re.MULTILINE | re.DOTALL)}


@dataclasses.dataclass
class Seam:
    what: str
    example: str
    #: What names it.
    pattern: str
    #: Patterns of its own files.
    own: list[str]
    #: The files with the tables.
    tables: list[str]
    #: Files besides, and why they name it.
    more: dict[str, str] = dataclasses.field(default_factory=dict)

    def row(self, found: list[str]) -> str:
        more = [f"`{file}` ({self.more[file]})" for file in found if file in self.more]
        own = [pattern for pattern in self.own if fnmatch.filter(found, pattern)]
        cells = [", ".join(f"`{file}`" for file in files) for files in (own, [file for file in found if file in self.tables])]
        return f"| {self.what} | `{self.example}` | {cells[0]} | {cells[1]} | {', '.join(more) or 'nothing'} |\n"


SEAMS = [
    Seam(
        "a format of datasets",
        "mds",
        r"\bmds\b|\bMds[A-Z]?\w*",
        ["shard/src/format/mds/*", "crates/dataset/src/format/mds/*"],
        ["shard/src/format/mod.rs", "crates/dataset/src/format/mod.rs"],
    ),
    Seam(
        "a kind of column",
        "geometry",
        r'\bGeometry\w*|"geometry"|\bgeometry::[A-Z]',
        ["crates/core/job/src/column/geometry.rs", "worker/src/decode/column/geometry.rs"],
        ["crates/core/job/src/column/mod.rs", "worker/src/decode/column/mod.rs"],
    ),
    Seam(
        "an operation on pictures",
        "random_vertical_flip",
        r"\brandom_vertical_flip\b|\bRandomVerticalFlip\b",
        ["crates/core/job/src/operation/random_vertical_flip.rs"],
        ["crates/core/job/src/operation/mod.rs"],
    ),
    Seam(
        "an operation on sounds",
        "time_mask",
        r"\btime_mask\b|\bTimeMask\b",
        ["crates/core/job/src/sound_operation/time_mask.rs"],
        ["crates/core/job/src/sound_operation/mod.rs"],
    ),
    Seam(
        "a store",
        "hf",
        r"\bhf://|\bhf\b|\bHF_|\bHub\w*|\bhub\b|\bHUB\b",
        ["crates/store/src/stores/hub/*"],
        ["crates/core/job/src/scheme.rs", "crates/store/src/stores/mod.rs"],
    ),
    Seam(
        "a key of a job",
        "max_bad_fraction",
        r"\bmax_bad_fraction(_bits)?\b",
        ["crates/core/job/src/key/max_bad_fraction.rs"],
        ["crates/core/job/src/key/mod.rs"],
        {
            "coordinator/src/state/mod.rs": "its bits in stored records",
            "crates/core/control/src/coordinator/effect.rs": "its bits in stored records",
            "crates/core/control/src/coordinator/jobs.rs": "its bits in stored records",
            "crates/core/control/src/coordinator/ledger.rs": "what it does",
            "crates/core/control/src/coordinator/status.rs": "the status of a job",
            "crates/core/feed/src/bad.rs": "a message",
            "crates/dataset/src/view/block.rs": "a message",
        },
    ),
    Seam("a stage", "copy", r"\bStage::Copy\b|\bCopy = \"copy\"", ["crates/gpu/src/cuda/prefetcher.rs"], ["crates/core/types/src/stage.rs"]),
    Seam(
        "a counter",
        "hedge_wins",
        r"\bhedge_wins\b",
        ["worker/src/fetch/hedged.rs"],
        ["crates/core/insight/src/counts.rs"],
        {"cli/src/ctl/status/mod.rs": "the words of `spdl-ctl status`"},
    ),
    Seam(
        "a command of `spdl-ctl`",
        "audit",
        r"\bAuditArgs\b|\baudit::run\b|\bspdl-ctl audit\b|\bmod audit\b",
        ["cli/src/ctl/audit/*"],
        ["cli/src/ctl/examples.rs", "cli/src/ctl/mod.rs"],
    ),
]


def code() -> dict[str, str]:
    """Returns the text of each file of code, without its comments and unit tests."""
    listed = subprocess.run(["git", "ls-files", "*.rs", "*.py", "*.pyi"], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
    texts = {}
    for file in listed.split():
        if file != GENERATED and not LEFT_OUT.search(file) and (ROOT / file).exists():
            text = UNIT_TESTS.split((ROOT / file).read_text(encoding="utf-8"))[0]
            texts[file] = COMMENTS[".rs" if file.endswith(".rs") else ".py"].sub("", text)
    return texts


def faults(seam: Seam, found: list[str]) -> list[str]:
    """Returns what is wrong with the files that name an example."""
    of = f"`{seam.example}`, {seam.what},"
    known = lambda file: file in seam.tables or file in seam.more or any(fnmatch.fnmatch(file, own) for own in seam.own)
    wrong = [f"{of} is named in {file}: it belongs into its own files, or the table has to give that" for file in found if not known(file)]
    gone = [file for file in (*seam.tables, *seam.more) if file not in found]
    gone += [own for own in seam.own if not fnmatch.filter(found, own)]
    return wrong + [f"{of} is not named in {file}: take it out of the list in .ci/check-additions.py" for file in gone]


def main() -> int:
    texts = code()
    table, wrong = HEAD, []
    for seam in SEAMS:
        found = sorted(file for file, text in texts.items() if re.search(seam.pattern, text))
        wrong += faults(seam, found)
        table += seam.row(found)
    architecture = ARCHITECTURE.read_text(encoding="utf-8")
    written = TABLE.sub(lambda _: table, architecture)
    if "--write" in sys.argv[1:]:
        ARCHITECTURE.write_text(written, encoding="utf-8")
    elif written != architecture or HEAD not in architecture:
        wrong.append("ARCHITECTURE.md has another table of additions: write it with `.ci/check-additions.py --write`")
    print("\n".join([*wrong, f"{len(SEAMS)} seams, {len(wrong)} faults"]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
