"""Jobs that blend several datasets by weights: what comes when, from which source, and what is refused."""

from __future__ import annotations

import functools
import pathlib
import shlex
import sys
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy
import pytest
import spdl_cluster
import user_functions
from conftest import PICTURES, UNEVEN_PICTURES, Cluster, MakeJob, RanksInTurn, add, at_once, ctl, ctl_json
from test_readme import GUIDE, blocks, runner

JobFile = Callable[[dict[str, Any]], pathlib.Path]
#: Shares of the sources of most tests.
SHARES = {"even": 0.7, "uneven": 0.3}


@pytest.fixture
def blend(job: MakeJob, dataset: pathlib.Path, uneven_dataset: pathlib.Path) -> MakeJob:
    """Returns a function that makes a job of two sources; `of_uneven` are more keys of the second."""

    def make(*columns: dict[str, Any], of_uneven: dict[str, Any] | None = None, **keys: Any) -> dict[str, Any]:
        made = job(*columns, **keys)
        del made["dataset"]
        of = {"even": {"dataset": dataset}, "uneven": {"dataset": uneven_dataset, **(of_uneven or {})}}
        return made | {"source": [{"name": name, "weight": share, **of[name]} for name, share in SHARES.items()]}

    return make


def of_source(loader: spdl_cluster.Loader, ids: Any) -> list[str]:
    """Returns the name of the source of each of these ids."""
    return [name for sample in ids.tolist() for name, of in loader.sources.items() if sample in of]


def pixels(batch: spdl_cluster.Batch) -> list[tuple[int, int, bytes]]:
    """Returns offset, id and pixels of each sample."""
    return [(int(o), int(i), numpy.asarray(p).tobytes()) for o, i, p in zip(batch.offsets, batch.ids, batch["image"])]


def refused(made: dict[str, Any]) -> str:
    """Returns what is said of a job that makes no sense."""
    with pytest.raises(spdl_cluster.SpdlError) as raised:
        spdl_cluster.local(made).next()
    return str(raised.value)


def test_each_source_has_its_share_of_each_prefix(blend: MakeJob) -> None:
    with spdl_cluster.local(blend(total_samples=1200, epochs=2), tensors="numpy") as loader:
        assert loader.sources == {"even": range(PICTURES), "uneven": range(PICTURES, PICTURES + UNEVEN_PICTURES)}
        assert (loader.samples, len(loader)) == (1200, 50)
        by_place: dict[tuple[int, int], str] = {}
        for _ in range(2):
            for batch in loader:
                places = zip(batch.epochs.tolist(), batch.offsets.tolist())
                by_place.update(zip(places, of_source(loader, batch.ids)))
    names = [name for _, name in sorted(by_place.items())]
    assert len(names) == 2400
    for end in range(1, len(names) + 1):
        # To less than one sample, and weights are kept to one part of 65536.
        assert abs(names[:end].count("uneven") - 0.3 * end) < 1.02


def test_an_epoch_ends_with_the_first_source_that_is_through_and_no_sample_comes_twice(blend: MakeJob) -> None:
    with spdl_cluster.local(blend(epoch_end="pad"), tensors="numpy") as loader:
        ids = [sample for batch in loader for sample, flag in zip(batch.ids.tolist(), batch.flags.tolist()) if not flag]
        assert loader.samples == len(ids)
    assert len(set(ids)) == len(ids) and set(range(PICTURES)) < set(ids)
    assert abs(len(ids) - PICTURES / 0.7) < 2


def test_ranks_of_any_world_get_the_same_blend_and_resume_in_the_middle(blend: MakeJob) -> None:
    made = blend(total_samples=480)

    def samples(ranks: RanksInTurn) -> list[Any]:
        return sorted(sample for _, batch in ranks for sample in pixels(batch))

    one = RanksInTurn(made)
    alone = samples(one)
    assert len(alone) == 480
    for world in (2, 3):
        ranks = RanksInTurn(made, world)
        assert samples(ranks) == alone and ranks.receipt == one.receipt
    before = RanksInTurn(made, 2, steps=7)
    first = samples(before)
    after = RanksInTurn(made, 3, before.state)
    assert sorted(first + samples(after)) == alone and add([before.receipt, after.receipt]) == one.receipt


