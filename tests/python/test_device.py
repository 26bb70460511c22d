"""Batches on a GPU, with a stand-in for its driver. Each program is a separate process with its own settings of the stand-in.

`SPDL_TEST_CUDA_STAND_IN` is the path of the stand-in; `cargo test` sets it.
"""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import types
from collections.abc import Callable
from typing import Any

import pytest
from conftest import LAUNCHERS, LIMIT_S, Cluster, MakeJob
from spdl_cluster import environment

PROGRAMS = pathlib.Path(__file__).with_name("device_programs.py")
RAW = {"name": "raw", "from": "jpg", "decode": "bytes", "max_bytes": 400_000}

RunProgram = Callable[..., str]


@pytest.fixture
def run_program(job: MakeJob, tmp_path: pathlib.Path) -> RunProgram:
    """Returns a function that runs a program, with `settings` for the stand-in, and returns its output."""

    def run_program(program: str, settings: str = "", driver: str | None = None, served: Any = None, **variables: str) -> str:
        library = os.environ["SPDL_TEST_CUDA_STAND_IN"] if driver is None else driver
        home = tmp_path / "driver"
        home.mkdir(exist_ok=True)
        for name in ("libcuda.so", "libcuda.so.1"):
            (home / name).unlink(missing_ok=True)
            (home / name).symlink_to(library)
        files = []
        for name, content in (("job", job(RAW, name=f"device-{program}")), ("served", served)):
            if content is not None:
                files.append(tmp_path / f"{name}.json")
                files[-1].write_text(json.dumps(content, default=str))
        behaviour = {"LD_LIBRARY_PATH": str(home), "CUDA_STAND_IN": settings, **variables}
        done = subprocess.run(
            [sys.executable, PROGRAMS, program, *files],
            env={**{name: value for name, value in os.environ.items() if name not in LAUNCHERS}, **behaviour},
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
        )
        assert done.returncode == 0, f"{done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    return run_program


def test_capsules_name_the_device_of_tensors_which_hold_the_hosts_bytes(run_program: RunProgram) -> None:
    run_program("arrays", "devices=2,seed=1")


def test_streams_wait_for_batches_and_buffers_for_streams(run_program: RunProgram) -> None:
    run_program("streams", "delay_us=3000,seed=2")


def test_a_loop_that_keeps_device_buffers_is_warned_and_goes_on(run_program: RunProgram) -> None:
    run_program("exhaust_slots", "seed=3")


def test_pictures_are_normalised_to_the_same_bits_on_device_and_host(run_program: RunProgram) -> None:
    run_program("normalise", "delay_us=0")


def test_a_forked_child_cannot_use_the_device_and_the_parent_goes_on(run_program: RunProgram) -> None:
    run_program("fork", "delay_us=0")


def test_batches_of_a_cluster_come_to_the_device_over_both_transports(run_program: RunProgram, job: MakeJob, cluster: Cluster) -> None:
    name = cluster.submit(job(RAW, name="device-cluster"))
    certs = cluster.folder / "certs/client"
    run_program("cluster", "seed=4", served={"coordinators": cluster.coordinators, "certs": certs, "job": name})


def test_torch_has_tensors_of_the_device_on_its_current_stream(run_program: RunProgram) -> None:
    pytest.importorskip("torch", reason=os.environ.get("SPDL_TEST_NO_TORCH", "torch is not installed"))
    run_program("torch", "devices=2,delay_us=3000,seed=5")


@pytest.mark.parametrize(
    ("device", "settings", "local_rank", "where"),
    [
        ("cuda", "devices=3", "", "cuda:0"),
        ("cuda", "devices=3", "2", "cuda:2"),
        # A process that sees only its own device.
        ("cuda", "devices=1", "2", "cuda:0"),
        ("cuda:1", "devices=3", "2", "cuda:1"),
        ("1", "devices=3", "", "cuda:1"),
        ("cpu", "devices=0", "", "cpu"),
    ],
)
def test_a_device_has_many_names(run_program: RunProgram, device: str, settings: str, local_rank: str, where: str) -> None:
    output = run_program("opens", f"{settings},delay_us=0", DEVICE=device, LOCAL_RANK=local_rank)
    assert output.split("\n") == [f"made {where}", "done", ""]


SRUN = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_PROCID": "1", "SLURM_NTASKS": "2", "SLURM_LOCALID": "1"}


