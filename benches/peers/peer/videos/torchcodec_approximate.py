"""The same without passing over the packets: it takes the number and the times of frames from the head of a file."""

import functools

from peer.videos import torchcodec_exact
from peer.videos.torchcodec_exact import ENVIRONMENT, FORMAT, LAYER, PACKAGES, REQUIREMENTS, SLOW, prepare  # noqa: F401

TITLE = "torchcodec, approximate"
batches = functools.partial(torchcodec_exact.batches, seek_mode="approximate")
