#!/usr/bin/env python3
"""Checks that each selection of packages that people and CI build has the same features of all dependencies; then one
build serves them all. Names what differs.

usage: .ci/check-features.py
"""

import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FEATURES = ROOT / "crates/features/Cargo.toml"
#: What `cargo test` builds, with which all others are compared.
WORKSPACE = ["--workspace"]
#: What else builds programs, and the Python package's module.
SELECTIONS = {
    "cargo run, cargo build --workspace": ["--workspace", "--edges", "normal,build"],
    **{
        f"cargo build -p {name}": ["--package", name, "--edges", "normal,build"]
        for name in ("spdl-python", "spdl-cli", "spdl-coordinator", "spdl-worker", "own-worker")
    },
}


def packages() -> list[str]:
    """Returns the names of the workspace's packages."""
    output = cargo("metadata", "--no-deps", "--format-version", "1")
    return [package["name"] for package in json.loads(output)["packages"]]


def cargo(*arguments: str) -> str:
    return subprocess.run(["cargo", *arguments], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout


def built(*selection: str) -> dict[str, set[str]]:
    """Returns the sets of features that each crate is built with: more than one where it is built for build scripts as well."""
    crates: dict[str, set[str]] = {}
    for line in cargo("tree", "--locked", "--prefix", "none", "--format", "{p}|{f}", *selection).splitlines():
        if "|" in line:
            package, features = line.removesuffix(" (*)").split("|")
            crates.setdefault(" ".join(package.split()[:2]), set()).add(features)
    return crates


def main() -> int:
    edges = ["--edges", "normal,build,dev"]
    everything = built(*WORKSPACE, *edges)
    tests = {f"cargo test -p {name}": ["--package", name, *edges] for name in packages()}
    failures = []
    for name, selection in {**SELECTIONS, **tests}.items():
        for package, variants in built(*selection).items():
            for features in variants - everything.get(package, set()):
                wanted = " or ".join(f"`{variant}`" for variant in sorted(everything.get(package, {"not at all"})))
                failures.append(f"{name}: {package} is built with `{features}`, by `cargo test` with {wanted}")
    if failures:
        print(*failures, f"{FEATURES.relative_to(ROOT)} is where a crate gets the features that it has elsewhere", sep="\n")
        return 1
    print(f"{len(everything)} crates are built alike by {1 + len(SELECTIONS) + len(tests)} selections")
    return 0


if __name__ == "__main__":
    sys.exit(main())
