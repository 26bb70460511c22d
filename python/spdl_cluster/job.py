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
    #: Samples of one step over all ranks, 1 to 16777216; each rank gets an even share. With `sequence`, a sample is a sequence.
    global_batch: int
    #: The name by which trainers ask for the job: 1 to 128 of `A-Z a-z 0-9 . _ -`.
    name: str


class Job(_JobRequired, total=False):
    """A job file: what is delivered, in which order, and as which arrays. Every key is explained in `docs/reference/job.md`."""

    #: What happens to a sample that does not decode or lacks a field. Default: `substitute`; `mask` for an evaluation, which is one epoch with `shuffle = false` that delivers every sample, and with `sequence`.
    bad_samples: Literal["substitute", "mask", "fail"] | None
    #: The columns of a batch, in order, each in a table `[[column]]`. With those that functions add, a job has 1 to 64 of them. Default: none, which needs a `function`.
    column: Sequence[Column]
    #: What a sample costs a trainer, by which the samples of a global batch are dealt to ranks: by the tokens of sequences, the pixels of pictures, the seconds of sounds or a field. Each rank gets as many as without it, the steps of ranks take about the same time, and no global batch changes. Default: none; ranks get what lies together.
    cost: Literal["tokens", "tokens^2", "pixels", "seconds"] | CostTable | None
    #: The folder or URL that `spdl-ctl pack` or `spdl-ctl index` wrote: a path, or `s3://`, `gs://`, `az://`, `http://`, `https://`, `hf://`. A relative path starts at the folder of the job file. Passwords do not belong here: credentials come from the environment of the store's client. Default: none, which needs `source`.
    dataset: str | os.PathLike[str]
    #: What happens when fewer samples than a global batch are left in an epoch. Default: `drop`; `partial` for one epoch with `shuffle = false`.
    epoch_end: Literal["drop", "pad", "continuous", "exact", "partial"] | None
    #: How often the job goes through the dataset, at least once.
    epochs: int
    #: Functions of the user's that take several values of a sample and return several columns, each in a table `[[function]]`. Default: none.
    function: Sequence[Function]
    #: The job fails when more of the dataset's samples than this fraction are bad, 0 to 1. Default: 0.001, and at least ten samples.
    max_bad_fraction: float | None
    #: How samples are mixed in pairs, as in mixup and cutmix. Default: they are not mixed.
    mix: Mix | None
    #: How well samples are shuffled, against what it costs to read them. Default: chosen for the dataset when the job is created.
    order: Order | None
    #: Samples that do not come any more from a sample of the training on, each list in a table `[[redaction]]`, in the order of `from`: what `spdl-ctl job redact` has made of the job, so that the file alone gives the same batches. Default: none, and a job that is there keeps its own.
    redaction: Sequence[Redaction]
    #: Decides the order and every random crop and flip.
    seed: int
    #: How documents of tokens are packed into sequences of one length. Default: they are not; each document is a sample.
    sequence: Sequences | None
    #: Whether samples are shuffled. If not, they come in the order of the manifest.
    shuffle: bool
    #: Several datasets that are blended by their weights, each in a table `[[source]]`, in place of `dataset`: 1 to 64. Default: none.
    source: Sequence[Source]
    #: For jobs with `source`: other weights of the sources from a sample of the training on, each in a table `[[stage]]`, in the order of `from`: at most 64. It needs `total_samples` or `total_tokens`. Default: none; the weights stay.
    stage: Sequence[SourceStage]
    #: For jobs with `source`: the number of samples of an epoch, at least 1. For jobs of one `dataset`: the number of samples, over all epochs, after which the run ends, with the last whole batch; it takes the place of `epochs`. Default: with `source`, as many as come until the first source has given all of its samples; of one `dataset`, its samples times `epochs`.
    total_samples: int | None
    #: For jobs with `sequence`, in place of `total_samples`: the number of tokens, counted as places of sequences, after which the run ends; with `source`, those of an epoch. It is at least `seq_len`. Default: none; see `total_samples`.
    total_tokens: int | None
    #: Which samples of the dataset are delivered. Default: all.
    view: View | None


_ColumnKeywords = TypedDict("_ColumnKeywords", {"from": "str | None"}, total=False)


class _ColumnRequired(_ColumnKeywords):
    #: The kind of the column: how the field becomes an array.
    decode: Literal["image", "int", "json", "bytes", "box_class", "tensor", "float", "text", "category", "mask", "boxes", "box_labels", "one_hot", "geometry", "image_size", "bool", "tokens", "labels", "positions", "document_lengths", "document_ids", "loss_mask", "global_lengths", "audio", "audio_length", "audio_rate", "video", "video_times", "video_mask", "is_pad"]
    #: The column's name in the batch.
    name: str


