"""The launcher: real trainings under `spdl-run`, on one node and on two, which leave nothing, however they end."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import sys
import sysconfig
import textwrap
import time
from collections.abc import Callable
from typing import Any

import pytest
import spdl_cluster
import spdl_cluster.program
from conftest import LIMIT_S, MakeJob, ctl
from launcher import BUDGET, Tree, ended_launchers, finish, named, read_line, run
from spdl_cluster import environment

#: A trainer of one rank: its settings are all from the launcher. Prints its receipt and the worker that served it.
TRAINER = textwrap.dedent("""
    import json, sys, spdl_cluster
    with spdl_cluster.connect(job=sys.argv[1] if sys.argv[1:] else None) as loader:
        samples = 0
        for epoch in range(loader.epochs):
            for batch in loader:
                samples += int(batch.valid.sum())
        print(json.dumps({"receipt": loader.receipt, "samples": samples, "job": loader.job, "home": loader.stats()["serving"]["home"]}))
""")
#: The same, which waits for a line after its first batch.
STEPPED = textwrap.dedent("""
    import json, os, spdl_cluster
    with spdl_cluster.connect() as loader:
        loader.next()
        print(json.dumps({"pid": os.getpid(), "coordinator": os.environ["SPDL_COORD"], "certs": os.environ["SPDL_CERTS"]}), flush=True)
        input()
        while loader.next() is not None:
            pass
        print(json.dumps({"receipt": loader.receipt}))
""")
#: A program that ends only at a signal, and prints those that it gets. When it waits it writes its parent's pid to the
#: file that it is given.
WAITS = textwrap.dedent("""
    import os, pathlib, signal, sys
    def handle(number, frame):
        print(signal.Signals(number).name, flush=True)
        if number == signal.SIGTERM:
            sys.exit(7)
    for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, handle)
    for file in sys.argv[1:]:
        pathlib.Path(file).write_text(f"{os.getppid()}\\n")
    print("waits", flush=True)
    while True:
        signal.pause()
