"""torchcodec in PyTorch's DataLoader, opened for each clip: it passes over the packets of a file to know its frames."""

import functools

from peer.videos import FORMAT, loaded, prepare  # noqa: F401

TITLE, SLOW, LAYER = "torchcodec, exact", "", "torch"
REQUIREMENTS = ("torchcodec==0.17.0",)
ENVIRONMENT = "torchcodec"
PACKAGES = ["torchcodec", "torch", "torchvision"]


def clip(path: str, first: int, frames: int, seek_mode: str = "exact"):
    from torchcodec.decoders import VideoDecoder

    decoder = VideoDecoder(path, seek_mode=seek_mode, num_ffmpeg_threads=1)
    return decoder.get_frames_in_range(first, first + frames).data


def batches(data, settings, seek_mode: str = "exact"):
    return loaded(data, settings, functools.partial(clip, seek_mode=seek_mode))
