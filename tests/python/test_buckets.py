"""Jobs with a `bucket`: sounds of like length come in one batch, as the second implementation has them, at every number of ranks, in trainings that
are killed and go on, and in a cluster with bad samples."""

from __future__ import annotations

import json
import pathlib
import re
import shutil
import signal
from typing import Any, NamedTuple

import numpy
import pytest
import spdl_cluster
from conftest import LIMIT_S, Cluster, RanksInTurn, add, at_once, ctl, ctl_json, run_python, write_job
from test_cost import DEAL, SAMPLES, frames_of, job, size_of, write
from test_language import module

ROOT = pathlib.Path(__file__).parents[2]
PADDING = r"^padding to the longest +(\d+\.\d) % of a rank's batch without `bucket`, (\d+\.\d) % with it$"

#: A rank of a training: it writes what each batch has, saves its state after some steps, and kills itself after some more.
TRAINER = """
import json, os, pathlib, signal, sys
import spdl_cluster

job, folder, rank, world, saved, killed = (json.loads(value) for value in sys.argv[1:])
folder = pathlib.Path(folder)
with spdl_cluster.local(job, rank=rank, world=world, tensors="numpy") as loader, open(folder / f"{rank}.jsonl", "w") as trace:
    for step in range(1, killed + 1):
        batch = loader.next()
        print(json.dumps([list(batch.position), [int(key) for key in batch["key"].text()], batch.content_digest()]), file=trace, flush=True)
        if step == saved and rank == 0:
            (folder / "state.json").write_text(json.dumps(loader.state_dict()))
    os.kill(os.getpid(), signal.SIGKILL)
"""


class Step(NamedTuple):
    """What ranks have in a step."""

    samples: list[list[int]]
    digest: str


Steps = dict[tuple[int, int], Step]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return write(tmp_path_factory.mktemp("samples"))


def sounds(dataset: pathlib.Path, **keys: Any) -> dict[str, Any]:
    """Returns a job whose epochs are seven batches and a half, in windows of five batches."""
    cost = {"of": "seconds", "bucket": 5}
    return job(dataset, "seconds", **{"global_batch": 8, "epochs": 3, "epoch_end": "continuous", "cost": cost, **keys})


def delivered(made: dict[str, Any], world: int, state: dict[str, Any] | None = None) -> tuple[Steps, str]:
    """Returns what all ranks get in each step, from a state on, and the sum of their receipts."""
    steps: list[dict[tuple[int, int], tuple[list[int], str]]] = [{} for _ in range(world)]
    ranks = RanksInTurn(made, world, state)
    for loader, batch in ranks:
        keys = [int(key) for key in batch["key"].text()]
        assert [frames_of(key) for key in keys] == batch["sound"].lengths.tolist()
        epoch, offset = batch.position
        steps[loader.rank][epoch, offset] = (keys, batch.content_digest())
    return joined(steps), ranks.receipt


def joined(ranks: list[dict[tuple[int, int], tuple[list[int], str]]]) -> Steps:
    """Returns what ranks have together in each step."""
    return {at: Step([rank[at][0] for rank in ranks], add([rank[at][1] for rank in ranks])) for at in ranks[0]}


def everything(steps: Steps) -> dict[tuple[int, int], tuple[list[int], str]]:
    """Returns what does not depend on the number of ranks: the samples of each global batch, and the digest of all their bytes."""
    return {at: (sorted(sum(step.samples, [])), step.digest) for at, step in steps.items()}


def padding(steps: Steps) -> float:
    """Returns the share of places that are padding if each rank pads its sounds to its longest one."""
    ranks = [[frames_of(sample) for sample in samples] for step in steps.values() for samples in step.samples]
    return 1 - sum(map(sum, ranks)) / sum(len(rank) * max(rank) for rank in ranks)


def test_batches_are_those_of_the_second_implementation(written: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "tests/order")
    buckets = module(ROOT / "tests/order/buckets.py")

    class Unsorted:
        """The stream without buckets, which has one lane, so that the samples of a batch are in the order of their positions."""

        samples, lanes, ids = SAMPLES, 1, dict[int, list[int]]()

        def at(self, epoch: int, offset: int) -> int:
            return self.ids[epoch][offset]

    made = sounds(written, order={"lanes": 1}, epoch_end="pad")
    plain = {key: value for key, value in made.items() if key != "cost"}
    orders: list[dict[int, list[int]]] = []
    for of in (plain, made):
        epochs: dict[int, list[int]] = {}
        for (epoch, _), step in delivered(of, 1)[0].items():
            epochs.setdefault(epoch, []).extend(step.samples[0])
        # The last batch of an epoch is filled with its first samples.
        orders.append({epoch: samples[:SAMPLES] for epoch, samples in epochs.items()})
    Unsorted.ids, found = orders
    bucketed = buckets.Bucketed(Unsorted(), [size_of("seconds", sample) for sample in range(SAMPLES)], 3, 40, 8, False)
    assert found == {epoch: [bucketed.at(epoch, offset) for offset in range(SAMPLES)] for epoch in range(3)}
    assert all(sorted(samples) == list(range(SAMPLES)) and samples != Unsorted.ids[epoch] for epoch, samples in found.items())


