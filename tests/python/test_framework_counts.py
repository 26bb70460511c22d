"""Evaluations in frameworks count every sample once, as their tutorials write them, on one rank and on two."""

from __future__ import annotations

import json
import os
import pathlib
from typing import Any

import pytest
import torchrun
from conftest import UNEVEN_PICTURES, needs, once

pytest.importorskip("torch", reason=os.environ.get("SPDL_TEST_NO_TORCH", "torch is not installed"))

PROGRAMS = pathlib.Path(__file__).with_name("framework_programs.py")
#: What the programs import.
IMPORTS = {"lightning": "lightning,torchmetrics", "transformers": "transformers.trainer", "accelerate": "accelerate", "alone": "accelerate", "plain": ""}
ABSENT = os.environ.get("SPDL_TEST_NO_FRAMEWORKS", "it is not installed")


def run(program: str, world: int, dataset: pathlib.Path, output: pathlib.Path) -> list[Any]:
    """Runs a program on some ranks, and returns what each has found."""
    output.mkdir()
    ranks = world if world > 1 else 0
    imports = IMPORTS[program.split("_")[0]]
    torchrun.finish(torchrun.torchrun(PROGRAMS, ranks, program, dataset, output, imports=imports, folder=output, TMPDIR=str(output)))
    return found_by(world, output)


def found_by(world: int, output: pathlib.Path) -> list[Any]:
    """Returns what each rank of a program has found."""
    return [json.loads((output / f"{rank}.json").read_text()) for rank in range(world)]


@pytest.fixture(scope="module")
def right(uneven_dataset: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, float]:
    """Returns what a loop of one's own counts."""
    folder = once(tmp_path_factory, "right", lambda folder: run("plain", 1, uneven_dataset, folder))
    [found] = found_by(1, folder)
    assert found["seen"] == UNEVEN_PICTURES and 0 < found["right"] < UNEVEN_PICTURES
    return dict(found)


# A case takes about a minute.
@pytest.mark.drawn(1, group="evaluations in frameworks")
@pytest.mark.parametrize("world", [1, 2])
@pytest.mark.parametrize(
    "program", ["lightning", "transformers", "transformers_one_left", "accelerate", "accelerate_one_left", "accelerate_padded"]
)
def test_an_evaluation_counts_every_sample_once(
    program: str, world: int, uneven_dataset: pathlib.Path, right: dict[str, float], tmp_path: pathlib.Path
) -> None:
    framework = program.split("_")[0]
    needs(framework, ABSENT)
    for found in run(program, world, uneven_dataset, tmp_path / program):
        assert round(found["seen"], 3) == UNEVEN_PICTURES
        assert round(found["right"], 3) == right["right"]
        # Lightning weighs the means of batches by what it takes for their sizes, and Trainer one rank's mean by the entries of both.
        is_weighted = world == 1 or framework == "accelerate"
        assert found["loss"] == pytest.approx(right["loss"], rel=1e-4 if is_weighted else 0.1)
        assert found.get("fitted", UNEVEN_PICTURES) == UNEVEN_PICTURES


def test_ranks_that_cannot_exchange_samples_get_an_error_before_the_first_batch(uneven_dataset: pathlib.Path, tmp_path: pathlib.Path) -> None:
    needs("accelerate", ABSENT)
    [found] = run("alone", 1, uneven_dataset, tmp_path / "alone")
    assert "the last batch of job `evaluation` has 7 samples, of which 2 ranks get shares of two sizes" in found["error"]
    assert '`epoch_end = "pad"`' in found["error"]
