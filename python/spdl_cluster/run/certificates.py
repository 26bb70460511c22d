"""The certificates of a launch: of a CA that is made for it and ends with it."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Callable

from ..program import Outcome
from .errors import LaunchError

#: Days for which they are valid, and seconds after which they are made anew. Servers and trainers take over files that change.
DAYS, RENEW_S = 7, 24 * 3600.0
ROLES = ("worker", "client", "admin")
#: The certificates that other nodes need.
SHARED_ROLES = ("worker", "client")
_FILES = ("ca.pem", "cert.pem", "key.pem")


def issue(run: Callable[..., Outcome], folder: pathlib.Path) -> pathlib.Path:
    """Makes a CA, if there is none yet, and a certificate for each role in `folder`, with `run`, which runs `spdl-ctl`. Returns the CA's folder."""
    ca = folder / "ca"
    for role in ROLES:
        out = folder / "certs" / role
        done = run("cert", "--ca", ca, "--role", role, "--name", f"spdl-run-{role}", "--out", out, "--days", DAYS)
        if done.status != 0:
            raise LaunchError(f"no certificate can be made: {done.errors.strip()}")
    return ca


def texts(folder: pathlib.Path) -> dict[str, dict[str, str]]:
    """Returns the certificates that other nodes need, by role and file."""
    return {role: {name: (folder / "certs" / role / name).read_text() for name in _FILES} for role in SHARED_ROLES}


def write(folder: pathlib.Path, certificates: dict[str, dict[str, str]]) -> None:
    """Writes what `texts` returned on the first node."""
    for role in SHARED_ROLES:
        out = folder / "certs" / role
        out.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name in _FILES:
            partial = out / f".{name}"
            with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
                file.write(certificates[role][name])
            partial.replace(out / name)
