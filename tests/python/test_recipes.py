"""Runs the commands of the recipes in docs/recipes, with the files that they show, on a few pictures in the place of their datasets;
and the command of the page on sizing."""

from __future__ import annotations

import io
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sysconfig
import tarfile
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import slurm
import stores
from conftest import LAUNCHERS, LIMIT_S, MakeJob, ctl, needs
from torchrun import FORKED

ROOT = pathlib.Path(__file__).parents[2]
RECIPES = ROOT / "docs/recipes"
#: A block of code: its language and its text.
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
#: The first line of a block that is a file.
FILE = re.compile(r"# ([\w-]+\.\w+)(:.*)?")
#: Kinds of blocks.
LANGUAGES = {"sh", "toml", "python"}
MAX_LINES = 150
#: Each takes a minute or two.
TRAINS = pytest.mark.drawn(1, group="trainings of recipes")
ABSENT = os.environ.get("SPDL_TEST_NO_FRAMEWORKS", "it is not installed")


class Recipe:
    """A page. Its files are in a folder, in which its commands are run, one block after the other."""

    def __init__(
        self, page: str, folder: pathlib.Path, temporary: pathlib.Path, changes: dict[str, str], variables: dict[str, str]
    ) -> None:
        self.folder = folder
        blocks = BLOCK.findall((RECIPES / page).read_text(encoding="utf-8"))
        for old, new in changes.items():
            assert any(old in text for _, text in blocks), f"{page} lacks `{old}`"
            blocks = [(language, text.replace(old, new)) for language, text in blocks]
        self._commands: list[str] = [text for language, text in blocks if language == "sh" and not text.startswith("pip install")]
        for language, text in blocks:
            if language != "sh" and (file := FILE.fullmatch(text.splitlines()[0])):
                (folder / file[1]).write_text(text)
        for shared in ("examples", "python"):
            (folder / shared).symlink_to(ROOT / shared)
        programs = folder / "programs"
        programs.mkdir()
        (programs / "spdl-ctl").symlink_to(os.environ["SPDL_TEST_CTL"])
        self.imports("")
        own = {name: value for name, value in os.environ.items() if name not in LAUNCHERS}
        self._variables = {
            **own,
            "PATH": os.pathsep.join([str(programs), sysconfig.get_path("scripts"), slurm.PATH]),
            "TMPDIR": str(temporary),
            "OMP_NUM_THREADS": "1",
            "SPDL_WORKER_CORES": "1",
            "SPDL_WORKER_MEMORY": "256MiB",
            **variables,
        }

    def imports(self, modules: str) -> None:
        """Names the modules that torchrun imports for its ranks, with commas between them."""
        program = self.folder / "programs/torchrun"
        program.write_text(f'#!/bin/sh\nexec {shlex.join([*FORKED, "torchrun", modules])} "$@"\n')
        program.chmod(0o755)

    def run(self, begins: str, changed: str | None = None) -> str:
        """Runs the next block, which begins with this, and returns what it prints. With `changed` it runs that, and leaves the
        block for later."""
        assert self._commands, f"there is no block that begins with `{begins}`"
        text = changed or self._commands.pop(0)
        assert text.startswith(begins), f"{text}\n does not begin with `{begins}`"
        process = subprocess.Popen(
            ["bash", "-euo", "pipefail", "-c", text],
            cwd=self.folder,
            env=self._variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            output, errors = process.communicate(timeout=LIMIT_S)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        assert process.returncode == 0, f"{text}\n{process.returncode}\n{output}\n{errors}\n{self.logs()}"
        return output

    def skip_to(self, begins: str) -> None:
        """Leaves out the blocks before the block that begins with this; another test runs them."""
        while self._commands and not self._commands[0].startswith(begins):
            del self._commands[0]

    def next(self) -> str:
        """Returns the next block."""
        return self._commands[0]

    def logs(self) -> str:
        """Returns what batch jobs have written."""
        return "\n".join(f"{path.name}: {path.read_text(errors='replace')}" for path in self.folder.glob("*.out"))

    def end(self) -> None:
        """Asserts that all blocks were run."""
        assert not self._commands, f"not run: {self._commands}"


def pictures(folder: pathlib.Path, count: int, seed: int) -> list[pathlib.Path]:
    """Writes pictures and returns their paths, each in the folder of its class, in order."""
    ctl("pictures", folder, "--count", count, "--seed", seed, "--quiet")
    return sorted(folder.glob("*/*.jpg"))


def needs_torch() -> None:
    """Skips the test where torch is not installed."""
    pytest.importorskip("torch", reason=os.environ.get("SPDL_TEST_NO_TORCH", "torch is not installed"))


@pytest.mark.parametrize("page", sorted(RECIPES.glob("*.md")), ids=lambda page: str(page.stem))
def test_a_recipe_is_short_has_a_test_and_code_of_known_kinds(page: pathlib.Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= MAX_LINES
    here = pathlib.Path(__file__)
    tests = here.read_text(encoding="utf-8") + here.with_name("test_token_recipes.py").read_text(encoding="utf-8")
    assert f'"{page.name}"' in tests, "no test runs it"
    assert text.count("\n```") == 2 * len(BLOCK.findall(text))
    for language, code in BLOCK.findall(text):
        assert language in LANGUAGES
        if language == "python":
            compile(code, str(page), "exec")


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[slurm.Slurm]:
    """Starts SLURM's daemons."""
    yield from slurm.cluster_for_tests(tmp_path_factory.mktemp("slurm"))


def imagenet(folder: pathlib.Path) -> None:
    """Writes pictures as ImageNet's files have them: a tar of the tars of classes, a tar of validation pictures, and their classes."""
    classes = sorted({path.parent.name for path in pictures(folder / "drawn", 36, seed=1)})
    names = {name: f"n{number:08}" for number, name in enumerate(classes, 1440764)}
    with tarfile.open(folder / "ILSVRC2012_img_train.tar", "w") as train:
        for name, number in names.items():
            inner = io.BytesIO()
            with tarfile.open(fileobj=inner, mode="w") as tar:
                for path in sorted((folder / "drawn" / name).glob("*.jpg")):
                    tar.add(path, f"{number}_{int(path.stem)}.JPEG")
            member = tarfile.TarInfo(f"{number}.tar")
            member.size = len(inner.getvalue())
            train.addfile(member, io.BytesIO(inner.getvalue()))
    lines = ["ImageId,PredictionString\n"]
    with tarfile.open(folder / "ILSVRC2012_img_val.tar", "w") as val:
        for index, path in enumerate(pictures(folder / "validation", 10, seed=2), 1):
            key = f"ILSVRC2012_val_{index:08}"
            val.add(path, f"{key}.JPEG")
            lines.append(f"{key},{names[path.parent.name]} 1 2 30 40 \n")
    (folder / "LOC_val_solution.csv").write_text("".join(lines))


@TRAINS
@pytest.mark.xdist_group("slurm")
def test_imagenet_is_packed_and_trained_on_two_nodes_of_slurm(
    cluster: slurm.Slurm, tmp_path: pathlib.Path, temporary: pathlib.Path
) -> None:
    needs_torch()
    needs("torchvision", "torchvision is not installed")
    imagenet(tmp_path)
    (tmp_path / "shared").mkdir()
    changes = {
        # The test's nodes have two cores each.
        "--array=0-7": f"--array=0-1 --cpus-per-task=1 --output={tmp_path}/pack-%a.out",
        "global_batch = 1024": "global_batch = 16",
        "epochs = 90": "epochs = 2",
        "random_resized_crop = 224": "random_resized_crop = 64",
        "{ resize = 256 }, { center_crop = 224 }": "{ resize = 72 }, { center_crop = 64 }",
        "resnet50": "resnet18",
        "step % 20": "step % 2",
    }
    variables = {"SLURM_CONF": cluster.environment["SLURM_CONF"], "GPUS_PER_NODE": "1", "SPDL_SHARED": str(tmp_path / "shared")}
    recipe = Recipe("imagenet-slurm.md", tmp_path, temporary, changes, variables)
    recipe.run("mkdir -p imagenet")
    assert len(list((tmp_path / "imagenet/train").glob("n*/*.JPEG"))) == 36
    assert len((tmp_path / "imagenet/val.tsv").read_text().splitlines()) == 10
    recipe.run("parts=")
    recipe.run("spdl-ctl plan train.toml --world 16")
    recipe.run("sbatch --wait --nodes=2")
    output = (tmp_path / "train.out").read_text()
    assert re.findall(r"^epoch (\d): \d+ of 10 are right$", output, re.MULTILINE) == ["0", "1"], output
    assert output.count("audit with --receipt ") == 2, output
    recipe.run("spdl-ctl audit train.toml")
    recipe.end()
    assert (tmp_path / "checkpoint.pt").exists()


@TRAINS
def test_coco_is_indexed_where_it_lies_and_a_detector_resumes(tmp_path: pathlib.Path, temporary: pathlib.Path) -> None:
    needs_torch()
    needs("torchmetrics", ABSENT)
    from scenes import write_scenes

    (tmp_path / "annotations").mkdir()
    for split, count in (("train", 24), ("val", 8)):
        written = write_scenes(tmp_path / f"{split}2017", count)
        written.rename(tmp_path / f"annotations/instances_{split}2017.json")
    changes = {
        "global_batch = 64": "global_batch = 8",
        "epochs = 12": "epochs = 2",
        "size = 320": "size = 64",
        "--nproc-per-node 8": "--nproc-per-node 2",
        "--classes 91": "--classes 19",
    }
    recipe = Recipe("coco-detection.md", tmp_path, temporary, changes, {})
    recipe.run("spdl-ctl index train2017")
    assert "rank-" not in recipe.run("spdl-ctl replay train.toml")
    # As the page says, it stops after some steps, and goes on when it is started again.
    recipe.run("spdl-run", f"{recipe.next().rstrip()} --steps 4\n")
    before = (tmp_path / "detector.pt").stat().st_mtime_ns
    lines = recipe.run("spdl-run").splitlines()
    assert (tmp_path / "detector.pt").stat().st_mtime_ns > before
    assert len(json.loads(lines[-1])["losses"]) == 2, "two of six steps are left"
    assert re.search(r"; mAP -?\d\.\d{3}, at 0\.5 -?\d\.\d{3}, of 8 pictures$", lines[-2]), lines
    assert len(json.loads((tmp_path / "results.json").read_text())) > 0
    recipe.end()


@TRAINS
def test_captions_are_read_from_shards_in_a_bucket(tmp_path: pathlib.Path, temporary: pathlib.Path) -> None:
    needs_torch()
    bucket = tmp_path / "bucket/shards"
    bucket.mkdir(parents=True)
    drawn = pictures(tmp_path / "drawn", 48, seed=3)
    for shard in range(2):
        with tarfile.open(bucket / f"{shard:05}.tar", "w") as tar:
            for number, path in enumerate(drawn[shard::2]):
                tar.add(path, f"{number:04}.jpg")
                caption = f"picture of {path.parent.name}".encode()
                member = tarfile.TarInfo(f"{number:04}.txt")
                member.size = len(caption)
                tar.addfile(member, io.BytesIO(caption))
    changes = {
        "global_batch = 512": "global_batch = 8",
        "size = 224": "size = 64",
        "--memory 16GiB": "--memory 256MiB",
        "/tmp/spdl-cache": str(tmp_path / "cache"),
        "--nproc-per-node 8": "--nproc-per-node 2",
        "--nproc-per-node 4": "--nproc-per-node 1",
        "train.py 4": "train.py 2",
    }
    with stores.bucket("bucket", tmp_path / "bucket") as variables:
        recipe = Recipe("webdataset-s3.md", tmp_path, temporary, changes, variables)
        assert "48 samples in 48 records" in recipe.run("spdl-ctl index s3://bucket/shards")
        recipe.run("spdl-ctl verify")
        recipe.run("spdl-ctl plan")
        first = recipe.run("spdl-run")
        assert "epoch 0, step 1: loss " in first and ": picture of " in first, first
        assert list((tmp_path / "cache").iterdir()), "the cache on disk is used"
        recipe.run("spdl-ctl audit")
        again = recipe.run("spdl-run")
        assert "epoch 1, step 1: " in again and "epoch 0" not in again, again
        recipe.end()


@TRAINS
def test_a_dataset_of_the_hub_is_trained_on_and_resumed(tmp_path: pathlib.Path, temporary: pathlib.Path) -> None:
    needs_torch()
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    repository = tmp_path / "repository"
    (repository / "data").mkdir(parents=True)
    for split, count in (("train", 24), ("validation", 8)):
        drawn = pictures(tmp_path / split, count, seed=4)
        kinds = sorted({path.parent.name for path in drawn})
        images = [{"bytes": path.read_bytes(), "path": path.name} for path in drawn]
        struct = pyarrow.struct([("bytes", pyarrow.binary()), ("path", pyarrow.string())])
        labels = [kinds.index(path.parent.name) for path in drawn]
        table = pyarrow.table({"image": pyarrow.array(images, struct), "label": pyarrow.array(labels, pyarrow.int64())})
        parquet.write_table(table, repository / f"data/{split}-00000-of-00001.parquet")
    changes = {
        "global_batch = 256": "global_batch = 8",
        "random_resized_crop = 224": "random_resized_crop = 64",
        "/tmp/spdl-cache": str(tmp_path / "cache"),
        "200 << 30": "1 << 30",
    }
    with stores.hub("ORG/NAME", repository) as variables:
        recipe = Recipe("hub.md", tmp_path, temporary, changes, variables)
        assert "24 samples in 24 records" in recipe.run("spdl-ctl index hf://datasets/ORG/NAME --split train")
        recipe.run("spdl-ctl replay train.toml")
        first = recipe.run("python train.py 2")
        assert [line[:8] for line in first.splitlines()[:2]] == ["epoch 0:", "epoch 1:"], first
        recipe.run("spdl-ctl audit train.toml")
        again = recipe.run("python train.py 3")
        assert [line[:8] for line in again.splitlines()[:1]] == ["epoch 2:"], again
        recipe.end()


#: What the pages on classifiers have, and what a test puts in its place.
SMALLER = {
    "global_batch = 256": "global_batch = 8",
    "random_resized_crop = 224": "random_resized_crop = 64",
    "{ resize = 256 }, { center_crop = 224 }": "{ resize = 72 }, { center_crop = 64 }",
}
#: Of 36 pictures in batches of 8, four are left out of each epoch.
EPOCH = 32
VALIDATED = 10


def classifier(page: str, folder: pathlib.Path, temporary: pathlib.Path, changes: dict[str, str]) -> Recipe:
    """Writes the folders of pictures that a page on a classifier begins with, and packs them as it says."""
    needs_torch()
    needs("torchvision", "torchvision is not installed")
    pictures(folder / "photos/train", 36, seed=5)
    pictures(folder / "photos/val", VALIDATED, seed=6)
    recipe = Recipe(page, folder, temporary, changes, {})
    recipe.run("spdl-ctl pack photos/train data/train")
    return recipe


def counts(output: str) -> dict[int, int]:
    """Returns of each epoch how many samples of the validation were counted."""
    lines = re.findall(r"^epoch (\d+): .*?\bof (\d+)\b", output, re.MULTILINE)
    return {int(epoch): int(seen) for epoch, seen in lines}


def taken(output: str) -> int:
    """Returns how many samples a launch took."""
    [samples] = re.findall(r"^(\d+) samples (?:for rank 0 )?in this launch$", output, re.MULTILINE)
    return int(samples)


def killed_after(command: str, file: str) -> str:
    """Returns a command that is killed once it has made a file."""
    return f"{command} & program=$!\nuntil [ -s {file} ]; do kill -0 $program; sleep 0.05; done\nkill -9 $program\nwait $program || true\n"


@TRAINS
@pytest.mark.parametrize(
    ("page", "framework", "begins", "changes"),
    [
        ("lightning.md", "lightning", "python", {**SMALLER, "--epochs 10": "--epochs 2"}),
        ("accelerate.md", "accelerate", "torchrun", {**SMALLER, "epochs = 10": "epochs = 2"}),
    ],
)
def test_a_classifier_on_two_ranks_stops_in_an_epoch_and_goes_on(
    page: str, framework: str, begins: str, changes: dict[str, str], tmp_path: pathlib.Path, temporary: pathlib.Path
) -> None:
    needs(framework, ABSENT)
    needs("torchmetrics", ABSENT)
    recipe = classifier(page, tmp_path, temporary, {**changes, "--every 100": "--every 3", "--steps 1000": "--steps 3"})
    recipe.imports("accelerate,torchmetrics,torchvision")
    first = recipe.run(begins)
    assert (counts(first), taken(first)) == ({}, 3 * 8 // 2), first
    again = recipe.run(begins)
    assert counts(again) == {0: VALIDATED, 1: VALIDATED}, again
    assert taken(again) == (2 * EPOCH - 3 * 8) // 2, again
    recipe.end()


@TRAINS
def test_trainer_is_killed_in_an_epoch_and_goes_on_with_more_ranks(tmp_path: pathlib.Path, temporary: pathlib.Path) -> None:
    needs("transformers", ABSENT)
    changes = {
        '"global_batch": 256': '"global_batch": 8',
        "epochs=10": "epochs=2",
        '"random_resized_crop": 224': '"random_resized_crop": 64',
        '{"resize": 256}, {"center_crop": 224}': '{"resize": 72}, {"center_crop": 64}',
        "ResNetConfig(": "ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], ",
        "save_steps=500": "save_steps=3",
    }
    recipe = classifier("trainer.md", tmp_path, temporary, changes)
    recipe.imports("transformers.trainer")
    recipe.run("python", killed_after("python train.py", "checkpoints/checkpoint-3/trainer_state.json"))
    for checkpoint in (tmp_path / "checkpoints").glob("checkpoint-*"):
        state = checkpoint / "trainer_state.json"
        # The kill can come while the next one is written, whose state comes last.
        if not state.is_file() or not state.read_text():
            shutil.rmtree(checkpoint)
    [*_, newest] = sorted((tmp_path / "checkpoints").glob("checkpoint-*"), key=lambda path: int(path.name.split("-")[1]))
    steps = json.loads((newest / "trainer_state.json").read_text())["global_step"]
    output = recipe.run("torchrun")
    assert re.findall(r"'eval_seen': '?(\d+)", output)[-1] == str(VALIDATED), output
    launches = re.findall(r"^(\d+) samples for rank (\d) in this launch$", output, re.MULTILINE)
    assert sorted(launches, key=lambda launch: launch[1]) == [(str((2 * EPOCH - 8 * steps) // 2), str(rank)) for rank in range(2)], output
    recipe.end()


@TRAINS
def test_a_model_of_timm_is_killed_in_an_epoch_and_goes_on(tmp_path: pathlib.Path, temporary: pathlib.Path) -> None:
    needs("timm", ABSENT)
    import torch

    changes = {'"resnet50"': '"test_resnet"', '"global_batch": 256': '"global_batch": 8', "done % 100": "done % 3", "train.py 90": "train.py 2"}
    recipe = classifier("timm.md", tmp_path, temporary, changes)
    recipe.run("python", killed_after(recipe.next().rstrip(), "checkpoint.pt"))
    at = torch.load(tmp_path / "checkpoint.pt", weights_only=True)["loader"]
    output = recipe.run("python")
    assert counts(output)[1] == VALIDATED, output
    assert taken(output) == 2 * EPOCH - (at["epoch"] * EPOCH + at["offset"]), (at, output)
    recipe.end()


def test_the_command_of_the_page_on_sizing_recommends_settings(
    job: MakeJob, job_file: Callable[[dict[str, Any]], pathlib.Path]
) -> None:
    page = (ROOT / "docs/guide/sizing.md").read_text(encoding="utf-8")
    [command] = [text for language, text in BLOCK.findall(page) if language == "sh"]
    program, *words = shlex.split(command.replace("train.toml", str(job_file(job(name="train")))))
    assert program == "spdl-ctl" and words[0] == "profile"
    output = ctl(*words, "--seconds", 0.2).stdout
    assert "--cores " in output and "--memory " in output, output
