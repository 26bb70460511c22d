"""Frames of the videos of LeRobot's datasets: beside LeRobot's own reader, from a folder and a bucket, and what is wrong with them."""

from __future__ import annotations

import json
import os
import pathlib
import pickle
import subprocess
import sys
from typing import Any

import numpy
import pytest
import spdl_cluster
import stores
from conftest import LIMIT_S, Cluster, ctl
from lerobot_files import CAMERAS, FPS, OWN_LENGTHS, SIZE, add_video, ffmpeg_program, parquet, write, write_episodes, write_video, written_by_lerobot
from numpy.typing import NDArray
from test_lerobot import INDEX, TASK, job
from test_video import NEAR, original

TOP, WRIST = CAMERAS
#: The frames of a sample. The wrist's camera has one frame.
DELTAS = {TOP: [-2, 0, 40, 1, 1]}
#: How far a value may be from LeRobot's: torchcodec converts colours by tables, whose values are less exact than those of the standard.
NEAR_LEROBOT = 4


def camera(name: str, size: tuple[int, int] = SIZE, **keys: Any) -> dict[str, Any]:
    return {"name": name, "from": name, "decode": "video", "ops": [{"resize": list(size)}], **keys}


#: Of the codecs that LeRobot writes, one; one of pytest's processes has it write.
OF_A_CODEC = pytest.mark.drawn(1, group="codecs of LeRobot's videos", by="written")
IN_ONE_PROCESS = pytest.mark.xdist_group("written by LeRobot")
#: Options for videos of some megabytes.
NOISY = ["-vf", "noise=alls=90:allf=t", "-crf", "4", "-preset", "ultrafast"]

COLUMNS = [
    INDEX,
    TASK,
    camera(TOP, deltas=DELTAS[TOP]),
    {"name": f"{TOP}_is_pad", "from": TOP, "decode": "is_pad", "follows": TOP},
    camera(WRIST),
]


