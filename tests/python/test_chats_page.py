"""Plays the page on chats: its commands, and masks of one's own in each format."""

from __future__ import annotations

import io
import json
import pathlib
import re
import shutil
import struct
import tarfile
import tomllib
from collections.abc import Callable
from typing import Any

import mds
import numpy
import pytest
import spdl_cluster
from conftest import ctl
from numpy.typing import NDArray
from test_language import EOS, STEP, Tokens, corpus, in_datatrove, losses
from test_recipes import ROOT, Recipe, needs_torch

__all__ = ["corpus"]

PAGE = "../guide/chats.md"
#: Chats that fit into a sequence.
CHATS = 600
#: What the page has, and what the tests put in its place: the ids are bytes, and the end of a document.
SMALLER = {"50257": "257", "50256": "256", "seq_len = 4096": "seq_len = 256", "151936": "1000"}
Mask = NDArray[numpy.uint8]


@pytest.fixture
def chats(tmp_path: pathlib.Path, temporary: pathlib.Path) -> Recipe:
    """Returns the page on chats with its files, its chats and its model in a folder."""
    recipe = Recipe(PAGE, tmp_path, temporary, SMALLER, {})
    (tmp_path / "chats").mkdir()
    asked = [f"Is it told which tokens are learned{' of all' * (number % 30)}?" for number in range(CHATS)]
    talks = [[{"role": "user", "content": text}, {"role": "assistant", "content": "It is."}] for text in [*asked, "long " * 500]]
    (tmp_path / "chats/a.jsonl").write_text("".join(json.dumps({"messages": chat}) + "\n" for chat in talks))
    (tmp_path / "model").mkdir()
    shutil.copy(ROOT / "crates/text/tests/data/tokenizer.json", tmp_path / "model")
    shutil.copy(ROOT / "crates/text/tests/templates/chatml.jinja", tmp_path / "model/chat_template.jinja")
    return recipe


@pytest.mark.drawn(1, group="trainings of pages")
def test_the_page_on_chats_leads_to_a_fine_tuning(chats: Recipe, tmp_path: pathlib.Path) -> None:
    needs_torch()
    told = chats.run("spdl-ctl tokenize chats")
    assert told.count("[[It is.<|im_end|>") == 3 and f"in {CHATS + 1} documents" in told
    init, plan = chats.next().splitlines()
    chats.run("spdl-ctl job init", init)
    job = (tmp_path / "chat.toml").read_text()
    # The page tells people to set these.
    (tmp_path / "chat.toml").write_text(re.sub(r"(?m)^(seq_len|global_batch) = \d+", lambda key: f"{key[1]} = {256 if key[1] == 'seq_len' else 8}", job))
    planned = chats.run("spdl-ctl plan", plan)
    assert re.search(r"^[\d ]+ tokens are learned in an epoch", planned, re.MULTILINE), planned
    assert re.search(r"^[\d ]+ tokens are in no sequence: 0 documents are cut, and 1 left out$", planned, re.MULTILINE), planned
    chats.skip_to("spdl-ctl inspect")
    told = chats.run("spdl-ctl inspect chat.toml")
    assert told.count("=== sequence 0:") == 2 and "[[It is.<|im_end|>" in told and told.endswith("20 sequences in look.html\n")
    assert 'class="learned">It is.&lt;|im_end|&gt;' in (tmp_path / "look.html").read_text()
    trained = losses(output := chats.run("spdl-run --job chat.toml"))
    assert [at for at, _ in trained] == [(0, 8 * step) for step in range(max(len(trained), 11))], output
    assert sum(loss for _, loss in trained[-5:]) < sum(loss for _, loss in trained[:5]) - 5, output
    chats.end()


def masks(of_corpus: list[Tokens]) -> list[Mask]:
    """Returns which tokens are learned: in some documents none, and in some all."""
    drawn = numpy.random.default_rng(7)
    return [(drawn.random(len(tokens)) < number % 4 / 3).astype("uint8") for number, tokens in enumerate(of_corpus)]


def masked_datatrove(folder: pathlib.Path, of_corpus: list[Tokens], of_masks: list[Mask]) -> None:
    in_datatrove(folder, of_corpus)
    (folder / "web.ds.loss").write_bytes(numpy.concatenate(of_masks).tobytes())


def masked_parquet(folder: pathlib.Path, of_corpus: list[Tokens], of_masks: list[Mask]) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    parquet = pytest.importorskip("pyarrow.parquet")
    ids, masks = (pyarrow.array([row.astype("int32") for row in rows], pyarrow.list_(pyarrow.int32())) for rows in (of_corpus, of_masks))
    truths = pyarrow.array([row.astype(bool).tolist() for row in of_masks], pyarrow.list_(pyarrow.bool_()))
    parquet.write_table(pyarrow.table({"tokens": ids, "loss": masks, "truths": truths}), folder / "part.parquet", row_group_size=100)


def masked_mds(folder: pathlib.Path, of_corpus: list[Tokens], of_masks: list[Mask]) -> None:
    def encoded(row: NDArray[Any]) -> bytes:
        return struct.pack("<BI", 1 << 2 | 2, len(row)) + row.tobytes()

    def sample(tokens: Tokens, mask: Mask) -> bytes:
        fields = [encoded(tokens.astype("<u2")), encoded(mask)]
        return struct.pack("<2I", *map(len, fields)) + b"".join(fields)

    columns = {"tokens": ("ndarray:uint16", None), "loss": ("ndarray:uint8", None)}
    mds.write_shard(folder, columns, [sample(*row) for row in zip(of_corpus, of_masks)])


