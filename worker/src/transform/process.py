"""One process of a worker's pool: calls the user's functions.

The worker runs this text with `python -c`, so that an interpreter needs nothing but numpy. Requests come as packets on
a socket that takes the place of standard input; each gets one packet as its reply. Values lie in shared memory: the
argument in the first half, the returned value in the second. `process.rs` is the other side.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import json
import mmap
import os
import signal
import socket
import struct
import sys
import traceback
from typing import Any

# A process may use one core of the worker's budget.
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

MAX_PACKET_BYTES = 1 << 18
MAX_REPLY_BYTES = 2048
PR_SET_PDEATHSIG = 1
CALL = struct.Struct("<IQQQQ")
HALF = struct.Struct("<Q")
DTYPES = {"u8": "u1", "u16": "<u2", "u32": "<u4", "u64": "<u8", "i8": "i1", "i16": "<i2", "i32": "<i4", "i64": "<i8"}
DTYPES |= {"f16": "<f2", "f32": "<f4", "f64": "<f8", "bool": "?"}


class WrongReturn(Exception):
    """What a function returned is not what its column declares."""


class Function:
    """A function, with the values that it takes and returns."""

    def __init__(self, described: dict[str, Any]) -> None:
        name, _, path = described["name"].partition(":")
        self.call: Any = functools.reduce(getattr, path.split("."), module(name))
        if not callable(self.call):
            raise TypeError(f"it is a {type(self.call).__name__}, which cannot be called")
        self.takes, self.returns = Value(described["takes"]), Value(described["returns"])
        self.is_reported = False

    def attach(self, memory: mmap.mmap) -> None:
        """Maps argument and returned value to the memory, if it has room for them."""
        half = len(memory) // 2
        self.takes.attach(memory, 0, half)
        self.returns.attach(memory, half, half)

    def run(self, seed: int, epoch: int, sample: int, count: int) -> int:
        """Calls the function and returns the size of its result in bytes."""
        rng = numpy.random.Generator(numpy.random.PCG64([seed, epoch, sample]))
        return self.returns.put(self.call(self.takes.read(count), rng))

    def describe(self, error: BaseException) -> str:
        """Describes an exception for the worker. The first one is also printed in full to standard error."""
        if isinstance(error, WrongReturn):
            return f"returned {error}"
        if not self.is_reported:
            self.is_reported = True
            traceback.print_exception(type(error), error, error.__traceback__)
        return f"{self.place(error)}raised {last_line(error)}"

    def place(self, error: BaseException) -> str:
        """Returns the line in the function's own file where the exception occurred."""
        # The first two frames are those of this program.
        frames = traceback.extract_tb(error.__traceback__)[2:]
        code = getattr(self.call, "__code__", None)
        own = [frame for frame in frames if code is not None and frame.filename == code.co_filename] or list(frames)
        return f"at {os.path.basename(own[-1].filename)}:{own[-1].lineno} " if own else ""


