"""A cluster of SLURM on this machine: munged, slurmctld, and a slurmd for each of two nodes, all with files of their own."""

from __future__ import annotations

import contextlib
import os
import pathlib
import pwd
import random
import secrets
import shutil
import socket
import subprocess
import textwrap
import time
from collections.abc import Iterator, Mapping

import pytest
from conftest import LAUNCHERS, LIMIT_S

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scancel", "scontrol", "sinfo", "squeue")
#: Debian has the daemons where only root has them on the path.
PATH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
NODES = ("n1", "n2")


def missing() -> str | None:
    """Returns why there can be no cluster here, if so."""
    absent = [name for name in PROGRAMS if shutil.which(name, path=PATH) is None]
    return f"not installed: {', '.join(absent)}" if absent else None


class Slurm:
    """The daemons."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self._daemons: list[subprocess.Popen[bytes]] = []
        (folder / "state").mkdir()
        key, munge = folder / "munge.key", folder / "munge.socket"
        key.touch(mode=0o600)
        key.write_bytes(secrets.token_bytes(1024))
        configuration = folder / "slurm.conf"
        configuration.write_text(self._configuration(munge))
        variables = {name: value for name, value in os.environ.items() if name not in LAUNCHERS}
        self.environment = {**variables, "PATH": PATH, "SLURM_CONF": str(configuration)}
        files = [f"--{name}-file={folder / 'munge'}.{name}" for name in ("pid", "log", "seed")]
        self._start("munged", "--force", "--foreground", f"--socket={munge}", f"--key-file={key}", *files)
        self._start("slurmctld", "-D")
        for node in NODES:
            self._start("slurmd", "-D", "-N", node)
        self._wait_for_nodes()

    def _configuration(self, munge: pathlib.Path) -> str:
        user, ports = pwd.getpwuid(os.geteuid()).pw_name, free_ports(3)
        return textwrap.dedent(f"""\
            ClusterName=test
            SlurmctldHost={socket.gethostname()}(127.0.0.1)
            SlurmctldPort={ports[0]}
            SlurmUser={user}
            SlurmdUser={user}
            AuthType=auth/munge
            AuthInfo=socket={munge},cred_expire=5
            StateSaveLocation={self.folder}/state
            SlurmdSpoolDir={self.folder}/%n
            SlurmctldPidFile={self.folder}/slurmctld.pid
            SlurmdPidFile={self.folder}/%n.pid
            SlurmdLogFile={self.folder}/%n.log
            SlurmctldLogFile={self.folder}/slurmctld.log
            ProctrackType=proctrack/linuxproc
            TaskPlugin=task/none
            MpiDefault=none
            SelectType=select/cons_tres
            SchedulerType=sched/backfill
            SchedulerParameters=batch_sched_delay=1,bf_interval=1,sched_interval=1
            PreemptType=preempt/partition_prio
            PreemptMode=REQUEUE
            ReturnToService=2
            NodeName=n1 NodeHostname={socket.gethostname()} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=2 State=UNKNOWN
            NodeName=n2 NodeHostname={socket.gethostname()} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=2 State=UNKNOWN
            PartitionName=main Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:4 PriorityTier=1
            PartitionName=urgent Nodes=n1,n2 MaxTime=INFINITE State=UP OverSubscribe=EXCLUSIVE PriorityTier=9
        """)

    def _start(self, program: str, *arguments: str) -> None:
        log = open(self.folder / f"{program}.output", "ab")
        command = [shutil.which(program, path=PATH) or program, *arguments]
        self._daemons.append(subprocess.Popen(command, env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log))

    def _wait_for_nodes(self) -> None:
        deadline = time.monotonic() + LIMIT_S
        while True:
            states = self.call("sinfo", "--noheader", "--Node", "--partition=main", "--format=%t", check=False).split()
            if states == ["idle", "idle"]:
                return
            ended = [daemon.args for daemon in self._daemons if daemon.poll() is not None]
            if ended or time.monotonic() > deadline:
                self.stop()
                raise RuntimeError(f"SLURM does not start: {ended or states}\n{self.logs()}")
            time.sleep(0.2)

    def logs(self) -> str:
        """Returns what the daemons wrote."""
        return "\n".join(f"{path.name}: {path.read_text(errors='replace')}" for path in self.folder.glob("*.[lo]*") if path.is_file())

    def call(self, *command: str, variables: Mapping[str, str] | None = None, check: bool = True) -> str:
        """Runs one of SLURM's programs and returns what it prints."""
        environment = {**self.environment, **(variables or {})}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LIMIT_S)
        assert not check or done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def stop(self) -> None:
        """Ends the daemons: each after those that talk to it, because they wait for its answer."""
        for daemon in reversed(self._daemons):
            daemon.terminate()
            try:
                daemon.wait(timeout=LIMIT_S)
            except subprocess.TimeoutExpired:
                daemon.kill()

    def end_of(self, number: str) -> str:
        """Waits for the end of a job, and returns its state then, such as `COMPLETED`. `sbatch --wait` asks less and less often."""
        deadline = time.monotonic() + LIMIT_S
        while True:
            shown = self.call("scontrol", "--oneliner", "show", "job", number)
            [state] = [word.removeprefix("JobState=") for word in shown.split() if word.startswith("JobState=")]
            if state not in ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING"):
                return state
            assert time.monotonic() < deadline, shown
            time.sleep(0.2)

    def wait_for_jobs(self) -> None:
        """Waits until SLURM knows of the end of all jobs."""
        deadline = time.monotonic() + LIMIT_S
        while jobs := self.call("squeue", "--noheader"):
            assert time.monotonic() < deadline, jobs
            time.sleep(0.2)


def cluster_for_tests(folder: pathlib.Path) -> Iterator[Slurm]:
    """Yields a running cluster and then ends it, as fixtures do; skips the test where there can be none."""
    if reason := missing():
        pytest.skip(f"no SLURM: {reason}")
    try:
        cluster = Slurm(folder)
    except (OSError, RuntimeError) as error:
        pytest.skip(f"no SLURM: {error}")
    yield cluster
    cluster.wait_for_jobs()
    cluster.stop()


def free_ports(count: int) -> list[int]:
    """Returns ports of TCP that nobody uses, and that the kernel gives to no socket that asks for any port."""
    end = int(pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    ports: list[int] = []
    for port in random.sample(range(10_000, max(end, 11_000)), 500):
        if len(ports) < count:
            with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
                ports.append(port)
    return ports
