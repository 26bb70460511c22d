"""Plays the page on language models: its commands, its programs and its formats, on the text of the project's own pages, cut into documents,
whose bytes are their tokens."""

from __future__ import annotations

import importlib.util
import io
import pathlib
import re
import shutil
import struct
import tarfile
import tomllib
from collections.abc import Callable, Iterable
from typing import Any

import mds
import numpy
import pytest
import spdl_cluster
import torchrun
from conftest import FRAMEWORKS_HERE, ctl
from numpy.typing import NDArray
from test_record_names import masked_crc32c
from test_recipes import ABSENT, BLOCK, ROOT, Recipe, needs_torch

PAGE = "../guide/language.md"
DOCUMENTS = 300
EOS = 256
#: Sequences of a step.
STEP = 12
#: What the page has, and what the tests put in its place: the ids are bytes, and the end of a document.
SMALLER = {
    "50257": "257",
    "50256": "256",
    "seq_len = 4096": "seq_len = 256",
    "global_batch = 512": f"global_batch = {STEP}",
}
Tokens = NDArray[numpy.uint16]


def documents() -> list[Tokens]:
    """Returns documents: the text of the project's pages cut into short ones, some that are longer than sequences, and an empty one."""
    text = numpy.frombuffer(b"".join(page.read_bytes() for page in sorted((ROOT / "docs").rglob("*.md"))), "uint8").astype("uint16")
    lengths = [0 if number == 5 else 4000 if number % 20 == 7 else 80 + number % 9 * 40 for number in range(DOCUMENTS)]
    ends = numpy.cumsum(lengths)
    assert ends[-1] <= len(text), "the pages have become too few for the documents of this test"
    return numpy.split(text[: ends[-1]], ends[:-1])


def write_megatron(folder: pathlib.Path, name: str, of_file: list[Tokens]) -> None:
    """Writes documents as Megatron's builder does, of one sequence each."""
    lengths = numpy.array([len(tokens) for tokens in of_file], "<i4")
    ends = 2 * numpy.cumsum(lengths.astype("<i8"))
    header = b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, len(of_file), len(of_file) + 1)
    numbers = numpy.arange(len(of_file) + 1, dtype="<i8")
    (folder / f"{name}.bin").write_bytes(numpy.concatenate(of_file).astype("<u2").tobytes())
    (folder / f"{name}.idx").write_bytes(header + lengths.tobytes() + (ends - 2 * lengths).tobytes() + numbers.tobytes())


@pytest.fixture
def corpus(tmp_path: pathlib.Path) -> list[Tokens]:
    """Writes the folder that the page begins with, and returns its documents."""
    (tmp_path / "tokens").mkdir()
    of_corpus = documents()
    write_megatron(tmp_path / "tokens", "web_text_document", of_corpus[:200])
    write_megatron(tmp_path / "tokens", "code_text_document", of_corpus[200:])
    return of_corpus


@pytest.fixture
def page(corpus: list[Tokens], tmp_path: pathlib.Path, temporary: pathlib.Path) -> Recipe:
    """Returns the page with its files in a folder, ready to be played from its first numbered step on."""
    recipe = Recipe(PAGE, tmp_path, temporary, SMALLER, {})
    (tmp_path / "text").mkdir()
    shutil.copy(ROOT / "docs/guide/language.md", tmp_path / "text")
    shutil.copy(ROOT / "crates/text/tests/data/tokenizer.json", tmp_path)
    told = recipe.run("spdl-ctl tokenize text corpus")
    assert " in 1 document\n" in told and ": 1 000 ids\n" in told, told
    return recipe


def the_job(folder: pathlib.Path, dataset: object = "tokens", *, sequence: dict[str, Any] | None = None, **keys: Any) -> dict[str, Any]:
    """Returns the page's job, as a dict, with other keys."""
    job = tomllib.loads((folder / "train.toml").read_text())
    return {**job, "sequence": {**job["sequence"], **(sequence or {})}, "dataset": folder / str(dataset), **keys}


def losses(output: str) -> list[tuple[tuple[int, int], float]]:
    """Returns the position and the loss of each step."""
    found = re.findall(r"^epoch (\d+), sequence (\d+): loss (\d+\.\d+) of \d+ tokens$", output, re.MULTILINE)
    return [((int(epoch), int(offset)), float(loss)) for epoch, offset, loss in found]


