"""NVIDIA DALI on the CPU alone: its own threads decode only the crop's region, and the resize antialiases."""

from data import Data, Settings

TITLE = "DALI on the CPU"
LAYER = None
REQUIREMENTS = ("nvidia-dali-cuda130==2.4.0",)
PACKAGES = ["nvidia-dali-cuda130"]
FORMAT = "pictures"
SLOW = ""


def prepare(data: Data) -> None:
    """Does nothing: the peer reads the picture files directly."""


def batches(data: Data, settings: Settings):
    from nvidia.dali import fn, pipeline_def, types

    @pipeline_def(batch_size=settings.batch, num_threads=settings.cores, device_id=None, prefetch_queue_depth=2)
    def pictures():
        encoded, labels = fn.readers.file(
            file_root=str(data.pictures), random_shuffle=True, initial_fill=1000, name="files"
        )
        if settings.whole:
            images = fn.decoders.image(encoded, device="cpu", output_type=types.RGB, use_fast_idct=True)
            return fn.resize(images, size=[settings.size] * 2, interp_type=types.INTERP_LINEAR, antialias=True), labels
        images = fn.decoders.image_random_crop(
            encoded,
            device="cpu",
            output_type=types.RGB,
            use_fast_idct=True,
            random_area=[0.08, 1.0],
            random_aspect_ratio=[3 / 4, 4 / 3],
            num_attempts=10,
        )
        images = fn.resize(images, size=[settings.size] * 2, interp_type=types.INTERP_LINEAR, antialias=True)
        return fn.flip(images, horizontal=fn.random.coin_flip()), labels

    pipeline = pictures()
    pipeline.build()
    while True:
        images, labels = pipeline.run()
        yield images.as_array(), labels.as_array()
