"""User functions: their arguments, their return values, and their failures."""

from __future__ import annotations

import functools
import json
import os
import pathlib
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy
import pytest
import spdl_cluster
import user_functions
from conftest import LIMIT_S, PICTURES, Cluster, MakeJob, ctl_json, wait_for_the_end_of, write_job

HERE = pathlib.Path(__file__).parent
SHIFTED = user_functions.shifted


def column(name: str, function: str, **keys: Any) -> dict[str, Any]:
    """Returns a column of the class with one of the functions in `user_functions`."""
    plain = {"name": name, "from": "cls", "decode": "int"}
    return {**plain, "transform": f"user_functions:{function}", **keys}


def with_functions(job: MakeJob, **keys: Any) -> dict[str, Any]:
    """Returns a job whose columns have functions of all kinds."""
    made = job(
        column("means", "means", decode="image", returns={"dtype": "f32", "shape": [3]}),
        column("draws", "draws", decode="bytes", returns={"dtype": "i64", "shape": [3]}),
        column("twice", "twice", decode="bytes"),
        column("shifted", "shifted"),
        **keys,
    )
    image = made["column"][0]
    made["column"][2].update({"from": "jpg", "ops": image["ops"]})
    image["transform"] = "user_functions:jitter"
    return made


def digests(loader: spdl_cluster.Loader) -> list[tuple[Any, str]]:
    return [(batch.position, batch.content_digest()) for batch in loader]


def with_process(job: MakeJob, **keys: Any) -> dict[str, Any]:
    """Returns a job with a column of the ids of the functions' processes."""
    return job(column("process", "process"), **keys)


@pytest.fixture(params=["raises", "leaves", "dies", "hangs", "returns_a_list", "returns_a_float"])
def picky(request: pytest.FixtureRequest) -> Iterator[str]:
    yield request.param


