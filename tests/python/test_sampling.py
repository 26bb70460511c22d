"""Jobs that say how many samples each class gives in an epoch: the counts, what is shown of them, and trainings that are killed and go on."""

from __future__ import annotations

import json
import pathlib
import shlex
import signal
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

import numpy
import pytest
import spdl_cluster
from conftest import LIMIT_S, Cluster, at_once, ctl, ctl_json, run_python
from PIL import Image
from test_readme import GUIDE, blocks, runner

JobFile = Callable[[dict[str, Any]], pathlib.Path]
#: The pictures of each class, each twice as many as of the one before.
PICTURES = {"ant": 12, "bee": 24, "cat": 48, "dog": 96}
EPOCHS = 3

#: A rank of a training: it writes what each batch has, saves its state after some steps, and kills itself after some more.
TRAINER = """
import hashlib, json, pathlib, sys
import spdl_cluster

job, folder, rank, world, saved, killed = (json.loads(value) for value in sys.argv[1:])
folder = pathlib.Path(folder)
with spdl_cluster.local(job, rank=rank, world=world, tensors="numpy") as loader, open(folder / f"{world}-{rank}.jsonl", "w") as trace:
    # A rank of the launch that saves its state may begin when another one has saved it.
    if not saved and (folder / "state.json").exists():
        loader.load_state_dict(json.loads((folder / "state.json").read_text()))
    step = 0
    while (batch := loader.next()) is not None:
        step += 1
        pictures = [hashlib.sha256(picture.tobytes()).hexdigest() for picture in batch["image"]]
        for entry in zip(batch.epochs.tolist(), batch.offsets.tolist(), batch.ids.tolist(), batch["label"].tolist(), pictures):
            print(json.dumps([step, *entry]), file=trace, flush=True)
        if step == saved and rank == 0:
            (folder / "state.json").write_text(json.dumps(loader.state_dict()))
        if step == killed:
            import os, signal
            os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(scope="module")
def skewed(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Packs small pictures of classes of very different sizes."""
    folder = tmp_path_factory.mktemp("skewed")
    noise = numpy.random.default_rng(3)
    for name, count in PICTURES.items():
        (folder / "pictures" / name).mkdir(parents=True)
        for number in range(count):
            Image.fromarray(noise.integers(0, 255, (24, 24, 3), dtype="uint8")).save(folder / "pictures" / name / f"{number}.png")
    spdl_cluster.pack(folder / "pictures", folder / "packed", block_size="16KiB")
    return folder / "packed"


def job(dataset: pathlib.Path, **sampling: Any) -> dict[str, Any]:
    """Returns a job of pictures that all differ, which gives 40 samples of each class."""
    image = {"name": "image", "from": "png", "decode": "image", "ops": [{"random_resized_crop": {"size": 16}}]}
    label = {"name": "label", "from": "cls", "decode": "int"}
    view = {"sampling": {"by": "cls", "samples": 40, **sampling}}
    return {"name": "balanced", "dataset": str(dataset), "seed": 5, "global_batch": 24, "epochs": EPOCHS, "epoch_end": "continuous", "view": view, "column": [image, label]}


def trained(made: dict[str, Any], folder: pathlib.Path, world: int, saved: int = 0, killed: int = 0) -> list[tuple[int, ...]]:
    """Trains with processes until they end or are killed; returns step, epoch, offset, id, label and picture of each sample, in their order."""
    folder.mkdir(exist_ok=True)
    ranks = [run_python(TRAINER, *(json.dumps(value) for value in (made, str(folder), rank, world, saved, killed))) for rank in range(world)]
    for process in ranks:
        _, said = process.communicate(timeout=LIMIT_S)
        assert process.returncode == (-signal.SIGKILL if killed else 0), said
    lines = [line for rank in range(world) for line in (folder / f"{world}-{rank}.jsonl").read_text().splitlines()]
    return sorted((tuple(json.loads(line)) for line in lines), key=lambda entry: entry[1:3])


