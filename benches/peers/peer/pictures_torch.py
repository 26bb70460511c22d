"""No peer: the transform that the peers on PyTorch share, with either decoder."""

import io


def decoder(which: str, size: int):
    """A function from a JPEG's bytes to a tensor: a random resized crop, antialiased, and a random flip. The order
    of its dimensions is the one that costs no further copy."""
    import torch
    from torchvision.transforms import InterpolationMode, v2

    crop = v2.RandomResizedCrop(size, interpolation=InterpolationMode.BILINEAR, antialias=True)
    transform = v2.Compose([crop, v2.RandomHorizontalFlip()])
    if which == "pil":
        import numpy
        from PIL import Image

        # As torchvision's own reference training does it.
        return lambda data: torch.from_numpy(numpy.array(transform(Image.open(io.BytesIO(data)).convert("RGB"))))
    if which == "torchvision":
        from torchvision.io import ImageReadMode, decode_jpeg

        # Bytes as `decode_jpeg` lays them out in memory take torchvision's AVX2 path.
        return lambda data: transform(
            decode_jpeg(torch.frombuffer(bytearray(data), dtype=torch.uint8), ImageReadMode.RGB)
        )
    raise ValueError(which)


def loader(dataset, settings, **options):
    """PyTorch's DataLoader as its users tune it: a process for each core, kept between epochs, and room for bursts."""
    from torch.utils.data import DataLoader

    options = {"batch_size": settings.batch, "drop_last": True} | options
    return DataLoader(dataset, num_workers=settings.cores, persistent_workers=True, prefetch_factor=4, **options)


def for_ever(loader):
    """Epoch after epoch."""
    while True:
        yield from loader