def test_functions_get_what_was_decoded_and_their_arrays_are_delivered(job: MakeJob) -> None:
    plain = job()
    with spdl_cluster.local(plain, tensors="numpy") as loader:
        pictures = {i: picture.copy() for batch in loader for i, picture in zip(batch.ids.tolist(), batch["image"])}
    seen = 0
    with spdl_cluster.local(with_functions(job), tensors="numpy") as loader:
        for batch in loader:
            for at, sample in enumerate(batch.ids.tolist()):
                # The generator that docs/guide/python/functions.md documents.
                rng = numpy.random.Generator(numpy.random.PCG64([5, 0, sample]))
                noise = rng.integers(0, 100, (32, 32, 3), dtype=numpy.uint8)
                assert (batch["image"][at] == pictures[sample] // 2 + noise).all()
                assert numpy.allclose(batch["means"][at], pictures[sample].mean(axis=(0, 1)))
                rng = numpy.random.Generator(numpy.random.PCG64([5, 0, sample]))
                assert (batch["draws"][at] == rng.integers(0, 1 << 60, 3)).all()
                label = batch["label"][at]
                assert batch["twice"][at].tobytes() == str(label).encode() * 2
                assert batch["shifted"][at] == label + 100
                seen += 1
        stages = {stage["name"]: stage for stage in loader.stats()["stages"]}
        # One call for each of the five columns with a function.
        assert stages["transform"]["items"] == 5 * stages["decode"]["items"]
    assert seen == PICTURES // 24 * 24


def test_bytes_and_order_are_the_same_for_any_number_of_processes_and_after_a_resume(job: MakeJob) -> None:
    made = with_functions(job)
    runs = []
    for cores in (1, 3):
        with spdl_cluster.local(made, cores=cores) as loader:
            runs.append(digests(loader))
    assert runs[0] == runs[1]
    with spdl_cluster.local(made, cores=2) as loader:
        for _ in range(3):
            loader.next()
        state = loader.state_dict()
    with spdl_cluster.local(made, cores=1, state=state) as loader:
        assert digests(loader) == runs[0][3:]


def test_what_a_function_does_wrong_is_a_bad_sample_with_its_cause(job: MakeJob, picky: str) -> None:
    made = job(column("picky", f"Picky.{picky}"), bad_samples="fail")
    causes = {
        "raises": r"raised ValueError: class 3 is not liked",
        "leaves": r"raised SystemExit: 4",
        "dies": r"lost its process 2 times: it ended with signal: 9 \(SIGKILL\)",
        "hangs": r"ran for more than 300ms and was killed",
        "returns_a_list": r"returned int64 \[2\], and its column declares int64 \[\]",
        "returns_a_float": r"returned float32 \[\], and its column declares int64 \[\]",
    }
    place = r"at user_functions\.py:\d+ " if picky in ("raises", "leaves") else ""
    text = rf"record `[^`]+` of shard .*: column `picky`: function `user_functions:Picky\.{picky}` {place}{causes[picky]}"
    with spdl_cluster.local(made, transform_timeout=0.3 if picky == "hangs" else LIMIT_S) as loader:
        with pytest.raises(spdl_cluster.DataError, match=text):
            for _ in loader:
                pass


def test_bad_samples_follow_the_policy_of_the_job(job: MakeJob) -> None:
    raises = column("picky", "Picky.raises")
    with spdl_cluster.local(job(raises, bad_samples="mask", max_bad_fraction=1.0)) as loader:
        masked = {i for batch in loader for i, flags in zip(batch.ids.tolist(), batch.flags.tolist()) if flags}
    with spdl_cluster.local(job()) as loader:
        threes = {i for batch in loader for i, label in zip(batch.ids.tolist(), batch["label"]) if label == 3}
    assert masked == threes and threes
    made = job(raises, max_bad_fraction=1.0)
    runs = []
    for cores in (1, 3):
        with spdl_cluster.local(made, cores=cores) as loader:
            runs.append([(batch.ids.tolist(), batch["picky"].tolist()) for batch in loader])
    assert runs[0] == runs[1]
    assert not any(3 in labels for _, labels in runs[0])
    with spdl_cluster.local(job(raises, max_bad_fraction=0.0)) as loader:
        with pytest.raises(spdl_cluster.DataError, match="more than the 0 that `max_bad_fraction` allows"):
            for _ in loader:
                pass


@pytest.mark.parametrize(
    ("function", "text"),
    [
        ("user_functions:nothing", "AttributeError: module 'user_functions' has no attribute 'nothing'"),
        ("no_such_module:f", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("user_functions:constant", "TypeError: it is a int, which cannot be called"),
    ],
)
def test_a_function_that_cannot_be_loaded_is_named_before_any_batch(job: MakeJob, function: str, text: str) -> None:
    made = job({"name": "other", "from": "cls", "decode": "int", "transform": function})
    with spdl_cluster.local(made) as loader:
        with pytest.raises(spdl_cluster.DataError, match=f"function `{function}` cannot be loaded .*: {text}"):
            loader.next()


DESCRIBED = {
    "call": "user_functions:described",
    "fields": ["jpg", "cls"],
    "columns": ["image", "label"],
    "returns": [
        {"name": "size", "dtype": "i64", "shape": []},
        {"name": "image"},
        {"name": "rows", "dtype": "i16", "shape": [2], "max_rows": 3},
        {"name": "text", "max_bytes": 10},
        {"name": "draw", "dtype": "f64", "shape": []},
    ],
}

NUMBERS = [{"name": "a", "from": "cls", "decode": "int"}, {"name": "b", "from": "cls", "decode": "int", "dtype": "i32"}]
SWAPPED = {"call": "user_functions:swapped", "columns": ["a", "b"], "returns": [{"name": "a", "dtype": "i32"}, {"name": "b", "dtype": "i64"}]}


def test_a_function_takes_several_values_and_returns_several_columns(job: MakeJob) -> None:
    with spdl_cluster.local(job(bad_samples="mask"), tensors="numpy") as loader:
        plain = {i: (picture.copy(), label) for batch in loader for i, picture, label in zip(batch.ids.tolist(), batch["image"], batch["label"])}
    made = job(function=[DESCRIBED], bad_samples="mask", max_bad_fraction=1.0)
    runs = []
    for given in (made, {**made, "function": [{**DESCRIBED, "call": user_functions.described}]}):
        seen = 0
        with spdl_cluster.local(given, tensors="numpy", cores=2) as loader:
            for batch in loader:
                assert list(batch) == ["image", "label", "size", "rows", "text", "draw"]
                for at, sample in enumerate(batch.ids.tolist()):
                    picture, label = plain[sample]
                    if label == 3:
                        assert batch.flags[at] and not batch["image"][at].any() and len(batch["rows"][at]) == 0
                        continue
                    assert (batch["image"][at] == picture // 2).all() and batch["label"][at] == label
                    assert batch["rows"][at].tolist() == [[label, label]] * (label % 4)
                    assert batch["text"][at].tobytes() == str(label).encode() * 2 and batch["size"][at] > 100
                    assert batch["draw"][at] == numpy.random.Generator(numpy.random.PCG64([5, 0, sample])).random()
                    seen += 1
            stages = {stage["name"]: stage for stage in loader.stats()["stages"]}
        with spdl_cluster.local(given, cores=1) as loader:
            runs.append(digests(loader))
        assert seen and stages["transform"]["items"] == seen, "one call for each good sample"
    assert runs[0] == runs[1]


def test_a_function_can_be_all_that_a_job_has(job: MakeJob) -> None:
    returns = [{"name": "number", "dtype": "i64", "shape": []}]
    made = {**job(), "function": [{"call": "user_functions:Wrong", "arguments": {"how": "none"}, "fields": ["cls"], "returns": returns}]}
    del made["column"]
    made |= {"bad_samples": "mask", "max_bad_fraction": 1.0}
    with spdl_cluster.local(made, tensors="numpy") as loader:
        for batch in loader:
            assert list(batch) == ["number"] and (batch["number"] == (batch.flags == 0)).all()


def test_columns_that_change_places_keep_their_types(job: MakeJob) -> None:
    with spdl_cluster.local(job(*NUMBERS, function=[SWAPPED]), tensors="numpy") as loader:
        for batch in loader:
            assert (batch["a"].dtype, batch["b"].dtype) == (numpy.int32, numpy.int64)
            assert (batch["a"] == batch["label"]).all() and (batch["b"] == batch["label"]).all()


@pytest.mark.parametrize(
    ("how", "text"),
    [
        ("none", "returned None"),
        ("number", "returned a int, and its job declares a dict"),
        ("lacks", "returned no `number`, which its job declares"),
        ("more", "returned `other`, which its job does not declare"),
        ("type", r"returned `number`: float32 \[\], and its column declares int64 \[\]"),
        ("missing value", "returned `number`: None"),
    ],
)
def test_what_is_not_declared_is_a_bad_sample(job: MakeJob, how: str, text: str) -> None:
    returns = [{"name": "number", "dtype": "i64", "shape": []}]
    function = {"call": "user_functions:Wrong", "arguments": {"how": how}, "fields": ["cls"], "returns": returns}
    with spdl_cluster.local(job(function=[function], bad_samples="fail")) as loader:
        with pytest.raises(spdl_cluster.DataError, match=f"column `number`: function `user_functions:Wrong` {text}"):
            for _ in loader:
                pass


def test_functions_and_classes_get_the_arguments_of_the_job(job: MakeJob) -> None:
    words = {"by": 10, "words": ["ab", "c"]}
    made = job(
        column("one", "shifted_by", arguments={"by": 7, "scale": 2.0}),
        column("two", "Shift"),
        {**column("three", ""), "transform": user_functions.Shift, "arguments": {**words, "by": 20}},
        column("four", "Counted", arguments=words),
        column("five", "Counted", arguments={"words": ["ab", "c"], "by": 10}),
        bad_samples="fail",
    )
    with spdl_cluster.local(made) as loader:
        for batch in loader:
            label = batch["label"]
            assert (batch["one"] == 2 * label + 7).all()
            assert (batch["two"] == label + 1).all() and (batch["three"] == label + 23).all()
            # Columns with the same class and arguments share one object.
            assert (batch["four"] == 1).all() and (batch["five"] == 1).all()


def test_an_object_that_raises_is_a_bad_sample_with_the_line(job: MakeJob) -> None:
    made = job(column("other", "Shift", arguments={"by": 13}), bad_samples="fail")
    with spdl_cluster.local(made) as loader:
        with pytest.raises(spdl_cluster.DataError, match=r"`user_functions:Shift` at user_functions\.py:\d+ raised ValueError: three and thirteen"):
            for _ in loader:
                pass


@pytest.mark.parametrize(
    ("function", "arguments", "text"),
    [
        ("Shift", {"by": -1}, "ValueError: -1 is negative"),
        ("Shift", {"far": 1}, r"TypeError: .*__init__\(\) got an unexpected keyword argument 'far'"),
        ("Silent", {}, "TypeError: objects of the class `Silent` cannot be called: it has no method `__call__`"),
    ],
)
def test_a_class_whose_object_cannot_be_made_fails_the_job_before_any_batch(
    job: MakeJob, function: str, arguments: dict[str, Any], text: str
) -> None:
    with spdl_cluster.local(job(column("other", function, arguments=arguments))) as loader:
        with pytest.raises(spdl_cluster.DataError, match=f"`user_functions:{function}` cannot be loaded .*: {text}"):
            loader.next()


def test_a_function_in_rust_is_not_in_this_process_and_the_error_says_where_it_is(job: MakeJob) -> None:
    for made in (
        job({**column("other", ""), "transform": "own_worker::noise@1"}),
        job(function=[{**SWAPPED, "call": "own_worker::noise@1", "columns": ["label"], "returns": [{"name": "label"}]}]),
    ):
        with spdl_cluster.local(made) as loader:
            text = (
                "calls the function `own_worker::noise@1` in Rust, and worker `in-process` cannot: it has no functions in Rust; the "
                "function is in the worker program that was built with it, and not in .* `local` of Python"
            )
            with pytest.raises(spdl_cluster.DataError, match=text):
                loader.next()


def test_a_job_that_makes_no_sense_is_refused_with_the_key(job: MakeJob) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"transform": "flip"}, "`transform` is `flip`; name a function as `package.module:function`"),
        ({"returns": {"shape": [0]}}, "`returns.shape`"),
        ({"arguments": {"a b": 1}}, "`arguments` has `a b`, which is not a name in Python"),
        ({"arguments": {"a": float("nan")}}, "`arguments` has a number that is not finite"),
        ({"arguments": 3}, "arguments expects a table, not 3"),
    ]
    for keys, text in cases:
        with pytest.raises(spdl_cluster.SettingError, match=text):
            spdl_cluster.local(job({**column("other", "twice"), **keys})).next()
    with pytest.raises(spdl_cluster.SettingError, match="`transform_timeout` is -1"):
        spdl_cluster.local(job(), transform_timeout=-1)


