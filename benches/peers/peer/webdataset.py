"""WebDataset: tar shards, decoded by torchvision in PyTorch's DataLoader. Shards are drawn for ever, so that no process
waits for another at the end of an epoch, and the processes make whole batches."""

import io
import random
import tarfile

from data import Data, Settings, delay
from peer.pictures_torch import decoder, loader

TITLE = "WebDataset, torchvision's decoder"
LAYER = "torch"
REQUIREMENTS = ("webdataset==1.0.2",)
PACKAGES = ["webdataset", "torch", "torchvision"]
FORMAT = "tar"
RECORDS = 20
SLOW = f"a shard of {RECORDS} pictures"


def prepare(data: Data) -> None:
    folder = data.format(FORMAT)
    samples = list(data.samples)
    random.Random(1).shuffle(samples)
    for shard, start in enumerate(range(0, len(samples), RECORDS)):
        with tarfile.open(folder / f"{shard:05}.tar", "w", format=tarfile.USTAR_FORMAT) as tar:
            for number, (path, label) in enumerate(samples[start : start + RECORDS], start):
                tar.add(path, f"{number:08}.jpg")
                text = str(label).encode()
                member = tarfile.TarInfo(f"{number:08}.cls")
                member.size = len(text)
                tar.addfile(member, io.BytesIO(text))


def batches(data: Data, settings: Settings):
    import webdataset as wds

    shards = sorted(str(path) for path in data.format(FORMAT).glob("*.tar"))
    numbers = {shard: number for number, shard in enumerate(shards)}

    def late(source):
        for shard in source:
            delay(numbers[shard["url"]], settings)
            yield shard

    dataset = wds.DataPipeline(
        wds.ResampledShards(shards),
        late,
        wds.tarfile_to_samples(),
        wds.shuffle(500),
        wds.to_tuple("jpg", "cls"),
        wds.map_tuple(decoder("torchvision", settings), int),
        wds.batched(settings.batch, partial=False),
    )
    return iter(loader(dataset, settings, batch_size=None, drop_last=False))
