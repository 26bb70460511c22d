"""`spdl_cluster.pack`, `index` and `merge`: the same as the commands of `spdl-ctl`, with their options."""

from __future__ import annotations

import array
import inspect
import os
import pathlib
import re
import signal
import tarfile
import time
from typing import Any

import pytest
import spdl_cluster
from conftest import FRAMEWORKS_HERE, LIMIT_S, ctl, ctl_json, files, run_python


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Writes the demo's pictures."""
    folder = tmp_path_factory.mktemp("source") / "pictures"
    ctl("pictures", folder, "--count", 60, "--seed", 3, "--quiet")
    return folder


#: The names of options that are words of Python.
RENAMED = {"from": "from_field"}


@pytest.mark.parametrize("command", ["pack", "index", "merge"])
def test_the_options_have_the_names_of_the_command(command: str) -> None:
    flags = set(re.findall(r"^ +(?:-\w, )?--([a-z-]+)", ctl(command, "--help").stdout, re.MULTILINE))
    options = {RENAMED.get(flag, flag).replace("-", "_") for flag in flags - {"json", "help", "version", "verbose"}}
    names = [name for name, value in inspect.signature(getattr(spdl_cluster, command)).parameters.items() if value.kind == value.KEYWORD_ONLY]
    assert set(names) - {"progress"} == options


def test_a_pack_is_that_of_the_command(source: pathlib.Path, tmp_path: pathlib.Path) -> None:
    options = ("--fields", "jpg=picture", "--seed", 7, "--records-per-shard", 25, "--crop-ready", "--name", "set", "--block-size", "64KiB")
    told = ctl_json("pack", source, tmp_path / "a", *options)
    report = spdl_cluster.pack(
        source,
        tmp_path / "b",
        fields={"jpg": "picture"},
        seed=7,
        records_per_shard=25,
        crop_ready=True,
        name="set",
        block_size=64 << 10,
        progress=False,
    )
    assert files(tmp_path / "a") == files(tmp_path / "b")
    assert (report.samples, report.shards, report.fingerprint, report.fields) == (60, 3, told["fingerprint"], told["fields"])
    assert report.class_names == told["class_names"] and report.bytes == told["bytes"] and report.skipped_files == 0
    with pytest.raises(spdl_cluster.DataError, match="`force=True`"):
        spdl_cluster.pack(source, tmp_path / "b", progress=False)
    before = files(tmp_path / "b")
    there = spdl_cluster.pack(source, tmp_path / "b", exist_ok=True, progress=False)
    assert (there.samples, there.fingerprint, there.class_names, there.bytes) == (60, report.fingerprint, report.class_names, report.bytes)
    assert there.fields == {} and ctl_json("pack", source, tmp_path / "b", "--exist-ok")["records"] == 60 and files(tmp_path / "b") == before
    assert spdl_cluster.pack(source, tmp_path / "new", exist_ok=True, progress=False).records == 60
    with pytest.raises(spdl_cluster.SettingError, match="`exist_ok` and `force` are both given"):
        spdl_cluster.pack(source, tmp_path / "b", exist_ok=True, force=True)
    assert spdl_cluster.pack(source, tmp_path / "b", force=True, progress=False).records == 60


def test_a_scalable_pack_is_that_of_the_command(source: pathlib.Path, tmp_path: pathlib.Path) -> None:
    told = ctl_json("pack", source, tmp_path / "a", "--scalable", "--name", "set")
    assert told["scalable_pictures"] == 60
    report = spdl_cluster.pack(source, tmp_path / "b", scalable=True, name="set", progress=False)
    assert files(tmp_path / "a") == files(tmp_path / "b") and report.fingerprint == told["fingerprint"]
    with pytest.raises(spdl_cluster.SettingError, match="`crop_ready` and `scalable` are both given"):
        spdl_cluster.pack(source, tmp_path / "c", crop_ready=True, scalable=True, progress=False)


