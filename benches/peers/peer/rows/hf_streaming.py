"""Hugging Face `datasets`, streaming: shuffles files, and rows within a buffer."""

from peer.rows import BUFFER, ENVIRONMENT, FORMAT, REQUIREMENTS, files, names, prepare  # noqa: F401

TITLE, SLOW, LAYER = "`datasets`, streaming, shuffled", "", None
PACKAGES = ["datasets"]


def batches(data, settings):
    import datasets

    options = {"split": "train", "streaming": True, "columns": names(settings)}
    rows = datasets.load_dataset("parquet", data_files=files(data), **options)
    rows = rows.shuffle(seed=17, buffer_size=BUFFER).with_format("numpy")
    while True:
        yield from rows.iter(batch_size=settings.batch, drop_last_batch=True)
