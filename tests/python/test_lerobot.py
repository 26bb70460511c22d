"""Datasets of LeRobot v3: their index, values of several frames beside LeRobot's own rule, what is wrong with them, and the page of the
guide."""

from __future__ import annotations

import json
import os
import pathlib
import pickle
import subprocess
import sys
from typing import Any

import lerobot_files
import numpy
import pytest
import spdl_cluster
import stores
import torchrun
from conftest import LIMIT_S, Cluster, ctl, ctl_json
from lerobot_files import ACTION, STATE, TASKS, add_video, write, write_episodes, write_info, write_video, written_by_lerobot
from numpy.typing import NDArray
from test_recipes import Recipe

LENGTHS = [[7, 12, 3], [1, 30, 11]]
INDEX: dict[str, Any] = {"name": "index", "from": "index", "decode": "int"}
STATES: dict[str, Any] = {"name": "observation.state", "from": "observation.state", "decode": "tensor", "shape": [STATE], "deltas": [-1, 0]}
ACTIONS: dict[str, Any] = {"name": "action", "from": "action", "decode": "tensor", "shape": [ACTION], "deltas": {"from": 0, "to": 8}}
PADDED: dict[str, Any] = {"name": "action_is_pad", "from": "action", "decode": "is_pad", "follows": "action"}
REWARDS: dict[str, Any] = {"name": "next.reward", "from": "next.reward", "decode": "float", "deltas": [-40, 0, 2, 2, 1]}
DONE: dict[str, Any] = {"name": "next.done", "from": "next.done", "decode": "bool", "deltas": [-1, 0]}
FRAMES: dict[str, Any] = {"name": "frame_index", "from": "frame_index", "decode": "int", "dtype": "i32", "deltas": [-3, 3]}
TASK: dict[str, Any] = {"name": "task", "from": "task", "decode": "text"}
COLUMNS = [INDEX, STATES, ACTIONS, PADDED, REWARDS, DONE, FRAMES, TASK]


def job(dataset: pathlib.Path | str, *columns: dict[str, Any], **keys: Any) -> dict[str, Any]:
    return {"name": "robot", "dataset": dataset, "seed": 5, "global_batch": 4, **keys, "column": list(columns)}


def samples(loader: Any) -> dict[int, dict[str, Any]]:
    """Returns the samples of an epoch by the numbers of their rows."""
    found = {}
    for batch in loader:
        texts = batch["task"].text()
        for entry in numpy.flatnonzero(batch.valid):
            of_entry = {name: numpy.array(values[entry]) for name, values in batch.items() if name != "task"}
            found[int(of_entry["index"])] = {**of_entry, "task": texts[entry]}
    return found