@FRAMEWORKS_HERE
def test_classes_have_the_numbers_that_torchvision_gives_them(tmp_path: pathlib.Path) -> None:
    datasets = pytest.importorskip("torchvision.datasets", reason=os.environ.get("SPDL_TEST_NO_TORCH", "torchvision is not installed"))
    for names in (["b", "a", "Z", "\u00fc", "a b", "_x", "\U0001f431"], ["0", "1", "10", "100", "11", "2"]):
        root = tmp_path / names[0]
        for name in names:
            (root / name).mkdir(parents=True)
            (root / name / "1.jpg").write_bytes(b"?")
        theirs = list(datasets.ImageFolder(str(root)).class_to_idx)
        packed = spdl_cluster.pack(root, tmp_path / f"packed-{names[0]}", progress=False)
        indexed = spdl_cluster.index(root, out=tmp_path / f"indexed-{names[0]}", progress=False)
        assert packed.class_names == indexed.class_names == theirs
    numeric = spdl_cluster.index(root, out=tmp_path / "numeric", classes="numeric", progress=False)
    assert numeric.class_names == sorted(names, key=int)
    taken = spdl_cluster.pack(root, tmp_path / "taken", classes_from=tmp_path / "numeric", progress=False)
    assert taken.class_names == numeric.class_names
    (tmp_path / "classes.txt").write_text("2\n11\n100\n10\n1\n0\n")
    assert spdl_cluster.pack(root, tmp_path / "file", classes_file=tmp_path / "classes.txt", progress=False).class_names[0] == "2"
    with pytest.raises(spdl_cluster.SettingError, match="`classes` and `classes_from` are both given"):
        spdl_cluster.index(root, classes="numeric", classes_from=tmp_path / "numeric")


def test_splits_are_named_and_one_is_taken(tmp_path: pathlib.Path) -> None:
    (tmp_path / "data").mkdir()
    for split in ("train", "validation", "test"):
        with tarfile.open(tmp_path / f"data/{split}-00000-of-00001.tar", "w") as tar:
            for number in range(8):
                tar.addfile(tarfile.TarInfo(f"{number}.txt"))
    with pytest.raises(spdl_cluster.DataError, match=r"several splits: test \(1 shard\), train \(1 shard\), validation \(1 shard\)") as several:
        spdl_cluster.index(tmp_path, progress=False)
    assert "`split=NAME`" in (several.value.hint or "") and "`all_splits=True`" in (several.value.hint or "")
    assert spdl_cluster.index(tmp_path, split="val", out=tmp_path / "one", progress=False).samples == 8
    assert spdl_cluster.index(tmp_path, all_splits=True, out=tmp_path / "all", progress=False).samples == 24
    assert spdl_cluster.index(tmp_path, shards="data/t*", out=tmp_path / "some", progress=False).samples == 16
    with pytest.raises(spdl_cluster.SettingError, match="`split` and `all_splits` or `shards`"):
        spdl_cluster.index(tmp_path, split="train", all_splits=True)


def test_several_folders_are_packed_as_one_dataset(tmp_path: pathlib.Path) -> None:
    for year, animal in (("2024", "bee"), ("2025", "ant"), ("2025", "bee")):
        path = tmp_path / "photos" / year / animal / "0.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.with_suffix(".jpg").write_bytes(f"{year} {animal}".encode())
        path.write_text(f"{animal} of {year}")
    years = [tmp_path / "photos/2024", tmp_path / "photos/2025"]
    report = spdl_cluster.pack(years, tmp_path / "both", no_shuffle=True)
    assert (report.class_names, report.samples) == (["ant", "bee"], 3)
    [shard] = (tmp_path / "both").glob("*.tar")
    with tarfile.open(shard) as tar:
        found = {member.name: content.read() for member in tar if (content := tar.extractfile(member))}
    assert [name for name in found if name.endswith(".txt")] == ["2024/bee/0.txt", "2025/ant/0.txt", "2025/bee/0.txt"]
    assert [found[f"{name}.cls"] for name in ("2024/bee/0", "2025/ant/0", "2025/bee/0")] == [b"1", b"0", b"1"]
    ctl("pack", *years, tmp_path / "as-command", "--no-shuffle")
    assert files(tmp_path / "as-command").keys() == files(tmp_path / "both").keys()
    for wrong, text in (([years[0], years[0] / "bee"], "lies in another source"), ([years[0], tmp_path / "none"], "is no folder on disk")):
        with pytest.raises(spdl_cluster.SpdlError, match=text):
            spdl_cluster.pack(wrong, tmp_path / "wrong")


