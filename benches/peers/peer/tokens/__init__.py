"""Loaders of tokens, as `benches/peers/run --tokens` compares them: peers as those of pictures, whose batches are dicts with the ids
in `tokens`. All read files of Megatron's, which are also the headerless ids that OLMo-core reads, or what they make of them."""

import functools
import os
import pathlib
import struct

from peer import endless

TOKENS, FILES = 128 << 20, 4
#: Tokens of each document where there are many of them.
SHORT = 20
FORMAT = "megatron"
#: Ids are below it, and it ends each document.
EOS = 50256
SEED = 17
OURS = ["numpy==2.4.6", "maturin==1.16.0"]
#: Bytes of code for a token.
BYTES = 3


def prepare(data) -> None:
    """Writes documents of random ids: as long as the sources that cargo keeps of the project's dependencies, or so many short ones as
    the folder's name has."""
    import numpy

    kind, count = data.home.name.split("-")
    for file in range(FILES):
        random = numpy.random.default_rng(file)
        if kind == "documents":
            own = numpy.full(int(count) // FILES, SHORT)
        else:
            lengths = random.permutation(of_sources())
            own = numpy.resize(lengths, int(count) // FILES // int(lengths.mean()))
        ends = own.cumsum(dtype="<i8")
        ids = random.integers(0, EOS, ends[-1], "<u2")
        ids[ends - 1] = EOS
        path = data.format(FORMAT) / f"code-{file}"
        ids.tofile(path.with_suffix(".bin"))
        with open(path.with_suffix(".idx"), "wb") as index:
            index.write(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, len(own), len(own) + 1))
            for part in (own.astype("<i4"), (ends - own) * 2, numpy.arange(len(own) + 1, dtype="<i8")):
                part.tofile(index)


def of_sources():
    """Returns the lengths of cargo's sources in tokens, with the end of each."""
    import numpy

    home = pathlib.Path(os.environ.get("CARGO_HOME", pathlib.Path.home() / ".cargo"))
    sizes = sorted(path.stat().st_size for path in home.glob("registry/src/**/*.rs"))
    if not sizes:
        raise OSError(f"{home} has no sources of crates, whose lengths the documents have: build the project once")
    return numpy.array(sizes) // BYTES + 1


def pairs(data) -> list[tuple]:
    """Returns the ids of each file, mapped, and where each of its documents ends."""
    import numpy

    found = []
    for path in files(data, "bin"):
        with open(path.with_suffix(".idx"), "rb") as index:
            count = struct.unpack("<QBQQ", index.read(34)[9:])[2]
            lengths = numpy.fromfile(index, "<i4", count)
        found.append((numpy.memmap(path, "<u2", "r"), lengths.cumsum(dtype="i8")))
    return found


def files(data, kind: str) -> list[pathlib.Path]:
    return sorted(pathlib.Path(data.format(FORMAT)).glob(f"*.{kind}"))


def documents(data):
    """Yields the ids of each document."""
    import numpy

    for ids, ends in pairs(data):
        yield from numpy.split(ids, ends[:-1])


def loaded(dataset, settings, collate=None):
    """Yields the batches of PyTorch's `DataLoader`, shuffled, epoch after epoch."""
    import torch

    torch.set_num_threads(1)
    options = {"num_workers": settings.cores, "drop_last": True, "persistent_workers": True, "collate_fn": collate}
    shuffle = not isinstance(dataset, torch.utils.data.IterableDataset)
    loader = torch.utils.data.DataLoader(dataset, settings.batch, shuffle=shuffle, **options)
    while True:
        yield from loader


def ours(data, settings, method: str):
    """Yields this project's batches: ids, shifted labels and positions as arrays of numpy that are views of the slots."""
    import spdl_cluster

    follows = [{"name": name, "decode": name, "follows": "tokens"} for name in ("labels", "positions")]
    columns = [{"name": "tokens", "from": "tokens", "decode": "tokens", "vocab": EOS + 1}, *follows]
    sequence = {"seq_len": settings.seq_len, "method": method}
    job = endless.job("tokens", data.format(FORMAT), settings, columns, seed=SEED, epochs=100000, sequence=sequence)
    loader = spdl_cluster.local(job, cores=settings.cores, memory_bytes=MEMORY_BYTES)
    while (batch := loader.next()) is not None:
        yield batch


#: Memory for slots and blocks of ours.
MEMORY_BYTES = 256 << 20
chunked = functools.partial(ours, method="chunk")
packed = functools.partial(ours, method="best_fit")
