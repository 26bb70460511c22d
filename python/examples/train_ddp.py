"""Trains a small network with DistributedDataParallel, validates it after each epoch, and resumes in the middle of an
epoch after any interruption.

    torchrun --nproc-per-node 2 python/examples/train_ddp.py --demo
    torchrun --nproc-per-node 8 python/examples/train_ddp.py --job train.toml --validate val.toml     # the pipeline in this process
    SPDL_COORD=head:7400 SPDL_JOB=tour SPDL_CERTS=certs/client torchrun ... train_ddp.py     # served by a cluster

With `--checkpoint FILE` it saves model, optimiser and loader every `--every` steps and when it gets SIGTERM, as SLURM and
Kubernetes send it before they take a node away. It continues from there when it is started again, with any number of ranks.
"""

from __future__ import annotations

import argparse
import atexit
import json
import os
import pathlib
import shutil
import signal
import sys
import tempfile
from typing import Any

import spdl_cluster
import spdl_cluster.demo
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

LABEL = {"name": "label", "from": "cls", "decode": "int"}

#: The job that the demo trains on: pictures of 32 pixels and their classes, every sample once an epoch.
DEMO_JOB = {
    "name": "demo",
    "seed": 17,
    "global_batch": 32,
    "epochs": 2,
    "epoch_end": "exact",
    "column": [
        {
            "name": "image",
            "from": "jpg",
            "decode": "image",
            "ops": [{"random_resized_crop": {"size": 32, "scale": [0.5, 1.0]}}, {"random_flip": {}}],
        },
        LABEL,
    ],
}

#: The job that the demo validates on: every sample once, in the same order each time. Its loader gives the whole
#: dataset at every `for`; the last batch is short.
DEMO_VALIDATION = {
    "name": "demo-validation",
    "global_batch": 32,
    "shuffle": False,
    "column": [
        {"name": "image", "from": "jpg", "decode": "image", "ops": [{"resize": {"size": 36}}, {"center_crop": {"size": 32}}]},
        LABEL,
    ],
}


#: The exit code of a training that SIGTERM has ended before the job's end: `EX_TEMPFAIL`.
ENDED_EARLY = 75


class Notice:
    """The notice that this training is to end soon: SIGTERM, to one rank or to all."""

    def __init__(self) -> None:
        self._is_here = False
        signal.signal(signal.SIGTERM, self._handle)

    def _handle(self, number: int, frame: object) -> None:
        self._is_here = True

    def has_come(self) -> bool:
        """Returns whether it has come to any rank. All ranks call this after the same step, and get the same answer."""
        is_anywhere = torch.tensor(float(self._is_here))
        dist.all_reduce(is_anywhere, dist.ReduceOp.MAX)
        return bool(is_anywhere)


def network(classes: int) -> nn.Module:
    """Returns a network of a few convolutions: enough to learn colours and textures."""
    return nn.Sequential(
        nn.Conv2d(3, 16, 5, stride=2, padding=2),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(128, classes),
    )