def test_batches_of_like_length_are_the_same_at_every_world_and_after_a_kill(written: pathlib.Path, tmp_path: pathlib.Path) -> None:
    made = sounds(written)
    whole, receipt = delivered(made, 1)
    assert sum(len(step.samples[0]) for step in whole.values()) == 22 * 8
    for world in (2, 3):
        steps, of_all = delivered(made, world)
        assert everything(steps) == everything(whole), f"{world} ranks"
        assert of_all == receipt
        for at, step in steps.items():
            costs = [size_of("seconds", sample) for sample in whole[at].samples[0]]
            dealt = DEAL.ranks(costs, world, None)
            ranks = [[sample for sample, of in zip(whole[at].samples[0], dealt, strict=True) if of == rank] for rank in range(world)]
            assert step.samples == ranks, f"{world} ranks at {at}"
    plain = {**made, "cost": {"of": "seconds"}}
    assert padding(steps) < padding(delivered(plain, 3)[0]) / 2
    assert ctl_json("audit", write_job(made, tmp_path / "job.toml"), "--receipt", receipt)["equal"]

    # Two ranks of which one has saved a state after ten steps are killed after twelve, and three ranks go on from the state.
    processes = [run_python(TRAINER, *(json.dumps(value) for value in ({**made, "dataset": str(written)}, str(tmp_path), rank, 2, 10, 12))) for rank in range(2)]
    for process in processes:
        _, said = process.communicate(timeout=LIMIT_S)
        assert process.returncode == -signal.SIGKILL, said
    lines = [[json.loads(line) for line in (tmp_path / f"{rank}.jsonl").read_text().splitlines()] for rank in range(2)]
    killed = joined([{tuple(at): (samples, digest) for at, samples, digest in rank} for rank in lines])
    state = json.loads((tmp_path / "state.json").read_text())
    rest, _ = delivered(made, 3, state)
    assert len(killed) == 12 and len(rest) == 12 and (1, 20) in rest
    assert everything(killed) | everything(rest) == everything(whole)
    assert all(everything(killed)[at] == everything(rest)[at] for at in list(killed)[10:])


def test_plan_shows_the_padding_as_the_page_does(written: pathlib.Path, tmp_path: pathlib.Path) -> None:
    made = sounds(written, epoch_end="drop")
    path = write_job(made, tmp_path / "job.toml")
    shown = ctl("plan", path, "--world", 2)
    assert re.search(PADDING, (ROOT / "docs/guide/balance.md").read_text(), re.MULTILINE)
    [(without, with_it)] = re.findall(PADDING, shown.stdout, re.MULTILINE)
    assert float(with_it) < 0.7 * float(without), shown.stdout
    balance = ctl_json("plan", path, "--world", 2)["balance"]
    assert f"{100 * balance['padding']:.1f}" == with_it and f"{100 * balance['padding_without_bucket']:.1f}" == without
    # All but the few of the last batch of an epoch.
    steps = {at: step for at, step in delivered(made, 2)[0].items() if at[0] == 0}
    assert padding(steps) == pytest.approx(balance["padding"], abs=0.002), "sizes are whole milliseconds"


@pytest.mark.parametrize("transport", ["local", "quic"])
def test_a_cluster_delivers_buckets_with_bad_samples_and_audit_proves_them(written: pathlib.Path, cluster: Cluster, tmp_path: pathlib.Path, transport: str) -> None:
    folder = tmp_path / "damaged"
    shutil.copytree(written, folder, ignore=shutil.ignore_patterns(".spdl"))
    for number in (7, 11):
        (folder / f"{number:03}.wav").write_bytes(b"RIFF, but no sound")
    ctl("index", folder)
    made = sounds(folder, name=f"bucketed-{transport}", max_bad_fraction=0.1)
    name = cluster.submit(made)
    ranks: list[dict[tuple[int, int], tuple[list[int], str]]] = [{}, {}]

    def pull(rank: int) -> None:
        with cluster.connect(rank, 2, job=name, tensors="numpy", transport=transport) as loader:
            while (batch := loader.next()) is not None:
                epoch, offset = batch.position
                ranks[rank][epoch, offset] = ([int(key) for key in batch["key"].text()], batch.content_digest())

    at_once(2, pull)
    found = joined(ranks)
    assert everything(found) == everything(delivered(made, 1)[0]), "a loader in one process measures and delivers the same"
    first = [sample for at, step in found.items() if at[0] == 0 for samples in step.samples for sample in samples]
    assert not {7, 11} & set(first) and set(range(SAMPLES)) - {7, 11} <= set(first), "others take their places"
    assert ctl_json("audit", "--run", f"{name}/{name}", *cluster.admin)["equal"]
    replayed = ctl_json("replay", write_job(made, tmp_path / "job.toml"), "--position", "1:4")
    assert replayed["content_digest"] == found[1, 4].digest


def test_groups_of_a_ragged_column_are_micro_batches_within_a_bound(written: pathlib.Path) -> None:
    with spdl_cluster.local(sounds(written), tensors="numpy") as loader:
        for batch in loader:
            column = batch["sound"]
            lengths = [frames_of(int(key)) for key in batch["key"].text()]
            for most in (1, 9000, 40000, 10**9):
                groups = column.groups(most)
                assert sorted(sum(groups, [])) == list(range(8))
                padded = [len(group) * max(lengths[sample] for sample in group) for group in groups]
                assert all(rows <= most or len(group) == 1 for rows, group in zip(padded, groups, strict=True))
                assert len(groups) == {1: 8, 10**9: 1}.get(most, len(groups))
            with pytest.raises(ValueError, match="`most` of `groups` is 0"):
                column.groups(0)
    empty = spdl_cluster.Ragged(numpy.zeros(0), numpy.zeros(1, "int64"))
    assert empty.groups(5) == []
