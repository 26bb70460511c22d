"""Type checks: mypy --strict on the package, its examples and these tests; stubtest on the native module."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest
import spdl_cluster
from conftest import LIMIT_S, mypy_config

pytest.importorskip("mypy")
ROOT = pathlib.Path(__file__).parents[2]


def run(folder: pathlib.Path, *arguments: object) -> None:
    """Runs one of mypy's modules."""
    done = subprocess.run(
        [sys.executable, "-m", *map(str, arguments)], cwd=folder, capture_output=True, text=True, timeout=2 * LIMIT_S
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_package_examples_and_tests_are_typed(tmp_path: pathlib.Path) -> None:
    config = mypy_config(tmp_path)
    for files in (
        ["-p", "spdl_cluster"],
        sorted((ROOT / "python/examples").glob("*.py")),
        [ROOT / "k8s/ray/train.py"],
        [ROOT / "benches/gpu_training.py"],
        sorted((ROOT / "tests/python").glob("*.py")),
        sorted((ROOT / "tests/gpu").glob("*.py")),
        [ROOT / "worker/src/transform/process.py"],
        [ROOT / "python/build_backend.py"],
    ):
        run(tmp_path, "mypy", "--config-file", config, *files)


def test_stubs_match_the_module(tmp_path: pathlib.Path) -> None:
    run(ROOT, "mypy.stubtest", "--mypy-config-file", mypy_config(tmp_path), "spdl_cluster._native")


def test_everything_public_is_documented() -> None:
    for name in spdl_cluster.__all__:
        thing = getattr(spdl_cluster, name)
        assert (thing.__doc__ or "").strip(), name
        for member, value in vars(thing).items() if isinstance(thing, type) else ():
            if not member.startswith("_") and (callable(value) or isinstance(value, property)):
                assert (value.__doc__ or "").strip(), f"{name}.{member}"
    assert os.path.exists(os.path.join(os.path.dirname(spdl_cluster.__file__), "py.typed"))
