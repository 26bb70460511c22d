"""One process of a worker's pool: calls the user's functions.

The worker runs this text with `python -c`, so that an interpreter needs nothing but numpy; with `local(functions="here")` the program
itself is the process. Requests come as packets on
a socket that takes the place of standard input; each has a number and gets one packet with that number as its reply.
Values lie in shared memory: the argument in the first half, the returned value in the second. `process.rs` is the other
side.
"""

from __future__ import annotations

import ctypes
import fcntl
import functools
import hashlib
import importlib
import inspect
import io
import json
import mmap
import os
import signal
import socket
import struct
import sys
import traceback
from collections.abc import Mapping
from typing import Any

MAX_PACKET_BYTES = 1 << 18
MAX_REPLY_BYTES = 2048
PR_SET_PDEATHSIG = 1
F_SETSIG = 10
MAP_FIXED = 0x10
REQUEST = struct.Struct("<cQ")
CALL = struct.Struct("<IQQQ")
HALF = struct.Struct("<Q")
DTYPES = {"u8": "u1", "u16": "<u2", "u32": "<u4", "u64": "<u8", "i8": "i1", "i16": "<i2", "i32": "<i4", "i64": "<i8"}
DTYPES |= {"f16": "<f2", "f32": "<f4", "f64": "<f8", "bool": "?"}


class WrongReturn(Exception):
    """What a function returned is not what its column declares."""


class Function:
    """A function, with the values that it takes and returns."""

    def __init__(self, described: dict[str, Any]) -> None:
        self.name: str = described["name"]
        self.call, self.code = made(self.name, described["arguments"])
        self.source = digest(self.name)
        self.takes = [Value(value) for value in described["takes"]]
        self.returns = [Value(value) for value in described["returns"]]
        self.is_by_name: bool = described["is_by_name"]
        self.is_reported = False

    def attach(self, memory: mmap.mmap) -> None:
        """Maps arguments and returned values to the memory, if it has room for them."""
        half = len(memory) // 2
        for start, values in ((0, self.takes), (half, self.returns)):
            for value in values:
                value.attach(memory, start, half)

    def run(self, seed: int, epoch: int, sample: int, counts: list[int]) -> list[int]:
        """Calls the function and returns the sizes of its results in bytes."""
        rng = numpy.random.Generator(numpy.random.PCG64([seed, epoch, sample]))
        arguments = [value.read(count) for value, count in zip(self.takes, counts)]
        if not self.is_by_name:
            return [self.returns[0].put(self.call(arguments[0], rng))]
        result = self.call({value.name: argument for value, argument in zip(self.takes, arguments)}, rng)
        if not isinstance(result, Mapping):
            raise WrongReturn(kind(result) if result is None else f"{kind(result)}, and its job declares a dict")
        for value in self.returns:
            if value.name not in result:
                raise WrongReturn(f"no `{value.name}`, which its job declares")
        if len(result) != len(self.returns):
            known = {value.name for value in self.returns}
            other = next(name for name in result if name not in known)
            raise WrongReturn(f"`{other}`, which its job does not declare")
        return [value.put_by_name(result[value.name]) for value in self.returns]

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
        own = [frame for frame in frames if self.code is not None and frame.filename == self.code.co_filename] or list(frames)
        return f"at {os.path.basename(own[-1].filename)}:{own[-1].lineno} " if own else ""


