"""PyTorch's DataLoader over picture files, decoded by PIL: the most common setup."""

from data import Data, Settings, read
from peer.pictures_torch import decoder, loader

TITLE = "PyTorch DataLoader, PIL"
LAYER = "torch"
REQUIREMENTS: tuple[str, ...] = ()
PACKAGES = ["torch", "torchvision", "pillow"]
FORMAT = "pictures"
SLOW = "a picture's file"
DECODER = "pil"


def prepare(data: Data) -> None:
    """Does nothing: the peer reads the picture files directly."""


class Pictures:
    def __init__(self, data: Data, settings: Settings, which: str) -> None:
        self.samples, self.settings = data.samples, settings
        self.decode = decoder(which, settings)

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int):
        path, label = self.samples[index]
        return self.decode(read(index, path, self.settings)), label


class Endless:
    """Samples shuffled epochs without a pause between them, because a real epoch of millions of pictures has none
    either."""

    def __init__(self, samples: int) -> None:
        self.samples = samples

    def __iter__(self):
        import torch

        while True:
            yield from torch.randperm(self.samples).tolist()


def batches(data: Data, settings: Settings, which: str = DECODER):
    dataset = Pictures(data, settings, which)
    return iter(loader(dataset, settings, sampler=Endless(len(dataset))))