class Value:
    """An argument or returned value: an array of a fixed type and shape, or bytes. An argument may also be an array whose
    first dimension differs."""

    def __init__(self, described: dict[str, Any]) -> None:
        self.dtype = dtype_of(described["dtype"])
        self.shape = None if described["shape"] is None else tuple(described["shape"])
        self.row = None if described["row"] is None else tuple(described["row"])
        self.bytes: int = described["bytes"]
        self.memory: mmap.mmap | None = None
        self.start = 0
        self.array: Any = None

    def attach(self, memory: mmap.mmap, start: int, room: int) -> None:
        self.memory, self.start, self.array = memory, start, None
        if self.shape is not None and self.bytes <= room:
            count = self.bytes // self.dtype.itemsize
            self.array = numpy.frombuffer(memory, self.dtype, count, start).reshape(self.shape)

    def read(self, count: int) -> Any:
        if self.row is not None:
            array = numpy.frombuffer(self.memory, self.dtype, count // self.dtype.itemsize, self.start)
            return array.reshape(-1, *self.row)
        if self.shape is None:
            assert self.memory is not None
            return self.memory[self.start : self.start + count]
        return self.array.view() if self.shape else self.array[()]

    def put(self, result: Any) -> int:
        if self.shape is None:
            return self.put_bytes(result)
        plain = isinstance(result, (bool, int, float)) and not self.shape
        array = numpy.asarray(result, self.dtype) if plain else numpy.asarray(result)
        if array.dtype != self.dtype or array.shape != self.shape:
            declared = f"{self.dtype} {list(self.shape)}"
            raise WrongReturn(f"{array.dtype} {list(array.shape)}, and its column declares {declared}")
        self.array[...] = array
        return self.bytes

    def put_bytes(self, result: Any) -> int:
        try:
            view = memoryview(result)
        except TypeError:
            raise WrongReturn(f"a {type(result).__name__}, and its column declares bytes") from None
        if view.itemsize != 1 or view.ndim != 1:
            raise WrongReturn(f"an array of {view.format} with {view.ndim} dimensions, and its column declares bytes")
        if view.nbytes > self.bytes:
            raise WrongReturn(f"{view.nbytes} bytes, and its column declares at most {self.bytes}")
        assert self.memory is not None
        self.memory[self.start : self.start + view.nbytes] = view.tobytes()
        return view.nbytes


def dtype_of(name: str) -> Any:
    if name == "bf16":
        try:
            name = importlib.import_module("ml_dtypes").bfloat16
        except ImportError as error:
            raise ImportError("a column of bf16 needs the package `ml_dtypes`, since numpy has no such type") from error
    return numpy.dtype(DTYPES.get(name, name))


class Process:
    """Answers requests one after the other."""

    def __init__(self) -> None:
        self.functions: list[Function] = []
        self.memory: mmap.mmap | None = None

    def answer(self, kind: bytes, body: bytes, descriptors: list[int]) -> bytes:
        if kind == b"C":
            return self.call(body)
        if kind == b"M":
            (half,) = HALF.unpack(body)
            self.memory = mmap.mmap(descriptors[0], 2 * half)
            os.close(descriptors[0])
            for function in self.functions:
                function.attach(self.memory)
        else:
            function = Function(json.loads(body))
            if self.memory is not None:
                function.attach(self.memory)
            self.functions.append(function)
        return b"K"

    def call(self, body: bytes) -> bytes:
        number, *key, count = CALL.unpack(body)
        function = self.functions[number]
        try:
            return b"K" + HALF.pack(function.run(*key, count))
        except BaseException as error:
            return failure(function.describe(error))


def last_line(error: BaseException) -> str:
    """Returns the last line of a traceback."""
    return traceback.format_exception_only(type(error), error)[-1].strip()


def failure(text: str) -> bytes:
    return b"E" + text.encode(errors="replace")[:MAX_REPLY_BYTES]


def main() -> None:
    # If this call is missing or not allowed, the end of the socket still ends the process.
    try:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    except (OSError, AttributeError):
        pass
    requests = socket.socket(fileno=os.dup(0))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    process = Process()
    while True:
        packet, descriptors, _, _ = socket.recv_fds(requests, MAX_PACKET_BYTES, 1)
        if not packet:
            os._exit(0)
        try:
            reply = process.answer(packet[:1], packet[1:], descriptors) if packet[:1] != b"H" else hello(packet[1:])
        except BaseException as error:
            traceback.print_exception(type(error), error, error.__traceback__)
            reply = failure(last_line(error))
        requests.send(reply)


def hello(body: bytes) -> bytes:
    """Handles the first request: sets the module search path, and the program that `__main__` stands for."""
    global numpy, program
    settings = json.loads(body)
    if settings["path"] is not None:
        sys.path[:] = settings["path"]
    program = settings["program"]
    numpy = importlib.import_module("numpy")
    return b"K"


def module(name: str) -> Any:
    """Imports a module. `__main__` is the training program; it is imported under another name, as multiprocessing does,
    so that the code under `if __name__ == "__main__"` does not run."""
    if name != "__main__":
        return importlib.import_module(name)
    if program is None:
        raise ImportError("`__main__` is another program than this process; name the function by its module")
    if "__mp_main__" not in sys.modules:
        # With this set, the package refuses to create a loader: a program without that line would train here too.
        os.environ["SPDL_CALLS_FUNCTIONS"] = "1"
        from multiprocessing import spawn

        spawn.prepare(program)
    return sys.modules["__mp_main__"]


numpy: Any = None
program: Any = None

if __name__ == "__main__":
    main()
