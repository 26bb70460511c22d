"""Runs the commands and the two trainers of the README's section "A trainer, before and after", and the guide's smallest job, and checks
the guide's table of settings, and what all pages of the documentation say of Python and of commands."""

from __future__ import annotations

import functools
import inspect
import os
import pathlib
import re
import shlex
import subprocess
import sys
from collections.abc import Callable

import pytest
import spdl_cluster
from conftest import LIMIT_S, PICTURES, needs

README = pathlib.Path(__file__).parents[2] / "README.md"
GUIDE = README.parent / "docs/guide"
#: The pages that a user reads.
PAGES = [README, *sorted((README.parent / "docs").rglob("*.md")), README.parent / "k8s/README.md"]


def blocks(language: str, page: pathlib.Path = README, heading: str = "## A trainer, before and after") -> list[str]:
    """Returns the code blocks of a page's section in a language."""
    section = page.read_text(encoding="utf-8").split(f"\n{heading}\n", 1)[1].split("\n## ", 1)[0]
    return re.findall(rf"^```{language}\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)


def runner(tmp_path: pathlib.Path) -> Callable[..., str]:
    """Returns a function that runs a command in a folder, with `spdl-ctl` on the path, and returns what it prints."""
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "spdl-ctl").symlink_to(os.environ["SPDL_TEST_CTL"])
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    variables = {**os.environ, "PATH": path, "XDG_CACHE_HOME": str(tmp_path / "caches"), "XDG_RUNTIME_DIR": str(tmp_path)}

    def run(*command: str) -> str:
        done = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=LIMIT_S)
        assert done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    return run


#: What the README's trainers need around them; they write down the shapes that they train on.
TRAINER = """
import os, spdl_cluster, torch
from torch.utils.data import DataLoader, DistributedSampler
from torchvision.datasets import ImageFolder
from torchvision.transforms.v2 import Compose, RandomHorizontalFlip, RandomResizedCrop, ToImage
torch.distributed.init_process_group("gloo", init_method=f"file://{os.path.abspath('group')}", rank=0, world_size=1)
device, seen = "cpu", []
def step(image, label):
    assert 0 <= int(label.min()) and label.dtype == torch.int64 and image.dtype == torch.uint8
    seen.append((tuple(image.shape), tuple(label.shape)))
"""


