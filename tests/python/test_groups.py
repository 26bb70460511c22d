"""Groups of processes that share a rank: all get the same batches, in the same memory."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
from typing import Any

import pytest
import spdl_cluster
from conftest import LIMIT_S, PICTURES, Cluster, MakeJob, run_python
from torchrun import finish, torchrun

STEPS = PICTURES // 24
MEMBERS = 4

#: A member of the group: prints a line for each batch, and at the end what came of it.
MEMBER = """
    import json, sys, spdl_cluster
    number, members, job, coordinators, certs, epochs, hold = json.loads(sys.argv[1])
    loader = spdl_cluster.connect(
        0, 1, member=(number, members), job=job, coordinators=coordinators, certs=certs, launch="groups", epochs=epochs, tensors="numpy"
    )
    digests, slabs = [], set()
    for epoch in range(epochs):
        for batch in loader:
            digests.append((batch.position, batch.ids.tolist(), batch.content_digest(), int(batch["image"].sum())))
            slabs |= {line.split()[4] for line in open("/proc/self/maps") if "memfd:spdl-slab" in line}
            print(json.dumps(len(digests)), flush=True)
            if len(digests) == hold:
                sys.stdin.readline()
    print(json.dumps([digests, sorted(slabs), loader.receipt, loader.state_dict()]), flush=True)
"""


def start(cluster: Cluster, job: str, number: int, epochs: int, hold: int = 0) -> subprocess.Popen[str]:
    arguments = [number, MEMBERS, job, cluster.coordinators, str(cluster.folder / "certs/client"), epochs, hold]
    return run_python(MEMBER, json.dumps(arguments), SPDL_MEMBER_TIMEOUT_S="1")


def report(process: subprocess.Popen[str]) -> Any:
    output, errors = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0, errors
    return json.loads(output.splitlines()[-1])


def test_all_members_get_the_batches_of_one_rank_in_one_slab(job: MakeJob, cluster: Cluster) -> None:
    name = cluster.submit(job(name="grouped", epochs=2))
    members = [start(cluster, name, number, 2) for number in range(MEMBERS)]
    reports = [report(member) for member in members]
    assert all(other == reports[0] for other in reports), "digests, memory, receipt and state"
    with cluster.connect(0, 1, job=name, run="alone", tensors="numpy") as loader:
        alone = [[list(batch.position), batch.ids.tolist(), batch.content_digest(), int(batch["image"].sum())] for _ in range(2) for batch in loader]
        digests, slabs, receipt, state = reports[0]
        assert digests == alone and len(digests) == 2 * STEPS
        assert (receipt, state) == (loader.receipt, loader.state_dict())
    assert len(slabs) == 1


def test_members_that_are_killed_or_suspended_hold_up_no_other(job: MakeJob, cluster: Cluster) -> None:
    name = cluster.submit(job(name="bereft", epochs=3))
    members = [start(cluster, name, number, 3, hold=2) for number in range(MEMBERS)]
    for member in members:
        assert member.stdout is not None
        while json.loads(member.stdout.readline()) < 2:
            pass
    killed, suspended = members[1], members[2]
    killed.send_signal(signal.SIGKILL)
    suspended.send_signal(signal.SIGSTOP)
    for member in (members[0], suspended, members[3]):
        assert member.stdin is not None
        member.stdin.write("\n")
        member.stdin.flush()
    digests = [report(member)[0] for member in (members[0], members[3])]
    assert digests[0] == digests[1] and len(digests[0]) == 3 * STEPS
    suspended.send_signal(signal.SIGCONT)
    _, errors = suspended.communicate(timeout=LIMIT_S)
    assert suspended.returncode != 0 and "member 2 of the 4 of rank 0" in errors, errors
    killed.communicate(timeout=LIMIT_S)


def test_a_group_under_torchrun_resumes_with_another_number_of_members(job: MakeJob, cluster: Cluster, tmp_path: pathlib.Path) -> None:
    pytest.importorskip("torch", reason=os.environ.get("SPDL_TEST_NO_TORCH", "torch is not installed"))
    name = cluster.submit(job(name="regrouped", epochs=4))
    program = tmp_path / "train.py"
    program.write_text(
        """
