"""`suggest` and `imagefolder`: a dataset or a folder of pictures is all that the first batch needs."""

from __future__ import annotations

import os
import pathlib
import shutil
from collections.abc import Callable
from typing import Any

import numpy
import pytest
import spdl_cluster
from conftest import FRAMEWORKS_HERE, ctl, packed, run_python
from PIL import Image

Photos = Callable[..., pathlib.Path]


def removed(folder: pathlib.Path) -> pathlib.Path:
    shutil.rmtree(folder)
    return folder


def picture(path: pathlib.Path, width: int = 40, height: int = 30, level: int = 90) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (width, height), (level, 20, 200)).save(path)


@pytest.fixture
def photos(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Photos:
    """Returns a function that makes a folder of class folders. Indexes are made in a folder of the test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))

    def make(name: str, classes: str, each: int = 6) -> pathlib.Path:
        folder = tmp_path / name
        for number, kind in enumerate(classes.split()):
            for nth in range(each):
                picture(folder / kind / f"{nth}.png", 40 + nth, level=number * 20)
        return folder

    return make


def indexes(tmp_path: pathlib.Path) -> list[pathlib.Path]:
    return sorted((tmp_path / "caches/spdl-cluster/imagefolder").iterdir())


def test_a_suggestion_is_what_job_init_writes(tmp_path_factory: pytest.TempPathFactory, tmp_path: pathlib.Path) -> None:
    dataset = packed(tmp_path_factory, "dataset", 200, seed=7)
    tomllib = pytest.importorskip("tomllib")
    ctl("job", "init", dataset, "--validation", dataset, "--out", tmp_path / "train.toml", "--size", 96)
    train, val = spdl_cluster.suggest(dataset, 96), spdl_cluster.suggest(dataset, 96, validation=True)
    for file, suggested in (("train.toml", train), ("val.toml", val)):
        assert tomllib.loads((tmp_path / file).read_text()) == suggested
    with spdl_cluster.local(train) as loader, spdl_cluster.local(val) as validation:
        batch = next(iter(loader))
        assert batch["image"].shape == (64, 96, 96, 3)
        assert not numpy.asarray(batch.flags).any()
        passes = [numpy.concatenate([numpy.asarray(batch["label"]) for batch in validation]) for _ in range(2)]
        assert len(passes[0]) == 200
        assert (passes[0] == passes[1]).all()


def test_a_suggestion_reads_every_kind_of_picture_however_few_there_are(photos: Photos, tmp_path: pathlib.Path) -> None:
    folder = photos("photos", "ant bee", each=300)
    picture(folder / "bee/rare.jpg")
    (folder / "bee/1.txt").write_text("a caption")
    spdl_cluster.index(folder, out=tmp_path / "index")
    with pytest.MonkeyPatch.context() as patch:
        said: list[str] = []
        patch.setattr("spdl_cluster.folders._LOGGER.warning", lambda text, *values: said.append(text % values))
        job: Any = spdl_cluster.suggest(tmp_path / "index", 32)
    assert [column["from"] for column in job["column"]] == ["jpg|png", "cls"]
    assert [line for line in said if "leaves out the field `txt`" in line and "and a sample without it is a bad one" in line] == said != []
    with spdl_cluster.local(job, epochs=1) as loader:
        assert sum(batch.samples for batch in loader) == 576
        assert loader.stats()["substituted"] == 0


def test_masks_and_large_samples_are_seen(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "photos"
    for number in range(4):
        picture(folder / f"a/{number}.jpg", 64, 48)
        Image.new("L", (64, 48), number).save(folder / f"a/{number}.seg.png")
        numpy.save(folder / f"a/{number}.npy", numpy.zeros((3 << 20,), "f8"))
    spdl_cluster.index(folder, out=tmp_path / "index")
    job: Any = spdl_cluster.suggest(tmp_path / "index")
    assert {column["name"]: column["decode"] for column in job["column"]} == {"image": "image", "label": "int", "mask": "mask", "npy": "tensor"}
    assert job["global_batch"] == 2, "samples of 24 MiB fill the memory of a loader soon"
    with spdl_cluster.local(job) as loader:
        batch = next(iter(loader))
        # Pictures of one small size keep it.
        assert (batch["image"].shape, batch["mask"].shape) == ((2, 48, 64, 3), (2, 48, 64))
        assert set(numpy.asarray(batch["mask"])[:, 5, 5].tolist()) < {0, 1, 2, 3}


def test_pictures_of_training_and_validation_have_one_size(tmp_path: pathlib.Path) -> None:
    for number in range(4):
        picture(tmp_path / f"varied/a/{number}.png", 30 + number, 20)
        picture(tmp_path / f"alike/a/{number}.png", 40, 30)
    for name in ("varied", "alike"):
        spdl_cluster.index(tmp_path / name, out=tmp_path / f"{name}-index")

    def shape(dataset: str, **options: Any) -> tuple[int, ...]:
        with spdl_cluster.local(spdl_cluster.suggest(tmp_path / f"{dataset}-index", 48, **options)) as loader:
            return tuple(next(iter(loader))["image"].shape[1:3])

    assert (shape("varied"), shape("alike")) == ((48, 48), (30, 40))
    assert shape("alike", validation=True) == (30, 40)
    assert shape("alike", validation=True, training=tmp_path / "varied-index") == (48, 48)
    assert shape("varied", validation=True, training=tmp_path / "alike-index") == (30, 40)


def test_what_cannot_be_suggested_is_named(tmp_path: pathlib.Path) -> None:
    with pytest.raises(spdl_cluster.DataError, match="nowhere` does not exist"):
        spdl_cluster.suggest(tmp_path / "nowhere")
    picture(tmp_path / "photos/ant/0.png")
    with pytest.raises(spdl_cluster.DataError, match=r"photos/.* does not exist\nhint: .*make one with `spdl-ctl pack` or `spdl-ctl index`"):
        spdl_cluster.suggest(tmp_path / "photos")
    for size in (0, True, "big", 20_000):
        with pytest.raises(spdl_cluster.SettingError, match="`size` is .*, not a whole number from 1 to 16384"):
            spdl_cluster.suggest(tmp_path / "photos", size)  # type: ignore[arg-type]


@FRAMEWORKS_HERE
def test_folders_of_pictures_are_loaded_as_torchvision_numbers_them(photos: Photos, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, val = photos("photos", "ant bee cat"), photos("valset", "bee cat", each=2)
    train, validation = spdl_cluster.imagefolder(folder, val, size=32, batch=9, tensors="numpy")
    with train, validation:
        assert train.classes == validation.classes == ["ant", "bee", "cat"]
        # More epochs than the job has, as long as there is a `for`.
        labels = [[label for batch in train for label in batch["label"]] for _ in range(12)]
        assert {tuple(sorted(epoch)) for epoch in labels} == {tuple([0] * 6 + [1] * 6 + [2] * 6)}
        assert len({tuple(epoch) for epoch in labels}) > 1, "each epoch has an order of its own"
        for _ in range(2):
            batches = list(validation)
            assert [label for batch in batches for label in batch["label"]] == [1, 1, 2, 2]
            assert batches[0]["image"].shape == (4, 32, 32, 3)
        # Classes have colours of their own.
        levels = {int(label): int(pixels[5, 5, 0]) for batch in batches for pixels, label in zip(batch["image"], batch["label"])}
        assert {label: round(level / 20) for label, level in levels.items()} == {1: 0, 2: 1}
    said = capsys.readouterr().err.splitlines()
    assert said == [
        f"`{folder}`: 18 pictures of 3 classes; their index is in `{next(path for path in indexes(tmp_path) if path.name.startswith('photos-'))}`",
        f"`{val}`: 4 pictures of 3 classes; their index is in `{next(path for path in indexes(tmp_path) if path.name.startswith('valset-'))}`",
    ]
    assert sorted(path.name for path in folder.iterdir()) == ["ant", "bee", "cat"], "nothing is written into the folder"
    found = pytest.importorskip("torchvision.datasets").ImageFolder(folder)
    assert (train.classes, train.class_to_idx) == (found.classes, found.class_to_idx)


def test_an_index_is_used_again_until_the_folder_changes(photos: Photos, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = photos("photos", "ant bee")

    def samples() -> int:
        with spdl_cluster.imagefolder(folder, size=16, batch=1, epochs=1) as loader:
            return sum(batch.samples for batch in loader)

    assert (samples(), len(indexes(tmp_path))) == (12, 1)
    assert samples() == 12
    assert len(capsys.readouterr().err.splitlines()) == 1, "the second call makes nothing"
    picture(folder / "ant/more.png")
    assert (samples(), len(indexes(tmp_path))) == (13, 2)
    (folder / "bee/0.png").unlink()
    assert samples() == 12
    # The same name and size, at another time.
    os.utime(folder / "bee/1.png", (1, 1))
    assert (samples(), len(indexes(tmp_path))) == (12, 4)
    # What was not used for long goes when another one is made.
    for index in indexes(tmp_path):
        os.utime(index, (1, 1))
    picture(folder / "ant/last.png")
    assert (samples(), len(indexes(tmp_path))) == (13, 1)


def test_a_training_goes_on_from_its_state_and_the_validation_is_whole(photos: Photos) -> None:
    folder, val = photos("photos", "ant bee"), photos("valset", "bee", each=3)
    train = spdl_cluster.imagefolder(folder, size=16, batch=4, epochs=1, tensors="numpy")
    with train:
        batches = iter(train)
        next(batches)
        state = train.state_dict()
        rest = [batch.ids.tolist() for batch in batches]
    again, validation = spdl_cluster.imagefolder(folder, val, size=16, batch=4, epochs=1, state=state, tensors="numpy")
    with again, validation:
        assert [batch.ids.tolist() for batch in again] == rest
        assert sum(batch.samples for batch in validation) == 3


def test_ranks_that_begin_at_once_make_one_index(photos: Photos, tmp_path: pathlib.Path) -> None:
    folder = photos("photos", "ant bee", each=40)
    code = """
        import sys
        import spdl_cluster
        sys.stdin.readline()
        with spdl_cluster.imagefolder(sys.argv[1], size=16, batch=8, rank=int(sys.argv[2]), world=3, epochs=1) as loader:
            print(sum(batch.samples for batch in loader))
    """
    ranks = [run_python(code, folder, rank) for rank in range(3)]
    for rank in ranks:
        assert rank.stdin is not None
        rank.stdin.write("\n")
        rank.stdin.flush()
    done = [rank.communicate() for rank in ranks]
    assert sum(int(output) for output, _ in done) == 80, done
    assert sum("their index is in" in errors for _, errors in done) == 1
    assert len(indexes(tmp_path)) == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda folder: (folder / "cat").mkdir(), r"photos/cat` has no picture, and its name is that of a class\nhint: put pictures into it, or remove it"),
        (lambda folder: removed(folder), r"photos` does not exist"),
        (lambda folder: picture(removed(folder) / "0.png"), "the pictures of `.*photos` lie in it, and not in a folder for each class"),
        (lambda folder: (removed(folder) / "ant").mkdir(parents=True), "there is no picture in `.*photos`"),
        (lambda folder: [(folder / "ant").rename(folder / "train"), (folder / "bee").rename(folder / "val")], r"give both: `imagefolder\('.*/train', '.*/val'\)`"),
    ],
)
def test_a_folder_that_is_none_of_classes_is_explained(photos: Photos, change: Callable[[pathlib.Path], object], message: str) -> None:
    folder = photos("photos", "ant bee")
    change(folder)
    with pytest.raises(spdl_cluster.SpdlError, match=message):
        spdl_cluster.imagefolder(folder)


def test_classes_that_only_validation_has_are_an_error_and_loose_pictures_are_left_out(
    photos: Photos, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, val = photos("photos", "ant bee"), photos("valset", "bee zebra")
    with pytest.raises(spdl_cluster.DataError, match="valset/zebra` is of a class that `.*photos` does not have: `ant`, `bee`"):
        spdl_cluster.imagefolder(folder, val)
    picture(folder / "overview.png")
    said: list[str] = []
    monkeypatch.setattr("spdl_cluster.folders._LOGGER.warning", lambda text, *values: said.append(text % values))
    with spdl_cluster.imagefolder(folder, size=16, batch=4, epochs=1, tensors="numpy") as loader:
        assert sorted(label for batch in loader for label in batch["label"].tolist()) == [0] * 6 + [1] * 6
    assert said == [f"pictures that lie in `{folder}` itself, and in the folder of no class, are left out: 1"]
    with pytest.raises(spdl_cluster.SettingError, match="cannot be written: .*\nhint: name another folder with `cache=`"):
        (tmp_path / "file").write_text("")
        spdl_cluster.imagefolder(folder, cache=tmp_path / "file")


def test_a_trainer_finds_the_cluster_that_is_up_and_a_job_by_its_file(
    dataset: pathlib.Path, temporary: pathlib.Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(temporary))
    with pytest.raises(spdl_cluster.SettingError, match="SPDL_COORD"):
        spdl_cluster.connect(job="train.toml")
    file = temporary / "jobs/train.toml"
    file.parent.mkdir()
    ctl("job", "init", dataset, "--out", file, "--size", 32, "--batch", 24)
    ctl("dev", "up", file, "--cores", 1, "--memory", "256MiB")
    try:
        for job in (None, "train.toml", file, "train"):
            caplog.clear()
            with spdl_cluster.connect(job=job) as loader:
                batch = next(iter(loader))
                assert (loader.job, batch.samples, batch["image"].shape) == ("train", 24, (24, 32, 32, 3))
            said = f"no setting names a cluster, so this is the cluster of `spdl-ctl dev up` in `{temporary}/spdl-dev`"
            assert sum(record.message.startswith(said) for record in caplog.records) == 1
        # What is given wins.
        with pytest.raises(spdl_cluster.ConnectError):
            certs = temporary / "spdl-dev/certs/client"
            assert spdl_cluster.connect(0, 1, job="train.toml", coordinators="127.0.0.1:9", certs=certs, timeout=0.5).position
        assert [job["name"] for job in spdl_cluster.jobs()] == ["train"]
        spdl_cluster.remove("train")
        assert spdl_cluster.status()["jobs"] == []
    finally:
        ctl("dev", "down")
    with pytest.raises(spdl_cluster.SettingError, match="neither `coord` nor variable `SPDL_COORD` says where the cluster is"):
        spdl_cluster.jobs()
