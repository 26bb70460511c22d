"""Installs what is compared, each once under target/, and runs measure.py there: see `run`."""

import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "benches/peers"), str(ROOT / "tests/python")]

import install  # noqa: E402

ALBUMENTATIONS = ("albumentations==2.0.8",)


def main(arguments: list[str]) -> None:
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    # The environment of the tests has torch and torchvision without CUDA's libraries.
    make = [sys.executable, str(ROOT / "tests/python/suite_venv.py"), str(target / "test-venv")]
    python = pathlib.Path(subprocess.run(make, check=True, stdout=subprocess.PIPE, text=True).stdout.strip())
    if "--no-build" in arguments:
        arguments.remove("--no-build")
    else:
        pip = [str(python), "-m", "pip", "install", "--quiet", "--no-build-isolation", "--no-deps", "--force-reinstall"]
        pip += ["--config-settings", "profile=release"]
        path = f"{python.parent}{os.pathsep}{os.environ['PATH']}"
        subprocess.run([*pip, str(ROOT / "python")], check=True, env=os.environ | {"PATH": path}, stdout=sys.stderr)
    peer = install.environment(target / "operations", "albumentations", ALBUMENTATIONS)
    # No library starts threads, and none asks the network for a newer version.
    one = {name: "1" for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NO_ALBUMENTATIONS_UPDATE")}
    found = [str(path) for path in peer.parents[1].glob("lib/*/site-packages")]
    measure = [str(python), str(pathlib.Path(__file__).with_name("measure.py")), *arguments]
    sys.exit(subprocess.run(measure, env=os.environ | one | {"SPDL_BENCH_PEERS": os.pathsep.join(found)}).returncode)


if __name__ == "__main__":
    main(sys.argv[1:])
