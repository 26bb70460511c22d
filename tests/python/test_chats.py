"""Chats become the tokens of transformers' `apply_chat_template`, and what is learned is its `return_assistant_tokens_mask`: with
`{% generation %}` in the template, and without."""

from __future__ import annotations

import json
import os
import pathlib
import re
import subprocess
from typing import Any

import pytest

ABSENT = os.environ.get("SPDL_TEST_NO_FRAMEWORKS", "transformers is not installed")
transformers = pytest.importorskip("transformers", reason=ABSENT)
tokenizers = pytest.importorskip("tokenizers", reason=ABSENT)

ROOT = pathlib.Path(__file__).resolve().parents[2]
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


@pytest.fixture(scope="module")
def render() -> pathlib.Path:
    """The program that turns chats into tokens."""
    command = ["cargo", "build", "--locked", "--package", "spdl-text", "--example", "render", "--message-format=json-render-diagnostics"]
    output = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout
    programs = [message["executable"] for line in output.splitlines() if (message := json.loads(line)).get("executable")]
    return pathlib.Path(programs[-1])


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


def ours(render: pathlib.Path, template: str, tokenizer: pathlib.Path, folder: pathlib.Path, *arguments: str) -> dict[str, dict[str, Any]]:
    """Returns the result for each conversation."""
    (folder / "template.jinja").write_text(template)
    (folder / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<s>", "eos_token": "</s>"}))
    command = [render, folder / "template.jinja", tokenizer, folder / "tokenizer_config.json", *arguments]
    records = "".join(json.dumps(conversation) + "\n" for conversation in CONVERSATIONS.values())
    output = subprocess.run(command, check=True, input=records.encode(), stdout=subprocess.PIPE).stdout
    return dict(zip(CONVERSATIONS, map(json.loads, output.splitlines()), strict=True))


@pytest.mark.parametrize("name", TEMPLATES)
def test_ids_and_masks_are_those_of_transformers(name: str, render: pathlib.Path, tokenizer: tuple[pathlib.Path, Any], tmp_path: pathlib.Path) -> None:
    path, theirs = tokenizer
    template, compared = TEMPLATES[name], 0
    by_hand, derived = (ours(render, text, path, tmp_path) for text in (template, stock(template)))
    for case, conversation in CONVERSATIONS.items():
        options = {"tokenize": True, "return_dict": True, "return_assistant_tokens_mask": True, "tools": conversation.get("tools")}
        try:
            expected = theirs.apply_chat_template(conversation["messages"], chat_template=template, **options)
        except Exception as refused:
            assert "alternate" in str(refused)
            assert "alternate" in by_hand[case]["error"], case
            assert "alternate" in derived[case]["error"], case
            continue
        for result in (by_hand[case], derived[case]):
            assert "error" not in result, (case, result)
            assert result["ids"] == expected["input_ids"], case
            assert [int(learned) for learned in result["learned"]] == expected["assistant_masks"], (case, result["shown"])
        assert 0 < sum(expected["assistant_masks"]) < len(expected["input_ids"])
        # What people get without knowing it.
        silent = theirs.apply_chat_template(conversation["messages"], chat_template=stock(template), **options)
        assert silent["input_ids"] == expected["input_ids"]
        assert sum(silent["assistant_masks"]) == 0
        compared += 1
    assert compared == len(CONVERSATIONS) - 2 * (name == "gemma")


def test_the_last_turn_alone_is_learned(render: pathlib.Path, tokenizer: tuple[pathlib.Path, Any], tmp_path: pathlib.Path) -> None:
    path, _ = tokenizer
    last = ours(render, stock(TEMPLATES["qwen3"]), path, tmp_path, "last")
    every = ours(render, stock(TEMPLATES["qwen3"]), path, tmp_path)
    for case in CONVERSATIONS:
        starts = [at for at, (one, before) in enumerate(zip(every[case]["learned"], [False, *every[case]["learned"]], strict=False)) if one > before]
        expected = [one and at >= starts[-1] for at, one in enumerate(every[case]["learned"])]
        assert (last[case]["ids"], last[case]["learned"]) == (every[case]["ids"], expected), case
    everything = ours(render, stock(TEMPLATES["qwen3"]), path, tmp_path, "all")
    assert all(all(result["learned"]) for result in everything.values())