def test_shards_are_indexed_by_a_pattern_or_as_a_list(source: pathlib.Path, tmp_path: pathlib.Path) -> None:
    spdl_cluster.pack(source, tmp_path / "packed", records_per_shard=3)
    shards = sorted((tmp_path / "packed").glob("*.tar"))
    assert len(shards) > 2
    whole = spdl_cluster.index(tmp_path / "packed/*.tar", out=tmp_path / "by-pattern")
    some = spdl_cluster.index(shards[:2], out=tmp_path / "some")
    assert (whole.shards, some.shards, some.samples) == (len(shards), 2, 6)
    with pytest.raises(spdl_cluster.SpdlError, match="is for the path of a folder"):
        spdl_cluster.index(shards[:2], shards="*.tar", out=tmp_path / "wrong")


def test_pictures_with_dots_are_one_record_or_many(tmp_path: pathlib.Path) -> None:
    with tarfile.open(tmp_path / "0.tar", "w") as tar:
        for number in range(12):
            tar.addfile(tarfile.TarInfo(f"cat.{number}.jpg"))
    with pytest.raises(spdl_cluster.DataError, match=r"pictures with 12 names such as `0.jpg` are fields of one record") as dots:
        spdl_cluster.index(tmp_path, progress=False)
    assert '`key_ends_at="last-dot"`' in (dots.value.hint or "")
    assert spdl_cluster.index(tmp_path, key_ends_at="first-dot", out=tmp_path / "one", progress=False).records == 1
    assert spdl_cluster.index(tmp_path, key_ends_at="last-dot", out=tmp_path / "many", progress=False).records == 12
    with pytest.raises(spdl_cluster.SettingError, match="`key_ends_at` is `last`; known are: first-dot, last-dot"):
        spdl_cluster.index(tmp_path, key_ends_at="last", progress=False)  # type: ignore[arg-type]


def test_parts_are_merged(source: pathlib.Path, tmp_path: pathlib.Path) -> None:
    ctl("pack", source, tmp_path / "a", "--shard-size", "1MiB", "--name", "set")
    for part in ("1/2", "0/2"):
        packed = spdl_cluster.pack(source, tmp_path / "b", shard_size="1MiB", name="set", part=part, progress=False)
        assert (packed.parts, packed.kept_shards) == (2, 0)
    assert spdl_cluster.merge(tmp_path / "b").samples == 60
    assert files(tmp_path / "a") == files(tmp_path / "b")
    with pytest.raises(spdl_cluster.SettingError, match=r"`part` is `3`: give I/N"):
        spdl_cluster.pack(source, tmp_path / "c", part="3")


def test_loose_files_are_indexed(source: pathlib.Path, tmp_path: pathlib.Path) -> None:
    report = spdl_cluster.index(source, out=tmp_path / "manifest", progress=False)
    assert report.samples == 60 and (tmp_path / "manifest/.spdl/manifest.spdl").exists()
    with pytest.raises(spdl_cluster.SettingError, match="`format` is `mdx`; known are: .*mds"):
        spdl_cluster.index(source, format="mdx")
    with pytest.raises(spdl_cluster.SettingError, match="`force=True`"):
        spdl_cluster.index(source, discard_metadata=True)
    with pytest.raises(spdl_cluster.DataError, match="nowhere"):
        spdl_cluster.index(tmp_path / "nowhere")


