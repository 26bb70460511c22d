"""Hugging Face `datasets`: Parquet converted to Arrow files that are mapped, decoded by torchvision in PyTorch's
DataLoader."""

from data import Data, Settings
from peer.parquet import ENVIRONMENT, FORMAT, LAYER, REQUIREMENTS, files, prepare  # noqa: F401
from peer.pictures_torch import decoder, for_ever, loader

TITLE = "`datasets`, mapped Arrow, torchvision's decoder"
PACKAGES = ["datasets", "pyarrow", "torch", "torchvision"]
SLOW = ""


def batches(data: Data, settings: Settings):
    import datasets

    decode = decoder("torchvision", settings)
    cache = str(data.format("arrow"))
    rows = datasets.load_dataset("parquet", data_files=files(data), split="train", cache_dir=cache)
    rows = rows.cast_column("image", datasets.Image(decode=False))

    def transform(rows: dict) -> dict:
        return {"image": [decode(image["bytes"]) for image in rows["image"]], "label": rows["label"]}

    rows = rows.with_transform(transform)
    return map(lambda batch: (batch["image"], batch["label"]), for_ever(loader(rows, settings, shuffle=True)))
