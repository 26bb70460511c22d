"""Trains a tiny GPT of Megatron-core on the CPU: `megatron_program.py TRAINING...`.

Each training is JSON: `job`, a job file for `spdl_cluster.megatron`, or `prefix`, that of `.bin` and `.idx` for Megatron's `GPTDataset`, with the order of its
`documents` and of its `samples`; `rows` of a micro-batch, `micro_batches` of a step, `seq_len`, `steps`, and after how many of them it
begins (`after`). It prints of each training the loss of each step, and digests of its micro-batches, as JSON.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import pathlib
import sys
import types
from collections.abc import Iterator
from typing import Any

import spdl_cluster
import spdl_cluster.megatron
import torch
import torch.distributed
from torch.utils.data import DataLoader

EOS = 256


def model_of(seq_len: int) -> Any:
    """Makes the model."""
    from megatron.core.models.gpt import GPTModel
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.transformer.transformer_config import TransformerConfig

    torch.manual_seed(3)
    dropout = {"hidden_dropout": 0.0, "attention_dropout": 0.0}
    unfused = {"gradient_accumulation_fusion": False, "bias_activation_fusion": False, "masked_softmax_fusion": False}
    config = TransformerConfig(num_layers=2, hidden_size=32, num_attention_heads=2, use_cpu_initialization=True, **dropout, **unfused)
    return GPTModel(config, get_gpt_layer_local_spec(), vocab_size=EOS + 1, max_sequence_length=seq_len, position_embedding_type="rope")


def from_provider(provider: Any, **args: Any) -> Iterator[dict[str, Any]]:
    """Returns what Megatron's `pretrain` gets from a provider with these arguments of its command line."""
    known = types.SimpleNamespace(**{"dataloader_type": "external", "consumed_train_samples": 0, **args})
    # It is of Megatron-LM, beside Megatron-core.
    sys.modules["megatron.training"] = types.SimpleNamespace(get_args=lambda: known)  # type: ignore[assignment]
    train, valid, test = provider([0, 0, 0])
    assert valid is test is None
    return iter(train)


def of_job(settings: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Returns batches of a job."""
    provider = spdl_cluster.megatron.provider(functools.partial(spdl_cluster.local, settings["job"]))
    batch = settings["rows"] * settings["micro_batches"]
    consumed = batch * settings.get("after", 0)
    sizes = {"micro_batch_size": settings["rows"], "seq_length": settings["seq_len"]}
    return from_provider(provider, global_batch_size=batch, consumed_train_samples=consumed, **sizes)


def of_dataset(settings: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Returns batches of Megatron's dataset, in this order."""
    from test_language_peers import gpt_dataset

    made = gpt_dataset(pathlib.Path(settings["prefix"]), settings["documents"], False, settings["seq_len"])
    return iter(DataLoader(made, settings["rows"], sampler=settings["samples"]))


def train(settings: dict[str, Any]) -> dict[str, Any]:
    """Trains, and returns what it has done."""
    model = model_of(settings["seq_len"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=8e-3)
    batches = of_job(settings) if "job" in settings else of_dataset(settings)
    causal = torch.ones(settings["seq_len"], settings["seq_len"], dtype=torch.bool).triu(1)[None, None]
    losses, seen = [], []
    for _ in range(settings["steps"] - settings.get("after", 0)):
        optimizer.zero_grad()
        total, count = 0.0, 0.0
        for _ in range(settings["micro_batches"]):
            batch = spdl_cluster.megatron.get_batch(batches, "cpu")
            seen.append(hashlib.sha256(batch["tokens"].numpy().tobytes()).hexdigest())
            mask = batch["loss_mask"]
            # Attention of this kind wants a mask on the CPU.
            losses_of = model(batch["tokens"], batch["position_ids"], causal, labels=batch["labels"])
            loss = (losses_of * mask).sum()
            (loss / (mask.numel() * settings["micro_batches"])).backward()
            total, count = total + float(loss), count + float(mask.sum())
        optimizer.step()
        losses.append(total / count)
    return {"losses": losses, "seen": seen}


def begin() -> None:
    """Makes the process group, and has Megatron take the CPU for its device."""
    from megatron.core import parallel_state, tensor_parallel

    # It asks a device that the tests' torch does not have, and for its random numbers.
    tensor_parallel.get_cuda_rng_tracker = lambda: types.SimpleNamespace(fork=contextlib.nullcontext)
    torch.cuda.current_device = lambda: "cpu"  # type: ignore[assignment, return-value]
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    parallel_state.initialize_model_parallel()


def show(provider: Any, seq_len: int, batch: int) -> None:
    """Prints how many of some micro-batches of a provider are new."""
    begin()
    given = from_provider(provider, seq_length=seq_len, global_batch_size=batch, micro_batch_size=1)
    rows = {next(given)["tokens"].numpy().tobytes() for _ in range(3 * batch)}
    print(f"{len(rows)} sequences in {3 * batch} micro-batches")
    torch.distributed.destroy_process_group()


def main() -> None:
    """Trains once for each argument."""
    begin()
    for training in sys.argv[1:]:
        print(json.dumps(train(json.loads(training))), flush=True)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
