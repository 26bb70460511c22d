"""`spdl-ctl inspect`: the documents of sequences as text, with what is learned, in the terminal and on a page."""

from __future__ import annotations

import html
import html.parser
import json
import os
import pathlib
import pty
import re
import subprocess
from typing import Any

import numpy
import pytest
import spdl_cluster
from conftest import LIMIT_S, ctl
from test_chats import TEMPLATES, TOKENIZER, source, turns
from test_tokenize import refused, write_lines

SEQ_LEN = 96
#: What no terminal and no page may get from a document.
HOSTILE = "\x1b[2J\x1b]0;owned\x07 \u202e<script>alert(1)</script> </pre> &amp; \x9b31m"
TEXTS = [
    "The manifest is written last.",
    "\u6f22\u5b57\u304b\u306a \U0001f469\u200d\U0001f469\u200d\U0001f467 caf\u00e9 " * 12,
    HOSTILE,
    "a\n\n\tb <|user|> c",
]
#: A document, and a line before it: its key, its tokens, where it is, what is learned, and what of it is here.
DOCUMENT = re.compile(
    r"^--- (?P<key>\S+): (?P<tokens>[\d ]+) tokens? from place (?P<at>[\d ]+), (?P<learned>[\d ]+) learned"
    r"(?:; begins with its token (?P<first>[\d ]+))?(?P<cut>; its end is not here)? ---\n(?P<text>.*?)\n(?=^--- |^=== |\Z)",
    re.MULTILINE | re.DOTALL,
)
COLUMNS: list[dict[str, Any]] = [
    {"name": "tokens", "from": "tokens", "decode": "tokens", "vocab": 1000},
    {"name": "labels", "decode": "labels", "follows": "tokens"},
]


def write_job(folder: pathlib.Path, dataset: pathlib.Path, *columns: dict[str, Any], **sequence: Any) -> pathlib.Path:
    """Writes a job file of a dataset's sequences, and returns its path."""
    lines = ['name = "t"', f'dataset = "{dataset}"', "seed = 1", "epochs = 2", "global_batch = 1", "[sequence]"]
    lines += [f"{key} = {json.dumps(value)}" for key, value in {"seq_len": SEQ_LEN, **sequence}.items()]
    for column in columns or tuple(COLUMNS):
        lines += ["[[column]]", *(f"{key} = {json.dumps(value)}" for key, value in column.items())]
    path = folder / "job.toml"
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture
def texts(tmp_path: pathlib.Path) -> pathlib.Path:
    """Returns a dataset of texts, some of them odd."""
    write_lines(tmp_path / "a.jsonl", TEXTS * 3)
    ctl("tokenize", tmp_path / "a.jsonl", tmp_path / "set", "--tokenizer", TOKENIZER, "--no-shuffle")
    return tmp_path / "set"


def number(text: str | None) -> int:
    return int((text or "0").replace(" ", ""))


def shown(*arguments: object) -> list[dict[str, Any]]:
    """Returns the documents that are shown, in their order."""
    return [found.groupdict() for found in DOCUMENT.finditer(ctl("inspect", *arguments).stdout)]


def printable(text: str) -> str:
    """Returns a text as it is shown in a terminal."""
    return re.sub("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]", lambda odd: f"\\u{{{ord(odd[0]):x}}}", text)


@pytest.mark.parametrize("sequence", [{}, {"align": 1, "long": "truncate"}, {"method": "chunk"}, {"method": "chunk", "cross_documents": False}])
@pytest.mark.parametrize("shifted", [True, False])
def test_text_keys_and_learned_tokens_are_those_of_the_batches(
    texts: pathlib.Path, tmp_path: pathlib.Path, sequence: dict[str, Any], shifted: bool
) -> None:
    tokenizers = pytest.importorskip("tokenizers", reason=os.environ.get("SPDL_TEST_NO_FRAMEWORKS", "tokenizers is not installed"))
    tokenizer = tokenizers.Tokenizer.from_file(str(TOKENIZER))
    job = write_job(tmp_path, texts, COLUMNS[0], {**COLUMNS[1], "shifted": shifted}, **sequence)
    begin = (1, 3)
    with spdl_cluster.local(job, tensors="numpy", start=begin) as loader:
        batches = [(batch["tokens"][0].copy(), batch["labels"][0].copy()) for _, batch in zip(range(4), loader)]
    documents = shown(job, "--tokenizer", TOKENIZER, "--from", "1:3", "--sequences", len(batches))
    names = [json.loads(line)["documents"] for line in ctl("plan", job, "--epoch", 1, "--from", 3, "--steps", 4, "--ids", "--keys").stdout.splitlines()]
    assert [document["key"] for document in documents] == [name["key"] for [of_step] in names for name in of_step]
    sequences: list[list[dict[str, Any]]] = []
    for document in documents:
        if number(document["at"]) == 0:
            sequences.append([])
        sequences[-1].append(document)
    assert len(sequences) == len(batches)
    for of_sequence, (tokens, labels) in zip(sequences, batches, strict=True):
        for document in of_sequence:
            at, end = number(document["at"]), number(document["at"]) + number(document["tokens"])
            text = printable(tokenizer.decode(tokens[at:end].tolist(), skip_special_tokens=False))
            # A character that is cut is one sign here, and one for each byte there.
            assert re.sub("\ufffd+", "\ufffd", document["text"].replace("[[", "").replace("]]", "")) == re.sub("\ufffd+", "\ufffd", text)
            places = range(at + 1, end) if shifted else range(at, end)
            within = sum(labels[place - shifted] != -100 for place in places)
            before = shifted and at > 0 and not number(document["first"]) and labels[at - 1] == tokens[at] and sequence.get("cross_documents", "method" in sequence)
            assert number(document["learned"]) == within + before
            if shifted and "method" not in sequence:
                # A part of a document has the next token for the label of its last place.
                assert bool(document["cut"]) == (labels[end - 1] != -100)


