"""tf.data as in `tfdata`, but resizing with antialiasing, as every other peer does."""

from data import Data, Settings
from peer import tfdata

TITLE = "tf.data, antialiased"
LAYER = tfdata.LAYER
REQUIREMENTS = tfdata.REQUIREMENTS
PACKAGES = tfdata.PACKAGES
FORMAT = tfdata.FORMAT
SLOW = tfdata.SLOW
ENVIRONMENT = "tfdata"
prepare = tfdata.prepare


def batches(data: Data, settings: Settings):
    return tfdata.batches(data, settings, antialias=True)
