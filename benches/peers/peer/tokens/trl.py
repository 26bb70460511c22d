"""TRL's `pack_dataset` with `bfd_split`, over Arrow files that are written once; in PyTorch's `DataLoader`."""

from peer.tokens import documents, loaded
from peer.tokens import prepare as write_documents

TITLE, SLOW, LAYER = "TRL `bfd_split`", "", "torch"
REQUIREMENTS = ("datasets==5.2.0", "transformers", "accelerate")
BARE = ("trl==1.16.0",)
PACKAGES = ["trl", "datasets"]
FORMAT = "megatron"
prepare = write_documents


def batches(data, settings):
    import datasets
    import torch
    from trl.data_utils import pack_dataset

    home = data.format(f"trl-{settings.seq_len}")
    if not home.exists():
        ids = datasets.Features({"input_ids": datasets.List(datasets.Value("int32"))})
        rows = datasets.Dataset.from_generator(lambda: ({"input_ids": own} for own in documents(data)), features=ids)
        pack_dataset(rows, settings.seq_len, "bfd_split").save_to_disk(str(home))
    packed = datasets.load_from_disk(str(home)).with_format("numpy", columns=["input_ids"])

    def collate(samples):
        tokens = torch.zeros(len(samples), settings.seq_len, dtype=torch.int64)
        for row, sample in zip(tokens, samples, strict=True):
            ids = torch.from_numpy(sample["input_ids"])
            row[: len(ids)] = ids
        return {"tokens": tokens}

    return loaded(packed, settings, collate)