def test_a_process_that_is_killed_costs_no_sample(
    job: MakeJob, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MARK_OF_DEATH", str(tmp_path / "mark"))
    with spdl_cluster.local(job(column("other", "dies_once"), bad_samples="fail")) as loader:
        assert all((batch["other"] == batch["label"]).all() for batch in loader)
    assert (tmp_path / "mark").exists()
    with spdl_cluster.local(with_process(job, bad_samples="fail", epochs=4), cores=1, slots=2) as loader:
        seen: list[int] = []
        while (batch := loader.next()) is not None:
            new = set(batch["process"].tolist()) - set(seen)
            seen += new
            for process in new if len(seen) < 4 else ():
                os.kill(process, signal.SIGKILL)
                wait_for_the_end_of(process)
            del batch
    assert len(seen) >= 4
    # The last process ended with the job.
    for process in seen:
        wait_for_the_end_of(process)


def test_a_worker_calls_functions_only_with_permission(job: MakeJob, cluster: Cluster) -> None:
    name = cluster.submit(with_functions(job, name="forbidden"))
    with cluster.connect(0, 1, job=name) as loader:
        with pytest.raises(spdl_cluster.DataError, match=r"column `image` of job `forbidden`.*--allow-transforms"):
            loader.next()


def test_a_worker_gives_the_same_bytes_and_takes_its_processes_with_it(
    job: MakeJob, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(HERE), prepend=os.pathsep)
    made = with_functions(job, name="remote", function=[SWAPPED])
    made["column"] += NUMBERS
    with spdl_cluster.local(made) as loader:
        expected = digests(loader)
    replayed = ctl_json("replay", write_job(made, tmp_path / "remote.toml"), "--all", "--python", sys.executable)
    assert replayed["samples"] == 24 * len(expected)
    cluster = Cluster(tmp_path, "--python", sys.executable)
    try:
        name = cluster.submit(with_process(job, name="process", epochs=100))
        with cluster.connect(0, 1, job=name, slots=2) as loader:
            batch = loader.next()
            assert batch is not None
            processes = set(batch["process"].tolist())
            cluster.worker.kill()
            for process in processes:
                wait_for_the_end_of(process)
            cluster.worker.wait()
        name = cluster.submit(made)
        cluster.worker = cluster.start_worker()
        with cluster.connect(0, 1, job=name) as loader:
            assert digests(loader) == expected
    finally:
        cluster.stop()


PROGRAM = """
import json, sys
import numpy
import spdl_cluster

def brighter(label: numpy.int64, rng: numpy.random.Generator) -> int:
    return int(label) + 1000

def train() -> None:
    job = json.load(open(sys.argv[1]))
    for transform in (brighter, "__main__:brighter"):
        job["column"][-1]["transform"] = transform
        with spdl_cluster.local(job, cores=1) as loader:
            print(json.dumps([int(value) for batch in loader for value in batch["other"] - batch["label"]]))

GUARD:
    train()
"""


def test_a_function_is_given_as_itself(job: MakeJob) -> None:
    with spdl_cluster.local(job({**column("other", ""), "transform": user_functions.shifted})) as loader:
        assert all((batch["other"] == batch["label"] + 100).all() for batch in loader)
        by_function = loader.state_dict()
    with spdl_cluster.local(job(column("other", "shifted")), state=by_function) as loader:
        assert loader.state_dict() == by_function
    with spdl_cluster.local(job({**column("other", ""), "transform": user_functions.Picky.returns_a_list}, bad_samples="mask", max_bad_fraction=1)) as loader:
        assert loader.next() is not None


def test_functions_that_no_process_could_find_are_refused_with_the_reason(
    job: MakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    def inner(label: Any, rng: Any) -> Any:
        return label

    for function, text in (
        (lambda label, rng: label, "`.*<lambda>`, which has no name"),
        (inner, r"`.*<locals>\.inner`, which has no name"),
        (functools.partial(user_functions.shifted), "a `partial`, which has no name"),
    ):
        with pytest.raises(spdl_cluster.SettingError, match=f"column `other`: `transform` is {text}") as error:
            spdl_cluster.local(job({**column("other", ""), "transform": function}))
        assert "top level of a module" in (error.value.hint or "")
    monkeypatch.setattr(user_functions, "shifted", user_functions.draws)
    with pytest.raises(spdl_cluster.SettingError, match="is a function called `shifted`, and that of module") as error:
        spdl_cluster.local(job({**column("other", ""), "transform": SHIFTED}))


@pytest.mark.parametrize("guard", ['if __name__ == "__main__"', "if True"])
def test_a_function_of_the_program_itself_is_imported_as_multiprocessing_does(
    job: MakeJob, tmp_path: pathlib.Path, guard: str
) -> None:
    program, path = tmp_path / "train.py", tmp_path / "job.json"
    program.write_text(PROGRAM.replace("GUARD", guard))
    path.write_text(json.dumps(job(column("other", "")), default=str))
    done = subprocess.run([sys.executable, program, path], capture_output=True, text=True, timeout=LIMIT_S)
    if guard == "if True":
        assert done.returncode != 0 and 'put what trains under `if __name__ == "__main__":`' in done.stderr, done.stderr
    else:
        assert done.returncode == 0, done.stderr
        assert [json.loads(line) for line in done.stdout.splitlines()] == [[1000] * (PICTURES // 24 * 24)] * 2


def test_a_program_is_imported_beside_a_module_that_imports_multiprocessing(job: MakeJob, tmp_path: pathlib.Path) -> None:
    program, path = tmp_path / "train.py", tmp_path / "job.json"
    program.write_text(PROGRAM.replace("GUARD", 'if __name__ == "__main__"'))
    (tmp_path / "pooled.py").write_text("import multiprocessing\n\ndef same(label, rng):\n    return int(label)\n")
    pooled = {**column("pooled", ""), "transform": "pooled:same"}
    path.write_text(json.dumps(job(pooled, column("other", "")), default=str))
    done = subprocess.run([sys.executable, program, path], capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 0, done.stderr
    assert [json.loads(line) for line in done.stdout.splitlines()] == [[1000] * (PICTURES // 24 * 24)] * 2


def test_a_function_of_a_notebook_gets_a_hint(job: MakeJob, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "job.json"
    path.write_text(json.dumps(job(column("other", "")), default=str))
    # A program from standard input has no file, as in a notebook.
    program = f"""
import json, spdl_cluster
def f(label, rng):
    return label

job = json.load(open({str(path)!r}))
job["column"][-1]["transform"] = f
try:
    spdl_cluster.local(job)
except spdl_cluster.SettingError as error:
    print(error)

"""
    done = subprocess.run([sys.executable, "-i"], input=program, capture_output=True, text=True, timeout=LIMIT_S)
    assert "`transform` is `__main__:f`, and the program has no file" in done.stdout, done.stdout + done.stderr
    assert "hint: " in done.stdout and "%%writefile augment.py" in done.stdout and "augment.f" in done.stdout


def test_a_worker_has_no_program_of_its_own(job: MakeJob, tmp_path: pathlib.Path) -> None:
    cluster = Cluster(tmp_path, "--python", sys.executable)
    try:
        name = cluster.submit(job({**column("other", ""), "transform": "__main__:f"}, name="main"))
        with cluster.connect(0, 1, job=name) as loader:
            with pytest.raises(spdl_cluster.DataError, match="`__main__` is another program than this process; name the function by its module"):
                loader.next()
    finally:
        cluster.stop()
