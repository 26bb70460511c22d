"""datatrove's `.ds` as its own writer makes them, and tokens alone as Dolma and OLMo have them."""

from __future__ import annotations

import os
import pathlib

import numpy
import pytest
import spdl_cluster

ABSENT = os.environ.get("SPDL_TEST_NO_FRAMEWORKS", "datatrove is not installed")
DOCUMENTS = [[(31 * number + 7 * at) % 50_000 for at in range(number * 13 % 60)] for number in range(150)]


@pytest.mark.parametrize("token_size", [2, 4])
@pytest.mark.parametrize("has_loss", [False, True])
def test_every_document_is_that_of_datatrove(tmp_path: pathlib.Path, token_size: int, has_loss: bool) -> None:
    tokenizer = pytest.importorskip("datatrove.pipeline.tokens.tokenizer", reason=ABSENT, exc_type=ImportError)
    file = tokenizer.TokenizedFile(str(tmp_path), "00000_web.ds", save_loss_metadata=has_loss, token_size=token_size)
    for document in DOCUMENTS:
        file.write(document, [at % 3 > 0 for at in range(len(document))] if has_loss else None)
    file.write_final_metadata()
    file.close()
    assert spdl_cluster.index(tmp_path, block_size=512).records == len(DOCUMENTS)
    ours = spdl_cluster.open(tmp_path)
    assert ours.format == "datatrove"
    for number, (record, document) in enumerate(zip(ours, DOCUMENTS, strict=True)):
        assert (record.key, record["tokens"].dtype.itemsize) == (f"00000_web/{number:06}", token_size)
        assert record["tokens"].tolist() == document
        assert ("loss" in record) == has_loss
        if has_loss:
            assert record["loss"].tolist() == [int(at % 3 > 0) for at in range(len(document))]


def test_tokens_alone_are_divided_by_their_end_token(tmp_path: pathlib.Path) -> None:
    documents = [[*document, 50_256] for document in DOCUMENTS]
    numpy.array([token for document in documents for token in document], "uint32").tofile(tmp_path / "part-0.npy")
    spdl_cluster.index(tmp_path, dtype="u32", end_token=50_256)
    assert [record["tokens"].tolist() for record in spdl_cluster.open(tmp_path)] == documents
    with pytest.raises(spdl_cluster.SettingError, match="`dtype` is `u12`; known are: u8, u16"):
        spdl_cluster.index(tmp_path, dtype="u12", end_token=50_256, force=True)
    with pytest.raises(spdl_cluster.SettingError, match="`end_token` is not given"):
        spdl_cluster.index(tmp_path, format="raw_tokens", dtype="u32", force=True)
