"""Grain: threads in one process, decoding with PIL, which releases Python's lock while it decodes and resizes."""

from data import Data, Settings, read
from peer.spdl import random_resized_crop

TITLE = "Grain (threads), PIL"
LAYER = None
REQUIREMENTS = ("grain==0.2.18", "pillow==13.0.0", "numpy")
PACKAGES = ["grain", "pillow"]
FORMAT = "pictures"
SLOW = "a picture's file"


def prepare(data: Data) -> None:
    """Does nothing: the peer reads the picture files directly."""


def run(data: Data, settings: Settings, decode, threads: int):
    """Yields shuffled epochs, decoded by threads. `decode(sample, rng)` returns a picture and its label."""
    import grain

    dataset = grain.MapDataset.source(list(enumerate(data.samples))).seed(1).shuffle().repeat().random_map(decode)
    options = grain.ReadOptions(num_threads=threads, prefetch_buffer_size=2 * settings.batch)
    return iter(dataset.to_iter_dataset(options).batch(settings.batch, drop_remainder=True))


def batches(data: Data, settings: Settings):
    import io

    import numpy
    from PIL import Image

    size = (settings.size, settings.size)

    def decode(sample, rng: numpy.random.Generator):
        index, (path, label) = sample
        image = Image.open(io.BytesIO(read(index, path, settings)))
        if settings.whole:
            return numpy.asarray(image.convert("RGB").resize(size, Image.Resampling.BILINEAR)), label
        w, h, x, y = random_resized_crop(*image.size)
        image = image.convert("RGB").resize(size, Image.Resampling.BILINEAR, box=(x, y, x + w, y + h))
        if rng.random() < 0.5:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        return numpy.asarray(image), label

    # Twice as many threads as cores, because each thread waits for Python's lock part of the time.
    return run(data, settings, decode, 2 * settings.cores)
