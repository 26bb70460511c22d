"""PyTorch's DataLoader over `.npz` files."""

from arrays import arrays_of, files
from peer.pictures_torch import loader
from peer.torch_pil import Endless

TITLE = "PyTorch DataLoader, NumPy"
LAYER, REQUIREMENTS = "torch", ()
PACKAGES = ["torch", "numpy"]
FORMAT, SLOW = "npz", ""


def prepare(data) -> None:
    import numpy

    arrays, random = arrays_of(data), numpy.random.default_rng(17)
    for number in range(arrays.files):
        columns = {name: arrays.column(name, 1, random)[0] for name in arrays.names}
        numpy.savez(data.format(FORMAT) / f"{number:05}.npz", **columns)


class Files:
    def __init__(self, data) -> None:
        self.paths, self.columns = files(data, FORMAT), list(arrays_of(data).columns)

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> dict:
        import numpy

        with numpy.load(self.paths[index]) as arrays:
            return {name: arrays[name] for name in self.columns}


def batches(data, settings):
    dataset = Files(data)
    return iter(loader(dataset, settings, sampler=Endless(len(dataset))))
