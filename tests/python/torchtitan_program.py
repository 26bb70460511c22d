"""Trains a tiny Llama with torchtitan's own trainer, on the CPU: `torchrun torchtitan_program.py FOLDER TRAINING...`.

Each training is JSON: `job`, a job file for `spdl_cluster.torchtitan`, or `texts`, a JSON file of the documents for torchtitan's own loader;
`rows` of a rank's batch, `seq_len`, `steps`, and, for checkpoints in `FOLDER`, from which it goes on, after how many steps it saves one, `every`;
with `stop`, it ends after that step. Each rank prints of each training the loss of each step and which rows it trained on, as JSON.
"""

from __future__ import annotations

import hashlib
import json
import pathlib
import sys
import types
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch
import torch.distributed
from torch.nn.attention.flex_attention import create_block_mask, create_mask
from torch.nn.functional import scaled_dot_product_attention

EOS = 256


class Cpu(types.SimpleNamespace):
    """torch's module of a device, where torchtitan asks a GPU."""

    def __init__(self) -> None:
        super().__init__(set_device=lambda device: None, current_device=lambda: 0, synchronize=lambda: None, empty_cache=lambda: None)
        self.reset_peak_memory_stats = lambda: None
        self.memory_stats = lambda device: {}
        self.get_device_name = lambda device: "CPU"
        self.get_device_properties = lambda device: types.SimpleNamespace(total_memory=1 << 30)


def attention_with_mask(q: Any, k: Any, v: Any, *, block_mask: Any, scale: Any, enable_gqa: bool, **others: Any) -> tuple[Any, None]:
    """Does what `flex_attention` does, which has no gradients on the CPU, with the mask that torchtitan makes."""
    mask = create_mask(block_mask.mask_mod, len(q), 1, q.shape[2], k.shape[2], device="cpu")
    return scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale, enable_gqa=enable_gqa), None


def on_cpu() -> None:
    """Has torchtitan take the CPU for its device, and compile nothing."""
    # They need triton and tensorboard, for what this training does not use.
    for absent in ("torchtitan.distributed.minimal_async_ep", "torchtitan.distributed.minimal_async_ep.api", "torch.utils.tensorboard"):
        sys.modules[absent] = mock.MagicMock()
    from torchtitan.tools import utils

    utils.device_type, utils.device_module = "cpu", Cpu()
    # Nothing is compiled, so that the compiler need not be imported.
    with mock.patch.object(torch, "compile", lambda function=None, **options: function or (lambda function: function)):
        from torchtitan.models.common import attention

    attention.FlexAttention._compiled_flex_attn = staticmethod(attention_with_mask)
    attention._compiled_create_block_mask = create_block_mask


def trainer_of(folder: str, settings: dict[str, Any]) -> Any:
    """Makes the trainer."""
    import datasets
    from torchtitan.components.checkpointer import CheckpointManager
    from torchtitan.components.loss import CrossEntropyLoss
    from torchtitan.components.metrics import MetricsProcessor
    from torchtitan.components.optimizer import default_adamw
    from torchtitan.components.tokenizer import BaseTokenizer
    from torchtitan.config.configs import DebugConfig, TrainingConfig
    from torchtitan.hf_datasets import text_datasets
    from torchtitan.models import llama3
    from torchtitan.models.common.rope import ComplexRoPE
    from torchtitan.trainer import Trainer

    class Bytes(BaseTokenizer):
        """Bytes are ids, and documents have an end."""

        @dataclass(kw_only=True, slots=True)
        class Config(BaseTokenizer.Config):
            """Nothing to set."""

        def __init__(self, config: Any, tokenizer_path: str) -> None:
            super().__init__()

        def encode(self, text: str, add_bos: bool, add_eos: bool) -> list[int]:
            return [*text.encode("latin-1"), *([EOS] if add_eos else [])]

        def decode(self, ids: list[int]) -> str:
            return bytes(ids).decode("latin-1")

        def get_vocab_size(self) -> int:
            return EOS + 1

    def tiny(**backend: Any) -> Any:
        rope = ComplexRoPE.Config(dim=16, max_seq_len=4096, theta=10_000)
        embeddings = llama3.Embedding.Config(num_embeddings=EOS + 1, embedding_dim=32, param_init=llama3._EMBEDDING_INIT)
        head = llama3.Linear.Config(in_features=32, out_features=EOS + 1, param_init=llama3._output_linear_init(32))
        norm = llama3.RMSNorm.Config(normalized_shape=32, param_init=llama3._NORM_INIT)
        layers = llama3._build_llama3_layers(n_layers=2, dim=32, n_heads=2, hidden_dim=64, rope=rope, **backend)
        return llama3.Llama3Model.Config(dim=32, vocab_size=EOS + 1, tok_embeddings=embeddings, norm=norm, lm_head=head, layers=layers)

    llama3.llama3_configs["tiny"] = tiny
    if "texts" in settings:
        documents = datasets.Dataset.from_dict({"text": json.loads(pathlib.Path(settings["texts"]).read_text())})
        text_datasets.DATASETS["texts"] = text_datasets.DatasetConfig(path="", loader=lambda _: documents, sample_processor=lambda one: one["text"])
        dataloader: Any = text_datasets.HuggingFaceTextDataLoader.Config(dataset="texts", infinite=False)
    else:
        import spdl_cluster.torchtitan

        dataloader = spdl_cluster.torchtitan.DataLoader.Config(job=settings["job"])
    optimizer = default_adamw(lr=8e-3)
    optimizer.implementation = "for-loop"
    sizes = {"local_batch_size": settings["rows"], "seq_len": settings["seq_len"], "steps": settings["steps"]}
    return Trainer.Config(
        model_spec=llama3.model_registry("tiny"),
        loss=CrossEntropyLoss.Config(global_vocab_size=EOS + 1),
        tokenizer=Bytes.Config(),
        dump_folder=folder,
        optimizer=optimizer,
        training=TrainingConfig(**sizes, disable_cuda_graphs=True, mixed_precision_param="float32"),
        dataloader=dataloader,
        metrics=MetricsProcessor.Config(log_freq=1),
        checkpoint=CheckpointManager.Config(enable="every" in settings, interval=settings.get("every", 1), last_save_model_only=False),
        activation_checkpoint=None,
        debug=DebugConfig(seed=5),
    ).build()


def train(folder: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Trains, and returns what it has done."""
    trainer = trainer_of(folder, settings)
    for module in trainer.model_parts[0].modules():
        if hasattr(module, "set_force_sum_reduction_for_comms"):
            # Gloo can only add.
            module.set_force_sum_reduction_for_comms(True)
    losses: list[float] = []
    seen: list[list[str]] = []
    given = trainer.post_dataloading_process

    def traced(inputs: Any, labels: Any) -> Any:
        seen.append([hashlib.sha256(row.numpy().tobytes()).hexdigest() for row in inputs["input"]])
        return given(inputs, labels)

    trainer.metrics_processor.log = lambda step, loss, *others, **more: losses.append(loss)
    trainer.post_dataloading_process = traced
    trainer.should_continue_training = lambda: trainer.step < settings.get("stop", settings["steps"])
    trainer.train()
    trainer.close()
    return {"rank": torch.distributed.get_rank(), "step": trainer.step, "losses": losses, "seen": seen}


def main() -> None:
    """Trains once for each argument."""
    folder, *trainings = sys.argv[1:]
    on_cpu()
    for settings in trainings:
        # In one piece: all ranks write into one pipe.
        print(json.dumps(train(folder, json.loads(settings))) + "\n", end="", flush=True)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
