"""This project's loader in the trainer's process, shuffled; its batches as arrays of numpy that are views of the slots."""

from peer.rows import BUFFER, ENVIRONMENT, FORMAT, REQUIREMENTS, names  # noqa: F401
from peer.rows import prepare as write_rows

TITLE, SLOW, LAYER = "spdl-cluster", "", None
PACKAGES = ["spdl-cluster"]
#: Memory for slots and blocks: half of what the rows take once they are decoded, so that each epoch decodes them again.
MEMORY_BYTES = 128 << 20


def prepare(data) -> None:
    write_rows(data)


def batches(data, settings):
    import spdl_cluster

    of_kind = {"i": {"decode": "int"}, "f": {"decode": "tensor", "shape": []}}
    job = {
        "name": "rows",
        "dataset": str(data.format(FORMAT)),
        "seed": 17,
        "global_batch": settings.batch,
        "epochs": 100000,
        "epoch_end": "continuous",
        "order": {"window": BUFFER},
        "column": [{"name": name, "from": name, **of_kind[name[0]]} for name in names(settings)],
    }
    loader = spdl_cluster.local(job, cores=settings.cores, memory_bytes=MEMORY_BYTES)
    while (batch := loader.next()) is not None:
        yield batch
