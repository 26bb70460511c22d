"""This project's loader in the trainer's process; its batches are arrays of numpy that are views of the slots."""

from peer import endless
from peer.videos import FORMAT, OURS as REQUIREMENTS, SEED, WINDOW, prepare  # noqa: F401

TITLE, SLOW, LAYER = "spdl-cluster", "", None
ENVIRONMENT = "videos"
PACKAGES = ["spdl-cluster"]
#: Memory for slots, files and frames.
MEMORY_BYTES = 512 << 20


def batches(data, settings):
    import spdl_cluster

    clip = {"frames": settings.frames}
    folder, keys = FORMAT, {}
    if settings.clips == "window":
        folder, keys = "windows", {"order": {"lanes": 1, "window": WINDOW}}
    elif settings.clips == "first":
        clip["pick"] = "start"
        folder, keys = "long", {"shuffle": False}
    column = {"name": "video", "from": "mp4", "decode": "video", "clip": clip, "ops": [{"random_resized_crop": settings.size}]}
    job = endless.job("videos", data.format(folder), settings, [column], seed=SEED, **keys)
    loader = spdl_cluster.local(job, cores=settings.cores, memory_bytes=MEMORY_BYTES)
    while (batch := loader.next()) is not None:
        yield batch["video"]
