"""Trainings in frameworks that are killed, at an epoch's end or in its middle, go on with the samples of one that is not disturbed."""

from __future__ import annotations

import functools
import json
import os
import pathlib
import signal
import subprocess
from collections.abc import Callable

import pytest
import torchrun
from conftest import LIMIT_S, needs, once
from test_framework_counts import IMPORTS

pytest.importorskip("torch", reason=os.environ.get("SPDL_TEST_NO_TORCH", "torch is not installed"))

PROGRAMS = pathlib.Path(__file__).with_name("resume_programs.py")
ABSENT = os.environ.get("SPDL_TEST_NO_FRAMEWORKS", "it is not installed")
#: Of the samples of `uneven_dataset` in batches of 32, in three epochs.
STEPS = 18
#: The number and the ids of each step that a rank has begun.
Steps = list[tuple[int, list[int]]]


def run(
    program: str, dataset: pathlib.Path, folder: pathlib.Path, every: int, kill_after: int = 0, world: int = 1
) -> subprocess.CompletedProcess[str]:
    """Runs a program on some ranks, to its end or until it kills itself."""
    ranks = world if world > 1 else 0
    process = torchrun.torchrun(PROGRAMS, ranks, program, dataset, folder, every, kill_after, imports=IMPORTS[program.split("_")[0]])
    try:
        output, errors = process.communicate(timeout=LIMIT_S)
    finally:
        torchrun.kill(process)
    done = subprocess.CompletedProcess(process.args, process.returncode, output, errors)
    if kill_after:
        # torchrun ends with 1 when a rank does not end well.
        assert done.returncode == (-signal.SIGKILL if world == 1 else 1), f"{done.stdout}\n{done.stderr}"
    return done


def steps(folder: pathlib.Path, world: int = 1) -> list[Steps]:
    """Returns the steps of each rank."""
    traces = [(folder / f"trace-{rank}.jsonl").read_text() for rank in range(world)]
    return [[tuple(json.loads(line)) for line in trace.splitlines()] for trace in traces]


@pytest.fixture(scope="session")
def undisturbed(uneven_dataset: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], list[Steps]]:
    """Returns the steps of a training that is not disturbed, on so many ranks."""

    @functools.cache
    def of_world(world: int) -> list[Steps]:
        def train(folder: pathlib.Path) -> None:
            done = run("plain", uneven_dataset, folder, STEPS, world=world)
            assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"

        trained = steps(once(tmp_path_factory, f"undisturbed-{world}", train), world)
        for of_rank in trained:
            assert [step for step, _ in of_rank] == list(range(1, STEPS + 1))
            # The order of each epoch is another one.
            assert len({tuple(ids) for _, ids in of_rank}) == STEPS
        return trained

    return of_world


def test_two_ranks_share_the_steps_of_one(undisturbed: Callable[[int], list[Steps]]) -> None:
    for (_, all_ids), (_, first), (_, second) in zip(*undisturbed(1), *undisturbed(2), strict=True):
        assert sorted(all_ids) == sorted(first + second)


# A case takes more than a minute.
@pytest.mark.drawn(1, group="trainings that are killed")
@pytest.mark.parametrize("world", [1, 2])
@pytest.mark.parametrize("every", [6, 4], ids=["after an epoch", "in its middle"])
@pytest.mark.parametrize("program", ["lightning", "lightning_without_state", "transformers", "accelerate"])
def test_a_training_that_is_killed_goes_on_with_the_same_samples(
    program: str, every: int, world: int, uneven_dataset: pathlib.Path, undisturbed: Callable[[int], list[Steps]], tmp_path: pathlib.Path
) -> None:
    needs(program.split("_")[0], ABSENT)
    # It dies in the step after the second checkpoint: at the end of an epoch, 12, or in the middle of one, 8.
    saved = 2 * every
    run(program, uneven_dataset, tmp_path / "killed", every, kill_after=saved, world=world)
    done = run(program, uneven_dataset, tmp_path / "killed", every, world=world)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    for trained, expected in zip(steps(tmp_path / "killed", world), undisturbed(world), strict=True):
        assert trained[: saved + 1] == expected[: saved + 1]
        assert trained[saved + 1 :] == expected[saved:]


@pytest.mark.drawn(1, group="trainings that are killed")
@pytest.mark.parametrize("every", [6, 4], ids=["after an epoch", "in its middle"])
def test_a_trainer_that_would_skip_batches_says_which_argument_it_needs(every: int, uneven_dataset: pathlib.Path, tmp_path: pathlib.Path) -> None:
    needs("transformers", ABSENT)
    run("transformers_that_skips", uneven_dataset, tmp_path / "killed", every, kill_after=2 * every)
    done = run("transformers_that_skips", uneven_dataset, tmp_path / "killed", every)
    # At an epoch's end there is nothing to skip.
    says = "give `ignore_data_skip=True` to `TrainingArguments`" in done.stderr
    assert (done.returncode, says) == ((0, False) if every == 6 else (1, True)), done.stderr
