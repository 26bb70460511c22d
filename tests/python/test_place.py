"""Where a launcher is among others: the variables of platforms, SLURM's lists of nodes, file systems and certificates' hand-over."""

from __future__ import annotations

import pathlib
import tempfile

import pytest
from spdl_cluster import SettingError
from spdl_cluster.run.errors import LaunchError
from spdl_cluster.run.exchange import Exchange, First, Others
from spdl_cluster.run.folders import exchange_folder, file_system
from spdl_cluster.run.hostlist import first_host
from spdl_cluster.run.place import Place, place_of, with_options

#: What `srun --ntasks-per-node=1` on two nodes sets.
SRUN = {
    "SLURM_JOB_ID": "71",
    "SLURM_JOB_NUM_NODES": "2",
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NUM_TASKS": "2",
    "SLURM_PROCID": "1",
    "SLURM_LOCALID": "0",
    "SLURM_STEP_NODELIST": "gpu[07-08]",
    "SLURMD_NODENAME": "gpu08",
    "SLURM_SUBMIT_DIR": "/home/me",
}
MEET = {"MASTER_ADDR": "head", "MASTER_PORT": "29500"}


def test_without_variables_a_launcher_is_the_only_one() -> None:
    assert place_of({}) == Place()
    # torch's and users' variables that say nothing about launchers.
    assert place_of({"WORLD_SIZE": "8", "OMP_NUM_THREADS": "1", **MEET}) == Place()


