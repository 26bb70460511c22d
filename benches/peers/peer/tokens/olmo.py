"""OLMo-core's packed dataset, by optimised best fit decreasing for each file, with documents that are too long in parts; in PyTorch's
`DataLoader`."""

from peer.tokens import EOS, FORMAT, files, loaded, prepare  # noqa: F401

TITLE, SLOW, LAYER = "OLMo-core, packed", "", "torch"
REQUIREMENTS = (
    "cached-path>=1.7.2", "filelock<4.0,>=3.4", "requests", "packaging", "dataclass-extensions>=0.3.0", "pyyaml", "rich",
    "safetensors", "importlib_resources", "bettermap", "pandas",
)  # fmt: skip
BARE = ("ai2-olmo-core==3.0.0",)
PACKAGES = ["ai2-olmo-core"]


def batches(data, settings):
    import numpy
    import torch
    from olmo_core.data.numpy_dataset import NumpyPackedFSLDataset
    from olmo_core.data.types import LongDocStrategy

    dataset = NumpyPackedFSLDataset(
        *map(str, files(data, "bin")),
        sequence_length=settings.seq_len,
        pad_token_id=EOS,
        eos_token_id=EOS,
        vocab_size=EOS + 1,
        dtype=numpy.uint16,
        long_doc_strategy=LongDocStrategy.fragment,
    )
    dataset.work_dir = data.format(f"{FORMAT}-olmo")
    dataset.prepare()

    def collate(samples):
        return {"tokens": torch.stack([sample["input_ids"] for sample in samples])}

    return loaded(dataset, settings, collate)