@pytest.mark.drawn(1, group="trainings on tokens")
def test_the_page_leads_from_a_folder_of_tokens_to_a_training_that_resumes(page: Recipe, tmp_path: pathlib.Path) -> None:
    needs_torch()
    assert f"{DOCUMENTS} samples in {DOCUMENTS} records" in page.run("spdl-ctl index tokens")
    plan = page.run("spdl-ctl plan train.toml")
    [sequences, tokens, padding] = [int(found.replace(" ", "")) for found in re.findall(r"([\d ]+) (?:sequences in|tokens of|places of)", plan)]
    assert tokens == sum(len(of_document) + 1 for of_document in documents() if len(of_document)), plan
    assert (sequences * 256, True) == (tokens + padding, "1 document has no token" in plan), plan
    for method, line in (('"drop"', "left out"), ('"truncate"', "are cut")):
        (tmp_path / "long.toml").write_text((tmp_path / "train.toml").read_text().replace("[sequence]", f"[sequence]\nlong = {method}"))
        assert line in ctl("plan", tmp_path / "long.toml").stdout
    look = page.run("python look.py")
    assert "tokens torch.Size([2, 256])" in look and " labels: [" in look, look

    first = page.run("spdl-run --job train.toml")
    trained = losses(first)
    assert [at for at, _ in trained] == [(0, STEP * step) for step in range(20)], first
    assert sum(loss for _, loss in trained[-5:]) < sum(loss for _, loss in trained[:5]) - 5, first
    again = page.run("spdl-run --job train.toml")
    resumed = losses(again)
    assert [at for at, _ in resumed] == [(0, at) for at in range(20 * STEP, sequences, STEP)], again
    assert resumed[0][1] < trained[0][1] - 1, "the model goes on, too"
    ranks = re.findall(r"^rank (\d) of (\d): audit with (--receipt) (\w+)$", first + again, re.MULTILINE)
    assert sorted((world, rank) for rank, world, *_ in ranks) == [("1", "0"), ("2", "0"), ("2", "1")]
    # Each sequence came once; and the first launch alone is not all of them.
    receipts = [word for *_, flag, receipt in ranks for word in (flag, receipt)]
    page.run("spdl-ctl audit train.toml $(grep")
    assert "every sample" in ctl("audit", tmp_path / "train.toml", *receipts).stdout
    with pytest.raises(AssertionError):
        ctl("audit", tmp_path / "train.toml", *receipts[:4])
    page.end()
    # The page's view leaves documents out.
    [_, view] = [text for language, text in BLOCK.findall((ROOT / "docs/guide/language.md").read_text()) if language == "toml"]
    (tmp_path / "viewed.toml").write_text((tmp_path / "train.toml").read_text() + view)
    assert re.search(r"^the view keeps [1-9]\d of 300 samples", ctl("plan", tmp_path / "viewed.toml").stdout, re.MULTILINE)


@pytest.mark.drawn(1, group="trainings on tokens")
def test_the_losses_do_not_depend_on_the_number_of_ranks(page: Recipe, tmp_path: pathlib.Path) -> None:
    """Ranks have different numbers of labels: a mean of their means would be another one."""
    needs_torch()
    page.run("spdl-ctl index tokens")
    example = ROOT / "python/examples/train_gpt.py"
    alone, both = [
        losses(torchrun.finish(torchrun.torchrun(example, world, "--job", tmp_path / "train.toml", "--steps", 3))) for world in (1, 2)
    ]
    assert [at for at, _ in alone] == [at for at, _ in both] == [(0, 0), (0, STEP), (0, 2 * STEP)]
    assert [loss for _, loss in alone] == pytest.approx([loss for _, loss in both], abs=0.002)
    assert alone[2][1] < alone[0][1]


def test_the_example_has_what_the_page_has(page: Recipe, tmp_path: pathlib.Path) -> None:
    text = (ROOT / "examples/tokens-train.toml").read_text()
    example = tomllib.loads(text)
    for old, new in SMALLER.items():
        text = text.replace(old, new)
    changed, job = tomllib.loads(text), the_job(tmp_path)
    assert example["sequence"]["seq_len"] == 4096
    assert changed["sequence"] == job["sequence"]
    assert all(column in job["column"] for column in changed["column"])


def test_a_place_of_the_example_sees_what_is_before_it_in_its_document_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    needs_torch()
    import torch

    monkeypatch.syspath_prepend(ROOT / "python/examples")
    torch.manual_seed(1)
    model = module(ROOT / "python/examples/train_gpt.py").GPT(EOS + 1)
    ids, positions = torch.tensor([[0, 0, 0, 1, 1, 1, -1, -1]]), torch.tensor([[0, 1, 2, 0, 1, 2, 0, 1]])
    tokens = torch.arange(8)[None]
    with torch.no_grad():
        before = model(tokens, positions, ids)
        for place in range(8):
            changed = tokens.clone()
            changed[0, place] = 100
            sees = (model(changed, positions, ids) != before).any(-1)[0]
            assert torch.equal(sees, (ids[0] == ids[0, place]) & (torch.arange(8) >= place))


