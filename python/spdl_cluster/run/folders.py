"""The folders of a launcher: a private one on this node, and one for all nodes of the launch."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pathlib
import re
import shutil
import stat
import tempfile
import time

from .errors import LaunchError
from .place import Place

_PREFIX = "spdl-run-"
_LOCK = "lock"
#: How long a folder that is kept is left for a next process.
KEPT_S = 300.0
#: A longer path leaves no room for the name of a Unix socket.
_PATH_BYTES = 80
#: Types of file systems that several nodes share.
_SHARED_TYPES = re.compile(
    r"nfs\d?|lustre|gpfs|beegfs|cifs|smb3|ceph|9p|virtiofs|pvfs2|orangefs|panfs|wekafs|afs|glusterfs|ocfs2|gfs2|fuse\..+"
)


class PrivateFolder:
    """A folder for certificates, sockets and logs, which only this user can read. It is removed at the end, or by the next launch
    if this one is killed with all its processes."""

    def __init__(self, name: str | None = None) -> None:
        """Makes it. One with a name is that which a process before has left, if there is one; `keep` keeps it for the next process."""
        parent = _temporary()
        _remove_abandoned(parent)
        if name is None:
            self.path = pathlib.Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
        else:
            self.path = private_path(name)
            make_private(self.path)
        # The lock ends with the last process that has this descriptor, however that ends.
        self._lock = os.open(self.path / f".{_LOCK}", os.O_CREAT | os.O_RDWR, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        os.rename(self.path / f".{_LOCK}", self.path / _LOCK)

    def keep(self) -> None:
        """Keeps the folder for `KEPT_S` seconds from now on, even if this process ends."""
        until = time.time() + KEPT_S
        os.utime(self._lock, (until, until))

    def remove(self) -> None:
        """Removes the folder."""
        shutil.rmtree(self.path, ignore_errors=True)


def private_path(name: str) -> pathlib.Path:
    """Returns the path of the private folder with this name."""
    return _temporary() / f"{_PREFIX}{name}"


def _temporary() -> pathlib.Path:
    parent = pathlib.Path(tempfile.gettempdir())
    return parent if len(os.fsencode(parent)) <= _PATH_BYTES else pathlib.Path("/tmp")


def make_private(folder: pathlib.Path, elsewhere: str | None = None, instead: str = "remove it") -> None:
    """Makes a folder that only this user can read, or checks that what is there is such a folder. `elsewhere` and `instead` are hints."""
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError as error:
        raise LaunchError(f"folder `{folder}` cannot be made: {error.strerror}", elsewhere) from error
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise LaunchError(f"`{folder}` is not a folder that only this user can read", instead)


def _remove_abandoned(parent: pathlib.Path) -> None:
    """Removes the folders of this user's launches that have ended without doing so."""
    for folder in parent.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            if folder.lstat().st_uid != os.geteuid():
                continue
            lock = os.open(folder / _LOCK, os.O_RDWR | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.fstat(lock).st_mtime <= time.time():
                    shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)


def exchange_folder(place: Place, shared: pathlib.Path | None) -> pathlib.Path:
    """Returns the folder through which the launchers of a launch find each other."""
    if place.launch is None:
        raise LaunchError(
            f"{place.count} launchers have no name in common: {place.source} give none", "give each of them the same `--launch-id`"
        )
    if shared is None and place.shared:
        shared = pathlib.Path(place.shared)
    if shared is None and place.is_one_node:
        shared = pathlib.Path(tempfile.gettempdir())
    if shared is None:
        shared = pathlib.Path(place.folder or ".").absolute()
        kind = file_system(shared, pathlib.Path("/proc/self/mountinfo").read_text())
        if kind is None or not _SHARED_TYPES.fullmatch(kind):
            raise LaunchError(
                f"`{shared}` is on a file system of type {kind}, which other nodes may not share",
                "name a folder that all nodes share with `--shared`",
            )
    if not shared.is_dir():
        raise LaunchError(f"`{shared}` is not a folder", "name one that all nodes share with `--shared`")
    name = re.sub(r"[^A-Za-z0-9._-]", "-", place.launch)[:120]
    return shared.absolute() / f".{_PREFIX}{name}"


def file_system(path: pathlib.Path, mounts: str) -> str | None:
    """Returns the type of the file system that a path is on, by the lines of a `mountinfo`."""
    best: tuple[int, str] | None = None
    for line in mounts.splitlines():
        fields = line.split(" ")
        if "-" not in fields[5:]:
            continue
        point = re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), fields[4])
        if path.is_relative_to(point) and (best is None or len(point) >= best[0]):
            best = (len(point), fields[fields.index("-", 5) + 1])
    return None if best is None else best[1]
