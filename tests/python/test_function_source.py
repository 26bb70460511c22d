"""The digest of a function's source in a job: changed source is refused, wherever it is found."""

from __future__ import annotations

import importlib.util
import os
import pathlib
import signal
import subprocess
import sys
import types
from collections.abc import Callable
from typing import Any

import pytest
import spdl_cluster
import user_functions
from conftest import Cluster, MakeJob

HERE = pathlib.Path(__file__).parent

#: A module of a user's: a function, and another one that it calls.
MODULE = """
import os

def offset():
    return {offset}

def add(label, rng):
    return int(label) + offset()

def process(label, rng):
    return os.getpid()
"""

WriteModule = Callable[..., pathlib.Path]


@pytest.fixture
def write(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> WriteModule:
    """Returns a function that writes the user's module `additions` into a folder, where all processes find it."""

    def write(offset: int, folder: str = "modules") -> pathlib.Path:
        place = tmp_path / folder
        place.mkdir(exist_ok=True)
        # The length differs, so that no byte code of an earlier version is taken for this one's.
        (place / "additions.py").write_text(MODULE.format(offset=offset) + "#" * offset)
        monkeypatch.setenv("PYTHONPATH", str(place))
        monkeypatch.setattr(sys, "path", [str(place), *sys.path])
        return place

    return write


def added(job: MakeJob, function: str = "add", **keys: Any) -> dict[str, Any]:
    """Returns a job with a function of the user's module."""
    column = {"name": "added", "from": "cls", "decode": "int", "transform": f"additions:{function}"}
    return job({**column, **keys.pop("column", {})}, **keys)


def state_after(loader: spdl_cluster.Loader, offset: int) -> Any:
    """Takes a batch, checks it, and returns the state after it."""
    batch = loader.next()
    assert batch is not None and (batch["added"] == batch["label"] + offset).all()
    return loader.state_dict()


def test_a_checkpoint_goes_on_with_the_same_source_and_with_no_other(job: MakeJob, write: WriteModule) -> None:
    write(1)
    with spdl_cluster.local(added(job)) as loader:
        state = state_after(loader, 1)
    write(1, "a_copy")
    with spdl_cluster.local(added(job), state=state) as loader:
        assert state_after(loader, 1) != state
    # The function itself is the same, and one that it calls is not.
    write(2)
    with spdl_cluster.local(added(job), state=state) as loader:
        with pytest.raises(spdl_cluster.StateError, match="state has fingerprint .*; job `test` has ") as error:
            loader.next()
    assert "another version of a function" in (error.value.hint or "")
    with spdl_cluster.local(added(job)) as loader:
        state_after(loader, 2)


def test_a_job_names_the_source_that_it_was_created_with(job: MakeJob, write: WriteModule) -> None:
    write(1)
    made = added(job, column={"source_digest": f"{7:032x}"})
    with spdl_cluster.local(made) as loader:
        text = (
            f"job `test` was created with source {7:032x} of the function `additions:add`, and worker `in-process` has source "
            "[0-9a-f]{32}: install the version of the job on all workers, or create a new job"
        )
        with pytest.raises(spdl_cluster.DataError, match=text):
            loader.next()
    with pytest.raises(spdl_cluster.SettingError, match="`seven` is not 32 hex digits"):
        spdl_cluster.local(added(job, column={"source_digest": "seven"})).next()


def test_a_function_that_is_edited_in_use_ends_the_job_and_is_no_bad_sample(job: MakeJob, write: WriteModule) -> None:
    write(1)
    with spdl_cluster.local(added(job, "process", epochs=4), cores=1, slots=2) as loader:
        batch = loader.next()
        assert batch is not None
        process = int(batch["added"][0])
        # A batch that is kept takes a slot.
        del batch
        write(2)
        os.kill(process, signal.SIGKILL)
        text = "job `test` was created with source .* of the function `additions:process`, and worker `in-process` has source"
        with pytest.raises(spdl_cluster.DataError, match=text):
            for _ in loader:
                pass


@pytest.fixture
def submitted_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets `spdl-ctl job submit` and workers use the interpreter of the tests."""
    monkeypatch.setenv("SPDL_PYTHON", sys.executable)


def test_a_worker_with_another_source_refuses_the_job(
    job: MakeJob, write: WriteModule, tmp_path: pathlib.Path, submitted_here: None
) -> None:
    write(1)
    cluster = Cluster(tmp_path)
    try:
        name = cluster.submit(added(job, name="created"))
        cluster.submit(added(job, name="created"))
        with cluster.connect(0, 1, job=name) as loader:
            state = state_after(loader, 1)
        # The same job in one process has the same fingerprint.
        with spdl_cluster.local(added(job, name="created"), state=state) as loader:
            state_after(loader, 1)
        cluster.worker.kill()
        cluster.worker.wait()
        write(2)
        path = tmp_path / "created.toml"
        again = ("job", "submit", path, *cluster.admin)
        refused = subprocess.run([os.environ["SPDL_TEST_CTL"], *map(str, again)], capture_output=True, text=True)
        assert refused.returncode != 0
        assert "this one differs in the source of the function `additions:add`" in refused.stderr, refused.stderr
        cluster.start_worker()
        with cluster.connect(0, 1, job=name, state=state) as loader:
            text = "job `created` was created with source .* of the function `additions:add`, and worker `.*` has source"
            with pytest.raises(spdl_cluster.DataError, match=text):
                loader.next()
    finally:
        cluster.stop()


def test_a_job_without_digests_works_as_before_and_a_change_in_use_ends_it(
    job: MakeJob, write: WriteModule, tmp_path: pathlib.Path, submitted_here: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(1)
    cluster = Cluster(tmp_path, "--python", sys.executable)
    try:
        monkeypatch.setenv("SPDL_PYTHON", "/nowhere/python3")
        name = cluster.submit(added(job, name="plain"))
        process = cluster.submit(added(job, "process", name="process", epochs=4))
        with cluster.connect(0, 1, job=name) as loader:
            state = state_after(loader, 1)
        # Its checkpoint is one of the job with the digest too, as where it was written before there were any.
        with spdl_cluster.local(added(job, name="plain"), state=state) as loader:
            known = state_after(loader, 1)
        with cluster.connect(0, 1, job=name, state=known, takeover=True) as loader:
            with pytest.raises(spdl_cluster.StateError):
                loader.next()
        with cluster.connect(0, 1, job=process, slots=2) as loader:
            batch = loader.next()
            assert batch is not None
            write(2)
            (tmp_path / "modules/additions.py").touch()
            os.kill(int(batch["added"][0]), signal.SIGKILL)
            text = "the function `additions:process` of job `process` changed on worker `.*` while it was in use, from source"
            with pytest.raises(spdl_cluster.DataError, match=text):
                for _ in loader:
                    pass
    finally:
        cluster.stop()


def process_program() -> types.ModuleType:
    """Imports the program of a worker's function processes."""
    path = HERE.parent.parent / "worker/src/transform/process.py"
    spec = importlib.util.spec_from_file_location("function_process", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_what_has_no_source_has_no_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    process = process_program()
    for name in ("operator:neg", "builtins:len", "builtins:int", "numpy:ndarray", "array:array"):
        assert process.digest(name) == "", name
    names = ("shifted", "Shift", "Picky.raises")
    digests = {process.digest(f"user_functions:{name}") for name in names}
    assert len(digests) == 1 and all(len(digest) == 32 for digest in digests), "they are in one module"
    monkeypatch.setattr(process, "program", user_functions)
    monkeypatch.setattr(process, "program_module", user_functions)
    of_program = {process.digest(f"__main__:{name}") for name in names}
    assert len(of_program) == 3 and "" not in of_program, "of a program it is the function alone"


def test_the_module_that_defines_a_function_counts_wherever_it_is_named(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "reexporting"
    package.mkdir()
    (package / "__init__.py").write_text("from .inner import f\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    digests = []
    for text in ("def f(value, rng):\n    return 1\n", "def f(value, rng):\n    return 22\n", "def f(value, rng):\r\n    return 1\r\n"):
        (package / "inner.py").write_bytes(text.encode())
        for name in ("reexporting", "reexporting.inner"):
            monkeypatch.delitem(sys.modules, name, raising=False)
        importlib.invalidate_caches()
        digests.append(process_program().digest("reexporting:f"))
    assert digests[0] != digests[1] and digests[0] == digests[2], "line ends do not count"
