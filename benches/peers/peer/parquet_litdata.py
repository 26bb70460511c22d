"""LitData, streaming from Parquet files, decoded by torchvision in its StreamingDataLoader, which is PyTorch's."""

import pathlib

from data import Data, Settings
from peer.parquet import ENVIRONMENT, FORMAT, LAYER, REQUIREMENTS
from peer.parquet import prepare as write_parquet
from peer.pictures_torch import decoder, for_ever

TITLE = "LitData, Parquet, torchvision's decoder"
PACKAGES = ["litdata", "torch", "torchvision"]
SLOW = ""


def prepare(data: Data) -> None:
    write_parquet(data)


class Decoded:
    """Decodes rows. Its reader of Parquet does not survive a fork, so this is sent to the processes that decode."""

    def __init__(self, settings: Settings) -> None:
        self.settings, self.decode = settings, None

    def __call__(self, row: dict) -> tuple:
        self.decode = self.decode or decoder("torchvision", self.settings)
        return self.decode(row["image"]["bytes"]), row["label"]


def batches(data: Data, settings: Settings):
    import litdata
    from litdata.streaming.item_loader import ParquetLoader

    folder = str(data.format(FORMAT))
    index = str(data.format("litdata-index"))
    pathlib.Path(index).mkdir(exist_ok=True)
    litdata.index_parquet_dataset(folder, cache_dir=index)

    dataset = litdata.StreamingDataset(
        folder, item_loader=ParquetLoader(), index_path=index, shuffle=True, drop_last=True, transform=Decoded(settings)
    )
    options = {"num_workers": settings.cores, "persistent_workers": True, "prefetch_factor": 4}
    options |= {"multiprocessing_context": "spawn"}
    return for_ever(litdata.StreamingDataLoader(dataset, batch_size=settings.batch, drop_last=True, **options))