@pytest.mark.drawn(1, group="trainings of pages")
def test_the_readmes_trainers_before_and_after_train_on_as_many_batches_of_one_shape(tmp_path: pathlib.Path) -> None:
    torch = os.environ.get("SPDL_TEST_NO_TORCH", "torch is not installed")
    pytest.importorskip("torch", reason=torch)
    needs("torchvision", torch)
    run = runner(tmp_path)
    commands = [shlex.split(line, comments=True) for line in blocks("sh")[0].splitlines() if line.startswith("spdl-ctl")]
    assert [command[:2] for command in commands] == [["spdl-ctl", "pictures"]]
    # Fewer pictures than the README's command makes.
    run(*commands[0][:-1], str(PICTURES))

    before, after = blocks("python")
    assert max(len(before.splitlines()), len(after.splitlines())) <= 8, "the README promises few lines"
    assert "num_workers=8" in before
    steps = 2 * (PICTURES // 64)
    for code in (before.replace("num_workers=8", "num_workers=1"), after):
        output = run(sys.executable, "-c", f"{TRAINER}\n{code}\nprint(len(seen), set(seen))\ntorch.distributed.destroy_process_group()")
        assert output.splitlines()[-1] == f"{steps} {{((64, 3, 224, 224), (64,))}}", output


def test_the_readme_leads_from_a_folder_to_a_job_and_a_cluster(temporary: pathlib.Path) -> None:
    run = runner(temporary)
    readme = functools.partial(blocks, heading="## A job of your own")
    lines = [line for block in readme("sh") for line in block.splitlines() if line.startswith("spdl-ctl")]
    commands = [shlex.split(line, comments=True) for line in lines]
    assert [command[1] for command in commands] == ["pack", "job", "dev", "pull", "dev"]
    run("spdl-ctl", "pictures", "photos", "--count", str(PICTURES))

    try:
        outputs = [run(*command) for command in commands]
    finally:
        run("spdl-ctl", "dev", "down")
    assert (temporary / "train.toml").exists()
    assert "# the end: spdl-ctl dev down" in outputs[2]
    # The names of the files and of the job are those of the README's last command.
    assert "spdl-run --job train.toml -- torchrun" in readme("sh")[-1]
    code = 'import spdl_cluster\nfor batch in spdl_cluster.local("train.toml", epochs=1): print(batch["image"].shape)'
    assert run(sys.executable, "-c", code).count("(64, 224, 224, 3)") == PICTURES // 64


def test_the_smallest_job_of_the_guide_gives_batches(tmp_path: pathlib.Path) -> None:
    run = runner(tmp_path)
    [commands], [job], [code] = (blocks(language, GUIDE / "job.md", "## The smallest job that trains") for language in ("sh", "toml", "python"))
    (tmp_path / "first.toml").write_text(job)
    for line in commands.splitlines():
        run(*shlex.split(line.replace("--count 2000", f"--count {PICTURES}")))
    printed = [line for line in run(sys.executable, "-c", code).splitlines() if line.startswith("(64, 224, 224, 3)")]
    assert len(printed) == PICTURES // 64, printed


def test_the_guide_has_a_row_for_each_setting_and_no_other() -> None:
    page = (README.parent / "docs/guide/python/settings.md").read_text(encoding="utf-8")
    table = page.split("\n## Settings\n", 1)[1].split("\n## ", 1)[0]
    rows: dict[str, set[str]] = {"connect": set(), "local": set()}
    for line in table.splitlines():
        if line.startswith("| `"):
            settings, of = line.strip("|").split("|")[:2]
            for name in rows if of.strip() == "both" else [of.strip(" `")]:
                rows[name].update(re.findall(r"`(\w+)`", settings))
    assert rows["connect"] == set(inspect.signature(spdl_cluster.connect).parameters)
    assert rows["local"] == set(inspect.signature(spdl_cluster.local).parameters)


def blocks_of(page: pathlib.Path, language: str) -> list[str]:
    """Returns a page's code blocks in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def test_the_python_of_all_pages_compiles_and_names_what_there_is() -> None:
    modules = {path.stem for path in pathlib.Path(spdl_cluster.__file__).parent.iterdir()}
    known = modules | set(dir(spdl_cluster))
    seen = 0
    for page in PAGES:
        for code in blocks_of(page, "python"):
            compile(code, str(page), "exec")
            names = set(re.findall(r"\bspdl_cluster\.(\w+)", code))
            assert names <= known, f"{page}: {names - known}"
            seen += 1
    assert seen > 20, seen


def commands_of(page: pathlib.Path) -> list[list[str]]:
    """Returns the words of each `spdl-ctl` of a page's shell code, up to what ends the command."""
    found = []
    lines = "".join(blocks_of(page, "sh")).replace("\\\n", " ").splitlines()
    for line in lines:
        for part in re.split(r"[;|&()]", line):
            words = re.sub(r"\s#.*", "", part).replace('"', " ").replace("'", " ").split()
            if "spdl-ctl" in words:
                command = words[words.index("spdl-ctl") :]
                ends = [number for number, word in enumerate(command) if word in (">", "--")]
                found.append(command[: min(ends, default=len(command))])
    return found


def test_the_commands_of_all_pages_have_options_that_there_are() -> None:
    helps: dict[tuple[str, ...], str] = {}
    seen = 0
    for page in PAGES:
        for command in commands_of(page):
            options = [number for number, word in enumerate(command) if word.startswith("--")]
            # Subcommands are plain words, and so may be an argument behind them.
            names = tuple(word for word in command[1 : min([*options, 3], default=3)] if re.fullmatch(r"[a-z]+", word))
            if names not in helps:
                ctl = [os.environ["SPDL_TEST_CTL"], *names, "--help"]
                done = subprocess.run(ctl, capture_output=True, text=True, timeout=LIMIT_S)
                assert done.returncode == 0, f"{page}: {command}: {done.stderr}"
                helps[names] = done.stdout
            for number in options:
                option = command[number].split("=")[0]
                is_known = re.search(rf"(?<![\w-]){re.escape(option)}(?![\w-])", helps[names])
                assert is_known, f"{page}: `spdl-ctl {' '.join(names)}` has no `{option}`"
            seen += 1
    assert seen > 30, seen
