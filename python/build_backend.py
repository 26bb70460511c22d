"""Builds the package with maturin, and puts the program `spdl-ctl` into the wheel.

maturin builds either an extension module or programs. So this backend builds the program before, in the same workspace, and leaves
it where maturin looks for what a wheel installs beside its module.

`--config-settings profile=NAME` chooses cargo's profile for both. The default in a repository is `dev`, whose crates `cargo run` and
`cargo test` have built already; in a source distribution, where nothing else is built, it is `release`.
"""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
import zipfile
from typing import Any

import maturin
from maturin import build_sdist, get_requires_for_build_sdist, get_requires_for_build_wheel

__all__ = ["build_editable", "build_sdist", "build_wheel", "get_requires_for_build_editable", "get_requires_for_build_sdist"]
__all__ += ["get_requires_for_build_wheel"]

HERE = pathlib.Path(__file__).parent
PROGRAM = "spdl-ctl"
#: What maturin installs with the programs of the environment.
SCRIPTS = HERE / "spdl_cluster._native.data/scripts"

get_requires_for_build_editable = get_requires_for_build_wheel


def build_wheel(folder: str, settings: dict[str, Any] | None = None, metadata: str | None = None) -> str:
    """Builds a wheel into `folder` and returns its name."""
    return checked(folder, maturin.build_wheel(folder, prepared(settings), metadata))


def build_editable(folder: str, settings: dict[str, Any] | None = None, metadata: str | None = None) -> str:
    """Builds a wheel that refers to the sources of the package, into `folder`, and returns its name."""
    return checked(folder, maturin.build_editable(folder, prepared(settings), metadata))


def prepared(settings: dict[str, Any] | None) -> dict[str, Any]:
    """Builds the program, and returns the settings with which maturin builds the module in the same profile."""
    profile = (settings or {}).get("profile", default_profile())
    add_program(profile)
    arguments = [*maturin.get_maturin_pep517_args(settings), "--profile", profile]
    # A wheel of `dev` does not travel: to compress its 300 MB takes longer than to make it.
    if profile == "dev" and not any(argument.startswith("--compression-method") for argument in arguments):
        arguments += ["--compression-method", "stored"]
    return {"build-args": arguments}


def default_profile() -> str:
    """Returns the profile that is built if none is chosen."""
    return "release" if (HERE / "PKG-INFO").exists() else "dev"


def checked(folder: str, name: str) -> str:
    """Returns the name of a wheel that has the program."""
    with zipfile.ZipFile(pathlib.Path(folder, name)) as wheel:
        if not any(member.endswith(f".data/scripts/{PROGRAM}") for member in wheel.namelist()):
            raise RuntimeError(f"maturin has left `{SCRIPTS}` out of `{name}`")
    return name


def add_program(profile: str) -> None:
    """Builds the program and puts a copy into the folder of scripts."""
    # Both packages: so the program's dependencies have the features that the extension's have, and are built once for both.
    command = ["cargo", "build", "--profile", profile, "--locked", "--package", "spdl-python", "--package", "spdl-cli", "--bin", PROGRAM]
    command.append("--message-format=json-render-diagnostics")
    output = subprocess.run(command, cwd=HERE, check=True, stdout=subprocess.PIPE).stdout
    messages = map(json.loads, output.splitlines())
    [built] = [message["executable"] for message in messages if message.get("executable")]
    SCRIPTS.mkdir(parents=True, exist_ok=True)
    # Renamed when it is complete: two builds can go on at once.
    copy = SCRIPTS.with_name(f".{PROGRAM}-{os.getpid()}")
    shutil.copy(built, copy)
    copy.replace(SCRIPTS / PROGRAM)
