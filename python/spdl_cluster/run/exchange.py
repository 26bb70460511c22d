"""The folder through which the first launcher hands addresses and certificates to the others.

Each of the others writes a request with a number that it draws, and the first answers with that number, so that what an earlier
launch left is not taken for an answer. Both sides write their files again and again while they live. Only the owner can read the
folder, and a file is complete as soon as it is there.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pathlib
import secrets
import shutil
import time
from typing import Any

from .errors import LaunchError
from .folders import make_private

_FILE_BYTES = 1 << 20
_HEAD = "first.json"


class Exchange:
    """The folder of one launch."""

    def __init__(self, folder: pathlib.Path) -> None:
        """Makes the folder, or uses that of another launcher of this user."""
        self.folder = folder
        self.make()

    def make(self) -> None:
        """Makes the folder if there is none, and checks that it is private."""
        make_private(self.folder, "name one that all nodes share with `--shared`", "remove it, or give another `--launch-id`")

    def claim(self) -> None:
        """Claims the folder for the first launcher of a launch, until the last process with this claim ends."""
        self._claim = os.open(self.folder / "claim", os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(self._claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LaunchError(f"another launch goes on with `{self.folder}`", "give each launch a `--launch-id` of its own") from None
        except OSError:
            # A file system without locks. Then the name of the launch has to be enough.
            pass

    def write(self, name: str, content: dict[str, Any]) -> None:
        """Writes a file; readers see all of it or none."""
        partial = self.folder / f".{name}-{secrets.token_hex(4)}"
        try:
            with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "w") as file:
                json.dump(content, file)
            partial.replace(self.folder / name)
        except OSError as error:
            raise LaunchError(f"`{self.folder / name}` cannot be written: {error.strerror}") from error

    def read(self, name: str) -> dict[str, Any] | None:
        """Returns what is in a file; `None` if there is none."""
        try:
            with open(os.open(self.folder / name, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
                content = json.loads(file.read(_FILE_BYTES))
        except (OSError, ValueError):
            return None
        return content if isinstance(content, dict) else None

    def names(self) -> list[str]:
        """Returns the names of the files. Lists the folder, so that a network file system asks its server."""
        with contextlib.suppress(OSError):
            return os.listdir(self.folder)
        return []

    def remove(self) -> None:
        """Removes the folder."""
        shutil.rmtree(self.folder, ignore_errors=True)


class Others:
    """The other launchers, as the first one sees them."""

    def __init__(self, exchange: Exchange, count: int) -> None:
        self._exchange, self._count = exchange, count
        self._requests: dict[int, dict[str, Any]] = {}
        self._answered: dict[int, str] = {}
        self._heard: dict[int, float] = {}
        self._beats = 0

    def look(self) -> None:
        """Reads the requests, and says that the first launcher is there."""
        self._beats += 1
        self._exchange.write(_HEAD, {"beats": self._beats})
        there = set(self._exchange.names())
        for index in range(1, self._count):
            name = f"request-{index}.json"
            request = self._exchange.read(name) if name in there else None
            if request is None or not isinstance(request.get("number"), str):
                continue
            if request != self._requests.get(index):
                self._heard[index] = time.monotonic()
            self._requests[index] = request

    def answer(self, content: dict[str, Any]) -> None:
        """Answers each request that has no answer of this content yet."""
        for index, request in self._requests.items():
            key = json.dumps([request["number"], content])
            if self._answered.get(index) != key:
                self._exchange.write(f"answer-{index}.json", {**content, "number": request["number"]})
                self._answered[index] = key

    @property
    def missing(self) -> list[int]:
        """The launchers that have not come yet."""
        return [index for index in range(1, self._count) if index not in self._requests]

    def alive(self, silence_s: float) -> list[int]:
        """Returns the launchers whose command goes on, and which were not silent for so long."""
        since = time.monotonic() - silence_s
        return [index for index, request in self._requests.items() if not request.get("ended") and self._heard[index] > since]


class First:
    """The first launcher, as another one sees it."""

    def __init__(self, exchange: Exchange, index: int) -> None:
        self._exchange, self._index = exchange, index
        self._number = secrets.token_hex(16)
        self._beats = 0
        self._ended = False
        self._is_answered = False
        self._head: dict[str, Any] | None = None
        self._heard = time.monotonic()

    def look(self) -> None:
        """Says that this launcher is there, and looks whether the first one is."""
        self._beats += 1
        if not self._exchange.folder.exists():
            if self._is_answered:
                return
            # An earlier launch has removed it.
            self._exchange.make()
        self._exchange.write(f"request-{self._index}.json", {"number": self._number, "beats": self._beats, "ended": self._ended})
        head = self._exchange.read(_HEAD)
        if head is not None and head != self._head:
            self._heard, self._head = time.monotonic(), head

    def answer(self) -> dict[str, Any] | None:
        """Returns the answer to this launcher's request."""
        name = f"answer-{self._index}.json"
        answer = self._exchange.read(name) if name in self._exchange.names() else None
        if answer is None or answer.get("number") != self._number:
            return None
        self._is_answered = True
        return answer

    def end(self) -> None:
        """Says that this launcher's command has ended; without an answer, leaves nothing of the request."""
        self._ended = True
        if self._is_answered:
            self.look()
            return
        with contextlib.suppress(OSError):
            (self._exchange.folder / f"request-{self._index}.json").unlink()
            self._exchange.folder.rmdir()

    def is_gone(self, silence_s: float) -> bool:
        """Whether the first launcher has removed the folder, or was silent for so long."""
        return not self._exchange.folder.exists() or time.monotonic() - self._heard > silence_s
