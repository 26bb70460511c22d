"""`torchaudio.load` in PyTorch's DataLoader, which decodes with torchcodec."""

from peer.sounds import FORMAT, RATE, loaded, prepare  # noqa: F401

TITLE, SLOW, LAYER = "torchaudio", "", "torch"
REQUIREMENTS = ("torchcodec==0.17.0", "numpy==2.4.6")
BARE = ("torchaudio==2.11.1",)
ENVIRONMENT = "torchaudio"
PACKAGES = ["torchaudio", "torchcodec", "torch"]


def read(path: str, first: int, count: int):
    import torchaudio

    # FFmpeg decodes Opus at 48 kHz whatever was coded.
    times = 3 if path.endswith(".opus") else 1
    samples, rate = torchaudio.load(path, frame_offset=first * times, num_frames=count * times or -1)
    return torchaudio.functional.resample(samples[0], rate, RATE)


def batches(data, settings):
    return loaded(data, settings, read)
