#!/usr/bin/env python3
"""Checks that `cargo test -p X` runs the tests of X that `cargo test` runs, in the same programs, for each package X; that
no program has no tests; and that rustdoc is asked for the examples of each library whose documentation has some, and of no
other. Names what differs. Where `cargo test` has built everything, it takes seconds.

usage: .ci/check-tests.py [--write FILE]

With --write, also writes the tests to FILE, one a line as `PACKAGE PROGRAM TEST`, sorted. Documentation's examples are no
programs of their own, so they are left out.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parent.parent
#: The end of a test's line in the output of a test program's `--list`.
TEST = ": test"
#: A line of documentation, and its text.
DOCUMENTATION = re.compile(r"\s*//[/!] ?(.*)")
#: What follows the fence of a block that rustdoc takes for an example: other words name another language.
EXAMPLE = re.compile(r"(rust|ignore|no_run|should_panic|compile_fail|test_harness|standalone|edition|E\d|$)")


def cargo(*arguments: str) -> str:
    return subprocess.run(["cargo", *arguments], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout


def programs(*selection: str) -> dict[str, dict[str, str]]:
    """Builds the test programs of a selection of packages; returns their paths by name, by the path of the package's manifest."""
    built: dict[str, dict[str, str]] = {}
    for message in map(json.loads, cargo("test", "--locked", "--quiet", "--no-run", "--message-format=json", *selection).splitlines()):
        if message["reason"] == "compiler-artifact" and message["profile"]["test"] and message["executable"]:
            target = message["target"]
            built.setdefault(message["manifest_path"], {})[f"{target['name']} ({target['kind'][0]})"] = message["executable"]
    return built


def tests(program: str, manifest: str) -> set[str]:
    """Returns the names of a program's tests."""
    command = [program, "--list", "--format", "terse"]
    listed = subprocess.run(command, cwd=pathlib.Path(manifest).parent, check=True, stdout=subprocess.PIPE, text=True).stdout
    return {line.removesuffix(TEST) for line in listed.splitlines() if line.endswith(TEST)}


def examples(file: pathlib.Path) -> Iterator[int]:
    """Yields the numbers of the lines where a file's documentation begins an example: a block in fences, or one that is indented after an empty line."""
    fence, before = "", "text"
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        text = found[1] if (found := DOCUMENTATION.match(line)) else "text"
        stripped = text.strip()
        if fence:
            fence = "" if stripped == fence else fence
        elif stripped.startswith(("```", "~~~")):
            fence, language = stripped[:3], stripped[3:].strip()
            if EXAMPLE.match(language):
                yield number
        elif not before.strip() and text.startswith("    "):
            yield number
        before = text


def lost_or_empty(package: str, target: dict[str, Any]) -> Iterator[str]:
    """Yields what is wrong with a library's `doctest`: without it no example is run, and with it rustdoc takes half a second where there is none."""
    found = [f"{file.relative_to(ROOT)}:{line}" for file in sorted(pathlib.Path(target["src_path"]).parent.rglob("*.rs")) for line in examples(file)]
    if found and not target["doctest"]:
        yield f"{package}: `doctest = false` in its manifest leaves out the examples of {', '.join(found)}"
    if target["doctest"] and not found:
        yield f"{package}: its documentation has no examples; `doctest = false` in `[lib]` of its manifest spares rustdoc"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", type=pathlib.Path, metavar="FILE", help="write the list of all tests there")
    options = parser.parse_args()
    members = json.loads(cargo("metadata", "--no-deps", "--format-version", "1"))["packages"]
    packages = {package["manifest_path"]: package["name"] for package in members}
    libraries = [(package["name"], target) for package in members for target in package["targets"] if {"lib", "rlib", "cdylib"} & {*target["kind"]}]
    failures = [fault for library in libraries for fault in lost_or_empty(*library)]
    lines = []
    everything = programs("--workspace")
    for manifest, package in sorted(packages.items(), key=lambda entry: entry[1]):
        whole, alone = everything.get(manifest, {}), programs("--package", package).get(manifest, {})
        for name in sorted(whole.keys() | alone.keys()):
            if name not in whole or name not in alone:
                failures.append(f"{package}: only `cargo test{'' if name in whole else f' -p {package}'}` runs the program {name}")
                continue
            found = tests(whole[name], manifest)
            if not found:
                failures.append(f"{package}: the program {name} has no tests; `test = false` in its manifest leaves it out")
            lines += [f"{package} {name.split()[0]} {test}" for test in found]
            # The same file has the same tests.
            if whole[name] != alone[name]:
                differing = found ^ tests(alone[name], manifest)
                failures.append(f"{package}: `cargo test -p {package}` builds the program {name} anew; tests that only one of both has: {sorted(differing)}")
    if options.write:
        options.write.write_text("".join(f"{line}\n" for line in sorted(lines)))
    if failures:
        print(*failures, sep="\n")
        return 1
    print(f"{len(lines)} tests in {sum(map(len, everything.values()))} programs are the same for each package alone")
    return 0


if __name__ == "__main__":
    sys.exit(main())