class Column(_ColumnRequired, total=False):
    """One `[[column]]` of a job file."""

    #: For image_size: whether it is the size after the operations, which pictures of a ragged column need. Default: `false`.
    after_ops: bool | None
    #: Arguments of the function by name, or of the class when its object is made. Default: none.
    arguments: dict[str, Any] | None
    #: For tensor: the name of the array in an `.npz` file. Default: the only one.
    array: str | None
    #: For image: the colour that shows through transparent pixels. The picture is laid on it before any operation, as Pillow's `alpha_composite` does it, within one level. Default: none; opacity is ignored.
    background: int | Sequence[int] | None
    #: For audio: the channels of the result: `mean` for one channel, the mean of those of the file; `first` for the first one; or their number, 1 to 64, which every file then has to have. Default: `mean`.
    channels: Literal["mean", "first"] | int | None
    #: For int and box_class: those of the dataset's classes that the column has, by name: they get the numbers 0, 1, 2 and so on, in this order. A sample of another class is a bad sample, unless a view leaves it out. Default: all, with the dataset's numbers. For one_hot: the number of classes; or those of the dataset's classes that the column has, by name, in the order of their places. A sample of another class is a bad sample, unless a view leaves it out. Default: the number of `names`.
    classes: Sequence[str] | int | None
    #: For video: which frames of each video are taken, as `{ frames = 16, stride = 4 }`. Only the packets that they need are decoded. Default: none, which is for fields that are frames of videos, as those of LeRobot's datasets: there, a sample has its own frame, or those of `deltas`. Whole videos need it.
    clip: Clip | None
    #: For image: the channels. Default: `rgb`. For video: the channels, `rgb`, `bgr` or `gray`. Default: `rgb`.
    color: Literal["rgb", "bgr", "rgba", "gray", "gray_alpha"] | None
    #: For int, json, float, text, category, one_hot and bool: the value of samples whose field is missing or null, or that have nothing or null at the `path`. Default: none; such a sample is a bad sample.
    default: float | str | bool | None
    #: For int, tensor, float, bool and video: the places of the values that a sample has, counted from its record, for datasets whose records belong to series, such as the frames of an episode: `[-1, 0]`, or `{ from = 0, to = 50 }` for 0 to 49. The value has one more dimension, before all others. A place before or behind the series has the value of its first or last record; `is_pad` says which these are. Default: none; the value of the record.
    deltas: Sequence[int] | DeltaRun | None
    #: For image: the bits of a value. Default: 8 for `u8`, 16 for `u16`, and for floats that of the picture.
    depth: Literal[8, 16, 32] | None
    #: For video: what becomes of a sample whose frame is shown half a frame or more before or behind its time, where fields are frames of videos: `fail` makes it a bad sample, and `nearest` takes the frame that is shown nearest to the time. Default: `fail`.
    drift: Literal["fail", "nearest"] | None
    #: The type of the elements, one of those of the column's kind. Default: the kind's first.
    dtype: Literal["u8", "i32", "i64", "f16", "bf16", "f32", "f64", "i8", "u16", "i16", "u32", "u64", "bool"] | None
    #: For tensor: how the field stores the array. Default: `numpy`.
    encoding: Literal["numpy", "raw"] | None
    #: For audio: features in place of samples, as `{ preset = "kaldi", mels = 80 }`: energies of bands in frames of some 25 ms, as models of speech take them. Needs `rate`, and one channel. Of a segment, the silence behind a short sound is part of it. Default: none; samples.
    features: Features | None
    #: For mask: the name of the `image` column that the mask is of. Required. For boxes: the name of the `image` column that they are of. Required. For box_labels: the name of the `boxes` column. Required. For geometry and image_size: the name of the `image` column that it is of. Required. For labels, positions, document_lengths, document_ids, loss_mask and global_lengths: the name of the `tokens` column. Required. For audio: the name of a `video` column with a `clip`, whose sound it is: the first track of sound in the same file, from when the first frame of the clip is shown until its last one is no longer, or for the length of a `segment`. Default: none; files of sounds. For audio_length and audio_rate: the name of the `audio` column that it is of. Required. For video_times: the name of the `video` column that they are of. Required. For video_mask: the name of the `video` column that it is of. Required. For is_pad: the name of the column with `deltas` that it is of. Required.
    follows: str | None
    #: For boxes: the numbers that give a box in the batch. Default: `xyxy`.
    format: Literal["xyxy", "xywh", "cxcywh"] | None
    #: For mask: the class of the pixels that are beyond the picture, where it was padded or turned. Default: 255.
    ignore_index: int | None
    #: For box_labels: the key of COCO's annotations that has the label, a number or a name. Default: `category_id`.
    key: str | None
    #: For image: the order of the dimensions. Default: `nhwc`. For video: the order of the dimensions of each frame. Default: `nhwc`.
    layout: Literal["nhwc", "nchw"] | None
    #: For labels and loss_mask: the field with one number, or true or false, for each token of a document: 0 or false where the token is not learned. Ids that `bos` and `eos` add are learned as the token beside them. Columns `labels` and `loss_mask` of a job have the same field, or none. Default: none; all tokens are learned.
    loss_from: str | None
    #: For bytes: the length of the longest value, 1 to 1073741824. A longer value is a bad sample. It reserves no memory. Default: 1048576. For text: the length of the longest value in UTF-8, 1 to 1073741824. A longer value is a bad sample. It reserves no memory. Default: 1048576.
    max_bytes: int | None
    #: For image: for a field that is a list of pictures, the most pictures of one sample, 1 to 65536. A sample with more is a bad sample. It reserves no memory. Default: none; samples have one picture. For tensor: for samples that differ in their first dimension, the most rows of one sample. A sample with more is a bad sample. It reserves no memory. Default: none; samples have one shape. For boxes: the most boxes that are left in one sample, 1 to 1048576. A sample with more is a bad sample. It reserves no memory. Required. For tokens: the most ids of one sample, in a job without `sequence`. A sample with more is a bad sample. It reserves no memory. Default: 1048576.
    max_rows: int | None
    #: For audio: the length of the longest sound without `segment`, in seconds of the result, or of 48,000 frames without `rate`. A longer one is a bad sample. It reserves no memory. Default: 60.
    max_seconds: int | None
    #: For boxes: the least width and height of what is left, in pixels of the result, 0 to 16384. Default: 1.
    min_size: float | None
    #: For boxes: the least share of a box's area that has to be left, 0 to 1. Boxes of which less is left are left out. Default: 0.1.
    min_visible: float | None
    #: For category: the names, whose numbers are 0, 1, 2 and so on: 1 to 100000 of them. A sample with another name is a bad sample. Default: the dataset's classes. For box_labels: the names, whose numbers are 0, 1, 2 and so on. A sample with another name is a bad sample. Default: the dataset's classes. For one_hot: the names of the classes, as for category. Default: none; the field holds the number of its class, or the name of one of the dataset's classes.
    names: Sequence[str] | None
    #: For image: for a float type, `(value - mean) / std` of each channel, where values of 8 bits are divided by 255 first. Default: none; values of 8 bits are divided by 255 all the same. For video: for a float type, `(value - mean) / std` of each channel, where values are divided by 255 first. Default: none; values are divided by 255 all the same.
    normalise: Normalise | None
    #: For boxes: whether the numbers are shares of the picture's width and height, and not pixels. Default: `false`.
    normalised: bool | None
    #: For image: the operations from the picture to the array, in order. The last one has to give a fixed size, or `smart_resize` pictures of different sizes, as a ragged column. Required. For audio: the operations, in order: `speed` first, those on samples before those on features. Default: none. For video: the operations from a frame to the array, in order. The last one has to give a fixed size. What is random is drawn once for a clip: all of its frames are changed alike. Required.
    ops: Sequence[Literal["crop_box", "random_flip", "aug_mix", "color_jitter", "grayscale", "rand_augment", "random_autocontrast", "random_equalize", "random_erasing", "random_grayscale", "random_invert", "random_perspective", "random_vertical_flip", "smart_resize", "trivial_augment_wide"] | Operations | SoundOperations]
    #: For int, float, text, category, one_hot and bool: the place of the value in the JSON document that the field then holds: the keys from the root, separated by dots, such as `annotations.0.name`. An index in a list is a number. Default: none; the field itself is the value. For json: the keys from the root to the number, separated by dots, such as `camera.exposure`. An index in a list is a number. Required.
    path: str | None
    #: For image: for a field that is a list of pictures, the number of pictures that each sample has, 1 to 65536. A sample with another number is a bad sample. Default: none; samples have one picture.
    pictures: int | None
    #: For audio: the sample rate of the result, in Hz, 1 to 384000. Files of another rate are resampled, with the filter of `torchaudio.functional.resample`. Default: none; each file keeps its own.
    rate: int | None
    #: What the function returns, where it differs from what it gets. Default: the type and shape that the function gets.
    returns: Returns | None
    #: For audio: the part of each sound that is taken, as `{ seconds = 10.0, pick = "random" }`. Needs `rate`. Of a file of which only a part is wanted, only that part is decoded. Default: none; the whole sound.
    segment: Segment | None
    #: For tensor: the shape of one sample, at most 8 sides; `[]` is a number. With `max_rows`, the shape of a row. An array of another shape is a bad sample, unless it has one dimension and as many elements. Required.
    shape: Sequence[int] | None
    #: For labels: whether the label of a place is the next id, as torchtitan and Megatron take them. If not, it is the id at the place, and the model shifts, as in Transformers; the first label of each document is then -100. Default: `true`.
    shifted: bool | None
    #: The digest of the source of the Python function, if that is found. A worker with another source refuses the job. Default: set when the job is created.
    source_digest: str | None
    #: For audio: the part of each file that is the sound, where files are long recordings of which records name parts, as `{ start = "offset", seconds = "duration" }`: fields with numbers of seconds. What else is said of the sound, such as `segment`, is of this part, and only it is decoded. Default: none; the whole file.
    span: Span | None
    #: For boxes: how the field stores them. Required.
    stored_as: Literal["voc", "coco", "xyxy", "xywh", "cxcywh"] | None
    #: A function in Python, as `package.module:function`, that is called with each decoded value, or a class, whose object is. Or a function in Rust, as `module::function@version`. Default: none.
    transform: str | Callable[..., Any]
    #: For tokens: the number of ids that the tokenizer has, 1 to 2147483648. A sample with an id below 0, or not below this number, is a bad sample. Default: none; a sample with an id that `dtype` cannot hold is a bad sample.
    vocab: int | None


