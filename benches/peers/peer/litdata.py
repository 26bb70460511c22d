"""LitData: its chunks, decoded by torchvision in its StreamingDataLoader, which is PyTorch's."""

from data import Data, Settings
from peer.pictures_torch import decoder, for_ever

TITLE = "LitData, torchvision's decoder"
LAYER = "torch"
REQUIREMENTS = ("litdata==0.2.76",)
PACKAGES = ["litdata", "torch", "torchvision"]
FORMAT = "litdata"
SLOW = ""
#: How often an epoch has each picture: its loader pauses between epochs, and a real one of millions of pictures is long.
COPIES = 8


def record(sample):
    path, label = sample
    with open(path, "rb") as file:
        return {"image": file.read(), "label": label}


def prepare(data: Data) -> None:
    import litdata

    folder, samples = str(data.format(FORMAT)), list(data.samples) * COPIES
    litdata.optimize(fn=record, inputs=samples, output_dir=folder, chunk_bytes="64MB", num_workers=1)


def batches(data: Data, settings: Settings):
    import litdata

    decode = decoder("torchvision", settings)

    class Pictures(litdata.StreamingDataset):
        def __getitem__(self, index):
            sample = super().__getitem__(index)
            return decode(sample["image"]), sample["label"]

    dataset = Pictures(str(data.format(FORMAT)), shuffle=True, drop_last=True)
    options = {"num_workers": settings.cores, "persistent_workers": True, "prefetch_factor": 4}
    return for_ever(litdata.StreamingDataLoader(dataset, batch_size=settings.batch, drop_last=True, **options))
