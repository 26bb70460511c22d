"""torchcodec in PyTorch's DataLoader, opened for each segment, which decodes with FFmpeg's libraries."""

from peer.sounds import FORMAT, RATE, loaded, prepare  # noqa: F401

TITLE, SLOW, LAYER = "torchcodec", "", "torch"
REQUIREMENTS = ("torchcodec==0.17.0", "numpy==2.4.6")
ENVIRONMENT = "torchcodec-sounds"
PACKAGES = ["torchcodec", "torch"]


def read(path: str, first: int, count: int):
    from torchcodec.decoders import AudioDecoder

    return segment(AudioDecoder(path, sample_rate=RATE), first, count)


def segment(decoder, first: int, count: int):
    """Returns a tensor of some samples of a decoder, or of all."""
    if not count:
        return decoder.get_all_samples().data[0]
    return decoder.get_samples_played_in_range(first / RATE, (first + count) / RATE).data[0]


def batches(data, settings):
    return loaded(data, settings, read)
