"""Not a peer: Parquet files of pictures as the Hugging Face Hub has them, for the peers that read Parquet."""

import pathlib

from data import Data

LAYER = "torch"
ENVIRONMENT = "parquet"
REQUIREMENTS = ("pyarrow==26.0.1", "datasets==5.2.0", "ray[data]==2.60.0", "litdata==0.2.76", "polars", "aiohttp")
FORMAT = "parquet"
FILES = 8


def prepare(data: Data) -> None:
    """Writes `image: struct{bytes, path}` and `label` as `datasets` does."""
    import datasets

    features = datasets.Features({"image": datasets.Image(), "label": datasets.Value("int64")})
    for part in range(FILES):
        samples = data.samples[part::FILES]
        images = [{"bytes": pathlib.Path(path).read_bytes(), "path": pathlib.Path(path).name} for path, _ in samples]
        rows = {"image": images, "label": [label for _, label in samples]}
        path = data.format(FORMAT) / f"{part:02}.parquet"
        datasets.Dataset.from_dict(rows, features).to_parquet(str(path))


def files(data: Data) -> list[str]:
    return sorted(map(str, data.format(FORMAT).glob("*.parquet")))
