"""Grain's best-fit packing in its processes. It takes no documents that are longer than a sequence, so these are cut off."""

from peer.tokens import FORMAT, SEED, pairs, prepare  # noqa: F401

TITLE, SLOW, LAYER = "Grain, best fit, long documents cut off", "", None
REQUIREMENTS = ("grain==0.2.18", "numpy==2.4.6")
PACKAGES = ["grain"]
#: Sequences that are open at once, as in its examples.
BINS = 64


class Documents:
    """Documents by their number."""

    def __init__(self, data) -> None:
        self.data, self.opened = data, None
        self.starts = [0]
        for _, ends in pairs(data):
            self.starts.append(self.starts[-1] + len(ends))

    def __len__(self) -> int:
        return self.starts[-1]

    def __getitem__(self, number):
        import bisect

        self.opened = self.opened or pairs(self.data)
        file = bisect.bisect_right(self.starts, number) - 1
        ids, ends = self.opened[file]
        own = number - self.starts[file]
        return ids[ends[own - 1] if own else 0 : ends[own]]

    def __getstate__(self):
        return vars(self) | {"opened": None}


def batches(data, settings):
    import grain
    import numpy

    length = settings.seq_len
    rows = grain.MapDataset.source(Documents(data)).shuffle(seed=SEED).repeat()
    rows = rows.map(lambda ids: {"tokens": numpy.asarray(ids[:length], "int32")})
    reading = grain.ReadOptions(num_threads=1, prefetch_buffer_size=256)
    packed = grain.experimental.BestFitPackIterDataset(
        rows.to_iter_dataset(reading), length_struct={"tokens": length}, num_packing_bins=BINS
    )
    packed = packed.batch(settings.batch, drop_remainder=True)
    processes = grain.MultiprocessingOptions(num_workers=settings.cores)
    for batch in packed.mp_prefetch(processes):
        yield {"tokens": batch["tokens"]}