class _ClipRequired(TypedDict):
    #: The number of frames, 1 to 65536; with `pick = "all"` the most that a video may have.
    frames: int


class Clip(_ClipRequired, total=False):
    """The `clip` of a job file."""

    #: The field with the times of the frames, in place of `pick`: numbers of seconds from the beginning of the video, an array or a text as `0.5 1.25 2`. Of each, the frame is taken that is shown then. Default: none.
    at: str | None
    #: Where the clip begins: `random` draws a frame anew for each epoch, `start` is the first one, and `middle` leaves as many before as behind. `uniform` takes frames of the whole video: the middle ones of as many equal spans. `all` takes every frame, or of these every one of a `stride` or `rate`: samples are then as long as their videos. Default: `random`.
    pick: Literal["random", "start", "middle", "uniform", "all"] | None
    #: Frames of the clip in a second of the video, 0.001 to 1000, in place of `stride`: of each so long span of time the frame that is shown in its middle. Rounded to thousandths. Default: none.
    rate: float | None
    #: What becomes of a video that is shorter than the clip: `repeat_last` repeats its last frame, or with `uniform` as many as it takes, and `bad` makes it a bad sample. With `at`, the same for fewer times than frames. Default: `repeat_last`.
    short: Literal["repeat_last", "bad"] | None
    #: `key_frame` takes frames that need no others, which are decoded in a fraction of the time: the clip begins at the last key frame up to the frame where it would begin, and with `uniform` and `at` each of its frames is one. Default: `exact`.
    snap: Literal["exact", "key_frame"] | None
    #: For videos that are folders of pictures: how many of these are a second, 0.001 to 1000, for `rate`, `at` and columns of `video_times`. Files of videos say it themselves. Rounded to thousandths. Default: none.
    source_rate: float | None
    #: How many frames of the video one frame of the clip is behind the one before. Default: 1, unless there is a `rate`.
    stride: int | None


_DeltaRunKeywords = TypedDict("_DeltaRunKeywords", {"from": "int"}, total=True)


class _DeltaRunRequired(_DeltaRunKeywords):
    #: The place behind the last. Required.
    to: int


class DeltaRun(_DeltaRunRequired, total=False):
    """The places from one up to another, which is not among them."""

    pass


class _FeaturesRequired(TypedDict):
    #: Whose features: `whisper` (for 16,000 Hz), `kaldi`, `lhotse` (Kaldi's, of samples from -1 to 1), `nemo`, or `torchaudio`, which is `MelSpectrogram` without a logarithm.
    preset: Literal["whisper", "kaldi", "lhotse", "nemo", "torchaudio"]


class Features(_FeaturesRequired, total=False):
    """The `features` of a job file."""

    #: For `torchaudio`: samples from frame to frame. Default: half of `win_length`.
    hop_length: int | None
    #: The number of bands. Default: 80; for `torchaudio` 128.
    mels: int | None
    #: For `torchaudio`: samples of the transform, an even number without a prime factor above 5. Default: 400.
    n_fft: int | None
    #: For `torchaudio`: 1 for magnitudes, 2 for their squares. Default: 2.
    power: int | None
    #: For `torchaudio`: samples of the window, at most `n_fft`. Default: `n_fft`.
    win_length: int | None


class _NormaliseRequired(TypedDict):
    #: The mean of each channel, in 0 to 1: of red, green and blue, unless there is another `color`. Means of values from 0 to 255, such as 123.675, are refused.
    mean: Sequence[float]
    #: The standard deviation of each channel, in 0 to 1; not zero.
    std: Sequence[float]


class Normalise(_NormaliseRequired, total=False):
    """The mean and the standard deviation of each channel, in the order of the channels."""

    pass


