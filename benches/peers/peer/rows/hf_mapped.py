"""Hugging Face `datasets`, converted to Arrow files that are mapped: each batch takes rows all over them."""

from peer.rows import ENVIRONMENT, FORMAT, REQUIREMENTS, files, names, prepare  # noqa: F401

TITLE, SLOW, LAYER = "`datasets`, mapped Arrow, shuffled", "", None
PACKAGES = ["datasets"]


def batches(data, settings):
    import datasets
    import numpy

    cache = str(data.format("mapped"))
    rows = datasets.load_dataset(
        "parquet", data_files=files(data), split="train", columns=names(settings), cache_dir=cache
    )
    rows, random = rows.with_format("numpy"), numpy.random.default_rng(17)
    while True:
        order = random.permutation(len(rows))
        for start in range(0, len(order) - settings.batch + 1, settings.batch):
            yield rows[order[start : start + settings.batch]]
