"""Chats become the tokens of transformers' `apply_chat_template`, and what is learned is its `return_assistant_tokens_mask`: with
`{% generation %}` in the template, and without."""

from __future__ import annotations

import copy
import datetime
import json
import os
import pathlib
import pty
import re
import shutil
import signal
import subprocess
import time
from typing import Any

import numpy
import pytest
import spdl_cluster
from conftest import FRAMEWORKS_HERE, LIMIT_S, LazyModule, ctl, ctl_json, files

ABSENT = os.environ.get("SPDL_TEST_NO_FRAMEWORKS", "transformers is not installed")
transformers: Any = LazyModule("transformers", ABSENT)
tokenizers = pytest.importorskip("tokenizers", reason=ABSENT)

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOKENIZER = ROOT / "crates/text/tests/data/tokenizer.json"
TEMPLATES = {path.stem: path.read_text() for path in sorted((ROOT / "crates/text/tests/templates").glob("*.jinja"))}
SPECIAL = ["<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<start_of_turn>", "<end_of_turn>"]
SPECIAL += ["[INST]", "[/INST]", "<|start|>", "<|message|>", "<|channel|>", "<|end|>", "<|call|>", "<|return|>"]
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "The weather <now>, \"there\" & 'then': é, 漢字",
            "parameters": {"type": "object", "properties": {"items": {"type": "array"}, "city": {"type": "string"}}, "required": ["city"]},
        },
    }
]
CALL = {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": {"name": "weather", "arguments": {"city": "Zürich", "days": 1.5, "at": 1e-7}}}]}


def turns(*contents: str, system: str | None = None) -> list[dict[str, Any]]:
    spoken = [{"role": ["user", "assistant"][number % 2], "content": content} for number, content in enumerate(contents)]
    return [{"role": "system", "content": system}] * (system is not None) + spoken


CONVERSATIONS: dict[str, dict[str, Any]] = {
    "one turn": {"messages": turns("Hello, who are you?", "A model. 👋🏽")},
    "turns": {"messages": turns("  What is 2+2?\n", "4\n\nYes. ", "漢字 ñandú?", "Two words,\tand cafe\u0301", "!", "👩‍👩‍👧‍👦")},
    "equal turns": {"messages": turns("a", "a", "a", "a", "a", "a", system="a")},
    "system": {"messages": turns("Hello", "Hi", "Bye", "Bye", system="Be terse: e\u0301.")},
    "question at the end": {"messages": turns("Hello", "Hi", "And?")},
    "thinking": {"messages": turns("a", "<think>\nfirst\n</think>\n\nb", "c", "<think>\nsecond\n</think>\n\nd")},
    "reasoning": {"messages": [turns("a")[0], {"role": "assistant", "content": "b", "reasoning_content": "one"}, *turns("c", "d")]},
    "tools": {"messages": [*turns("Rain?"), CALL, {"role": "tool", "name": "weather", "content": '{"t": 21}'}, *turns("", "No.")[1:]], "tools": TOOLS},
    "tools twice": {
        "messages": [*turns("Rain?", system="s"), CALL, {"role": "tool", "content": "21"}, *turns("", "No.", "Sure?")[1:], CALL, {"role": "tool", "content": "22"}, *turns("", "Yes.")[1:]],
        "tools": TOOLS,
    },
    "tools unused": {"messages": turns("Hello", "Hi", "Bye", "Bye"), "tools": TOOLS},
}


def stock(template: str) -> str:
    """Returns a template without `{% generation %}`, with all whitespace as it was."""
    return re.sub(r"(\{%[-+]? )(end)?generation( [-+]?%\})", lambda tag: tag[1] + ("endif" if tag[2] else "if true") + tag[3], template)


@pytest.fixture(scope="module", params=["plain", "NFC"])
def tokenizer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[pathlib.Path, Any]:
    """The file of a tokenizer that is trained on our own pages, and the tokenizer for transformers."""
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    if request.param != "plain":
        made.normalizer = tokenizers.normalizers.NFC()
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=1000, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False)
    made.train_from_iterator([(ROOT / page).read_text() for page in ("README.md", "CONTRIBUTING.md")], trainer)
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    made.save(str(path))
    return path, transformers.PreTrainedTokenizerFast(tokenizer_object=made, bos_token="<s>", eos_token="</s>")


