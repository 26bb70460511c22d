"""The types of a `Writer`'s fields: how values become the bytes of a field."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any, NamedTuple

from .errors import SettingError

#: Of JPEGs that are encoded here, unless the type says otherwise.
_QUALITY = 95
#: What a job's decoder `int` can hold.
_INT_MIN, _INT_MAX = -(1 << 63), (1 << 63) - 1
#: How encoded pictures and arrays begin.
_JPEG, _PNG, _NPY = b"\xff\xd8", b"\x89PNG\r\n\x1a\n", b"\x93NUMPY"
#: The types of fields whose names are extensions that WebDataset's decoders know.
_BY_NAME = {"jpg": "jpeg", "jpeg": "jpeg", "png": "png", "npy": "ndarray", "cls": "int", "txt": "str", "json": "json"}
#: Modes of Pillow that JPEG has.
_JPEG_MODES = ("L", "RGB", "CMYK")


class _Wrong(Exception):
    """A value that a type does not take: what it is, and a hint."""

    def __init__(self, problem: str, hint: str | None = None) -> None:
        self.problem, self.hint = problem, hint


class Encoder(NamedTuple):
    """A type of field."""

    #: As `fields=` has it, such as `jpeg:90`.
    name: str
    encode: Callable[[Any], bytes]

    def bytes_of(self, value: Any, field: str, sample: int) -> bytes:
        """Returns the bytes of a value."""
        try:
            return self.encode(value)
        except _Wrong as wrong:
            raise SettingError(f"sample {sample}: field `{field}` of the type `{self.name}` {wrong.problem}", wrong.hint) from wrong.__cause__


def named(name: Any, field: str) -> Encoder:
    """Returns the type with this name."""
    kind, colon, parameter = str(name).partition(":")
    if kind == "jpeg" and colon:
        if not parameter.isdecimal() or not 1 <= int(parameter) <= 100:
            raise SettingError(f"field `{field}` has the type `{name}`, whose quality is not a number from 1 to 100", "`jpeg:90`, for example")
        return Encoder(str(name), lambda value: _jpeg(value, int(parameter)))
    if kind not in _ENCODERS or colon:
        raise SettingError(f"field `{field}` has the type `{name}`, which does not exist", f"there are {', '.join(_ENCODERS)} and `jpeg:QUALITY`")
    return Encoder(kind, _ENCODERS[kind])


def inferred(value: Any, field: str, sample: int) -> Encoder:
    """Returns the type for a field whose first value this is: by its name if that ends as `jpg` or `cls` do, and otherwise by the value."""
    try:
        name = _BY_NAME.get(field.rpartition(".")[2]) or _of_value(value)
    except _Wrong as wrong:
        raise SettingError(f"sample {sample}: field `{field}` {wrong.problem}", wrong.hint) from wrong.__cause__
    if name is None:
        raise SettingError(f"sample {sample}: field `{field}` {_kind(value)}, for which there is no type of field", f"there are {', '.join(_ENCODERS)}")
    return named(name, field)


def _of_value(value: Any) -> str | None:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return "bytes"
    if isinstance(value, bool):
        return "bool"
    for kind, name in ((int, "int"), (float, "float"), (str, "str"), ((dict, list, tuple), "json")):
        if isinstance(value, kind):
            return name
    if _is_picture(value):
        return "jpeg" if value.mode in _JPEG_MODES else "png"
    array = _as_array(value)
    if array is None:
        return None
    if array.ndim == 0:
        return {"b": "bool", "i": "int", "u": "int", "f": "float"}.get(array.dtype.kind, "ndarray")
    return "ndarray"


def _is_picture(value: Any) -> bool:
    """Whether this is a picture of Pillow, which need not be installed."""
    return any(f"{kind.__module__}.{kind.__name__}" == "PIL.Image.Image" for kind in type(value).__mro__)


def _as_array(value: Any) -> Any:
    """Returns a value of numpy, torch and others as an array of numpy; `None` if it is none."""
    if not hasattr(value, "__array__"):
        return None
    import numpy

    try:
        return numpy.asarray(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise _Wrong(f"is a `{type(value).__name__}` that is no array on the host: {error}") from error


def _scalar(value: Any) -> Any:
    """Returns a number of numpy or torch as one of Python."""
    array = None if isinstance(value, (bool, int, float)) else _as_array(value)
    return value if array is None or array.ndim else array.item()


def _kind(value: Any) -> str:
    return f"is a `{type(value).__name__}`"


def _bytes(value: Any) -> bytes:
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise _Wrong(f"{_kind(value)}, not bytes", "give another type in `fields`")
    return bytes(value)


def _str(value: Any) -> bytes:
    if not isinstance(value, str):
        raise _Wrong(f"{_kind(value)}, not a text")
    try:
        return value.encode()
    except UnicodeEncodeError as error:
        raise _Wrong(f"is a text that UTF-8 has no bytes for: {error.reason}") from error


def _int(value: Any) -> bytes:
    number = _scalar(value)
    if not isinstance(number, int) or isinstance(number, bool):
        raise _Wrong(f"{_kind(value)}, not a whole number")
    if not _INT_MIN <= number <= _INT_MAX:
        raise _Wrong(f"is {number}, which 64 bits cannot hold")
    return str(number).encode()


def _float(value: Any) -> bytes:
    number = _scalar(value)
    if not isinstance(number, (int, float)) or isinstance(number, bool):
        raise _Wrong(f"{_kind(value)}, not a number")
    return repr(float(number)).encode()


def _bool(value: Any) -> bytes:
    flag = _scalar(value)
    if not isinstance(flag, bool):
        raise _Wrong(f"{_kind(value)}, not true or false")
    return b"1" if flag else b"0"


def _json(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, default=_plain).encode()
    except (TypeError, ValueError) as error:
        raise _Wrong(f"cannot be JSON: {error}") from error


def _plain(value: Any) -> Any:
    """Returns a value of numpy or torch as JSON has it."""
    array = _as_array(value)
    if array is None:
        raise TypeError(f"a `{type(value).__name__}` is in it")
    return array.tolist()


def _ndarray(value: Any) -> bytes:
    if isinstance(value, bytes):
        return _begins(value, _NPY, "a `.npy` file")
    array = _as_array(value)
    if array is None and isinstance(value, (list, tuple, int, float)):
        import numpy

        array = numpy.asarray(value)
    if array is None:
        raise _Wrong(f"{_kind(value)}, not an array")
    if array.dtype.kind not in "biuf":
        raise _Wrong(f"is an array of `{array.dtype}`, not of numbers or flags")
    import numpy

    file = io.BytesIO()
    numpy.save(file, numpy.ascontiguousarray(array, array.dtype.newbyteorder("<")).reshape(array.shape), allow_pickle=False)
    return file.getvalue()


def _jpeg(value: Any, quality: int = _QUALITY) -> bytes:
    if isinstance(value, bytes):
        return _begins(value, _JPEG, "a JPEG")
    picture = _picture(value)
    if picture.mode not in _JPEG_MODES:
        raise _Wrong(f"is a picture of the mode `{picture.mode}`, which JPEG does not have", "give `picture.convert(\"RGB\")`, or the type `png` in `fields`")
    return _saved(picture, "JPEG", quality=quality)


def _png(value: Any) -> bytes:
    if isinstance(value, bytes):
        return _begins(value, _PNG, "a PNG")
    return _saved(_picture(value), "PNG")


def _begins(value: bytes, magic: bytes, what: str) -> bytes:
    if not value.startswith(magic):
        raise _Wrong(f"has bytes that are not {what}", "the type `bytes` takes all bytes as they are")
    return value


def _picture(value: Any) -> Any:
    """Returns a picture of Pillow, or one that is made of an array of pixels."""
    if _is_picture(value):
        return value
    array = _as_array(value)
    if array is None:
        raise _Wrong(f"{_kind(value)}, not bytes, a picture of Pillow or an array")
    try:
        from PIL import Image
    except ImportError as error:
        raise _Wrong("is an array, which only Pillow can encode, and that is not installed", "`pip install pillow`, or give encoded bytes") from error
    try:
        return Image.fromarray(array)
    except (TypeError, ValueError) as error:
        shape = "x".join(map(str, array.shape))
        raise _Wrong(f"is an array of {shape} `{array.dtype}`, which is no picture: {error}", "give height x width (x 3) of `uint8`") from error


def _saved(picture: Any, form: str, **options: Any) -> bytes:
    file = io.BytesIO()
    try:
        picture.save(file, form, **options)
    except (OSError, ValueError) as error:
        raise _Wrong(f"is a picture of the mode `{picture.mode}` that cannot be written as {form}: {error}") from error
    return file.getvalue()


_ENCODERS: dict[str, Callable[[Any], bytes]] = {
    "bytes": _bytes,
    "str": _str,
    "int": _int,
    "float": _float,
    "bool": _bool,
    "json": _json,
    "ndarray": _ndarray,
    "jpeg": _jpeg,
    "png": _png,
}
