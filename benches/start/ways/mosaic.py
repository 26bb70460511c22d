import io
import os

import PIL.Image
import streaming
import torch
from torchvision.transforms import v2

world = int(os.environ.get("WORLD_SIZE", 1))
if world > 1:
    torch.distributed.init_process_group("gloo")
steps = v2.Compose([v2.RandomResizedCrop(224), v2.RandomHorizontalFlip(), v2.ToImage()])


class Pictures(streaming.StreamingDataset):
    def __getitem__(self, index):
        sample = super().__getitem__(index)
        return steps(PIL.Image.open(io.BytesIO(sample["image"])).convert("RGB")), sample["label"]


dataset = Pictures(local="mds", batch_size=64 // world, shuffle=True)
loader = torch.utils.data.DataLoader(dataset, 64 // world, num_workers=2 // world)
pictures, labels = next(iter(loader))
print(f"first batch of rank {os.environ.get('RANK', 0)}: {tuple(pictures.shape)}", flush=True)
if world > 1:
    torch.distributed.destroy_process_group()