@pytest.fixture(scope="session", params=["libsvtav1", "h264"])
def written(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[pathlib.Path, list[dict[str, Any]]]:
    """Returns a dataset that LeRobot wrote, which is indexed, and the samples that LeRobot reads of it."""
    robot, items = written_by_lerobot(tmp_path_factory.mktemp("lerobot"), DELTAS, request.param)
    # Some videos have several episodes, and some episodes are in other files than those before.
    videos = [len(list((robot / "videos" / name).rglob("*.mp4"))) for name in CAMERAS]
    assert all(1 < count < len(OWN_LENGTHS) for count in videos), videos
    assert len(items) == sum(OWN_LENGTHS)
    return robot, items


def by_index(batches: Any) -> dict[int, dict[str, Any]]:
    """Returns the valid samples of batches of arrays by the numbers of their rows."""
    found = {}
    for batch in batches:
        for entry in numpy.flatnonzero(batch.valid):
            of_entry = {name: numpy.array(values[entry]) for name, values in batch.items() if name != "task"}
            found[int(of_entry["index"])] = of_entry
    return found


@OF_A_CODEC
@IN_ONE_PROCESS
def test_samples_are_those_of_lerobots_own_reader(written: tuple[pathlib.Path, list[dict[str, Any]]]) -> None:
    import torch
    from spdl_cluster.lerobot import as_lerobot

    folder, items = written
    seen = set()
    with spdl_cluster.local(job(folder, *COLUMNS, epoch_end="pad", bad_samples="fail")) as loader:
        for batch in map(as_lerobot, loader):
            assert batch[TOP].dtype == torch.float32 and batch[TOP].shape[1:] == (len(DELTAS[TOP]), 3, *SIZE)
            assert batch[WRIST].shape[1:] == (3, *SIZE)
            for entry, index in enumerate(batch["index"].tolist()):
                theirs = items[index]
                assert torch.equal(batch[f"{TOP}_is_pad"][entry], theirs[f"{TOP}_is_pad"]), index
                for name in CAMERAS:
                    off = (batch[name][entry] - theirs[name]).abs().max().item() * 255
                    assert batch[name][entry].shape == theirs[name].shape and off <= NEAR_LEROBOT + 0.01, (index, name, off)
                seen.add(index)
    assert sorted(seen) == list(range(len(items)))


@OF_A_CODEC
@IN_ONE_PROCESS
def test_each_frame_is_that_of_its_row(written: tuple[pathlib.Path, list[dict[str, Any]]]) -> None:
    folder, _ = written
    frames: dict[tuple[str, int], NDArray[Any]] = {}
    for one in parquet.read_table(folder / "meta/episodes").to_pylist():
        for name in CAMERAS:
            chunk, file, start = (one[f"videos/{name}/{key}"] for key in ("chunk_index", "file_index", "from_timestamp"))
            video = original(ffmpeg_program(), folder / f"videos/{name}/chunk-{chunk:03}/file-{file:03}.mp4", SIZE)
            first = round(start * FPS)
            frames[name, one["episode_index"]] = video[first : first + one["length"]]
    number = [(episode, frame) for episode, length in enumerate(OWN_LENGTHS) for frame in range(length)]
    with spdl_cluster.local(job(folder, *COLUMNS, epoch_end="pad"), tensors="numpy") as loader:
        found = by_index(loader)
    assert sorted(found) == list(range(len(number)))
    for row, sample in found.items():
        episode, frame = number[row]
        for name, deltas in ((WRIST, [0]), (TOP, DELTAS[TOP])):
            ours = sample[name].reshape(-1, *SIZE, 3).astype(int)
            of_episode = frames[name, episode].astype(int)
            for nth, delta in enumerate(deltas):
                wanted = min(max(frame + delta, 0), len(of_episode) - 1)
                off = numpy.abs(of_episode - ours[nth]).reshape(len(of_episode), -1).max(axis=1)
                # It is far from all other frames.
                assert off[wanted] <= NEAR and (numpy.delete(off, wanted) > 20).all(), (row, name, delta, off[wanted])


@OF_A_CODEC
@IN_ONE_PROCESS
def test_a_bucket_and_a_cluster_give_what_a_folder_gives(
    written: tuple[pathlib.Path, list[dict[str, Any]]], tmp_path: pathlib.Path, cluster: Cluster
) -> None:
    folder, items = written
    made = {**job(folder, *COLUMNS, epoch_end="pad"), "name": f"robot-{folder.parent.name}"}
    with spdl_cluster.local(made, tensors="numpy") as loader:
        here = by_index(loader)
    (tmp_path / "read.py").write_text(
        "import pickle, sys, spdl_cluster, test_lerobot_videos as test\n"
        "with spdl_cluster.local(test.job(sys.argv[1], *test.COLUMNS, epoch_end='pad'), tensors='numpy') as loader:\n"
        "    pickle.dump(test.by_index(loader), open(sys.argv[2], 'wb'))\n"
    )
    with stores.bucket("bucket", folder.parent) as variables:
        environment = {**os.environ, **variables, "PYTHONPATH": str(pathlib.Path(__file__).parent)}
        for command in (
            [os.environ["SPDL_TEST_CTL"], "index", "s3://bucket/robot", "--out", str(tmp_path / "index")],
            [sys.executable, str(tmp_path / "read.py"), str(tmp_path / "index"), str(tmp_path / "samples")],
        ):
            done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, env=environment)
            assert done.returncode == 0, done.stderr
    name = cluster.submit(made)
    there: dict[int, dict[str, Any]] = {}
    for loader in [cluster.connect(rank, 2, job=name, tensors="numpy") for rank in range(2)]:
        with loader:
            there |= by_index(loader)
    for other in (pickle.loads((tmp_path / "samples").read_bytes()), there):
        assert sorted(other) == sorted(here) == list(range(len(items)))
        for row, sample in other.items():
            assert all(numpy.array_equal(values, here[row][name]) for name, values in sample.items()), row


@pytest.fixture
def robot(tmp_path: pathlib.Path) -> tuple[pathlib.Path, list[dict[str, Any]]]:
    """Returns the folder and the episodes of a dataset of 40 frames, 10 a second."""
    folder = tmp_path / "robot"
    return folder, write(folder, [[7, 12], [21]])


def brightness(folder: pathlib.Path, **keys: Any) -> list[int]:
    """Returns which frame of the video each row has, by its brightness; -1 for bad samples."""
    column = camera(TOP, (4, 4), color="gray", **keys)
    made = job(folder, INDEX, column, bad_samples="mask", max_bad_fraction=1, shuffle=False, epoch_end="partial")
    with spdl_cluster.local(made, tensors="numpy") as loader:
        found = {int(row): float(frame.mean()) for batch in loader for row, frame, valid in zip(batch["index"], batch[TOP], batch.valid) if valid}
    # A luma of 16 is black.
    return [round(found[row] / 255 * 219 / 4) if row in found else -1 for row in range(40)]


def problem(folder: pathlib.Path, **keys: Any) -> str:
    made = job(folder, INDEX, camera(TOP, (4, 4), **keys), bad_samples="fail", shuffle=False, epoch_end="partial")
    with pytest.raises(spdl_cluster.SpdlError) as error, spdl_cluster.local(made, tensors="numpy") as loader:
        for _ in loader:
            pass
    return str(error.value)


