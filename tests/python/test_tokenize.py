"""`spdl-ctl tokenize`: the ids are those of Hugging Face's `tokenizers`, and the files are the same whatever the threads, the parts and
how often it was killed."""

from __future__ import annotations

import collections
import gzip
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from typing import Any

import numpy
import pytest
import spdl_cluster
import stores
from conftest import LIMIT_S, ctl, ctl_json, files

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOKENIZER = ROOT / "crates/text/tests/data/tokenizer.json"
END = 0
#: Small shards and units, so that there are some of each.
SMALL = ["--tokenizer", TOKENIZER, "--shard-size", "48KiB", "--unit-size", "32KiB", "--block-size", "8KiB"]
ODD = [
    "\u00e9 e\u0301 \ufb01 \u00a0\u2003\u200d \u202e",
    "\U0001f469\u200d\U0001f469\u200d\U0001f467 \U0001f1e6\U0001f1f9 \U0001f44d\U0001f3fd",
    "\u0928\u092e\u0938\u094d\u0924\u0947 \u6f22\u5b57 \u0633\u0644\u0627\u0645 \u05e9\u05dc\u05d5\u05dd",
    "\x00\x01\x7f\ufeff\ufffd\U0010ffff",
    "a<|endoftext|>b <|user|>\n\n\t  x\r\n",
    "   ",
    "1234567890 don't WE'LL 3.14e-10",
]


def corpus() -> list[str]:
    """Returns pages and programs of this repository, and odd texts; one is empty."""
    paths = [*sorted(ROOT.glob("docs/guide/*.md")), *sorted(ROOT.glob("crates/text/src/**/*.rs")), *sorted(ROOT.glob("tests/python/test_m*.py"))]
    return [path.read_text() for path in paths] + ODD + [""]


def write_lines(path: pathlib.Path, texts: list[str], field: str = "text") -> None:
    lines = [json.dumps({"id": number, field: text}, ensure_ascii=number % 2 == 0) for number, text in enumerate(texts)]
    path.write_text("".join(f"{line}\n" for line in lines))


def write_folder(folder: pathlib.Path, texts: list[str]) -> pathlib.Path:
    """Writes texts to several files of JSON lines."""
    folder.mkdir()
    for number in range(5):
        write_lines(folder / f"{number}.jsonl", texts[number::5])
    return folder


def documents(dataset: pathlib.Path) -> list[tuple[int, ...]]:
    return [tuple(record["tokens"].tolist()) for record in spdl_cluster.open(dataset)]