def test_a_source_that_comes_round_has_other_crops_each_time(blend: MakeJob) -> None:
    made = blend(total_samples=480, of_uneven={"view": {"first": 12}})
    seen: dict[int, list[bytes]] = defaultdict(list)
    with spdl_cluster.local(made, tensors="numpy") as loader:
        for batch in loader:
            for _, sample, picture in pixels(batch):
                seen[sample].append(picture)
        of_view = [pictures for sample, pictures in seen.items() if sample in loader.sources["uneven"]]
    assert len(of_view) == 12 and sum(map(len, of_view)) in (143, 144, 145)
    for pictures in of_view:
        assert len(set(pictures)) == len(pictures) >= 11
    assert all(len(pictures) <= 2 for sample, pictures in seen.items() if sample < PICTURES)


def test_a_bad_sample_is_replaced_by_one_of_its_own_source(blend: MakeJob) -> None:
    def planned(*columns: dict[str, Any]) -> dict[int, tuple[str, int, int]]:
        found: dict[int, tuple[str, int, int]] = {}
        with spdl_cluster.local(blend(*columns, total_samples=240, max_bad_fraction=1.0), tensors="numpy") as loader:
            for batch in loader:
                names = of_source(loader, batch.ids)
                found.update(zip(batch.offsets.tolist(), zip(names, batch.ids.tolist(), batch.flags.tolist())))
        return found

    picky = {"name": "other", "from": "cls", "decode": "int", "transform": user_functions.Picky.raises}
    clean, replaced = planned(), planned(picky)
    changed = [offset for offset in clean if clean[offset] != replaced[offset]]
    assert {clean[offset][0] for offset in changed} == set(SHARES)
    for offset in changed:
        assert clean[offset][0] == replaced[offset][0] and clean[offset][1] != replaced[offset][1] and replaced[offset][2] != 0


def test_what_makes_no_sense_is_refused_with_the_name_of_the_source(blend: MakeJob, tmp_path: pathlib.Path) -> None:
    often = refused(blend(total_samples=2000, of_uneven={"max_epochs": 2}))
    assert "source `uneven` is read 3.0 times; `max_epochs` is 2: lower its weight, `total_samples` or `epochs`" in often
    assert "`dataset` and `source` are both there" in refused(blend() | {"dataset": "somewhere"})
    with spdl_cluster.Writer(tmp_path / "notes", {"note": "int"}) as writer:
        writer.write({"note": 1})
    notes = blend(of_uneven={"dataset": tmp_path / "notes"}, total_samples=240)
    classes = refused(notes)
    assert "column `label` has numbers of classes, and source `even` lists " in classes and "source `uneven` lists no classes" in classes
    del notes["column"][1]
    assert "source `uneven`: column `image`: `from`" in refused(notes)