@pytest.mark.parametrize(
    ("variables", "index", "count", "local", "head", "launch"),
    [
        (SRUN, 1, 2, 0, "gpu07", "71-0-0"),
        ({**SRUN, "SLURM_RESTART_COUNT": "3", "SLURM_STEP_ID": "5"}, 1, 2, 0, "gpu07", "71-3-5"),
        ({**SRUN, "SLURM_STEP_NUM_TASKS": "16", "SLURM_PROCID": "11", "SLURM_LOCALID": "3"}, 11, 16, 3, "gpu07", "71-0-0"),
        # A batch script on one node.
        ({"SLURM_JOB_ID": "72", "SLURM_JOB_NUM_NODES": "1", "SLURM_NTASKS": "8", "SLURM_PROCID": "0"}, 0, 1, 0, None, "72-0"),
        # Kubeflow.
        ({"PET_NODE_RANK": "3", "PET_NNODES": "4", "PET_MASTER_ADDR": "p-0", "RANK": "3", "WORLD_SIZE": "32", **MEET}, 3, 4, 0, "p-0", "head-29500"),
        ({"RANK": "2", "WORLD_SIZE": "4", **MEET}, 2, 4, 0, "head", "head-29500"),
        # An indexed Job or JobSet of Kubernetes.
        ({"JOB_COMPLETION_INDEX": "1", "NNODES": "2", **MEET}, 1, 2, 0, "head", "head-29500"),
        ({"SKYPILOT_NODE_RANK": "1", "SKYPILOT_NUM_NODES": "2", "SKYPILOT_TASK_ID": "t1"}, 1, 2, 0, None, "t1"),
        # Ray Train starts a process for each rank.
        ({"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "NODE_RANK": "1", **MEET}, 5, 8, 1, "head", "head-29500"),
        # mpirun inside of SLURM.
        (
            {
                **SRUN,
                "OMPI_COMM_WORLD_RANK": "2",
                "OMPI_COMM_WORLD_SIZE": "3",
                "OMPI_COMM_WORLD_LOCAL_RANK": "0",
                "PMIX_NAMESPACE": "prterun-1",
            },
            *(2, 3, 0, None, "prterun-1"),
        ),
        ({"PMI_RANK": "1", "PMI_SIZE": "4", "MPI_LOCALRANKID": "1"}, 1, 4, 1, None, None),
        # srun sets PMI's variables too.
        ({**SRUN, "PMI_RANK": "1", "PMI_SIZE": "2"}, 1, 2, 0, "gpu07", "71-0-0"),
        ({**SRUN, "SPDL_LAUNCH_ID": "mine"}, 1, 2, 0, "gpu07", "mine"),
    ],
)
def test_the_variables_of_platforms(
    variables: dict[str, str], index: int, count: int, local: int, head: str | None, launch: str | None
) -> None:
    place = place_of(variables)
    assert (place.index, place.count, place.local_index, place.head, place.launch) == (index, count, local, head, launch)
    assert (place.is_first, place.has_worker) == (index == 0, local == 0)


@pytest.mark.parametrize(
    "variables",
    [
        {**SRUN, "SLURM_STEP_NUM_NODES": "1"},
        {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "1", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"},
        {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", **MEET},
    ],
)
def test_launchers_on_one_node_need_no_shared_folder(variables: dict[str, str]) -> None:
    place = with_options(place_of(variables), None, None, "mine")
    assert place.is_one_node and exchange_folder(place, None) == pathlib.Path(tempfile.gettempdir()) / ".spdl-run-mine"
    assert exchange_folder(place, pathlib.Path("/")) == pathlib.Path("/.spdl-run-mine")
    # The command line says nothing about nodes.
    assert not with_options(place, 1, 2, None).is_one_node
    assert not place_of({**SRUN, "SLURM_STEP_NUM_NODES": "2"}).is_one_node


@pytest.mark.parametrize(
    ("variables", "problem"),
    [
        ({"RANK": "x", "WORLD_SIZE": "2"}, "`RANK` is `x`"),
        ({"RANK": "2", "WORLD_SIZE": "2"}, "launcher 2 is not one of 2"),
        ({"PET_NODE_RANK": "0", "PET_NNODES": "1:4"}, "`PET_NNODES` is `1:4`"),
        ({"OMPI_COMM_WORLD_RANK": "0"}, "`OMPI_COMM_WORLD_SIZE` is missing"),
        ({"TORCHELASTIC_RUN_ID": "none", "RANK": "0", "WORLD_SIZE": "2"}, "torchrun has started this launcher"),
        ({"SLURM_JOB_ID": "71", "SLURM_JOB_NUM_NODES": "2", "SLURM_PROCID": "0"}, "`srun` did not start this launcher"),
    ],
)
def test_variables_that_make_no_sense_are_named(variables: dict[str, str], problem: str) -> None:
    with pytest.raises(SettingError, match=problem):
        place_of(variables)


def test_the_command_line_comes_before_variables() -> None:
    slurm = place_of(SRUN)
    assert with_options(slurm, None, None, None) == slurm
    alone = with_options(slurm, None, 1, None)
    assert (alone.index, alone.count) == (0, 1)
    third = with_options(slurm, 2, 3, "mine")
    assert (third.index, third.count, third.launch) == (2, 3, "mine")
    with pytest.raises(SettingError, match="launcher 3 is not one of 3"):
        with_options(slurm, 3, 3, None)


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("n1", "n1"),
        ("n1,n2", "n1"),
        ("n[1-3,7],login", "n1"),
        ("gpu[07-08]", "gpu07"),
        ("gpu[7,9-12].cluster,x[1-2]", "gpu7.cluster"),
        ("r[1-2]n[01-16]", "r1n01"),
        ("login,n[1-2]", "login"),
        ("", None),
        ("n[1-2", None),
        ("n[]", None),
    ],
)
def test_the_first_node_of_slurms_list(text: str, first: str | None) -> None:
    assert first_host(text) == first


def test_the_file_system_of_a_path_is_that_of_the_longest_mount() -> None:
    mounts = "\n".join(
        [
            "22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw",
            "30 22 0:40 / /home rw - nfs4 server:/home rw",
            r"31 22 0:41 / /data\040sets rw shared:2 master:3 - lustre mds rw",
            "nonsense",
        ]
    )
    for path, kind in (("/tmp", "ext4"), ("/home/me", "nfs4"), ("/homes", "ext4"), ("/data sets/x", "lustre")):
        assert file_system(pathlib.Path(path), mounts) == kind
    assert file_system(pathlib.Path("/tmp"), "") is None


def test_a_request_is_answered_and_what_an_earlier_launch_left_is_not_taken_for_an_answer(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "exchange"
    earlier = First(Exchange(folder), 1)
    earlier.look()
    others = Others(Exchange(folder), 2)
    others.look()
    others.answer({"coordinator": "old"})
    assert (earlier.answer() or {})["coordinator"] == "old"

    first = First(Exchange(folder), 1)
    first.look()
    assert first.answer() is None
    others = Others(Exchange(folder), 3)
    others.look()
    others.answer({"coordinator": "new"})
    assert (first.answer() or {})["coordinator"] == "new"
    assert others.missing == [2] and others.alive(60.0) == [1]
    # A later answer takes the place of the first.
    others.answer({"coordinator": "renewed"})
    assert (first.answer() or {})["coordinator"] == "renewed"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}

    assert not first.is_gone(60.0) and first.is_gone(0.0) and others.alive(0.0) == []
    first.end()
    others.look()
    assert others.alive(60.0) == []
    Exchange(folder).remove()
    assert first.is_gone(60.0)
    first.look()
    assert not folder.exists()


def test_what_is_half_written_or_foreign_is_no_request(tmp_path: pathlib.Path) -> None:
    exchange = Exchange(tmp_path / "exchange")
    for index, text in enumerate(['{"number": "', "[1]", '{"number": 3}', "\xff"], 1):
        (exchange.folder / f"request-{index}.json").write_text(text)
    (exchange.folder / "request-5.json").symlink_to("/etc/hostname")
    others = Others(exchange, 6)
    others.look()
    assert others.missing == [1, 2, 3, 4, 5]


def test_one_launch_at_a_time_has_a_folder(tmp_path: pathlib.Path) -> None:
    Exchange(tmp_path / "exchange").claim()
    with pytest.raises(LaunchError, match="another launch goes on"):
        Exchange(tmp_path / "exchange").claim()
