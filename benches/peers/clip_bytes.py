"""What clips read of long videos in a store of files over HTTP, beside what they need. Usage: clip_bytes.py FOLDER, with videos of one
content that are indexed; runs in our environment of `--videos` and prints a JSON object."""

import bisect
import functools
import http.server
import json
import pathlib
import subprocess
import sys
import threading

import spdl_cluster
from storage import Store

FRAMES, EPOCHS = 16, 12
MEMORY_BYTES = 512 << 20


def packets(path: pathlib.Path) -> list[tuple[float, int, bool]]:
    """Returns when each packet is shown, its bytes, and whether decoding can begin there, in the order in which they are decoded."""
    wanted = ["-select_streams", "v", "-show_entries", "packet=pts_time,size,flags", "-of", "csv=p=0", str(path)]
    lines = subprocess.run(["ffprobe", "-v", "error", *wanted], check=True, stdout=subprocess.PIPE, text=True).stdout.split()
    found = [line.split(",") for line in lines]
    return [(float(time), int(size), flags.startswith("K")) for time, size, flags, *_ in found]


def begin_of_tables(path: pathlib.Path) -> int:
    """Returns where the box `moov` begins, which lies behind the packets."""
    with open(path, "rb") as file:
        at = 0
        while True:
            file.seek(at)
            head = file.read(16)
            size, name = int.from_bytes(head[:4], "big"), head[4:8]
            if name == b"moov":
                return at
            at += int.from_bytes(head[8:], "big") if size == 1 else size


def needed_bytes(times, shown: list[tuple[float, int, bool]]) -> int:
    """Returns the bytes of the packets from the key frame before a clip to its last frame."""
    order = sorted(range(len(shown)), key=lambda number: shown[number][0])
    starts = [shown[number][0] for number in order]
    places = [order[bisect.bisect(starts, time + 1e-3) - 1] for time in times]
    first = min(places)
    while not (shown[first][2] and shown[first][0] <= times[0] + 1e-3):
        first -= 1
    return sum(size for _, size, _ in shown[first : max(places) + 1])


def main(folder: pathlib.Path) -> None:
    files = sorted(folder.glob("*.mp4"))
    shown, tables = packets(files[0]), begin_of_tables(files[0])
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Store, directory=folder))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    columns = [
        {"name": "video", "from": "mp4", "decode": "video", "clip": {"frames": FRAMES}, "ops": [{"resize": [32, 32]}]},
        {"name": "times", "from": "mp4", "decode": "video_times", "follows": "video"},
    ]
    url = f"http://127.0.0.1:{server.server_port}"
    made = {"name": "clips", "dataset": url, "seed": 17, "global_batch": len(files), "epochs": EPOCHS, "column": columns}
    needed = []
    with spdl_cluster.local(made, tensors="numpy", memory_bytes=MEMORY_BYTES) as loader:
        while (batch := loader.next()) is not None:
            needed += [needed_bytes(times.tolist(), shown) for times in batch["times"]]
    sent = [(start, end) for path, start, end in Store.sent if path.endswith(".mp4")]
    of_packets = [end - start for start, end in sent if 0 < start < tables]
    of_tables = [end - start for start, end in sent if not 0 < start < tables]
    read = {
        "clips": len(needed),
        "frames": FRAMES,
        "files": len(files),
        "file_mb": files[0].stat().st_size / 1e6,
        "requests": len(of_packets) / len(needed),
        "bytes_of_groups": sum(of_packets) / sum(needed),
        "table_requests": len(of_tables) / len(files),
        "table_kb": sum(of_tables) / len(files) / 1e3,
    }
    print(json.dumps(read))
    server.shutdown()


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