def demo_data(pictures: int) -> str:
    """Returns a folder with two datasets of the demo's pictures, made by rank 0 for all ranks."""
    folder = [""]
    if dist.get_rank() == 0:
        folder = [tempfile.mkdtemp(prefix="spdl-demo-")]
        atexit.register(shutil.rmtree, folder[0])
        spdl_cluster.demo.pack_pictures(os.path.join(folder[0], "train"), pictures)
        spdl_cluster.demo.pack_pictures(os.path.join(folder[0], "validation"), max(1, pictures // 3), seed=1)
    dist.broadcast_object_list(folder)
    return folder[0]


def open_loaders(
    arguments: argparse.Namespace, state: dict[str, Any] | None
) -> tuple[spdl_cluster.Loader, spdl_cluster.Loader | None]:
    """Returns this rank's loaders for training and for validation. Rank and world are those of the process group."""
    if arguments.demo:
        folder = demo_data(arguments.pictures)
        train = {**DEMO_JOB, "dataset": os.path.join(folder, "train")}
        validation = {**DEMO_VALIDATION, "dataset": os.path.join(folder, "validation")}
        return spdl_cluster.local(train, state=state), spdl_cluster.local(validation)
    if arguments.job:
        loader = spdl_cluster.local(arguments.job, state=state)
        return loader, spdl_cluster.local(arguments.validate) if arguments.validate else None
    return spdl_cluster.connect(state=state), spdl_cluster.connect(job=arguments.validate) if arguments.validate else None


def validate(model: nn.Module, loader: spdl_cluster.Loader) -> str:
    """Validates the model on the whole validation set, over all ranks; returns the result as text."""
    right_and_all = torch.zeros(2)
    model.eval()
    with torch.no_grad():
        for batch in loader:
            answers = model(batch["image"].permute(0, 3, 1, 2).float() / 255)
            # Bad samples are masked, and the last batch of an `exact` job has empty entries.
            right_and_all[0] += ((answers.argmax(1) == batch["label"]) & batch.valid).sum()
            right_and_all[1] += batch.valid.sum()
    model.train()
    dist.all_reduce(right_and_all)
    right, total = right_and_all.tolist()
    return f"{right:.0f} of {total:.0f} validation samples are right"


def main() -> None:
    """Trains to the end of the job, and prints how many samples it saw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--demo", action="store_true", help="make pictures and train on them")
    parser.add_argument("--pictures", type=int, default=320, help="pictures of the demo")
    parser.add_argument("--job", help="a job file; without it and without --demo, the SPDL_* variables name a cluster's job")
    parser.add_argument("--validate", help="a job to validate with after each epoch: a job file with --job, else a cluster's job")
    parser.add_argument("--classes", type=int, default=16, help="at least as many as the labels have")
    parser.add_argument("--checkpoint", type=pathlib.Path, help="file to save to, and to go on from where it exists")
    parser.add_argument("--every", type=int, default=10, help="steps between two checkpoints")
    parser.add_argument("--trace", type=pathlib.Path, help="folder for what each rank saw: a line of JSON for each step")
    arguments = parser.parse_args()
    notice = Notice() if arguments.checkpoint else None

    torch.manual_seed(17)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DistributedDataParallel(network(arguments.classes))
    optimiser = torch.optim.Adam(model.parameters(), lr=3e-3)
    state = None
    if arguments.checkpoint and arguments.checkpoint.exists():
        checkpoint = torch.load(arguments.checkpoint, weights_only=True)
        model.module.load_state_dict(checkpoint["model"])
        optimiser.load_state_dict(checkpoint["optimiser"])
        state = checkpoint["loader"]
    trace = None
    if arguments.trace:
        trace = open(arguments.trace / f"{rank}-of-{dist.get_world_size()}.jsonl", "a", buffering=1)

    seen: list[tuple[int, int]] = []
    right = total = 0.0
    loader, validation = open_loaders(arguments, state)
    with loader:
        step = 0
        for epoch in range(loader.epoch, loader.epochs):
            for batch in loader:
                # Write the trace before the step, which all ranks end together: so every step that a checkpoint counts
                # is in the traces of all ranks.
                entries = zip(batch.epochs.tolist(), batch.ids.tolist(), batch.valid.tolist())
                new = [(at, sample) for at, sample, valid in entries if valid]
                if trace:
                    step_seen = {"from": batch.position, "next": batch.next_position, "seen": new, "receipt": loader.receipt}
                    trace.write(json.dumps(step_seen) + "\n")

                images = batch["image"].permute(0, 3, 1, 2).float() / 255
                answers = model(images)
                # At the end of an `exact` epoch a rank can have empty entries, which must not count.
                losses = nn.functional.cross_entropy(answers, batch["label"], reduction="none")
                loss = (losses * batch.valid).sum() * loader.world / loader.global_batch
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()

                step += 1
                seen += new
                if epoch == loader.epochs - 1:
                    right += float(((answers.argmax(1) == batch["label"]) & batch.valid).sum())
                    total += len(new)
                is_ending = notice is not None and notice.has_come()
                if arguments.checkpoint and rank == 0 and (is_ending or step % arguments.every == 0):
                    save(arguments.checkpoint, model.module, optimiser, loader)
                if is_ending:
                    # torchrun ends the others when one has ended, and rank 0 may still save.
                    dist.barrier()
                    sys.exit(ENDED_EARLY)
            if validation is not None:
                # Validate without DDP's wrapper, which would broadcast its buffers needlessly.
                verdict = validate(model.module, validation)
                if rank == 0:
                    print(f"epoch {epoch}: {verdict}")
        if arguments.checkpoint and rank == 0:
            save(arguments.checkpoint, model.module, optimiser, loader)
    if validation is not None:
        validation.close()

    everything = gathered((seen, right, total))
    if rank == 0:
        samples = [sample for ranks_seen, _, _ in everything for sample in ranks_seen]
        accuracy = 100 * sum(right for _, right, _ in everything) / max(1, sum(total for _, _, total in everything))
        epochs = len({epoch for epoch, _ in samples})
        repeated = len(samples) - len(set(samples))
        print(
            f"saw {len(samples)} samples in {epochs} epochs on {len(everything)} ranks, {repeated} of them twice; "
            f"{accuracy:.0f} % of the last epoch's were classified correctly"
        )
    dist.destroy_process_group()


def gathered(value: Any) -> list[Any]:
    """Returns the values of all ranks, by rank."""
    everything: list[Any] = [None] * dist.get_world_size()
    # Gloo's threads abort a process that exits while they release a Python object. DDP keeps the threads of the default
    # group alive; those of a group made here end with it: https://github.com/pytorch/pytorch/pull/179291
    dist.all_gather_object(everything, value, group=dist.new_group())
    return everything


def save(path: pathlib.Path, model: nn.Module, optimiser: torch.optim.Optimizer, loader: spdl_cluster.Loader) -> None:
    """Saves a checkpoint atomically: one that a crash cut off would be worse than an older one."""
    checkpoint = {"model": model.state_dict(), "optimiser": optimiser.state_dict(), "loader": loader.state_dict()}
    partial = path.with_suffix(".partial")
    torch.save(checkpoint, partial)
    os.replace(partial, path)


if __name__ == "__main__":
    main()
