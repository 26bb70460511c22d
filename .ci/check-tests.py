#!/usr/bin/env python3
"""Checks that `cargo test -p X` runs the tests of X that `cargo test` runs, in the same programs, for each package X; and that
no program has no tests. Names what differs. Where `cargo test` has built everything, it takes seconds.

usage: .ci/check-tests.py [--write FILE]

With --write, also writes the tests to FILE, one a line as `PACKAGE PROGRAM TEST`, sorted. Documentation's examples are no
programs of their own, so they are left out.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
#: The end of a test's line in the output of a test program's `--list`.
TEST = ": test"


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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", type=pathlib.Path, metavar="FILE", help="write the list of all tests there")
    options = parser.parse_args()
    packages = {package["manifest_path"]: package["name"] for package in json.loads(cargo("metadata", "--no-deps", "--format-version", "1"))["packages"]}
    everything = programs("--workspace")
    failures, lines = [], []
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
