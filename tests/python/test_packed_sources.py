"""Jobs that blend sequences of several texts: each text is packed by itself, and its sequences come by its weight."""

from __future__ import annotations

import json
import pathlib
import re
from collections import Counter
from typing import Any

import numpy
import pytest
import spdl_cluster
import torchrun
from conftest import Cluster, RanksInTurn, add, at_once, ctl, ctl_json
from numpy.typing import NDArray
from test_language import SMALLER, documents, losses, write_megatron
from test_packed import assert_each_rank_knows_all_labels, assert_each_rank_knows_all_lengths, ids
from test_readme import GUIDE, blocks
from test_recipes import ROOT, needs_torch
from test_tokenize import TOKENIZER, refused

SEQ_LEN = 64
#: The documents of each text. Those of `code` are numbered on.
DOCUMENTS = {"web": range(60), "code": range(60, 100)}
EOS = 7
#: The share of each text.
SHARES = {"web": 0.7, "code": 0.3}


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, pathlib.Path]:
    """Writes a dataset of each text, and returns their folders."""
    folders = {name: tmp_path_factory.mktemp("texts") / name for name in DOCUMENTS}
    for name, folder in folders.items():
        with spdl_cluster.Writer(folder, block_size=4096) as writer:
            for document in DOCUMENTS[name]:
                writer.write({"ids": ids(document)}, key=f"{document:04}")
    return folders


def make(texts: dict[str, pathlib.Path], sequence: dict[str, Any] | None = None, **keys: Any) -> dict[str, Any]:
    """Makes a job of both texts, with columns of tokens, labels and lengths; `keys` are more of it."""
    columns = [
        {"name": "text", "from": "ids", "decode": "tokens"},
        *({"name": kind, "decode": kind, "follows": "text"} for kind in ("labels", "positions", "document_lengths", "global_lengths")),
    ]
    sources = [{"name": name, "dataset": folder, "weight": SHARES[name]} for name, folder in texts.items()]
    packed = {"seq_len": SEQ_LEN, "pool_tokens": 900, "eos": EOS, **(sequence or {})}
    return {"name": "texts", "seed": 5, "global_batch": 10, "sequence": packed, "source": sources, **keys, "column": columns}


