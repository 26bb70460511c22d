"""Pictures, masks and boxes move as torchvision moves them, with what our operations drew."""

from __future__ import annotations

import json
import math
import os
import pathlib
from collections.abc import Callable
from typing import Any

import pytest
import spdl_cluster
from conftest import FRAMEWORKS_HERE, LazyModule, ctl

numpy = pytest.importorskip("numpy")
torch = pytest.importorskip("torch", reason=os.environ.get("SPDL_TEST_NO_TORCH", "torch is not installed"))
functional: Any = LazyModule("torchvision.transforms.v2.functional")
tv_tensors: Any = LazyModule("torchvision.tv_tensors")
pytestmark = FRAMEWORKS_HERE

from scenes import CATEGORIES, write_scenes  # noqa: E402

SCENES = 24
IGNORED = 255
#: Farthest that an edge of a box may be from torchvision's, in pixels.
NEAR = 2e-3
START = {"resize": [150, 200]}

#: Operations after the resize of all pictures to 200x150.
CHAINS: list[list[Any]] = [
    [{"random_crop": {"size": [120, 140]}}],
    [{"random_crop": {"size": [150, 200], "padding": [30, 20]}}, {"random_flip": 0.5}],
    [{"random_resized_crop": {"size": [96, 128]}}, {"random_flip": 0.5}, {"random_vertical_flip": 0.5}],
    [{"letterbox": [128, 128]}, {"random_flip": 0.5}],
    [{"pad": [3, 5, 7, 9]}, {"random_vertical_flip": 0.5}],
    [{"random_rotation": 30}],
    [{"random_affine": {"degrees": 25, "translate": [0.2, 0.1], "scale": [0.7, 1.4], "shear": 15}}],
    [{"random_perspective": {"p": 1.0, "distortion_scale": 0.4, "interpolation": "nearest"}}],
    [{"random_flip": 0.5}, {"random_rotation": 20}, {"random_crop": [100, 160]}, {"random_vertical_flip": 0.5}],
    [{"random_affine": {"degrees": 10, "scale": [0.8, 1.2]}}, {"color_jitter": {"brightness": 0.0}}, {"random_resized_crop": [90, 110]}],
]


