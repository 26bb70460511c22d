"""Trains a ResNet on a GPU, fed by the loader, by PyTorch's DataLoader, and by one batch that stays on the device.

usage: python benches/gpu_training.py [--models resnet18,resnet50] [--batch 256] [--seconds 8] [--pictures 2048 | --files DIR]

Prints pictures per second, their share of what the device does with one batch that stays there, and the cores in use on
the whole machine, which should do nothing else. All feeds give random crops of 224 pixels, flipped at random, normalised
on the device. DataLoader has a worker for each core, and reads JPEGs from memory, so that it has no files to read. Needs
torch, torchvision, Pillow and the package (`pip install --config-settings profile=release ./python`).
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import pathlib
import tarfile
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import spdl_cluster
import torch
import torchvision
from PIL import Image
from spdl_cluster import program
from torchvision.transforms import v2

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
#: The share of the seconds that passes before anything is measured.
WARM_UP = 0.5


def read(dataset: pathlib.Path) -> list[tuple[str, bytes, int]]:
    """Returns key, JPEG and label of all pictures of a packed dataset."""
    files: dict[str, dict[str, bytes]] = {}
    for shard in sorted(dataset.glob("*.tar")):
        with tarfile.open(shard) as tar:
            for member in tar:
                content = tar.extractfile(member)
                assert content is not None
                key, _, kind = member.name.partition(".")
                files.setdefault(key, {})[kind] = content.read()
    return [(key, file["jpg"], int(file["cls"])) for key, file in files.items()]


class Pictures(torch.utils.data.Dataset[Any]):
    """The pictures of a packed dataset as DataLoader's users have them: decoded by Pillow, cropped by torchvision."""

    def __init__(self, dataset: pathlib.Path) -> None:
        """Reads the files of all pictures into memory."""
        self.pictures = read(dataset)
        crop = v2.RandomResizedCrop(224, antialias=True)
        self.transform = v2.Compose([crop, v2.RandomHorizontalFlip(), v2.PILToTensor()])

    def __len__(self) -> int:
        """Returns the number of pictures."""
        return len(self.pictures)

    def __getitem__(self, at: int) -> tuple[torch.Tensor, int]:
        """Returns a crop and its label."""
        _, jpeg, label = self.pictures[at]
        with Image.open(io.BytesIO(jpeg)) as picture:
            return self.transform(picture.convert("RGB")), label


Batches = Iterator[tuple[torch.Tensor, torch.Tensor]]


@contextlib.contextmanager
def from_loader(dataset: pathlib.Path, batch: int, device: torch.device) -> Iterator[Batches]:
    """Yields batches of this project's loader, in the training's process."""
    crop = [{"random_resized_crop": 224}, "random_flip"]
    columns: list[Any] = [
        {"name": "image", "from": "jpg", "decode": "image", "ops": crop},
        {"name": "label", "from": "cls", "decode": "int"},
    ]
    job: Any = {"name": "gpu", "dataset": dataset, "global_batch": batch, "epochs": 100_000, "column": columns}
    by = spdl_cluster.Normalise(MEAN, STD, dtype="bf16", layout="channels_last")
    options = spdl_cluster.DeviceOptions(normalise={"image": by})
    with spdl_cluster.local(job, tensors="torch", device=device, device_options=options, cores=os.cpu_count()) as loader:

        def batches() -> Batches:
            while True:
                for found in loader:
                    yield found["image"], found["label"]

        yield batches()


@contextlib.contextmanager
def from_dataloader(dataset: pathlib.Path, batch: int, device: torch.device) -> Iterator[Batches]:
    """Yields batches of DataLoader, copied and normalised as its users do."""
    pictures, workers = Pictures(dataset), os.cpu_count() or 1
    # One epoch that does not end: between epochs DataLoader has nothing ahead.
    endless = torch.utils.data.RandomSampler(pictures, replacement=True, num_samples=1 << 40)
    feed = torch.utils.data.DataLoader(
        pictures, batch, sampler=endless, num_workers=workers, pin_memory=device.type == "cuda", prefetch_factor=4
    )
    mean, std = (torch.tensor(value, device=device).mul(255).view(1, 3, 1, 1) for value in (MEAN, STD))

    def batches() -> Batches:
        for image, label in feed:
            bytes_there = image.to(device, non_blocking=True)
            scaled = ((bytes_there - mean) / std).to(torch.bfloat16, memory_format=torch.channels_last)
            yield scaled, label.to(device, non_blocking=True)

    yield batches()


