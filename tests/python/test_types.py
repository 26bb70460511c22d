"""Type checks: mypy --strict on the package, its examples and these tests; stubtest on the native module."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest
import spdl_cluster
from conftest import LIMIT_S

pytest.importorskip("mypy")
TYPES = pytest.mark.xdist_group("types")
ROOT = pathlib.Path(__file__).parents[2]


def run(folder: pathlib.Path, *arguments: object) -> None:
    """Runs one of mypy's modules."""
    done = subprocess.run(
        [sys.executable, "-m", *map(str, arguments)], cwd=folder, capture_output=True, text=True, timeout=2 * LIMIT_S
    )
    assert done.returncode == 0, done.stdout + done.stderr


@TYPES
def test_package_examples_and_tests_are_typed(mypy_config: pathlib.Path, tmp_path: pathlib.Path) -> None:
    programs = ["k8s/ray/train.py", "benches/gpu_training.py", "worker/src/transform/process.py", "python/build_backend.py"]
    files = [ROOT / program for program in programs]
    for folder in ("python/examples", "tests/python", "tests/gpu"):
        files += sorted((ROOT / folder).glob("*.py"))
    run(tmp_path, "mypy", "--config-file", mypy_config, "-p", "spdl_cluster")
    run(tmp_path, "mypy", "--config-file", mypy_config, *files)


@TYPES
def test_stubs_match_the_module(mypy_config: pathlib.Path) -> None:
    run(ROOT, "mypy.stubtest", "--mypy-config-file", mypy_config, "spdl_cluster._native")


def test_everything_public_is_documented() -> None:
    for name in spdl_cluster.__all__:
        thing = getattr(spdl_cluster, name)
        assert (thing.__doc__ or "").strip(), name
        for member, value in vars(thing).items() if isinstance(thing, type) else ():
            if not member.startswith("_") and (callable(value) or isinstance(value, property)):
                assert (value.__doc__ or "").strip(), f"{name}.{member}"
    assert os.path.exists(os.path.join(os.path.dirname(spdl_cluster.__file__), "py.typed"))
