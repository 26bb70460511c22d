"""SPDL's threads over torchvision's decoder, which releases Python's lock and takes less CPU than FFmpeg."""

from data import Data, Settings, read
from peer import spdl
from peer.pictures_torch import decoder

TITLE = "SPDL, torchvision's decoder"
LAYER = "torch"
REQUIREMENTS = ("spdl==0.8.0",)
PACKAGES = ["spdl", "torch", "torchvision"]
FORMAT = spdl.FORMAT
SLOW = spdl.SLOW
prepare = spdl.prepare


def batches(data: Data, settings: Settings):
    import torch

    # The pipeline provides the threads, so PyTorch must not start its own.
    torch.set_num_threads(1)
    decode_bytes = decoder("torchvision", settings)

    def decode(sample):
        index, (path, label) = sample
        return decode_bytes(read(index, path, settings)), label

    def collate(batch):
        images, labels = zip(*batch)
        return torch.stack(images), torch.tensor(labels)

    return spdl.run(data, settings, decode, collate)