@contextlib.contextmanager
def from_device(dataset: pathlib.Path, batch: int, device: torch.device) -> Iterator[Batches]:
    """Yields one batch again and again."""
    image = torch.randn(batch, 3, 224, 224, device=device, dtype=torch.bfloat16)
    still = image.to(memory_format=torch.channels_last), torch.randint(0, 10, (batch,), device=device)

    def batches() -> Batches:
        while True:
            yield still

    yield batches()


#: What each feed is called, what it is, and the dataset that it reads, of those that `write_datasets` writes.
FEEDS = [
    ("one batch on the device", from_device, "plain"),
    ("spdl_cluster", from_loader, "plain"),
    ("spdl_cluster, crop-ready", from_loader, "crop-ready"),
    ("spdl_cluster, scalable", from_loader, "scalable"),
    ("DataLoader", from_dataloader, "plain"),
]


def write_datasets(files: pathlib.Path, folder: pathlib.Path) -> None:
    """Packs these pictures as they are, and for crops in either way."""
    spdl_cluster.pack(files, folder / "plain", progress=False)
    spdl_cluster.pack(files, folder / "crop-ready", crop_ready=True, progress=False)
    spdl_cluster.pack(files, folder / "scalable", scalable=True, progress=False)


def busy_seconds() -> float:
    """Returns the CPU seconds of this machine since its start."""
    user, nice, system, *_ = pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    return (int(user) + int(nice) + int(system)) / os.sysconf("SC_CLK_TCK")


def synchronize(device: torch.device) -> None:
    """Waits until the device has nothing to do."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def train(model_name: str, batches: Batches, batch: int, seconds: float, device: torch.device) -> tuple[float, float]:
    """Trains, and returns pictures per second and busy cores."""
    torch.manual_seed(1)
    model = torchvision.models.get_model(model_name, num_classes=1000).to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    steps, begun, cpu = 0, 0.0, 0.0
    start = time.perf_counter()
    while True:
        now = time.perf_counter()
        if not begun and now - start > seconds * WARM_UP:
            synchronize(device)
            begun, cpu, steps = time.perf_counter(), busy_seconds(), 0
            now = begun
        if begun and now - begun > seconds and steps:
            synchronize(device)
            passed = time.perf_counter() - begun
            return steps * batch / passed, (busy_seconds() - cpu) / passed
        image, label = next(batches)
        with torch.autocast(device.type, torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(model(image), label)
        del image, label
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        steps += 1


def main() -> None:
    """Prints a row for each model and feed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", default="resnet18,resnet50", help="models of torchvision")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--pictures", type=int, default=2048, help="how many pictures of the demo")
    parser.add_argument("--files", type=pathlib.Path, help="class folders with JPEGs to use in their place")
    parser.add_argument("--device", default="cuda:0")
    args = parser.parse_args()
    device = torch.device(args.device)
    torch.backends.cudnn.benchmark = True
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    print(f"{name}, {os.cpu_count()} cores, torch {torch.__version__}, batches of {args.batch}")
    print(f"{'model':<16}{'fed by':<26}{'pictures/s':>10}{'of the most':>12}{'cores':>7}")
    with tempfile.TemporaryDirectory() as folder:
        datasets = pathlib.Path(folder)
        files = args.files
        if files is None:
            files = datasets / "files"
            program.run("pictures", files, "--count", args.pictures, "--quiet").checked()
        write_datasets(files, datasets)
        for model in args.models.split(","):
            most = 0.0
            for label, feed, dataset in FEEDS:
                with feed(datasets / dataset, args.batch, device) as batches:
                    rate, cores = train(model, batches, args.batch, args.seconds, device)
                most = most or rate
                print(f"{model:<16}{label:<26}{rate:>10.{0 if rate >= 100 else 2}f}{rate / most:>12.3f}{cores:>7.1f}", flush=True)


if __name__ == "__main__":
    main()