class Value:
    """An argument or returned value: an array of a fixed type and shape, an array whose first dimension differs, or bytes."""

    def __init__(self, described: dict[str, Any]) -> None:
        self.name: str = described["name"]
        self.dtype = dtype_of(described["dtype"])
        self.shape = None if described["shape"] is None else tuple(described["shape"])
        self.row = None if described["row"] is None else tuple(described["row"])
        self.unit: int = described["unit"]
        self.bytes: int = described["bytes"]
        self.at: int = described["at"]
        self.memory: mmap.mmap | None = None
        self.start = 0
        self.array: Any = None

    def attach(self, memory: mmap.mmap, start: int, room: int) -> None:
        self.memory, self.start, self.array = memory, start + self.at, None
        if self.shape is not None and self.at + self.bytes <= room:
            self.array = self.view(self.bytes).reshape(self.shape)

    def view(self, count: int) -> Any:
        """Returns so many bytes as elements in one dimension."""
        return numpy.frombuffer(self.memory, self.dtype, count // self.dtype.itemsize, self.start)

    def read(self, count: int) -> Any:
        if self.row is not None:
            return self.view(count).reshape(count // self.unit, *self.row)
        if self.shape is None:
            assert self.memory is not None
            return self.memory[self.start : self.start + count]
        return self.array.view() if self.shape else self.array[()]

    def put_by_name(self, result: Any) -> int:
        try:
            return self.put(result)
        except WrongReturn as error:
            raise WrongReturn(f"`{self.name}`: {error}") from None

    def put(self, result: Any) -> int:
        if result is None:
            raise WrongReturn("None")
        if self.row is not None:
            return self.put_rows(result)
        if self.shape is None:
            return self.put_bytes(result)
        plain = isinstance(result, (bool, int, float)) and not self.shape
        array = numpy.asarray(result, self.dtype) if plain else numpy.asarray(result)
        if array.dtype != self.dtype or array.shape != self.shape:
            declared = f"{self.dtype} {list(self.shape)}"
            raise WrongReturn(f"{array.dtype} {list(array.shape)}, and its column declares {declared}")
        self.array[...] = array
        return self.bytes

    def put_rows(self, result: Any) -> int:
        array = numpy.asarray(result)
        if array.dtype != self.dtype or array.ndim == 0 or array.shape[1:] != self.row:
            declared = f"{self.dtype} [rows{''.join(f', {side}' for side in self.row or ())}]"
            raise WrongReturn(f"{array.dtype} {list(array.shape)}, and its column declares {declared}")
        if len(array) * self.unit > self.bytes:
            raise WrongReturn(f"{len(array)} rows, and its column declares at most {self.bytes // self.unit}")
        self.view(array.nbytes).reshape(array.shape)[...] = array
        return len(array) * self.unit

    def put_bytes(self, result: Any) -> int:
        try:
            view = memoryview(result)
        except TypeError:
            raise WrongReturn(f"{kind(result)}, and its column declares bytes") from None
        if view.itemsize != 1 or view.ndim != 1:
            raise WrongReturn(f"an array of {view.format} with {view.ndim} dimensions, and its column declares bytes")
        if view.nbytes > self.bytes:
            raise WrongReturn(f"{view.nbytes} bytes, and its column declares at most {self.bytes}")
        assert self.memory is not None
        self.memory[self.start : self.start + view.nbytes] = view.tobytes()
        return view.nbytes


def kind(result: Any) -> str:
    """Names the type of an object."""
    return "None" if result is None else f"a {type(result).__name__}"


objects: dict[tuple[str, str], tuple[Any, Any]] = {}


def made(name: str, arguments: dict[str, Any]) -> tuple[Any, Any]:
    """Returns what is called for each sample, with its code if it has any. The process has one object for each class and its
    arguments, whatever the number of columns."""
    key = (name, json.dumps(arguments))
    if key not in objects:
        found = find(name)
        if not callable(found):
            raise TypeError(f"it is a {type(found).__name__}, which cannot be called")
        if isinstance(found, type):
            call = found(**arguments)
            if not callable(call):
                raise TypeError(f"objects of the class `{found.__name__}` cannot be called: it has no method `__call__`")
            found = type(call).__call__
        else:
            call = functools.partial(found, **arguments) if arguments else found
        objects[key] = (call, getattr(found, "__code__", None))
    return objects[key]


def find(name: str) -> Any:
    """Returns the function or the class of this name."""
    at, _, path = name.partition(":")
    return functools.reduce(getattr, path.split("."), module(at))


digests: dict[str, str] = {}
module_sources: dict[str, str] = {}


def digest(name: str) -> str:
    """Returns the digest of a function's source as hex digits; none if the source cannot be found. What is edited later makes no
    difference, since it is not imported again."""
    if name not in digests:
        digested = hashlib.blake2b(digest_size=16)
        texts = [text.encode() for text in sources(name) if text]
        for text in texts:
            digested.update(HALF.pack(len(text)) + text)
        digests[name] = digested.hexdigest() if texts else ""
    return digests[name]


def sources(name: str) -> list[str]:
    """Returns the texts that the function consists of: those of the module that the job names and of the module where the function
    is defined, because it may use all that stands beside it. Of a function of the program itself it is the function alone: a program
    changes from run to run."""
    at, found = name.partition(":")[0], find(name)
    is_defined = inspect.isfunction(found) or inspect.ismethod(found) or inspect.isclass(found)
    if at == "__main__":
        return [source(found)]
    if inspect.isbuiltin(found) or (is_defined and not source(found)):
        return []
    modules = dict.fromkeys([at, str(found.__module__)] if is_defined else [at])
    for module_name in modules:
        if module_name not in module_sources:
            module_sources[module_name] = source(sys.modules.get(module_name))
    return [module_sources[module_name] for module_name in modules]


def source(found: Any) -> str:
    """Returns the text of a module, a class or a function, with the same line ends everywhere; empty if it cannot be found."""
    try:
        return inspect.getsource(found)
    except Exception:
        return ""


def dtype_of(name: str) -> Any:
    if name == "bf16":
        try:
            name = importlib.import_module("ml_dtypes").bfloat16
        except ImportError as error:
            raise ImportError("a column of bf16 needs the package `ml_dtypes`, since numpy has no such type") from error
    return numpy.dtype(DTYPES.get(name, name))


class Process:
    """Answers requests one after the other."""

    #: What a function may raise that is not its failure.
    passed: tuple[type[BaseException], ...] = ()

    def __init__(self, requests: socket.socket) -> None:
        self.requests = requests
        self.functions: list[Function] = []
        self.memory: mmap.mmap | None = None
        #: The file of the memory.
        self.file: int | None = None
        #: The function that was loaded or called last.
        self.name = ""

    def serve(self) -> None:
        """Answers requests until the worker closes the socket."""
        os.register_at_fork(after_in_child=self.leave)
        while self.answer_next():
            pass
        os._exit(0)

    def answer_next(self) -> bool:
        """Answers the next request; returns whether there was one, and the worker has not closed the socket."""
        own = os.getpid()
        packet, descriptors, _, _ = socket.recv_fds(self.requests, MAX_PACKET_BYTES, 1)
        if not packet:
            return False
        kind, number = REQUEST.unpack_from(packet)
        passed = None
        try:
            reply = self.answer(kind, packet[REQUEST.size :], descriptors)
        except self.passed as error:
            reply, passed = failure(last_line(error)), error
        except BaseException as error:
            if os.getpid() == own:
                traceback.print_exception(type(error), error, error.__traceback__)
            reply = failure(last_line(error))
        if os.getpid() != own:
            text = f"function `{self.name}` forked a process that returned from it, and that was ended: end it with `os._exit(0)`"
            print(text, file=sys.stderr, flush=True)
            os._exit(0)
        self.requests.send(REQUEST.pack(reply[:1], number) + reply[1:])
        if passed is not None:
            raise passed
        return True

    def leave(self) -> None:
        """Runs in a process that a function has forked. That one has no socket to answer on, and its arguments are a copy: the worker
        writes the next ones, and reads what is returned, in the memory of this process."""
        self.requests.close()
        if self.memory is None or self.file is None:
            return
        place = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        call = ctypes.CDLL(None).mmap
        call.restype, call.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
        access, flags = mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | MAP_FIXED
        if call(place, len(self.memory), access, flags, self.file, 0) != place:
            os._exit(1)

    def answer(self, kind: bytes, body: bytes, descriptors: list[int]) -> bytes:
        if kind == b"C":
            return self.call(body)
        if kind == b"H":
            return hello(body, descriptors[0])
        if kind == b"M":
            (half,) = HALF.unpack(body)
            self.memory = mmap.mmap(descriptors[0], 2 * half)
            if self.file is not None:
                os.close(self.file)
            self.file = descriptors[0]
            os.set_inheritable(self.file, False)
            for function in self.functions:
                function.attach(self.memory)
        elif kind == b"S":
            self.name = body.decode()
            return described_source(self.name)
        else:
            described = json.loads(body)
            self.name = described["name"]
            function = Function(described)
            if self.memory is not None:
                function.attach(self.memory)
            self.functions.append(function)
            return b"K" + function.source.encode()
        return b"K"

    def call(self, body: bytes) -> bytes:
        number, *key = CALL.unpack_from(body)
        counts = [count for (count,) in HALF.iter_unpack(body[CALL.size :])]
        function = self.functions[number]
        self.name = function.name
        try:
            return b"K" + b"".join(map(HALF.pack, function.run(*key, counts)))
        except self.passed:
            raise
        except BaseException as error:
            return failure(function.describe(error))


def described_source(name: str) -> bytes:
    """Answers with the digest of a function's source. An exception is not printed: the function is loaded later, and printed then."""
    try:
        return b"K" + digest(name).encode()
    except BaseException as error:
        return failure(last_line(error))


def last_line(error: BaseException) -> str:
    """Returns the last line of a traceback."""
    return traceback.format_exception_only(type(error), error)[-1].strip()


def failure(text: str) -> bytes:
    return b"E" + text.encode(errors="replace")[:MAX_REPLY_BYTES]


def main() -> None:
    # A process may use one core of the worker's budget.
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(variable, "1")
    # If this call is missing or not allowed, the end of the socket still ends the process.
    try:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    except (OSError, AttributeError):
        pass
    requests = socket.socket(fileno=os.dup(0))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    # The process is killed when it is no longer needed: what is printed must not wait for more.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)
    Process(requests).serve()


def hello(body: bytes, worker: int) -> bytes:
    """Handles the first request: sets the module search path, and the program that `__main__` stands for. `worker` is a pipe that the
    worker's end closes."""
    global numpy, program
    end_with(worker)
    settings = json.loads(body)
    if settings["path"] is not None:
        sys.path[:] = settings["path"]
    program = settings["program"]
    numpy = importlib.import_module("numpy")
    return b"K"


def end_with(worker: int) -> None:
    """Lets the kernel kill this process, and all that functions have started and that is still in its group, once the pipe is closed."""
    os.set_inheritable(worker, False)
    try:
        fcntl.fcntl(worker, F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(worker, fcntl.F_SETOWN, -os.getpgrp())
        fcntl.fcntl(worker, fcntl.F_SETFL, fcntl.fcntl(worker, fcntl.F_GETFL) | os.O_ASYNC)
    except OSError:
        # As with `prctl`: a system without it ends this process, and not what it has started.
        pass


def module(name: str) -> Any:
    """Imports a module. `__main__` is the training program; it is imported under another name, as multiprocessing does,
    so that the code under `if __name__ == "__main__"` does not run."""
    global program_module, program_failure
    if name != "__main__":
        return importlib.import_module(name)
    if program is None:
        raise ImportError("`__main__` is another program than this process; name the function by its module")
    if program_failure is not None:
        raise program_failure
    # `__mp_main__` may be there without it, as another name of this process's own program: importing multiprocessing makes that.
    if program_module is None:
        # With this set, the package refuses to create a loader: a program without that line would train here too.
        os.environ["SPDL_CALLS_FUNCTIONS"] = "1"
        from multiprocessing import spawn

        try:
            spawn.prepare(program)
        except BaseException as error:
            # What it has run so far is no module, and would not be run again.
            program_failure = error
            raise
        program_module = sys.modules["__mp_main__"]
    return program_module


numpy: Any = None
program: Any = None
#: The training program, once it is imported.
program_module: Any = None
#: Why the training program could not be imported.
program_failure: BaseException | None = None

if __name__ == "__main__":
    main()
