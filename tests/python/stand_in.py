"""The driver calls of a trainer on a GPU, for programs whose driver is the stand-in, and a consumer of DLPack capsules."""

from __future__ import annotations

import ctypes
import json
import time
from collections.abc import Callable
from typing import Any, NamedTuple

#: Time limit of each wait.
LIMIT_S = 60.0


class Driver:
    """The driver calls of a trainer. The memory of the stand-in's devices is memory of this process."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL("libcuda.so.1")
        #: The device context of each stream.
        self.contexts: dict[int, int] = {}
        self.call("cuInit", 0)

    def call(self, name: str, *arguments: Any) -> None:
        result = getattr(self.library, name)(*arguments)
        assert result == 0, f"{name}: {result}"

    def call_in(self, context: int, name: str, *arguments: Any) -> None:
        popped = ctypes.c_size_t()
        self.call("cuCtxPushCurrent_v2", ctypes.c_size_t(context))
        self.call(name, *arguments)
        self.call("cuCtxPopCurrent_v2", ctypes.byref(popped))

    def stream(self, device: int) -> int:
        """Creates a stream on a device and retains the device's context."""
        context, stream = ctypes.c_size_t(), ctypes.c_size_t()
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.call_in(context.value, "cuStreamCreate", ctypes.byref(stream), 1)
        self.contexts[stream.value] = context.value
        return stream.value

    def end(self, stream: int, device: int) -> None:
        """Destroys a stream and releases the device's context."""
        self.synchronise(stream)
        self.call_in(self.contexts[stream], "cuStreamDestroy_v2", ctypes.c_size_t(stream))
        self.call("cuDevicePrimaryCtxRelease_v2", device)

    def synchronise(self, stream: int) -> None:
        self.call_in(self.contexts[stream], "cuStreamSynchronize", ctypes.c_size_t(stream))

    def read(self, stream: int, address: int, size: int) -> bytes:
        """Returns bytes of a device's memory after all work on the stream so far."""
        self.synchronise(stream)
        return ctypes.string_at(address, size)

    def put_digest(self, stream: int, address: int, size: int) -> ctypes.c_uint64:
        """Enqueues a digest of memory on the stream, as a kernel would run; the result is valid when the stream has executed it."""
        seen = ctypes.c_uint64()
        pointers = (ctypes.c_size_t(stream), ctypes.c_size_t(address), ctypes.c_size_t(size), ctypes.byref(seen))
        self.call_in(self.contexts[stream], "cuda_stand_in_digest", *pointers)
        return seen

    def report(self) -> dict[str, Any]:
        text = ctypes.create_string_buffer(1 << 16)
        self.library.cuda_stand_in_report(text, ctypes.c_size_t(len(text)))
        report: dict[str, Any] = json.loads(text.value)
        return report

    def wait_for(self, is_right: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Polls the report until `is_right` returns true, and returns it."""
        until = time.monotonic() + LIMIT_S
        while not is_right(report := self.report()):
            assert time.monotonic() < until, report
        return report

    def check_clean(self) -> dict[str, Any]:
        """Asserts that all resources were released and that no call was wrong."""
        left = ("allocations", "host_allocations", "registrations", "handles", "retained")
        report = self.wait_for(lambda report: not any(report[what] for what in left))
        assert report["wrong"] == [], report
        return report


def digest(data: bytes) -> int:
    """Returns the digest that `put_digest` computes: FNV-1a."""
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return value


class Array(NamedTuple):
    """The description of a tensor in a capsule."""

    address: int
    device: tuple[int, int]
    #: Code, bits, lanes.
    dtype: tuple[int, int, int]
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def size(self) -> int:
        """The bytes of all elements, without gaps."""
        size = self.dtype[1] // 8
        for side in self.shape:
            size *= side
        return size


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


_DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _Managed(ctypes.Structure):
    _fields_ = [("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", _DELETER)]


class _ManagedVersioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", _DELETER),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    ]


_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
_set_name = ctypes.pythonapi.PyCapsule_SetName
_set_name.argtypes = [ctypes.py_object, ctypes.c_char_p]


class Taken:
    """A tensor that a consumer has taken from its capsule; it is alive until `let_go`."""

    def __init__(self, capsule: Any) -> None:
        self._is_versioned = "dltensor_versioned" in repr(capsule)
        name = b"dltensor_versioned" if self._is_versioned else b"dltensor"
        self._address = _pointer(capsule, name)
        _set_name(capsule, b"used_dltensor_versioned" if self._is_versioned else b"used_dltensor")
        kind = _ManagedVersioned if self._is_versioned else _Managed
        self._managed: Any = kind.from_address(self._address)
        tensor = self._managed.tensor
        shape, strides = (tuple(sides[: tensor.ndim]) for sides in (tensor.shape, tensor.strides))
        assert tensor.byte_offset == 0
        device, dtype = (tensor.device_type, tensor.device_id), (tensor.code, tensor.bits, tensor.lanes)
        self.array = Array(tensor.data, device, dtype, shape, strides)

    def let_go(self) -> None:
        """Calls the deleter, as when the consumer's last tensor is freed."""
        self._managed.deleter(self._address)
