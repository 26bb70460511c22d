"""`torchaudio.load` in PyTorch's DataLoader, which decodes with torchcodec."""

from peer.sounds import FORMAT, loaded, prepare  # noqa: F401

TITLE, SLOW, LAYER = "torchaudio", "", "torch"
REQUIREMENTS = ("torchcodec==0.17.0", "numpy==2.4.6")
BARE = ("torchaudio==2.11.1",)
ENVIRONMENT = "torchaudio"
PACKAGES = ["torchaudio", "torchcodec", "torch"]


def read(path: str, first: int, count: int):
    import torchaudio

    return torchaudio.load(path, frame_offset=first, num_frames=count or -1)[0][0]


def batches(data, settings):
    return loaded(data, settings, read)
