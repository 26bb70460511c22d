"""The processes that call functions: which job's they are, what they start, answer and print."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import spdl_cluster
from conftest import LIMIT_S, Cluster, MakeJob, wait_for_the_end_of

HERE = pathlib.Path(__file__).parent


def column(function: str, **keys: Any) -> dict[str, Any]:
    """Returns a column of the class with one of the functions in `user_functions`."""
    return {"name": "other", "from": "cls", "decode": "int", "transform": f"user_functions:{function}", **keys}


def rows(function: str) -> dict[str, Any]:
    """Returns a column of arrays with one of the functions in `user_functions`."""
    return column(function, **{"from": "jpg", "decode": "image", "ops": [{"resize": [32, 32]}]})


@pytest.fixture
def with_python(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """Yields a cluster of one decoding thread that may call functions."""
    monkeypatch.setenv("PYTHONPATH", str(HERE), prepend=os.pathsep)
    cluster = Cluster(tmp_path, "--python", sys.executable)
    yield cluster
    cluster.stop()


def is_there(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def test_what_a_function_sets_for_its_process_changes_no_other_job(job: MakeJob, with_python: Cluster) -> None:
    sets = with_python.submit(job(column("sets_a_global"), name="sets", epochs=100))
    reads = with_python.submit(job(column("reads_a_global"), name="reads", bad_samples="fail"))
    with with_python.connect(0, 1, job=sets, slots=2) as first:
        batch = first.next()
        assert batch is not None
        processes = set(batch["other"].tolist())
        with with_python.connect(0, 1, job=reads) as second:
            for batch in second:
                assert (batch["other"] == batch["label"] + 7).all()
        assert all(map(is_there, processes)), "the end of one job ends no processes of another"


def test_all_jobs_together_have_a_bounded_number_of_processes(job: MakeJob, with_python: Cluster) -> None:
    names = [with_python.submit(job(column("process"), name=f"job-{number}", seed=number, epochs=100)) for number in range(4)]
    loaders = [with_python.connect(0, 1, job=name, slots=2) for name in names]
    processes: set[int] = set()
    for loader in loaders * 2:
        batch = loader.next()
        assert batch is not None
        processes |= set(batch["other"].tolist())
        # Two for the one decoding thread.
        assert sum(map(is_there, processes)) <= 2
    for loader in loaders:
        loader.close()
    for process in processes:
        wait_for_the_end_of(process)


@pytest.mark.parametrize("function", ["forks", "forks_and_raises"])
def test_a_process_that_a_function_forks_answers_nothing_and_changes_nothing(job: MakeJob, function: str, capfd: pytest.CaptureFixture[str]) -> None:
    with spdl_cluster.local(job(rows("turned_over"), bad_samples="fail"), tensors="numpy") as loader:
        expected = {i: picture[::-1].copy() for batch in loader for i, picture in zip(batch.ids.tolist(), batch["other"])}
    seen = 0
    with spdl_cluster.local(job(rows(function), bad_samples="fail"), tensors="numpy", cores=2) as loader:
        for batch in loader:
            for sample, picture in zip(batch.ids.tolist(), batch["other"]):
                assert (picture == expected[sample]).all()
                seen += 1
    assert seen == len(expected)
    assert f"function `user_functions:{function}` forked a process that returned from it" in capfd.readouterr().err


def test_an_answer_that_was_not_asked_for_is_no_sample(job: MakeJob) -> None:
    made = job(column("answers_twice"), bad_samples="mask", max_bad_fraction=1.0)
    with spdl_cluster.local(made) as loader:
        for batch in loader:
            good = batch.flags == 0
            assert (batch["other"][good] == batch["label"][good]).all() and 3 not in batch["label"][good]
    text = r"function `user_functions:answers_twice` lost its process 2 times: it sent an answer that no request has, and was killed"
    with spdl_cluster.local({**made, "bad_samples": "fail"}) as loader:
        with pytest.raises(spdl_cluster.DataError, match=text):
            for _ in loader:
                pass


@pytest.mark.parametrize("end", ["the job", "the worker"])
def test_what_a_function_starts_ends_with_its_process(job: MakeJob, with_python: Cluster, end: str) -> None:
    starts = column("starts", returns={"dtype": "i64", "shape": [2]})
    name = with_python.submit(job(starts, name="starts", epochs=100))
    with with_python.connect(0, 1, job=name, slots=2) as loader:
        batch = loader.next()
        assert batch is not None
        started = set(batch["other"].flatten().tolist())
        assert len(started) >= 2 and all(map(is_there, started))
        if end == "the worker":
            with_python.worker.kill()
    for process in started:
        wait_for_the_end_of(process)


def test_what_functions_print_is_bounded(job: MakeJob, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "job.json"
    path.write_text(json.dumps(job(column("prints"), bad_samples="fail"), default=str))
    program = f"""
import json, logging, spdl_cluster
logging.basicConfig()
with spdl_cluster.local(json.load(open({str(path)!r}))) as loader:
    print(sum(len(batch) and len(batch.ids) for batch in loader))
"""
    environment = {**os.environ, "PYTHONPATH": str(HERE)}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=LIMIT_S, env=environment)
    assert done.returncode == 0, done.stderr[-1000:]
    samples = int(done.stdout)
    assert samples > 100 and (1 << 19) < len(done.stderr) < samples << 17, "an eighth of what was printed, at most"
    assert "print more than the log takes" in done.stderr
