"""Waiting for batches: loops that keep all batches, signals, forks, timeouts, slow consumers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import warnings
from typing import Any

import pytest
import spdl_cluster
from conftest import LIMIT_S, Cluster, MakeJob, run_python


def line(process: subprocess.Popen[str]) -> str:
    """Reads the next line of the process's output."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_a_loop_that_keeps_batches_is_warned_and_then_gets_an_error(job: MakeJob) -> None:
    with spdl_cluster.local(job(), slots=3, timeout=1.6) as loader:
        hoard: list[Any] = []
        with pytest.warns(spdl_cluster.SlotsExhaustedWarning, match="all 3 batches.*clone.*slots") as seen:
            with pytest.raises(spdl_cluster.LoaderTimeout, match="the caller keeps all 3 batches") as error:
                for batch in loader:
                    hoard.append(batch["image"])
                    del batch
        assert len(hoard) == 3
        # The warning names the line of the loop.
        assert [warning.filename for warning in seen] == [__file__]
        assert isinstance(error.value, TimeoutError)
        hoard.clear()
        # The batch that the loop waited for is delivered now.
        assert loader.position == (0, 72)
        assert next(iter(loader)).position == (0, 72)


def test_a_trainer_that_keeps_batches_of_the_local_queue_is_warned_too(job: MakeJob, cluster: Cluster) -> None:
    name = cluster.submit(job(name="hoard"))
    with cluster.connect(0, 1, job=name, slots=2, timeout=1.6) as loader:
        hoard = []
        with pytest.warns(spdl_cluster.SlotsExhaustedWarning), pytest.raises(spdl_cluster.LoaderTimeout):
            for batch in loader:
                hoard.append(batch)
        assert len(hoard) == 2


def test_a_loop_that_lets_go_is_never_warned(job: MakeJob) -> None:
    with spdl_cluster.local(job(epochs=2), slots=2) as loader, warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            for batch in loader:
                assert batch.samples == 24


WAITS = """
    import json, signal, sys, spdl_cluster
    # A shell's background jobs ignore it, and a Python that they start does too.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    loader = spdl_cluster.local(json.loads(sys.argv[1]), tensors="numpy", slots=1, timeout=100)
    epoch = iter(loader)
    held = next(epoch)
    try:
        print("waiting", flush=True)
        next(epoch)             # never comes: the only slot is held
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    expected = held.next_position
    del held
    print(next(epoch).position == expected, flush=True)
"""


def test_ctrl_c_ends_a_wait_and_loses_nothing(job: MakeJob) -> None:
    process = run_python(WAITS, json.dumps(job(), default=str), PYTHONWARNINGS="ignore")
    assert line(process) == "waiting"
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=LIMIT_S)
    assert output.split() == ["interrupted", "True"], errors


def test_other_threads_go_on_while_one_waits(job: MakeJob) -> None:
    with spdl_cluster.local(job(), slots=1, timeout=100) as loader:
        epoch = iter(loader)
        held = [next(epoch)]
        positions: list[Any] = []
        waiter = threading.Thread(target=lambda: positions.append(next(epoch).position))
        waiter.start()
        # This thread runs Python while the other thread waits for the batch held here.
        assert sum(range(1000)) == 499_500
        assert positions == []
        held.clear()
        waiter.join(LIMIT_S)
        assert positions == [(0, 24)]


def test_a_forked_child_gets_an_error_and_the_parent_goes_on(job: MakeJob) -> None:
    code = """
        import json, os, sys, spdl_cluster
        loader = spdl_cluster.local(json.loads(sys.argv[1]), tensors="numpy")
        epoch = iter(loader)
        batch = next(epoch)
        digest = batch.content_digest()
        child = os.fork()
        if child == 0:
            for use in (lambda: next(epoch), loader.state_dict, lambda: len(loader), loader.close):
                try:
                    use()
                except spdl_cluster.ForkedError as error:
                    print(error, flush=True)
            del batch, epoch, loader       # nor does letting go hang, or take the parent's slot
            sys.exit(7)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        print(batch.content_digest() == digest, len(list(b.slot for b in epoch)))
    """
    process = run_python(code, json.dumps(job(), default=str))
    output, errors = process.communicate(timeout=LIMIT_S)
    lines = output.splitlines()
    assert sum("was forked from it and cannot use it" in text for text in lines) == 4, output + errors
    assert lines[-2:] == ["7", "True 7"], output + errors


def test_a_stopped_worker_is_explained_and_waited_for(job: MakeJob, cluster: Cluster) -> None:
    name = cluster.submit(job(name="stopped"))
    with cluster.connect(0, 1, job=name, timeout=1.0, slots=2) as loader:
        epoch = iter(loader)
        first = next(epoch).position
        os.kill(cluster.worker.pid, signal.SIGSTOP)
        try:
            with pytest.raises(spdl_cluster.LoaderTimeout, match="rank 0 has waited .* for a batch at") as error:
                while True:
                    next(epoch)
        finally:
            os.kill(cluster.worker.pid, signal.SIGCONT)
        assert "spdl-ctl status" in (error.value.hint or "")
        missing = loader.position
        while True:
            try:
                assert next(epoch).position == missing > first
                break
            except spdl_cluster.LoaderTimeout:
                pass


def test_a_slow_consumer_gets_every_batch_whole(job: MakeJob) -> None:
    made = job(epochs=2)
    with spdl_cluster.local(made) as loader:
        expected = [batch.content_digest() for _ in range(2) for batch in loader]
    with spdl_cluster.local(made, slots=3, tensors="numpy") as loader:
        digests = []
        for _ in range(2):
            for batch in loader:
                # The work takes longer than filling a batch, so an overwritten slot would be noticed.
                before = batch.content_digest()
                for _ in range(20):
                    assert batch["image"].astype("float64").mean() > 0
                assert batch.content_digest() == before
                digests.append(before)
        assert loader.stats()["batches"] == len(expected)
    assert digests == expected
