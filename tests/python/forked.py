"""Runs a program in a copy of a process that has imported what the program needs, as `fork_server.py` makes it, and ends as it does:

    forked.py torchrun MODULE,... OPTION... PROGRAM ARGUMENT...    under torchrun, whose ranks are copies too
    forked.py python MODULE,... PROGRAM ARGUMENT...                as `python -u` does

The program has this process's streams, folder and environment. SIGTERM kills it with all its ranks, and so does the end of this process.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys


def main(launcher: str, modules: str, *arguments: str) -> int:
    server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    server.connect(os.environ["SPDL_TEST_FORK_SERVER"])
    request = {"launcher": launcher, "modules": modules, "arguments": arguments, "folder": os.getcwd(), "environment": dict(os.environ)}
    socket.send_fds(server, [json.dumps(request).encode()], [0, 1, 2])
    signal.signal(signal.SIGTERM, lambda *_: server.send(b"kill"))
    ended = server.recv(64)
    if not ended:
        sys.exit(f"the process that has imported `{modules}` has ended")
    code = int(ended)
    if code < 0:
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
