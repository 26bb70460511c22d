"""The examples of detection and segmentation under torchrun, stopped in the middle of an epoch and continued."""

from __future__ import annotations

import collections
import json
import os
import pathlib
import tomllib
from typing import Any

import numpy
import pytest
import spdl_cluster
from conftest import Cluster, ctl
from torchrun import finish, torchrun

torch = pytest.importorskip("torch", reason=os.environ.get("SPDL_TEST_NO_TORCH", "torch is not installed"))

from scenes import CATEGORIES, write_scenes  # noqa: E402

ROOT = pathlib.Path(__file__).parents[2]
SCENES = 48
EPOCHS = 14


@pytest.fixture(scope="module")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("scenes")
    instances = write_scenes(folder / "pictures", SCENES)
    ctl("index", folder / "pictures", "--table", instances, "--out", folder / "dataset")
    return folder


def submit(cluster: Cluster, name: str, dataset: pathlib.Path, side: int) -> str:
    """Submits a job of the examples on this dataset, with smaller pictures."""
    job = tomllib.loads((ROOT / "examples" / f"{name}.toml").read_text())
    for operation in job["column"][0]["ops"]:
        for keys in operation.values() if isinstance(operation, dict) else []:
            keys["size"] = side
    epochs = {"epochs": EPOCHS} if "epochs" in job else {}
    return cluster.submit({**job, **epochs, "dataset": dataset, "global_batch": 8, "bad_samples": "fail"})


def train(cluster: Cluster, program: str, jobs: list[str], classes: int, folder: pathlib.Path, results: str) -> list[str]:
    """Trains on two ranks, some steps and then the rest; returns the lines of the second start."""
    variables = {"SPDL_COORD": cluster.coordinators, "SPDL_CERTS": str(cluster.folder / "certs/client")}
    arguments = ["--job", jobs[0], "--validate", jobs[1], "--classes", classes]
    arguments += ["--checkpoint", folder / "checkpoint.pt", "--results", folder / results]
    path = ROOT / "python/examples" / program
    # In the middle of the second epoch, which has 6 steps.
    lines = [finish(torchrun(path, 2, *arguments, *more, **variables)).splitlines() for more in (["--steps", 9], [])]
    reports: list[dict[str, Any]] = [json.loads(of_start[-1]) for of_start in lines]
    assert len(reports[0]["losses"]) == 9 and len(reports[1]["losses"]) == 6 * EPOCHS - 9
    seen = collections.Counter(tuple(sample) for report in reports for sample in report["seen"])
    assert seen == {(epoch, sample): 1 for epoch in range(EPOCHS) for sample in range(SCENES)}
    first, last = reports[0]["losses"][0], sum(reports[1]["losses"][-6:]) / 6
    assert last < 0.6 * first, f"it does not learn: {first}, then {last}"
    return lines[1]


@pytest.mark.drawn(1, group="trainings on pictures")
def test_a_detector_trains_and_finds_objects_in_pixels_of_the_stored_pictures(
    cluster: Cluster, scenes: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    jobs = [submit(cluster, name, scenes / "dataset", 128) for name in ("coco-train", "coco-val")]
    lines = train(cluster, "train_detection.py", jobs, max(CATEGORIES) + 1, tmp_path, "results.json")
    assert lines[-2].endswith(f"{20 * SCENES} objects in {SCENES} pictures"), lines
    document = json.loads((scenes / "pictures/instances.json").read_text())
    sizes = {image["id"]: (image["width"], image["height"]) for image in document["images"]}
    results = json.loads((tmp_path / "results.json").read_text())
    assert {result["image_id"] for result in results} == set(sizes)
    for result in results:
        (x, y, width, height), (across, down) = result["bbox"], sizes[result["image_id"]]
        assert 0 <= x <= across and 0 <= y <= down and x + width <= across + 1e-3 and y + height <= down + 1e-3
    # The best guesses are near the middle of an object: in pixels of the letterbox they would not be.
    best = {image: max((r for r in results if r["image_id"] == image), key=lambda r: r["score"]) for image in sizes}
    near = 0
    for image, result in best.items():
        x, y, width, height = result["bbox"]
        boxes = [one["bbox"] for one in document["annotations"] if one["image_id"] == image]
        near += any(a <= x + width / 2 <= a + c and b <= y + height / 2 <= b + d for a, b, c, d in boxes)
    assert near > SCENES * 0.6, f"{near} of {SCENES}"


@pytest.mark.drawn(1, group="trainings on pictures")
def test_a_network_learns_the_classes_of_pixels_and_gives_them_in_the_size_of_the_stored_pictures(
    cluster: Cluster, scenes: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    from PIL import Image

    jobs = [submit(cluster, name, scenes / "dataset", 96) for name in ("masks-train", "masks-val")]
    lines = train(cluster, "train_segmentation.py", jobs, 4, tmp_path, "classes")
    assert " mean intersection over union 0." in lines[-2], lines
    right = pixels = 0
    for number in range(SCENES):
        theirs = torch.tensor(list(Image.open(scenes / "pictures" / f"{number:04}.seg.png").getdata()))
        ours = torch.load(tmp_path / "classes" / f"{number}.pt").flatten()
        assert ours.shape == theirs.shape
        right, pixels = right + int((ours == theirs).sum()), pixels + len(theirs)
    assert right > 0.7 * pixels, f"{right} of {pixels}"


def test_boxes_and_masks_are_the_same_where_functions_take_or_change_the_picture(scenes: pathlib.Path) -> None:
    job = tomllib.loads((ROOT / "examples/coco-train.toml").read_text())
    image, boxes, labels = (next(c for c in job["column"] if c["decode"] == kind) for kind in ("image", "boxes", "box_labels"))
    mask = {"name": "mask", "from": "seg.png", "decode": "mask", "follows": image["name"]}
    base = {**job, "epochs": 2, "dataset": scenes / "dataset", "global_batch": 8}
    # Each column comes before the other that it follows.
    plain = {**base, "column": [labels, mask, boxes, image]}
    changed = {**base, "column": [labels, mask, boxes, {**image, "transform": "user_functions:jitter"}]}
    names = [labels["name"], boxes["name"], image["name"]]
    function = {"call": "user_functions:same", "columns": names, "returns": [{"name": name} for name in names[:2]]}
    taken = {**base, "column": [labels, mask, boxes, image], "function": [function]}
    seen: list[list[bytes]] = []
    for given in (plain, changed, taken):
        with spdl_cluster.local(given, tensors="numpy") as loader:
            seen.append([])
            for batch in loader:
                for name in (labels["name"], boxes["name"], "mask"):
                    rows = batch[name]
                    seen[-1] += [numpy.asarray(row).tobytes() for row in rows]
    assert len(seen[0]) == 3 * SCENES and seen[0] == seen[1] == seen[2]