class Operations(TypedDict, total=False):
    """An operation: one of these keys."""

    #: Crops to the sample's bounding box, as its Pascal VOC annotation gives it.
    crop_box: CropBox | str
    #: Crops a random rectangle and resizes it to `size` (Szegedy et al., CVPR 2015; torchvision's sampling).
    random_resized_crop: RandomResizedCrop | int | Sequence[int]
    #: Resizes. One number is the length of the shorter side and keeps the aspect ratio; `[height, width]` is exact.
    resize: Resize | int | Sequence[int]
    #: Cuts out the middle. A smaller picture is padded with zeros.
    center_crop: CenterCrop | int | Sequence[int]
    #: Mirrors left to right.
    random_flip: RandomFlip | float
    #: Mixes the picture with those that `mixture_width` random chains of operations make of it (Hendrycks et al., ICLR 2020; torchvision's operations).
    aug_mix: AugMix | int
    #: Changes brightness, contrast, saturation and hue by random factors, in random order.
    color_jitter: ColorJitter | float | Sequence[float] | None
    #: Cuts out the corners, top left, top right, bottom left and bottom right, and the middle: five pictures of one, for evaluation. It has to be the last operation. A picture that is smaller is a bad sample.
    five_crop: FiveCrop | int | Sequence[int]
    #: Blurs with a kernel of `kernel_size`, which reflects the picture at its border, and a random standard deviation.
    gaussian_blur: GaussianBlur | int
    grayscale: dict[str, Any]
    #: Resizes the picture so that it fits into `size`, and pads what is left, half on each side.
    letterbox: Letterbox | int | Sequence[int]
    #: Adds pixels around the picture.
    pad: Pad | int | Sequence[int]
    #: Applies `num_ops` of 14 operations, drawn anew each, all of strength `magnitude` (Cubuk et al., NeurIPS 2020; torchvision's operations).
    rand_augment: RandAugment | int
    #: Sharpens or smooths the picture.
    random_adjust_sharpness: RandomAdjustSharpness | float
    #: Rotates, moves, scales and shears round the middle, by random amounts.
    random_affine: RandomAffine | float | Sequence[float]
    #: Applies all `transforms` or none of them.
    random_apply: RandomApply | Sequence[Literal["crop_box", "random_flip", "aug_mix", "color_jitter", "grayscale", "rand_augment", "random_autocontrast", "random_equalize", "random_erasing", "random_grayscale", "random_invert", "random_perspective", "random_vertical_flip", "smart_resize", "trivial_augment_wide"] | Operations]
    #: Stretches each channel, so that its least value becomes 0 and its greatest one 255.
    random_autocontrast: RandomAutocontrast | float
    #: Applies one of the `transforms`.
    random_choice: RandomChoice | Sequence[Literal["crop_box", "random_flip", "aug_mix", "color_jitter", "grayscale", "rand_augment", "random_autocontrast", "random_equalize", "random_erasing", "random_grayscale", "random_invert", "random_perspective", "random_vertical_flip", "smart_resize", "trivial_augment_wide"] | Operations]
    #: Pads, then cuts out `size` at a random place. A picture that is smaller is a bad sample, unless `pad_if_needed`.
    random_crop: RandomCrop | int | Sequence[int]
    #: Equalizes the histogram of each channel.
    random_equalize: RandomEqualize | float
    #: Paints a random rectangle (Zhong et al., AAAI 2020; torchvision's sampling).
    random_erasing: RandomErasing | float
    #: Makes the picture grey; it still has three channels, which are equal.
    random_grayscale: RandomGrayscale | float
    #: Subtracts each value from 255.
    random_invert: RandomInvert | float
    #: Moves the corners inwards by random amounts.
    random_perspective: RandomPerspective | float
    #: Keeps the highest `bits` of each value.
    random_posterize: RandomPosterize | int
    #: Rotates round the middle by a random angle, counter-clockwise.
    random_rotation: RandomRotation | float | Sequence[float]
    #: Inverts all values of at least `threshold`.
    random_solarize: RandomSolarize | float
    #: Mirrors top to bottom.
    random_vertical_flip: RandomVerticalFlip | float
    #: Resizes so that both sides are multiples of `factor`, the picture has from `min_pixels` to `max_pixels` pixels, and its aspect ratio changes little: the sizes are those of `smart_resize` in the preprocessors of Qwen-VL. Pictures then differ in size, and the column is ragged, unless a later operation gives one size. A picture more than 200 times as long as it is wide is a bad sample, and one that is nearly that can have more than `max_pixels`.
    smart_resize: SmartResize | int
    #: Cuts out what `five_crop` does, and then the same of the mirrored picture: ten pictures of one, for evaluation. It has to be the last operation. A picture that is smaller is a bad sample.
    ten_crop: TenCrop | int | Sequence[int]
    #: Applies one of the operations of `rand_augment`, of random strength (Müller and Hutter, ICCV 2021; torchvision's operations).
    trivial_augment_wide: TrivialAugmentWide | int


class CropBox(TypedDict, total=False):
    """Crops to the sample's bounding box, as its Pascal VOC annotation gives it."""

    #: The field that holds the annotation.
    field: str
    #: Widens the box on each side by this share of its size, 0 to 10.
    margin: float


class _RandomResizedCropRequired(TypedDict):
    #: Size of the result.
    size: int | Sequence[int]


class RandomResizedCrop(_RandomResizedCropRequired, total=False):
    """Crops a random rectangle and resizes it to `size` (Szegedy et al., CVPR 2015; torchvision's sampling)."""

    #: Whether the weights of a picture that becomes smaller take in all of its pixels. `false`, with `bilinear`, weights only the four pixels around, as OpenCV does. Default: `true`.
    antialias: bool
    #: Whether a JPEG is decoded in full size before it is resized, for torchvision's pixels. Decoding then takes longer: several times where pictures are much larger than the result. Default: `false`.
    full_decode: bool
    #: How pixels are weighted, as in Pillow and torchvision. All but `bilinear` work on the decoded picture or crop, which takes longer: a JPEG is then decoded in full size. Default: `bilinear`.
    interpolation: Literal["nearest", "bilinear", "bicubic", "lanczos", "box", "hamming"]
    #: The range of the crop's aspect ratio, width / height.
    ratio: Sequence[float]
    #: The range of the crop's area, as a share of the picture's.
    scale: Sequence[float]


class _ResizeRequired(TypedDict):
    #: Size of the result.
    size: int | Sequence[int]


class Resize(_ResizeRequired, total=False):
    """Resizes. One number is the length of the shorter side and keeps the aspect ratio; `[height, width]` is exact."""

    #: Whether the weights of a picture that becomes smaller take in all of its pixels. `false`, with `bilinear`, weights only the four pixels around, as OpenCV does. Default: `true`.
    antialias: bool
    #: Whether a JPEG is decoded in full size before it is resized, for torchvision's pixels. Decoding then takes longer: several times where pictures are much larger than the result. Default: `false`.
    full_decode: bool
    #: How pixels are weighted, as in Pillow and torchvision. All but `bilinear` work on the decoded picture or crop, which takes longer: a JPEG is then decoded in full size. Default: `bilinear`.
    interpolation: Literal["nearest", "bilinear", "bicubic", "lanczos", "box", "hamming"]


class _CenterCropRequired(TypedDict):
    #: Size of the result.
    size: int | Sequence[int]


class CenterCrop(_CenterCropRequired, total=False):
    """Cuts out the middle. A smaller picture is padded with zeros."""

    pass


class RandomFlip(TypedDict, total=False):
    """Mirrors left to right."""

    #: Probability.
    p: float


class AugMix(TypedDict, total=False):
    """Mixes the picture with those that `mixture_width` random chains of operations make of it (Hendrycks et al., ICLR 2020; torchvision's operations)."""

    #: Whether brightness, saturation, contrast and sharpness are among the operations.
    all_ops: bool
    #: The parameter of the distributions of the weights, those of Dirichlet: the smaller, the more does one of the pictures prevail.
    alpha: float
    #: The operations of a chain, 1 to 10; -1 draws 1 to 3 for each.
    chain_depth: int
    #: Colour of what lies beyond the picture. Default: black, which bilinear interpolation blends with as with pixels.
    fill: int | Sequence[int] | None
    #: How values between pixels are made.
    interpolation: Literal["nearest", "bilinear"]
    #: The number of chains; each costs as much as its operations.
    mixture_width: int
    #: The greatest strength of an operation.
    severity: int


class ColorJitter(TypedDict, total=False):
    """Changes brightness, contrast, saturation and hue by random factors, in random order."""

    #: The range of the factor of the brightness, 0 to 1000: 0 gives black, and 1 changes nothing. A number `n` is `[1 - n, 1 + n]`, but not below 0. Default: not changed.
    brightness: float | Sequence[float] | None
    #: The range of the factor of the contrast, 0 to 1000: 0 gives the mean grey, and 1 changes nothing. A number `n` is `[1 - n, 1 + n]`, but not below 0. Default: not changed.
    contrast: float | Sequence[float] | None
    #: The range of the turn of the hue, as a part of the circle, -0.5 to 0.5. A number `n` is `[-n, n]`. Default: not changed.
    hue: float | Sequence[float] | None
    #: The range of the factor of the saturation, 0 to 1000: 0 gives the grey picture, and 1 changes nothing. A number `n` is `[1 - n, 1 + n]`, but not below 0. Default: not changed.
    saturation: float | Sequence[float] | None


