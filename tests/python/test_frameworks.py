"""Runs the examples as users do, under torchrun and alone; those for Lightning and Accelerate are run by their recipes."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import tempfile

import pytest
from conftest import LIMIT_S
from launcher import left
from torchrun import FORKED

pytest.importorskip("torch", reason=os.environ.get("SPDL_TEST_NO_TORCH", "torch is not installed"))

EXAMPLES = pathlib.Path(__file__).parents[2] / "python/examples"
ABSENT = os.environ.get("SPDL_TEST_NO_FRAMEWORKS", "it is not installed")


def run(example: str, *arguments: object, ranks: int = 0) -> str:
    """Runs an example, which must leave nothing, and returns the last lines of its output."""
    launcher = [*FORKED, "torchrun", "torch.distributed.fsdp", "--standalone", f"--nproc-per-node={ranks}"] if ranks else [sys.executable]
    command = [*launcher, EXAMPLES / example, *arguments]
    with tempfile.TemporaryDirectory() as temporary:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "TMPDIR": temporary}
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=2 * LIMIT_S, env=environment)
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        assert left(pathlib.Path(temporary)) == []
    return done.stdout


@pytest.mark.drawn(1, group="trainings on pictures")
def test_the_example_for_fsdp_goes_on_from_a_state_and_misses_nothing() -> None:
    assert "saw 256 samples on 2 ranks; loss " in run("train_fsdp.py", ranks=2)


def test_the_example_of_five_steps_reads_urls_and_goes_on_behind_a_loader() -> None:
    output = run("pipeline_five_steps.py")
    assert "from URLs: 192 pictures in 6 batches on" in output
    assert "from a loader: 192 pictures, continued after 96 of them" in output


@pytest.mark.drawn(1, group="trainings on pictures")
def test_the_example_for_spdl_goes_on_in_the_middle_of_an_epoch() -> None:
    pytest.importorskip("spdl.pipeline", reason=ABSENT)
    assert "saw 48 samples, then 80; 0 of them twice" in run("train_spdl.py")