def test_a_sequence_of_a_blend_has_the_name_of_its_source(texts: pathlib.Path, tmp_path: pathlib.Path) -> None:
    write_lines(tmp_path / "b.jsonl", ["Other texts, whose sequences come less often."] * 9)
    ctl("tokenize", tmp_path / "b.jsonl", tmp_path / "others", "--tokenizer", TOKENIZER, "--no-shuffle")
    job = write_job(tmp_path, texts)
    assert " of source " not in ctl("inspect", job, "--tokenizer", TOKENIZER).stdout
    sources = "".join(f'[[source]]\nname = "{name}"\ndataset = "{folder}"\nweight = {weight}\n' for name, folder, weight in [("odd", texts, 3), ("plain", tmp_path / "others", 1)])
    job.write_text(job.read_text().replace(f'dataset = "{texts}"\n', "").replace("[[column]]", f"{sources}[[column]]", 1))
    with spdl_cluster.local(job, tensors="numpy", start=(1, 0)) as loader:
        plain = loader.sources["plain"]
        expected = ["plain" if int(batch.ids[0]) in plain else "odd" for _, batch in zip(range(8), loader)]
    _, *sequences = ctl("inspect", job, "--tokenizer", TOKENIZER, "--from", "1:0", "--sequences", len(expected)).stdout.split("=== sequence ")
    assert [re.match(r"1:\d+ of source (\w+): ", sequence)[1] for sequence in sequences] == expected and set(expected) == {"odd", "plain"}  # type: ignore[index]
    assert ["whose sequences come" in sequence for sequence in sequences] == [source == "plain" for source in expected]
    page = tmp_path / "page.html"
    ctl("inspect", job, "--tokenizer", TOKENIZER, "--from", "1:0", "--html", page)
    assert f"<h2>sequence 1:0 of source {expected[0]}: " in page.read_text()


def test_chats_are_shown_as_tokenize_shows_them(tmp_path: pathlib.Path) -> None:
    records = [{"messages": turns(f"Question {number}", f"Answer {number} {HOSTILE}")} for number in range(6)]
    arguments = source(records, TEMPLATES["chatml"], TOKENIZER, tmp_path)
    told = ctl("tokenize", *arguments, "--show", "6").stdout
    chats = re.findall(r"^--- chat \d ---\n(.*?)\n(?=--- chat|\S+: 6 samples)", told, re.MULTILINE | re.DOTALL)
    assert len(chats) == 6 and all(chat.count("[[") == 1 for chat in chats), told
    job = write_job(tmp_path, tmp_path / "out", COLUMNS[0], {**COLUMNS[1], "loss_from": "loss"}, seq_len=1024)
    documents = shown(job, "--tokenizer", tmp_path / "model")
    assert sorted(document["text"] for document in documents) == sorted(chats)
    assert [document["first"] or document["cut"] for document in documents] == [None] * 6
    masks = write_job(tmp_path, tmp_path / "out", COLUMNS[0], {"name": "mask", "decode": "loss_mask", "follows": "tokens", "loss_from": "loss"}, seq_len=1024)
    assert shown(masks, "--tokenizer", tmp_path / "model") == documents
    alone = write_job(tmp_path, tmp_path / "out", COLUMNS[0], seq_len=1024)
    assert all(document["text"].startswith("[[<|im_start|>") for document in shown(alone, "--tokenizer", tmp_path / "model"))