class _FiveCropRequired(TypedDict):
    #: Size of each picture.
    size: int | Sequence[int]


class FiveCrop(_FiveCropRequired, total=False):
    """Cuts out the corners, top left, top right, bottom left and bottom right, and the middle: five pictures of one, for evaluation. It has to be the last operation. A picture that is smaller is a bad sample."""

    pass


class _GaussianBlurRequired(TypedDict):
    #: The width and height of the kernel in pixels, odd.
    kernel_size: int


class GaussianBlur(_GaussianBlurRequired, total=False):
    """Blurs with a kernel of `kernel_size`, which reflects the picture at its border, and a random standard deviation."""

    #: The standard deviation in pixels, or its range, above 0 and at most 1000.
    sigma: float | Sequence[float]


class _LetterboxRequired(TypedDict):
    #: Size of the result.
    size: int | Sequence[int]


class Letterbox(_LetterboxRequired, total=False):
    """Resizes the picture so that it fits into `size`, and pads what is left, half on each side."""

    #: Whether the weights of a picture that becomes smaller take in all of its pixels. `false`, with `bilinear`, weights only the four pixels around, as OpenCV does. Default: `true`.
    antialias: bool
    #: Colour of what is added.
    fill: int | Sequence[int]
    #: Whether a JPEG is decoded in full size before it is resized, for torchvision's pixels. Decoding then takes longer: several times where pictures are much larger than the result. Default: `false`.
    full_decode: bool
    #: How pixels are weighted, as in Pillow and torchvision. All but `bilinear` work on the decoded picture or crop, which takes longer: a JPEG is then decoded in full size. Default: `bilinear`.
    interpolation: Literal["nearest", "bilinear", "bicubic", "lanczos", "box", "hamming"]


class _PadRequired(TypedDict):
    #: The pixels to add.
    padding: int | Sequence[int]


class Pad(_PadRequired, total=False):
    """Adds pixels around the picture."""

    #: Colour of what is added.
    fill: int | Sequence[int]
    #: What is added.
    padding_mode: Literal["constant", "edge", "reflect", "symmetric"]


class RandAugment(TypedDict, total=False):
    """Applies `num_ops` of 14 operations, drawn anew each, all of strength `magnitude` (Cubuk et al., NeurIPS 2020; torchvision's operations)."""

    #: Colour of what lies beyond the picture. Default: black, which bilinear interpolation blends with as with pixels.
    fill: int | Sequence[int] | None
    #: How values between pixels are made.
    interpolation: Literal["nearest", "bilinear"]
    #: The strength, below `num_magnitude_bins`.
    magnitude: int
    #: The number of strengths, 2 to 1000.
    num_magnitude_bins: int
    #: The number of operations, which are applied one after the other.
    num_ops: int


class _RandomAdjustSharpnessRequired(TypedDict):
    #: 0 smooths, 1 changes nothing, 2 sharpens.
    sharpness_factor: float


class RandomAdjustSharpness(_RandomAdjustSharpnessRequired, total=False):
    """Sharpens or smooths the picture."""

    #: Probability.
    p: float


class _RandomAffineRequired(TypedDict):
    #: The range of the angle in degrees, clockwise, -3600 to 3600. A number `n` is `[-n, n]`.
    degrees: float | Sequence[float]


class RandomAffine(_RandomAffineRequired, total=False):
    """Rotates, moves, scales and shears round the middle, by random amounts."""

    #: Colour of what lies beyond the picture.
    fill: int | Sequence[int]
    #: How values between pixels are made.
    interpolation: Literal["nearest", "bilinear"]
    #: The range of the factor of the size, 0.001 to 1000. Default: none.
    scale: Sequence[float] | None
    #: The range of the shear along the rows, in degrees, -89 to 89. A number `n` is `[-n, n]`. Default: none.
    shear: float | Sequence[float] | None
    #: The farthest move, as shares of the width and the height, 0 to 1. Default: none.
    translate: Sequence[float] | None


class _RandomApplyRequired(TypedDict):
    #: The operations, in order, nested up to 4 deep; not `crop_box`, `five_crop` and `ten_crop`.
    transforms: Sequence[Literal["crop_box", "random_flip", "aug_mix", "color_jitter", "grayscale", "rand_augment", "random_autocontrast", "random_equalize", "random_erasing", "random_grayscale", "random_invert", "random_perspective", "random_vertical_flip", "smart_resize", "trivial_augment_wide"] | Operations]


class RandomApply(_RandomApplyRequired, total=False):
    """Applies all `transforms` or none of them."""

    #: Probability.
    p: float


class RandomAutocontrast(TypedDict, total=False):
    """Stretches each channel, so that its least value becomes 0 and its greatest one 255."""

    #: Probability.
    p: float


class _RandomChoiceRequired(TypedDict):
    #: The operations, nested up to 4 deep; not `crop_box`, `five_crop` and `ten_crop`.
    transforms: Sequence[Literal["crop_box", "random_flip", "aug_mix", "color_jitter", "grayscale", "rand_augment", "random_autocontrast", "random_equalize", "random_erasing", "random_grayscale", "random_invert", "random_perspective", "random_vertical_flip", "smart_resize", "trivial_augment_wide"] | Operations]


class RandomChoice(_RandomChoiceRequired, total=False):
    """Applies one of the `transforms`."""

    #: How probable each of the `transforms` is, in proportion. Default: all equally.
    p: Sequence[float] | None


class _RandomCropRequired(TypedDict):
    #: Size of the result.
    size: int | Sequence[int]


class RandomCrop(_RandomCropRequired, total=False):
    """Pads, then cuts out `size` at a random place. A picture that is smaller is a bad sample, unless `pad_if_needed`."""

    #: Colour of what is added.
    fill: int | Sequence[int]
    #: Whether a picture that is smaller than `size` is padded on both sides by what it lacks.
    pad_if_needed: bool
    #: The pixels to add before. Default: 0.
    padding: int | Sequence[int]
    #: What is added.
    padding_mode: Literal["constant", "edge", "reflect", "symmetric"]


class RandomEqualize(TypedDict, total=False):
    """Equalizes the histogram of each channel."""

    #: Probability.
    p: float


class RandomErasing(TypedDict, total=False):
    """Paints a random rectangle (Zhong et al., AAAI 2020; torchvision's sampling)."""

    #: Probability.
    p: float
    #: The range of the rectangle's aspect ratio, height / width.
    ratio: Sequence[float]
    #: The range of the rectangle's area, as a share of the picture's, 0 to 1.
    scale: Sequence[float]
    #: Colour of the rectangle.
    value: int | Sequence[int]


class RandomGrayscale(TypedDict, total=False):
    """Makes the picture grey; it still has three channels, which are equal."""

    #: Probability.
    p: float


