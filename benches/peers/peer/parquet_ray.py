"""Ray Data: Parquet files in random order, decoded by torchvision in Ray's tasks, shuffled within a buffer."""

from data import Data, Settings
from peer.parquet import ENVIRONMENT, FORMAT, LAYER, REQUIREMENTS, files, prepare  # noqa: F401
from peer.pictures_torch import decoder

TITLE = "Ray Data, torchvision's decoder"
PACKAGES = ["ray", "torch", "torchvision"]
SLOW = ""


def batches(data: Data, settings: Settings):
    import ray
    from ray.data import DataContext

    ray.init(num_cpus=settings.cores, log_to_driver=False, logging_level="ERROR")
    DataContext.get_current().enable_progress_bars = False
    def decoded(rows: dict) -> dict:
        import numpy

        decode = decoder("torchvision", settings)
        return {"image": numpy.stack([decode(row["bytes"]).numpy() for row in rows["image"]]), "label": rows["label"]}

    while True:
        rows = ray.data.read_parquet(files(data), shuffle="files")
        rows = rows.map_batches(decoded, batch_size=settings.batch)
        for batch in rows.iter_batches(
            batch_size=settings.batch, local_shuffle_buffer_size=4 * settings.batch, drop_last=True
        ):
            yield batch["image"], batch["label"]
