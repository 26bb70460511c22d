"""Reports of bad samples to a trainer: counts in `stats()`, and a log line for each kind through Python's `logging`."""

from __future__ import annotations

import logging
import queue
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import spdl_cluster
import user_functions
from conftest import LIMIT_S, PICTURES, Cluster, MakeJob

LACKS = {"name": "caption", "from": "nofield", "decode": "bytes"}


def picky(**keys: Any) -> dict[str, Any]:
    """Returns a column whose function fails for the samples of one class."""
    return {"name": "other", "from": "cls", "decode": "int", "transform": user_functions.Picky.raises, **keys}


class Lines(logging.Handler):
    """Collects the log records."""

    def __init__(self) -> None:
        super().__init__()
        self.queue: queue.SimpleQueue[str] = queue.SimpleQueue()

    def emit(self, record: logging.LogRecord) -> None:
        self.queue.put(record.getMessage())


@pytest.fixture
def lines() -> Iterator[Callable[[str], list[str]]]:
    """Waits for a log line that contains a text; returns all such lines so far."""
    handler, logger = Lines(), logging.getLogger("spdl_cluster")

    def wait(part: str) -> list[str]:
        found: list[str] = []
        while not found or not handler.queue.empty():
            found += [line for line in [handler.queue.get(timeout=LIMIT_S)] if part in line]
        return found

    logger.addHandler(handler)
    yield wait
    logger.removeHandler(handler)


def test_substituted_samples_are_counted_and_logged_by_kind(job: MakeJob, lines: Callable[[str], list[str]]) -> None:
    with spdl_cluster.local(job(picky(), max_bad_fraction=1.0), cores=1) as loader:
        flagged = sum(int((batch.flags != 0).sum()) for batch in loader)
        stats = loader.stats()
    assert (stats["substituted"], stats["masked"]) == (flagged, 0)
    assert flagged > 3
    lines_logged = lines("user_functions:Picky")  # Lines of another test's loader may still arrive.
    assert "bad sample" in lines_logged[0] and "class 3 is not" in lines_logged[0] and "key=" in lines_logged[0]
    assert all(f" {name}=" in lines_logged[0] for name in ["session", "job", "rank", "batch"]), lines_logged[0]
    # One line for the first bad sample, and one at ten times as many.
    assert len(lines_logged) <= 2, lines_logged


def test_names_that_no_sample_has_are_one_question(job: MakeJob, cluster: Cluster) -> None:
    # A job that allows so many bad samples is not compared with the dataset's records.
    names = {"name": "class", "from": "cls", "decode": "category", "names": ["cat"]}
    name = cluster.submit(job(names, name="lacks-names", max_bad_fraction=0.6))
    with cluster.connect(0, 1, job=name) as loader:
        question = "field `cls` of no sample so far has a name that column `class` lists: check `names`"
        with pytest.raises(spdl_cluster.DataError, match=rf"bad samples of {PICTURES}, .*{question}"):
            loader.next()


def test_a_field_that_no_record_has_is_an_error_before_the_first_batch(job: MakeJob) -> None:
    wrong = {"name": "caption", "from": "jgp", "decode": "bytes"}
    for column, meant in ((LACKS, "its fields are cls, jpg"), (wrong, r"did you mean `jpg`\? its fields are cls, jpg")):
        text = f"job `test`: column `caption`: `from` is `{column['from']}`, which no record of the dataset has; {meant}"
        with spdl_cluster.local(job(column)) as loader, pytest.raises(spdl_cluster.SettingError, match=text):
            loader.next()
    for there in ("nofield|jpg", "__key__", "__shard__"):
        with spdl_cluster.local(job({**LACKS, "from": there})) as loader:
            assert loader.next() is not None


def test_a_few_bad_samples_of_a_small_dataset_do_not_end_the_job(job: MakeJob) -> None:
    few = {**picky(), "transform": user_functions.Picky.one}
    with spdl_cluster.local(job(few, seed=6, name="few"), cores=1) as loader:
        assert sum(batch.samples for batch in loader) == PICTURES // 24 * 24
        assert 0 < loader.stats()["substituted"] <= 10
    with spdl_cluster.local(job(few, max_bad_fraction=0.001)) as loader:
        with pytest.raises(spdl_cluster.DataError, match="more than the 0 that `max_bad_fraction` allows"):
            for _ in loader:
                pass


def test_an_evaluation_masks_what_is_bad_and_counts_it_and_says_so(job: MakeJob) -> None:
    columns = {"max_bad_fraction": 1.0, "shuffle": False, "name": "masked"}
    with spdl_cluster.local(job(picky(), **columns)) as loader:
        for _ in range(2):
            with pytest.warns(UserWarning, match="job `masked`: [0-9]+ of the samples of this pass on rank 0 are bad") as warned:
                found = [(batch.ids.tolist(), batch.valid.tolist(), batch["label"].tolist(), batch.flags.tolist()) for batch in loader]
            entries = [entry for batch in found for entry in zip(*batch)]
            assert [i for i, *_ in entries] == list(range(PICTURES))
            bad = [entry for entry in entries if not entry[1]]
            assert f": {len(bad)} of" in str(warned[0].message) and 0 < len(bad) < PICTURES
            # Zeros would be of a class.
            assert all(label == 0 and flags == 8 for _, _, label, flags in bad)
            assert all(label != 3 and flags == 0 for _, valid, label, flags in entries if valid)
    # A training takes another sample, and never counts one as masked.
    with spdl_cluster.local(job(picky(), max_bad_fraction=1.0)) as loader:
        assert all(batch.valid.all() for batch in loader)
        assert loader.stats()["substituted"] > 0 == loader.stats()["masked"]


def test_a_rank_of_a_cluster_hears_that_samples_were_substituted(
    job: MakeJob, cluster: Cluster, lines: Callable[[str], list[str]]
) -> None:
    wrong = {"name": "wrong", "from": "cls", "decode": "json", "path": "none"}
    name = cluster.submit(job(wrong, name="bad-of-a-cluster", bad_samples="mask", max_bad_fraction=1.0))
    with cluster.connect(0, 1, job=name) as loader:
        assert loader.next() is not None
        assert loader.stats()["masked"] == 24
        assert "24 are zero and flagged; `spdl-ctl status` lists them" in lines("were bad")[0]


def test_lines_of_the_native_half_reach_logging_and_are_there_at_the_end_of_a_program(
    job: MakeJob, tmp_path: Any
) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        f"""
import logging, sys
logging.basicConfig(format="%(levelname)s %(name)s %(message)s", stream=sys.stdout)
import spdl_cluster
if __name__ == "__main__":
    loader = spdl_cluster.local({job({"name": "number", "from": "jpg", "decode": "int"}, bad_samples="mask", max_bad_fraction=1.0, dataset=str(job()["dataset"]))!r})
    loader.next()
"""
    )
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 0, done.stderr
    line = r"WARNING spdl_cluster\.worker\.feed\S* bad sample"
    assert re.match(line, done.stdout), done.stdout + done.stderr
