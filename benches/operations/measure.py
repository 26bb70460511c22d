"""Measures operations on pictures: see `run`."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

sys.path += os.environ.get("SPDL_BENCH_PEERS", "").split(os.pathsep)

import numpy
import torch
from PIL import Image
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional

import albumentations as albu
import cv2
from spdl_cluster import ops

torch.set_num_threads(1)
cv2.setNumThreads(1)

#: Heights and widths of the pictures: as photographs are stored, and as models take them.
SIZES = [(375, 500), (224, 224)]
#: The order of the columns.
PEERS = ["torchvision", "torchvision on PIL", "Albumentations"]
Call = Callable[[Any], Any]


def jitter(**factors: float) -> tuple[list[Any], Call]:
    """Returns `color_jitter` with fixed factors, here and in Albumentations."""
    neutral = {"brightness": 1.0, "contrast": 1.0, "saturation": 1.0, "hue": 0.0}
    ranges = {name: (factors.get(name, value),) * 2 for name, value in neutral.items()}
    return [{"color_jitter": {name: [value, value] for name, value in factors.items()}}], albu.ColorJitter(**ranges, p=1)


def stacked(crops: Any) -> Any:
    """Returns the pictures of a list in one array, if they are tensors."""
    return torch.stack(crops) if isinstance(crops[0], torch.Tensor) else crops


def cases() -> dict[str, tuple[list[Any], Call, Call | None]]:
    """Returns for each operation ours, torchvision's and Albumentations'."""
    three = {"brightness": 0.4, "contrast": 0.4, "saturation": 0.4}
    drawn = {**three, "hue": 0.1}
    brightness, contrast, saturation, hue = jitter(brightness=1.3), jitter(contrast=1.3), jitter(saturation=1.3), jitter(hue=0.1)
    nearest, linear = cv2.INTER_NEAREST, cv2.INTER_LINEAR
    augment = ["random_flip", {"color_jitter": drawn}, {"random_grayscale": 0.2}, {"random_solarize": {"threshold": 128, "p": 0.2}}]
    theirs = v2.Compose([v2.RandomHorizontalFlip(), v2.ColorJitter(**drawn), v2.RandomGrayscale(0.2), v2.RandomSolarize(128, 0.2)])
    others = albu.Compose(
        [albu.HorizontalFlip(p=0.5), albu.ColorJitter(**ranges(drawn), p=1), albu.ToGray(p=0.2), albu.Solarize((0.5, 0.5), p=0.2)]
    )
    return {
        "brightness": (brightness[0], lambda x: functional.adjust_brightness(x, 1.3), brightness[1]),
        "contrast": (contrast[0], lambda x: functional.adjust_contrast(x, 1.3), contrast[1]),
        "saturation": (saturation[0], lambda x: functional.adjust_saturation(x, 1.3), saturation[1]),
        "hue": (hue[0], lambda x: functional.adjust_hue(x, 0.1), hue[1]),
        "color_jitter": ([{"color_jitter": drawn}], v2.ColorJitter(**drawn), albu.ColorJitter(**ranges(drawn), p=1)),
        "grayscale": (["grayscale"], lambda x: functional.rgb_to_grayscale(x, 3), albu.ToGray(p=1)),
        "random_invert": ([{"random_invert": 1}], functional.invert, albu.InvertImg(p=1)),
        "random_posterize": ([{"random_posterize": {"bits": 4, "p": 1}}], lambda x: functional.posterize(x, 4), albu.Posterize(4, p=1)),
        "random_solarize": (
            [{"random_solarize": {"threshold": 128, "p": 1}}],
            lambda x: functional.solarize(x, 128),
            albu.Solarize((0.5, 0.5), p=1),
        ),
        "random_autocontrast": ([{"random_autocontrast": 1}], functional.autocontrast, albu.AutoContrast(p=1)),
        "random_equalize": ([{"random_equalize": 1}], functional.equalize, albu.Equalize(p=1)),
        "random_adjust_sharpness": (
            [{"random_adjust_sharpness": {"sharpness_factor": 2, "p": 1}}],
            lambda x: functional.adjust_sharpness(x, 2),
            albu.Sharpen(p=1),
        ),
        "gaussian_blur, 5": (
            [{"gaussian_blur": {"kernel_size": 5, "sigma": 1.5}}],
            lambda x: functional.gaussian_blur(x, [5, 5], [1.5, 1.5]),
            albu.GaussianBlur((5, 5), (1.5, 1.5), p=1),
        ),
        "gaussian_blur, 23": (
            [{"gaussian_blur": {"kernel_size": 23, "sigma": 2.0}}],
            lambda x: functional.gaussian_blur(x, [23, 23], [2.0, 2.0]),
            albu.GaussianBlur((23, 23), (2.0, 2.0), p=1),
        ),
        "random_erasing": ([{"random_erasing": 1}], v2.RandomErasing(p=1), albu.Erasing(p=1)),
        "random_flip": ([{"random_flip": 1}], functional.horizontal_flip, albu.HorizontalFlip(p=1)),
        "random_vertical_flip": ([{"random_vertical_flip": 1}], functional.vertical_flip, albu.VerticalFlip(p=1)),
        "pad": ([{"pad": {"padding": 4, "padding_mode": "reflect"}}], lambda x: functional.pad(x, 4, padding_mode="reflect"), albu.Pad(4, border_mode=cv2.BORDER_REFLECT_101, p=1)),
        # torchvision's crops of a tensor are views of it; a batch needs them in one array, as its documentation shows.
        "five_crop": ([{"five_crop": 224}], lambda x: stacked(functional.five_crop(x, [224, 224])), None),
        "ten_crop": ([{"ten_crop": 224}], lambda x: stacked(functional.ten_crop(x, [224, 224])), None),
        "random_crop": ([{"random_crop": 192}], v2.RandomCrop(192), albu.RandomCrop(192, 192, p=1)),
        "random_resized_crop": ([{"random_resized_crop": 160}], v2.RandomResizedCrop(160, antialias=True), albu.RandomResizedCrop((160, 160), interpolation=cv2.INTER_AREA, p=1)),
        "resize": ([{"resize": [128, 128]}], lambda x: functional.resize(x, [128, 128], antialias=True), albu.Resize(128, 128, interpolation=cv2.INTER_AREA, p=1)),
        # OpenCV, on which Albumentations builds, does not antialias with these weights.
        "resize, bicubic": (
            [{"resize": {"size": [128, 128], "interpolation": "bicubic"}}],
            lambda x: functional.resize(x, [128, 128], v2.InterpolationMode.BICUBIC, antialias=True),
            None,
        ),
        "resize, lanczos": (
            [{"resize": {"size": [128, 128], "interpolation": "lanczos"}}],
            lambda x: functional.resize(x, [128, 128], v2.InterpolationMode.LANCZOS),
            None,
        ),
        "random_rotation, nearest": (
            [{"random_rotation": [15, 15]}],
            lambda x: functional.rotate(x, 15, fill=0),
            albu.Rotate((15, 15), interpolation=nearest, border_mode=cv2.BORDER_CONSTANT, p=1),
        ),
        "random_rotation, bilinear": (
            [{"random_rotation": {"degrees": [15, 15], "interpolation": "bilinear"}}],
            lambda x: functional.rotate(x, 15, v2.InterpolationMode.BILINEAR, fill=0),
            albu.Rotate((15, 15), interpolation=linear, border_mode=cv2.BORDER_CONSTANT, p=1),
        ),
        "random_affine, bilinear": (
            [{"random_affine": {"degrees": 15, "translate": [0.1, 0.1], "scale": [0.8, 1.2], "shear": 5, "interpolation": "bilinear"}}],
            v2.RandomAffine(15, (0.1, 0.1), (0.8, 1.2), 5, v2.InterpolationMode.BILINEAR),
            albu.Affine(scale=(0.8, 1.2), translate_percent=(-0.1, 0.1), rotate=(-15, 15), shear=(-5, 5), interpolation=linear, p=1),
        ),
        "random_perspective": (
            [{"random_perspective": {"p": 1}}],
            v2.RandomPerspective(p=1),
            albu.Perspective((0.05, 0.25), interpolation=linear, p=1),
        ),
        "rand_augment": (["rand_augment"], v2.RandAugment(), None),
        "trivial_augment_wide": (["trivial_augment_wide"], v2.TrivialAugmentWide(), None),
        "aug_mix": (["aug_mix"], v2.AugMix(), None),
        "flip, jitter, grey, solarize": (augment, theirs, others),
    }


def ranges(drawn: dict[str, float]) -> dict[str, tuple[float, float]]:
    return {name: (-by, by) if name == "hue" else (1 - by, 1 + by) for name, by in drawn.items()}


def seconds(call: Callable[[], Any], least_s: float) -> float:
    """Returns the time of one call, as the mean of as many as take `least_s`."""
    call()
    count, taken = 1, 0.0
    while taken < least_s:
        begin = time.perf_counter()
        for _ in range(count):
            call()
        taken = time.perf_counter() - begin
        if taken < least_s:
            count = max(count * 2, int(count * least_s / max(taken, 1e-9)))
    return taken / count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", help="operations whose names contain one of these")
    parser.add_argument("--rounds", type=int, default=5, help="how often each is measured; the median counts")
    parser.add_argument("--seconds", type=float, default=0.02, help="the time of a measurement")
    parser.add_argument("--json", help="write the figures to this file")
    options = parser.parse_args()
    figures = []
    for height, width in SIZES:
        rough = numpy.random.default_rng(7).integers(0, 256, (height // 8, width // 8, 3), "u1")
        smooth = numpy.asarray(Image.fromarray(rough).resize((width, height), Image.Resampling.BICUBIC)).astype(int)
        noise = numpy.random.default_rng(8).integers(-6, 7, smooth.shape)
        picture = (smooth + noise).clip(0, 255).astype("u1")
        tensor = torch.from_numpy(picture).permute(2, 0, 1).contiguous()
        pil = Image.fromarray(picture)
        print(f"\n{width}x{height}\n| operation | ours, µs | {' | '.join(PEERS)} |\n|---|---|{'---|' * len(PEERS)}")
        for name, (steps, theirs, other) in cases().items():
            if options.only and not any(part in name for part in options.only):
                continue
            ours = ops.transform(steps)
            samples = iter(range(1 << 60))
            calls: dict[str, Callable[[], Any]] = {"ours": lambda: ours(picture, id=next(samples))}
            calls["torchvision"] = lambda: theirs(tensor)
            # RandomErasing is for tensors.
            if name != "random_erasing":
                calls["torchvision on PIL"] = lambda: theirs(pil)
            if other is not None:
                calls["Albumentations"] = lambda: other(image=picture)
            times: dict[str, list[float]] = {label: [] for label in calls}
            for _ in range(options.rounds):
                for label, call in calls.items():
                    times[label].append(seconds(call, options.seconds))
            medians = {label: statistics.median(values) * 1e6 for label, values in times.items()}
            shown = (f"{medians[peer] / medians['ours']:.1f}x" if peer in medians else "-" for peer in PEERS)
            print(f"| {name} | {medians['ours']:.0f} | {' | '.join(shown)} |", flush=True)
            figures.append({"operation": name, "size": [width, height], "us": medians})
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(figures, file, indent=1)


if __name__ == "__main__":
    main()