@pytest.mark.filterwarnings("ignore:.*of the samples")
def test_frames_that_drift_are_bad_samples_or_found_by_their_time(robot: tuple[pathlib.Path, list[dict[str, Any]]], tmp_path: pathlib.Path) -> None:
    folder, episodes = robot
    rows = list(range(40))
    path = tmp_path / "video.mp4"
    # Steady, but for less than half a frame.
    write_video(path, "N*100+mod(N*7\\,40)")
    add_video(folder, episodes, path, [0, 7, 19], 10)
    ctl("index", folder, "--force")
    assert brightness(folder) == brightness(folder, drift="nearest") == rows
    # Frame 25 was lost: all behind it have another number than their time.
    write_video(path, "N*100+100*gte(N\\,25)")
    add_video(folder, episodes, path, [0, 7, 19], 10)
    told = ctl("index", folder, "--force").stdout
    assert "episode 2 has frame 25, which is shown at 2.6000 s and not after 25/10 s" in told, told
    assert brightness(folder) == [row if row < 25 else -1 for row in rows]
    nearest = brightness(folder, drift="nearest")
    assert nearest[:25] == rows[:25] and nearest[25] in (24, 25) and nearest[26:] == rows[25:39]
    error = problem(folder)
    name = "videos/observation.images.top/chunk-000/file-000.mp4"
    assert f"field `{TOP}` lies in `{name}`, which shows its frame 25 at 2.6000 s and not after 25/10 s; drift = \"nearest\"" in error, error
    assert "data/chunk-000/file-001.parquet" in error, error


@pytest.mark.filterwarnings("ignore:.*of the samples")
def test_a_wrong_number_of_frames_is_named(robot: tuple[pathlib.Path, list[dict[str, Any]]], tmp_path: pathlib.Path) -> None:
    folder, episodes = robot
    path = tmp_path / "video.mp4"
    write_video(path, "N*100")
    add_video(folder, episodes, path, [0, 7, 20], 10)
    told = ctl("index", folder, "--force").stdout
    assert "episode 2 has frames 20 to 41, and the video has 40" in told, told
    assert brightness(folder) == [*range(19), *range(20, 40), -1]
    assert brightness(folder, drift="nearest")[-1] in (39, -1)
    assert "which has 40 frames, and that of the sample is frame 40" in problem(folder)
    # The episode has more frames than rows, so that it is not known which are its rows'.
    add_video(folder, episodes, path, [0, 7, 19], 10)
    episodes[1]["videos/observation.images.top/to_timestamp"] = 2.0
    write_episodes(folder, episodes)
    told = ctl("index", folder, "--force").stdout
    assert "episode 1 has 12 rows, and frames 7 to 20" in told, told
    assert brightness(folder) == [-1 if 7 <= row < 19 else row for row in range(40)]
    assert f"field `{TOP}` is of an episode with 12 rows, and 13 frames in its video" in problem(folder)


@pytest.mark.filterwarnings("ignore:.*of the samples")
def test_videos_that_are_damaged_or_missing_are_named_and_the_rest_is_read(robot: tuple[pathlib.Path, list[dict[str, Any]]], tmp_path: pathlib.Path) -> None:
    folder, episodes = robot
    path = tmp_path / "video.mp4"
    write_video(path, "N*100", "-bf", "0")
    add_video(folder, episodes, path, [0, 7, 19], 10)
    stored = folder / "videos/observation.images.top/chunk-000/file-000.mp4"
    stored.write_bytes(b"no video at all")
    assert "cannot be read" in ctl("index", folder, "--force").stdout
    error = problem(folder)
    assert "lies in `videos/observation.images.top/chunk-000/file-000.mp4`, which" in error and "no video at all" in error, error
    # A video that was replaced since is another than was indexed.
    write_video(path, "N*100")
    stored.write_bytes(path.read_bytes())
    error = problem(folder)
    assert "file-000.mp4` changed" in error, error
    # Without the videos, there is no such field, and the others are read.
    stored.unlink()
    assert "file-000.mp4` is not there, which episodes from 0 to 2 name" in ctl("index", folder, "--force").stdout
    with spdl_cluster.local(job(folder, INDEX, epoch_end="partial"), tensors="numpy") as loader:
        assert sum(len(batch.ids) for batch in loader) == 40
    with pytest.raises(spdl_cluster.SettingError, match="which no record of the dataset has"), spdl_cluster.local(job(folder, camera(TOP))) as loader:
        loader.next()


@pytest.mark.parametrize("options", [["-f", "matroska"], ["-f", "mp4", "-movflags", "frag_keyframe+empty_moov"]])
def test_videos_whose_tables_lie_between_packets_are_read(robot: tuple[pathlib.Path, list[dict[str, Any]]], tmp_path: pathlib.Path, options: list[str]) -> None:
    folder, episodes = robot
    write_video(tmp_path / "tables.mp4", "N*100", "-bf", "0")
    copy = [ffmpeg_program(), "-v", "error", "-i", str(tmp_path / "tables.mp4"), "-c", "copy", *options, str(tmp_path / "video")]
    subprocess.run(copy, check=True, timeout=LIMIT_S, stdin=subprocess.DEVNULL)
    add_video(folder, episodes, tmp_path / "video", [0, 7, 19], 10)
    assert "episode " not in ctl("index", folder).stdout
    assert brightness(folder) == list(range(40))


