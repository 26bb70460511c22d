#!/usr/bin/env python3
"""Checks that each type of Rust has a name of its own in the whole workspace, so that a name means one thing and a search finds
one definition. Tests, benchmarks, examples and associated types are left out. Needs only the standard library.

usage: check-names.py
"""

from __future__ import annotations

import collections
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
LEFT_OUT = re.compile(r"(^|/)(tests?|benches|fuzz|examples)(/|\.rs$)")
UNIT_TESTS = re.compile(r"^#\[cfg\(test\)\]\nmod tests \{", re.MULTILINE)
#: A definition that stands at the left margin: those in traits and functions do not.
DEFINITION = re.compile(r"^(?:pub(?:\([\w ]+\))? )?(?:struct|enum|trait|type|union) (\w+)", re.MULTILINE)


def main() -> int:
    listed = subprocess.run(["git", "ls-files", "*.rs"], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
    found: dict[str, set[str]] = collections.defaultdict(set)
    for file in listed.split():
        if not LEFT_OUT.search(file) and (ROOT / file).exists():
            code = UNIT_TESTS.split((ROOT / file).read_text(encoding="utf-8"))[0]
            for name in DEFINITION.findall(code):
                found[name].add(file)
    twice = {name: files for name, files in sorted(found.items()) if len(files) > 1}
    for name, files in twice.items():
        print(f"`{name}` is defined in {', '.join(sorted(files))}: give it a name that says which one it is")
    print(f"{len(found)} names of types, {len(twice)} of them twice")
    return 1 if twice else 0


if __name__ == "__main__":
    sys.exit(main())