class Scene:
    """A picture, its classes and its boxes, as torchvision changes them."""

    def __init__(self, image: Any, mask: Any, boxes: Any, size: tuple[int, int]) -> None:
        self.image = image
        self.mask = mask
        self.boxes = tv_tensors.BoundingBoxes(boxes, format="XYXY", canvas_size=size)

    def change(self, function: Callable[..., Any], *arguments: Any, **keys: Any) -> None:
        """Applies a function of torchvision's to all; what lies beyond a mask is ignored."""
        fill = {"fill": IGNORED} if keys.pop("fills", False) else {}
        self.image = function(self.image, *arguments, **keys)
        self.boxes = function(self.boxes, *arguments, **keys)
        self.mask = function(self.mask, *arguments, **keys, **fill)

    def resize(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Applies a function that resizes. Classes are those at the middle of each pixel."""
        self.image = function(self.image, *arguments, antialias=True)
        self.boxes = function(self.boxes, *arguments)
        exact = functional.InterpolationMode.NEAREST_EXACT
        self.mask = function(self.mask, *arguments, interpolation=exact)

    def apply(self, step: Any, matrix: Any) -> None:
        """Applies an operation with what it drew: `matrix` leads from places in its result to places before it."""
        (name, keys), (height, width) = next(iter(step.items())), self.image.shape[-2:]
        across, down, left, top = matrix[0, 0], matrix[1, 1], matrix[0, 2], matrix[1, 2]
        if name == "resize":
            self.resize(functional.resize, keys)
        elif name in ("random_flip", "random_vertical_flip"):
            if matrix[0, 0] < 0:
                self.change(functional.horizontal_flip)
            if matrix[1, 1] < 0:
                self.change(functional.vertical_flip)
        elif name == "random_crop":
            size = keys["size"] if isinstance(keys, dict) else keys
            x, y = keys.get("padding", [0, 0]) if isinstance(keys, dict) else (0, 0)
            if x or y:
                self.change(functional.pad, [x, y], fills=True)
            self.change(functional.crop, round(top) + y, round(left) + x, *size)
        elif name == "random_resized_crop":
            size = keys["size"] if isinstance(keys, dict) else keys
            self.resize(functional.resized_crop, round(top), round(left), round(down * size[0]), round(across * size[1]), size)
        elif name == "letterbox":
            inner = [round(height / down), round(width / across)]
            self.resize(functional.resize, inner)
            x, y = round(-left / across), round(-top / down)
            self.change(functional.pad, [x, y, keys[1] - inner[1] - x, keys[0] - inner[0] - y], fills=True)
        elif name == "pad":
            self.change(functional.pad, keys, fills=True)
        elif name == "random_rotation":
            self.change(functional.rotate, math.degrees(math.atan2(matrix[1, 0], matrix[0, 0])), fills=True)
        elif name == "random_affine":
            forth = numpy.linalg.inv(matrix)
            angle, scale = math.atan2(forth[1, 0], forth[0, 0]), math.hypot(forth[0, 0], forth[1, 0])
            sheared = -(forth[0, 1] * math.cos(angle) + forth[1, 1] * math.sin(angle)) / scale
            middle = numpy.array([width / 2, height / 2, 1.0])
            translate = [float(by) for by in (forth @ middle - middle)[:2]]
            shear = [math.degrees(math.atan(sheared)), 0.0]
            self.change(functional.affine, math.degrees(angle), translate, scale, shear, fills=True)
        elif name == "random_perspective":
            coefficients = [float(factor) for factor in (matrix / matrix[2, 2]).flatten()[:8]]
            keys = {"interpolation": functional.InterpolationMode.NEAREST, "coefficients": coefficients}
            self.change(functional.perspective, None, None, fills=True, **keys)
        else:
            assert name == "color_jitter", name


@pytest.fixture(scope="module")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("scenes")
    instances = write_scenes(folder / "pictures", SCENES)
    ctl("index", folder / "pictures", "--table", instances, "--out", folder / "dataset")
    return folder / "dataset"


def columns(number: int, ops: list[Any]) -> list[dict[str, Any]]:
    """Returns a picture after these operations, and the matrix of all of them."""
    name = f"image{number}"
    image = {"name": name, "from": "png", "decode": "image", "ops": ops}
    matrix = {"name": f"matrix{number}", "from": "png", "decode": "geometry", "follows": name, "dtype": "f64"}
    return [image, matrix]


def job(dataset: pathlib.Path, chain: list[Any], **boxes: Any) -> dict[str, Any]:
    """Returns a job with the picture after each of the operations: columns with the same operations draw the same."""
    steps = [START, *chain]
    images = [column for number in range(len(steps)) for column in columns(number, steps[: number + 1])]
    last = f"image{len(chain)}"
    keys = {"stored_as": "coco", "follows": last, "max_rows": 20, "min_visible": 0, "min_size": 0, **boxes}
    more = [
        {"name": "size", "from": "png", "decode": "image_size", "follows": last},
        {"name": "mask", "from": "seg.png", "decode": "mask", "follows": last},
        {"name": "boxes", "from": "objects", "decode": "boxes", **keys},
        {"name": "numbers", "from": "objects", "decode": "box_labels", "follows": "boxes", "key": "id"},
        {"name": "picture", "from": "image_id", "decode": "int"},
    ]
    plain = {"name": "scenes", "dataset": dataset, "seed": 11, "global_batch": 8, "epochs": 2, "bad_samples": "fail"}
    return {**plain, "column": images + more}


def original(dataset: pathlib.Path, picture: int) -> tuple[Any, Any, dict[int, list[float]]]:
    """Returns a picture, its classes and its boxes by their numbers, as they were written."""
    from PIL import Image

    folder = dataset.parent / "pictures"
    document = json.loads((folder / "instances.json").read_text())
    stem = folder / f"{picture - 1000:04}"
    image = numpy.asarray(Image.open(stem.with_suffix(".png")))
    classes = numpy.asarray(Image.open(stem.with_suffix(".seg.png")))
    annotations = [one for one in document["annotations"] if one["image_id"] == picture]
    return image, classes, {one["id"]: one["bbox"] for one in annotations}


def at_border(ours: Any, theirs: Any) -> Any:
    """Returns where classes differ, and whether each such class is one of torchvision's at a pixel beside it."""
    different = ours != theirs
    padded = numpy.pad(theirs, 1, mode="edge")
    height, width = theirs.shape
    around = [padded[y : y + height, x : x + width] == ours for y in range(3) for x in range(3)]
    return different, numpy.any(around, axis=0)


@pytest.mark.parametrize("chain", CHAINS, ids=[str([next(iter(step)) for step in chain]) for chain in CHAINS])
def test_pictures_masks_and_boxes_move_as_torchvision_moves_them(scenes: pathlib.Path, chain: list[Any]) -> None:
    boxes_seen = samples = 0
    is_dark = any("color_jitter" in step for step in chain)
    with spdl_cluster.local(job(scenes, chain), tensors="torch") as loader:
        for batch in (batch for _ in range(2) for batch in loader):
            matrices = [batch[f"matrix{number}"].numpy() for number in range(len(chain) + 1)]
            for entry, picture in enumerate(batch["picture"].tolist()):
                image, classes, annotations = original(scenes, picture)
                assert batch["size"][entry].tolist() == list(image.shape[:2])
                edges = torch.tensor([[x, y, x + w, y + h] for x, y, w, h in annotations.values()])
                tensor = torch.from_numpy(image.copy()).permute(2, 0, 1).contiguous()
                scene = Scene(tensor, torch.from_numpy(classes.copy())[None], edges, image.shape[:2])
                before = numpy.eye(3)
                for step, all_steps in zip([START, *chain], matrices, strict=True):
                    scene.apply(step, numpy.linalg.inv(before) @ all_steps[entry])
                    before = all_steps[entry]

                theirs = dict(zip(annotations, scene.boxes.tolist(), strict=True))
                ours = dict(zip(batch["numbers"][entry].tolist(), batch["boxes"][entry].tolist(), strict=True))
                for number, box in theirs.items():
                    if number in ours:
                        farthest = max(abs(a - b) for a, b in zip(ours[number], box, strict=True))
                        assert farthest < NEAR, f"{chain}, {picture}: {ours[number]}, not {box}"
                        boxes_seen += 1
                    else:
                        assert min(box[2] - box[0], box[3] - box[1]) < NEAR, f"{chain}, {picture}: {box} is missing"

                different, beside = at_border(batch["mask"][entry].numpy(), scene.mask[0].numpy())
                assert different.mean() < 0.02, f"{chain}, {picture}: {different.mean()}"
                # Each of torchvision's steps takes the nearest pixel, ours all at once: what is thinner than a pixel can differ.
                lost = (different & ~beside).mean()
                assert lost < 1e-3, f"{chain}, {picture}: {lost}"
                if not is_dark:
                    made = batch[f"image{len(chain)}"][entry].numpy().astype(int)
                    off = numpy.abs(made - scene.image.permute(1, 2, 0).numpy())
                    # A pixel's place is the same; torchvision has resized twice, and each time it blurs.
                    assert off.mean() < 4, f"{chain}, {picture}: {off.mean()} levels"
                samples += 1
    assert samples == 2 * SCENES and boxes_seen > samples


def test_boxes_come_back_to_the_picture(scenes: pathlib.Path) -> None:
    letterbox = job(scenes, [{"letterbox": {"size": [192, 192], "fill": 114}}])
    with spdl_cluster.local(letterbox, tensors="torch") as loader:
        for batch in loader:
            for entry, picture in enumerate(batch["picture"].tolist()):
                matrix = batch["matrix1"][entry]
                scale, offset = torch.diagonal(matrix)[:2], matrix[:2, 2]
                back = (batch["boxes"][entry].view(-1, 2, 2) * scale + offset).view(-1, 4)
                *_, annotations = original(scenes, picture)
                for number, edges in zip(batch["numbers"][entry].tolist(), back.tolist(), strict=True):
                    x, y, width, height = annotations[number]
                    expected = [x, y, x + width, y + height]
                    assert max(abs(a - b) for a, b in zip(edges, expected, strict=True)) < NEAR


def test_labels_are_the_categories(scenes: pathlib.Path) -> None:
    categories = {"name": "labels", "from": "objects", "decode": "box_labels", "follows": "boxes"}
    plain = job(scenes, [])
    with spdl_cluster.local({**plain, "column": [*plain["column"], categories]}, tensors="torch") as loader:
        for batch in loader:
            targets = [{"boxes": boxes, "labels": labels} for boxes, labels in zip(batch["boxes"], batch["labels"], strict=True)]
            assert len(targets) == 8 and all(len(target["boxes"]) == len(target["labels"]) for target in targets)
            assert {label for target in targets for label in target["labels"].tolist()} <= set(CATEGORIES)
