"""Compares `spdl-ctl tokenize` with Hugging Face's `tokenizers`: megabytes of text a second of CPU time, one thread each, on the same text.

usage: python benches/text_to_tokens.py [--megabytes 50] [--rounds 9] [--memory SIZE] [--program SPDL_CTL] [TOKENIZER ...]

Each round measures both, one after the other; the medians count. The library gets its texts as a list in memory, and the time is that of
`encode_batch` alone. The command reads JSON lines and writes a shuffled dataset; of its time, what a few bytes of text take is subtracted:
that is opening the tokenizer. The floor of the command is what the library takes and what a bare write of as many bytes as the dataset has
takes. Without `--program`, it builds `spdl-ctl` in release.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/python"))

import sample_texts  # noqa: E402
import tokenizer_ids  # noqa: E402

#: What a run of the library does: it prints the CPU seconds, and the number of tokens.
ENCODE = """
import json, sys, time
import tokenizers
tokenizer = tokenizers.Tokenizer.from_file(sys.argv[1])
with open(sys.argv[2]) as file:
    texts = [json.loads(line)["text"] for line in file]
tokenizer.encode_batch(texts[:4], add_special_tokens=False)
begin = time.process_time()
encoded = tokenizer.encode_batch(texts, add_special_tokens=False)
print(json.dumps([time.process_time() - begin, sum(len(one.ids) for one in encoded)]))
"""
#: Each has a thread of its own.
ALONE = {"TOKENIZERS_PARALLELISM": "false", "RAYON_NUM_THREADS": "1"}


def main() -> None:
    """Measures, and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=float, default=50, help="amount of text")
    parser.add_argument("--rounds", type=int, default=9, help="measurements of each")
    parser.add_argument("--memory", help="of the command: with 1, it writes all tokens twice, as it does most of a long source")
    parser.add_argument("--program", type=pathlib.Path, help="the spdl-ctl to measure")
    names = ", ".join(tokenizer_ids.PACKAGES)
    parser.add_argument("tokenizer", nargs="*", default=list(tokenizer_ids.PACKAGES), help=f"of {names}; all of these when not given")
    arguments = parser.parse_args()
    program = arguments.program.resolve() if arguments.program else release()
    texts = sample_texts.documents(int(arguments.megabytes * 1e6))
    megabytes = sum(len(text.encode()) for text in texts) / 1e6
    print(f"{megabytes:.1f} MB of text, {arguments.rounds} rounds, {tokenizer_ids.REFERENCE[0]}, {program}\n")
    print("| tokenizer | spdl-ctl tokenize, MB/s | tokenizers, MB/s | ratio | of the floor |\n|---|---|---|---|---|")
    for name in arguments.tokenizer:
        with tempfile.TemporaryDirectory() as folder:
            tokenize: list[pathlib.Path | str] = [program, "tokenize", *(["--memory", arguments.memory] if arguments.memory else [])]
            ours, theirs, written = measure(tokenize, tokenizer_ids.model(name), texts, arguments.rounds, pathlib.Path(folder))
        ratios = f"{theirs / ours:.2f} | {(theirs + written) / ours:.2f}"
        print(f"| {name} | {megabytes / ours:.2f} | {megabytes / theirs:.2f} | {ratios} |", flush=True)


def release() -> pathlib.Path:
    """Builds the program that ships, and returns its path."""
    subprocess.run(["cargo", "build", "--release", "--locked", "--bin", "spdl-ctl"], cwd=ROOT, check=True)
    return tokenizer_ids.TARGET / "release/spdl-ctl"


def measure(
    program: list[pathlib.Path | str], model: pathlib.Path, texts: list[str], rounds: int, folder: pathlib.Path
) -> tuple[float, float, float]:
    """Returns the CPU seconds of both for all texts, and of a bare write of the dataset's bytes."""
    whole, empty = folder / "texts.jsonl", folder / "empty.jsonl"
    for path, lines in ((whole, texts), (empty, ["a"])):
        path.write_text("".join(json.dumps({"text": text}) + "\n" for text in lines))
    ours, theirs, written = [], [], []
    for _ in range(rounds):
        made, nearly_empty = folder / "made", folder / "empty"
        ours.append(command(program, model, whole, made) - command(program, model, empty, nearly_empty))
        encode = [str(tokenizer_ids.reference()), "-c", ENCODE, str(model / "tokenizer.json"), str(whole)]
        done = subprocess.run(encode, check=True, stdout=subprocess.PIPE, env=os.environ | ALONE)
        theirs.append(json.loads(done.stdout)[0])
        written.append(bare_write(sum(file.stat().st_size for file in made.iterdir()), folder / "bare"))
        # The next round writes into memory that the system has at hand.
        shutil.rmtree(made)
        shutil.rmtree(nearly_empty)
    return statistics.median(ours), statistics.median(theirs), statistics.median(written)


def bare_write(count: int, path: pathlib.Path) -> float:
    """Returns the CPU seconds that writing so many bytes into a new file takes."""
    piece = memoryview(os.urandom(1 << 20))
    before = resource.getrusage(resource.RUSAGE_SELF)
    with path.open("wb", buffering=0) as file:
        for begin in range(0, count, len(piece)):
            file.write(piece[: count - begin])
        os.fsync(file.fileno())
    after = resource.getrusage(resource.RUSAGE_SELF)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def command(program: list[pathlib.Path | str], model: pathlib.Path, texts: pathlib.Path, out: pathlib.Path) -> float:
    """Returns the CPU seconds of a run of the command."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([*program, texts, out, "--tokenizer", model, "--threads", "1", "--json"], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


if __name__ == "__main__":
    main()
