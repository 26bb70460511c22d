"""LeRobot's own dataset in PyTorch's DataLoader, with the options of its program that trains, and a process for each core. It has no
reader of buckets: there, its rows are a copy on the disk, and its reader of videos opens these by fsspec, as its streaming dataset does."""

import os

from peer.robots import ACTIONS, BUCKET, FORMAT, FPS, SEED, prepare, serve  # noqa: F401

TITLE, SLOW, LAYER = "LeRobot", "", "torch"
REQUIREMENTS = ("datasets==5.2.0", "pyarrow==26.0.1", "pandas", "accelerate==1.15.0", "s3fs")
BARE = ("lerobot==0.4.4", "av==15.1.0", "torchcodec==0.17.0")
ENVIRONMENT = "lerobot"
PACKAGES = ["lerobot", "torchcodec", "torch", "datasets"]


def batches(data, settings):
    os.environ |= {"HF_HUB_OFFLINE": "1", "HF_HOME": str(data.home / "hf")}
    import torch
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    class Dataset(LeRobotDataset):
        def _query_videos(self, *arguments):
            torch.set_num_threads(1)
            if settings.robot != "s3":
                return super()._query_videos(*arguments)
            local, self.root = self.root, Bucket()
            try:
                return super()._query_videos(*arguments)
            finally:
                self.root = local

    class Bucket:
        def __truediv__(self, path):
            return f"s3://{BUCKET}/{path}"

    if settings.robot == "s3":
        keys = {"AWS_ACCESS_KEY_ID": "any", "AWS_SECRET_ACCESS_KEY": "any", "AWS_DEFAULT_REGION": "us-east-1"}
        os.environ |= {**keys, "AWS_ENDPOINT_URL": settings.address}
    seconds = {"action": [frame / FPS for frame in range(ACTIONS)]}
    dataset = Dataset("ours/robot", root=data.format(FORMAT), delta_timestamps=seconds)
    random = torch.Generator().manual_seed(SEED)
    processes = {"num_workers": settings.cores, "prefetch_factor": 2, "persistent_workers": True}
    loader = torch.utils.data.DataLoader(dataset, settings.batch, shuffle=True, generator=random, **processes)
    while True:
        yield from loader
