"""Jobs with a `cost` of what samples have that are not packed: pixels, seconds and fields, compared with the files themselves and with the
second implementation of the deal."""

from __future__ import annotations

import json
import pathlib
import re
import shutil
import wave
from typing import Any

import numpy
import pytest
import spdl_cluster
from conftest import add, ctl
from PIL import Image
from spdl_cluster import SpdlError
from test_language import module

ROOT = pathlib.Path(__file__).parents[2]
DEAL = module(ROOT / "tests/order/balance.py")
SAMPLES = 60
RATE = 8000
KEY = {"name": "key", "from": "__key__", "decode": "text"}
SOUND = {"name": "sound", "from": "wav", "decode": "audio", "rate": RATE, "max_seconds": 60}
PICTURE = {"name": "image", "from": "png", "decode": "image", "ops": [{"resize": {"size": [8, 8]}}]}
KINDS = pytest.mark.parametrize("kind", ["seconds", "pixels", "field"])
#: The cost in a job, and the column that has what is measured.
JOBS: dict[str, tuple[Any, dict[str, Any]]] = {
    "seconds": ({"of": "seconds", "quadratic": 3, "linear": 2}, SOUND),
    "pixels": ("pixels", PICTURE),
    "field": ({"field": "json.about.length", "scale": 100}, SOUND),
}


def frames_of(number: int) -> int:
    return 400 + number * number * 97 % 30011


def side_of(number: int) -> int:
    return 8 + number * 37 % 61


