"""Grain's threads over torchvision's decoder, which takes less CPU than PIL's, at the price of PyTorch's memory."""

from data import Data, Settings, read
from peer import grain
from peer.pictures_torch import decoder

TITLE = "Grain (threads), torchvision's decoder"
LAYER = "torch"
REQUIREMENTS = ("grain==0.2.18",)
PACKAGES = ["grain", "torch", "torchvision"]
FORMAT = grain.FORMAT
SLOW = grain.SLOW
prepare = grain.prepare


def batches(data: Data, settings: Settings):
    import torch

    # Grain provides the threads, so PyTorch must not start its own.
    torch.set_num_threads(1)
    decode_bytes = decoder("torchvision", settings)

    def decode(sample, rng):
        index, (path, label) = sample
        return decode_bytes(read(index, path, settings)).numpy(), label

    return grain.run(data, settings, decode, 2 * settings.cores)