def in_files(dataset: pathlib.Path) -> list[tuple[list[int], list[int]]]:
    """Returns ids and masks of the documents of datatrove's files, in their order."""
    documents = []
    for path in sorted(dataset.glob("*.ds")):
        ends = numpy.fromfile(f"{path}.index", "<u8").tolist()
        tokens, learned = numpy.fromfile(path, "<u2").tolist(), numpy.fromfile(f"{path}.loss", "u1").tolist()
        assert len(tokens) == len(learned) == ends[-1]
        documents += [(tokens[first:end], learned[first:end]) for first, end in zip([0, *ends], ends, strict=False)]
    return documents


def ours(records: list[dict[str, Any]], template: str, tokenizer: pathlib.Path, folder: pathlib.Path, *arguments: object) -> list[tuple[list[int], list[int]]]:
    """Returns ids and mask of each record, as the command writes them."""
    ctl("tokenize", *source(records, template, tokenizer, folder), "--no-shuffle", "--name", "set", "--force", *arguments)
    return in_files(folder / "out")


def source(records: list[dict[str, Any]], template: str, tokenizer: pathlib.Path, folder: pathlib.Path) -> list[object]:
    """Writes records and a model's folder, and returns arguments of the command that tokenizes them."""
    model = folder / "model"
    model.mkdir(exist_ok=True)
    shutil.rmtree(folder / "out", ignore_errors=True)
    (model / "chat_template.jinja").write_text(template)
    (model / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<s>", "eos_token": "</s>"}))
    shutil.copy(tokenizer, model / "tokenizer.json")
    (folder / "chats.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return [folder / "chats.jsonl", folder / "out", "--tokenizer", model, "--chat"]


def refused(*arguments: object) -> str:
    """Runs a command that has to fail, and returns what it prints on standard error."""
    done = subprocess.run([os.environ["SPDL_TEST_CTL"], *map(str, arguments)], capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode in (1, 2), f"{done.stdout}\n{done.stderr}"
    return done.stderr


@FRAMEWORKS_HERE
@pytest.mark.parametrize("name", TEMPLATES)
def test_ids_and_masks_are_those_of_transformers(name: str, tokenizer: tuple[pathlib.Path, Any], tmp_path: pathlib.Path) -> None:
    path, theirs = tokenizer
    template = TEMPLATES[name]
    taken: list[dict[str, Any]] = []
    expected: list[tuple[list[int], list[int]]] = []
    for case, conversation in CONVERSATIONS.items():
        options = {"tokenize": True, "return_dict": True, "return_assistant_tokens_mask": True, "tools": conversation.get("tools")}
        try:
            made = theirs.apply_chat_template(conversation["messages"], chat_template=template, **options)
        except Exception as error:
            assert "alternate" in str(error)
            for text in (template, stock(template)):
                told = refused("tokenize", *source([*taken, conversation], text, path, tmp_path))
                assert f"chats.jsonl:{len(taken) + 1}` is refused: template `" in told and "alternate" in told, case
            continue
        taken.append(conversation)
        expected.append((made["input_ids"], made["assistant_masks"]))
        assert 0 < sum(made["assistant_masks"]) < len(made["input_ids"])
        # What people get without knowing it.
        silent = theirs.apply_chat_template(conversation["messages"], chat_template=stock(template), **options)
        assert silent["input_ids"] == made["input_ids"]
        assert sum(silent["assistant_masks"]) == 0
    assert len(taken) == len(CONVERSATIONS) - 2 * (name == "gemma")
    assert ours(taken, template, path, tmp_path) == expected
    assert ours(taken, stock(template), path, tmp_path) == expected


@FRAMEWORKS_HERE
@pytest.mark.parametrize("in_files_of_their_own", [True, False])
def test_a_model_may_have_several_templates(in_files_of_their_own: bool, tokenizer: tuple[pathlib.Path, Any], tmp_path: pathlib.Path) -> None:
    path, theirs = tokenizer
    theirs = copy.deepcopy(theirs)
    theirs.chat_template = {"default": TEMPLATES["chatml"], "tool_use": TEMPLATES["qwen3"], "rag": TEMPLATES["llama3"]}
    records = [CONVERSATIONS["turns"], CONVERSATIONS["tools"]]
    chats, *_ = source(records, "", path, tmp_path)
    model = tmp_path / "several"
    theirs.save_pretrained(model, save_jinja_files=in_files_of_their_own)
    assert (model / "additional_chat_templates/rag.jinja").exists() == in_files_of_their_own
    rest = ["--tokenizer", model, "--no-shuffle"]
    for chosen, options in {None: ["--chat"], "rag": ["--template", "rag"], "tool_use": ["--template", "tool_use"]}.items():
        asked = {"chat_template": chosen, "tokenize": True, "return_dict": True, "return_assistant_tokens_mask": True}
        made = [theirs.apply_chat_template(record["messages"], tools=record.get("tools"), **asked) for record in records]
        out = tmp_path / f"out-{chosen}"
        ctl("tokenize", chats, out, *rest, *options)
        assert in_files(out) == [(one["input_ids"], one["assistant_masks"]) for one in made], chosen
    told = refused("tokenize", chats, tmp_path / "refused", *rest, "--template", "summary")
    assert "has no chat template `summary`, but `default`, " in told and "or give the path of a file" in told, told


@FRAMEWORKS_HERE
def test_the_last_turn_alone_is_learned(tokenizer: tuple[pathlib.Path, Any], tmp_path: pathlib.Path) -> None:
    path, _ = tokenizer
    records, template = list(CONVERSATIONS.values()), stock(TEMPLATES["qwen3"])
    every, last, everything = (ours(records, template, path, tmp_path, "--train-on", what) for what in ("assistant", "last", "all"))
    for (ids, learned), of_last, of_all in zip(every, last, everything, strict=True):
        starts = [at for at, (one, before) in enumerate(zip(learned, [0, *learned], strict=False)) if one > before]
        assert of_last == (ids, [int(one and at >= starts[-1]) for at, one in enumerate(learned)])
        assert of_all == (ids, [1] * len(ids))


def test_chats_of_parquet_are_those_of_json_lines(tmp_path: pathlib.Path) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason=os.environ.get("SPDL_TEST_NO_FRAMEWORKS", "pyarrow is not installed"))
    parquet = pytest.importorskip("pyarrow.parquet", reason=os.environ.get("SPDL_TEST_NO_FRAMEWORKS", "pyarrow is not installed"))
    chats = [{**chat, "id": number, "score": number / 3, "day": datetime.date(2026, 1, 1 + number)} for number, chat in enumerate(CONVERSATIONS.values())]
    # Structs of a column have all fields of all rows; what a row lacks is null, as in `datasets`.
    table = pyarrow.Table.from_pylist(chats)
    rows = [{**row, "day": str(row["day"])} for row in table.to_pylist()]
    expected = ours(rows, TEMPLATES["qwen3"], TOKENIZER, tmp_path)
    assert len(expected) == len(CONVERSATIONS)
    for number, options in enumerate([{}, {"row_group_size": 2, "compression": "zstd"}, {"data_page_size": 64, "use_dictionary": False, "data_page_version": "2.0"}]):
        parquet.write_table(table, tmp_path / "chats.parquet", **options)
        ctl("tokenize", tmp_path / "chats.parquet", tmp_path / f"out-{number}", "--tokenizer", tmp_path / "model", "--chat", "--no-shuffle", "--name", "set")
        assert in_files(tmp_path / f"out-{number}") == expected
    # What is wrong names the row.
    parquet.write_table(pyarrow.Table.from_pylist([{"messages": turns("a", "b")}, {"messages": turns("a")}]), tmp_path / "chats.parquet")
    arguments = [tmp_path / "chats.parquet", tmp_path / "refused", "--tokenizer", tmp_path / "model", "--chat"]
    assert "chats.parquet, row 1` is refused: it has no assistant turn; its roles are `user`" in refused("tokenize", *arguments)
    whole = (tmp_path / "chats.parquet").read_bytes()
    (tmp_path / "chats.parquet").write_bytes(whole[:200] + whole[300:])
    told = refused("tokenize", arguments[0], tmp_path / "cut", *arguments[2:])
    assert "chats.parquet` cannot be read as Parquet" in told


def test_a_job_learns_what_the_masks_state(tmp_path: pathlib.Path) -> None:
    records = list(CONVERSATIONS.values()) * 4
    documents = ours(records, TEMPLATES["chatml"], TOKENIZER, tmp_path)
    suggested = ctl_json("info", tmp_path / "out")["job"]
    assert "loss_from = \"loss\"" in suggested and "vocab = 1000 " in suggested
    columns = [{"name": "tokens", "from": "tokens", "decode": "tokens", "vocab": 1000}, {"name": "labels", "decode": "labels", "follows": "tokens", "loss_from": "loss"}, {"name": "document_lengths", "decode": "document_lengths", "follows": "tokens"}]
    job = {"name": "t", "dataset": str(tmp_path / "out"), "seed": 1, "epochs": 1, "global_batch": 1, "sequence": {"seq_len": 1024, "long": "drop", "align": 1}, "column": columns}
    delivered = []
    with spdl_cluster.local(job, tensors="numpy") as loader:
        for batch in loader:
            for row in range(len(batch["tokens"])):
                at = 0
                for length in batch["document_lengths"][row].tolist():
                    tokens, labels = (batch[name][row][at : at + length].tolist() for name in ("tokens", "labels"))
                    delivered.append((tokens, labels))
                    at += length
    expected = [(ids, [*(one if keep else -100 for one, keep in zip(ids[1:], learned[1:], strict=True)), -100]) for ids, learned in documents if len(ids) <= 1024]
    for document in expected:
        assert document in delivered
    assert sum(any(label != -100 for label in labels) for _, labels in delivered) == len(expected) > len(records) // 2


def test_a_chat_that_is_longer_than_a_sequence_is_named_with_what_to_do(tmp_path: pathlib.Path) -> None:
    records = [{"messages": turns("Hello", "word " * length)} for length in (3, 40, 5, 300)]
    documents = ours(records, TEMPLATES["chatml"], TOKENIZER, tmp_path)
    longest = max(len(ids) for ids, _ in documents)
    ctl("job", "init", tmp_path / "out", "--out", tmp_path / "chat.toml")
    written = (tmp_path / "chat.toml").read_text()
    whole = 1 << (longest - 1).bit_length()
    assert f"\nseq_len = {whole} " in written and '\nlong = "drop" ' in written and "\n# no `eos`: the template of the chats ends turns\n" in written
    short = written.replace(f"seq_len = {whole}", "seq_len = 128").replace("global_batch = ", "global_batch = 1 # ")
    (tmp_path / "drop.toml").write_text(short)
    plan = ctl("plan", tmp_path / "drop.toml")
    assert f"{longest} tokens are in no sequence: 0 documents are cut, and 1 left out" in plan.stdout.replace("\u202f", " ") and "warning" not in plan.stderr
    (tmp_path / "cut.toml").write_text(short.replace('long = "drop"', "# "))
    plan = ctl("plan", tmp_path / "cut.toml")
    told = "warning: 1 document with a mask is longer than a sequence of 128 tokens, and is cut: a part can have an answer without its question. "
    assert told + "The first is shard `shard-000000.ds/000000`, record `shard-000000/000003`; " in plan.stderr, plan.stderr
    assert f"with `seq_len = {longest}`" in plan.stderr and '`long = "drop"`' in plan.stderr
    (tmp_path / "split.toml").write_text(short.replace('long = "drop"', 'long = "split"'))
    assert "warning" not in ctl("plan", tmp_path / "split.toml").stderr
    # Also where all chats have one length, the dataset is one of tokens.
    ours(records[:1] * 9, TEMPLATES["chatml"], TOKENIZER, tmp_path)
    assert "\nseq_len = 128 " in ctl_json("info", tmp_path / "out")["job"]


@pytest.mark.drawn(1, group="tokenizings that are killed")
@pytest.mark.parametrize("order", [["--seed", "3"], ["--no-shuffle"]])
def test_parts_and_kills_change_nothing(tmp_path: pathlib.Path, order: list[str]) -> None:
    records = [{"messages": turns(f"Question {number}", "word " * (number % 40 + 1))} for number in range(1500)]
    first, out, *rest = source(records, TEMPLATES["chatml"], TOKENIZER, tmp_path)
    options = [*rest, *order, "--name", "set", "--unit-size", "4KiB", "--shard-size", "8KiB", "--block-size", "2KiB", "--threads", "1"]
    ctl("tokenize", first, out, *options)
    made = files(pathlib.Path(str(out)))
    assert len([name for name in made if str(name).endswith(".ds.loss")]) > 5
    # The same files as those that are indexed where they lie.
    shutil.copytree(str(out), tmp_path / "again", ignore=shutil.ignore_patterns(".spdl"))
    indexed = ctl_json("index", tmp_path / "again", "--block-size", "2KiB")
    assert (indexed["records"], ctl_json("info", out)["format"]) == (1500, "datatrove")
    assert {**files(tmp_path / "again"), ".spdl/manifest.spdl": b""} == {**made, ".spdl/manifest.spdl": b""}
    assert '"faults":[]' in ctl("verify", out, "--json").stdout.replace(" ", "")
    killed, patterns = 0, [".spdl/tokens/run-000003", "*.ds", "*.ds.loss", "*.ds.index", ".spdl/shard-*"]
    for number, pattern in enumerate(patterns):
        other = tmp_path / f"killed-{number}"
        # The first units are in memory, and lost.
        command = ["tokenize", first, other, *options, "--memory", "32KiB"]
        process = subprocess.Popen([os.environ["SPDL_TEST_CTL"], *map(str, command)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        limit = time.monotonic() + LIMIT_S
        while process.poll() is None and not list(other.glob(pattern)):
            assert time.monotonic() < limit
            time.sleep(0.001)
        process.send_signal(signal.SIGKILL)
        if process.wait() == -signal.SIGKILL:
            killed += 1
            ctl(*command)
        assert files(other) == made, pattern
    assert killed >= 3, "most moments come before the end"
    for part in ("1/2", "0/2"):
        ctl("tokenize", first, tmp_path / "parts", *options, "--part", part)
    ctl("merge", tmp_path / "parts")
    assert files(tmp_path / "parts") == made


def test_what_decides_tokens_has_to_be_repeated(tmp_path: pathlib.Path) -> None:
    records = [{"messages": turns("Hello", "Hi")}]
    dated = "{{ strftime_now('%d %b %Y') }} " + TEMPLATES["chatml"]
    begun = [*source(records, dated, TOKENIZER, tmp_path), "--date", "2026-01-31", "--part", "0/2"]
    ctl("tokenize", *begun)
    for changed, problem in [
        (["--date", "2026-02-01"], "the date (--date) was `2026-01-31`, and is `2026-02-01`"),
        (["--date", "2026-01-31", "--train-on", "all"], "what is learned (--train-on) was `assistant`, and is `all`"),
    ]:
        assert problem in refused("tokenize", *begun[:-4], *changed)
    (tmp_path / "model/chat_template.jinja").write_text(f"{dated} ")
    assert "the template was `" in refused("tokenize", *begun[:-2])
    ids = ours(records, dated, TOKENIZER, tmp_path, "--date", "2026-01-31")[0][0]
    assert tokenizers.Tokenizer.from_file(str(TOKENIZER)).decode(ids, skip_special_tokens=False).startswith("31 Jan 2026<|im_start|>")
    assert "a day as 2026-01-31 is expected" in refused("tokenize", *begun[:-4], "--date", "2026-02-30")


def test_chats_are_shown_before_the_work(tmp_path: pathlib.Path) -> None:
    records = [{"messages": turns(f"Question {number}", f"Answer {number}")} for number in range(3)]
    told = ctl("tokenize", *source(records, TEMPLATES["chatml"], TOKENIZER, tmp_path), "--show", "2", "--unit-size", "1").stdout
    begin = "--- chat 1 ---\n<|im_start|>user\nQuestion 0<|im_end|>\n<|im_start|>assistant\n[[Answer 0<|im_end|>"
    assert told.startswith(begin) and "--- chat 2 ---" in told and "Question 2" not in told
    assert "in 3 documents" in told
    ours_end, its_end = pty.openpty()
    arguments = source(records, TEMPLATES["chatml"], TOKENIZER, tmp_path)
    coloured = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    subprocess.run([os.environ["SPDL_TEST_CTL"], "tokenize", *map(str, arguments), "--show", "1"], stdout=its_end, stderr=subprocess.DEVNULL, env=coloured, check=True, timeout=LIMIT_S)
    os.close(its_end)
    shown = os.read(ours_end, 4096)
    os.close(ours_end)
    assert b"\x1b[2m<|im_start|>user\x1b[0m" in shown and b"\x1b[1;32mAnswer 0<|im_end|>\x1b[0m" in shown, shown


def test_ordinary_mistakes_name_the_chat_and_what_to_do(tmp_path: pathlib.Path) -> None:
    good = {"messages": turns("Hello", "Hi")}

    def told(record: dict[str, Any], template: str = TEMPLATES["chatml"], *options: object) -> str:
        found = refused("tokenize", *source([good, record], template, TOKENIZER, tmp_path), *options)
        assert not list((tmp_path / "out").glob("*.ds*"))
        return found

    assert "chats.jsonl:2` is refused: `completion` is a turn of the assistant without content: fill it, or leave the record out" in told({"prompt": "Hello", "completion": ""})
    assert "chats.jsonl:2` is refused: it has no assistant turn; its roles are" in told({"messages": turns("Hello")})
    assert "chats.jsonl:2` is refused: it has no conversation: its fields are" in told({"text": "Hello"})
    systematic = {"messages": turns("Hello", "Hi", system="Be terse.")}
    refusing = "{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}" + TEMPLATES["chatml"]
    problem = "line 1: it refuses the conversation: System role not supported; change the record, or give another template with --template"
    assert f"chats.jsonl:2` is refused: template `{tmp_path}/model/chat_template.jinja` {problem}" in told(systematic, refusing)
    silent = TEMPLATES["chatml"].replace("{%- for message in messages %}", "{%- for message in messages if message.role != 'system' %}")
    assert silent != TEMPLATES["chatml"]
    assert "does not write its system message `messages[0]`: take that out of the record, or give a template" in told(systematic, silent)
    # It writes the turns in reverse, so that a prompt is no beginning.
    reverse = "{% for m in messages | reverse %}<|im_start|>{{ m.role }}: {{ m.content }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}"
    undivided = told(good, reverse)
    assert "chats.jsonl:1` is refused: template `" in undivided and "{% generation %}" in undivided
    source([good], TEMPLATES["chatml"], TOKENIZER, tmp_path)
    (tmp_path / "chats.jsonl").write_text("x\n")
    arguments = [tmp_path / "chats.jsonl", tmp_path / "out", "--tokenizer", tmp_path / "model"]
    assert "chats.jsonl:1` is no JSON record" in refused("tokenize", *arguments, "--chat")
    (tmp_path / "chats.jsonl").write_text(json.dumps(good))
    (tmp_path / "model/chat_template.jinja").unlink()
    assert "`chat` finds no template beside the tokenizer: " in refused("tokenize", *arguments, "--chat")
    (tmp_path / "model/tokenizer_config.json").unlink()
    assert "`chat` finds no template beside the tokenizer, as `chat_template.jinja`" in refused("tokenize", *arguments, "--chat")
    (tmp_path / "a.jinja").write_text("{% for %}")
    assert "a.jinja` line 1:" in refused("tokenize", *arguments, "--template", tmp_path / "a.jinja")
    assert "cannot be used with" in refused("tokenize", *arguments, "--chat", "--append", "<|endoftext|>")
    # A template in tokenizer_config.json, and one that is named.
    (tmp_path / "model/tokenizer_config.json").write_text(json.dumps({"chat_template": TEMPLATES["chatml"], "eos_token": "</s>"}))
    (tmp_path / "a.txt").write_bytes(b"Hello")
    assert "a.txt` has no chats: they are read from JSON lines" in refused("tokenize", tmp_path / "a.txt", *arguments[1:], "--chat")
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    assert "a.parquet` cannot be read as Parquet" in refused("tokenize", tmp_path / "a.parquet", tmp_path / "other", *arguments[2:], "--chat")
    ctl("tokenize", *arguments, "--chat", "--force")
    of_config = in_files(tmp_path / "out")
    (tmp_path / "a.jinja").write_text(TEMPLATES["chatml"])
    ctl("tokenize", arguments[0], tmp_path / "named", *arguments[2:], "--template", tmp_path / "a.jinja")
    assert in_files(tmp_path / "named") == of_config
