"""soundfile, so libsndfile, in PyTorch's DataLoader: seeks to the first sample of a segment."""

from peer.sounds import FORMAT, loaded, prepare  # noqa: F401

TITLE, SLOW, LAYER = "soundfile", "", "torch"
REQUIREMENTS = ("soundfile==0.14.0", "numpy==2.4.6")
ENVIRONMENT = "soundfile"
PACKAGES = ["soundfile", "torch"]


def read(path: str, first: int, count: int):
    import soundfile
    import torch

    return torch.from_numpy(soundfile.read(path, count or -1, first, dtype="float32")[0])


def batches(data, settings):
    return loaded(data, settings, read)
