"""FFCV: one file for random access, mapped from the page cache, decoded by libjpeg-turbo and compiled code on threads.
It resizes by areas, which antialiases."""

import pathlib
import subprocess

from data import Data, Settings

TITLE = "FFCV, JPEG"
LAYER = "torch"
REQUIREMENTS = ("ffcv==1.0.2",)
PACKAGES = ["ffcv", "torch", "numba", "numpy"]
FORMAT = "ffcv"
SLOW = ""
MODE = "jpg"
DEBIAN = "libopencv-imgproc-dev, libturbojpeg0-dev and pkg-config"


def prepare_environment(venv: pathlib.Path) -> dict[str, str]:
    """Returns the variables for compiling FFCV, which uses two modules of OpenCV; writes a description for pkg-config
    of these two if the whole of OpenCV is not installed."""
    if subprocess.run(["pkg-config", "--exists", "opencv4"]).returncode == 0:
        return {}
    headers = pathlib.Path("/usr/include/opencv4")
    if (
        not (headers / "opencv2/imgproc.hpp").exists()
        or subprocess.run(["pkg-config", "--exists", "libturbojpeg"]).returncode
    ):
        raise FileNotFoundError(f"does not install: it needs {DEBIAN} (names of Debian)")
    shim = venv / "opencv"
    (shim / "opencv2").mkdir(parents=True)
    (shim / "opencv2/opencv.hpp").write_text("#include <opencv2/core.hpp>\n#include <opencv2/imgproc.hpp>\n")
    (shim / "opencv4.pc").write_text(
        f"Name: opencv4\nDescription: two modules of OpenCV\nVersion: 4\nCflags: -I{shim} -I{headers}\n"
        "Libs: -lopencv_core -lopencv_imgproc\n"
    )
    return {"PKG_CONFIG_PATH": str(shim)}


def prepare(data: Data, mode: str = MODE, name: str = FORMAT) -> None:
    import numpy
    from ffcv.fields import IntField, RGBImageField, rgb_image
    from ffcv.writer import DatasetWriter
    from PIL import Image

    class Pictures:
        encoded = b""

        def __len__(self):
            return len(data.samples)

        def __getitem__(self, index):
            path, label = data.samples[index]
            with open(path, "rb") as file:
                Pictures.encoded = file.read()
            return Image.open(path).convert("RGB"), label

    # FFCV would encode every picture again; store the same bytes that all other peers read.
    rgb_image.encode_jpeg = lambda image, quality: numpy.frombuffer(Pictures.encoded, dtype=numpy.uint8)
    fields = {"image": RGBImageField(write_mode=mode), "label": IntField()}
    DatasetWriter(str(data.format(name) / "pictures.beton"), fields, num_workers=1).from_indexed_dataset(Pictures())


def batches(data: Data, settings: Settings, name: str = FORMAT):
    import numpy
    from ffcv.fields.decoders import IntDecoder, RandomResizedCropRGBImageDecoder
    from ffcv.loader import Loader, OrderOption
    from ffcv.transforms import RandomHorizontalFlip, ToTensor

    size = (settings.size, settings.size)
    loader = Loader(
        str(data.format(name) / "pictures.beton"),
        batch_size=settings.batch,
        num_workers=settings.cores,
        order=OrderOption.RANDOM,
        os_cache=True,
        drop_last=True,
        # Make an epoch long, so that its end is not measured.
        indices=numpy.tile(numpy.arange(len(data.samples)), 100),
        pipelines={
            "image": [RandomResizedCropRGBImageDecoder(size), RandomHorizontalFlip(), ToTensor()],
            "label": [IntDecoder(), ToTensor()],
        },
    )
    return iter(loader)
