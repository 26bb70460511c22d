"""Operations on pictures: they give what torchvision gives for the same parameters, within one level of 255."""

from __future__ import annotations

import itertools
import os
import pathlib
import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest
import spdl_cluster
from conftest import FRAMEWORKS_HERE, LazyModule, ctl
from spdl_cluster import ops

numpy = pytest.importorskip("numpy")
torch = pytest.importorskip("torch", reason=os.environ.get("SPDL_TEST_NO_TORCH", "torch is not installed"))
functional: Any = LazyModule("torchvision.transforms.v2.functional")
v2: Any = LazyModule("torchvision.transforms.v2")
Image = pytest.importorskip("PIL.Image")
pytestmark = FRAMEWORKS_HERE

#: Heights and widths, among them the smallest and odd ones.
SIZES = [(1, 1), (1, 9), (9, 1), (2, 2), (3, 3), (17, 31), (64, 96)]
Function = Callable[[Any], Any]


def pictures(height: int, width: int) -> list[Any]:
    """Returns random pictures of this size: noise, a smooth one, one of few colours, grey ones and one of a single colour."""
    random = numpy.random.default_rng([height, width])
    noise = random.integers(0, 256, (height, width, 3), "u1")
    ramp = numpy.linspace(20, 230, height * width).reshape(height, width, 1) + random.integers(-15, 15, (height, width, 3))
    grey = numpy.repeat(random.integers(0, 256, (height, width, 1), "u1"), 3, 2)
    few = random.integers(0, 3, (height, width, 3), "u1") * 127
    return [noise, ramp.astype("u1"), grey, few, noise // 3 + 90, numpy.full((height, width, 3), 77, "u1")]


def torchvision(function: Function, picture: Any) -> Any:
    """Returns what torchvision's function makes of a picture."""
    result: Any = function(torch.from_numpy(picture).permute(2, 0, 1).contiguous())
    return result.permute(1, 2, 0).numpy()


def difference(ours: Any, theirs: Any) -> int:
    assert ours.shape == theirs.shape and ours.dtype == theirs.dtype
    return int(numpy.abs(ours.astype(int) - theirs.astype(int)).max())


def fixed(**factors: float) -> list[dict[str, Any]]:
    """Returns `color_jitter` with one factor that is fixed."""
    return [{"color_jitter": {key: [factor, factor] for key, factor in factors.items()}}]


def always(name: str, **keys: Any) -> list[dict[str, Any]]:
    """Returns a random operation that always happens."""
    return [{name: {**keys, "p": 1.0}}]


CASES: list[tuple[list[Any], Function]] = [
    *[(fixed(brightness=f), lambda x, f=f: functional.adjust_brightness(x, f)) for f in (0.0, 0.3, 0.999, 1.3, 2.7, 1000.0)],
    *[(fixed(contrast=f), lambda x, f=f: functional.adjust_contrast(x, f)) for f in (0.0, 0.4, 1.5, 3.0)],
    *[(fixed(saturation=f), lambda x, f=f: functional.adjust_saturation(x, f)) for f in (0.0, 0.6, 1.7, 4.0)],
    *[(fixed(hue=f), lambda x, f=f: functional.adjust_hue(x, f)) for f in (-0.5, -0.21, 0.07, 0.333, 0.5)],
    *[(always("random_posterize", bits=n), lambda x, n=n: functional.posterize(x, n)) for n in range(9)],
    *[(always("random_solarize", threshold=t), lambda x, t=t: functional.solarize(x, t)) for t in (0, 99.5, 128, 255)],
    *[
        (always("random_adjust_sharpness", sharpness_factor=f), lambda x, f=f: functional.adjust_sharpness(x, f))
        for f in (0.0, 0.5, 1.0, 2.0, 7.5)
    ],
    *[
        ([{"gaussian_blur": {"kernel_size": k, "sigma": s}}], lambda x, k=k, s=s: functional.gaussian_blur(x, [k, k], [s, s]))
        for k, s in ((1, 0.5), (3, 0.1), (3, 0.8), (5, 1.5), (23, 2.0), (9, 100.0))
    ],
    *[
        ([{"pad": {"padding": p, **keys}}], lambda x, p=p, keys=keys: functional.pad(x, p, **keys))
        for p in (0, 2, [1, 3], [1, 2, 3, 0])
        for keys in ({}, {"fill": 9}, {"fill": [1, 2, 3]}, {"padding_mode": "edge"}, {"padding_mode": "symmetric"}, {"padding_mode": "reflect"})
    ],
    (always("random_flip"), lambda x: functional.horizontal_flip(x)),
    (always("random_vertical_flip"), lambda x: functional.vertical_flip(x)),
    ([*always("random_vertical_flip"), {"center_crop": [5, 12]}], lambda x: functional.center_crop(functional.vertical_flip(x), [5, 12])),
    ([*always("random_flip"), {"pad": [1, 2, 3, 4]}], lambda x: functional.pad(functional.horizontal_flip(x), [1, 2, 3, 4])),
    (["grayscale"], lambda x: functional.rgb_to_grayscale(x, 3)),
    (always("random_grayscale"), lambda x: functional.rgb_to_grayscale(x, 3)),
    (always("random_invert"), lambda x: functional.invert(x)),
    (always("random_autocontrast"), lambda x: functional.autocontrast(x)),
    (always("random_equalize"), lambda x: functional.equalize(x)),
]


def is_defined(steps: list[Any], height: int, width: int) -> bool:
    """Returns whether torchvision takes pictures of this size: it reflects each pixel only once."""
    for step in steps:
        if "gaussian_blur" in step and step["gaussian_blur"]["kernel_size"] // 2 >= min(height, width):
            return False
        if "pad" in step and step["pad"].__class__ is dict and step["pad"].get("padding_mode") in ("reflect", "symmetric"):
            return min(height, width) > 3
    return True


@pytest.mark.parametrize(("steps", "function"), CASES, ids=[str(steps) for steps, _ in CASES])
def test_an_operation_gives_what_torchvision_gives(steps: list[Any], function: Function) -> None:
    transform = ops.transform(steps)
    for height, width in (size for size in SIZES if is_defined(steps, *size)):
        for picture in pictures(height, width):
            before = picture.copy()
            found = difference(transform(picture), torchvision(function, picture))
            assert found <= 1, f"{steps} of {height}x{width}: {found} levels"
            assert numpy.array_equal(picture, before), "the picture is the caller's"


#: Heights and widths before and after. In none of them does the area of a pixel end in the middle of another one, which `box` can count
#: to either side after rounding.
RESIZES = [
    ((37, 53), [16, 16]),
    ((37, 53), [90, 41]),
    ((64, 96), [32, 48]),
    ((9, 1), [4, 7]),
    ((3, 3), [50, 2]),
    ((300, 400), [223, 211]),
    ((300, 401), [7, 5]),
    ((5, 6), [5, 90]),
]


@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic", "lanczos", "box", "hamming"])
@pytest.mark.parametrize(("before", "after"), RESIZES)
def test_a_resize_gives_what_torchvision_gives_for_a_picture_of_pillow(mode: str, before: tuple[int, int], after: list[int]) -> None:
    transform = ops.transform([{"resize": {"size": after, "interpolation": mode}}])
    for picture in pictures(*before):
        theirs = functional.resize(Image.fromarray(picture), after, functional.InterpolationMode(mode))
        found = difference(transform(picture), numpy.asarray(theirs))
        assert found <= (0 if mode == "nearest" else 1), f"{mode} of {before} to {after}: {found} levels"


@pytest.mark.parametrize(("before", "after"), RESIZES)
def test_a_resize_without_antialiasing_gives_what_torchvision_gives(before: tuple[int, int], after: list[int]) -> None:
    transform = ops.transform([{"resize": {"size": after, "antialias": False}}])
    for picture in pictures(*before):
        theirs = torchvision(lambda x: functional.resize(x, after, antialias=False), picture)
        assert difference(transform(picture), theirs) <= 1, f"{before} to {after}"


@pytest.mark.parametrize("subsampling", [0, 2], ids=["4:4:4", "4:2:0"])
def test_a_jpeg_that_is_decoded_in_full_is_resized_as_torchvision_does(tmp_path: pathlib.Path, subsampling: int) -> None:
    sizes = [(300, 400), (97, 61), (640, 480), (33, 200)]
    for number, size in enumerate(sizes):
        Image.fromarray(pictures(*size)[1]).save(tmp_path / f"{number}.jpg", quality=90, subsampling=subsampling)
    ctl("index", tmp_path, "--format", "files", "--json")
    resize = {"size": [48, 40], "full_decode": True}
    image = {"name": "image", "from": "jpg", "decode": "image", "ops": [{"resize": resize}], "layout": "nhwc", "dtype": "u8"}
    job = {"name": "full", "dataset": str(tmp_path), "global_batch": 4, "epochs": 1, "shuffle": False, "column": [image]}
    with spdl_cluster.local(job, tensors="numpy") as loader:
        ours = next(iter(loader))["image"]
    for number in range(len(sizes)):
        decoded = numpy.asarray(Image.open(tmp_path / f"{number}.jpg"))
        theirs = torchvision(lambda x: functional.resize(x, [48, 40], antialias=True), decoded)
        # Between colours that are stored at half size, libjpeg rounds twice.
        off = numpy.abs(ours[number].astype(int) - theirs.astype(int))
        assert off.max() <= (1 if subsampling == 0 else 2) and (off > 1).mean() < 0.002, sizes[number]


def test_what_comes_before_and_after_a_resize_of_other_weights_keeps_its_place() -> None:
    picture = pictures(300, 400)[1]
    box = {"random_resized_crop": {"size": 64, "scale": [1.0, 1.0], "ratio": [4 / 3, 4 / 3], "interpolation": "bicubic"}}
    cut = ops.transform([{"center_crop": [120, 200]}, *always("random_flip"), {"resize": {"size": 60, "interpolation": "lanczos"}}, {"pad": 2}])
    theirs = Image.fromarray(picture).crop((100, 90, 300, 210)).transpose(Image.Transpose.FLIP_LEFT_RIGHT).resize((100, 60), Image.Resampling.LANCZOS)
    assert difference(cut(picture)[2:-2, 2:-2], numpy.asarray(theirs)) <= 1
    whole = Image.fromarray(picture).resize((64, 64), Image.Resampling.BICUBIC)
    assert difference(ops.transform([box])(picture), numpy.asarray(whole)) <= 1
    boxed = ops.transform([{"letterbox": {"size": 64, "interpolation": "box"}}])(picture)
    assert difference(boxed[8:56], numpy.asarray(Image.fromarray(picture).resize((64, 48), Image.Resampling.BOX))) <= 1


def test_antialiasing_can_be_left_out_only_where_that_is_defined() -> None:
    with pytest.raises(spdl_cluster.SettingError, match="`antialias` is false; only `nearest` and `bilinear`"):
        ops.transform([{"resize": {"size": 9, "interpolation": "lanczos", "antialias": False}}])


#: Operations whose pixels come from places that are computed, with parameters of torchvision's. A place in the middle of two
#: pixels can be on either side after rounding, and then the nearest pixel is another one.
WARPS: list[tuple[list[Any], Function]] = [
    *[
        (
            [{"random_rotation": {"degrees": [a, a], "interpolation": mode, "expand": expand, "fill": fill}}],
            lambda x, a=a, mode=mode, expand=expand, fill=fill: functional.rotate(x, a, mode, expand, fill=fill),
        )
        for a in (0.0, 90.0, 180.0, -270.0, 17.3, -101.7)
        for mode, fill in (("nearest", 7), ("bilinear", [5, 200, 90]))
        for expand in (False, True)
    ],
    *[
        (
            [{"random_affine": {"degrees": [a, a], "scale": [s, s], "shear": [z, z], "interpolation": mode, "fill": 40}}],
            lambda x, a=a, s=s, z=z, mode=mode: functional.affine(x, a, [0, 0], s, [z, 0.0], mode, fill=40),
        )
        for a, s, z in ((0.0, 1.0, 0.0), (33.1, 0.71, 0.0), (-12.9, 1.37, 21.3), (0.0, 1.0, -44.9))
        for mode in ("nearest", "bilinear")
    ],
]


def differing(ours: Any, theirs: Any) -> Any:
    """Returns the share of the pixels that differ by more than a level: of a picture, or of each of `stacked` pictures."""
    assert ours.shape == theirs.shape[-3:] and ours.dtype == theirs.dtype == numpy.uint8
    ours, theirs = numpy.moveaxis(ours, -1, 0), numpy.moveaxis(theirs, -1, 0)
    ours = ours.reshape(len(ours), *(1,) * (theirs.ndim - 3), *ours.shape[1:])
    far = (numpy.maximum(ours, theirs) - numpy.minimum(ours, theirs) > 1).any(axis=0)
    return far.mean(axis=(-2, -1))


def stacked(pictures: Iterable[Any]) -> Any:
    """Returns pictures as one array, in whose memory the channels are apart: so it is compared ten times as fast."""
    channels = numpy.moveaxis(numpy.stack(list(pictures)), -1, 0)
    return numpy.moveaxis(numpy.ascontiguousarray(channels), 0, -1)


@pytest.mark.parametrize(("steps", "function"), WARPS, ids=[str(steps) for steps, _ in WARPS])
def test_a_warp_gives_what_torchvision_gives(steps: list[Any], function: Function) -> None:
    transform = ops.transform(steps)
    is_nearest = "nearest" in str(steps)
    for height, width in SIZES:
        for picture in pictures(height, width):
            ours, theirs = transform(picture), torchvision(function, picture)
            assert ours.shape == theirs.shape, f"{steps} of {height}x{width}: {ours.shape}, {theirs.shape}"
            found = differing(ours, theirs)
            assert found <= (0.004 if is_nearest else 0.0), f"{steps} of {height}x{width}: {found:.4f} differ"


@pytest.mark.parametrize("mode", ["nearest", "bilinear"])
def test_random_perspective_gives_what_torchvision_gives_for_one_choice_of_corners(mode: str) -> None:
    height, width = 17, 31
    # Each coordinate of a corner moves by 0 or 1 pixel.
    transform = ops.transform([{"random_perspective": {"distortion_scale": 0.13, "p": 1.0, "interpolation": mode, "fill": [9, 8, 7]}}])
    picture = pictures(height, width)[1]
    tensor = torch.from_numpy(picture).permute(2, 0, 1).contiguous()
    starts = [[0, 0], [width - 1, 0], [width - 1, height - 1], [0, height - 1]]
    candidates = {}
    for by in itertools.product((0, 1), repeat=8):
        ends = [[abs(x - by[2 * at]), abs(y - by[2 * at + 1])] for at, (x, y) in enumerate(starts)]
        candidates[by] = functional.perspective(tensor, starts, ends, mode, fill=[9, 8, 7]).permute(1, 2, 0).numpy()
    choices, stack = list(candidates), stacked(candidates.values())
    seen = set()
    for sample in range(300):
        shares = differing(transform(picture, id=sample), stack)
        by, share = choices[shares.argmin()], shares.min()
        assert share <= (0.02 if mode == "nearest" else 0.0), f"sample {sample}: {share} of the pixels differ from {by}"
        seen.add(by)
    assert len(seen) > 140, "300 draws of 256 choices"
    assert all({by[at] for by in seen} == {0, 1} for at in range(8))


@pytest.mark.parametrize("name", ["rand_augment", "trivial_augment_wide"])
def test_augmentations_give_one_of_torchvisions(name: str) -> None:
    theirs = v2.RandAugment(num_ops=1) if name == "rand_augment" else v2.TrivialAugmentWide()
    transform = ops.transform([{name: {"num_ops": 1}} if name == "rand_augment" else name])
    picture = pictures(33, 47)[1]
    tensor = torch.from_numpy(picture).permute(2, 0, 1).contiguous()
    candidates: dict[tuple[str, int, int], Any] = {}
    for which, (magnitudes, signed) in theirs._AUGMENTATION_SPACE.items():
        values = magnitudes(31, 33, 47)
        bins = [0] if values is None else [9] if name == "rand_augment" else range(31)
        for index in bins:
            for sign in (1, -1) if signed else (1,):
                magnitude = 0.0 if values is None else sign * float(values[index])
                made = theirs._apply_image_or_video_transform(tensor, which, magnitude, interpolation="nearest", fill=theirs._fill)
                candidates[which, index, sign] = made.permute(1, 2, 0).numpy()
    choices, stack = list(candidates), stacked(candidates.values())
    seen = set()
    for sample in range(400):
        shares = differing(transform(picture, id=sample), stack)
        matches = [choices[at] for at in numpy.flatnonzero(shares <= 0.004)]
        assert matches, f"sample {sample} is none of torchvision's"
        if len({which for which, _, _ in matches}) == 1:
            seen.add((matches[0][0], matches[0][2] if len(matches) == 1 else 1))
    names = {which for which, _ in seen}
    # To take the lowest bit away changes no value by more than a level.
    assert names >= set(theirs._AUGMENTATION_SPACE) - {"Identity", "Posterize"}, set(theirs._AUGMENTATION_SPACE) - names
    assert ("Rotate", 1) in seen and ("Rotate", -1) in seen


@pytest.mark.parametrize("all_ops", [True, False])
def test_a_mix_is_one_of_the_picture_and_what_torchvision_makes_of_it(all_ops: bool) -> None:
    theirs = v2.AugMix(all_ops=all_ops)
    space = theirs._AUGMENTATION_SPACE if all_ops else theirs._PARTIAL_AUGMENTATION_SPACE
    transform = ops.transform([{"aug_mix": {"severity": 4, "mixture_width": 1, "chain_depth": 1, "all_ops": all_ops}}])
    picture = pictures(33, 47)[1]
    tensor = torch.from_numpy(picture).permute(2, 0, 1).contiguous()
    made: dict[str, list[Any]] = {}
    for which, (magnitudes, signed) in space.items():
        values = magnitudes(10, 33, 47)
        for value in {0.0} if values is None else {float(value) for value in values[:4]}:
            for magnitude in (value, -value) if signed else (value,):
                change = theirs._apply_image_or_video_transform(tensor, which, magnitude, interpolation="bilinear", fill=theirs._fill)
                made.setdefault(which, []).append(change.permute(1, 2, 0).numpy().astype(float))
    own = picture.astype(float)
    seen, shares = set(), []
    for sample in range(300):
        ours = transform(picture, id=sample)
        matches = []
        for which, candidates in made.items():
            for candidate in candidates:
                # The share of the operation's picture that explains the result best; parts of a level were cut off.
                change, result = candidate - own, ours + 0.5 - own
                share = float((change * result).sum() / max((change * change).sum(), 1.0))
                mixed = numpy.trunc(own + change * min(max(share, 0.0), 1.0))
                if numpy.abs(ours - mixed).max() <= 1:
                    matches.append((which, share, numpy.abs(change).mean()))
        assert matches, f"sample {sample} is no mix with one of torchvision's"
        if len({which for which, _, _ in matches}) == 1:
            seen.add(matches[0][0])
        shares += [share for _, share, strength in matches[:1] if strength > 10]
    # Of 4 bits or more, and of thresholds near the top, little changes.
    assert seen >= set(space) - {"Posterize", "Solarize", "Color", "Sharpness"}, set(space) - seen
    assert min(shares) < 0.1 and max(shares) > 0.9 and abs(statistics.mean(shares) - 0.5) < 0.1


def test_crops_erasing_and_letterboxes() -> None:
    random_crop = ops.transform([{"random_crop": {"size": [8, 9], "padding": [1, 2], "fill": 255}}])
    picture = pictures(17, 31)[0]
    padded = torchvision(lambda x: functional.pad(x, [1, 2], fill=255), picture)
    places = set()
    for sample in range(100):
        made = random_crop(picture, id=sample)
        found = [
            (top, left)
            for top in range(padded.shape[0] - 7)
            for left in range(padded.shape[1] - 8)
            if numpy.array_equal(padded[top : top + 8, left : left + 9], made)
        ]
        assert len(found) == 1
        places.update(found)
    assert len(places) > 60 and len({top for top, _ in places}) == 14 and len({left for _, left in places}) > 20
    with pytest.raises(spdl_cluster.DataError, match="a picture of 31x17 is smaller than the 64x64 of `random_crop`"):
        ops.transform([{"random_crop": 64}])(picture)
    grown = ops.transform([{"random_crop": {"size": 64, "pad_if_needed": True, "padding_mode": "edge"}}])(picture)
    assert grown.shape == (64, 64, 3)

    erase = ops.transform([{"random_erasing": {"p": 1.0, "value": [1, 2, 3]}}])
    gone = [(erase(picture, id=sample) != picture).any(axis=2) for sample in range(50)]
    for mask in gone:
        rows, columns = numpy.nonzero(mask)
        assert mask[rows.min() : rows.max() + 1, columns.min() : columns.max() + 1].mean() > 0.95, "a rectangle"
        assert 0.01 < mask.mean() < 0.4

    boxed = ops.transform([{"letterbox": {"size": [64, 64], "fill": 114}}])(picture)
    resized = ops.transform([{"resize": [35, 64]}])(picture)
    assert numpy.array_equal(boxed[14:49], resized) and (boxed[:14] == 114).all() and (boxed[49:] == 114).all()
    assert numpy.array_equal(ops.transform([{"letterbox": [64, 64]}])(picture)[14:49], resized)


@pytest.mark.parametrize("size", [(17, 31), (16, 30), (15, 9), (40, 41)])
@pytest.mark.parametrize("crop", [[15, 9], [8, 8], [1, 2]])
def test_five_and_ten_crops_are_torchvisions(size: tuple[int, int], crop: list[int]) -> None:
    picture = pictures(*size)[0]

    def theirs(crops: Callable[[Any], Sequence[Any]]) -> Any:
        return numpy.stack([made.permute(1, 2, 0).numpy() for made in crops(torch.from_numpy(picture).permute(2, 0, 1))])

    made = ops.transform([{"five_crop": crop}])(picture)
    assert made.shape == (5, *crop, 3)
    assert numpy.array_equal(made, theirs(lambda x: functional.five_crop(x, crop)))
    for flip in (False, True):
        made = ops.transform([{"ten_crop": {"size": crop, "vertical_flip": flip}}])(picture)
        assert numpy.array_equal(made, theirs(lambda x: functional.ten_crop(x, crop, vertical_flip=flip)))
    inverted = ops.transform([{"random_invert": 1}, {"five_crop": crop}])(picture)
    assert numpy.array_equal(255 - inverted, ops.transform([{"five_crop": crop}])(picture))
    with pytest.raises(spdl_cluster.DataError, match="is smaller than the 99x2 of `five_crop`"):
        ops.transform([{"five_crop": [2, 99]}])(picture)


def test_a_model_sees_ten_crops_of_a_batch_at_once(job: Any) -> None:
    made = job(shuffle=False)
    made["column"][0] |= {"ops": [{"resize": 40}, {"ten_crop": 32}], "layout": "nchw", "dtype": "f32"}
    middles = job(shuffle=False)
    middles["column"][0] |= {"ops": [{"resize": 40}, {"center_crop": 32}], "layout": "nchw", "dtype": "f32"}
    with spdl_cluster.local(made, tensors="torch") as loader, spdl_cluster.local(middles, tensors="torch") as plain:
        for batch, middle in zip(loader, plain, strict=True):
            samples, crops = batch["image"].shape[:2]
            assert batch["image"].shape[1:] == (10, 3, 32, 32) and samples == len(batch.ids)
            assert torch.equal(batch["image"].flatten(0, 1).view(samples, crops, -1)[:, 4].view(samples, 3, 32, 32), middle["image"])


def test_some_and_one_of_several_operations() -> None:
    picture = pictures(17, 31)[0]
    invert_to_grey: list[Any] = [{"random_invert": 1}, "grayscale"]
    inverted, grey = ops.transform([{"random_invert": 1}])(picture), ops.transform(["grayscale"])(picture)
    some = ops.transform([{"random_apply": {"transforms": [{"random_invert": 1}, "grayscale"], "p": 0.5}}])
    both = ops.transform(invert_to_grey)(picture)
    made = [some(picture, id=sample) for sample in range(60)]
    assert all(numpy.array_equal(one, picture) or numpy.array_equal(one, both) for one in made)
    assert 15 < sum(numpy.array_equal(one, both) for one in made) < 45
    choice = ops.transform([{"random_choice": {"transforms": [{"random_invert": 1}, "grayscale"], "p": [3, 1]}}])
    made = [choice(picture, id=sample) for sample in range(80)]
    assert all(numpy.array_equal(one, inverted) or numpy.array_equal(one, grey) for one in made)
    assert 40 < sum(numpy.array_equal(one, inverted) for one in made) < 75


def test_operations_that_are_fused_give_what_they_give_one_by_one() -> None:
    chain = [*always("random_invert"), *always("random_posterize", bits=5), *always("random_equalize"), *fixed(brightness=1.3)]
    chain += [*always("random_autocontrast"), *fixed(contrast=0.6), *always("random_solarize", threshold=100), *fixed(hue=0.2)]
    for picture in pictures(64, 96):
        step_by_step = picture
        for step in chain:
            step_by_step = ops.transform([step])(step_by_step)
        assert numpy.array_equal(ops.transform(chain)(picture), step_by_step)


def test_the_seed_the_epoch_and_the_sample_decide_what_is_drawn() -> None:
    picture = pictures(17, 31)[0]
    steps: list[Any] = [{"random_resized_crop": 16}, "random_flip", {"color_jitter": {"brightness": 0.5, "hue": 0.1}}]
    one, other = ops.transform(steps, seed=5), ops.transform(steps, seed=6)
    made = one(picture, epoch=3, id=8)
    assert made.shape == (16, 16, 3) and numpy.array_equal(ops.transform(steps, seed=5)(picture, epoch=3, id=8), made)
    for another in (other(picture, epoch=3, id=8), one(picture, epoch=4, id=8), one(picture, epoch=3, id=9), one(picture)):
        assert not numpy.array_equal(another, made)


def test_pictures_with_gaps_and_tensors_are_taken() -> None:
    picture = pictures(17, 31)[0]
    for steps in (["grayscale"], always("random_flip"), [{"random_crop": 9}]):
        transform = ops.transform(steps)
        for view in (picture[::2, ::-1], picture[:, 3:20], numpy.asfortranarray(picture), picture[..., ::-1]):
            whole = numpy.ascontiguousarray(view)
            assert numpy.array_equal(transform(view), transform(whole))
            assert numpy.array_equal(transform(torch.from_numpy(whole)), transform(whole))


def nested(depth: int) -> Any:
    """Returns operations within operations."""
    return "grayscale" if depth == 0 else {"random_apply": [nested(depth - 1)]}


def test_lists_and_pictures_that_make_no_sense_are_refused() -> None:
    refused: list[tuple[list[Any], str]] = [
        ([{"random_flop": {}}], "ops\\[0\\]: there is no step `random_flop`"),
        ([{"color_jitter": {"hue": 0.6}}], "ops\\[0\\].color_jitter: `hue` is 0.6; give a number in 0..0.5"),
        ([{"color_jitter": {"brightness": float("nan")}}], "`brightness` is NaN"),
        ([{"color_jitter": {"contrast": float("inf")}}], "`contrast` is inf"),
        ([{"color_jitter": {"saturation": [1.5, 0.5]}}], "`saturation` is \\[1.5, 0.5\\]"),
        (["random_invert", {"random_posterize": 9}], "ops\\[1\\].random_posterize: `bits` is 9"),
        ([{"random_solarize": -1}], "`threshold` is -1"),
        ([{"random_adjust_sharpness": 1e9}], "`sharpness_factor` is 1000000000"),
        ([{"random_invert": 1.5}], "has p = 1.5"),
        ([{"gaussian_blur": 4}], "`kernel_size` is 4, not an odd number in 1..=255"),
        ([{"gaussian_blur": {"kernel_size": 3, "sigma": float("inf")}}], "`sigma` is inf"),
        ([{"gaussian_blur": {"kernel_size": 3, "sigma": 1e9}}], "`sigma` is 1000000000"),
        ([{"pad": 10**9}], "`padding` is 1000000000 pixels, not in 0..=16384"),
        ([{"pad": [1, 2, 3]}], "pad expects { padding = 4 }, not 3 entries"),
        ([{"pad": {"padding": 1, "fill": 256}}], "fill expects a whole number from 0 to 255"),
        ([{"pad": {"padding": 1, "fill": 1, "padding_mode": "edge"}}], '`fill` needs padding_mode = "constant"'),
        ([{"five_crop": 0}], "`size` is \\[0, 0\\] pixels"),
        ([{"five_crop": 8}, "random_flip"], "ops\\[0\\].five_crop: `five_crop` makes 5 pictures of one, so it has to be the last operation"),
        ([{"random_apply": {"transforms": [{"ten_crop": 8}]}}], "`transforms` has `ten_crop`, which has to stand by itself"),
        ([{"random_crop": 0}], "`size` is \\[0, 0\\] pixels"),
        ([{"random_erasing": {"scale": [0.5, float("nan")]}}], "`scale` is \\[0.5, NaN\\]"),
        ([{"random_rotation": float("nan")}], "`degrees` is NaN"),
        ([{"random_rotation": -5}], "`degrees` is -5"),
        ([{"random_affine": {"degrees": 5, "translate": [0, 2]}}], "`translate` is \\[0.0, 2.0\\]"),
        ([{"random_affine": {"degrees": 5, "scale": [0, 1]}}], "`scale` is \\[0.0, 1.0\\]"),
        ([{"random_affine": {"degrees": 5, "shear": 90}}], "`shear` is 90"),
        ([{"random_perspective": 2}], "`distortion_scale` is 2"),
        ([{"rand_augment": {"magnitude": 31}}], "`magnitude` is 31, not below `num_magnitude_bins`, 31"),
        ([{"rand_augment": {"num_ops": 10**6}}], "`num_ops` is 1000000"),
        ([{"trivial_augment_wide": 1}], "`num_magnitude_bins` is 1"),
        ([{"aug_mix": 11}], "`severity` is 11, not in 1..=10"),
        ([{"aug_mix": {"mixture_width": 0}}], "`mixture_width` is 0, not in 1..=10"),
        ([{"aug_mix": {"chain_depth": 0}}], "`chain_depth` is 0; give -1, or 1 to 10"),
        ([{"aug_mix": {"alpha": 0}}], "`alpha` is 0, not in 0.001..1000"),
        ([{"random_apply": {"transforms": []}}], "`transforms` is empty"),
        ([{"random_apply": {"transforms": ["crop_box"]}}], "`transforms` has `crop_box`, which has to stand by itself"),
        ([{"random_apply": {"transforms": [{"random_invert": 2}]}}], "`transforms` has random_invert: `random_invert` has p = 2"),
        ([{"random_choice": {"transforms": ["grayscale"], "p": [1, 2]}}], "`p` has 2 numbers for 1 operations"),
        ([nested(5)], "`transforms` is nested more than 4 deep"),
        ([{"grayscale": 3}], "ops\\[0\\]: grayscale expects {}, not a value"),
    ]
    for steps, problem in refused:
        with pytest.raises(spdl_cluster.SettingError, match=problem):
            ops.transform(steps)
    transform = ops.transform(["random_invert"])
    for picture in (numpy.zeros((4, 4), "u1"), numpy.zeros((4, 4, 3), "f4"), numpy.zeros((0, 4, 3), "u1"), b"bytes"):
        with pytest.raises(spdl_cluster.DataError, match="`transform` takes pictures as bytes with the shape"):
            transform(picture)
    with pytest.raises(spdl_cluster.DataError, match="operations make 16000x16384; the limit is 134217728 pixels"):
        ops.transform([{"resize": [16384, 16000]}])(numpy.zeros((4, 4, 3), "u1"))