class RandomInvert(TypedDict, total=False):
    """Subtracts each value from 255."""

    #: Probability.
    p: float


class RandomPerspective(TypedDict, total=False):
    """Moves the corners inwards by random amounts."""

    #: The farthest move of a corner, as a share of half the width and height.
    distortion_scale: float
    #: Colour of what lies beyond the picture.
    fill: int | Sequence[int]
    #: How values between pixels are made.
    interpolation: Literal["nearest", "bilinear"]
    #: Probability.
    p: float


class _RandomPosterizeRequired(TypedDict):
    #: The number of bits to keep.
    bits: int


class RandomPosterize(_RandomPosterizeRequired, total=False):
    """Keeps the highest `bits` of each value."""

    #: Probability.
    p: float


class _RandomRotationRequired(TypedDict):
    #: The range of the angle in degrees, counter-clockwise, -3600 to 3600. A number `n` is `[-n, n]`.
    degrees: float | Sequence[float]


class RandomRotation(_RandomRotationRequired, total=False):
    """Rotates round the middle by a random angle, counter-clockwise."""

    #: Whether the result is as large as the rotated picture needs, and not as large as the picture.
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


class SmartResize(TypedDict, total=False):
    """Resizes so that both sides are multiples of `factor`, the picture has from `min_pixels` to `max_pixels` pixels, and its aspect ratio changes little: the sizes are those of `smart_resize` in the preprocessors of Qwen-VL. Pictures then differ in size, and the column is ragged, unless a later operation gives one size. A picture more than 200 times as long as it is wide is a bad sample, and one that is nearly that can have more than `max_pixels`."""

    #: Whether the weights of a picture that becomes smaller take in all of its pixels. `false`, with `bilinear`, weights only the four pixels around, as OpenCV does. Default: `true`.
    antialias: bool
    #: What both sides are multiples of: the pixels of a patch times the patches that are merged in a row.
    factor: int
    #: Whether a JPEG is decoded in full size before it is resized, for torchvision's pixels. Decoding then takes longer: several times where pictures are much larger than the result. Default: `false`.
    full_decode: bool
    #: How pixels are weighted, as in Pillow and torchvision. All but `bilinear` work on the decoded picture or crop, which takes longer: a JPEG is then decoded in full size. Default: `bilinear`.
    interpolation: Literal["nearest", "bilinear", "bicubic", "lanczos", "box", "hamming"]
    #: The most pixels of a result, 268435456 at most.
    max_pixels: int
    #: The fewest pixels of a result.
    min_pixels: int


class _TenCropRequired(TypedDict):
    #: Size of each picture.
    size: int | Sequence[int]


class TenCrop(_TenCropRequired, total=False):
    """Cuts out what `five_crop` does, and then the same of the mirrored picture: ten pictures of one, for evaluation. It has to be the last operation. A picture that is smaller is a bad sample."""

    #: Whether the mirrored picture has top and bottom exchanged, rather than left and right.
    vertical_flip: bool


class TrivialAugmentWide(TypedDict, total=False):
    """Applies one of the operations of `rand_augment`, of random strength (Müller and Hutter, ICCV 2021; torchvision's operations)."""

    #: Colour of what lies beyond the picture. Default: black, which bilinear interpolation blends with as with pixels.
    fill: int | Sequence[int] | None
    #: How values between pixels are made.
    interpolation: Literal["nearest", "bilinear"]
    #: The number of strengths, 2 to 1000.
    num_magnitude_bins: int


class SoundOperations(TypedDict, total=False):
    """An operation: one of these keys."""

    #: Gives random runs of bands of the features one value in all frames, as *SpecAugment* does.
    frequency_mask: FrequencyMask | int
    #: Makes the samples louder or quieter by a random number of decibels. Nothing is clipped.
    gain: Gain | float | Sequence[float]
    #: Adds noise at a random distance from the sound: white noise, or a random recording of a dataset. Silence stays silent.
    noise: Noise | float | Sequence[float]
    #: Gives the sound a random room: it is convolved with an impulse response of a dataset, which is scaled to an energy of 1 and begins at its strongest sample, so that what is said stays as loud and in its place. What sounds on behind the end is cut off.
    reverb: Reverb | str
    #: Plays the sound at a random speed, as `torchaudio.functional.speed` does: at 1.1 it is shorter and higher. The file is resampled once, to its new rate and speed.
    speed: Speed | Sequence[float]
    #: Gives random runs of frames of the features one value, as *SpecAugment* does.
    time_mask: TimeMask | int


class _FrequencyMaskRequired(TypedDict):
    #: The most bands of a run: its width is drawn from 0 to it, and then its place.
    bands: int


class FrequencyMask(_FrequencyMaskRequired, total=False):
    """Gives random runs of bands of the features one value in all frames, as *SpecAugment* does."""

    #: The number of runs, which can lie on each other.
    count: int
    #: The value. Default: none; the mean of the sample's features.
    value: float | None


class _GainRequired(TypedDict):
    #: The decibels, drawn from `[low, high]`; a number is the range from its negative to itself.
    decibels: float | Sequence[float]


class Gain(_GainRequired, total=False):
    """Makes the samples louder or quieter by a random number of decibels. Nothing is clipped."""

    #: Probability.
    p: float


class _NoiseRequired(TypedDict):
    #: How much weaker the noise is than the sound, in decibels of energy, or its range: the signal-to-noise ratio.
    snr: float | Sequence[float]


class Noise(_NoiseRequired, total=False):
    """Adds noise at a random distance from the sound: white noise, or a random recording of a dataset. Silence stays silent."""

    #: A dataset of noises, of which each sample gets a random one, from a random place on: a longer one is cut, and a shorter one repeated. Default: none; white noise.
    dataset: str | SoundDataset | None
    #: Probability.
    p: float


_SoundDatasetKeywords = TypedDict("_SoundDatasetKeywords", {"from": "str | None"}, total=False)


class _SoundDatasetRequired(_SoundDatasetKeywords):
    #: The folder or URL that `spdl-ctl index` or `spdl-ctl pack` wrote. A relative path starts at the folder of the job file.
    url: str


class SoundDataset(_SoundDatasetRequired, total=False):
    """A dataset whose recordings an operation takes. A text stands for a table with `url` alone."""

    #: The fingerprint of the dataset. Default: set when the job is created.
    fingerprint: str | None
    #: The number of its samples. Default: set when the job is created.
    samples: int | None


class _ReverbRequired(TypedDict):
    #: A dataset of impulse responses, of which each sample gets a random one: of at most 960,000 samples at the rate of the sound.
    dataset: str | SoundDataset


class Reverb(_ReverbRequired, total=False):
    """Gives the sound a random room: it is convolved with an impulse response of a dataset, which is scaled to an energy of 1 and begins at its strongest sample, so that what is said stays as loud and in its place. What sounds on behind the end is cut off."""

    #: Probability.
    p: float


class _SpeedRequired(TypedDict):
    #: The speeds, one of which is drawn: 0.25 to 4, with up to three decimals.
    factors: Sequence[float]