def size_of(kind: str, number: int) -> int:
    """Returns the size of a sample by what is written."""
    match kind:
        case "seconds":
            return (frames_of(number) * 1000 + RATE // 2) // RATE
        case "pixels":
            return side_of(number) * (side_of(number) + 5)
        case _:
            return 100 * number + 25


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return write(tmp_path_factory.mktemp("samples"))


def write(folder: pathlib.Path) -> pathlib.Path:
    """Writes samples that have a sound, a picture and a document with a number."""
    for number in range(SAMPLES):
        with wave.open(str(folder / f"{number:03}.wav"), "wb") as sound:
            sound.setnchannels(1)
            sound.setsampwidth(2)
            sound.setframerate(RATE)
            sound.writeframes(numpy.full(frames_of(number), number, "<i2").tobytes())
        Image.new("RGB", (side_of(number), side_of(number) + 5), (number, 0, 0)).save(folder / f"{number:03}.png")
        (folder / f"{number:03}.json").write_text(json.dumps({"text": "x" * (number % 5 * 9000), "about": {"length": number + 0.25}}))
    ctl("index", folder)
    return folder


def job(dataset: pathlib.Path, kind: str, **keys: Any) -> dict[str, Any]:
    cost, column = JOBS[kind]
    return {"name": f"by-{kind}", "dataset": dataset, "seed": 3, "global_batch": 12, "epochs": 2, "cost": cost, **keys, "column": [column, KEY]}


Steps = dict[spdl_cluster.Position, list[int]]


def delivered(made: dict[str, Any], rank: int = 0, world: int = 1) -> tuple[Steps, str]:
    """Returns the samples of a rank in each step, and its receipt."""
    steps: Steps = {}
    with spdl_cluster.local(made, rank=rank, world=world, tensors="numpy") as loader:
        for _ in range(made["epochs"]):
            for batch in loader:
                steps[batch.position] = [int(key) for key in batch["key"].text()]
        return steps, loader.receipt


def cost_of(kind: str, number: int) -> int:
    size = size_of(kind, number)
    return 2 * size + 3 * size**2 if kind == "seconds" else size


@KINDS
@pytest.mark.parametrize(("world", "within"), [(3, None), (4, 2)])
def test_each_rank_has_the_samples_that_the_second_implementation_deals_to_it(
    written: pathlib.Path, kind: str, world: int, within: int | None
) -> None:
    made = job(written, kind)
    if within:
        made["cost"] = {**({"of": "pixels"} if kind == "pixels" else made["cost"]), "within": within}
    alone, receipt = delivered(made)
    ranks = [delivered(made, rank, world) for rank in range(world)]
    plain = job(written, kind)
    del plain["cost"]
    assert delivered(plain) == (alone, receipt), "the global batches are those without `cost`"
    assert add([of_rank for _, of_rank in ranks]) == receipt
    assert len(alone) == 10
    largest = {"before": 0, "dealt": 0}
    for position, samples in alone.items():
        costs = [cost_of(kind, number) for number in samples]
        dealt = DEAL.ranks(costs, world, within)
        loads = [0] * world
        for rank, (steps, _) in enumerate(ranks):
            assert steps[position] == [number for number, of in zip(samples, dealt, strict=True) if of == rank], f"rank {rank} at {position}"
            loads[rank] = sum(cost_of(kind, number) for number in steps[position])
        share = len(samples) // world
        largest["before"] += max(sum(costs[rank * share : (rank + 1) * share]) for rank in range(world))
        largest["dealt"] += max(loads)
    assert largest["dealt"] < largest["before"]


def test_samples_that_cannot_be_measured_cost_nothing_and_are_counted(written: pathlib.Path, tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "damaged"
    shutil.copytree(written, folder, ignore=shutil.ignore_patterns(".spdl"))
    for number in (7, 11):
        (folder / f"{number:03}.wav").write_bytes(b"RIFF, but no sound")
    ctl("index", folder)
    path = tmp_path / "job.toml"
    columns = '[[column]]\nname = "sound"\nfrom = "wav"\ndecode = "audio"\n'
    text = f'name = "a"\ndataset = "{folder}"\nglobal_batch = 12\ncost = "seconds"\n'
    path.write_text(text + columns)
    shown = ctl("plan", path, "--world", 3)
    assert "2 samples cannot be measured, and cost nothing: shard" in shown.stderr, shown.stderr
    assert "field `wav`" in shown.stderr
    assert re.search(r"largest / mean cost +\d\.\d+ without `cost`, 1\.\d+ with \{ of = \"seconds\", linear = 1", shown.stdout), shown.stdout
    [sizes] = re.findall(r'samples are measured; sizes = "([0-9a-f]{32})"', shown.stdout)
    path.write_text(text + "max_bad_fraction = 0.0\n" + columns)
    with pytest.raises(AssertionError, match="field `wav`"):
        ctl("plan", path, "--world", 3)
    other = text.replace('cost = "seconds"', f'cost = {{ of = "seconds", sizes = "{sizes[::-1]}" }}')
    path.write_text(other + columns)
    with pytest.raises(AssertionError, match=f"has `sizes` = {sizes[::-1]}; measuring the samples gives {sizes}"):
        ctl("plan", path)


def test_the_costs_of_the_page_are_those_of_a_job(written: pathlib.Path, tmp_path: pathlib.Path) -> None:
    costs = re.findall(r"^\| `(\{.*?\}|\".*?\")` \|", (ROOT / "docs/guide/balance.md").read_text(), re.MULTILINE)[4:]
    assert len(set(costs)) == 4 and len(costs) == 6
    columns = ['name = "sound"\nfrom = "wav"\ndecode = "audio"', 'name = "image"\nfrom = "png"\ndecode = "image"\nops = [{ resize = { size = [8, 8] } }]']
    text = f'name = "page"\ndataset = "{written}"\nglobal_batch = 12\n' + "".join(f"[[column]]\n{column}\n" for column in columns)
    (tmp_path / "job.toml").write_text(text)
    for cost in set(costs):
        named = cost.replace('"length"', '"json.about.length"').replace('"duration"', '"json.about.length"')
        shown = ctl("plan", tmp_path / "job.toml", "--world", 4, "--cost", named.strip('"')).stdout
        assert "largest / mean cost" in shown and "samples are measured" in shown


@pytest.mark.parametrize(
    ("cost", "problem"),
    [
        ("tokens", "`cost` needs `sequence`"),
        ("pixels", 'no column has decode = "image"'),
        ({"field": "jsn.length"}, "it has no field `jsn.length`; it has "),
        ({"field": "json.about"}, "field `json.about` is an object, of which members can be named, and not a number"),
        ({"field": "json.about.length", "of": "pixels"}, "has `of` and `field`"),
    ],
)
def test_what_samples_do_not_have_is_refused(written: pathlib.Path, cost: Any, problem: str) -> None:
    with pytest.raises(SpdlError, match=re.escape(problem)):
        next(iter(spdl_cluster.local(job(written, "seconds", cost=cost, max_bad_fraction=0.0))))