def module(path: pathlib.Path) -> Any:
    """Returns a program as a module."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec and spec.loader
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def a_batch(job: dict[str, Any]) -> spdl_cluster.Batch:
    """Returns a batch in torch's tensors."""
    with spdl_cluster.local(job, tensors="torch") as loader:
        return next(iter(loader))


def test_the_shapes_for_torchtitan_and_megatron_are_of_the_same_documents(page: Recipe, tmp_path: pathlib.Path) -> None:
    needs_torch()
    import torch

    page.run("spdl-ctl index tokens")
    batch = a_batch(the_job(tmp_path, sequence={"seq_len": 512}))
    assert int(batch["document_ids"].max()) > 0, "several documents in a sequence"
    inputs, labels = module(tmp_path / "shapes.py").torchtitan(batch)
    flat = batch["document_ids"].flatten()
    # Documents are where positions begin again. The padding of a row is one of them.
    begins = torch.cat([torch.ones(1, dtype=torch.bool), flat[1:] != flat[:-1]])
    begins[:: batch["tokens"].shape[1]] = True
    assert torch.equal(inputs["positions"] == 0, begins)
    assert inputs["input"].shape == labels.shape == flat.shape and labels.dtype == torch.int64
    theirs = module(tmp_path / "shapes.py").megatron(batch)
    scores = torch.randn(*batch["tokens"].shape, EOS + 1, generator=torch.Generator().manual_seed(1))
    each = torch.nn.functional.cross_entropy(scores.flatten(0, 1), theirs["labels"].flatten(), reduction="none")
    masked = (each * theirs["loss_mask"].flatten()).sum() / theirs["loss_mask"].sum()
    torch.testing.assert_close(masked, torch.nn.functional.cross_entropy(scores.flatten(0, 1), labels))


@FRAMEWORKS_HERE
def test_a_model_of_transformers_has_the_loss_of_its_documents_one_by_one(
    page: Recipe, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs_torch()
    transformers = pytest.importorskip("transformers", reason=ABSENT)
    import torch

    # It asks a device that the tests' torch does not have.
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    page.run("spdl-ctl index tokens")
    job = the_job(tmp_path, sequence={"seq_len": 512}, global_batch=4)
    [labels] = [column for column in job["column"] if column["decode"] == "labels"]
    labels["shifted"] = False
    batch = a_batch(job)
    torch.manual_seed(1)
    sizes = {"vocab_size": EOS + 1, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes, initializer_range=0.5)).eval()
    with torch.no_grad():
        given = module(tmp_path / "shapes.py").transformers(batch)
        packed, total, count = model(**given).loss, 0.0, 0
        with_cache = model(**{**given, "use_cache": True}).loss
        for tokens, labels, ids in zip(given["input_ids"], given["labels"], batch["document_ids"]):
            for document in range(int(ids.max()) + 1):
                of_document = ids == document
                assert labels[of_document][0] == -100
                learned = int((labels[of_document] != -100).sum())
                alone = model(input_ids=tokens[of_document][None], labels=labels[of_document][None]).loss if learned else 0.0
                total, count = total + alone * learned, count + learned
    assert int(batch["document_ids"].max()) > 0, "several documents in a sequence"
    torch.testing.assert_close(packed, total / count, rtol=1e-4, atol=1e-4)
    assert abs(with_cache - packed) > 1e-3, "the page warns of the cache"


def test_a_bad_document_is_masked_and_named_and_the_rest_stays(page: Recipe, tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture) -> None:
    needs_torch()
    of_corpus = documents()
    of_corpus[3][2] = 300
    write_megatron(tmp_path / "tokens", "web_text_document", of_corpus[:200])
    page.run("spdl-ctl index tokens")
    job = the_job(tmp_path)
    rows: list[list[tuple[Any, Any]]] = []
    for vocab in (257, 301):
        job["column"][0]["vocab"] = vocab
        with spdl_cluster.local(job, tensors="torch") as loader:
            rows.append([row for batch in loader for row in zip(batch["tokens"].clone(), batch["labels"].clone())])
    differing = 0
    for (masked, masked_labels), (right, right_labels) in zip(*rows, strict=True):
        changed = masked != right
        assert (masked[changed] == 0).all() and (masked_labels[changed] == -100).all()
        assert (masked_labels == right_labels)[~changed].all() or changed.any()
        differing += int(changed.any())
    assert differing in (1, 2), "it is in one sequence, or its parts in two"
    assert 'key="web_text_document/000003"' in caplog.text and "has id 300 at place 2" in caplog.text, caplog.text


