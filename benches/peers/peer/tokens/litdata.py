"""LitData's `TokensLoader`: blocks that are cut out of the text of a chunk."""

import functools

from peer.tokens import pairs
from peer.tokens import prepare as write_documents

TITLE, SLOW, LAYER = "LitData `TokensLoader`, a text without gaps", "", "torch"
REQUIREMENTS = ("litdata==0.2.76",)
PACKAGES = ["litdata"]
FORMAT = "megatron"
prepare = write_documents
#: Of a chunk.
BLOCKS = 256


def block(data, size: int, place: tuple[int, int]):
    """Returns the text of a chunk, which begins at a place of a file."""
    import torch

    file, start = place
    ids, _ = pairs(data)[file]
    return torch.from_numpy(ids[start : start + size].astype("int32"))


def batches(data, settings):
    import litdata
    import torch

    home = data.format(f"litdata-{settings.seq_len}")
    if not (home / "index.json").exists():
        size = BLOCKS * settings.seq_len
        litdata.optimize(
            fn=functools.partial(block, data, size),
            inputs=[(file, start) for file, (ids, _) in enumerate(pairs(data)) for start in range(0, len(ids) - size + 1, size)],
            output_dir=str(home),
            chunk_size=size,
            item_loader=litdata.TokensLoader(block_size=settings.seq_len),
            num_workers=1,
        )
    torch.set_num_threads(1)
    rows = litdata.StreamingDataset(
        input_dir=str(home), item_loader=litdata.TokensLoader(block_size=settings.seq_len), shuffle=True, drop_last=True
    )
    loader = litdata.StreamingDataLoader(rows, batch_size=settings.batch, num_workers=settings.cores, persistent_workers=True)
    while True:
        for tokens in loader:
            yield {"tokens": tokens}
