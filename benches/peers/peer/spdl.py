"""SPDL with its defaults: threads in one process, decoding with FFmpeg. Crop, resize and flip are one FFmpeg filter
graph before the conversion to RGB, which is the least work that SPDL can do for this. Bilinear scaling in FFmpeg
antialiases."""

import random

from data import Data, Settings, read

TITLE = "SPDL, its own decoding (FFmpeg)"
LAYER = None
REQUIREMENTS = ("spdl==0.8.0", "numpy")
PACKAGES = ["spdl", "spdl-io"]
FORMAT = "pictures"
SLOW = "a picture's file"


def prepare(data: Data) -> None:
    """Does nothing: the peer reads the picture files directly."""


def samples_for_ever(data: Data):
    samples = list(enumerate(data.samples))
    while True:
        random.shuffle(samples)
        yield from samples


def random_resized_crop(width: int, height: int) -> tuple[int, int, int, int]:
    """Returns width, height, x and y, chosen as torchvision does."""
    for _ in range(10):
        area = width * height * random.uniform(0.08, 1)
        ratio = random.uniform(0.75**0.5, (4 / 3) ** 0.5) ** 2
        w, h = round((area * ratio) ** 0.5), round((area / ratio) ** 0.5)
        if 0 < w <= width and 0 < h <= height:
            return w, h, random.randint(0, width - w), random.randint(0, height - h)
    side = min(width, height)
    return side, side, (width - side) // 2, (height - side) // 2


def run(data: Data, settings: Settings, decode, collate):
    """Returns a pipeline with a decoding thread for each core, and one that collates, which is a short copy."""
    from spdl.pipeline import PipelineBuilder

    builder = PipelineBuilder().add_source(samples_for_ever(data)).pipe(decode, concurrency=settings.cores)
    builder = builder.aggregate(settings.batch).pipe(collate).add_sink(3)
    pipeline = builder.build(num_threads=settings.cores + 1)
    with pipeline.auto_stop():
        yield from pipeline


def batches(data: Data, settings: Settings):
    import numpy
    import spdl.io

    def decode(sample):
        index, (path, label) = sample
        packets = spdl.io.demux_image(read(index, path, settings))
        w, h, x, y = random_resized_crop(packets.width, packets.height)
        flip = "hflip," if random.random() < 0.5 else ""
        filters = f"crop={w}:{h}:{x}:{y},scale={settings.size}:{settings.size}:flags=bilinear,{flip}format=rgb24"
        return spdl.io.decode_packets(packets, filter_desc=filters), label

    def collate(batch):
        frames, labels = zip(*batch)
        return spdl.io.to_numpy(spdl.io.convert_frames(list(frames))), numpy.array(labels)

    return run(data, settings, decode, collate)
