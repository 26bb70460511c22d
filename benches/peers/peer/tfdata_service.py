"""tf.data service: the pipeline of `tfdata` in a separate worker on the same machine, with its dispatcher; the trainer
only receives batches. This is the peer whose architecture is closest to this project's."""

import time

from data import Data, Settings
from peer import tfdata

TITLE = "tf.data service"
LAYER = tfdata.LAYER
REQUIREMENTS = tfdata.REQUIREMENTS
PACKAGES = tfdata.PACKAGES
FORMAT = tfdata.FORMAT
SLOW = tfdata.SLOW
ENVIRONMENT = "tfdata"
prepare = tfdata.prepare


def serve(data: Data, settings: Settings, ready) -> None:
    import tensorflow as tf

    service = tf.data.experimental.service
    dispatcher = service.DispatchServer(service.DispatcherConfig(port=0))
    worker = service.WorkerServer(service.WorkerConfig(dispatcher_address=dispatcher.target.split("://")[1], port=0))
    ready(dispatcher.target)
    while worker:
        time.sleep(3600)


def batches(data: Data, settings: Settings):
    import tensorflow as tf

    service = tf.data.experimental.service
    # No sharding, because one worker reads all of the data. Uncompressed, because nothing leaves the machine.
    distribute = service.distribute(service.ShardingPolicy.OFF, settings.address, compression=None)
    return tfdata.dataset(data, settings).apply(distribute).prefetch(tf.data.AUTOTUNE).as_numpy_iterator()
