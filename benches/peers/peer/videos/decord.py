"""decord2 in PyTorch's DataLoader: it indexes the packets of a file when it opens it."""

from peer.videos import FORMAT, loaded, prepare  # noqa: F401

TITLE, SLOW, LAYER = "decord2", "", "torch"
REQUIREMENTS = ("decord2==3.4.0",)
ENVIRONMENT = "decord"
PACKAGES = ["decord2", "torch", "torchvision"]


def clip(path: str, first: int, frames: int):
    import decord
    import torch

    reader = decord.VideoReader(path, num_threads=1)
    return torch.from_numpy(reader.get_batch(range(first, first + frames)).asnumpy()).permute(0, 3, 1, 2)


def batches(data, settings):
    return loaded(data, settings, clip)