def test_wrong_options_are_named_as_they_are_here(source: pathlib.Path, tmp_path: pathlib.Path) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"shard_size": 0}, "`shard_size` is 0"),
        ({"records_per_shard": 0}, "`records_per_shard` is 0"),
        ({"block_size": "2GiB"}, "`block_size` is 2147483648 bytes"),
        ({"fields": ["jpg", "jpg"]}, "`fields` has the suffix `jpg` twice"),
        ({"annotations": source, "annotations_beside": True}, "both given"),
    ]
    for options, text in cases:
        with pytest.raises(spdl_cluster.SettingError, match=text):
            spdl_cluster.pack(source, tmp_path / "dataset", progress=False, **options)
    assert not (tmp_path / "dataset").exists()


def test_progress_is_shown(source: pathlib.Path, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "tqdm.auto", None)
    spdl_cluster.pack(source, tmp_path / "a")
    assert capsys.readouterr().err.endswith("packing: 60 records (100 %)\n")
    spdl_cluster.pack(source, tmp_path / "b", progress=False)
    assert capsys.readouterr().err == ""
    monkeypatch.undo()
    pytest.importorskip("tqdm")
    spdl_cluster.pack(source, tmp_path / "c")
    assert re.search(r"packing: 100%.*60\.0/60\.0", capsys.readouterr().err)


def test_ctrl_c_leaves_nothing(source: pathlib.Path, tmp_path: pathlib.Path) -> None:
    # A list that names each picture many times takes long enough.
    pictures = sorted(source.glob("*/*.jpg"))
    (tmp_path / "list.txt").write_text("".join(f"{path}\n" for _ in range(1000) for path in pictures))
    process = run_python(
        """
        import signal, sys, spdl_cluster
        signal.signal(signal.SIGINT, signal.default_int_handler)
        spdl_cluster.pack(sys.argv[1], sys.argv[2], crop_ready=True)
        """,
        tmp_path / "list.txt",
        tmp_path / "dataset",
    )
    deadline = time.monotonic() + LIMIT_S
    while not list(tmp_path.glob("dataset/.spdl/unfinished.spdl")) and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=LIMIT_S)
    assert errors.rstrip().endswith("KeyboardInterrupt"), errors
    assert process.returncode == -signal.SIGINT
    assert not (tmp_path / "dataset").exists()


def test_tokens_are_packed_at_once_and_in_parts_with_an_end_each(tmp_path: pathlib.Path) -> None:
    (tmp_path / "source").mkdir()
    documents = [[*range(1, number % 7 * 20 + 2), 0] for number in range(50)]
    ids = array.array("H", [token for document in documents for token in document])
    (tmp_path / "source/text.u16").write_bytes(ids.tobytes())
    spdl_cluster.index(tmp_path / "source", end_token=0, progress=False)

    def packed(name: str, part: str | None = None) -> Any:
        options: dict[str, Any] = {"vocab": 1000, "eos": 999, "no_shuffle": True, "progress": False}
        return spdl_cluster.pack(tmp_path / "source", tmp_path / name, to="megatron", part=part, **options)

    def found(name: str) -> list[list[int]]:
        return [record["tokens"].tolist() for record in spdl_cluster.open(tmp_path / name)]

    assert packed("once").records == len(documents)
    assert found("once") == [[*document, 999] for document in documents]
    of_parts = [packed("parts", f"{part}/2") for part in range(2)]
    assert sum(part.documents for part in of_parts) == len(documents) and of_parts[1].parts == 2
    assert spdl_cluster.merge(tmp_path / "parts").tokens == sum(map(len, documents)) + len(documents)
    assert found("parts") == found("once")

    wrong: list[tuple[dict[str, Any], str]] = [
        ({"to": "megatron"}, "`vocab`"),
        ({"to": "mds", "vocab": 1000}, "`to` is 'mds'"),
        ({"to": "megatron", "vocab": 1000, "crop_ready": True}, "`crop_ready` is given with `to`"),
        ({"vocab": 1000}, "`vocab` is given without `to`"),
        ({"to": "megatron", "vocab": 1000, "part": "0/2", "force": True}, "a part replaces nothing"),
    ]
    for options, problem in wrong:
        with pytest.raises(spdl_cluster.SettingError, match=problem):
            spdl_cluster.pack(tmp_path / "source", tmp_path / "other", progress=False, **options)