def of_text(row: NDArray[Any]) -> str:
    """Returns the text that a sequence is of, by its tokens."""
    [name] = {name for name, of in DOCUMENTS.items() for token in row.tolist() if token > EOS and token // 1000 - 1 in of}
    return name


def rows(loader: spdl_cluster.Loader, batch: spdl_cluster.Batch) -> dict[int, bytes]:
    """Returns the tokens of each sequence of a batch by its place."""
    places = batch.epochs.astype(int) * loader.samples + batch.offsets.astype(int)
    return {place: row.tobytes() for place, row in zip(places.tolist(), numpy.asarray(batch["text"]))}


def delivered(ranks: RanksInTurn) -> dict[int, bytes]:
    """Returns the tokens of each sequence that all ranks get, by its place."""
    return dict(sorted(row for loader, batch in ranks for row in rows(loader, batch).items()))


METHODS = pytest.mark.parametrize("method", [{}, {"align": 1}, {"method": "chunk"}], ids=["best_fit-16", "best_fit-1", "chunk"])


@METHODS
def test_each_text_has_its_share_of_sequences_which_are_of_it_alone(texts: dict[str, pathlib.Path], method: dict[str, Any]) -> None:
    with spdl_cluster.local(make(texts, method, total_tokens=150 * SEQ_LEN, epochs=2), tensors="numpy") as loader:
        assert (loader.samples, len(loader)) == (150, 15)
        web, code = loader.sources["web"], loader.sources["code"]
        assert (web.start, web.stop) == (0, code.start) and len(web) > 20 and len(code) > 10
        names: dict[tuple[int, int], str] = {}
        for _ in range(2):
            for batch in loader:
                rows = [of_text(row) for row in numpy.asarray(batch["text"])]
                assert rows == ["code" if int(sample) in code else "web" for sample in batch.ids]
                names.update(zip(zip(batch.epochs.tolist(), batch.offsets.tolist()), rows))
    in_order = [name for _, name in sorted(names.items())]
    assert len(in_order) == 300
    for end in range(1, 301):
        # To less than one sequence, and weights are kept to one part of 65536.
        assert abs(in_order[:end].count("code") - 0.3 * end) < 1.01


@METHODS
def test_ranks_of_any_world_get_the_same_sequences_and_resume_in_the_middle(texts: dict[str, pathlib.Path], method: dict[str, Any]) -> None:
    made = make(texts, method, total_samples=150, epochs=2)
    one = RanksInTurn(made)
    alone = delivered(one)
    assert list(alone) == list(range(300))
    for world in (2, 3):
        ranks = RanksInTurn(made, world)
        assert delivered(ranks) == alone and ranks.receipt == one.receipt
    before = RanksInTurn(made, 2, steps=17)
    first = delivered(before)
    after = RanksInTurn(made, 3, before.state)
    assert first | delivered(after) == alone and add([before.receipt, after.receipt]) == one.receipt


@METHODS
def test_each_rank_knows_the_labels_and_the_lengths_of_all_ranks(texts: dict[str, pathlib.Path], method: dict[str, Any]) -> None:
    made = make(texts, method, total_samples=100)
    assert assert_each_rank_knows_all_labels(made) == 10
    assert len(assert_each_rank_knows_all_lengths(made, "document_lengths", "numpy")) == 10


def test_steps_are_dealt_by_the_tokens_of_all_texts(texts: dict[str, pathlib.Path]) -> None:
    plain = make(texts, {"align": 1}, total_samples=120)
    made = plain | {"cost": "tokens^2"}
    spreads = []
    for job in (plain, made):
        costs: dict[Any, list[int]] = {}
        for _, batch in RanksInTurn(job, 2):
            costs.setdefault(batch.position, []).append(sum(int((lengths**2).sum()) for lengths in batch["document_lengths"]))
        spreads.append(sum(max(of_step) * 2 / sum(of_step) for of_step in costs.values()))
    assert spreads[1] < spreads[0], "the step waits for the rank with the most"
    ours, theirs = RanksInTurn(plain), RanksInTurn(made, 2)
    assert delivered(ours) == delivered(theirs) and ours.receipt == theirs.receipt


def test_a_cluster_delivers_the_texts_and_weights_change_in_a_run(texts: dict[str, pathlib.Path], cluster: Cluster) -> None:
    made = make(texts, name="two-texts", total_samples=150, epochs=2)
    name = cluster.submit(made)

    def pulled(world: int, **settings: Any) -> tuple[dict[int, bytes], list[dict[str, Any]]]:
        found: dict[int, bytes] = {}

        def pull(rank: int) -> dict[str, Any]:
            with cluster.connect(rank, world, job=name, tensors="numpy", **settings) as loader:
                for _ in range(12 if "state" not in settings else 1000):
                    if (batch := loader.next()) is None:
                        break
                    found.update(rows(loader, batch))
                return loader.state_dict()

        return found, at_once(world, pull)

    first, states = pulled(2)
    assert sorted(first) == list(range(120))
    told = ctl("job", "weights", name, "--set", "web=1,code=3", "--at", 180, *cluster.admin).stdout
    assert "from = 180" in told
    staged = made | {"stage": [{"from": 180, "weights": {"web": 1, "code": 3}}]}
    expected = delivered(RanksInTurn(staged))
    rest, _ = pulled(3, state=states[0])
    assert first | rest == expected
    names = [of_text(numpy.frombuffer(row, "int32")) for row in expected.values()]
    assert abs(names[:180].count("code") - 54) <= 1 and abs(names[180:].count("code") - 90) <= 1
    assert ctl_json("audit", "--run", f"{name}/{name}", *cluster.admin)["equal"]
    [of_job] = (found for found in ctl_json("status", *cluster.admin)["jobs"] if found["name"] == name)
    # To less than one sequence for each stage.
    given = {source["name"]: source["samples"] for source in of_job["sources"]}
    assert given == {name: pytest.approx(names.count(name), abs=1) for name in SHARES}
    shown = ctl("job", "show", name, *cluster.admin).stdout
    assert "by best fit, each source by itself" in shown and "web: 70.0 % of the sequences at first" in shown


def test_a_source_that_is_used_up_leaves_its_share_to_the_other(texts: dict[str, pathlib.Path]) -> None:
    made = make(texts, total_samples=400)
    made["source"][1].update(max_epochs=1, when_done="reweight")
    with spdl_cluster.local(made, tensors="numpy") as loader:
        code = loader.sources["code"]
        given = Counter(int(sample) for batch in loader for sample in batch.ids if int(sample) in code)
    assert given == {sample: 1 for sample in code}


def test_texts_of_different_tokenizers_are_refused_with_both(tmp_path: pathlib.Path, cluster: Cluster) -> None:
    changed = json.loads(TOKENIZER.read_text())
    merges = changed["model"]["merges"]
    merges[-2], merges[-1] = merges[-1], merges[-2]
    other = tmp_path / "other.json"
    other.write_text(json.dumps(changed))
    (tmp_path / "text").mkdir()
    (tmp_path / "text/a.txt").write_text("Tokens of a text, and of another one. " * 400)
    folders = {}
    for name, tokenizer in (("web", TOKENIZER), ("code", other), ("more", TOKENIZER)):
        ctl("tokenize", tmp_path / "text", tmp_path / name, "--tokenizer", tokenizer)
        folders[name] = tmp_path / name
    prints = {name: ctl_json("info", folder)["tokenizer"]["fingerprint"] for name, folder in folders.items()}
    assert prints["web"] == prints["more"] != prints["code"]

    def job(*names: str) -> dict[str, Any]:
        sources = [{"name": name, "dataset": folders[name], "weight": 1} for name in names]
        columns = [{"name": "tokens", "from": "tokens", "decode": "tokens"}]
        return {"name": "-".join(names), "global_batch": 2, "sequence": {"seq_len": 32}, "source": sources, "column": columns}

    with spdl_cluster.local(job("web", "more"), tensors="numpy") as loader:
        assert numpy.asarray(next(iter(loader))["tokens"]).shape == (2, 32)
    expected = f"source `web` was tokenized with tokenizer {prints['web']} of 1000 ids where source `code` was with tokenizer {prints['code']}"
    with pytest.raises(spdl_cluster.SpdlError, match=re.escape(expected)):
        spdl_cluster.local(job("web", "code")).next()
    path = tmp_path / "both.toml"
    sources = "".join(f'[[source]]\nname = "{name}"\ndataset = "{folders[name]}"\nweight = 1\n' for name in ("web", "code"))
    column = '[[column]]\nname = "tokens"\nfrom = "tokens"\ndecode = "tokens"\n'
    path.write_text(f'name = "both"\nglobal_batch = 2\nsequence = {{ seq_len = 32 }}\n{sources}{column}')
    for command in (("plan", path), ("job", "submit", path, *cluster.admin)):
        assert expected in refused(*command)


@pytest.mark.drawn(2, group="trainings on tokens")
def test_a_training_on_two_texts_of_the_guide_resumes_with_other_ranks(tmp_path: pathlib.Path) -> None:
    needs_torch()
    [written] = blocks("toml", GUIDE / "sources.md", "## Sequences of several texts")
    for old, new in SMALLER.items():
        assert old in written, old
        written = written.replace(old, new)
    job = tmp_path / "texts.toml"
    job.write_text(written.replace("total_tokens = 100_000_000_000", f"total_tokens = {20 * 12 * 256}"))
    of_corpus = documents()
    for name, of_text in (("web", of_corpus[:180]), ("code", of_corpus[180:])):
        (tmp_path / "data" / name).mkdir(parents=True)
        write_megatron(tmp_path / "data" / name, "text_document", of_text)
        ctl("index", tmp_path / "data" / name)
    plan = ctl("plan", job).stdout
    assert "source web: 70.0 % of the sequences, " in plan and re.search(r"^packed code: .* documents once through; pools = ", plan, re.MULTILINE)
    example, checkpoint = ROOT / "python/examples/train_gpt.py", tmp_path / "gpt.pt"

    def train(world: int, *arguments: object) -> str:
        return torchrun.finish(torchrun.torchrun(example, world, "--job", job, *arguments))

    whole = train(1)
    first = train(2, "--checkpoint", checkpoint, "--steps", 8)
    again = train(1, "--checkpoint", checkpoint)
    trained = losses(first) + losses(again)
    assert [at for at, _ in trained] == [at for at, _ in losses(whole)] == [(0, 12 * step) for step in range(20)]
    # Sums of ranks are rounded in another order.
    assert [loss for _, loss in trained] == pytest.approx([loss for _, loss in losses(whole)], abs=0.02)
    assert sum(loss for _, loss in trained[-5:]) < sum(loss for _, loss in trained[:5]) - 5
    receipts = re.findall(r"--receipt (\w+)", first + again)
    assert len(receipts) == 3
    options = [word for receipt in receipts for word in ("--receipt", receipt)]
    assert "every sample" in ctl("audit", job, *options).stdout
    with pytest.raises(AssertionError):
        ctl("audit", job, *options[:4])
