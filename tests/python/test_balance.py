"""Jobs with `cost`: the sequences of a global batch are dealt to ranks by what they cost, compared with the second implementation of the
deal, which takes what each rank is told of all sequences; and the commands of the page."""

from __future__ import annotations

import pathlib
import re
import shlex
import tomllib
from typing import Any

import pytest
import spdl_cluster
from conftest import RanksInTurn, ctl
from spdl_cluster import SpdlError
from test_language import module
from test_packed import BEST_FIT_1, METHODS, UNEVEN, make, texts

__all__ = ["texts"]
ROOT = pathlib.Path(__file__).parents[2]
PAGE = ROOT / "docs/guide/balance.md"
DEAL = module(ROOT / "tests/order/balance.py")
SQUARES = {"quadratic": 1}
#: The lengths of the documents of each sequence that a rank has, by the position of the step.
Delivered = dict[spdl_cluster.Position, list[list[int]]]


def job(texts: pathlib.Path, method: dict[str, Any], **keys: Any) -> dict[str, Any]:
    made = make(texts, method, **{"global_batch": 12, "epochs": 2, **keys})
    made["column"].append({"name": "all", "decode": "global_lengths", "follows": "text"})
    return made


def delivered(made: dict[str, Any], rank: int, world: int) -> tuple[Delivered, Delivered]:
    """Returns what a rank gets, and what it is told of the sequences of all ranks."""
    of_rank: Delivered = {}
    of_all: Delivered = {}
    with spdl_cluster.local(made, rank=rank, world=world, tensors="numpy") as loader:
        for batch in loader:
            of_rank[batch.position] = [list(map(int, lengths)) for lengths in batch["cuts"]]
            of_all[batch.position] = batch.global_lengths
    return of_rank, of_all


def cost_of(lengths: list[int], linear: int, quadratic: int) -> int:
    return sum(linear * length + quadratic * length**2 for length in lengths)


@UNEVEN
@METHODS
@pytest.mark.parametrize(("world", "within"), [(1, None), (3, None), (5, 2)])
def test_each_rank_has_the_sequences_that_the_second_implementation_deals_to_it(
    texts: pathlib.Path, method: dict[str, Any], world: int, within: int | None
) -> None:
    cost = {"linear": 3, "quadratic": 2}
    made = job(texts, method, cost={**cost, "within": within} if within else cost)
    steps = 0
    for rank in range(world):
        of_rank, of_all = delivered(made, rank, world)
        for position, sequences in of_all.items():
            ranks = DEAL.ranks([cost_of(lengths, **cost) for lengths in sequences], world, within)
            expected = [lengths for lengths, of in zip(sequences, ranks, strict=True) if of == rank]
            assert of_rank[position] == expected, f"rank {rank} at {position}"
            steps += 1
    assert steps >= 4 * world


@UNEVEN
def test_steps_are_more_even_and_the_receipts_of_all_ranks_are_those_without(texts: pathlib.Path) -> None:
    largest: dict[str | None, int] = {}
    receipts: dict[str | None, str] = {}
    for cost in (None, "tokens^2"):
        made = job(texts, BEST_FIT_1, **({"cost": cost} if cost else {}))
        ranks = [delivered(made, rank, 3)[0] for rank in range(3)]
        steps = [[sum(cost_of(lengths, 0, 1) for lengths in rank[position]) for rank in ranks] for position in ranks[0]]
        largest[cost] = sum(max(step) for step in steps)
        of_all = RanksInTurn(made, 3)
        assert all(batch is not None for _, batch in of_all)
        receipts[cost] = of_all.receipt
    assert largest["tokens^2"] < largest[None]
    assert receipts["tokens^2"] == receipts[None]


def test_a_state_goes_on_at_another_world_with_and_without_a_cost(texts: pathlib.Path) -> None:
    with spdl_cluster.local(job(texts, BEST_FIT_1), tensors="numpy") as loader:
        batches = iter(loader)
        for _ in range(2):
            next(batches)
        state = loader.state_dict()
    made = job(texts, BEST_FIT_1, cost=SQUARES)
    expected = delivered(made, 0, 2)
    for rank in range(2):
        with spdl_cluster.local(made, rank=rank, world=2, tensors="numpy") as loader:
            loader.load_state_dict(state)
            batch = next(iter(loader))
            assert batch.global_lengths == expected[1][batch.position]
            assert batch.position.offset == 24
            ranks = DEAL.ranks([cost_of(lengths, 0, 1) for lengths in batch.global_lengths], 2, None)
            assert len(batch["cuts"]) == ranks.count(rank) == 6


@pytest.mark.parametrize(
    ("cost", "problem"),
    [("frames", '"tokens", "tokens^2", "pixels"'), ("pixels", "samples are sequences of tokens"), ({"linear": 0}, "`linear` or `quadratic` above 0"), ({"linear": 1 << 20}, "divide both"), ({"within": 2}, "above 0")],
)
def test_what_the_plan_does_not_know_is_refused(texts: pathlib.Path, cost: Any, problem: str) -> None:
    with pytest.raises(SpdlError, match=re.escape(problem)):
        next(iter(spdl_cluster.local(job(texts, BEST_FIT_1, cost=cost))))


def test_the_commands_and_jobs_of_the_page_are_right(texts: pathlib.Path, tmp_path: pathlib.Path) -> None:
    page = PAGE.read_text()
    [command] = re.findall(r"^spdl-ctl (plan train\.toml .*)$", page, re.MULTILINE)
    columns = '[[column]]\nname = "text"\nfrom = "ids"\ndecode = "tokens"\n'
    text = f'name = "page"\ndataset = "{texts}"\nglobal_batch = 48\n[sequence]\nseq_len = 64\npool_tokens = 1200\n{columns}'
    (tmp_path / "train.toml").write_text(text)
    arguments = [str(tmp_path / word) if word == "train.toml" else word for word in shlex.split(command)]
    shown = ctl(*[{"64": "16"}.get(word, word) for word in arguments]).stdout
    lines, _ = re.findall(r"^```text\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    pattern = re.sub(r"\d+\\\.\d{3}", lambda _: r"\d+\.\d{3}", re.escape(lines)).replace(r"64\ ranks", r"16\ ranks")
    assert re.search(pattern, shown), f"{shown}\n{pattern}"
    costs = re.findall(r"^\| `(\{.*?\}|\".*?\")` \|", page, re.MULTILINE)
    assert len(costs) == 10, "four of sequences, and the others twice, which have a test in test_cost.py"
    for cost in costs[:4]:
        assert tomllib.loads(f"cost = {cost}")
        ctl("plan", tmp_path / "train.toml", "--cost", cost.strip('"'))
