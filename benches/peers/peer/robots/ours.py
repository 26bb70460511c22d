"""This project's loader in the trainer's process; the pictures of its batches are floats in the slots, channels first."""

import os

from peer import endless
from peer.robots import ACTIONS, BUCKET, CAMERAS, FORMAT, HEIGHT, OURS as REQUIREMENTS, SEED, STATE, WIDTH, prepare, serve  # noqa: F401

TITLE, SLOW, LAYER = "spdl-cluster", "", None
ENVIRONMENT = "robots"
PACKAGES = ["spdl-cluster"]
#: Memory for slots, files and frames.
MEMORY_BYTES = 1 << 30


def batches(data, settings):
    import spdl_cluster

    dataset = data.format(FORMAT)
    if settings.robot == "s3":
        dataset = f"s3://{BUCKET}"
        os.environ |= {"AWS_ENDPOINT": settings.address, "AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1", "AWS_SKIP_SIGNATURE": "true"}
    columns = [{"name": name, "from": name, "decode": "tensor", "shape": [STATE]} for name in ("observation.state", "action")]
    columns[1]["deltas"] = {"from": 0, "to": ACTIONS}
    columns.append({"name": "action_is_pad", "from": "action", "decode": "is_pad", "follows": "action"})
    pictures = {"decode": "video", "ops": [{"resize": [HEIGHT, WIDTH]}], "dtype": "f32", "layout": "nchw"}
    columns += [{"name": camera, "from": camera, **pictures} for camera in CAMERAS]
    columns.append({"name": "task", "from": "task", "decode": "text"})
    job = endless.job("robots", dataset, settings, columns, seed=SEED)
    loader = spdl_cluster.local(job, cores=settings.cores, memory_bytes=MEMORY_BYTES, tensors="numpy")
    while (batch := loader.next()) is not None:
        yield {**batch, "task": batch["task"].text()}
