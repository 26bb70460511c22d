"""Two processes, of which each cleans up when the other is killed.

The outer one is the process that the user has started. It hands signals to the inner one, which does the work, and returns its
exit code. If the inner one is killed, the outer one becomes the parent of all that it had started, and ends it. If the outer one is
killed, the inner one reads the end of a pipe.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable

from .linux import SignalInfo, adopt_orphans
from .events import block_signals
from .processes import Processes

#: What a process gets to end after SIGTERM, when there is nothing to wait for any more.
GRACE_S = 10.0


def guarded(work: Callable[[set[signal.Signals | int], int], int], clean: Callable[[], None]) -> int:
    """Runs `work` in a child and returns its exit code. Whatever ends the child, no process of it is left, and `clean` is called.

    `work` gets the mask of signals for the programs that it starts, and a descriptor that can be read when this process is gone. It then ends
    its processes and calls `clean` itself.
    """
    mask = block_signals()
    adopt_orphans()
    read, write = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    inner = os.fork()
    if inner == 0:
        os.close(write)
        code = 1
        try:
            adopt_orphans()
            code = work(mask, read)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    os.close(read)
    status: list[int] = []

    def forward(info: SignalInfo) -> None:
        if not status:
            os.kill(inner, info.number)

    processes = Processes(mask, forward, {inner: lambda code: status.append(code)})
    processes.events.wait(lambda: bool(status))
    processes.end_orphans(GRACE_S)
    clean()
    return status[0] if status[0] >= 0 else 128 - status[0]
