"""Mixed samples: what torchvision's MixUp and CutMix make of the same pairs with the same weights."""

from __future__ import annotations

import os
from typing import Any

import pytest
import spdl_cluster
from conftest import FRAMEWORKS_HERE, LazyModule

torch = pytest.importorskip("torch", reason=os.environ.get("SPDL_TEST_NO_TORCH", "torch is not installed"))
transforms: Any = LazyModule("torchvision.transforms.v2")
pytestmark = FRAMEWORKS_HERE

CLASSES = 12
TARGET = {"name": "target", "from": "cls", "decode": "one_hot", "classes": CLASSES}


def samples(job: dict[str, Any]) -> dict[int, tuple[Any, Any, int]]:
    """Returns picture, target and label of each sample by its offset, which is its id where nothing is shuffled."""
    found = {}
    for batch in spdl_cluster.local(job, tensors="torch"):
        for entry, offset in enumerate(batch.ids.tolist()):
            found[offset] = (batch["image"][entry].clone(), batch["target"][entry].clone(), int(batch["label"][entry]))
    return found


def of_job(job: dict[str, Any], layout: str) -> dict[str, Any]:
    """Returns the job with pictures of floats."""
    job["column"][0] |= {"dtype": "f32", "layout": layout, "ops": [{"resize": [24, 32]}]}
    return job


@pytest.mark.parametrize("layout", ["nhwc", "nchw"])
@pytest.mark.parametrize("method", ["mixup", "cutmix"])
def test_pairs_are_what_torchvision_makes_of_them(job: Any, layout: str, method: str) -> None:
    plain = samples(of_job(job(TARGET, shuffle=False), layout))
    mixed = samples(of_job(job(TARGET, shuffle=False, mix={method: 1.0}), layout))
    assert plain.keys() == mixed.keys()
    weights = []
    for offset, (picture, target, label) in mixed.items():
        own, own_target, own_label = plain[offset]
        assert label == own_label
        # One lane: neighbours are pairs.
        partner, partner_target, partner_label = plain[offset ^ 1]
        if label == partner_label:
            assert torch.equal(target, own_target)
            continue
        weight = float(target[label])
        weights.append(weight)
        pair, labels = torch.stack([own, partner]), torch.tensor([label, partner_label])
        if layout == "nhwc":
            pair, picture = pair.permute(0, 3, 1, 2), picture.permute(2, 0, 1)
        parameters: dict[str, Any] = {"labels": labels, "batch_size": 2}
        if method == "mixup":
            transform, parameters["lam"] = transforms.MixUp(num_classes=CLASSES), weight
        else:
            transform, parameters["lam_adjusted"] = transforms.CutMix(num_classes=CLASSES), weight
            rows, columns = torch.nonzero((picture != pair[0]).any(0), as_tuple=True)
            empty = (0, 0, 0, 0)
            parameters["box"] = (
                (int(columns.min()), int(rows.min()), int(columns.max()) + 1, int(rows.max()) + 1) if len(rows) else empty
            )
            left, top, right, bottom = parameters["box"]
            assert weight == pytest.approx(1 - (right - left) * (bottom - top) / (24 * 32), abs=1e-6)
        theirs, their_target = (transform.transform(value, parameters)[0] for value in (pair, labels))
        assert torch.allclose(picture, theirs, atol=1e-6, rtol=0)
        assert torch.allclose(target, their_target, atol=1e-6, rtol=0)
    assert len(weights) > 100 and 0.4 < sum(weights) / len(weights) < 0.75 and len(set(weights)) > 50
