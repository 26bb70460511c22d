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
        self.memory_stats: Any = lambda device: {}
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

    from torchtitan.distributed import fsdp

    def without_division(model: Any) -> None:
        divided(model)
        for module in model.modules():
            if hasattr(module, "set_force_sum_reduction_for_comms"):
                # Gloo can only add.
                module.set_force_sum_reduction_for_comms(True)

    divided, fsdp.disable_fsdp_gradient_division = fsdp.disable_fsdp_gradient_division, without_division
    attention.FlexAttention._compiled_flex_attn = staticmethod(attention_with_mask)
    attention._compiled_create_block_mask = create_block_mask


def for_cpu(config: Any) -> Any:
    """Gives a config a tiny model, a tokenizer of bytes, and what the CPU can do; returns it."""
    from torchtitan.components.loss import CrossEntropyLoss
    from torchtitan.components.tokenizer import BaseTokenizer
    from torchtitan.models import llama3
    from torchtitan.models.common.rope import ComplexRoPE

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
    config.model_spec, config.tokenizer = llama3.model_registry("tiny"), Bytes.Config()
    config.loss = CrossEntropyLoss.Config(global_vocab_size=EOS + 1)
    config.training.disable_cuda_graphs, config.training.mixed_precision_param = True, "float32"
    config.optimizer.implementation, config.activation_checkpoint, config.metrics.log_freq = "for-loop", None, 1
    return config


def trainer_of(folder: str, settings: dict[str, Any]) -> Any:
    """Makes the trainer."""
    import datasets
    from torchtitan.components.checkpointer import CheckpointManager
    from torchtitan.components.optimizer import default_adamw
    from torchtitan.config.configs import DebugConfig, TrainingConfig
    from torchtitan.hf_datasets import text_datasets
    from torchtitan.trainer import Trainer

    if "texts" in settings:
        documents = datasets.Dataset.from_dict({"text": json.loads(pathlib.Path(settings["texts"]).read_text())})
        text_datasets.DATASETS["texts"] = text_datasets.DatasetConfig(path="", loader=lambda _: documents, sample_processor=lambda one: one["text"])
        dataloader: Any = text_datasets.HuggingFaceTextDataLoader.Config(dataset="texts", infinite=False)
    else:
        import spdl_cluster.torchtitan

        dataloader = spdl_cluster.torchtitan.DataLoader.Config(job=settings["job"])
    config = Trainer.Config(
        dump_folder=folder,
        optimizer=default_adamw(lr=8e-3),
        training=TrainingConfig(local_batch_size=settings["rows"], seq_len=settings["seq_len"], steps=settings["steps"]),
        dataloader=dataloader,
        checkpoint=CheckpointManager.Config(enable="every" in settings, interval=settings.get("every", 1), last_save_model_only=False),
        debug=DebugConfig(seed=5),
    )
    return for_cpu(config).build()


def train(folder: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Trains, and returns what it has done."""
    trainer = trainer_of(folder, settings)
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
    """Trains once for each argument; or as `torchtitan.train` does, with its command line."""
    on_cpu()
    if "--module" in sys.argv:
        import torchtitan.train
        from torchtitan.components.metrics import MetricsProcessor

        def shown(_: Any, step: int, loss: float, *others: Any, **more: Any) -> None:
            if torch.distributed.get_rank() == 0:
                print(f"step {step}: loss {loss:.4f}\n", end="", flush=True)

        MetricsProcessor.log = shown
        # The folder of the command, as with `-m`.
        sys.path.insert(0, "")
        torchtitan.train.main()
        return
    folder, *trainings = sys.argv[1:]
    for settings in trainings:
        # In one piece: all ranks write into one pipe.
        print(json.dumps(train(folder, json.loads(settings))) + "\n", end="", flush=True)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
