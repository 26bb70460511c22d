"""What a launcher prints: lines on standard error that begin with its name."""

from __future__ import annotations

import pathlib
import sys

#: Lines of a log that are shown when its process fails.
_TAIL_LINES = 15
_TAIL_BYTES = 16 << 10


class Console:
    """The lines of one launcher."""

    def __init__(self, index: int, count: int, is_quiet: bool) -> None:
        self._name = "spdl-run" if count == 1 else f"spdl-run {index}"
        self._is_quiet = is_quiet

    def info(self, text: str) -> None:
        """Prints what goes on, unless only errors are wanted."""
        if not self._is_quiet:
            self._print(text)

    def error(self, text: object) -> None:
        """Prints why something fails."""
        self._print(f"error: {text}")

    def _print(self, text: str) -> None:
        try:
            print("".join(f"{self._name}: {line}\n" for line in text.splitlines()), end="", file=sys.stderr, flush=True)
        except OSError:
            # Nobody reads, which is no reason to end a training.
            pass


def tail(log: pathlib.Path) -> str:
    """Returns the last lines of a log."""
    try:
        with open(log, "rb") as file:
            file.seek(max(0, file.seek(0, 2) - _TAIL_BYTES))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError as error:
        return f"({error})"
    return "\n".join(f"  {line}" for line in lines[-_TAIL_LINES:]) or "  (it wrote nothing)"
