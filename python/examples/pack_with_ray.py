"""Packs a dataset in parts, as tasks of a Ray cluster, and merges them. With --tokenize it tokenizes text, or chats, in parts.

usage: python pack_with_ray.py SOURCE DATASET [--parts N] [--cpus N] [--crop-ready | --scalable] [--records-per-shard N] [--name NAME]
       python pack_with_ray.py SOURCE DATASET [--parts N] [--cpus N] --tokenize --tokenizer FILE [OPTION ...]

SOURCE is in a folder that all nodes share, or in a bucket, and so is DATASET. OPTION is any of `spdl-ctl tokenize --help`. A task whose node is lost
is started again by Ray, and goes on after its last whole shard, or unit of text; so does the whole program, if it is run again.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import ray
import spdl_cluster


def pack_part(source: str, dataset: str, part: str, options: dict[str, Any]) -> spdl_cluster.PartReport:
    """Packs one part."""
    report: spdl_cluster.PartReport = spdl_cluster.pack(source, dataset, part=part, progress=False, **options)
    return report


def tokenize_part(source: str, dataset: str, part: str, options: list[str]) -> dict[str, Any]:
    """Tokenizes one part, and returns the report."""
    command = [sys.executable, "-m", "spdl_cluster", "tokenize", source, dataset, *options, "--part", part, "--json"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"part {part}: {done.stderr}")
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def finished(running: list[Any]) -> Iterator[Any]:
    """Returns what tasks return, as each ends."""
    while running:
        [done], running = ray.wait(running)
        yield ray.get(done)


def main() -> None:
    """Makes all parts and merges them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False)
    parser.add_argument("source")
    parser.add_argument("dataset")
    parser.add_argument("--parts", type=int, default=8)
    parser.add_argument("--cpus", type=int, default=2, help="CPUs that Ray reserves for each part")
    parser.add_argument("--crop-ready", action="store_true")
    parser.add_argument("--scalable", action="store_true")
    parser.add_argument("--records-per-shard", type=int)
    parser.add_argument("--name")
    parser.add_argument("--tokenize", action="store_true")
    found, of_tokenize = parser.parse_known_args()
    if of_tokenize and not found.tokenize:
        parser.error(f"unknown options: {' '.join(of_tokenize)}")
    ray.init()
    tasks = {"num_cpus": found.cpus, "max_retries": 3}
    parts = [f"{number}/{found.parts}" for number in range(found.parts)]
    if found.tokenize:
        of_tokenize += ["--threads", str(found.cpus)] + (["--name", found.name] if found.name else [])
        tokenize = ray.remote(tokenize_part).options(**tasks)
        for made in finished([tokenize.remote(found.source, found.dataset, part, of_tokenize) for part in parts]):
            print(f"part {made['part']} of {made['parts']}: {made['documents']} documents, {made['tokens']} tokens", flush=True)
    else:
        options = {name: getattr(found, name) for name in ("crop_ready", "scalable", "records_per_shard", "name")}
        pack = ray.remote(pack_part).options(**tasks)
        for packed in finished([pack.remote(found.source, found.dataset, part, options) for part in parts]):
            print(f"part {packed.part} of {packed.parts}: {packed.shards} shards, {packed.kept_shards} of them packed before", flush=True)
    print(spdl_cluster.merge(found.dataset))


if __name__ == "__main__":
    main()
