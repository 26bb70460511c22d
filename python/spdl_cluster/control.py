"""The jobs of a cluster: `spdl-ctl job` and `spdl-ctl status` from Python."""

from __future__ import annotations

import json
import os
import pathlib
import re
import tempfile
from typing import Any

from . import environment, functions, program
from .errors import RefusedError, SettingError
from .functions import AnyJob

#: A version at the end of a job's name.
_VERSION = re.compile(r"(.*)-v(\d+)")
#: What the coordinator's refusal of a job says whose name another job has.
_DIFFERS = "it is there already"


def submit(
    job: AnyJob, *, new_version: bool = False, coordinators: str | None = None, certs: str | os.PathLike[str] | None = None
) -> str:
    """Creates a job in a cluster and returns its name; does nothing if the same job is there.

    job: path of a job file (TOML), a dict with the same keys, or an object of a dataclass with fields of these names. The source of its functions is found with this Python.
    new_version: if a job of this name is there and differs, create this one as the next version of it: `imagenet-v2` for `imagenet`. Without it, that is a
        `RefusedError`, which says what differs: a job does not change, because positions and checkpoints belong to it.
    coordinators: `HOST:PORT` of the coordinator, or of all of them, separated by commas. Default `SPDL_COORD`.
    certs: folder with `ca.pem`, `cert.pem` and `key.pem` of a client or an administrator. Default `SPDL_CERTS`.
    """
    name: str | None = None
    while True:
        try:
            return _submit(functions.job_text(job, name), coordinators, certs)
        except RefusedError as error:
            if _DIFFERS not in str(error):
                raise
            if not new_version:
                raise RefusedError(str(error), "`new_version=True` creates it as the next version of that job") from None
            name = _next_version(name or _name(functions.job_text(job)))


def jobs(*, coordinators: str | None = None, certs: str | os.PathLike[str] | None = None) -> list[dict[str, Any]]:
    """Returns the jobs of a cluster: name, dataset, position and further facts of each, in the form of `spdl-ctl status --json`. Takes what `submit` takes."""
    found: list[dict[str, Any]] = json.loads(_call(coordinators, certs, "job", "list", "--json").checked())
    return found


def remove(name: str, *, coordinators: str | None = None, certs: str | os.PathLike[str] | None = None) -> None:
    """Removes a job, with its positions and its ledger of bad samples. Takes what `submit` takes, and needs an administrator's certificate."""
    _call(coordinators, certs, "job", "remove", name).checked()


def status(*, coordinators: str | None = None, certs: str | os.PathLike[str] | None = None) -> dict[str, Any]:
    """Returns the state of a cluster: jobs, workers, ranks and what limits them, as `spdl-ctl status --json` prints it. Takes what `submit` takes."""
    found: dict[str, Any] = json.loads(_call(coordinators, certs, "status", "--json").checked())
    return found


def _submit(text: str, coordinators: str | None, certs: str | os.PathLike[str] | None) -> str:
    with tempfile.TemporaryDirectory(prefix="spdl-job-") as folder:
        path = pathlib.Path(folder, "job.toml")
        path.write_text(text)
        return program.submit(lambda *arguments: _call(coordinators, certs, *arguments), path)


def _call(coordinators: str | None, certs: str | os.PathLike[str] | None, *arguments: object) -> program.Outcome:
    """Runs `spdl-ctl` with what says where the cluster is."""
    place = environment.cluster(coordinators, certs, "admin")
    options: list[str] = []
    for flag, variable, value in (("--coord", "SPDL_COORD", place.coordinators), ("--certs", "SPDL_CERTS", place.certs)):
        if value is not None:
            options += [flag, value]
        elif not os.environ.get(variable):
            raise SettingError(
                f"neither `{flag[2:]}` nor variable `{variable}` says where the cluster is",
                f"set `{variable}`; a cluster of `spdl-ctl dev up` on this machine is found without it",
            )
    return program.run(*arguments, *options)


def _name(text: str) -> str:
    """Returns the name of the job in a text that `job_text` has made."""
    found = re.match(r'name = "([^"]*)"', text)
    assert found is not None, text
    return found[1]


def _next_version(name: str) -> str:
    found = _VERSION.fullmatch(name)
    return f"{found[1]}-v{int(found[2]) + 1}" if found else f"{name}-v2"
