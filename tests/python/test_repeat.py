"""Batches that are given again and again, which show how fast a program is with a loader that costs nothing."""

from __future__ import annotations

import os
import pathlib
import typing

import pytest
import spdl_cluster
from conftest import FRAMEWORKS_HERE, PICTURES, Cluster, MakeJob, ctl_json

STEPS = PICTURES // 24


def test_batches_repeat_to_the_end_of_each_epoch_and_count_nowhere(job: MakeJob, caplog: pytest.LogCaptureFixture) -> None:
    with spdl_cluster.local(job(epochs=3)) as loader:
        first = [(batch.ids.tolist(), batch.content_digest()) for _, batch in zip(range(3), loader)]
        receipt = loader.receipt
    with spdl_cluster.local(job(epochs=3)) as loader:
        assert loader.repeat_batches(3) is loader
        assert "not opened" in repr(loader), "it opens nothing"
        assert len(loader) == STEPS
        while not caplog.records:
            assert loader.position == (0, 0)
        assert "again and again" in caplog.text and "`repeat_batches(3)`" in caplog.text
        for epoch in range(loader.epochs):
            loader.set_epoch(epoch)
            assert (loader.epoch, loader.steps_left) == (epoch, STEPS * (3 - epoch))
            given = [(batch.ids.tolist(), batch.content_digest()) for batch in loader]
            assert given == [first[(epoch * STEPS + step) % 3] for step in range(STEPS)]
        with pytest.raises(spdl_cluster.FinishedError):
            next(iter(loader))
        assert loader.next() is None and loader.epoch == 3
        assert (loader.position, loader.receipt) == ((0, 72), receipt)
        stats = loader.stats()
        assert (stats["batches"], stats["repeated_batches"], stats["samples"]) == (3 * STEPS, 3 * STEPS - 3, 72 * STEPS)
        assert loader.metrics("l/")["l/repeated_batches"] == 3 * STEPS - 3


def test_a_batch_that_repeats_is_new_and_its_memory_is_the_same(job: MakeJob) -> None:
    with spdl_cluster.local(job(), slots=2, tensors="numpy").repeat_batches(2) as loader:
        held = [loader.next() for _ in range(STEPS)]
        # None waits for a slot, though the program holds all of them.
        assert all(held)
        first, again = held[0], held[2]
        assert first is not None and again is not None and first is not again
        first["more"] = 1
        assert "more" not in again
        first["label"][0] = 7
        assert again["label"][0] == 7
        assert [batch.slot for batch in held if batch] == [(first.slot, held[1].slot)[step % 2] for step in range(STEPS)]  # type: ignore[union-attr]


def test_a_state_of_repeated_batches_is_one_that_no_loader_takes(job: MakeJob) -> None:
    with spdl_cluster.local(job(epochs=2)) as loader:
        loader.repeat_batches(2)
        batches = [loader.next() for _ in range(2)]
        good = loader.state_dict()
        assert good == {**loader.state_dict(after=batches[1])}
        batches.append(loader.next())
        refused = [loader.state_dict(), loader.state_dict(after=batches[2])]
    for state in refused:
        assert state == {**good, "repeated_batches": True}
        with pytest.raises(spdl_cluster.StateError, match="`repeat_batches`"):
            spdl_cluster.local(job(epochs=2), state=state)
    with spdl_cluster.local(job(epochs=2), state=good) as loader:
        assert loader.position == (0, 48)


def test_as_many_batches_repeat_as_there_is_room_for(job: MakeJob) -> None:
    with spdl_cluster.local(job(), slots=3) as loader:
        loader.repeat_batches(4)
        with pytest.raises(spdl_cluster.SettingError, match="`repeat_batches` is 4, and the loader has room for 3"):
            loader.next()
    with spdl_cluster.local(job(), slots=3) as loader:
        assert loader.position == (0, 0)
        for count in (0, 4):
            with pytest.raises(spdl_cluster.SettingError, match=f"`repeat_batches` is {count}"):
                loader.repeat_batches(count)
        loader.repeat_batches(3)
        assert loader.next() is not None
        with pytest.raises(spdl_cluster.SettingError, match="was called before"):
            loader.repeat_batches(2)


def test_an_evaluation_repeats_its_first_batches_in_each_loop(job: MakeJob) -> None:
    made = job(shuffle=False, epochs=1)
    with spdl_cluster.local(made, slots=2).repeat_batches(2) as loader:
        loops = [[tuple(batch.ids.tolist()) for batch in loader] for _ in range(2)]
    assert [len(loop) for loop in loops] == [STEPS + 1] * 2, "8 batches and a short one"
    assert len(set(loops[0])) == 2 and set(loops[0]) == set(loops[1])


@FRAMEWORKS_HERE
def test_lightning_goes_on_over_batches_that_repeat_and_its_checkpoint_is_refused(job: MakeJob, tmp_path: pathlib.Path) -> None:
    torch = pytest.importorskip("torch", reason=os.environ.get("SPDL_TEST_NO_TORCH", "torch is not installed"))
    lightning = pytest.importorskip("lightning.pytorch", reason=os.environ.get("SPDL_TEST_NO_FRAMEWORKS", "it is not installed"))
    steps: list[int] = []

    class Model(lightning.LightningModule):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(1))

        def training_step(self, batch: spdl_cluster.Batch) -> typing.Any:
            steps.append(self.current_epoch)
            return self.weight * batch["image"].float().mean()

        def configure_optimizers(self) -> typing.Any:
            return torch.optim.SGD(self.parameters(), lr=1e-3)

    def fit(loader: spdl_cluster.Loader, epochs: int, **settings: typing.Any) -> None:
        middle = lightning.callbacks.ModelCheckpoint(dirpath=tmp_path, every_n_train_steps=5, save_top_k=-1, filename="{step}")
        quiet = {"callbacks": [middle], "logger": False, "enable_progress_bar": False, "enable_model_summary": False}
        trainer = lightning.Trainer(max_epochs=epochs, accelerator="cpu", devices=1, **quiet)
        trainer.fit(Model(), loader, **settings)

    made = job(epochs=4)
    with spdl_cluster.local(made).repeat_batches(2) as loader:
        fit(loader, 3)
        assert steps == [epoch for epoch in range(3) for _ in range(STEPS)]
        assert (loader.position, loader.stats()["repeated_batches"]) == ((0, 48), 3 * STEPS - 2)
    checkpoint = tmp_path / "step=5.ckpt"
    with spdl_cluster.local(made) as loader, pytest.raises(spdl_cluster.StateError, match="`repeat_batches`"):
        fit(loader, 4, ckpt_path=checkpoint)


def test_a_cluster_knows_nothing_of_what_repeats(job: MakeJob, cluster: Cluster) -> None:
    name = cluster.submit(job(name="repeated", epochs=4))
    with cluster.connect(0, 1, job=name, run="ceiling").repeat_batches(4) as loader:
        assert sum(1 for _ in loader) == STEPS
        for _ in range(3):
            assert sum(1 for _ in loader) == STEPS
        receipt = loader.receipt
        assert (loader.position, loader.stats()["repeated_batches"]) == ((0, 96), 4 * STEPS - 4)
    [run] = [run for run in ctl_json("run", "list", *cluster.admin) if run["name"] == "ceiling"]
    assert (run["acknowledged"], run["receipt"], run["is_finished"]) == ({"epoch": 0, "offset": 96}, receipt, False)
