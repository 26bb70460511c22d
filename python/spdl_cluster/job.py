"""The keys of a job as types, for a dict that editors complete and type checkers check. They do nothing at run time.

    image: spdl_cluster.Column = {"name": "image", "from": "jpg", "decode": "image", "ops": [{"resize": 256}, {"center_crop": 224}]}
    job: spdl_cluster.Job = {"name": "first", "dataset": "dataset", "global_batch": 64, "column": [image]}

Made from `examples/job.schema.json` by `tests/python/job_types.py`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypedDict


class _JobRequired(TypedDict):
    #: Folder or URL of the dataset: that of its manifest.
    dataset: str | os.PathLike[str]
    #: Samples of one step over all ranks.
    global_batch: int
    #: Name by which trainers ask for it: 1 to 128 of A-Z a-z 0-9 . _ -
    name: str


class Job(_JobRequired, total=False):
    """A job file. Every key is explained in `examples/imagenet-train.toml`."""

    #: What happens to a sample that does not decode or lacks a field. Without it `substitute`, or `mask` for an evaluation.
    bad_samples: Literal["substitute", "mask", "fail"] | None
    #: The columns of a batch, in order: a [[column]] table for each, 1 to 64 of them.
    column: Sequence[Column]
    #: What happens when fewer samples than a global batch are left in an epoch. Without it `drop`, or `partial` for an evaluation.
    epoch_end: Literal["drop", "pad", "continuous", "exact", "partial"] | None
    #: How often the dataset is gone through.
    epochs: int
    #: Functions that take several fields or columns and return several columns: a `[[function]]` table for each.
    function: Sequence[Function]
    #: Distinct bad samples, as a fraction of the dataset, above which the job fails. Without it 0.001, and at least ten samples.
    max_bad_fraction: float | None
    #: How samples are mixed in pairs; without, they are not.
    mix: Mix | None
    #: How well samples are shuffled, against what it costs to read them.
    order: Order | None
    #: Decides the order and every random crop and flip.
    seed: int
    #: Whether samples are shuffled; without, they come in the order of the manifest.
    shuffle: bool
    #: Which samples of the dataset are delivered; without, all are.
    view: View | None


_ColumnKeywords = TypedDict("_ColumnKeywords", {"from": "str"}, total=True)


class _ColumnRequired(_ColumnKeywords):
    #: How the field becomes an array.
    decode: Literal["image", "int", "json", "bytes", "box_class", "tensor", "float", "text", "category", "mask", "boxes", "box_labels", "one_hot", "geometry", "image_size", "bool"]
    #: Name in the batch.
    name: str


class Column(_ColumnRequired, total=False):
    """One `[[column]]` of a job file."""

    #: Arguments of the function or the class, by name.
    arguments: dict[str, Any] | None
    #: For tensor: the name of the array in a .npz file that has several.
    array: str | None
    #: For images: the colour that shows through transparent pixels. Without it, opacity is ignored.
    background: int | Sequence[int] | None
    #: For one_hot: the number of classes.
    classes: int | None
    #: For images: the channels.
    color: Literal["rgb", "bgr", "rgba", "gray", "gray_alpha"] | None
    #: For images: the bits of a value, 8, 16 or 32.
    depth: Literal[8, 16, 32] | None
    #: Type of the elements.
    dtype: Literal["u8", "i32", "i64", "f16", "bf16", "f32", "f64", "i8", "u16", "i16", "u32", "u64", "bool"] | None
    #: For tensor: how the field stores the array.
    encoding: Literal["numpy", "raw"] | None
    #: For mask: the image column whose crops, flips and other moves of pixels it follows. For boxes: the image column whose crops, flips and other moves of pixels they follow. For box_labels: the boxes column whose boxes they are of. For geometry: the image column whose picture it is of. For image_size: the image column whose picture it is of.
    follows: str | None
    #: For boxes: the numbers that give one in the batch.
    format: Literal["xyxy", "xywh", "cxcywh"] | None
    #: For mask: the class of pixels that are beyond the picture.
    ignore_index: int | None
    #: For box_labels: the key of COCO's annotations that has the label, a number or a name.
    key: str | None
    #: For images: order of the dimensions.
    layout: Literal["nhwc", "nchw"] | None
    #: For bytes: the most of one sample; a longer one is a bad sample. For text: the most bytes of one sample in UTF-8; a longer one is a bad sample.
    max_bytes: int | None
    #: For images of which samples have lists of any length: the most of one sample; one with more is a bad sample. For tensor whose samples differ in their first dimension: the most rows of one sample; one with more is a bad sample. For boxes: the most of one sample; one with more is a bad sample.
    max_rows: int | None
    #: For boxes: the least width and height, in pixels of the result.
    min_size: float | None
    #: For boxes: the least share of a box that has to be left in the picture.
    min_visible: float | None
    #: For category: the names, whose numbers are 0, 1, 2 and so on. Without it they are the dataset's classes. For box_labels: the names, whose numbers are 0, 1, 2 and so on. Without it they are the dataset's classes. For one_hot: the names of the classes, as for category. Without it a field holds the number of its class, or the name of one of the dataset's classes.
    names: Sequence[str] | None
    #: For images of a float type: (value / 255 - mean) / std of each channel.
    normalise: Normalise | None
    #: For boxes: whether the numbers are shares of the picture's width and height, and not pixels.
    normalised: bool | None
    #: For images: steps from the picture to the array, in order. The last has to give a fixed size.
    ops: Sequence[Literal["crop_box", "random_flip", "aug_mix", "color_jitter", "grayscale", "rand_augment", "random_autocontrast", "random_equalize", "random_erasing", "random_grayscale", "random_invert", "random_perspective", "random_vertical_flip", "trivial_augment_wide"] | Operations]
    #: For json: the keys from the root to the number, with dots between.
    path: str | None
    #: For images of which samples have lists of one length: the number; a sample with another one is bad.
    pictures: int | None
    #: What the function returns, where it differs from what it takes.
    returns: Returns | None
    #: For tensor: the shape of one sample; [] for a number. With `max_rows`, the shape of a row.
    shape: Sequence[int] | None
    #: The digest of the source of the function in Python. Set when the job is created.
    source_digest: str | None
    #: For boxes: how the field stores them.
    stored_as: Literal["voc", "coco", "xyxy", "xywh", "cxcywh"] | None
    #: What makes the value: a function or a class in Python, `package.module:function`, or a function in Rust, `module::function@version`.
    transform: str | Callable[..., Any]


class _NormaliseRequired(TypedDict):
    #: Mean of each channel, in 0..1.
    mean: Sequence[float]
    #: Standard deviation of each channel, in 0..1; not zero.
    std: Sequence[float]


class Normalise(_NormaliseRequired, total=False):
    """Per-channel normalisation: `(value / 255 - mean) / std`."""

    pass


class Operations(TypedDict, total=False):
    """An operation: one of these keys."""

    #: Crops to the sample's bounding box, as the record's VOC annotation gives it.
    crop_box: CropBox | str
    #: Crops a random rectangle and resizes it (Szegedy et al., CVPR 2015; torchvision's sampling).
    random_resized_crop: RandomResizedCrop | int | Sequence[int]
    #: Resizes: one number gives the shorter side and keeps the aspect ratio, two give height and width.
    resize: Resize | int | Sequence[int]
    #: Cuts the middle out; a picture that is smaller is padded with zeros.
    center_crop: CenterCrop | int | Sequence[int]
    #: Mirrors left to right.
    random_flip: RandomFlip | float
    #: Mixes the picture with several that random chains of operations make of it (Hendrycks et al., ICLR 2020; torchvision's operations).
    aug_mix: AugMix | int
    #: Changes brightness, contrast, saturation and hue by random factors, in random order.
    color_jitter: ColorJitter | float | Sequence[float] | None
    #: Cuts out the corners, top left, top right, bottom left and bottom right, and the middle: five pictures of one, for evaluation. It has to be the last operation.
    five_crop: FiveCrop | int | Sequence[int]
    #: Blurs the picture with a random standard deviation.
    gaussian_blur: GaussianBlur | int
    grayscale: dict[str, Any]
    #: Resizes the picture so that it fits, and pads what is left, half on each side.
    letterbox: Letterbox | int | Sequence[int]
    #: Pads the picture.
    pad: Pad | int | Sequence[int]
    #: Applies random operations of one strength (Cubuk et al., NeurIPS 2020; torchvision's operations).
    rand_augment: RandAugment | int
    #: Sharpens or blurs the picture.
    random_adjust_sharpness: RandomAdjustSharpness | float
    #: Rotates, moves, scales and shears the picture round its middle, by random amounts.
    random_affine: RandomAffine | float | Sequence[float]
    #: Applies several operations, all or none.
    random_apply: RandomApply | Sequence[Literal["crop_box", "random_flip", "aug_mix", "color_jitter", "grayscale", "rand_augment", "random_autocontrast", "random_equalize", "random_erasing", "random_grayscale", "random_invert", "random_perspective", "random_vertical_flip", "trivial_augment_wide"] | Operations]
    #: Stretches each channel, so that its least value becomes 0 and its greatest one 255.
    random_autocontrast: RandomAutocontrast | float
    #: Applies one of several operations.
    random_choice: RandomChoice | Sequence[Literal["crop_box", "random_flip", "aug_mix", "color_jitter", "grayscale", "rand_augment", "random_autocontrast", "random_equalize", "random_erasing", "random_grayscale", "random_invert", "random_perspective", "random_vertical_flip", "trivial_augment_wide"] | Operations]
    #: Cuts a rectangle out at a random place.
    random_crop: RandomCrop | int | Sequence[int]
    #: Equalizes the histogram of each channel.
    random_equalize: RandomEqualize | float
    #: Erases a random rectangle (Zhong et al., AAAI 2020; torchvision's sampling).
    random_erasing: RandomErasing | float
    #: Makes the picture grey; it still has three channels, which are equal.
    random_grayscale: RandomGrayscale | float
    #: Inverts the values: 255 minus each.
    random_invert: RandomInvert | float
    #: Moves the corners of the picture inwards by random amounts.
    random_perspective: RandomPerspective | float
    #: Keeps the highest bits of each value.
    random_posterize: RandomPosterize | int
    #: Rotates the picture by a random angle.
    random_rotation: RandomRotation | float | Sequence[float]
    #: Inverts all values of at least `threshold`.
    random_solarize: RandomSolarize | float
    #: Mirrors top to bottom.
    random_vertical_flip: RandomVerticalFlip | float
    #: Cuts out what `five_crop` does, and then the same of the mirrored picture: ten pictures of one, for evaluation. It has to be the last operation.
    ten_crop: TenCrop | int | Sequence[int]
    #: Applies one random operation of random strength (Müller and Hutter, ICCV 2021; torchvision's operations).
    trivial_augment_wide: TrivialAugmentWide | int


class CropBox(TypedDict, total=False):
    """Crops to the sample's bounding box, as the record's VOC annotation gives it."""

    #: Field that holds the annotation.
    field: str
    #: Widens the box on each side by this fraction of its size.
    margin: float


class _RandomResizedCropRequired(TypedDict):
    #: Size of the result.
    size: int | Sequence[int]


class RandomResizedCrop(_RandomResizedCropRequired, total=False):
    """Crops a random rectangle and resizes it (Szegedy et al., CVPR 2015; torchvision's sampling)."""

    #: Whether the weights of a picture that becomes smaller take in all of its pixels.
    antialias: bool
    #: Whether a JPEG is decoded in full size before it is resized, as torchvision does.
    full_decode: bool
    #: How pixels are weighted.
    interpolation: Literal["nearest", "bilinear", "bicubic", "lanczos", "box", "hamming"]
    #: Range of the crop's aspect ratio (width / height).
    ratio: Sequence[float]
    #: Range of the crop's area as a fraction of the picture's.
    scale: Sequence[float]


class _ResizeRequired(TypedDict):
    #: Size of the result.
    size: int | Sequence[int]


class Resize(_ResizeRequired, total=False):
    """Resizes: one number gives the shorter side and keeps the aspect ratio, two give height and width."""

    #: Whether the weights of a picture that becomes smaller take in all of its pixels.
    antialias: bool
    #: Whether a JPEG is decoded in full size before it is resized, as torchvision does.
    full_decode: bool
    #: How pixels are weighted.
    interpolation: Literal["nearest", "bilinear", "bicubic", "lanczos", "box", "hamming"]


class _CenterCropRequired(TypedDict):
    #: Size of the result.
    size: int | Sequence[int]


class CenterCrop(_CenterCropRequired, total=False):
    """Cuts the middle out; a picture that is smaller is padded with zeros."""

    pass


class RandomFlip(TypedDict, total=False):
    """Mirrors left to right."""

    #: Probability.
    p: float


class AugMix(TypedDict, total=False):
    """Mixes the picture with several that random chains of operations make of it (Hendrycks et al., ICLR 2020; torchvision's"""

    #: Whether brightness, saturation, contrast and sharpness are among the operations.
    all_ops: bool
    #: Parameter of the distributions of the weights: the smaller, the more does one of the pictures prevail.
    alpha: float
    #: Operations of a chain; -1 draws 1 to 3 for each.
    chain_depth: int
    #: Colour of what lies beyond the picture. Default: black, which bilinear interpolation blends with as with pixels.
    fill: int | Sequence[int] | None
    #: How values between pixels are made.
    interpolation: Literal["nearest", "bilinear"]
    #: Number of chains.
    mixture_width: int
    #: The greatest strength of an operation, 1 to 10.
    severity: int


class ColorJitter(TypedDict, total=False):
    """Changes brightness, contrast, saturation and hue by random factors, in random order."""

    #: Range of the factor of the brightness; a number `n` is 1 - n to 1 + n. Default: not changed.
    brightness: float | Sequence[float] | None
    #: Range of the factor of the contrast; a number `n` is 1 - n to 1 + n. Default: not changed.
    contrast: float | Sequence[float] | None
    #: Range of the turn of the hue, -0.5 to 0.5; a number `n` is -n to n. Default: not changed.
    hue: float | Sequence[float] | None
    #: Range of the factor of the saturation; a number `n` is 1 - n to 1 + n. Default: not changed.
    saturation: float | Sequence[float] | None


class _FiveCropRequired(TypedDict):
    #: Size of each picture.
    size: int | Sequence[int]


class FiveCrop(_FiveCropRequired, total=False):
    """Cuts out the corners, top left, top right, bottom left and bottom right, and the middle: five pictures of one, for"""

    pass


class _GaussianBlurRequired(TypedDict):
    #: Width and height of the kernel in pixels, odd.
    kernel_size: int


class GaussianBlur(_GaussianBlurRequired, total=False):
    """Blurs the picture with a random standard deviation."""

    #: Standard deviation in pixels, or its range.
    sigma: float | Sequence[float]


class _LetterboxRequired(TypedDict):
    #: Size of the result.
    size: int | Sequence[int]


class Letterbox(_LetterboxRequired, total=False):
    """Resizes the picture so that it fits, and pads what is left, half on each side."""

    #: Whether the weights of a picture that becomes smaller take in all of its pixels.
    antialias: bool
    #: Colour of what is added.
    fill: int | Sequence[int]
    #: Whether a JPEG is decoded in full size before it is resized, as torchvision does.
    full_decode: bool
    #: How pixels are weighted.
    interpolation: Literal["nearest", "bilinear", "bicubic", "lanczos", "box", "hamming"]


class _PadRequired(TypedDict):
    #: Pixels that are added.
    padding: int | Sequence[int]


class Pad(_PadRequired, total=False):
    """Pads the picture."""

    #: Colour of what is added.
    fill: int | Sequence[int]
    #: What is added.
    padding_mode: Literal["constant", "edge", "reflect", "symmetric"]


class RandAugment(TypedDict, total=False):
    """Applies random operations of one strength (Cubuk et al., NeurIPS 2020; torchvision's operations)."""

    #: Colour of what lies beyond the picture. Default: black, which bilinear interpolation blends with as with pixels.
    fill: int | Sequence[int] | None
    #: How values between pixels are made.
    interpolation: Literal["nearest", "bilinear"]
    #: Strength of the operations.
    magnitude: int
    #: Number of different strengths.
    num_magnitude_bins: int
    #: Number of operations that are applied, one after the other.
    num_ops: int


class _RandomAdjustSharpnessRequired(TypedDict):
    #: 0 blurs, 1 changes nothing, 2 sharpens.
    sharpness_factor: float


class RandomAdjustSharpness(_RandomAdjustSharpnessRequired, total=False):
    """Sharpens or blurs the picture."""

    #: Probability.
    p: float


class _RandomAffineRequired(TypedDict):
    #: Range of the angle in degrees, clockwise; a number `n` is -n to n.
    degrees: float | Sequence[float]


class RandomAffine(_RandomAffineRequired, total=False):
    """Rotates, moves, scales and shears the picture round its middle, by random amounts."""

    #: Colour of what lies beyond the picture.
    fill: int | Sequence[int]
    #: How values between pixels are made.
    interpolation: Literal["nearest", "bilinear"]
    #: Range of the factor of the size. Default: none.
    scale: Sequence[float] | None
    #: Range of the shear along the rows in degrees; a number `n` is -n to n. Default: none.
    shear: float | Sequence[float] | None
    #: The farthest move, as fractions of the width and the height. Default: none.
    translate: Sequence[float] | None


class _RandomApplyRequired(TypedDict):
    #: The operations, in order.
    transforms: Sequence[Literal["crop_box", "random_flip", "aug_mix", "color_jitter", "grayscale", "rand_augment", "random_autocontrast", "random_equalize", "random_erasing", "random_grayscale", "random_invert", "random_perspective", "random_vertical_flip", "trivial_augment_wide"] | Operations]


class RandomApply(_RandomApplyRequired, total=False):
    """Applies several operations, all or none."""

    #: Probability.
    p: float


class RandomAutocontrast(TypedDict, total=False):
    """Stretches each channel, so that its least value becomes 0 and its greatest one 255."""

    #: Probability.
    p: float


class _RandomChoiceRequired(TypedDict):
    #: The operations.
    transforms: Sequence[Literal["crop_box", "random_flip", "aug_mix", "color_jitter", "grayscale", "rand_augment", "random_autocontrast", "random_equalize", "random_erasing", "random_grayscale", "random_invert", "random_perspective", "random_vertical_flip", "trivial_augment_wide"] | Operations]


class RandomChoice(_RandomChoiceRequired, total=False):
    """Applies one of several operations."""

    #: How probable each of them is, in proportion. Default: all equally.
    p: Sequence[float] | None


class _RandomCropRequired(TypedDict):
    #: Size of the result.
    size: int | Sequence[int]


class RandomCrop(_RandomCropRequired, total=False):
    """Cuts a rectangle out at a random place."""

    #: Colour of what is added.
    fill: int | Sequence[int]
    #: Whether a picture that is too small is padded; otherwise it is a bad sample.
    pad_if_needed: bool
    #: Pixels that are added before.
    padding: int | Sequence[int]
    #: What is added.
    padding_mode: Literal["constant", "edge", "reflect", "symmetric"]


class RandomEqualize(TypedDict, total=False):
    """Equalizes the histogram of each channel."""

    #: Probability.
    p: float


class RandomErasing(TypedDict, total=False):
    """Erases a random rectangle (Zhong et al., AAAI 2020; torchvision's sampling)."""

    #: Probability.
    p: float
    #: Range of the rectangle's aspect ratio (height / width).
    ratio: Sequence[float]
    #: Range of the rectangle's area as a fraction of the picture's.
    scale: Sequence[float]
    #: Colour of the rectangle.
    value: int | Sequence[int]


class RandomGrayscale(TypedDict, total=False):
    """Makes the picture grey; it still has three channels, which are equal."""

    #: Probability.
    p: float


class RandomInvert(TypedDict, total=False):
    """Inverts the values: 255 minus each."""

    #: Probability.
    p: float


class RandomPerspective(TypedDict, total=False):
    """Moves the corners of the picture inwards by random amounts."""

    #: The farthest move, as a fraction of half the width and height.
    distortion_scale: float
    #: Colour of what lies beyond the picture.
    fill: int | Sequence[int]
    #: How values between pixels are made.
    interpolation: Literal["nearest", "bilinear"]
    #: Probability.
    p: float


class _RandomPosterizeRequired(TypedDict):
    #: Number of bits to keep.
    bits: int


class RandomPosterize(_RandomPosterizeRequired, total=False):
    """Keeps the highest bits of each value."""

    #: Probability.
    p: float


class _RandomRotationRequired(TypedDict):
    #: Range of the angle in degrees, counter-clockwise; a number `n` is -n to n.
    degrees: float | Sequence[float]


class RandomRotation(_RandomRotationRequired, total=False):
    """Rotates the picture by a random angle."""

    #: Whether the result is as large as the rotated picture, and not as large as the picture.
    expand: bool
    #: Colour of what lies beyond the picture.
    fill: int | Sequence[int]
    #: How values between pixels are made.
    interpolation: Literal["nearest", "bilinear"]


class _RandomSolarizeRequired(TypedDict):
    #: The lowest value that is inverted.
    threshold: float


class RandomSolarize(_RandomSolarizeRequired, total=False):
    """Inverts all values of at least `threshold`."""

    #: Probability.
    p: float


class RandomVerticalFlip(TypedDict, total=False):
    """Mirrors top to bottom."""

    #: Probability.
    p: float


class _TenCropRequired(TypedDict):
    #: Size of each picture.
    size: int | Sequence[int]


class TenCrop(_TenCropRequired, total=False):
    """Cuts out what `five_crop` does, and then the same of the mirrored picture: ten pictures of one, for evaluation. It has"""

    #: Whether top and bottom are exchanged, rather than left and right.
    vertical_flip: bool


class TrivialAugmentWide(TypedDict, total=False):
    """Applies one random operation of random strength (Müller and Hutter, ICCV 2021; torchvision's operations)."""

    #: Colour of what lies beyond the picture. Default: black, which bilinear interpolation blends with as with pixels.
    fill: int | Sequence[int] | None
    #: How values between pixels are made.
    interpolation: Literal["nearest", "bilinear"]
    #: Number of different strengths.
    num_magnitude_bins: int


class Returns(TypedDict, total=False):
    """The `returns` table of a column in a job file: what differs from what the function takes."""

    #: Type of the elements.
    dtype: Literal["u8", "i32", "i64", "f16", "bf16", "f32", "f64", "i8", "u16", "i16", "u32", "u64", "bool"] | None
    #: For a bytes column without a shape: the most bytes of one sample.
    max_bytes: int | None
    #: For arrays whose first dimension differs: the most rows of one sample; `shape` is that of a row.
    max_rows: int | None
    #: Shape of the array; empty for a scalar.
    shape: Sequence[int] | None


class _FunctionRequired(TypedDict):
    #: A function or a class in Python, `package.module:function`, or a function in Rust, `module::function@version`.
    call: str | Callable[..., Any]
    #: The columns that it returns, by name; one that it takes too is replaced in the batch.
    returns: Sequence[Returned]


class Function(_FunctionRequired, total=False):
    """One `[[function]]` of a job file."""

    #: Arguments of the function or the class, by name.
    arguments: dict[str, Any] | None
    #: Columns of the job that it takes as they are decoded.
    columns: Sequence[str]
    #: Fields of the record that it takes as they are stored, as bytes.
    fields: Sequence[str]
    #: The most bytes of a field; a longer one is a bad sample.
    max_bytes: int | None
    #: The digest of the source of the function in Python. Set when the job is created.
    source_digest: str | None


class _ReturnedRequired(TypedDict):
    #: Name in the batch.
    name: str


class Returned(_ReturnedRequired, total=False):
    """One of the columns that a function returns."""

    #: Type of the elements.
    dtype: Literal["u8", "i32", "i64", "f16", "bf16", "f32", "f64", "i8", "u16", "i16", "u32", "u64", "bool"] | None
    #: For bytes: the most of one sample.
    max_bytes: int | None
    #: For arrays whose first dimension differs: the most rows of one sample.
    max_rows: int | None
    #: Shape of the array; empty for a scalar. With `max_rows`, of a row.
    shape: Sequence[int] | None


class Mix(TypedDict, total=False):
    """How samples are mixed in pairs: `mixup`, `cutmix` or either of them."""

    #: The names of the columns that are mixed; if they are not given, all of decode = "image" and "one_hot".
    columns: Sequence[str] | None
    #: Parameter alpha of the Beta distribution of the share that a sample keeps in cutmix; without it there is no cutmix.
    cutmix: float | None
    #: The probability that a mixed sample gets cutmix and not mixup, where there are both; 0.5 if it is not given.
    cutmix_p: float | None
    #: Parameter alpha of the Beta distribution of a sample's weight in mixup, 0.01 to 100; without it there is no mixup.
    mixup: float | None
    #: The probability that a sample is mixed; 1 if it is not given.
    p: float | None


class Order(TypedDict, total=False):
    """The `[order]` table of a job file."""

    #: Virtual streams that the dataset is dealt to; a batch takes the same number of samples from each.
    lanes: int | None
    #: Consecutive samples of a lane that are shuffled among themselves.
    window: int | None


class View(TypedDict, total=False):
    """The samples that a job delivers: those for which every key that is given holds."""

    #: The part that is left out, from 0.
    except_fold: int | None
    #: The number of samples that are kept, in the order of the dataset.
    first: int | None
    #: The part that is kept, from 0.
    fold: int | None
    #: The number of parts of about equal size, from 2, that records are divided into by a hash of seed and key.
    folds: int | None
    #: The fraction of the records that is kept, above 0 and at most 1, chosen by a hash of seed and key.
    fraction: float | None
    #: A file with the keys of the records that are kept, one on each line.
    keys: str | None
    #: The fingerprint of the samples that are kept. Set when the job is created.
    samples: str | None
    #: Seed of `fraction` and `folds`.
    seed: int
    #: The field, or `key`, of whose records with the same value only the first is kept.
    unique: str | None
    #: What is true of the records that are kept, such as "width >= 256 and split == 'train'".
    where: str | None