def test_a_cluster_delivers_the_blend_and_commands_show_and_prove_it(blend: MakeJob, cluster: Cluster, job_file: JobFile) -> None:
    made = blend(name="blend", total_samples=480, of_uneven={"view": {"first": 50}})
    path = job_file(made)
    with spdl_cluster.local(made, tensors="numpy") as loader:
        expected = sorted(sample for batch in loader for sample in pixels(batch))
        receipt = loader.receipt
    name = cluster.submit(made)
    found: list[tuple[int, int, bytes]] = []

    def pull(rank: int) -> None:
        with cluster.connect(rank, 2, job=name, tensors="numpy") as loader:
            assert list(loader.sources) == list(SHARES)
            for batch in loader:
                found.extend(pixels(batch))

    at_once(2, pull)
    assert sorted(found) == expected
    assert ctl_json("audit", "--run", f"{name}/{name}", *cluster.admin)["equal"]
    # The table is cut to the terminal's width, and the cluster has jobs of other tests.
    [listed] = (job for job in ctl_json("job", "list", *cluster.admin) if job["name"] == name)
    assert listed["dataset"] == "even 70.0 % + uneven 30.0 %"
    [of_job] = (found for found in ctl_json("status", *cluster.admin)["jobs"] if found["name"] == name)
    assert [(source["name"], source["samples"], source["times"], source["bad_sample_count"]) for source in of_job["sources"]] == [
        ("even", 336, pytest.approx(336 / PICTURES, rel=0.001), 0),
        ("uneven", 144, pytest.approx(144 / 50, rel=0.001), 0),
    ]
    of_run = ctl_json("run", "show", f"{name}/{name}", *cluster.admin)
    assert [(source["name"], source["samples"]) for source in of_run["sources"]] == [("even", 336), ("uneven", 144)]
    rows = [" ".join(line.split()) for line in ctl("run", "show", f"{name}/{name}", *cluster.admin).stdout.splitlines()]
    assert "source uneven 144 samples, 2.88 times through" in rows
    said = " ".join(ctl("status", *cluster.admin).stdout.split())
    assert f"job `{name}`: 336 samples of even, 1.68 times through; 144 samples of uneven, 2.88 times through" in said
    shown = ctl("job", "show", name, *cluster.admin).stdout
    assert "uneven: 30.0 % of the samples, 2.88 times through its 50 samples in an epoch" in shown
    assert ctl_json("audit", path, "--receipt", receipt)["equal"]
    assert "source even: 70.0 % of the samples" in ctl("plan", path, "--world", 2).stdout
    keys = ctl("plan", path, "--ids", "--keys", "--steps", 2).stdout
    assert keys.count('"key"') == 48


def staged(made: dict[str, Any], *stages: tuple[int, float, float]) -> dict[str, Any]:
    """Returns the job with these weights of `even` and `uneven` from these samples on."""
    return made | {"stage": [{"from": start, "weights": {"even": even, "uneven": uneven}} for start, even, uneven in stages]}


def pulled(made: dict[str, Any], state: dict[str, Any] | None = None, steps: int = 1000, world: int = 1) -> tuple[list[Any], dict[str, Any]]:
    """Returns what all ranks of a world get in some steps, in the order of the stream, and their state after that."""
    found: list[tuple[int, int, int, str]] = []
    ranks = RanksInTurn(made, world, state, steps)
    for loader, batch in ranks:
        found += zip(batch.epochs.tolist(), batch.offsets.tolist(), batch.ids.tolist(), of_source(loader, batch.ids))
    return sorted(found), ranks.state or {}


def test_weights_change_with_each_stage_and_nothing_before_it_does(blend: MakeJob) -> None:
    plain = blend(total_samples=240, epochs=2)
    before, _ = pulled(plain)
    made = staged(plain, (100, 0.2, 0.8), (300, 0, 1))
    samples, _ = pulled(made)
    assert samples[:100] == before[:100] and samples[100:] != before[100:]
    for (start, end), share in {(0, 100): 0.3, (100, 300): 0.8, (300, 480): 1.0}.items():
        names = [name for *_, name in samples[start:end]]
        for length in range(1, len(names) + 1):
            assert abs(names[:length].count("uneven") - share * length) < 1.02
    # Each source goes on where it was: it gives all of its samples before one comes again.
    uneven = [sample for *_, sample, name in samples if name == "uneven"]
    for start in range(0, len(uneven), UNEVEN_PICTURES):
        once = uneven[start : start + UNEVEN_PICTURES]
        assert len(set(once)) == len(once)
    assert pulled(made, world=3)[0] == samples


def test_a_checkpoint_is_taken_with_other_stages_from_there_on_and_no_others(blend: MakeJob) -> None:
    plain = blend(total_samples=240, epochs=2)
    first, state = pulled(plain, steps=5)
    made = staged(plain, (len(first), 0.1, 0.9))
    more, later = pulled(made, state, steps=4, world=2)
    changed = staged(plain, (len(first), 0.1, 0.9), (len(first) + len(more) + 10, 1, 0))
    rest, _ = pulled(changed, later, world=3)
    assert first + more + rest == pulled(changed)[0], "as if all stages had been known from the beginning"
    for other in (plain, staged(plain, (len(first) - 1, 0.1, 0.9)), staged(plain, (len(first), 0.2, 0.8))):
        with pytest.raises(spdl_cluster.SpdlError, match="fingerprint"):
            pulled(other, later, steps=1)
    with pytest.raises(spdl_cluster.SpdlError, match="fingerprint"):
        pulled(staged(plain, (len(first) - 1, 0.1, 0.9)), state, steps=1)


