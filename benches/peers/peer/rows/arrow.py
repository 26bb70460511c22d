"""pyarrow's scanner: in the order of the files, without a shuffle."""

from peer.rows import ENVIRONMENT, FORMAT, REQUIREMENTS, files, names, prepare  # noqa: F401

TITLE, SLOW, LAYER = "pyarrow, not shuffled", "", None
PACKAGES = ["pyarrow"]


def batches(data, settings):
    import pyarrow.dataset

    rows = pyarrow.dataset.dataset(files(data))
    while True:
        for batch in rows.to_batches(columns=names(settings), batch_size=settings.batch):
            if batch.num_rows == settings.batch:
                yield {name: batch.column(name).to_numpy(zero_copy_only=False) for name in batch.schema.names}