def masked_tars(folder: pathlib.Path, of_corpus: list[Tokens], of_masks: list[Mask]) -> None:
    with tarfile.open(folder / "0.tar", "w") as tar:
        for number, (tokens, mask) in enumerate(zip(of_corpus, of_masks)):
            arrays: dict[str, NDArray[Any]] = {"tokens": tokens, "loss": mask}
            for name, array in arrays.items():
                file = io.BytesIO()
                numpy.save(file, array)
                member = tarfile.TarInfo(f"{number:04}.{name}")
                member.size = len(file.getvalue())
                tar.addfile(member, io.BytesIO(file.getvalue()))


def sft(folder: pathlib.Path, *, loss_from: str = "loss", **sequence: Any) -> dict[str, Any]:
    """Returns the page's job of a chat, as a dict, with other keys of its sequences."""
    job = tomllib.loads((folder / "sft.toml").read_text())
    for column in job["column"]:
        if "loss_from" in column:
            column["loss_from"] = loss_from
    return {**job, "sequence": {**job["sequence"], **sequence}, "dataset": folder / "chat", "global_batch": STEP, "epochs": 1}


@pytest.mark.parametrize("write", [masked_datatrove, masked_parquet, masked_mds, masked_tars])
def test_a_mask_of_each_format_says_which_labels_count(
    write: Callable[[pathlib.Path, list[Tokens], list[Mask]], None], chats: Recipe, corpus: list[Tokens], tmp_path: pathlib.Path
) -> None:
    (tmp_path / "chat").mkdir()
    of_masks = masks(corpus)
    write(tmp_path / "chat", corpus, of_masks)
    ctl("index", tmp_path / "chat")
    expected = []
    for tokens, mask in zip(corpus, of_masks):
        if len(tokens):
            ids, learned = [*tokens.tolist(), EOS], [*mask.tolist(), mask[-1]]
            labels = [label if counts else -100 for label, counts in zip(ids[1:], learned[1:])]
            expected.append((ids, [*labels, -100]))
    for field in ("loss", "truths")[: 1 + (write is masked_parquet)]:
        found = []
        with spdl_cluster.local(sft(tmp_path, loss_from=field, seq_len=4096, align=1), tensors="numpy") as loader:
            for batch in loader:
                for tokens, labels, lengths in zip(batch["tokens"], batch["labels"], batch["document_lengths"]):
                    ends = numpy.cumsum(lengths)
                    parts = [[part.tolist() for part in numpy.split(row, ends)] for row in (tokens, labels)]
                    found += list(zip(*parts))[:-1]
        assert sorted(found) == sorted(expected)


def test_the_plan_counts_what_is_learned_and_wrong_masks_are_named(chats: Recipe, corpus: list[Tokens], tmp_path: pathlib.Path) -> None:
    (tmp_path / "chat").mkdir()
    of_masks = masks(corpus)
    masked_tars(tmp_path / "chat", corpus, of_masks)
    assert "loss" in ctl("index", tmp_path / "chat").stdout + ctl("info", tmp_path / "chat").stdout
    # Some documents are longer than a sequence: the label of a part's last place is in the next one.
    plan = ctl("plan", tmp_path / "sft.toml")
    learned = 0
    with spdl_cluster.local(sft(tmp_path), tensors="numpy") as loader:
        for batch in loader:
            learned += batch.global_loss_tokens
            assert batch.global_loss_tokens == int((batch["labels"] != -100).sum())
    chunk = {**sft(tmp_path, method="chunk")}
    with spdl_cluster.local(chunk, tensors="numpy") as loader, pytest.raises(spdl_cluster.SettingError, match="job `chat` has masks and cuts documents"):
        _ = next(iter(loader)).global_loss_tokens
    [counted] = re.findall(r"^([\d ]+) tokens are learned in an epoch", plan.stdout, re.MULTILINE)
    assert int(counted.replace(" ", "")) == learned
    none = sum(len(mask) > 0 and not mask[1:].any() for mask in of_masks)
    assert f"{none} documents have no token that is learned\n" in plan.stdout
    assert f"{none} documents have no token that is learned; the first is shard `0.tar`, record `0000`" in plan.stderr

    def refused(job: dict[str, Any]) -> str:
        with pytest.raises(spdl_cluster.SpdlError) as error, spdl_cluster.local(job, tensors="numpy") as loader:
            next(iter(loader))
        return str(error.value)

    missing = "record `0000`: it has no field `mask`, which `loss_from` names; it has tokens, loss"
    assert missing in refused(sft(tmp_path, loss_from="mask"))
    masked_tars(tmp_path / "chat", corpus, [of_masks[0][:-1], *of_masks[1:]])
    ctl("index", tmp_path / "chat", "--force")
    wrong = f"record `0000`: field `loss`: it has {len(corpus[0]) - 1} values, and its document {len(corpus[0])} tokens"
    assert wrong in refused({**sft(tmp_path), "bad_samples": "fail"})
