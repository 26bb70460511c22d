"""The two ends of the service of tf.data, for `cargo bench --bench transfer`: a process that is dispatcher and worker and prints its
address, and a client that prints how many bytes it had received at the beginning and at the end of the measured time. The worker
reads the batch once and sends the same tensor in every step.

usage: tfdata.py send|receive BATCH_FILE none|AUTO SECONDS [ADDRESS]"""

import json
import sys
import time

import tensorflow as tf

#: As the other ends do: seconds from the first batch that are not measured.
WARM_S = 1.0


def send() -> None:
    service = tf.data.experimental.service
    dispatcher = service.DispatchServer(service.DispatcherConfig(port=0))
    address = dispatcher.target.split("://")[1]
    worker = service.WorkerServer(service.WorkerConfig(dispatcher_address=address, port=0))
    print(json.dumps(dispatcher.target), flush=True)
    worker.join()


def receive(batch: str, compression: str, seconds: float, address: str) -> None:
    service = tf.data.experimental.service
    read = tf.data.Dataset.from_tensors(batch).map(lambda name: tf.io.decode_raw(tf.io.read_file(name), tf.uint8))
    batches = read.cache().repeat().apply(
        service.distribute(service.ShardingPolicy.OFF, address, compression=None if compression == "none" else compression)
    )
    received, started, due = 0, None, WARM_S
    for taken in batches:
        started = started or time.monotonic()
        received += int(taken.shape[0])
        elapsed = time.monotonic() - started
        if elapsed >= due:
            print(json.dumps({"bytes": received, "seconds": elapsed}), flush=True)
            due = elapsed + seconds


if __name__ == "__main__":
    end, batch, compression, seconds = sys.argv[1:5]
    if end == "send":
        send()
    else:
        receive(batch, compression, float(seconds), sys.argv[5])
