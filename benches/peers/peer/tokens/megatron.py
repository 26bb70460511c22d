"""Megatron's `GPTDataset`: a text without gaps, cut where sequences end; in PyTorch's `DataLoader`."""

import types

from peer.tokens import EOS, FORMAT, SEED, TOKENS, files, loaded, prepare  # noqa: F401

TITLE, SLOW, LAYER = "Megatron `GPTDataset`, a text without gaps", "", "torch"
REQUIREMENTS = ("packaging>=24.2", "requests", "pyyaml")
#: Installed without what it requires, as torch with CUDA.
BARE = ("megatron-core==0.16.1",)
PACKAGES = ["megatron-core"]


def batches(data, settings):
    import numpy
    import torch
    from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig
    from megatron.core.datasets.indexed_dataset import IndexedDataset
    from megatron.core.datasets.utils import Split

    tokenizer = types.SimpleNamespace(eod=EOS, pad=-1, vocab_size=EOS + 1, unique_identifiers={"ids": EOS})
    config = GPTDatasetConfig(
        random_seed=SEED,
        sequence_length=settings.seq_len,
        split="1",
        path_to_cache=str(data.format(f"{FORMAT}-cache")),
        tokenizer=tokenizer,
        reset_position_ids=False,
        reset_attention_mask=False,
        eod_mask_loss=False,
        create_attention_mask=False,
        mid_level_dataset_surplus=0.005,
    )
    parts = []
    for path in files(data, "bin"):
        prefix = str(path.with_suffix(""))
        indexed = IndexedDataset(prefix, mmap=True)
        chosen = numpy.arange(len(indexed), dtype="int32")
        parts.append(GPTDataset(indexed, prefix, chosen, None, Split.train, config))
    return loaded(torch.utils.data.ConcatDataset(parts), settings)