def test_the_others_take_over_from_a_source_that_is_used_up(blend: MakeJob) -> None:
    limited = {"view": {"first": 50}, "max_epochs": 2, "when_done": "reweight"}
    made = blend(total_samples=240, epochs=2, of_uneven=limited)
    samples, _ = pulled(made)
    names = [name for *_, name in samples]
    assert names.count("uneven") == 100 and len(names) == 480
    end = max(place for place, name in enumerate(names) if name == "uneven")
    assert 330 <= end <= 337, "0.3 of 333"
    without, _ = pulled(blend(total_samples=240, epochs=2, of_uneven={"view": {"first": 50}}))
    assert samples[:end] == without[:end]
    first, state = pulled(made, steps=11)
    rest, _ = pulled(made, state, world=3)
    assert first + rest == samples, "in the middle, at another number of ranks"
    # A checkpoint from before goes on with other limits, too.
    more, _ = pulled(blend(total_samples=240, epochs=2, of_uneven=limited | {"max_epochs": 3}), state)
    assert more[: end - len(first)] == rest[: end - len(first)] and [name for *_, name in first + more].count("uneven") > 140


def test_a_source_that_is_used_up_ends_the_training(blend: MakeJob) -> None:
    made = blend(total_samples=240, epochs=9, of_uneven={"view": {"first": 50}, "max_epochs": 2, "when_done": "stop"})
    for repeat in (False, True):
        with spdl_cluster.local(made, repeat=repeat, tensors="numpy") as loader:
            assert (loader.epochs, len(loader)) == (2, 10)
            taken = [sum(1 for _ in loader) for _ in range(loader.epoch, loader.epochs)]
            # The stream ends at sample 333 or so, 93 of the second epoch.
            assert taken == [10, 3] and loader.position == (1, 72)
            with pytest.raises(spdl_cluster.FinishedError):
                next(iter(loader))


@pytest.mark.parametrize("shares", [(0.9, 0.1), (0.1, 0.9)], ids=["later", "earlier"])
def test_epochs_are_those_of_the_job_as_it_is_when_the_loop_gets_there(shares: tuple[float, float], blend: MakeJob, cluster: Cluster) -> None:
    is_later = shares[0] > shares[1]
    limited = {"view": {"first": 50}, "max_epochs": 2, "when_done": "stop"}
    made = blend(name="later" if is_later else "earlier", total_samples=240, epochs=9, of_uneven=limited)
    name = cluster.submit(made)
    # With two slots, the first four batches are not all made before the trainer has given one back.
    with cluster.connect(0, 1, job=name, slots=2, tensors="numpy") as loader:
        first = loader.next()
        assert first is not None and loader.epochs == 2
        places, told = list(zip(first.epochs.tolist(), first.offsets.tolist(), first.ids.tolist())), loader.epochs
        ctl("job", "weights", name, "--set", f"even={shares[0]},uneven={shares[1]}", "--at", 96, *cluster.admin)
        del first
        loops = 0

        def loop() -> None:
            nonlocal loops
            loops += 1
            for batch in loader:
                places.extend(zip(batch.epochs.tolist(), batch.offsets.tolist(), batch.ids.tolist()))

        if is_later:
            while loader.epoch < loader.epochs:
                loop()
            assert loops == loader.epochs > told
        else:
            loop()
            assert loader.epochs == 1 and loader.steps_left == 0
            with pytest.warns(UserWarning, match=f"job `{name}` has ended at 0:[0-9]+, in epoch 0: .* this `for` has no batches"):
                loop()
            assert loops == told
        with pytest.raises(spdl_cluster.FinishedError):
            loop()
    expected = [(epoch, offset, sample) for epoch, offset, sample, _ in pulled(staged(made, (96, *shares)))[0]]
    assert sorted(places) == expected


