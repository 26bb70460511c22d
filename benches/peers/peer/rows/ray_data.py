"""Ray Data: reads files in random order and shuffles within a buffer."""

from peer.rows import BUFFER, ENVIRONMENT, FORMAT, REQUIREMENTS, files, names, prepare  # noqa: F401

TITLE, SLOW, LAYER = "Ray Data", "", None
PACKAGES = ["ray"]


def batches(data, settings):
    import ray

    ray.init(num_cpus=settings.cores, log_to_driver=False, logging_level="ERROR")
    ray.data.DataContext.get_current().enable_progress_bars = False
    while True:
        rows = ray.data.read_parquet(files(data), columns=names(settings), shuffle="files")
        yield from rows.iter_batches(
            batch_size=settings.batch, batch_format="numpy", local_shuffle_buffer_size=BUFFER, drop_last=True
        )
