"""Hugging Face `datasets`, streaming from Parquet: files in random order and a buffer of rows, decoded by torchvision in
PyTorch's DataLoader."""

from data import Data, Settings
from peer.parquet import ENVIRONMENT, FORMAT, LAYER, REQUIREMENTS, files, prepare  # noqa: F401
from peer.pictures_torch import decoder, for_ever, loader

TITLE = "`datasets`, streaming, torchvision's decoder"
PACKAGES = ["datasets", "pyarrow", "torch", "torchvision"]
SLOW = ""
BUFFER = 200


def batches(data: Data, settings: Settings):
    import datasets

    decode = decoder("torchvision", settings)
    rows = datasets.load_dataset("parquet", data_files=files(data), split="train", streaming=True)
    rows = rows.cast_column("image", datasets.Image(decode=False)).shuffle(seed=17, buffer_size=BUFFER)
    rows = rows.map(lambda row: {"image": decode(row["image"]["bytes"]), "label": row["label"]})
    return map(lambda batch: (batch["image"], batch["label"]), for_ever(loader(rows, settings)))