class Visible(html.parser.HTMLParser):
    """Collects the text of a page, and the elements that it has."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.elements: set[str] = set()
        self._open: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.add(tag)
        if tag == "pre":
            self.texts.append("")
        if tag != "meta":
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "pre" in self._open:
            self.texts[-1] += data


def test_a_page_has_the_same_and_nothing_of_a_document_is_markup(texts: pathlib.Path, tmp_path: pathlib.Path) -> None:
    job = write_job(tmp_path, texts)
    page = tmp_path / "page.html"
    assert ctl("inspect", job, "--tokenizer", TOKENIZER, "--sequences", 5, "--html", page).stdout == f"5 sequences in {page}\n"
    text = page.read_text()
    visible = Visible(text)
    expected = [document["text"].replace("[[", "").replace("]]", "") for document in shown(job, "--tokenizer", TOKENIZER, "--sequences", 5)]
    assert visible.texts == expected and any("<script>" in text for text in expected)
    assert visible.elements == {"html", "head", "meta", "title", "style", "body", "main", "h1", "p", "span", "section", "h2", "article", "h3", "code", "small", "pre"}
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", text)
    assert 'class="learned"' in text and 'class="masked added">&lt;|user|&gt;' not in text and "prefers-color-scheme: dark" in text


def test_a_terminal_gets_colours_and_no_commands_of_a_document(texts: pathlib.Path, tmp_path: pathlib.Path) -> None:
    job = write_job(tmp_path, texts, seq_len=1024)
    ours_end, its_end = pty.openpty()
    coloured = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    command = [os.environ["SPDL_TEST_CTL"], "inspect", str(job), "--tokenizer", str(TOKENIZER), "--sequences", "3"]
    process = subprocess.Popen(command, stdout=its_end, stderr=subprocess.DEVNULL, env=coloured)
    os.close(its_end)
    written = b""
    while True:
        try:
            read = os.read(ours_end, 65536)
        except OSError:
            break
        if not read:
            break
        written += read
    os.close(ours_end)
    assert process.wait(LIMIT_S) == 0
    assert b"\x1b[1;32m" in written and b"]0;owned\\u{7} \\u{202e}<script>" in written
    assert set(re.findall(rb"\x1b[^m]*m", written)) == {b"\x1b[1;32m", b"\x1b[2m", b"\x1b[4m", b"\x1b[0m"}
    assert set(re.findall("[\x00-\x1f\x7f-\x9f\u202e]", written.decode())) == {"\x1b", "\r", "\n", "\t"}


def test_ordinary_mistakes_say_what_to_do(texts: pathlib.Path, tmp_path: pathlib.Path) -> None:
    job = write_job(tmp_path, texts)
    other = json.loads(TOKENIZER.read_text())
    other["added_tokens"][1]["content"] = "<|human|>"
    (tmp_path / "tokenizer.json").write_text(json.dumps(other))
    told = refused("inspect", job, "--tokenizer", tmp_path / "tokenizer.json")
    assert "`tokenizer` is `" in told and "was tokenized with 1000 ids of tokenizer" in told and "give the tokenizer.json that it was made with" in told
    assert "epoch 7" in refused("inspect", job, "--tokenizer", TOKENIZER, "--from", "7:0")
    pictures = tmp_path / "pictures.toml"
    pictures.write_text(re.sub(r"(?s)\[sequence\].*?(?=\[\[column)", "", job.read_text()).split("[[column]]\nname = \"labels\"")[0])
    told = refused("inspect", pictures, "--tokenizer", TOKENIZER)
    assert "job `t` packs no documents of tokens" in told and "spdl-ctl replay" in told
    told = refused("inspect", job, "--tokenizer", TOKENIZER, "--html", tmp_path / "none/page.html")
    assert "cannot write `" in told and "page.html" in told


def test_tokens_of_no_known_tokenizer_take_any(tmp_path: pathlib.Path) -> None:
    tokens = numpy.array([583, 853, 297, 638, 934, 737, 15, 40_000, 200], "<u2")
    (tmp_path / "set").mkdir()
    (tmp_path / "set/a.ds").write_bytes(tokens.tobytes())
    (tmp_path / "set/a.ds.index").write_bytes(numpy.array([len(tokens)], "<u8").tobytes())
    ctl("index", tmp_path / "set")
    job = write_job(tmp_path, tmp_path / "set", {**COLUMNS[0], "vocab": 50257}, COLUMNS[1])
    [document] = shown(job, "--tokenizer", TOKENIZER)
    assert document["text"] == "The[[ manifest is written last.<id 40000>\n]]"
