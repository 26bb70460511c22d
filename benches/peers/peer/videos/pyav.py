"""PyAV in PyTorch's DataLoader: seeks to the key frame before a clip and decodes from there."""

from peer.videos import FORMAT, RATE, loaded, prepare  # noqa: F401

TITLE, SLOW, LAYER = "PyAV", "", "torch"
REQUIREMENTS = ("av==18.1.0",)
ENVIRONMENT = "pyav"
PACKAGES = ["av", "torch", "torchvision"]


def clip(path: str, first: int, frames: int):
    import av
    import numpy
    import torch

    with av.open(path) as container:
        stream = container.streams.video[0]
        stream.codec_context.thread_count = 1
        begin = (stream.start_time or 0) + round(first / RATE / stream.time_base)
        container.seek(begin, stream=stream, backward=True)
        found = []
        for frame in container.decode(stream):
            if frame.pts >= begin:
                found.append(frame.to_ndarray(format="rgb24"))
            if len(found) == frames:
                break
    return torch.from_numpy(numpy.stack(found)).permute(0, 3, 1, 2)


def batches(data, settings):
    return loaded(data, settings, clip)
