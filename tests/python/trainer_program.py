"""Trains a tiny Llama with Hugging Face's `Trainer`, on the CPU: `trainer_program.py FOLDER TRAINING...`, also under torchrun.

Each training is JSON: `job`, a job file for `spdl_cluster.transformers.PackedTrainer`, or `documents`, a JSON file of lists of ids for
`DataCollatorWithFlattening`, of which `batch` are a batch; `steps`, `accumulate` batches for each of them, and whether the trainer is TRL's (`trl`). It
saves a checkpoint of the name `name` in `FOLDER` after `every` steps, ends after `stop` steps, and goes on from the newest one with
`resume`. Rank 0 prints of each training the loss of each step, and what an evaluation found, as JSON.
"""

from __future__ import annotations

import json
import os
import pathlib
import sys
from typing import Any
from unittest import mock

import datasets
import spdl_cluster
import spdl_cluster.transformers
import torch
import torch.distributed
import transformers
from framework_programs import leave
from torch.utils.data import SequentialSampler

EOS = 256


class Stop(transformers.TrainerCallback):
    """Ends a training after some steps."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        control.should_training_stop |= state.global_step == self.step


def tiny() -> Any:
    """Makes the model."""
    torch.manual_seed(1)
    sizes = {"vocab_size": EOS + 1, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes, initializer_range=0.2))


def trainer_of(folder: str, settings: dict[str, Any]) -> Any:
    """Makes the trainer."""
    options: dict[str, Any] = {
        "output_dir": os.path.join(folder, settings.get("name", "none")), "max_steps": settings["steps"], "report_to": [], "use_cpu": True,
        "gradient_accumulation_steps": settings.get("accumulate", 1), "logging_steps": 1, "disable_tqdm": True, "ignore_data_skip": True,
        "learning_rate": 8e-3, "save_strategy": "steps" if "every" in settings else "no", "save_steps": settings.get("every", 1),
    }  # fmt: skip
    base: Any = transformers.Trainer
    arguments: Any = transformers.TrainingArguments
    more: dict[str, Any] = {}
    callbacks = [Stop(settings.get("stop", settings["steps"]))]
    if settings.get("trl"):
        import trl

        base, arguments = trl.SFTTrainer, trl.SFTConfig
        options |= {"dataset_kwargs": {"skip_prepare_dataset": True}, "bf16": False}
        # It asks for a tokenizer, and for a dataset to look at.
        vocabulary = {"<pad>": 0, **{f"<{token}>": token for token in range(1, EOS + 1)}}
        words = transformers.PreTrainedTokenizerFast(tokenizer_object=word_level(vocabulary), pad_token="<pad>", eos_token=f"<{EOS}>")
        more = {"processing_class": words, "train_dataset": datasets.Dataset.from_dict({"input_ids": [[1, 2]], "labels": [[1, 2]]})}
    if "job" in settings:
        loader = spdl_cluster.local(settings["job"], tensors="torch", repeat=True)

        class OurTrainer(spdl_cluster.transformers.PackedTrainer, base):  # type: ignore[misc]
            def get_train_dataloader(self) -> Any:
                return loader

            def get_batch_samples(self, *arguments: Any) -> Any:
                with mock.patch.object(self.accelerator, "gather", side_effect=AssertionError("ranks ask each other")):
                    return super().get_batch_samples(*arguments)

            def get_eval_dataloader(self, eval_dataset: Any = None) -> Any:
                return spdl_cluster.local(settings["job"], tensors="torch", start=0, epochs=1)

        return OurTrainer(model=tiny(), args=arguments(**options), callbacks=[*callbacks, spdl_cluster.transformers.ResumeLoader()], **more)

    class TheirTrainer(base):  # type: ignore[misc]
        def _get_train_sampler(self, train_dataset: Any = None) -> Any:
            return SequentialSampler(train_dataset)

    documents = datasets.Dataset.from_list([{"input_ids": ids, "labels": ids} for ids in json.loads(pathlib.Path(settings["documents"]).read_text())])
    collate = transformers.DataCollatorWithFlattening(return_tensors="pt")
    options |= {"per_device_train_batch_size": settings["batch"], "per_device_eval_batch_size": settings["batch"], "remove_unused_columns": False}
    more |= {"train_dataset": documents, "eval_dataset": documents}
    return TheirTrainer(model=tiny(), args=arguments(**options), data_collator=collate, callbacks=callbacks, **more)


def word_level(vocabulary: dict[str, int]) -> Any:
    """Makes a tokenizer whose tokens are words."""
    import tokenizers

    return tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="<pad>"))


def main() -> None:
    """Trains once for each argument."""
    folder, *trainings = sys.argv[1:]
    # It asks a device that the tests' torch does not have.
    torch.cuda.is_current_stream_capturing = lambda: False
    for training in trainings:
        settings = json.loads(training)
        trainer = trainer_of(folder, settings)
        trainer.train(resume_from_checkpoint=settings.get("resume", False))
        found = {"losses": [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]}
        if settings.get("evaluate"):
            found["evaluated"] = trainer.evaluate()["eval_loss"]
        if trainer.is_world_process_zero():
            print(json.dumps(found) + "\n", end="", flush=True)
    leave()


if __name__ == "__main__":
    main()
