"""Installs what is compared, once under target/, builds ours, and runs measure.py with them: see `run`."""

import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benches/peers"))

import install  # noqa: E402

PACKAGES = ("soxr==1.1.0", "kaldi-native-fbank==1.23.0", "numba", "tiktoken", "more-itertools", "tqdm", "transformers==5.24.0")
#: They require torch, and so the CUDA libraries.
BARE = ("torchaudio==2.11.1", "openai-whisper==20250625")


def main(arguments: list[str]) -> None:
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    python = install.environment(target / "sound", "torch", tuple(install.LAYERS["torch"])) and install.environment(
        target / "sound", "sound", PACKAGES, layer="torch", bare=BARE
    )
    if "--program" not in arguments:
        arguments = [*arguments, "--program", build()]
    one = {name: "1" for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
    measure = [str(python), str(pathlib.Path(__file__).with_name("measure.py")), *arguments]
    sys.exit(subprocess.run(measure, env=os.environ | one).returncode)


def build() -> str:
    """Builds the benchmark of the crate, and returns its path."""
    command = ["cargo", "bench", "--locked", "--package", "spdl-sound", "--bench", "sound", "--no-run", "--message-format", "json"]
    lines = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    built = [message for message in map(json.loads, lines) if message.get("target", {}).get("name") == "sound"]
    return next(message["executable"] for message in built if message.get("executable"))


if __name__ == "__main__":
    main(sys.argv[1:])
