"""Loaders of a robot's dataset, as `benches/peers/run --robots` compares them: peers as those of pictures, whose batches have what LeRobot's
own DataLoader gives a policy. All read one dataset of LeRobot v3, from a folder, or its videos from a bucket that answers late."""

import json
import pathlib
import subprocess
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[4] / "tests/python"))

import stores  # noqa: E402

EPISODES, LENGTH, FPS, HEIGHT, WIDTH, STATE = 20, 150, 30, 480, 640, 14
CAMERAS = ["observation.images.top", "observation.images.wrist"]
#: The frames of a sample's actions, as those of ACT.
ACTIONS = 50
#: How long the bucket waits before each answer, in seconds.
LATENCY_S = 0.02
FORMAT, BUCKET = "lerobot", "robots"
TASK = "push the block"
SEED = 17
OURS = ["numpy==2.4.6", "maturin==1.16.0", "pyarrow==26.0.1"]
#: As LeRobot codes videos: AV1 with a key frame in 2.
AV1 = ["-c:v", "libsvtav1", "-preset", "12", "-crf", "30", "-g", "2", "-pix_fmt", "yuv420p"]


def prepare(data) -> None:
    """Writes the dataset, in the files of which LeRobot's own writer has them: each camera's episodes are one video."""
    folder = data.format(FORMAT)
    for nth, camera in enumerate(CAMERAS):
        source = f"testsrc2=size={WIDTH}x{HEIGHT}:rate={FPS},hue=h={90 * nth},noise=alls=8:allf=t:all_seed={nth}"
        path = folder / f"videos/{camera}/chunk-000/file-000.mp4"
        path.parent.mkdir(parents=True)
        command = ["ffmpeg", "-v", "error", "-nostdin", "-y", "-f", "lavfi", "-i", source, "-frames:v", str(EPISODES * LENGTH), *AV1, str(path)]
        subprocess.run(command, check=True)
    write_rows(folder)
    write_info(folder)


def write_rows(folder: pathlib.Path) -> None:
    """Writes the rows of all frames, and of all episodes."""
    import numpy
    import pyarrow
    import pyarrow.parquet

    random = numpy.random.default_rng(SEED)
    frames = numpy.arange(LENGTH)
    numbers = pyarrow.list_(pyarrow.float32())
    tables, episodes = [], []
    for episode in range(EPISODES):
        first = episode * LENGTH
        values = {name: random.normal(size=(LENGTH, STATE)).astype("float32").tolist() for name in ("observation.state", "action")}
        columns = {name: pyarrow.array(rows, numbers) for name, rows in values.items()}
        columns |= {"timestamp": pyarrow.array((frames / FPS).astype("float32")), "frame_index": pyarrow.array(frames)}
        columns |= {"episode_index": pyarrow.array([episode] * LENGTH), "index": pyarrow.array(first + frames), "task_index": pyarrow.array([0] * LENGTH)}
        tables.append(pyarrow.table(columns))
        about = {"episode_index": episode, "tasks": [TASK], "length": LENGTH, "dataset_from_index": first, "dataset_to_index": first + LENGTH}
        about |= {"data/chunk_index": 0, "data/file_index": 0}
        for camera in CAMERAS:
            of_video = {"chunk_index": 0, "file_index": 0, "from_timestamp": first / FPS, "to_timestamp": (first + LENGTH) / FPS}
            about |= {f"videos/{camera}/{name}": value for name, value in of_video.items()}
        episodes.append(about)
    tasks = pyarrow.table({"task_index": [0], "__index_level_0__": [TASK]})
    # What `pandas` reads as the names of the rows.
    kinds = {"task_index": ("task_index", "int64", "int64"), "__index_level_0__": (None, "unicode", "object")}
    about = [{"name": name, "field_name": field, "pandas_type": kind, "numpy_type": of, "metadata": None} for field, (name, kind, of) in kinds.items()]
    names = [{"name": None, "field_name": None, "pandas_type": "unicode", "numpy_type": "object", "metadata": {"encoding": "UTF-8"}}]
    about = {"index_columns": ["__index_level_0__"], "column_indexes": names, "columns": about, "creator": {}, "pandas_version": "2.0.0"}
    tasks = tasks.replace_schema_metadata({"pandas": json.dumps(about)})
    for path, table in (
        ("data/chunk-000/file-000.parquet", pyarrow.concat_tables(tables)),
        ("meta/episodes/chunk-000/file-000.parquet", pyarrow.Table.from_pylist(episodes)),
        ("meta/tasks.parquet", tasks),
    ):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        pyarrow.parquet.write_table(table, folder / path, compression="snappy", row_group_size=LENGTH)


def write_info(folder: pathlib.Path) -> None:
    names = ["height", "width", "channels"]
    features = {camera: {"dtype": "video", "shape": [HEIGHT, WIDTH, 3], "names": names} for camera in CAMERAS}
    features |= {name: {"dtype": "float32", "shape": [STATE], "names": None} for name in ("observation.state", "action")}
    features["timestamp"] = {"dtype": "float32", "shape": [1], "names": None}
    features |= {name: {"dtype": "int64", "shape": [1], "names": None} for name in ("frame_index", "episode_index", "index", "task_index")}
    info = {
        "codebase_version": "v3.0",
        "robot_type": "aloha",
        "total_episodes": EPISODES,
        "total_frames": EPISODES * LENGTH,
        "total_tasks": 1,
        "chunks_size": 1000,
        "data_files_size_in_mb": 100,
        "video_files_size_in_mb": 200,
        "fps": FPS,
        "splits": {"train": f"0:{EPISODES}"},
        "data_path": "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet",
        "video_path": "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4",
        "features": features,
    }
    (folder / "meta/info.json").write_text(json.dumps(info))


def serve(data, settings, serving) -> None:
    """Serves the dataset as a bucket, if a loader reads it there, until it is ended."""
    import threading

    if settings.robot != "s3":
        serving("-")
        return
    with stores.bucket(BUCKET, data.format(FORMAT), latency_s=LATENCY_S) as variables:
        serving(variables["AWS_ENDPOINT"])
        threading.Event().wait()