class Speed(_SpeedRequired, total=False):
    """Plays the sound at a random speed, as `torchaudio.functional.speed` does: at 1.1 it is shorter and higher. The file is resampled once, to its new rate and speed."""

    pass


class _TimeMaskRequired(TypedDict):
    #: The most frames of a run: its width is drawn from 0 to it, and then its place.
    frames: int


class TimeMask(_TimeMaskRequired, total=False):
    """Gives random runs of frames of the features one value, as *SpecAugment* does."""

    #: The number of runs, which can lie on each other.
    count: int
    #: The value. Default: none; the mean of the sample's features.
    value: float | None


class Returns(TypedDict, total=False):
    """The `returns` table of a column in a job file: what differs from what the function takes."""

    #: The type of the elements. Default: the column's.
    dtype: Literal["u8", "i32", "i64", "f16", "bf16", "f32", "f64", "i8", "u16", "i16", "u32", "u64", "bool"] | None
    #: For a `bytes` column without `shape`: the length of the longest value that the function returns. Default: the column's.
    max_bytes: int | None
    #: For an array whose first dimension differs: the most rows that the function returns. `shape` is that of a row. Default: as what the function gets.
    max_rows: int | None
    #: The shape of the array; `[]` is a number. Default: the shape that the function gets.
    shape: Sequence[int] | None


class _SegmentRequired(TypedDict):
    #: Its length, in seconds: rounded to frames of `rate`.
    seconds: float


class Segment(_SegmentRequired, total=False):
    """The `segment` of a job file."""

    #: Where it begins: `random` draws a frame anew for each epoch, `start` is the first one, and `middle` leaves as much before as behind. Default: `random`; the sound of a clip begins with the clip.
    pick: Literal["random", "start", "middle"] | None


class Span(TypedDict, total=False):
    """The `span` of a job file: fields of the record, numbers of seconds."""

    #: The field that says how long the sound is; an empty text says that it goes on to the end of the file. Default: none; the end of the file.
    seconds: str | None
    #: The field that says where the sound begins in the file; an empty text says that it begins with the file. Default: none; the beginning of the file.
    start: str | None


class CostTable(TypedDict, total=False):
    """What a sample costs a trainer: `linear` times its size and `quadratic` times the square of its size. The size of a sequence is its tokens, and the squares are those of its documents."""

    #: For other sizes than tokens: the number of global batches, 2 to 4096, whose samples are sorted by size, so that those of one batch are of like size and take less padding; the batches then come in random order. Default: none; samples come as they are shuffled.
    bucket: int | None
    #: The field of the records whose number is the size of a sample, such as `duration`; or `json.duration`, a member of a field with a JSON document. Default: none; the size is `of` something.
    field: str | None
    #: The cost of a token, a pixel, a millisecond, or 1 of a field, 0 to 65535. A layer of a transformer takes about 12 times its width, in units of `quadratic = 1`. Default: 0; 1 for other sizes than tokens without `quadratic`.
    linear: int
    #: What the size of a sample is. Default: `tokens`, of jobs with `sequence`; not with `field`.
    of: Literal["tokens", "pixels", "seconds"] | None
    #: The cost of a pair of these, of tokens of one document, 0 to 65535. Default: 0.
    quadratic: int
    #: For `field`: by what its numbers are multiplied before they are rounded to whole ones, 1 to 1000000: 1000 for seconds with a fraction. Default: 1.
    scale: int | None
    #: The fingerprint of the sizes of all samples, which `spdl-ctl plan` prints. Default: set when the job is created.
    sizes: str | None
    #: The number of neighbouring ranks that share their samples among themselves, such as the ranks of a node, at least 1: samples then stay on the node that reads them without `cost`, and steps are less even. Default: all ranks.
    within: int | None


class _FunctionRequired(TypedDict):
    #: The function, or a class, in Python, as `package.module:function`. Or a function in Rust, as `module::function@version`.
    call: str | Callable[..., Any]
    #: The columns that it returns.
    returns: Sequence[Returned]


class Function(_FunctionRequired, total=False):
    """One `[[function]]` of a job file: a function that takes several fields or columns of a sample, or returns several columns."""

    #: Arguments of the function by name, or of the class when its object is made. Default: none.
    arguments: dict[str, Any] | None
    #: The columns of the job that it takes as they are decoded. They may not have a `transform`. Default: none.
    columns: Sequence[str]
    #: The fields that it takes as they are stored, as bytes. `jpg|png` is the first that the record has, under this name. Default: none.
    fields: Sequence[str]
    #: The length of the longest field that it takes. A longer one is a bad sample. Default: 16777216.
    max_bytes: int | None
    #: The digest of the source of the Python function, if that is found. A worker with another source refuses the job. Default: set when the job is created.
    source_digest: str | None


class _ReturnedRequired(TypedDict):
    #: The name in the batch. A column in `columns` is replaced, and the others are added after those of the job file.
    name: str


class Returned(_ReturnedRequired, total=False):
    """One of the columns that a function returns."""

    #: The type of the elements. Default: that of the column of this name in `columns`.
    dtype: Literal["u8", "i32", "i64", "f16", "bf16", "f32", "f64", "i8", "u16", "i16", "u32", "u64", "bool"] | None
    #: For bytes: the length of the longest value. Default: that of the column of this name in `columns`.
    max_bytes: int | None
    #: For an array whose first dimension differs: the most rows. Default: that of the column of this name in `columns`.
    max_rows: int | None
    #: The shape of the array; `[]` is a number. With `max_rows`, that of a row. Default: that of the column of this name in `columns`.
    shape: Sequence[int] | None


class Mix(TypedDict, total=False):
    """How samples are mixed in pairs, as torchvision's `MixUp` and `CutMix` do: by `mixup`, by `cutmix`, or each pair by one of them."""

    #: The columns that are mixed: pictures of one size, and at least one column of floats, such as `one_hot` or `float`. Others stay as they are. Default: all of `image` and `one_hot`.
    columns: Sequence[str] | None
    #: Alpha, 0.01 to 100: the share of its picture that a sample keeps is from Beta(alpha, alpha). A rectangle is replaced by that of the partner, and targets are mixed by the share that is left. Default: no cutmix.
    cutmix: float | None
    #: Where there are both: the probability that a mixed sample gets cutmix, 0 to 1. Default: 0.5.
    cutmix_p: float | None
    #: Alpha, 0.01 to 100: the weight of the sample is from Beta(alpha, alpha). Pictures and targets become the weighted sum of both samples. Default: no mixup.
    mixup: float | None
    #: The probability that a sample is mixed, 0 to 1. Default: 1.
    p: float | None


class Order(TypedDict, total=False):
    """The `[order]` table of a job file: the quality of the shuffle against the cost of reading. A key that is left out is chosen when the job is created; it never depends on the number of ranks or workers."""

    #: The number of lanes that the dataset is dealt to. A batch takes the same number of samples from each. More lanes need more cache, because more blocks are open at once. Default: the largest divisor of `global_batch` that leaves 64 blocks for each lane.
    lanes: int | None
    #: The number of consecutive samples of a lane that are shuffled among themselves. A larger window shuffles better, and a worker holds more blocks until they are used up. Default: the samples of `global_batch / lanes` blocks, or of fewer above 8 MiB, which take 512 MiB in all lanes.
    window: int | None