def in_datatrove(folder: pathlib.Path, of_corpus: list[Tokens]) -> list[str]:
    (folder / "web.ds").write_bytes(numpy.concatenate(of_corpus).astype("<u2").tobytes())
    (folder / "web.ds.index").write_bytes(numpy.cumsum([len(tokens) for tokens in of_corpus]).astype("<u8").tobytes())
    return []


def with_an_end(folder: pathlib.Path, of_corpus: list[Tokens]) -> list[str]:
    """Writes ids alone, each document with its end."""
    ended = [numpy.append(tokens, EOS).astype("<u4") for tokens in of_corpus]
    (folder / "part-0.npy").write_bytes(numpy.concatenate(ended).tobytes())
    return ["--dtype", "u32", "--end-token", str(EOS)]


def in_parquet(folder: pathlib.Path, of_corpus: list[Tokens]) -> list[str]:
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    parquet = pytest.importorskip("pyarrow.parquet")
    lists = pyarrow.array([tokens.astype("int32") for tokens in of_corpus], pyarrow.list_(pyarrow.int32()))
    parquet.write_table(pyarrow.table({"input_ids": lists}), folder / "part.parquet", row_group_size=100)
    return []


def in_mds(folder: pathlib.Path, of_corpus: list[Tokens]) -> list[str]:
    def encoded(tokens: Tokens) -> bytes:
        array = struct.pack("<BI", 1 << 2 | 2, len(tokens)) + tokens.astype("<u2").tobytes()
        return struct.pack("<I", len(array)) + array

    mds.write_shard(folder, {"input_ids": ("ndarray:uint16", None)}, [encoded(tokens) for tokens in of_corpus])
    return []


def in_tfrecord(folder: pathlib.Path, of_corpus: list[Tokens]) -> list[str]:
    """Writes TensorFlow's examples, each with a list of integers; that of an empty document has no type."""

    def delimited(number: int, content: bytes) -> bytes:
        return bytes([number << 3 | 2]) + varint(len(content)) + content

    def varint(value: int) -> bytes:
        return bytes([value]) if value < 128 else bytes([value & 127 | 128]) + varint(value >> 7)

    with (folder / "some.tfrecord").open("wb") as file:
        for tokens in of_corpus:
            values = delimited(1, b"".join(varint(int(token)) for token in tokens))
            feature = delimited(1, b"input_ids") + delimited(2, delimited(3, values) if len(tokens) else b"")
            example = delimited(1, delimited(1, feature))
            length = struct.pack("<Q", len(example))
            file.write(length + masked_crc32c(length) + example + masked_crc32c(example))
    return []


def in_tars(folder: pathlib.Path, of_corpus: list[Tokens]) -> list[str]:
    with tarfile.open(folder / "0.tar", "w") as tar:
        for number, tokens in enumerate(of_corpus):
            file = io.BytesIO()
            numpy.save(file, tokens)
            member = tarfile.TarInfo(f"{number:04}.npy")
            member.size = len(file.getvalue())
            tar.addfile(member, io.BytesIO(file.getvalue()))
    return []


#: How each of the page's formats is written, and the field of its records.
FORMATS: list[tuple[Callable[[pathlib.Path, list[Tokens]], Iterable[str]], str]] = [
    (in_datatrove, "tokens"),
    (with_an_end, "tokens"),
    (in_parquet, "input_ids"),
    (in_mds, "input_ids"),
    (in_tfrecord, "input_ids"),
    (in_tars, "npy"),
]


@pytest.mark.parametrize(("write", "field"), FORMATS, ids=lambda case: getattr(case, "__name__", None))
def test_each_format_gives_each_token_once(
    write: Callable[[pathlib.Path, list[Tokens]], list[str]], field: str, page: Recipe, corpus: list[Tokens], tmp_path: pathlib.Path
) -> None:
    (tmp_path / "other").mkdir()
    ctl("index", tmp_path / "other", *write(tmp_path / "other", corpus))
    job = the_job(tmp_path, "other", sequence={"seq_len": 4096, "align": 1})
    job["column"][0]["from"] = field
    if write is with_an_end:
        del job["sequence"]["eos"]
    found = []
    with spdl_cluster.local(job, tensors="numpy") as loader:
        for batch in loader:
            for tokens, lengths in zip(batch["tokens"], batch["document_lengths"]):
                found += [part.tolist() for part in numpy.split(tokens, numpy.cumsum(lengths))[:-1]]
    # A document without tokens has no place, unless its end is stored.
    expected = [[*tokens.tolist(), EOS] for tokens in corpus if len(tokens) or write is with_an_end]
    assert sorted(found) == sorted(expected)

