"""Makes the virtual environment that the tests of the Python package run in, and prints the path of its Python.

usage: suite_venv.py FOLDER

If this Python has torch, the environment uses it. Otherwise torch's wheel is installed from the package index, without the
gigabytes of CUDA libraries that it requires: on the CPU none of their functions is called, so libraries whose functions all
fail are enough to load it. If torch cannot be installed, the environment's file `no-torch` has the reason; for the frameworks
of the examples, the file is `no-frameworks`.
"""

import pathlib
import re
import subprocess
import sys
import tempfile

import venv

PACKAGES = ["maturin==1.16.0", "ml_dtypes==0.5.4", "mypy==2.4.1", "numpy==2.4.6", "pytest==9.1.1", "pytest-xdist==3.8.0", "soundfile==0.14.0"]
TORCH = ["torch==2.15.0", "torchvision==0.29.2"]
#: The packages that they import, except the CUDA libraries.
TORCH_IMPORTS = ["filelock", "fsspec", "jinja2", "networkx", "pillow", "sympy", "typing-extensions"]
#: The frameworks of the examples. They require torch, and so the CUDA libraries; to leave these out, their other imports are
#: listed below.
FRAMEWORKS = ["lightning==2.6.6", "torchmetrics==1.9.0", "accelerate==1.15.0", "transformers==5.23.0", "spdl_core==0.8.0", "ray==2.60.0"]
FRAMEWORKS += ["webdataset==1.0.2", "timm==1.0.31", "torchaudio==2.11.1", "pycocotools==2.0.11"]
FRAMEWORKS += ["megatron-core==0.16.1", "datatrove==0.10.0", "trl==1.16.0", "lhotse==1.33.0"]
#: LeRobot requires older versions of `datasets`, torch and torchcodec, of which its datasets take what has not changed.
FRAMEWORKS += ["lerobot==0.4.4", "av==15.1.0", "torchcodec==0.17.0"]
#: torchtitan requires an older `datasets`, of which it takes what has not changed.
FRAMEWORKS += ["torchtitan==0.3.0", "torchdata==0.11.0", "spmd_types==0.2.3", "datasets==5.2.0"]
FRAMEWORKS_IMPORT = ["braceexpand", "huggingface_hub", "lightning-utilities", "packaging", "psutil", "pyyaml", "safetensors", "tqdm"]
#: Imports of datatrove.
FRAMEWORKS_IMPORT += ["dill", "humanize", "loguru", "multiprocess"]
#: Imports of torchtitan and of datasets.
FRAMEWORKS_IMPORT += ["tyro", "xxhash"]
#: Imports of transformers.
FRAMEWORKS_IMPORT += ["regex", "tokenizers", "typer"]
#: Imports of lhotse.
FRAMEWORKS_IMPORT += ["cytoolz", "intervaltree", "sortedcontainers"]
#: Imports of Ray and of Ray Train.
FRAMEWORKS_IMPORT += ["click", "filelock", "fsspec", "jsonschema", "msgpack", "pandas", "protobuf", "pyarrow", "pydantic", "requests"]
#: Libraries that are part of each system.
SYSTEM = re.compile(r"(lib(c|m|dl|rt|pthread|gcc_s|stdc\+\+|z)|ld-linux.*)\.so")
#: Versions of the symbols of those libraries.
SYSTEM_VERSIONS = ("GLIBC", "GCC", "CXXABI", "GOMP", "OMP", "GFORTRAN", "ZLIB")
#: The version of a library's symbols, if it is not the library's name.
VERSIONS = {"libnvshmem_host.so.3": "NVSHMEM", "libquadmath.so.0": "QUADMATH_1.0"}


def main(folder: str) -> None:
    print(make(folder) / "bin/python")


