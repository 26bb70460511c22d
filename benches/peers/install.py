"""Installs each peer once in its own virtual environment under target/peers/venvs, from the package index that pip is
configured with. Peers that need PyTorch share one copy of it, without the gigabytes of CUDA libraries that it requires."""

import functools
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "tests/python"))

import suite_venv  # noqa: E402

# Environments that others build on: packages, and those of them that are installed without what they require.
LAYERS = {"torch": [*suite_venv.TORCH_IMPORTS, "numpy"]}
BARE = {"torch": suite_venv.TORCH}


class Failed(Exception):
    """A peer does not install or run; the message is one line."""


@functools.cache
def environment(
    home: pathlib.Path,
    name: str,
    requirements: tuple[str, ...],
    layer: str | None = None,
    hook=None,
    bare: tuple[str, ...] = (),
) -> pathlib.Path:
    """Returns the Python of an environment with these packages, and makes the environment if needed. `hook(venv)`
    returns variables for pip; of `bare`, nothing is installed that they require."""
    below = environment(home, layer, tuple(LAYERS[layer])) if layer else None
    venv = home / name
    python, done = venv / "bin/python", venv / "complete"
    bare = (*BARE.get(name, ()), *bare)
    wanted = "\n".join([sys.version, str(layer), *requirements, *bare])
    if done.exists() and done.read_text() == wanted:
        return python
    print(f"installing {name}", file=sys.stderr, flush=True)
    shutil.rmtree(venv, ignore_errors=True)
    _run([sys.executable, "-m", "venv", str(venv)])
    if below:
        (_site(venv) / "layer.pth").write_text(f"{_site(below.parent.parent)}\n")
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-cache-dir"]
    if requirements:
        _run([*pip, *requirements], env=os.environ | (hook(venv) if hook else {}))
    if bare:
        _run([*pip, "--no-deps", *bare])
    if name in BARE:
        _without_cuda(_site(venv))
    done.write_text(wanted)
    return python


def versions(python: pathlib.Path, packages: list[str]) -> dict[str, str]:
    """Returns the installed versions of these packages."""
    code = "import importlib.metadata as m, json, sys; print(json.dumps({p: m.version(p) for p in sys.argv[1:]}))"
    output = subprocess.run([str(python), "-c", code, *packages], check=True, capture_output=True, text=True).stdout
    return json.loads(output)


def _without_cuda(packages: pathlib.Path) -> None:
    """Makes torch load without CUDA's libraries, and pip not install them for what builds on it."""
    suite_venv.stand_in(packages / "torch/lib")
    for about in packages.glob("torch-*.dist-info/METADATA"):
        kept = re.sub(r"^Requires-Dist: (cuda|nvidia|triton).*\n", "", about.read_text(), flags=re.MULTILINE)
        about.write_text(kept)


def _site(venv: pathlib.Path) -> pathlib.Path:
    return venv / f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"


def _run(command: list[str], env: dict[str, str] | None = None) -> None:
    done = subprocess.run(command, env=env, stdout=sys.stderr, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if "error" in line.lower()] or done.stderr.splitlines()
        raise Failed(f"does not install: {lines[-1].strip() if lines else f'exit code {done.returncode}'}")
