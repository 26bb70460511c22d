"""PyTorch's DataLoader over Parquet, read by pyarrow: each process takes row groups in random order, and shuffles the rows of
those that make up a batch."""

from arrays import arrays_of, files
from peer.parquet import ENVIRONMENT, LAYER, REQUIREMENTS  # noqa: F401

TITLE = "PyTorch DataLoader, pyarrow"
PACKAGES = ["pyarrow", "torch"]
FORMAT, SLOW = "parquet", ""


def prepare(data) -> None:
    import numpy
    import pyarrow
    import pyarrow.parquet

    arrays = arrays_of(data)
    for number in range(arrays.files):
        random, columns = numpy.random.default_rng(number), {}
        for name in arrays.names:
            values = arrays.column(name, arrays.samples, random)
            if values.ndim > 1:
                flat = pyarrow.array(values.reshape(-1))
                columns[name] = pyarrow.FixedSizeListArray.from_arrays(flat, values.shape[1])
            else:
                columns[name] = pyarrow.array(values)
        options = {"row_group_size": arrays.group, "use_dictionary": False, "write_page_index": True}
        pyarrow.parquet.write_table(pyarrow.table(columns), data.format(FORMAT) / f"{number:03}.parquet", **options)


def numbers(column, shape: tuple[int, ...]):
    """Returns the values of a column as an array, without a copy where there is one chunk."""
    column = column.combine_chunks()
    return (column.flatten() if shape else column).to_numpy(zero_copy_only=False).reshape(-1, *shape)


class Batches:
    """Batches of the row groups of all files, for ever."""

    def __init__(self, data, settings) -> None:
        self.paths, self.columns, self.batch = files(data, FORMAT), arrays_of(data).columns, settings.batch

    def __iter__(self):
        import numpy
        import pyarrow
        import pyarrow.parquet
        import torch

        pyarrow.set_cpu_count(1)
        random = numpy.random.default_rng(torch.utils.data.get_worker_info().id)
        opened = [pyarrow.parquet.ParquetFile(path, memory_map=True) for path in self.paths]
        groups = [(file, number) for file in opened for number in range(file.num_row_groups)]
        kept, rows = [], 0
        while True:
            for at in random.permutation(len(groups)):
                file, number = groups[at]
                kept.append(file.read_row_group(number, columns=list(self.columns), use_threads=False))
                rows += kept[-1].num_rows
                if rows < self.batch:
                    continue
                table, order = pyarrow.concat_tables(kept), random.permutation(rows)
                arrays = {name: numbers(table[name], shape) for name, (_, shape) in self.columns.items()}
                for start in range(0, rows - self.batch + 1, self.batch):
                    chosen = order[start : start + self.batch]
                    yield {name: torch.from_numpy(values[chosen]) for name, values in arrays.items()}
                left = rows % self.batch
                kept, rows = [table.take(order[rows - left :])] if left else [], left


def batches(data, settings):
    import torch.utils.data

    class Rows(Batches, torch.utils.data.IterableDataset):
        pass

    options = {"num_workers": settings.cores, "prefetch_factor": 4}
    return iter(torch.utils.data.DataLoader(Rows(data, settings), batch_size=None, **options))
