"""The example of imitation under torchrun: a policy of frames of videos, killed in the middle and resumed with one receipt."""

from __future__ import annotations

import pathlib
from typing import Any

import pytest
from conftest import Cluster, ctl, ctl_json, write_job
from lerobot_files import ACTION, STATE, add_video, write, write_video
from test_lerobot import job
from test_train_speech import killed_after, losses, receipt
from torchrun import finish, torchrun

torch = pytest.importorskip("torch", reason="torch is not installed")

EXAMPLE = pathlib.Path(__file__).parents[2] / "python/examples/train_policy.py"
CAMERA = "observation.images.top"
CHUNK, FRAMES = 4, [-1, 0]
COLUMNS: list[dict[str, Any]] = [
    {"name": "observation.state", "from": "observation.state", "decode": "tensor", "shape": [STATE], "deltas": FRAMES},
    {"name": "action", "from": "action", "decode": "tensor", "shape": [ACTION], "deltas": {"from": 0, "to": CHUNK}},
    {"name": "action_is_pad", "from": "action", "decode": "is_pad", "follows": "action"},
    {"name": CAMERA, "from": CAMERA, "decode": "video", "ops": [{"resize": [48, 64]}], "deltas": FRAMES},
]
BATCH, EPOCHS = 8, 20
#: Losses are printed with three digits.
CLOSE = 0.002


@pytest.mark.drawn(1, group="trainings of examples that are killed")
def test_a_policy_is_killed_and_resumed_with_one_receipt(cluster: Cluster, tmp_path: pathlib.Path) -> None:
    folder, video = tmp_path / "robot", tmp_path / "video.mp4"
    episodes = write(folder, [[7, 12], [21]])
    write_video(video, "N*100")
    add_video(folder, episodes, video, [0, 7, 19], 10)
    ctl("index", folder)
    made = {**job(folder, *COLUMNS), "name": "policy", "global_batch": BATCH, "epochs": EPOCHS, "epoch_end": "exact", "bad_samples": "fail"}
    path = write_job(made, tmp_path / "job.toml")
    cluster.submit(made)
    variables = {"SPDL_COORD": cluster.coordinators, "SPDL_JOB": "policy", "SPDL_CERTS": str(cluster.folder / "certs/client"), "SPDL_RUN": "policy"}
    sizes = ["--frames", len(FRAMES), "--state", STATE, "--action", ACTION, "--chunk", CHUNK]
    whole = finish(torchrun(EXAMPLE, 2, "--job", path, *sizes))
    expected = losses(whole)
    steps = 40 // BATCH
    positions = [(step // steps, step % steps * BATCH) for step in range(steps * EPOCHS)]
    assert [at for at, _ in expected] == positions, whole
    first, last = (sum(loss for _, loss in some) / steps for some in (expected[:steps], expected[-steps:]))
    assert last < first / 2, (first, last)
    checkpoint = tmp_path / "checkpoint.pt"
    begun = losses(killed_after(torchrun(EXAMPLE, 2, "--checkpoint", checkpoint, "--every", 7, *sizes, **variables), 18))
    resumed = finish(torchrun(EXAMPLE, 2, "--checkpoint", checkpoint, *sizes, **variables))
    resumed_at = positions.index(losses(resumed)[0][0])
    assert 14 <= resumed_at <= len(begun) < len(positions) and resumed_at % 7 == 0
    trained = begun[:resumed_at] + losses(resumed)
    assert [at for at, _ in trained] == positions
    assert [loss for _, loss in trained] == pytest.approx([loss for _, loss in expected], abs=CLOSE)
    assert receipt(resumed) == receipt(whole)
    assert ctl_json("audit", path, "--receipt", receipt(whole))["equal"]
