"""Functions of a job in this process, `local(functions="here")`: where they are called, and what they can do there that they cannot in processes."""

from __future__ import annotations

import bdb
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy
import pytest
import spdl_cluster
import user_functions
from conftest import MakeJob

Function = Callable[..., Any]


def doubled(function: Function) -> dict[str, Any]:
    """Returns a column of labels that the function changes."""
    return {"name": "changed", "from": "cls", "decode": "int", "transform": function}


def local(job: dict[str, Any], **settings: Any) -> spdl_cluster.Loader:
    return spdl_cluster.local(job, functions="here", tensors="numpy", **settings)


def test_lambdas_and_closures_are_called_in_the_thread_that_waits(job: MakeJob) -> None:
    seen: set[tuple[int, str]] = set()

    def closure(label: Any, rng: Any) -> Any:
        seen.add((os.getpid(), threading.current_thread().name))
        return label + 100

    with local(job(doubled(closure), {**doubled(lambda label, rng: label * 2), "name": "twice"})) as loader:
        for batch in loader:
            assert (batch["changed"] == batch["label"] + 100).all() and (batch["twice"] == batch["label"] * 2).all()
    assert seen == {(os.getpid(), threading.current_thread().name)}


def test_a_function_gives_here_what_it_gives_in_processes(job: MakeJob) -> None:
    made = job({**doubled(user_functions.Picky.one)}, max_bad_fraction=1.0)
    with spdl_cluster.local(made, tensors="numpy") as there, local(made) as here:
        assert [batch.content_digest() for batch in here] == [batch.content_digest() for batch in there]
        assert here.stats()["substituted"] == there.stats()["substituted"] > 0


def test_a_breakpoint_stops_in_the_program(job: MakeJob, monkeypatch: pytest.MonkeyPatch) -> None:
    stops: list[int] = []

    def stop(label: Any, rng: Any) -> Any:
        breakpoint()
        return label

    def hook(*_: Any, **__: Any) -> None:
        stops.append(sys._getframe(1).f_locals["label"])

    monkeypatch.setattr(sys, "breakpointhook", hook)
    with local(job(doubled(stop))) as loader:
        batch = loader.next()
        assert batch is not None and set(batch["label"].tolist()) <= set(stops)


@pytest.mark.parametrize("raised", [KeyboardInterrupt, bdb.BdbQuit])
def test_ctrl_c_and_the_end_of_a_debugger_end_the_wait_and_a_failure_is_a_bad_sample(job: MakeJob, raised: type[BaseException]) -> None:
    errors: list[type[BaseException]] = [raised]

    def fails(label: Any, rng: Any) -> Any:
        if errors:
            raise errors.pop()
        if label == 3:
            raise ValueError("no threes")
        return label

    with local(job(doubled(fails), max_bad_fraction=1.0)) as loader:
        with pytest.raises(raised):
            loader.next()
        batch = loader.next()
        assert batch is not None and 3 not in batch["changed"].tolist()
        assert loader.stats()["substituted"] > 0


def test_a_function_of_several_values_is_called_here_too(job: MakeJob) -> None:
    brightest = 0

    def prepare(sample: dict[str, Any], rng: numpy.random.Generator) -> dict[str, Any]:
        nonlocal brightest
        brightest = max(brightest, int(sample["image"].max()))
        return {"image": 255 - sample["image"], "mean": sample["image"].mean()}

    returns = [{"name": "image"}, {"name": "mean", "dtype": "f64", "shape": []}]
    made = job(function=[{"call": prepare, "columns": ["image"], "returns": returns}])
    with local(made) as loader:
        batch = loader.next()
        assert batch is not None and 0 < brightest <= 255
        assert numpy.allclose((255 - batch["image"].astype(float)).mean(axis=(1, 2, 3)), batch["mean"])


def test_a_function_cannot_use_the_loader_that_waits_for_it(job: MakeJob) -> None:
    texts: list[str] = []

    def asks(label: Any, rng: Any) -> Any:
        try:
            loader.position
        except spdl_cluster.SpdlError as error:
            texts.append(str(error))
        return label

    with local(job(doubled(asks))) as loader:
        assert loader.next() is not None
    assert texts and set(texts) == {texts[0]} and "the loader waits for the function" in texts[0]


def test_a_loader_is_closed_while_functions_wait_to_be_called(job: MakeJob) -> None:
    with local(job(doubled(lambda label, rng: label))) as loader:
        assert loader.next() is not None
    with pytest.raises(spdl_cluster.ClosedError):
        loader.next()


def test_another_place_is_refused_and_a_lambda_elsewhere_has_the_hint(job: MakeJob) -> None:
    with pytest.raises(spdl_cluster.SettingError, match="`functions` is 'there'"):
        spdl_cluster.local(job(), functions="there")  # type: ignore[arg-type]
    with pytest.raises(spdl_cluster.SettingError) as raised:
        spdl_cluster.local(job(doubled(lambda label, rng: label)))
    assert 'local(functions="here")' in str(raised.value)