import json, os, sys
import torch.distributed as dist
import spdl_cluster

job, coordinators, certs, state, steps, out = json.loads(sys.argv[1])
dist.init_process_group("gloo")
tp_rank, tp_size = dist.get_rank(), dist.get_world_size()
loader = spdl_cluster.connect(0, 1, member=(tp_rank, tp_size), job=job, coordinators=coordinators, certs=certs, tensors="torch")
if state is not None:
    loader.load_state_dict(state)
found = []
for _ in range(steps):
    batch = loader.next()
    found.append([batch.ids.tolist(), batch.content_digest()])
    sums = [None] * tp_size
    dist.all_gather_object(sums, batch["image"].float().sum().item())
    assert len(set(sums)) == 1
    del batch
json.dump([found, loader.state_dict()], open(f"{out}-{tp_rank}", "w"))
loader.close()
dist.destroy_process_group()
"""
    )

    def run(world: int, state: Any, steps: int, out: str) -> list[Any]:
        path = tmp_path / out
        arguments = [name, cluster.coordinators, str(cluster.folder / "certs/client"), state, steps, str(path)]
        finish(torchrun(program, world, json.dumps(arguments)))
        reports = [json.loads(pathlib.Path(f"{path}-{number}").read_text()) for number in range(world)]
        assert all(other == reports[0] for other in reports)
        return list(reports[0])

    found, state = run(4, None, 5, "first")
    rest, state = run(2, state, 6, "second")
    with cluster.connect(0, 1, job=name, run="whole") as loader:
        whole = []
        for _ in range(11):
            batch = loader.next()
            assert batch is not None
            whole.append([batch.ids.tolist(), batch.content_digest()])
        assert found + rest == whole
        assert state == loader.state_dict()


def test_a_member_has_the_columns_that_it_asks_for(job: MakeJob, cluster: Cluster) -> None:
    name = cluster.submit(job(name="by-column"))
    members = [cluster.connect(0, 1, job=name, member=(number, 2), columns=columns, tensors="numpy") for number, columns in enumerate((None, ("label",)))]
    with members[0] as whole, members[1] as part:
        # Opened at the first use: that of member 0 waits for the other.
        positions = [loader.position for loader in members]
        assert positions == [(0, 0)] * 2
        batches = whole.next(), part.next()
        assert batches[0] is not None and batches[1] is not None
        assert set(batches[1]) == {"label"} and len(batches[0]) > 1
        assert batches[0]["label"].tolist() == batches[1]["label"].tolist()
        assert batches[0].content_digest() == batches[1].content_digest()
        del batches
    with pytest.raises(spdl_cluster.SettingError, match="`columns` has `labels`.*"):
        with cluster.connect(0, 1, job=name, run="other", columns=("labels",)) as loader:
            loader.next()
    with pytest.raises(spdl_cluster.SettingError, match="`columns` is the text `label`"):
        cluster.connect(0, 1, job=name, columns="label")
    with pytest.raises(spdl_cluster.SettingError, match="`tuples` has `image`, which is not among `columns`"):
        cluster.connect(0, 1, job=name, columns=("label",), tuples=("image",))


def test_a_member_gives_the_data_parallel_rank_and_world(cluster: Cluster) -> None:
    certs = cluster.folder / "certs/client"
    with pytest.raises(spdl_cluster.SettingError, match="`rank` and `world` are not both given"):
        spdl_cluster.connect(job="any", member=(0, 2), coordinators=cluster.coordinators, certs=certs)
    with pytest.raises(spdl_cluster.SettingError, match="is 2 of 2: members are 0 to MEMBERS - 1"):
        cluster.connect(0, 1, job="any", member=(2, 2))
    with cluster.connect(0, 1, job="any", member=(1, 2), timeout=0.2) as loader:
        with pytest.raises(spdl_cluster.ConnectError, match="member 0, which leads the group, is not at"):
            loader.next()
