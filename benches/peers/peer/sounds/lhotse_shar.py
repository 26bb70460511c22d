"""lhotse with Shar in PyTorch's DataLoader: the cuts of shards one after the other, shuffled in a buffer, each cut to a random segment."""

import pathlib
import random

from peer import sounds
from peer.sounds import SEED, collate, paths

TITLE, SLOW, LAYER = "lhotse, Shar", "", "torch"
REQUIREMENTS = ("lhotse==1.33.0", "requests==2.34.0", "soundfile==0.14.0", "numpy==2.4.6")
BARE = ("torchaudio==2.11.1",)
ENVIRONMENT = "lhotse"
PACKAGES = ["lhotse", "soundfile", "torch"]
FORMAT = "shar"
SHARD, BUFFER = 25, 100
#: What Shar calls the coding of a file, by its ending.
CODED = {"ogg": "original", "opus": "original"}


def prepare(data) -> None:
    import lhotse
    from lhotse.shar import SharWriter

    coded = CODED.get(sounds.ending(data), sounds.ending(data))
    with SharWriter(str(data.format(FORMAT)), fields={"recording": coded}, shard_size=SHARD) as writer:
        for path in paths(data):
            cut = lhotse.Recording.from_file(path, recording_id=pathlib.Path(path).stem).to_cut()
            writer.write(cut)


def batches(data, settings):
    import torch

    options = {"num_workers": settings.cores, "collate_fn": collate}
    yield from torch.utils.data.DataLoader(dataset(data, settings), settings.batch, **options)


def dataset(data, settings):
    import lhotse
    import torch

    class Cuts(torch.utils.data.IterableDataset):
        def __iter__(self):
            torch.set_num_threads(1)
            worker = torch.utils.data.get_worker_info().id
            draw = random.Random(SEED + worker)
            cuts = lhotse.CutSet.from_shar(in_dir=str(data.format(FORMAT)), shuffle_shards=True, seed=SEED + worker).repeat()
            for cut in cuts.shuffle(rng=draw, buffer_size=BUFFER):
                if settings.sound != "whole":
                    seconds = float(settings.sound)
                    cut = cut.truncate(offset=draw.uniform(0, cut.duration - seconds), duration=seconds)
                yield torch.from_numpy(cut.resample(sounds.RATE).load_audio()[0])

    return Cuts()
