"""Runs in a peer's environment: prepares, serves, or takes batches and records when each came."""

import argparse
import importlib
import json
import os
import pathlib
import sys
import time

from data import Data, Settings


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("peer")
    parser.add_argument("what", choices=["prepare", "serve", "take"])
    parser.add_argument("home", type=pathlib.Path)
    parser.add_argument("--settings", type=Settings.parse)
    parser.add_argument("--record", type=pathlib.Path)
    parser.add_argument("--warm-s", type=float)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--step-ms", type=float)
    args = parser.parse_args()
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    peer = importlib.import_module(f"peer.{args.peer}")
    data = Data(args.home)
    if args.what == "prepare":
        peer.prepare(data)
    elif args.what == "serve":
        peer.serve(data, args.settings, lambda address: print(address, flush=True))
    else:
        record = take(peer.batches(data, args.settings), args.settings, args.warm_s, args.seconds, args.step_ms)
        part = args.record.with_suffix(".part")
        part.write_text(json.dumps(record))
        part.rename(args.record)
        # Skip the peer's orderly shutdown, which is not measured and takes some peers seconds.
        sys.stderr.flush()
        os._exit(0)


def take(batches, settings: Settings, warm_s: float, seconds: float, step_ms: float) -> dict:
    """Takes batches for `warm_s + seconds`, counted from the first. Returns times in nanoseconds of the system's clock:
    when each batch came, and how long the wait for it was. With `step_ms` a training step takes that long, and only
    sleeps."""
    batches = iter(batches)
    times, waits, end = [], [], None
    due = None
    while end is None or times[-1] < end:
        asked = time.time_ns()
        batch = next(batches)
        now = time.time_ns()
        times.append(now)
        waits.append(now - asked)
        if end is None:
            check(batch, settings)
            end = now + int((warm_s + seconds) * 1e9)
        if step_ms:
            due = max(now, due or now) + int(step_ms * 1e6)
            time.sleep(max(0, due - time.time_ns()) / 1e9)
        del batch
    return {"times": times, "waits": waits}


def check(batch, settings: Settings) -> None:
    """Checks that the peer does the same work as the others: a full batch of square pictures of bytes, with labels; of columns
    of numbers or arrays; of sequences of tokens; of clips; of a robot; or of sound."""
    if settings.columns:
        columns = {name: (column.shape, str(column.dtype)) for name, column in batch.items() if name[0] in "if"}
        kinds = sorted({kind for _, kind in columns.values()})
        assert len(columns) == settings.columns and kinds == ["float32", "int64"], f"a batch of {columns}"
        assert {shape for shape, _ in columns.values()} == {(settings.batch,)}, f"a batch of {columns}"
        return
    if settings.seq_len:
        shape, kind = tuple(batch["tokens"].shape), str(batch["tokens"].dtype).rsplit(".", 1)[-1]
        assert shape == (settings.batch, settings.seq_len) and kind.startswith("int"), f"a batch of {shape} {kind}"
        return
    if settings.frames:
        shape, kind = tuple(batch.shape), str(batch.dtype).rsplit(".", 1)[-1]
        right = [(settings.batch, settings.frames, *frame) for frame in [(settings.size,) * 2 + (3,), (3,) + (settings.size,) * 2]]
        assert shape in right and kind == "uint8", f"a batch of {shape} {kind}"
        return
    if settings.robot:
        from peer import robots

        pictures = ((settings.batch, 3, robots.HEIGHT, robots.WIDTH), "float32")
        right = {camera: pictures for camera in robots.CAMERAS} | {"observation.state": ((settings.batch, robots.STATE), "float32")}
        right |= {"action": ((settings.batch, robots.ACTIONS, robots.STATE), "float32"), "action_is_pad": ((settings.batch, robots.ACTIONS), "bool")}
        given = {name: (tuple(batch[name].shape), str(batch[name].dtype).rsplit(".", 1)[-1]) for name in right}
        assert given == right and list(batch["task"]) == [robots.TASK] * settings.batch, f"a batch of {given}, {batch['task']}"
        picture = batch[robots.CAMERAS[0]][0]
        assert 0.1 < float(picture.mean()) < 0.9 and float(picture.max()) <= 1, "a picture of one colour"
        return
    if settings.sound == "whole":
        samples, lengths = batch
        assert len(lengths) == settings.batch and "float32" in str(samples.dtype), f"a batch of {len(lengths)} {samples.dtype}"
        return
    if settings.sound:
        shape, kind = tuple(batch.shape), str(batch.dtype).rsplit(".", 1)[-1]
        right = (settings.batch, round(float(settings.sound) * 16000))
        assert shape == right and kind == "float32", f"a batch of {shape} {kind}"
        return
    if settings.arrays:
        from arrays import ARRAYS

        right = {name: ((settings.batch, *shape), kind) for name, (kind, shape) in ARRAYS[settings.arrays].columns.items()}
        given = {name: (tuple(value.shape), str(value.dtype).rsplit(".", 1)[-1]) for name, value in batch.items()}
        assert given == right, f"a batch of {given}"
        return
    images, labels = batch
    shape, kind = tuple(images.shape), str(images.dtype).rsplit(".", 1)[-1]
    size = settings.size
    right = [(settings.batch, size, size, 3), (settings.batch, 3, size, size)]
    assert (
        shape in right and kind == "uint8" and len(labels) == settings.batch
    ), f"a batch of {shape} {kind}, {len(labels)} labels"
    mean = float(images[0].astype("f4").mean() if hasattr(images, "astype") else images[0].float().mean())
    assert 1 < mean < 254, "a picture of one colour"


if __name__ == "__main__":
    main()
