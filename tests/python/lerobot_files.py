"""Writes datasets as LeRobot v3 does: a row group for each episode, as `LeRobotDataset.save_episode` writes it, or one for a whole file, as
its converter from v2.1 does."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
from typing import Any

import numpy
import pytest
import torchrun
from conftest import LIMIT_S, ctl
from numpy.typing import NDArray

pyarrow = pytest.importorskip("pyarrow", reason=os.environ.get("SPDL_TEST_NO_FRAMEWORKS", "pyarrow is not installed"))
parquet = pytest.importorskip("pyarrow.parquet", reason=os.environ.get("SPDL_TEST_NO_FRAMEWORKS", "pyarrow is not installed"))

FPS = 10
STATE, ACTION = 4, 3
TASKS = ["push the block", "lift the lid", "öffne die Tür"]
#: What LeRobot's own writer writes in `lerobot_program.py`: frames of each episode, its cameras, the height and width of their pictures, and of
#: the patches of one colour that these consist of.
OWN_LENGTHS = [7, 12, 3, 4, 30, 11]
CAMERAS = ["observation.images.top", "observation.images.wrist"]
SIZE, PATCH = (48, 64), 16


def lists(rows: NDArray[Any]) -> Any:
    """Returns a column of lists of floats."""
    return pyarrow.array(rows.astype("float32").tolist(), pyarrow.list_(pyarrow.float32()))


def episode(number: int, length: int, first: int) -> Any:
    """Returns the rows of an episode, whose first row is the dataset's row `first`."""
    draw = numpy.random.default_rng(number)
    frames = numpy.arange(length)
    # An episode can have several tasks, one after the other.
    tasks = (number + (frames >= 5)) % len(TASKS)
    # A policy can learn what follows from a state.
    states = draw.normal(size=(length, STATE))
    return pyarrow.table(
        {
            "observation.state": lists(states),
            "action": lists(1 - 2 * states[:, :ACTION]),
            "next.reward": pyarrow.array(draw.normal(size=length).astype("float32")),
            "next.done": pyarrow.array(frames == length - 1),
            "timestamp": pyarrow.array((frames / FPS).astype("float32")),
            "frame_index": pyarrow.array(frames),
            "episode_index": pyarrow.array([number] * length),
            "index": pyarrow.array(first + frames),
            "task_index": pyarrow.array(tasks),
        }
    )


def write_episodes(folder: pathlib.Path, rows: list[dict[str, Any]]) -> None:
    path = folder / "meta/episodes/chunk-000/file-000.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(pyarrow.Table.from_pylist(rows), path, compression="snappy")


def write_info(folder: pathlib.Path, **keys: Any) -> None:
    (folder / "meta").mkdir(parents=True, exist_ok=True)
    info = {
        "codebase_version": "v3.0",
        "robot_type": "so100",
        "fps": FPS,
        "chunks_size": 1000,
        "data_path": "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet",
        "video_path": "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4",
        "features": {"action": {"dtype": "float32", "shape": [ACTION], "names": None}},
        **keys,
    }
    (folder / "meta/info.json").write_text(json.dumps(info))


def write(folder: pathlib.Path, files: list[list[int]], row_group_size: int | None = None) -> list[dict[str, Any]]:
    """Writes a dataset whose files have episodes of these lengths, each its own row group, or all in row groups of this size. Returns the
    rows of `meta/episodes`."""
    episodes: list[dict[str, Any]] = []
    first = 0
    for number, lengths in enumerate(files):
        path = folder / f"data/chunk-000/file-{number:03}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        tables = []
        for length in lengths:
            tables.append(episode(len(episodes), length, first))
            episodes.append(
                {
                    "episode_index": len(episodes),
                    "tasks": sorted({TASKS[task] for task in tables[-1]["task_index"].to_pylist()}),
                    "length": length,
                    "dataset_from_index": first,
                    "dataset_to_index": first + length,
                    "data/chunk_index": 0,
                    "data/file_index": number,
                    "stats/action/mean": [0.0] * ACTION,
                }
            )
            first += length
        if row_group_size is not None:
            parquet.write_table(pyarrow.concat_tables(tables), path, compression="snappy", row_group_size=row_group_size)
            continue
        with parquet.ParquetWriter(path, schema=tables[0].schema, compression="snappy", use_dictionary=True) as writer:
            for table in tables:
                writer.write_table(table)
    write_episodes(folder, episodes)
    tasks = pyarrow.table({"task_index": list(range(len(TASKS))), "__index_level_0__": TASKS})
    parquet.write_table(tasks, folder / "meta/tasks.parquet")
    write_info(folder, total_episodes=len(episodes), total_frames=first, total_tasks=len(TASKS))
    return episodes


def rows(folder: pathlib.Path) -> Any:
    """Returns all rows of a dataset, in order."""
    return pyarrow.concat_tables([parquet.read_table(path) for path in sorted(folder.glob("data/*/*.parquet"))])


def ffmpeg_program() -> str:
    path = shutil.which("ffmpeg")
    if path is None:
        pytest.skip("there is no `ffmpeg`: install the package of that name")
    return path


def write_video(path: pathlib.Path, times: str, *arguments: str, frames: int = 40, size: str = "64x48") -> None:
    """Writes a video, frame N of which is shown after so many milliseconds and has a brightness of its own: 16 + 4 N."""
    source = f"nullsrc=size={size}:rate=10,geq=lum=16+4*N:cb=128:cr=128,settb=1/1000,setpts={times}"
    command = [ffmpeg_program(), "-v", "error", "-y", "-f", "lavfi", "-i", source, "-fps_mode", "passthrough", "-c:v", "libx264", "-g", "6"]
    command += [*arguments, "-frames:v", str(frames), "-video_track_timescale", "1000", str(path)]
    subprocess.run(command, check=True, timeout=LIMIT_S, stdin=subprocess.DEVNULL)


def add_video(folder: pathlib.Path, episodes: list[dict[str, Any]], video: pathlib.Path, starts: list[float], fps: float) -> None:
    """Adds a feature whose frames lie in a copy of this video: those of each episode begin at one of these frames."""
    path = folder / "videos/observation.images.top/chunk-000/file-000.mp4"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(video.read_bytes())
    for one, start in zip(episodes, starts, strict=True):
        of_video = {"chunk_index": 0, "file_index": 0, "from_timestamp": start / fps, "to_timestamp": (start + one["length"]) / fps}
        one.update({f"videos/observation.images.top/{name}": value for name, value in of_video.items()})
    write_episodes(folder, episodes)
    features = {"observation.images.top": {"dtype": "video", "shape": [48, 64, 3], "names": None}}
    write_info(folder, fps=fps, features=features)


def written_by_lerobot(folder: pathlib.Path, deltas: dict[str, list[int]], codec: str) -> tuple[pathlib.Path, list[dict[str, Any]]]:
    """Has LeRobot write a dataset with videos of a codec, or `none`, and indexes it. Returns its folder, and the samples that LeRobot reads of it."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("lerobot", reason=os.environ.get("SPDL_TEST_NO_FRAMEWORKS", "lerobot is not installed"))
    program = pathlib.Path(__file__).with_name("lerobot_program.py")
    arguments = [folder / "robot", folder / "items.pt", json.dumps(deltas), codec]
    torchrun.finish(torchrun.torchrun(program, 0, *arguments, imports="lerobot.datasets.lerobot_dataset"))
    told = ctl("index", folder / "robot").stdout
    assert "episode " not in told, told
    return folder / "robot", torch.load(folder / "items.pt", weights_only=False)
