"""PyTorch's DataLoader over picture files, decoded by torchvision's own binding of libjpeg-turbo: its fastest setup on
a CPU."""

from data import Data, Settings
from peer import torch_pil

TITLE = "PyTorch DataLoader, torchvision's decoder"
LAYER = torch_pil.LAYER
REQUIREMENTS = torch_pil.REQUIREMENTS
PACKAGES = ["torch", "torchvision"]
FORMAT = torch_pil.FORMAT
SLOW = torch_pil.SLOW
prepare = torch_pil.prepare


def batches(data: Data, settings: Settings):
    return torch_pil.batches(data, settings, "torchvision")
