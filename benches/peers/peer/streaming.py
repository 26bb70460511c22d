"""MosaicML Streaming: MDS shards, decoded by torchvision in PyTorch's DataLoader. An epoch is long, so that no process
waits for another at its end."""

from data import Data, Settings
from peer.pictures_torch import decoder, loader

TITLE = "MosaicML Streaming, torchvision's decoder"
LAYER = "torch"
REQUIREMENTS = ("mosaicml-streaming==0.13.0",)
PACKAGES = ["mosaicml-streaming", "torch", "torchvision"]
FORMAT = "mds"
SLOW = ""
EPOCHS = 100


def prepare(data: Data) -> None:
    from streaming import MDSWriter

    with MDSWriter(
        out=str(data.format(FORMAT)), columns={"image": "bytes", "label": "int"}, size_limit=1 << 26
    ) as writer:
        for path, label in data.samples:
            with open(path, "rb") as file:
                writer.write({"image": file.read(), "label": label})


def batches(data: Data, settings: Settings):
    from streaming import StreamingDataset
    from streaming.base.util import clean_stale_shared_memory

    decode = decoder("torchvision", settings)

    class Pictures(StreamingDataset):
        def __getitem__(self, index):
            sample = super().__getitem__(index)
            return decode(sample["image"]), sample["label"]

    # Remove what a killed process left in /dev/shm, because it would block this one.
    clean_stale_shared_memory()
    dataset = Pictures(
        local=str(data.format(FORMAT)),
        shuffle=True,
        batch_size=settings.batch,
        epoch_size=len(data.samples) * EPOCHS,
        num_canonical_nodes=1,
    )
    return iter(loader(dataset, settings))
