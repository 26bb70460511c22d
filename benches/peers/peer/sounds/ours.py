"""This project's loader in the trainer's process; its batches are arrays of numpy that are views of the slots."""

from peer import endless
from peer.sounds import FORMAT, OURS as REQUIREMENTS, RATE, SEED, ending, prepare  # noqa: F401

TITLE, SLOW, LAYER = "spdl-cluster", "", None
ENVIRONMENT = "sounds"
PACKAGES = ["spdl-cluster"]
#: Memory for slots and files.
MEMORY_BYTES = 256 << 20


def batches(data, settings):
    import spdl_cluster

    column = {"name": "wave", "from": ending(data), "decode": "audio", "rate": RATE}
    if settings.sound != "whole":
        column["segment"] = {"seconds": float(settings.sound), "pick": "random"}
    job = endless.job("sounds", data.format(FORMAT), settings, [column], seed=SEED)
    loader = spdl_cluster.local(job, cores=settings.cores, memory_bytes=MEMORY_BYTES, tensors="numpy")
    while (batch := loader.next()) is not None:
        wave = batch["wave"]
        yield (wave.values, wave.offsets[1:] - wave.offsets[:-1]) if settings.sound == "whole" else wave