def test_a_training_of_one_dataset_ends_after_a_number_of_samples(job: MakeJob) -> None:
    epoch = PICTURES - PICTURES % 24
    with spdl_cluster.local(job(total_samples=2 * PICTURES + 50), tensors="numpy") as loader:
        assert loader.epochs == 3
        taken = [sum(len(batch.ids) for batch in loader) for _ in range(loader.epoch, loader.epochs)]
    assert taken == [epoch, epoch, 48]
    with pytest.raises(spdl_cluster.SpdlError, match="`epochs` and `total_samples` are both there; leave one out"):
        spdl_cluster.local(job(total_samples=50, epochs=2)).next()


def test_a_stage_that_makes_no_sense_is_refused(blend: MakeJob) -> None:
    assert "`total_samples` is missing; a job with `stage` needs" in refused(staged(blend(), (9, 1, 1)))
    assert "stage from 9: `from` must be above 9" in refused(staged(blend(total_samples=240), (9, 1, 1), (9, 2, 1)))
    lacking = blend(total_samples=240) | {"stage": [{"from": 9, "weights": {"even": 1}}]}
    assert "stage from 9: `weights` lacks source `uneven`; write 0" in refused(lacking)


def test_the_commands_of_the_guide_make_a_blend_and_change_its_weights(temporary: pathlib.Path) -> None:
    run, path = runner(temporary), temporary / "blend.toml"

    def section(language: str, heading: str) -> list[str]:
        return blocks(language, GUIDE / "sources.md", heading)

    making, planning = section("sh", "## A job of two datasets")
    [written], [planned], [code] = (section(language, "## A job of two datasets") for language in ("toml", "text", "python"))
    path.write_text(written)
    for line in making.splitlines():
        run(*shlex.split(line))
    plan = functools.partial(run, *shlex.split(planning))
    lines = plan().splitlines()
    for line in planned.splitlines():
        assert line.replace("/home/me", str(temporary)) in lines
    assert run(sys.executable, "-c", code).splitlines() == ["15 of 50"] * 20

    _, used_up = section("text", "## Weights, and how often a source comes")
    path.write_text("epochs = 2\n" + written.replace("max_epochs = 2\n", 'max_epochs = 2\nwhen_done = "reweight"\n'))
    assert used_up.strip() in plan().splitlines()

    [stages], (weights, submit) = (section(language, "## Other weights later: stages") for language in ("toml", "sh"))
    longer = written.replace("total_samples = 1000", "total_samples = 10_000").replace("max_epochs = 2\n", "")
    head, columns = longer.split("[[column]]", 1)[0], longer[longer.index("[[column]]") :]
    path.write_text(f"{head}{stages}\n{columns}")
    listed = [line for line in plan().splitlines() if line.startswith("stage ")]
    assert [line.split(";")[0] for line in listed] == [
        "stage from sample 400, 0:400: photos 40.0 % + drawings 60.0 %",
        "stage from sample 800, 0:800: photos 0.0 % + drawings 100.0 %",
    ]
    # While no rank is alive, other weights begin where the run has stopped.
    path.write_text(longer)
    try:
        run("spdl-ctl", "dev", "up", "blend.toml")
        run("spdl-ctl", "pull", "--job", "blend", "--steps", "3", "--json")
        told = run(*shlex.split(weights))
        table = told[told.index("[[stage]]") :].strip()
        assert "from = 150" in table and "stage from sample 150, 0:150: photos 40.0 % + drawings 60.0 %" in told
        path.write_text(f"{head}{table}\n\n{columns}")
        run(*shlex.split(submit))
        run("spdl-ctl", "pull", "--job", "blend", "--steps", "3", "--from", "resume", "--json")
        assert "equal: every sample from 0:0 to 0:300 once" in run("spdl-ctl", "audit", "--run", "blend")
    finally:
        run("spdl-ctl", "dev", "down")