""")

JobFile = Callable[[dict[str, Any]], pathlib.Path]


@pytest.fixture
def train(job: MakeJob, job_file: JobFile) -> pathlib.Path:
    """Writes a job file of two epochs."""
    return job_file(job(name="train", epochs=2, epoch_end="exact"))


def python(code: str, *arguments: object) -> list[object]:
    return ["--", sys.executable, "-c", code, *arguments]


def audit(job: pathlib.Path, *receipts: str) -> None:
    """Asserts that the receipts of all ranks are that of the plan."""
    ctl("audit", job, *(part for receipt in receipts for part in ("--receipt", receipt)))


def test_pip_installs_the_program_and_the_launcher() -> None:
    scripts = pathlib.Path(sysconfig.get_path("scripts"))
    assert pathlib.Path(spdl_cluster.program.path()).samefile(scripts / "spdl-ctl")
    for command in ([scripts / "spdl-ctl"], [sys.executable, "-m", "spdl_cluster"], [scripts / "spdl-run"]):
        done = subprocess.run([*command, "--version"], capture_output=True, text=True, timeout=LIMIT_S)
        assert (done.returncode, done.stdout.split()[-1]) == (0, spdl_cluster.__version__), done
    # The program in the place of Python returns its own exit code and output.
    done = subprocess.run([sys.executable, "-m", "spdl_cluster", "job"], capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 2 and "Usage: spdl-ctl job" in done.stderr, done
    for server in ("coord", "worker"):
        done = subprocess.run([scripts / "spdl-ctl", server, "--help"], capture_output=True, text=True, timeout=LIMIT_S)
        assert done.returncode == 0 and "--listen" in done.stdout, done


def test_a_source_distribution_has_what_builds_it(tmp_path: pathlib.Path) -> None:
    manifest = pathlib.Path(__file__).parents[2] / "python/Cargo.toml"

    def done(folder: pathlib.Path, *command: object) -> None:
        subprocess.run([*map(str, command)], cwd=folder, check=True, stdout=subprocess.DEVNULL, timeout=LIMIT_S)

    done(tmp_path, sys.executable, "-m", "maturin", "sdist", "--manifest-path", manifest, "--out", tmp_path)
    [archive] = tmp_path.glob("*.tar.gz")
    done(tmp_path, "tar", "xzf", archive)
    root = archive.with_name(archive.name.removesuffix(".tar.gz"))
    done(root, sys.executable, "-c", "import build_backend; assert build_backend.default_profile() == 'release'")
    done(root, "cargo", "metadata", "--locked", "--offline", "--format-version", "1")


def test_a_training_on_one_node_gets_each_sample_once_and_leaves_nothing(train: pathlib.Path, temporary: pathlib.Path) -> None:
    output, _ = finish(run("--job", train, *python(TRAINER), temporary=temporary))
    report = json.loads(output)
    assert report["job"] == "train" and report["home"] == "worker-0", report
    audit(train, report["receipt"])
    assert os.listdir(temporary) == []


@pytest.mark.parametrize("told_by", ["variables", "options"])
def test_two_nodes_have_a_worker_each_and_one_coordinator(
    train: pathlib.Path, temporary: pathlib.Path, tmp_path: pathlib.Path, told_by: str
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()

    def node(rank: int) -> subprocess.Popen[str]:
        options: list[object] = ["--job", train, "--shared", shared]
        variables = {"SPDL_NODE": f"node-{rank}"}
        if told_by == "variables":
            variables |= {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
        else:
            # The command starts no ranks, so each node's is that of its launcher.
            options += ["--nodes", 2, "--node-rank", rank, "--launch-id", "options", "--address", "127.0.0.1"]
        return run(*options, *python(TRAINER), temporary=temporary, options=BUDGET, **variables)

    # The first launcher comes last.
    launchers = [node(1), node(0)]
    reports = [json.loads(finish(launcher)[0]) for launcher in launchers]
    assert [report["home"] for report in reports] == ["worker-1", "worker-0"], reports
    audit(train, *(report["receipt"] for report in reports))
    assert os.listdir(temporary) == os.listdir(shared) == []


def test_two_launches_on_one_machine_do_not_meet(train: pathlib.Path, temporary: pathlib.Path) -> None:
    launchers = [run("--job", train, *python(STEPPED), temporary=temporary) for _ in range(2)]
    begun = [json.loads(read_line(launcher)) for launcher in launchers]
    assert begun[0]["coordinator"] != begun[1]["coordinator"] and begun[0]["certs"] != begun[1]["certs"]
    for folder in (pathlib.Path(each["certs"]) for each in begun):
        assert (folder / "key.pem").stat().st_mode & 0o077 == 0
        assert folder.parents[1].stat().st_mode & 0o077 == 0 and folder.parents[2] == temporary
    for launcher in launchers:
        output, _ = launcher.communicate("\n", timeout=LIMIT_S)
        audit(train, json.loads(output)["receipt"])
    assert os.listdir(temporary) == []


def test_a_script_chooses_one_of_several_jobs_by_name_or_file(
    job: MakeJob, job_file: JobFile, train: pathlib.Path, temporary: pathlib.Path
) -> None:
    validation = job_file(job(name="validation", shuffle=False, epoch_end="exact"))
    validation = validation.rename(validation.with_name("val.toml"))
    for name in ("validation", "val.toml", str(validation)):
        output, _ = finish(run("--job", train, "--job", validation, *python(TRAINER, name), temporary=temporary))
        assert json.loads(output)["job"] == "validation"


def test_a_file_is_the_job_that_was_submitted_from_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPDL_COORD", "node-0:7400")
    place = environment.cluster(None, None)
    assert place.job_name("val.toml") == "val.toml" and place.job_name(None) is None
    monkeypatch.setenv("SPDL_JOB_FILES", json.dumps({"a/train.toml": "one", "b/train.toml": "two", "val.toml": "val"}))
    place = environment.cluster(None, None)
    for given, name in [("val.toml", "val"), ("/x/val.toml", "val"), ("b/train.toml", "two"), ("one", "one"), (None, None)]:
        assert place.job_name(given) == name
    assert place.job_name(pathlib.Path("a/train.toml")) == "one"
    # Two files have this name, so that it stands for neither.
    assert place.job_name("train.toml") == "train.toml"
    monkeypatch.setenv("SPDL_JOB_FILES", "train.toml")
    with pytest.raises(spdl_cluster.SettingError, match="SPDL_JOB_FILES"):
        environment.cluster(None, None)


@pytest.mark.parametrize("server", ["worker", "coord"])
def test_a_server_that_is_killed_is_started_again(server: str, train: pathlib.Path, temporary: pathlib.Path) -> None:
    launcher = run("--job", train, *python(STEPPED), temporary=temporary)
    read_line(launcher)
    os.kill(named(Tree(launcher.pid).pids, server), signal.SIGKILL)
    output, errors = launcher.communicate("\n", timeout=LIMIT_S)
    assert launcher.returncode == 0, errors
    audit(train, json.loads(output)["receipt"])
    assert "ended with signal 9, and is started again" in errors
    assert os.listdir(temporary) == []


def test_a_state_that_is_kept_lets_a_launch_resume(train: pathlib.Path, temporary: pathlib.Path, tmp_path: pathlib.Path) -> None:
    code = """
        import spdl_cluster
        with spdl_cluster.connect(start="resume") as loader:
            print(loader.position.epoch, loader.position.offset)
            for batch in loader:
                pass
    """
    for position in ("0 0", "1 0"):
        output, _ = finish(run("--job", train, "--state", tmp_path / "state", *python(textwrap.dedent(code)), temporary=temporary))
        assert output.split("\n")[0] == position


def test_signals_reach_the_command_once_and_its_exit_code_comes_back(train: pathlib.Path, temporary: pathlib.Path) -> None:
    launcher = run("--job", train, *python(WAITS), temporary=temporary)
    assert read_line(launcher) == "waits"
    tree = Tree(launcher.pid)
    # To the launcher, as users send it; to the whole group, as platforms and terminals do; and to all processes of the launcher's name.
    os.kill(launcher.pid, signal.SIGUSR1)
    assert read_line(launcher) == "SIGUSR1"
    os.killpg(launcher.pid, signal.SIGUSR2)
    assert read_line(launcher) == "SIGUSR2"
    for pid in tree.pids[:2]:
        os.kill(pid, signal.SIGUSR1)
    assert read_line(launcher) == "SIGUSR1"
    os.kill(launcher.pid, signal.SIGTERM)
    assert read_line(launcher) == "SIGTERM"
    output, _ = finish(launcher, 7)
    assert output == ""
    assert os.listdir(temporary) == []


def test_a_signal_to_a_group_reaches_the_command_once_where_the_launchers_first_process_is_late(train: pathlib.Path, temporary: pathlib.Path) -> None:
    launcher = run("--job", train, *python(WAITS), temporary=temporary)
    assert read_line(launcher) == "waits"
    os.kill(launcher.pid, signal.SIGSTOP)
    os.killpg(launcher.pid, signal.SIGUSR2)
    assert read_line(launcher) == "SIGUSR2"
    # Longer than what arrives counts as sent together.
    time.sleep(2.5)
    os.kill(launcher.pid, signal.SIGCONT)
    os.kill(launcher.pid, signal.SIGTERM)
    assert read_line(launcher) == "SIGTERM"
    finish(launcher, 7)


@pytest.mark.parametrize("group", [False, True], ids=["to the launcher", "to its group"])
def test_a_signal_before_the_command_ends_the_launch(group: bool, temporary: pathlib.Path, tmp_path: pathlib.Path) -> None:
    # The first launcher waits for nobody, and the second for the first, which never comes.
    options = ("--shared", tmp_path, "--nodes", 2, "--node-rank", 1, "--launch-id", "signal")
    launcher = run(*options, *python(WAITS), temporary=temporary)
    assert launcher.stderr is not None
    assert launcher.stderr.readline().startswith("spdl-run 1: waiting for launcher 0, through ")
    assert (tmp_path / ".spdl-run-signal/request-1.json").exists()
    (os.killpg if group else os.kill)(launcher.pid, signal.SIGTERM)
    finish(launcher, 128 + signal.SIGTERM)
    assert os.listdir(temporary) == [] and not (tmp_path / ".spdl-run-signal").exists()


@pytest.mark.parametrize("killed", ["the launcher", "its second process", "both"])
def test_nothing_is_left_when_a_launcher_is_killed(killed: str, train: pathlib.Path, temporary: pathlib.Path) -> None:
    # The command has a child in a session of its own, as torchrun's ranks are.
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {WAITS!r}], start_new_session=True)"
    launcher = run("--job", train, *python(code), temporary=temporary)
    assert read_line(launcher) == "waits"
    tree = Tree(launcher.pid)
    outer, inner = tree.pids[:2]
    for pid in {"the launcher": [outer], "its second process": [inner], "both": [outer, inner]}[killed]:
        os.kill(pid, signal.SIGKILL)
    if killed == "both":
        # Nobody is left who could end what the command has detached from itself.
        os.kill(tree.pids[-1], signal.SIGKILL)
    tree.wait_for_end()
    assert launcher.wait(timeout=LIMIT_S) == (128 + signal.SIGKILL if killed == "its second process" else -signal.SIGKILL)
    if killed == "both":
        [folder] = os.listdir(temporary)
        # The next launch removes what nobody could.
        finish(run("--job", train, "--", "true", temporary=temporary))
    assert os.listdir(temporary) == []


def test_what_a_command_leaves_behind_ends_with_it(train: pathlib.Path, temporary: pathlib.Path) -> None:
    code = f"""
        import subprocess, sys
        child = subprocess.Popen([sys.executable, "-c", {WAITS!r}], start_new_session=True)
        input()
    """
    launcher = run("--job", train, *python(textwrap.dedent(code)), temporary=temporary)
    assert read_line(launcher) == "waits"
    tree = Tree(launcher.pid)
    output, errors = launcher.communicate("\n", timeout=LIMIT_S)
    assert (launcher.returncode, output) == (0, "SIGTERM\n"), errors
    tree.wait_for_end()


@pytest.mark.parametrize(
    ("command", "code"),
    [(["sh", "-c", "exit 3"], 3), (["sh", "-c", "kill -KILL $$"], 137), (["no-such-command"], 127), (["/"], 127)],
)
def test_the_exit_code_is_the_commands(command: list[str], code: int, train: pathlib.Path, temporary: pathlib.Path) -> None:
    _, errors = finish(run("--job", train, "--", *command, temporary=temporary), code)
    assert f"`{command[0]}`" in errors
    assert os.listdir(temporary) == []


def test_what_is_missing_is_named(job: MakeJob, job_file: JobFile, train: pathlib.Path, temporary: pathlib.Path, tmp_path: pathlib.Path) -> None:
    invalid = job_file(job(name="invalid", global_batch=0))
    second = ("--nodes", 2, "--node-rank", 1)
    for arguments, code, problem in [
        ([], 1, "there is no job"),
        (["--job", tmp_path / "none.toml"], 1, "none.toml"),
        (["--job", invalid], 1, "`global_batch`"),
        (["--job", train, "--worker-arg=--cores=none"], 1, "--cores"),
        (["--job", train, "--coord-arg=--lease-s=0"], 1, "coordinator ended with exit code 2"),
        (["--job", train, "--start-timeout", 0], 1, "coordinator was not ready after 0 s"),
        (["--job", train, "--node-rank", 2, "--nodes", 2, "--launch-id", "x"], 1, "launcher 2 is not one of 2"),
        (["--job", train, *second], 1, "`--launch-id`"),
        (["--job", train, *second, "--launch-id", "x", "--shared", tmp_path / "none"], 1, "is not a folder"),
        (["--job", train, *second, "--launch-id", "x", "--shared", tmp_path, "--nodes-timeout", 0.1], 1, "launcher 0, through"),
    ]:
        options = () if "--worker-arg=--cores=none" in arguments else ("--cores", "1")
        _, errors = finish(run(*arguments, "--", "true", temporary=temporary, options=options), code)
        assert problem in errors, errors
    assert os.listdir(temporary) == []
    assert not list(tmp_path.glob(".spdl-run-*"))


def test_other_nodes_learn_why_the_first_one_failed(temporary: pathlib.Path, tmp_path: pathlib.Path) -> None:
    options = ("--job", tmp_path / "none.toml", "--shared", tmp_path, "--nodes", 2, "--launch-id", "fails")
    launchers = [run(*options, "--node-rank", rank, "--", "true", temporary=temporary) for rank in (1, 0)]
    for launcher in launchers:
        _, errors = finish(launcher, 1)
        assert "none.toml" in errors
    assert os.listdir(temporary) == [] and not list(tmp_path.glob(".spdl-run-*"))


def test_a_folder_that_others_can_read_is_refused(train: pathlib.Path, temporary: pathlib.Path, tmp_path: pathlib.Path) -> None:
    (tmp_path / ".spdl-run-open").mkdir(mode=0o755)
    options = ("--job", train, "--shared", tmp_path, "--nodes", 2, "--node-rank", 0, "--launch-id", "open")
    _, errors = finish(run(*options, "--", "true", temporary=temporary), 1)
    assert "is not a folder that only this user can read" in errors
