"""The ids are those of Hugging Face's `tokenizers`, for tokenizers of models, on a sample; `tokenizer_ids.py` compares 10 MB."""

from __future__ import annotations

import os
import pathlib

import pytest
import sample_texts
import tokenizer_ids

#: A few hundred thousand bytes take seconds.
SAMPLE = 300_000


@pytest.mark.drawn(1, group="tokenizers of models")
@pytest.mark.parametrize("name", tokenizer_ids.PACKAGES)
def test_ids_are_those_of_tokenizers_for_models(name: str, tmp_path: pathlib.Path) -> None:
    seed = int(os.environ.get("SPDL_TEST_DRAW") or 17)
    print(f"seed {seed}")
    try:
        tokenizer_ids.reference()
        tokenizer = tokenizer_ids.model(name)
    except tokenizer_ids.Unavailable as reason:
        pytest.skip(str(reason))
    assert tokenizer_ids.difference(tokenizer, sample_texts.documents(SAMPLE, seed), tmp_path) is None


def test_a_difference_is_found_and_named(tmp_path: pathlib.Path) -> None:
    """The comparison itself can fail: with another tokenizer on one side, it does."""
    try:
        tokenizer_ids.reference()
    except tokenizer_ids.Unavailable as reason:
        pytest.skip(str(reason))
    ours = pathlib.Path(__file__).resolve().parents[2] / "crates/text/tests/data/tokenizer.json"
    (tmp_path / "model").mkdir()
    (tmp_path / "model/tokenizer.json").write_bytes(ours.read_bytes())
    texts = ["The manifest", "", "is <|user|> written last.\n"]
    assert tokenizer_ids.difference(tmp_path / "model", texts, tmp_path) is None
    reference = tokenizer_ids.ENCODE
    tokenizer_ids.ENCODE = reference.replace("ids = [", "texts[2] = texts[2].upper()\nids = [")
    try:
        found = tokenizer_ids.difference(tmp_path / "model", texts, tmp_path)
    finally:
        tokenizer_ids.ENCODE = reference
    assert found and found.startswith("document 2 differs from token 0 on: "), found
