"""Not a peer: the transform that the peers on PyTorch share, with either decoder."""

import io


def decoder(which: str, settings):
    """Returns a function from a JPEG's bytes to a tensor: a random resized crop, antialiased, and a random flip, or the
    whole picture resized. Its dimensions have an order that needs no further copy."""
    import torch
    from torchvision.transforms import InterpolationMode, v2

    how = {"interpolation": InterpolationMode.BILINEAR, "antialias": True}
    if settings.whole:
        transform = v2.Resize((settings.size, settings.size), **how)
    else:
        transform = v2.Compose([v2.RandomResizedCrop(settings.size, **how), v2.RandomHorizontalFlip()])
    if which == "pil":
        import numpy
        from PIL import Image

        # The same as in torchvision's reference training script.
        return lambda data: torch.from_numpy(numpy.array(transform(Image.open(io.BytesIO(data)).convert("RGB"))))
    if which == "torchvision":
        from torchvision.io import ImageReadMode, decode_jpeg

        # Bytes in the memory layout of `decode_jpeg` take torchvision's AVX2 path.
        return lambda data: transform(
            decode_jpeg(torch.frombuffer(bytearray(data), dtype=torch.uint8), ImageReadMode.RGB)
        )
    raise ValueError(which)


def loader(dataset, settings, **options):
    """Returns PyTorch's DataLoader as its users tune it: a process for each core, kept between epochs, and prefetching
    for bursts."""
    from torch.utils.data import DataLoader

    options = {"batch_size": settings.batch, "drop_last": True} | options
    return DataLoader(dataset, num_workers=settings.cores, persistent_workers=True, prefetch_factor=4, **options)


def for_ever(loader):
    """Yields one epoch after another."""
    while True:
        yield from loader
