"""MosaicML Streaming: samples that are cut out of the text when the shards are written, as LLM Foundry does; in PyTorch's
`DataLoader`."""

from peer.tokens import documents, loaded
from peer.tokens import prepare as write_documents

TITLE, SLOW, LAYER = "MosaicML Streaming, a text without gaps", "", "torch"
REQUIREMENTS = ("mosaicml-streaming==0.13.0",)
PACKAGES = ["mosaicml-streaming"]
FORMAT = "megatron"
prepare = write_documents


def batches(data, settings):
    import numpy
    import streaming
    import torch

    home = data.format(f"mosaic-{settings.seq_len}")
    if not (home / "index.json").exists():
        text = numpy.concatenate(list(documents(data))).astype("int32")
        with streaming.MDSWriter(out=str(home), columns={"tokens": f"ndarray:int32:{settings.seq_len}"}) as out:
            for start in range(0, len(text) - settings.seq_len + 1, settings.seq_len):
                out.write({"tokens": text[start : start + settings.seq_len]})
    streaming.base.util.clean_stale_shared_memory()
    rows = streaming.StreamingDataset(local=str(home), shuffle=True, batch_size=settings.batch)

    def collate(samples):
        return {"tokens": torch.from_numpy(numpy.stack([sample["tokens"] for sample in samples]))}

    return loaded(rows, settings, collate)