def expected(table: Any, episodes: list[dict[str, Any]], name: str, row: int, deltas: list[int]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Returns the values that LeRobot's `_get_query_indices` gives, and which of them are padding."""
    of_row = next(one for one in episodes if one["dataset_from_index"] <= row < one["dataset_to_index"])
    first, end = of_row["dataset_from_index"], of_row["dataset_to_index"]
    indices = [max(first, min(end - 1, row + delta)) for delta in deltas]
    values = numpy.array([table[name][index].as_py() for index in indices])
    return values, numpy.array([(row + delta < first) | (row + delta >= end) for delta in deltas])


def check(found: dict[int, dict[str, Any]], folder: pathlib.Path, episodes: list[dict[str, Any]]) -> None:
    table = lerobot_files.rows(folder)
    assert sorted(found) == list(range(table.num_rows))
    for row, sample in found.items():
        for name, deltas in (
            ("observation.state", [-1, 0]),
            ("action", list(range(8))),
            ("next.reward", [-40, 0, 2, 2, 1]),
            ("next.done", [-1, 0]),
            ("frame_index", [-3, 3]),
        ):
            values, is_pad = expected(table, episodes, name, row, deltas)
            assert sample[name].shape == values.shape
            assert numpy.array_equal(sample[name], values.astype(sample[name].dtype)), (row, name)
            if name == "action":
                assert numpy.array_equal(sample["action_is_pad"], is_pad), row
        assert sample["task"] == TASKS[table["task_index"][row].as_py()]


@pytest.mark.parametrize("row_group_size", [None, 1000, 5], ids=["group-of-each-episode", "one-group", "groups-cut-episodes"])
def test_samples_have_the_frames_around_them_as_lerobot_gives_them(tmp_path: pathlib.Path, row_group_size: int | None) -> None:
    episodes = write(tmp_path / "robot", LENGTHS, row_group_size)
    report = ctl_json("index", tmp_path / "robot", "--block-size", "1KiB")
    assert (report["samples"], report["shards"]) == (sum(map(sum, LENGTHS)), 2), report
    assert row_group_size == 1000 or report["blocks"] > 2, report
    with spdl_cluster.local(job(tmp_path / "robot", *COLUMNS), tensors="numpy") as loader:
        check(samples(loader), tmp_path / "robot", episodes)
    verified = ctl_json("verify", tmp_path / "robot")
    assert verified["faults"] == [], verified


def test_a_cluster_gives_any_number_of_ranks_what_one_process_gives(tmp_path: pathlib.Path, cluster: Cluster) -> None:
    episodes = write(tmp_path / "robot", LENGTHS)
    ctl("index", tmp_path / "robot", "--format", "lerobot")
    made = job(tmp_path / "robot", *COLUMNS, epoch_end="pad")
    name = cluster.submit(made)
    found: dict[int, dict[str, Any]] = {}
    loaders = [cluster.connect(rank, 2, job=name, tensors="numpy") for rank in range(2)]
    for loader in loaders:
        with loader:
            found.update(samples(loader))
    check(found, tmp_path / "robot", episodes)


def test_what_contradicts_meta_is_named_with_its_episode(tmp_path: pathlib.Path) -> None:
    episodes = write(tmp_path / "robot", LENGTHS)

    def told(*arguments: object) -> str:
        command = [os.environ["SPDL_TEST_CTL"], "index", str(tmp_path / "robot"), "--force", *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
        assert done.returncode == 1, done
        return done.stderr

    changed = [dict(one) for one in episodes]
    changed[1]["length"] += 1
    write_episodes(tmp_path / "robot", changed)
    assert "contradicts itself: episode 1 has frames 7 to 19 and 13 frames" in told()
    changed = [dict(one) for one in episodes]
    changed[4]["data/file_index"] = 0
    write_episodes(tmp_path / "robot", changed)
    assert "contradicts `meta/episodes`: episode 4 " in told()
    changed = [dict(one) for one in episodes]
    changed[5]["data/file_index"] = 2
    write_episodes(tmp_path / "robot", changed)
    assert "names `data/chunk-000/file-002.parquet`, which is not there" in told()
    write_episodes(tmp_path / "robot", episodes[:-1])
    assert "episode 5 is not in `meta/episodes`" in told()
    write_episodes(tmp_path / "robot", episodes)
    write_info(tmp_path / "robot", codebase_version="v2.1")
    error = told()
    assert "is of LeRobot v2.1, and v3.0 is read" in error and "convert_dataset_v21_to_v30" in error
    ctl("index", tmp_path / "robot", "--format", "parquet", "--shards", "data/chunk-000/file-000.parquet", "--out", tmp_path / "rows")


def test_totals_that_are_wrong_are_noted(tmp_path: pathlib.Path) -> None:
    write(tmp_path / "robot", LENGTHS)
    write_info(tmp_path / "robot", total_episodes=7)
    assert "`total_episodes` is 7, and the dataset has 6" in ctl("index", tmp_path / "robot").stdout


def test_videos_that_contradict_the_episodes_are_noted(tmp_path: pathlib.Path) -> None:
    # It has 40 frames, 10 a second.
    video = pathlib.Path(__file__).parents[2] / "crates/media/tests/videos/tables.mp4"
    episodes = write(tmp_path / "robot", [[7, 12], [21]])
    add_video(tmp_path / "robot", episodes, video, [0, 7, 19], 10)
    assert "episode " not in ctl("index", tmp_path / "robot").stdout
    told = "`videos/observation.images.top/chunk-000/file-000.mp4`: episode "
    cases: list[tuple[list[float], str]] = [
        ([0, 6, 19], "1 has frames 6 to 18, of which others have those up to 7"),
        ([0, 7, 20], "2 has frames 20 to 41, and the video has 40"),
        ([0, 7.01, 19], "1 begins at 0.701 s, which is 0.001000 s from frame 7"),
    ]
    for starts, expected in cases:
        add_video(tmp_path / "robot", episodes, video, starts, 10)
        found = ctl("index", tmp_path / "robot", "--force").stdout
        assert told + expected in found, found
    (tmp_path / "robot/videos/observation.images.top/chunk-000/file-000.mp4").unlink()
    assert "file-000.mp4` is not there, which episodes from 0 to 2 name" in ctl("index", tmp_path / "robot", "--force").stdout


def test_deltas_need_a_dataset_of_series(tmp_path: pathlib.Path) -> None:
    write(tmp_path / "robot", LENGTHS)
    ctl("index", tmp_path / "robot", "--format", "parquet", "--shards", "data/chunk-000/file-000.parquet")
    told = "column `action`: `deltas` needs records that belong together in series, which a dataset of the format `parquet` does not have"
    with spdl_cluster.local(job(tmp_path / "robot", ACTIONS), tensors="numpy") as loader, pytest.raises(spdl_cluster.SettingError, match=told):
        loader.next()


def test_a_batch_has_the_keys_that_policies_expect(tmp_path: pathlib.Path) -> None:
    torch = pytest.importorskip("torch")
    from spdl_cluster.lerobot import as_lerobot

    write(tmp_path / "robot", LENGTHS)
    ctl("index", tmp_path / "robot")
    with spdl_cluster.local(job(tmp_path / "robot", *COLUMNS)) as loader:
        first = loader.next()
        assert first is not None
        batch = as_lerobot(first)
    assert set(batch) == {column["name"] for column in COLUMNS}
    assert all(task in TASKS for task in batch["task"]) and len(batch["task"]) == 4
    assert (batch["action"].shape, batch["action"].dtype) == ((4, 8, ACTION), torch.float32)
    assert (batch["action_is_pad"].shape, batch["action_is_pad"].dtype) == ((4, 8), torch.bool)
    pictures = {"observation.images.top": torch.full((2, 5, 6, 3), 51, dtype=torch.uint8), "depth": torch.zeros(2, 5, 6)}
    made = as_lerobot(pictures)
    assert made["observation.images.top"].shape == (2, 3, 5, 6) and torch.allclose(made["observation.images.top"], torch.tensor(0.2))
    assert made["depth"] is pictures["depth"]


def test_samples_are_those_of_lerobots_own_reader_of_what_its_own_writer_wrote(tmp_path: pathlib.Path) -> None:
    torch = pytest.importorskip("torch")
    deltas = {"action": list(range(8)), "observation.state": [-1, 0], "grid": [-1, 0, 1]}
    robot, items = written_by_lerobot(tmp_path, deltas, "none")
    from spdl_cluster.lerobot import as_lerobot

    shapes = {"action": [3], "observation.state": [4], "grid": [2, 3]}
    columns: list[dict[str, Any]] = [{"name": name, "from": name, "decode": "tensor", "shape": shape, "deltas": deltas[name]} for name, shape in shapes.items()]
    columns += [{"name": f"{name}_is_pad", "from": name, "decode": "is_pad", "follows": name} for name in shapes]
    columns += [{"name": name, "from": name, "decode": "int"} for name in ("index", "episode_index", "frame_index", "task_index")]
    columns += [{"name": "timestamp", "from": "timestamp", "decode": "float"}, TASK]
    columns += [{"name": "observation.image", "from": "observation.image.bytes", "decode": "image", "ops": [{"resize": [24, 32]}]}]
    seen = set()
    with spdl_cluster.local(job(robot, *columns, epoch_end="pad")) as loader:
        for batch in map(as_lerobot, loader):
            for entry, index in enumerate(batch["index"].tolist()):
                item = items[index]
                assert item.keys() == batch.keys()
                for name, theirs in item.items():
                    ours = batch[name][entry]
                    if name == "task":
                        assert ours == theirs
                    else:
                        assert ours.dtype == theirs.dtype and torch.equal(ours, theirs), (index, name)
                seen.add(index)
    assert sorted(seen) == list(range(len(items)))


def test_a_dataset_in_a_bucket_is_read_there(tmp_path: pathlib.Path) -> None:
    episodes = write(tmp_path / "bucket/robot", LENGTHS)
    (tmp_path / "read.py").write_text(
        "import pickle, sys, spdl_cluster, test_lerobot\n"
        "with spdl_cluster.local(test_lerobot.job(sys.argv[1], *test_lerobot.COLUMNS), tensors='numpy') as loader:\n"
        "    pickle.dump(test_lerobot.samples(loader), open(sys.argv[2], 'wb'))\n"
    )
    with stores.bucket("bucket", tmp_path / "bucket") as variables:
        environment = {**os.environ, **variables, "PYTHONPATH": str(pathlib.Path(__file__).parent)}
        for command in (
            [os.environ["SPDL_TEST_CTL"], "index", "s3://bucket/robot", "--out", str(tmp_path / "index")],
            [sys.executable, str(tmp_path / "read.py"), str(tmp_path / "index"), str(tmp_path / "samples")],
        ):
            done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, env=environment)
            assert done.returncode == 0, done.stderr
    check(pickle.loads((tmp_path / "samples").read_bytes()), tmp_path / "bucket/robot", episodes)


def test_a_view_of_some_episodes_has_whole_episodes_around_its_samples(tmp_path: pathlib.Path) -> None:
    episodes = write(tmp_path / "robot", LENGTHS)
    ctl("index", tmp_path / "robot")
    # Frames behind the first ones of an episode are not in the view.
    chosen = job(tmp_path / "robot", *COLUMNS, epoch_end="exact", view={"where": "frame_index < 4 and episode_index >= 1"})
    table = lerobot_files.rows(tmp_path / "robot")
    with spdl_cluster.local(chosen, tensors="numpy") as loader:
        found = samples(loader)
    assert len(found) > 10
    for row, sample in found.items():
        values, is_pad = expected(table, episodes, "action", row, list(range(8)))
        assert numpy.array_equal(sample["action"], values.astype("float32")) and numpy.array_equal(sample["action_is_pad"], is_pad)


def test_the_page_on_robots_runs_as_it_is_written(tmp_path: pathlib.Path, temporary: pathlib.Path) -> None:
    pytest.importorskip("torch")
    episodes, video = write(tmp_path / "pusht", LENGTHS), tmp_path / "video.mp4"
    write_video(video, "N*100", frames=64)
    add_video(tmp_path / "pusht", episodes, video, [one["dataset_from_index"] for one in episodes], 10)
    page = Recipe("../guide/robots.md", tmp_path, temporary, {"shape = [14]": f"shape = [{STATE}]", "shape = [7]": f"shape = [{ACTION}]"}, {})
    told = page.run("spdl-ctl index pusht")
    assert "64 samples" in told, told
    page.run("spdl-ctl replay robot.toml")
    page.end()
    looked = torchrun.finish(torchrun.torchrun(tmp_path / "robot.py", 0, folder=tmp_path))
    assert "torch.Size([8, 50, 3])" in looked and "torch.Size([8, 2, 3, 224, 224])" in looked, looked


def test_the_first_job_is_suggested(tmp_path: pathlib.Path) -> None:
    write(tmp_path / "robot", LENGTHS)
    ctl("index", tmp_path / "robot")
    ctl("job", "init", tmp_path / "robot", "--out", tmp_path / "job.toml")
    suggested = (tmp_path / "job.toml").read_text()
    assert 'from = "action"' in suggested and 'from = "task"' in suggested, suggested
    seen = json.loads(ctl("info", tmp_path / "robot", "--json").stdout)
    assert seen["format"] == "lerobot", seen