def make(folder: str | pathlib.Path) -> pathlib.Path:
    """Makes or reuses the environment, and returns its folder."""
    has_torch = subprocess.run([sys.executable, "-c", "import torch"], capture_output=True).returncode == 0
    home = venv.make(str(folder), *PACKAGES, sees_system=has_torch)
    absent = home / "no-torch"
    if not has_torch:
        with venv.locked(home):
            if absent.exists() or not list(home.glob("lib/*/site-packages/torchvision")):
                add_torch(home, absent)
    with venv.locked(home):
        there = home / "frameworks"
        if not absent.exists() and (not there.exists() or there.read_text() != "\n".join(FRAMEWORKS)):
            add_frameworks(home, home / "no-frameworks")
    return home


def add_torch(home: pathlib.Path, absent: pathlib.Path) -> None:
    """Installs torch, or writes the reason why it cannot."""
    absent.write_text("it is being installed")
    try:
        venv.pip(home, "--no-compile", *TORCH_IMPORTS)
        venv.pip(home, "--no-compile", "--no-deps", *TORCH)
        stand_in(next(home.glob("lib/*/site-packages/torch/lib")))
        subprocess.run([home / "bin/python", "-c", "import torchvision"], check=True, capture_output=True, text=True)
    except (subprocess.CalledProcessError, OSError) as error:
        absent.write_text(f"there is no torch to be had: {error} {getattr(error, 'stderr', '') or ''}")
        return
    absent.unlink()


def add_frameworks(home: pathlib.Path, absent: pathlib.Path) -> None:
    """Installs the frameworks, or writes the reason why it cannot."""
    try:
        venv.pip(home, "--no-compile", *FRAMEWORKS_IMPORT)
        venv.pip(home, "--no-compile", "--no-deps", *FRAMEWORKS)
    except (subprocess.CalledProcessError, OSError) as error:
        absent.write_text(f"they cannot be installed: {error}")
        return
    absent.unlink(missing_ok=True)
    (home / "frameworks").write_text("\n".join(FRAMEWORKS))


def stand_in(libraries: pathlib.Path) -> None:
    """Replaces the missing libraries that torch requires by libraries of failing functions."""
    there = {path.name for path in libraries.iterdir()}
    needed: set[str] = set()
    symbols: dict[str, set[str]] = {}
    for library in libraries.glob("*.so*"):
        needed.update(re.findall(r"\(NEEDED\).*\[(.*)\]", tool("readelf", "-dW", library)))
        for line in tool("nm", "-D", "-u", "--with-symbol-versions", library).splitlines():
            kind, symbol = line.split()
            name, _, version = symbol.partition("@")
            if kind == "U" and not name.startswith("_Z") and not version.lstrip("@").startswith(SYSTEM_VERSIONS):
                symbols.setdefault(version.lstrip("@"), set()).add(name)
    # Symbols without a version may be of any library. Where torch itself defines one of them, the loader finds torch's first.
    anyones = {name for name in symbols.get("", set()) if name.startswith(("cu", "nccl", "nv"))}
    for name in sorted(needed):
        if name not in there and not SYSTEM.match(name):
            version = VERSIONS.get(name, name)
            build(libraries / name, symbols.get(version, anyones), version if version in symbols else None)


def build(library: pathlib.Path, functions: set[str], version: str | None) -> None:
    """Compiles a library whose functions all return 100, CUDA's `cudaErrorNoDevice`."""
    with tempfile.TemporaryDirectory() as folder:
        source, versions = pathlib.Path(folder, "stand-in.c"), pathlib.Path(folder, "versions")
        source.write_text("".join(f"long {function}(void) {{ return 100; }}\n" for function in sorted(functions)))
        options = [f"-Wl,-soname,{library.name}"]
        if version:
            versions.write_text(f"{version} {{ global: *; }};\n")
            options.append(f"-Wl,--version-script={versions}")
        tool("cc", "-shared", "-fPIC", "-fno-builtin", "-w", "-o", library, source, *options)


def tool(*command: object) -> str:
    """Runs a tool and returns its output."""
    return subprocess.run(list(map(str, command)), check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
