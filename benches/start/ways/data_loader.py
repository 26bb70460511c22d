import os

import torch
import torchvision
from torchvision.transforms import v2

world = int(os.environ.get("WORLD_SIZE", 1))
if world > 1:
    torch.distributed.init_process_group("gloo")
steps = v2.Compose([v2.RandomResizedCrop(224), v2.RandomHorizontalFlip(), v2.ToImage()])
dataset = torchvision.datasets.ImageFolder("photos", steps)
sampler = torch.utils.data.DistributedSampler(dataset) if world > 1 else torch.utils.data.RandomSampler(dataset)
loader = torch.utils.data.DataLoader(dataset, 64 // world, sampler=sampler, num_workers=2 // world)
pictures, labels = next(iter(loader))
print(f"first batch of rank {os.environ.get('RANK', 0)}: {tuple(pictures.shape)}", flush=True)
if world > 1:
    torch.distributed.destroy_process_group()