def test_a_clip_of_frames_is_refused_and_the_first_job_has_frames(robot: tuple[pathlib.Path, list[dict[str, Any]]], tmp_path: pathlib.Path) -> None:
    folder, episodes = robot
    path = tmp_path / "video.mp4"
    write_video(path, "N*100")
    add_video(folder, episodes, path, [0, 7, 19], 10)
    ctl("index", folder)
    with (
        pytest.raises(spdl_cluster.SettingError, match="`clip` is for whole videos, and the field is a frame"),
        spdl_cluster.local(job(folder, camera(TOP, clip={"frames": 2}))) as loader,
    ):
        loader.next()
    (tmp_path / "loose").mkdir()
    (tmp_path / "loose/one.mp4").write_bytes(path.read_bytes())
    ctl("index", tmp_path / "loose")
    whole = {**camera("mp4"), "name": "video"}
    with (
        pytest.raises(spdl_cluster.SettingError, match="`clip` is missing; write which frames of a video are taken"),
        spdl_cluster.local(job(tmp_path / "loose", whole, global_batch=1)) as loader,
    ):
        loader.next()
    ctl("job", "init", folder, "--out", tmp_path / "job.toml")
    suggested = (tmp_path / "job.toml").read_text()
    assert f'from = "{TOP}"\ndecode = "video"\nops = [{{ letterbox = {{ size = 224 }} }}]' in suggested, suggested
    with spdl_cluster.local(str(tmp_path / "job.toml"), tensors="numpy") as loader:
        batch = loader.next()
        assert batch is not None and batch["observation_images_top"].shape[1:] == (224, 224, 3)


def test_only_the_packets_of_the_frames_are_read(robot: tuple[pathlib.Path, list[dict[str, Any]]], tmp_path: pathlib.Path) -> None:
    folder, episodes = robot
    path = tmp_path / "video.mp4"
    write_video(path, "N*100", *NOISY, "-movflags", "+faststart", size="640x480")
    whole = path.stat().st_size
    assert whole > 8 << 20, whole
    add_video(folder, episodes, path, [0, 7, 19], 10)
    (tmp_path / "read.py").write_text(
        "import sys, spdl_cluster, test_lerobot_videos as test\n"
        "made = test.job(sys.argv[1], test.INDEX, test.camera(test.TOP), view={'where': 'index == 20'}, global_batch=1, epoch_end='exact')\n"
        "with spdl_cluster.local(made, tensors='numpy') as loader:\n"
        "    assert sum(int(batch.valid.sum()) for batch in loader) == 1\n"
    )
    sent: list[tuple[str, int]] = []
    with stores.bucket("bucket", tmp_path, sent) as variables:
        environment = {**os.environ, **variables, "PYTHONPATH": str(pathlib.Path(__file__).parent)}
        for command in (
            [os.environ["SPDL_TEST_CTL"], "index", "s3://bucket/robot", "--out", str(tmp_path / "index")],
            [sys.executable, str(tmp_path / "read.py"), str(tmp_path / "index")],
        ):
            sent.clear()
            done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, env=environment)
            assert done.returncode == 0, done.stderr
    of_video = sum(size for name, size in sent if name == "file-000.mp4")
    assert 0 < of_video < whole / 4, (of_video, whole)


def test_what_samples_of_a_batch_need_of_one_video_is_decoded_once(tmp_path: pathlib.Path, cluster: Cluster) -> None:
    folder, path = tmp_path / "robot", tmp_path / "video.mp4"
    episodes = write(folder, [[40]])
    write_video(path, "N*100", "-g", "40")
    add_video(folder, episodes, path, [0], 10)
    ctl("index", folder)
    found, packets = [], []
    for batch in (1, 20):
        made = job(folder, INDEX, camera(TOP, (4, 4), color="gray", deltas=[-1, 0]), name=f"one-video-{batch}", global_batch=batch)
        name, before = cluster.submit(made), cluster.metric("spdl_worker_video_packets_total")
        with cluster.connect(0, 1, job=name, tensors="numpy") as loader:
            found.append({row: sample[TOP].tobytes() for row, sample in by_index(loader).items()})
        packets.append(cluster.metric("spdl_worker_video_packets_total") - before)
    assert found[0] == found[1] and sorted(found[0]) == list(range(40)), "frames depend on what else is in a batch"
    assert 40 <= packets[1] <= packets[0] / 3, packets