@pytest.mark.parametrize(
    "variables",
    [
        {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1"},
        {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "1"},
        {"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "1"},
        SRUN,
        # mpirun inside of `srun`.
        {**SRUN, "SLURM_NTASKS": "1", "SLURM_LOCALID": "0", "PMI_RANK": "1", "PMI_SIZE": "2", "PMI_LOCAL_RANK": "1"},
    ],
)
def test_the_second_rank_of_every_launcher_has_the_second_device(run_program: RunProgram, variables: dict[str, str]) -> None:
    assert run_program("opens", "devices=3,delay_us=0", **variables).split("\n") == ["made cuda:1", "done", ""]


def test_ranks_that_no_launcher_numbers_on_their_node_do_not_share_a_device(run_program: RunProgram) -> None:
    # Given numbers are known when the loader is first used, as those of a process group are.
    made, printed, _ = run_program("opens", "devices=3,delay_us=0", GIVEN_RANK="1", GIVEN_WORLD="2").split("\n")
    error = json.loads(printed)
    assert made == "made cuda:0" and error["kinds"][0] == "DeviceError"
    assert "device `cuda` needs a number: the loader is of one of 2 ranks, the driver shows 3 devices" in error["text"]
    # One device is for all.
    assert "done" in run_program("opens", "devices=1,delay_us=0", GIVEN_RANK="1", GIVEN_WORLD="2")
    assert "done" in run_program("opens", "devices=3,delay_us=0", GIVEN_RANK="1", GIVEN_WORLD="2", DEVICE="cuda:2")


def test_cuda_is_torchs_current_device_once_the_program_uses_cuda_with_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_RANK", "1")
    for is_initialised, name in ((True, "cuda:2"), (False, "cuda")):
        cuda = types.SimpleNamespace(is_initialized=lambda: is_initialised, current_device=lambda: 2)
        monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(cuda=cuda))
        assert environment.device_name("cuda") == name
        assert environment.device_name("cuda:1") == environment.device_name(1) == "cuda:1"


@pytest.mark.parametrize(
    ("settings", "variables", "kind", "message", "hint"),
    [
        # First the errors that are known at once, then those at the opening or use of the loader.
        ("devices=2", {"DEVICE": "cuda:2"}, "DeviceError", "`cuda:2` does not exist: the driver shows 2 devices", "from 0"),
        ("devices=2", {"LOCAL_RANK": "4"}, "DeviceError", "`LOCAL_RANK` is 4, and the driver shows 2 devices", "write `cuda:N`"),
        ("devices=2", {"RANK": "1", "WORLD_SIZE": "2"}, "DeviceError", "`WORLD_SIZE` is 2, the driver shows 2 devices", "LOCAL_RANK"),
        ("devices=2", {"LOCAL_RANK": "one"}, "SettingError", "variable `LOCAL_RANK` is `one`, not a whole number", None),
        ("devices=0", {}, "DeviceError", "the driver shows 0 devices", "CUDA_VISIBLE_DEVICES"),
        ("", {"DEVICE": "mps"}, "SettingError", "device `mps` is none; there are `cpu`, `cuda` and `cuda:N`", None),
        ("fail=cuDevicePrimaryCtxRetain@1:2", {}, "DeviceMemoryError", "CUDA_ERROR_OUT_OF_MEMORY", None),
        ("memory=300000", {}, "DeviceMemoryError", "bytes for a batch: ", "lower the number of device buffers"),
        ("fail=cuMemcpyHtoDAsync_v2@3:719", {}, "DeviceError", "is lost: `cuMemcpyHtoDAsync`", "start the process again"),
        ("lose_at_copy=2", {}, "DeviceError", "is lost", "start the process again"),
        ("fail=cuEventRecord@2:1", {}, "DeviceError", "`cuEventRecord` returned CUDA_ERROR_INVALID_VALUE", None),
    ],
)
def test_each_kind_of_failure_has_its_error_with_the_remedy(
    run_program: RunProgram, settings: str, variables: dict[str, str], kind: str, message: str, hint: str | None
) -> None:
    *made, printed, _ = run_program("opens", settings, **variables).split("\n")
    error = json.loads(printed)
    assert error["kinds"][0] == kind and "SpdlError" in error["kinds"]
    assert message in error["text"] and (hint or "") in (error["hint"] or ""), error
    # Errors of the device itself are raised when the loader is made.
    assert bool(made) == any(late in settings for late in ("memory", "HtoD", "lose_at", "EventRecord"))


def test_a_loader_that_fails_gives_back_what_it_took(run_program: RunProgram) -> None:
    output = run_program("opens", "fail=cuMemAllocAsync@3:2", CHECK="1")
    assert "MemoryError" in output


def test_the_error_on_a_machine_without_a_driver_names_what_to_install(run_program: RunProgram) -> None:
    printed = run_program("opens", driver="/nowhere/libcuda.so").split("\n")[0]
    if printed.startswith("made") or "the driver shows" in printed:
        pytest.skip("this machine has a driver")
    error = json.loads(printed)
    assert error["kinds"][:2] == ["DeviceError", "SpdlError"]
    assert "needs the NVIDIA driver, and `libcuda.so.1` cannot be loaded" in error["text"]
    assert "install the NVIDIA driver" in error["hint"]