def test_a_training_has_each_class_equally_often_though_it_is_killed_and_goes_on_at_another_world(skewed: pathlib.Path, tmp_path: pathlib.Path) -> None:
    made = job(skewed)
    whole = [entry[1:] for entry in trained(made, tmp_path / "whole", 1)]
    assert len(whole) == EPOCHS * 4 * 40
    for epoch in range(EPOCHS):
        assert Counter(label for e, _, _, label, _ in whole if e == epoch) == dict.fromkeys(range(4), 40)
    times = Counter(sample for _, _, sample, _, _ in whole)
    labels = {sample: label for _, _, sample, label, _ in whole}
    for label, count in enumerate(PICTURES.values()):
        # Every sample of the class comes its share of three epochs, to less than one time.
        of_class = [times[sample] for sample, of in labels.items() if of == label]
        of_class += [0] * (count - len(of_class))
        assert sum(of_class) == 120 and all(abs(time - 120 / count) < 1 for time in of_class)
    pictures = defaultdict(list)
    for _, _, sample, _, picture in whole:
        pictures[sample].append(picture)
    assert all(len(set(some)) == len(some) for some in pictures.values()), "a sample has another crop each time"

    first = trained(made, tmp_path / "killed", 2, saved=6, killed=9)
    before = [entry[1:] for entry in first if entry[0] <= 6]
    assert len(before) == 6 * 24 and len(first) > len(before)
    rest = [entry[1:] for entry in trained(made, tmp_path / "killed", 3)]
    assert before + rest == whole


def test_a_cluster_delivers_a_sampling_and_commands_show_and_prove_it(skewed: pathlib.Path, cluster: Cluster, job_file: JobFile) -> None:
    made = job(skewed, samples=50, repeat=False, weights={"bee": 0.4}) | {"name": "capped"}
    path = job_file(made)
    plan = ctl("plan", path).stdout
    assert "the view keeps 180 of 180 samples" in plan
    assert "4 classes by `cls`, of 12 to 50 samples each in an epoch of 130\n" in plan
    assert "class ant: 12 in an epoch, 1.00 times through its 12 samples\nclass bee: 20 in an epoch, 0.83 times" in plan
    assert "class dog: 50 in an epoch, 0.52 times through its 96 samples\n" in plan
    [classes] = ctl_json("plan", path)["classes"]
    assert [(one["name"], one["samples"], one["in_epoch"]) for one in classes["classes"]] == [("ant", 12, 12), ("bee", 24, 20), ("cat", 48, 48), ("dog", 96, 50)]

    name = cluster.submit(made)
    found: list[tuple[int, int, int]] = []

    def pull(rank: int) -> None:
        with cluster.connect(rank, 2, job=name, tensors="numpy") as loader:
            # A pass over a loader is an epoch.
            for batch in (batch for _ in range(EPOCHS) for batch in loader):
                found.extend(zip(batch.epochs.tolist(), batch.ids.tolist(), batch["label"].tolist()))

    at_once(2, pull)
    assert len(found) == EPOCHS * 130 // 24 * 24
    assert Counter(label for epoch, _, label in found if epoch == 1) == {0: 12, 1: 20, 2: 48, 3: 50}
    dogs = [{sample for epoch, sample, label in found if (epoch, label) == (number, 3)} for number in range(2)]
    assert len(dogs[0] | dogs[1]) == 96, "the second epoch has those that the first has not"
    assert ctl_json("audit", "--run", f"{name}/{name}", *cluster.admin)["equal"]


def test_what_makes_no_sampling_is_refused_with_what_to_do(skewed: pathlib.Path) -> None:
    def refused(**sampling: Any) -> str:
        with pytest.raises(spdl_cluster.SpdlError) as raised, spdl_cluster.local(job(skewed, **sampling), own_classes=True) as loader:
            loader.next()
        return str(raised.value)

    assert "`view.sampling.by` is `kind`: no record has the field `kind`; there are " in refused(by="kind")
    assert "`view.sampling.weights` has `bes`, and no sample has it in `cls`; did you mean `bee`?: there are ant, bee, cat, dog" in refused(weights={"bes": 2})
    assert "`view.sampling.weights` has -1 for `bee`; it must be a number from 0 on" in refused(weights={"bee": -1})
    assert "`view.sampling.samples` must be at least 1" in refused(samples=0)


def test_the_commands_of_the_guide_make_a_sampling(tmp_path: pathlib.Path) -> None:
    run, heading = runner(tmp_path), "## The classes of one dataset, equally often"
    [making] = blocks("sh", GUIDE / "sources.md", heading)
    [written], [planned] = (blocks(language, GUIDE / "sources.md", heading) for language in ("toml", "text"))
    (tmp_path / "balanced.toml").write_text(written)
    for line in making.splitlines():
        run(*shlex.split(line))
    lines = run("spdl-ctl", "plan", "balanced.toml").splitlines()
    assert [line for line in planned.splitlines() if line not in lines] == []
    with spdl_cluster.local(str(tmp_path / "balanced.toml"), epochs=1, tensors="numpy", own_classes=True) as loader:
        assert Counter(int(label) for batch in loader for label in batch["label"]) == dict.fromkeys(range(9), 60)
