"""FFCV with pixels instead of JPEGs: nothing to decode, and several times the bytes on disk."""

from data import Data, Settings
from peer import ffcv

TITLE = "FFCV, raw pixels"
LAYER = ffcv.LAYER
REQUIREMENTS = ffcv.REQUIREMENTS
PACKAGES = ffcv.PACKAGES
FORMAT = "ffcv-raw"
SLOW = ""
ENVIRONMENT = "ffcv"
prepare_environment = ffcv.prepare_environment


def prepare(data: Data) -> None:
    ffcv.prepare(data, "raw", FORMAT)


def batches(data: Data, settings: Settings):
    return ffcv.batches(data, settings, FORMAT)
