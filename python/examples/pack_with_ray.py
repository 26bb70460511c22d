"""Packs a dataset in parts, as tasks of a Ray cluster, and merges them.

usage: python pack_with_ray.py SOURCE DATASET [--parts N] [--cpus N] [--crop-ready | --scalable] [--records-per-shard N] [--name NAME]

SOURCE is in a folder that all nodes share, or in a bucket, and so is DATASET. A task whose node is lost is started again by Ray, and goes on
after its last whole shard; so does the whole program, if it is run again.
"""

from __future__ import annotations

import argparse
from typing import Any

import ray
import spdl_cluster


def pack_part(source: str, dataset: str, part: str, options: dict[str, Any]) -> spdl_cluster.PartReport:
    """Packs one part."""
    return spdl_cluster.pack(source, dataset, part=part, progress=False, **options)


def main() -> None:
    """Packs all parts and merges them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source")
    parser.add_argument("dataset")
    parser.add_argument("--parts", type=int, default=8)
    parser.add_argument("--cpus", type=int, default=2, help="CPUs that Ray reserves for each part")
    parser.add_argument("--crop-ready", action="store_true")
    parser.add_argument("--scalable", action="store_true")
    parser.add_argument("--records-per-shard", type=int)
    parser.add_argument("--name")
    found = parser.parse_args()
    options = {name: getattr(found, name) for name in ("crop_ready", "scalable", "records_per_shard", "name")}
    ray.init()
    task = ray.remote(pack_part).options(num_cpus=found.cpus, max_retries=3)
    running = [task.remote(found.source, found.dataset, f"{number}/{found.parts}", options) for number in range(found.parts)]
    while running:
        [done], running = ray.wait(running)
        report = ray.get(done)
        print(f"part {report.part} of {report.parts}: {report.shards} shards, {report.kept_shards} of them packed before", flush=True)
    print(spdl_cluster.merge(found.dataset))


if __name__ == "__main__":
    main()