_RedactionKeywords = TypedDict("_RedactionKeywords", {"from": "int"}, total=True)


class _RedactionRequired(_RedactionKeywords):
    #: The samples, as `spdl-ctl job redactions` prints them.
    samples: str


class Redaction(_RedactionRequired, total=False):
    """Samples that do not come from a sample of the training on: substitutes take their places, as those of bad samples."""

    pass


class _SequencesRequired(TypedDict):
    #: The tokens of a sequence, 1 to 16777216.
    seq_len: int


class Sequences(_SequencesRequired, total=False):
    """Documents are packed into sequences of one length: each is a sample, and `global_batch` counts sequences. Such a job has a column `tokens` and columns that follow it."""

    #: For `best_fit`: the room of a document is a multiple of this number of tokens, a power of two up to 256 and at most `seq_len`. More changes from epoch to epoch who shares a sequence, and there is more padding. Default: 16.
    align: int | None
    #: The id that is put before each document, below 2147483648. Default: none.
    bos: int | None
    #: For `chunk`: whether a sequence is one text, in which labels and positions go on across the ends of documents. Default: `true`.
    cross_documents: bool | None
    #: The id that is put after each document, below 2147483648. Default: none; the documents have theirs, or need none.
    eos: int | None
    #: Whether the id that `eos` puts after a document is learned. Default: `true`.
    eos_in_loss: bool | None
    #: For `best_fit`: what happens to a document that is longer than a sequence. Default: `split`.
    long: Literal["split", "truncate", "drop"] | None
    #: For `best_fit`: the most documents of a sequence, at least 1. Default: no limit.
    max_documents: int | None
    #: How documents share sequences. Default: `best_fit`.
    method: Literal["best_fit", "chunk"] | None
    #: The id of places without a document, below 2147483648. No label and no mask depends on it. Default: 0.
    pad: int | None
    #: Documents are packed with others of their pool: consecutive blocks with this number of tokens together, `seq_len` to 1099511627776. Larger pools have less padding, and a worker holds more lengths in memory. Default: 4194304, and at least 512 sequences.
    pool_tokens: int | None
    #: For jobs of one `dataset`: the fingerprint of the table of pools, which `spdl-ctl plan` prints. Default: set when the job is created.
    pools: str | None


class _SourceRequired(TypedDict):
    #: The folder or URL of its dataset, as `dataset` of a job.
    dataset: str | os.PathLike[str]
    #: The name of the source in messages: 1 to 128 of `A-Z a-z 0-9 . _ -`. No other source of the job has it.
    name: str
    #: Its share of the samples, compared with the weights of the other sources: any number above 0, or 0 if it begins with a stage. Shares are kept to one part of 65536.
    weight: float


class Source(_SourceRequired, total=False):
    """A dataset that gives a share of the samples of a job."""

    #: How often its samples may come in all epochs of the job, at least once. If they would come more often, the job is refused, or what `when_done` says happens. Default: as often as its weight says; it begins again each time.
    max_epochs: int | None
    #: How well its samples are shuffled. Default: that of the job.
    order: Order | None
    #: For jobs with `sequence`: the fingerprint of the table of pools of its documents, which `spdl-ctl plan` prints. Default: set when the job is created.
    pools: str | None
    #: Which samples of its dataset it gives. Default: all.
    view: View | None
    #: What happens when its samples have come `max_epochs` times. It needs `total_samples` or `total_tokens`. Default: a job in which they would come more often is refused.
    when_done: Literal["stop", "reweight", "repeat"] | None


class View(TypedDict, total=False):
    """The samples that a job delivers: those for which every key that is given holds."""

    #: The field, or `key`, by whose values `most_of_each` counts, such as `cls`. There may be 16 million different values. Default: none.
    each: str | None
    #: The part that is left out, from 0: with the same `folds` and `seed`, the others are the training data for the evaluation on `fold`. It needs `folds`. Default: none.
    except_fold: int | None
    #: This many samples, at least 1, the first in the order of the dataset. Default: all.
    first: int | None
    #: The part that is kept, from 0. It needs `folds`. Default: none.
    fold: int | None
    #: The number of parts of about equal size, 2 to 65536, into which a hash of `seed` and key puts the records. It needs `fold` or `except_fold`. Default: none.
    folds: int | None
    #: The records that a hash of `seed` and key puts into this fraction, above 0 and at most 1: the same ones whatever else the view says, and a larger fraction holds all of a smaller one. Default: 1.
    fraction: float | None
    #: The records whose keys are in this file, one on each line, at most 16 million. Keys that no record has are a warning; if no record has any of them, that is an error. A relative path starts at the folder of the job file. Default: all.
    keys: str | None
    #: Of the records with the same value of `each`, this many, at least 1: those that a hash of `seed` and key draws, of which a larger number holds all of a smaller one. Records without a value are all kept. It needs `each`. Default: all.
    most_of_each: int | None
    #: The fingerprint of the samples that were found, which `spdl-ctl plan` prints. Default: set when the job is created.
    samples: str | None
    #: How many samples each class gives in an epoch. Default: all of its samples, once.
    sampling: Sampling | None
    #: Seed of `fraction`, `folds` and `most_of_each`. Default: 0.
    seed: int
    #: Of the records with the same value of this field, or of `key`, the first in the order of the dataset. Records without a value are all kept. There may be 16 million different values. Default: all.
    unique: str | None
    #: The records for which this is true, such as `width >= 256 and split == 'train'`. Default: all.
    where: str | None


class _SamplingRequired(TypedDict):
    #: The field whose values are the classes, as `where` calls it, such as `cls` or `json.kind`, or `key`. Every sample has to have a value. There may be 65536 different ones.
    by: str


class Sampling(_SamplingRequired, total=False):
    """How many samples each class gives in an epoch: as many as each other one, unless `weights` or `repeat` say otherwise."""

    #: Whether samples of a class that has too few come several times in an epoch, with other random operations each time. If not, it gives each once, and `samples` is a limit. Default: true.
    repeat: bool
    #: The samples that a class of weight 1 gives in an epoch, at least 1. Of a larger class, others come in the next epoch. Default: the mean of the classes, rounded up, so that an epoch with all classes has about as many samples as there are.
    samples: int | None
    #: Factors of `samples` by class, which is the name of a class of the dataset or a value: any number from 0 on; 0 leaves a class out. Default: 1 for each class that is not named.
    weights: dict[str, Any]


_SourceStageKeywords = TypedDict("_SourceStageKeywords", {"from": "int"}, total=True)


class _SourceStageRequired(_SourceStageKeywords):
    #: The weight of each source by its name, as `weight` of a source; 0 for one that gives no samples in this stage.
    weights: dict[str, Any]


class SourceStage(_SourceStageRequired, total=False):
    """Other weights of the sources, from a sample of the training on."""

    pass