def refused(*arguments: object) -> str:
    """Runs a command that has to fail, and returns what it prints on standard error."""
    done = subprocess.run([os.environ["SPDL_TEST_CTL"], *map(str, arguments)], capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 1, f"{done.stdout}\n{done.stderr}"
    return done.stderr


def ids(texts: list[str]) -> list[tuple[int, ...]]:
    """Returns what Hugging Face's own library makes of texts."""
    tokenizers = pytest.importorskip("tokenizers", reason=os.environ.get("SPDL_TEST_NO_FRAMEWORKS", "tokenizers is not installed"))
    tokenizer = tokenizers.Tokenizer.from_file(str(TOKENIZER))
    return [tuple(encoded.ids) for encoded in tokenizer.encode_batch(texts, add_special_tokens=False)]


def test_ids_are_those_of_tokenizers(tmp_path: pathlib.Path) -> None:
    texts = corpus()
    source = write_folder(tmp_path / "text", texts)
    told = ctl_json("tokenize", source, tmp_path / "shuffled", *SMALL)
    expected = [document for document in ids(texts) if document]
    made = documents(tmp_path / "shuffled")
    assert collections.Counter(made) == collections.Counter(expected)
    assert (told["records"], told["tokens"], told["empty_documents"]) == (len(expected), sum(map(len, expected)), 1)
    assert told["shards"] > 3 and not (tmp_path / "shuffled/.spdl/tokens").exists()
    assert '"faults":[]' in ctl("verify", tmp_path / "shuffled", "--json").stdout.replace(" ", "")
    ctl("tokenize", source, tmp_path / "ordered", *SMALL, "--no-shuffle", "--append", "<|endoftext|>")
    in_order = [document for number in range(5) for document in ids(texts[number::5]) if document]
    assert documents(tmp_path / "ordered") == [(*document, END) for document in in_order]
    assert made != in_order


@pytest.mark.parametrize("order", [[], ["--seed", "7"], ["--no-shuffle"]])
def test_threads_and_parts_change_nothing(tmp_path: pathlib.Path, order: list[str]) -> None:
    source = write_folder(tmp_path / "text", corpus())
    command = ["tokenize", source]
    ctl(*command, tmp_path / "one", *SMALL, "--name", "set", *order, "--threads", "1")
    made = files(tmp_path / "one")
    for memory in ("1", "100KiB", "1GiB"):
        ctl(*command, tmp_path / memory, *SMALL, "--name", "set", *order, "--threads", "5", "--memory", memory)
        assert files(tmp_path / memory) == made, memory
    parts = tmp_path / "parts"
    for part in ("2/3", "0/3"):
        ctl(*command, parts, *SMALL, "--name", "set", *order, "--part", part)
    assert "units of the source, the first of them unit 1: run each part to its end" in refused("merge", parts)
    assert "the order was" in refused(*command, parts, *SMALL, "--name", "set", "--seed", "8", "--part", "1/3")
    with pytest.raises(spdl_cluster.DataError, match="units of the source, the first of them unit 1"):
        spdl_cluster.merge(parts)
    told = ctl_json(*command, parts, *SMALL, "--name", "set", *order, "--part", "1/3")
    assert 0 < told["units"] < told["all_units"]
    shutil.copytree(parts, tmp_path / "python")
    ctl("merge", parts)
    assert files(parts) == made
    report = spdl_cluster.merge(tmp_path / "python")
    assert files(tmp_path / "python") == made
    assert (report.tokens, report.bad_documents) == (sum(map(len, documents(parts))), 0)


def kill_when(happened: Callable[[], bool], *arguments: object) -> bool:
    """Starts `spdl-ctl` and kills it as soon as something happened. Returns whether it was killed before its end."""
    process = subprocess.Popen([os.environ["SPDL_TEST_CTL"], *map(str, arguments)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    limit = time.monotonic() + LIMIT_S
    while process.poll() is None and not happened():
        assert time.monotonic() < limit
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    return process.wait() == -signal.SIGKILL


@pytest.mark.drawn(1, group="tokenizings that are killed")
@pytest.mark.parametrize("how", [["--no-shuffle", "--memory", "1"], ["--memory", "200KiB"], []])
def test_a_killed_command_goes_on_to_the_same_bytes(tmp_path: pathlib.Path, how: list[str]) -> None:
    """It does so whether no unit is in memory, some are, or all."""
    source = write_folder(tmp_path / "text", corpus() * 3)
    options = [*SMALL, "--name", "set", "--threads", "1", *how]
    ctl("tokenize", source, tmp_path / "whole", *options)
    made = files(tmp_path / "whole")
    killed = 0
    for number in range(8):
        out = tmp_path / f"killed-{number}"

        def runs(out: pathlib.Path = out) -> int:
            return sum("#" not in run.name for run in out.glob(".spdl/tokens/run-*"))

        def shards(suffix: str, out: pathlib.Path = out) -> int:
            return len(list(out.glob(f"*{suffix}")))

        moments: list[Callable[[], bool]] = [
            lambda: out.exists(),
            lambda: (out / ".spdl/unfinished.spdl").exists(),
            lambda: runs() >= 2,
            lambda: runs() >= 20,
            lambda: shards(".bin") >= 1,
            lambda: shards(".idx") >= 8,
            lambda: bool(list(out.glob(".spdl/shard-*"))),
            lambda: (out / ".spdl/manifest.spdl").exists(),
        ]
        # It is killed at this moment, and, where it goes on, at the next one.
        killed += sum(kill_when(moment, "tokenize", source, out, *options) for moment in moments[number : number + 2])
        if not (out / ".spdl/manifest.spdl").exists() or (out / ".spdl/tokens/runs.json").exists():
            ctl("tokenize", source, out, *options)
        assert files(out) == made, number
    assert killed >= 4, "most moments come before the end"


def test_a_command_killed_while_it_removes_its_runs_is_done(tmp_path: pathlib.Path) -> None:
    source = write_folder(tmp_path / "text", corpus())
    out, work = tmp_path / "set", tmp_path / "work"
    ctl("tokenize", source, out, *SMALL, "--part", "0/1")
    shutil.copytree(out / ".spdl", work)
    ctl("tokenize", source, out, *SMALL)
    made = files(out)
    runs = sorted(work.glob("tokens/run-*"))
    # The plan goes last.
    for left in (runs[len(runs) // 2 :], [], None):
        shutil.copytree(work / "tokens", out / ".spdl/tokens")
        if left is not None:
            shutil.copy(work / "unfinished.spdl", out / ".spdl")
        for run in runs:
            if run not in (left or []):
                (out / ".spdl/tokens" / run.name).unlink()
        ctl("tokenize", source, out, *SMALL)
        assert files(out) == made and not (out / ".spdl/tokens").exists(), left


def test_a_damaged_run_is_made_again(tmp_path: pathlib.Path) -> None:
    source = write_folder(tmp_path / "text", corpus())
    ctl("tokenize", source, tmp_path / "whole", *SMALL, "--name", "set")
    ctl("tokenize", source, tmp_path / "part", *SMALL, "--name", "set", "--part", "0/1")
    runs = sorted((tmp_path / "part/.spdl/tokens").glob("run-*"))
    runs[0].write_bytes(runs[0].read_bytes()[:-9])
    damaged = bytearray(runs[1].read_bytes())
    damaged[20] ^= 1
    runs[1].write_bytes(damaged)
    ctl("tokenize", source, tmp_path / "part", *SMALL, "--name", "set")
    assert files(tmp_path / "part") == files(tmp_path / "whole")


def test_with_force_another_source_keeps_what_fits(tmp_path: pathlib.Path) -> None:
    texts = corpus()
    source = write_folder(tmp_path / "text", texts)
    good = (source / "4.jsonl").read_text()
    (source / "4.jsonl").write_text(f"{good}no JSON\n")
    out, options = tmp_path / "out", [*SMALL, "--name", "set", "--threads", "1"]
    line = len(good.splitlines()) + 1
    assert f"4.jsonl:{line}` is no JSON record: expected ident at character 2" in refused("tokenize", source, out, *options)
    kept = {run.name: run.stat().st_mtime_ns for run in (out / ".spdl/tokens").glob("run-*")}
    assert len(kept) > 5
    (source / "4.jsonl").write_text(good)
    problem = refused("tokenize", source, out, *options)
    assert "holds a dataset of tokens that was begun otherwise: the source was `5 files of" in problem or "the source was 5 files of" in problem
    ctl("tokenize", source, out, *options, "--force")
    ctl("tokenize", source, tmp_path / "whole", *options)
    assert files(out) == files(tmp_path / "whole")


def test_all_kinds_of_files_give_the_same(tmp_path: pathlib.Path) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason=os.environ.get("SPDL_TEST_NO_FRAMEWORKS", "pyarrow is not installed"))
    parquet = pytest.importorskip("pyarrow.parquet", reason=os.environ.get("SPDL_TEST_NO_FRAMEWORKS", "pyarrow is not installed"))
    texts = [text for text in corpus() if text and "\r" not in text]
    for name in ("lines", "gzip", "zstd", "parquet", "plain", "blank"):
        (tmp_path / name).mkdir()
    write_lines(tmp_path / "lines/a.jsonl", texts, "content")
    lines = (tmp_path / "lines/a.jsonl").read_bytes()
    # Two members, as `cat a.gz b.gz` gives.
    half = lines.index(b"\n", len(lines) // 2) + 1
    (tmp_path / "gzip/a.json.gz").write_bytes(gzip.compress(lines[:half]) + gzip.compress(lines[half:]))
    with pyarrow.CompressedOutputStream(str(tmp_path / "zstd/a.ndjson.zst"), "zstd") as stream:
        stream.write(lines)
    table = pyarrow.table({"id": range(len(texts)), "text": pyarrow.array([None] * len(texts), pyarrow.string()), "content": texts})
    parquet.write_table(table, tmp_path / "parquet/a.parquet", row_group_size=7, compression="snappy")
    for number, text in enumerate(texts):
        (tmp_path / f"plain/{number:04}.md").write_bytes(text.encode())
    (tmp_path / "plain/.hidden.txt").write_bytes(b"\xff")
    (tmp_path / "plain/_SUCCESS").write_bytes(b"")
    made = {}
    for name in ("lines", "gzip", "zstd", "parquet", "plain"):
        ctl("tokenize", tmp_path / name, tmp_path / f"{name}-tokens", *SMALL, "--no-shuffle")
        made[name] = documents(tmp_path / f"{name}-tokens")
    assert made["lines"] == ids(texts)
    assert all(other == made["lines"] for other in made.values())
    # Several sources, in their order, of which one is a pattern.
    ctl("tokenize", tmp_path / "gzip/a.json.gz", f"{tmp_path}/plain/000[01].md", tmp_path / "both", *SMALL, "--no-shuffle")
    assert documents(tmp_path / "both") == made["lines"] + made["lines"][:2]
    paragraphs = [text.replace("\n\n", "\n") for text in ("one\ntwo", "  three", "four")]
    (tmp_path / "blank/a.txt").write_text("\n\n" + "\n \n\n".join(paragraphs) + "\n")
    ctl("tokenize", tmp_path / "blank", tmp_path / "blank-tokens", *SMALL, "--no-shuffle", "--split", "blank-lines")
    assert documents(tmp_path / "blank-tokens") == ids(paragraphs)


def test_a_bucket_is_read(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = corpus()
    (tmp_path / "bucket").mkdir()
    write_folder(tmp_path / "bucket/text", texts)
    (tmp_path / "bucket/model").mkdir()
    (tmp_path / "bucket/model/tokenizer.json").write_bytes(TOKENIZER.read_bytes())
    (tmp_path / "bucket/model/tokenizer_config.json").write_text(json.dumps({"eos_token": {"content": "<|endoftext|>"}}))
    ctl("tokenize", tmp_path / "bucket/text", tmp_path / "disk", *SMALL, "--name", "set")
    with stores.bucket("bucket", tmp_path / "bucket") as variables:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        ctl("tokenize", "s3://bucket/text/*.jsonl", tmp_path / "pattern", *SMALL, "--name", "set")
        of_bucket = ["--tokenizer", "s3://bucket/model", *SMALL[2:], "--name", "set"]
        ctl("tokenize", "s3://bucket/text", tmp_path / "folder", *of_bucket)
        ctl("tokenize", *(f"s3://bucket/text/{number}.jsonl" for number in range(5)), tmp_path / "files", *SMALL)
    assert files(tmp_path / "pattern") == files(tmp_path / "disk")
    assert documents(tmp_path / "folder") == documents(tmp_path / "files") == documents(tmp_path / "disk")
    told = ctl_json("info", tmp_path / "folder")["tokenizer"]
    assert (told["vocab"], told["eos"], told["ends_with_eos"]) == (1000, END, False)
    assert told["fingerprint"] == ctl_json("info", tmp_path / "disk")["tokenizer"]["fingerprint"]


def test_a_job_takes_the_vocabulary_of_the_tokenizer(tmp_path: pathlib.Path) -> None:
    source = write_folder(tmp_path / "text", corpus())
    ctl("tokenize", source, tmp_path / "set", *SMALL, "--append", "<|endoftext|>")
    text = ctl_json("info", tmp_path / "set")["job"]
    assert "\nvocab = 1000 " in text and "# no `eos`: each document ends with id 0 already" in text
    assert "1 000 ids, each document ends with id 0" in ctl("info", tmp_path / "set").stdout
    column: dict[str, Any] = {"name": "tokens", "from": "tokens", "decode": "tokens", "vocab": 1000}
    job = {"name": "t", "dataset": str(tmp_path / "set"), "seed": 1, "global_batch": 4, "sequence": {"seq_len": 64}, "column": [column]}
    with spdl_cluster.local(job, tensors="numpy") as loader:
        assert next(iter(loader))["tokens"].shape == (4, 64)
    column["vocab"] = 50257
    wrong = r"`vocab` is 50257 in column `tokens`, and dataset `set` was tokenized with 1000 ids"
    with pytest.raises(spdl_cluster.SpdlError, match=wrong), spdl_cluster.local(job, tensors="numpy") as loader:
        next(iter(loader))


def test_ordinary_mistakes_name_the_file_and_what_to_do(tmp_path: pathlib.Path) -> None:
    source, out = tmp_path / "source", tmp_path / "out"
    source.mkdir()

    def told(content: bytes, name: str = "a.jsonl", *options: object) -> str:
        for file in source.iterdir():
            file.unlink()
        (source / name).write_bytes(content)
        found = refused("tokenize", source, out, *(options or SMALL), "--force")
        assert not list(out.glob("*.bin"))
        return found

    good = b'{"text": "a"}\n'
    assert 'a.jsonl:3` has no text in field `text` or `content`; its fields are `body`: choose with --from' in told(good + b"\n" + b'{"body": "x"}\n')
    assert "a.jsonl:2` is not UTF-8 at its byte 11" in told(good + b'{"text": "a\xe9"}')
    assert "a.json:1` is a list: write one record a line, as `jq -c '.[]'` does" in told(b'[\n{"text": "a"}]', "a.json")
    assert "a.json:1` has only a part of a record: write one record a line" in told(b'{\n"text": "a"}', "a.json")
    assert "a.jsonl:1` has a list in field `text`, and no text" in told(b'{"text": []}')
    assert "a.jsonl.gz` cannot be decompressed" in told(gzip.compress(good * 1000)[:-20], "a.jsonl.gz")
    assert "a.jsonl.bz2` cannot be read: of compressed files, those of gzip" in told(b"BZh", "a.jsonl.bz2")
    assert "a.parquet` cannot be read as Parquet" in told(b"PAR1" + bytes(100) + b"PAR1", "a.parquet")
    assert "a.png:1` is not UTF-8" in told(b"\x89PNG", "a.png")
    assert "no document has a token: 2 are empty, and 0 bad" in told(b'{"text": ""}\n{"text": ""}\n')
    assert "there is nothing in" in told(b"", ".hidden")
    # Later lines of a long file, which another unit reads, have their numbers, too.
    long = b"".join(b'{"text": "%d"}\n' % number for number in range(5000))
    assert "a.jsonl:5001` is no JSON record" in told(long + b"x\n", "a.jsonl", "--tokenizer", TOKENIZER, "--unit-size", "10KiB")
    for content, problem in [
        (b"\x0a\x0e\x0a\x05<unk>\x15\x00\x00", "is a model of SentencePiece, and no tokenizer.json"),
        (b"IQ== 0\nIg== 1\n", "has the ranks of tiktoken, and no tokenizer.json"),
        (b'{"tokenizer_class": "X"}', "is a tokenizer_config.json: give the tokenizer.json beside it"),
        (b'{"a": 0}', "is a vocabulary alone (vocab.json)"),
        (b"{}", "is no tokenizer.json: it has no `model`"),
        (b"x", "is no tokenizer.json: it is not JSON"),
    ]:
        (tmp_path / "tokenizer").write_bytes(content)
        assert problem in told(good, "a.jsonl", "--tokenizer", tmp_path / "tokenizer")
    # Settings beside the tokenizer that cannot be read are no settings without `eos_token`.
    (tmp_path / "model").mkdir()
    (tmp_path / "model/tokenizer.json").write_bytes(TOKENIZER.read_bytes())
    for content, problem in [(b'{"eos_token": ', "tokenizer_config.json` is no JSON: EOF"), (b"\xff", "tokenizer_config.json` is no text in UTF-8")]:
        (tmp_path / "model/tokenizer_config.json").write_bytes(content)
        assert problem in told(good, "a.jsonl", "--tokenizer", tmp_path / "model")
    assert "`append` is `<x>`, which is no token of" in told(good, "a.jsonl", *SMALL, "--append", "<x>")


def test_bad_records_are_left_out_where_that_is_asked(tmp_path: pathlib.Path) -> None:
    """They are counted, also those of what an earlier call did, and one more than was allowed ends the work."""
    source, out = tmp_path / "source", tmp_path / "out"
    texts = [text for text in corpus() if text]
    write_folder(source, texts)
    expected = collections.Counter(ids(texts))
    with (source / "1.jsonl").open("ab") as file:
        file.write(b'x\n{"text": "\xff"}\n{"body": 1}\n')
    (source / "a.txt").write_bytes(b"one\n\ntwo \xff\nthree\n\xff\n\nfour\n")
    options = [*SMALL, "--split", "blank-lines"]
    end = len((source / "1.jsonl").read_bytes().splitlines())
    assert "--skip-bad" in ctl("tokenize", "--help").stdout
    assert f"1.jsonl:{end - 2}` is no JSON record" in refused("tokenize", source, out, *options, "--threads", 1)
    assert "a.txt:3` is not UTF-8" in refused("tokenize", source, out, *options, "--threads", 1, "--skip-bad", 3)
    # What was done is kept, with the bad records in it.
    report = json.loads(ctl("tokenize", source, out, *options, "--skip-bad", 4, "--json").stdout)
    assert report["bad_documents"] == 4 and any("a.txt:3` is not UTF-8" in problem for problem in report["first_bad"]), report
    expected += collections.Counter(ids(["one", "four"]))
    assert collections.Counter(documents(out)) == expected
    told = ctl("tokenize", source, tmp_path / "parts", *options, "--skip-bad", 4, "--part", "0/2").stdout
    told += ctl("tokenize", source, tmp_path / "parts", *options, "--skip-bad", 4, "--part", "1/2").stdout
    for line, problem in ((end - 2, "is no JSON record"), (end - 1, "is not UTF-8 at its byte"), (end, "has no text in field")):
        assert f"1.jsonl:{line}` {problem}" in told
    assert re.search(r"left out: \d bad document", told), told
    merged = ctl("merge", tmp_path / "parts").stdout
    assert "left out: 4 bad documents" in merged, merged
    assert documents(tmp_path / "parts") == documents(out)


def test_long_lines_are_in_one_unit_alone(tmp_path: pathlib.Path) -> None:
    """Whatever the size of a unit, each line is read once: also where a unit has no beginning of a line, and where one ends at a line's end."""
    texts = ["x" * length for length in (1, 50, 300, 2, 2, 700, 0, 9)]
    write_lines(tmp_path / "a.jsonl", texts)
    lengths = numpy.cumsum([len(line) for line in (tmp_path / "a.jsonl").read_bytes().splitlines(keepends=True)])
    expected = [document for document in ids(texts) if document]
    for size in [1, 7, 64, *map(int, lengths[:3])]:
        out = tmp_path / f"out-{size}"
        ctl("tokenize", tmp_path / "a.jsonl", out, "--tokenizer", TOKENIZER, "--unit-size", size, "--no-shuffle")
        assert documents(out) == expected, size
