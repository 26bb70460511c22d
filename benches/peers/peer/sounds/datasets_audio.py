"""Hugging Face `datasets` with its feature `Audio` in PyTorch's DataLoader: a row has a decoder of torchcodec, which gives the segment."""

from peer.sounds import FORMAT, RATE, loaded, paths, prepare  # noqa: F401
from peer.sounds.torchcodec import segment

TITLE, SLOW, LAYER = "`datasets`, feature `Audio`", "", "torch"
REQUIREMENTS = ("datasets==5.2.0", "torchcodec==0.17.0", "numpy==2.4.6")
ENVIRONMENT = "datasets-audio"
PACKAGES = ["datasets", "torchcodec", "torch"]


def batches(data, settings):
    import datasets

    files = paths(data)
    rows = datasets.Dataset.from_dict({"audio": files}).cast_column("audio", datasets.Audio(sampling_rate=RATE))
    numbers = {path: number for number, path in enumerate(files)}

    def read(path: str, first: int, count: int):
        return segment(rows[numbers[path]]["audio"], first, count)

    return loaded(data, settings, read)
