#!/usr/bin/env python3
"""Checks the hosted workflow: each step of `.ci/run` is named in one of its jobs, and each action is pinned by the hash of a
commit, since a tag can be moved. Needs only the standard library.

usage: .ci/check-workflow.py
"""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
WORKFLOWS = ROOT / ".github/workflows"
#: A line of the matrix: the steps of a job.
STEPS = re.compile(r"^\s+- steps: (.+)$", re.MULTILINE)
ACTION = re.compile(r"^\s*-? *uses: (\S+)", re.MULTILINE)
PINNED = re.compile(r"[\w.-]+/[\w./-]+@[0-9a-f]{40}")


def main() -> int:
    names = subprocess.run([ROOT / ".ci/run", "--list"], check=True, stdout=subprocess.PIPE, text=True).stdout.split()
    hosted = [name for line in STEPS.findall((WORKFLOWS / "ci.yml").read_text()) for name in line.split()]
    problems = [f"ci.yml runs no step `{name}`" for name in names if name not in hosted]
    problems += [f"ci.yml names `{name}`, which is no step of .ci/run" for name in hosted if name not in names]
    problems += [f"ci.yml runs the step `{name}` twice" for name in set(hosted) if hosted.count(name) > 1]
    for workflow in sorted(WORKFLOWS.glob("*.yml")):
        actions = ACTION.findall(workflow.read_text())
        problems += [f"{workflow.name}: pin `{action}` by a hash" for action in actions if not PINNED.fullmatch(action)]
    print(*problems or [f"{len(hosted)} steps in the hosted workflow"], sep="\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
