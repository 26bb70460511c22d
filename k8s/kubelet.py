"""The pods of `jobset/` as they are written, from the image that `image/build.py` builds, as processes of this machine.

usage: kubelet.py FOLDER_OF_BINARIES PHOTOS      packs the photos, trains, and prints the seconds until each trainer had its first batch. Needs
root, `unshare`, `openssl` and `buildah`

What a kubelet does for a pod is done here: each container has the image as its root folder, which it cannot write, the volumes of its
pod, its user, no capabilities, and the variables of the manifest. Certificates are made as those of `components/cert-manager` ask for.
All pods share one network, in which each has an address. What Kubernetes does before a container starts takes no time here, and probes
are looked at all the time.
"""

import contextlib
import copy
import ctypes
import dataclasses
import fcntl
import json
import os
import pathlib
import re
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from typing import Any

from checks.kustomization import render
from checks.manifest import HERE, Resource
from image.build import build

#: For what takes seconds, on a machine that does much else.
LIMIT_S = 120
ISSUED = {"server auth": "serverAuth", "client auth": "clientAuth"}


@dataclasses.dataclass
class Pod:
    """A pod of a replicated job, and what it has on this machine."""

    name: str
    address: str
    spec: Resource
    folder: pathlib.Path
    #: What the downward API has of it.
    fields: dict[str, str]
    #: Where its volumes are.
    volumes: dict[str, pathlib.Path]


class Node:
    """Starts containers from one image, and ends them."""

    def __init__(self, image: pathlib.Path, hosts: pathlib.Path, dataset: pathlib.Path) -> None:
        self.image, self.hosts, self.dataset = image, hosts, dataset
        self.running: dict[tuple[str, str], subprocess.Popen[bytes]] = {}

    def start(self, pod: Pod, container: Resource) -> subprocess.Popen[bytes]:
        root = pod.folder / container["name"]
        # Links: the files of the image are shared, and folders for volumes can be made.
        subprocess.run(["cp", "--archive", "--link", self.image, root], check=True)
        environment = {"PATH": "/usr/local/bin:/usr/bin"}
        for variable in container.get("env", []):
            environment[variable["name"]] = expand(value_of(variable, pod), environment)
        # Here pods share the addresses of one network.
        words = [
            expand(word, environment).replace("0.0.0.0:", f"{pod.address}:") for word in container["command"] + container.get("args", [])
        ]
        mounts = [(str(pod.volumes[m["name"]]), m["mountPath"], m.get("readOnly", False)) for m in container["volumeMounts"]]
        mounts += [(str(self.hosts), "/etc/hosts", True), (str(self.dataset), "/data/example", True)]
        what = {
            "root": str(root),
            "mounts": mounts,
            "words": words,
            "environment": environment,
            "user": pod.spec["securityContext"]["runAsUser"],
        }
        command = ["unshare", "--mount", sys.executable, __file__, "--container", json.dumps(what)]
        with (pod.folder / f"{container['name']}.out").open("w") as out, (pod.folder / f"{container['name']}.log").open("w") as log:
            process = subprocess.Popen(command, stdout=out, stderr=log)
        self.running[pod.name, container["name"]] = process
        return process

    def wait_for(self, pod: Pod, container: Resource, probe: str) -> None:
        """Waits until a probe of a container that runs succeeds."""
        process = self.running[pod.name, container["name"]]
        (port,) = [p["containerPort"] for p in container["ports"] if p["name"] == container[probe]["httpGet"]["port"]]
        url = f"http://{pod.address}:{port}{container[probe]['httpGet']['path']}"
        deadline = time.monotonic() + LIMIT_S
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=LIMIT_S):
                return
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.05)
                break
        log = (pod.folder / f"{container['name']}.log").read_text()
        raise AssertionError(f"{pod.name}: {container['name']} does not answer {url}; status {process.poll()}, its log is:\n{log}")

    def end(self) -> dict[tuple[str, str], int]:
        """Asks all containers to end, and returns how each that ran did."""
        asked = {name: process for name, process in self.running.items() if process.poll() is None}
        for process in asked.values():
            process.send_signal(signal.SIGTERM)
        return {name: process.wait(LIMIT_S) for name, process in asked.items()}

    def kill(self) -> None:
        for process in self.running.values():
            process.kill()
            process.wait()


def value_of(variable: Resource, pod: Pod) -> str:
    if "value" in variable:
        return str(variable["value"])
    return pod.fields[variable["valueFrom"]["fieldRef"]["fieldPath"]]


def expand(text: str, environment: dict[str, str]) -> str:
    return re.sub(r"\$\(([A-Z_]+)\)", lambda match: environment[match[1]], text)


def pods_of(jobset: Resource, secrets: dict[str, pathlib.Path], maps: dict[str, pathlib.Path], folder: pathlib.Path) -> Iterator[Pod]:
    """Yields the pods that JobSet makes, the coordinator's first."""
    name, coordinator = jobset["metadata"]["name"], jobset["spec"]["coordinator"]["replicatedJob"]
    for job in jobset["spec"]["replicatedJobs"]:
        spec = job["template"]["spec"]
        for index in range(spec["parallelism"]):
            pod = f"{name}-{job['name']}-0-{index}"
            address = f"127.0.0.{2 + index}" if job["name"] == coordinator else f"127.0.1.{2 + index}"
            fields = {
                "metadata.name": pod,
                "status.podIP": address,
                "metadata.annotations['jobset.sigs.k8s.io/coordinator']": f"{name}-{coordinator}-0-0.{name}",
                "metadata.annotations['batch.kubernetes.io/job-completion-index']": str(index),
                "metadata.labels['batch.kubernetes.io/controller-uid']": f"uid-of-{job['name']}",
            }
            home = folder / pod
            home.mkdir()
            of_pod = spec["template"]["spec"]
            volumes = {volume["name"]: source_of(volume, of_pod, secrets, maps, home) for volume in of_pod["volumes"]}
            for claim in jobset["spec"]["volumeClaimPolicies"][0]["templates"]:
                volumes[claim["metadata"]["name"]] = empty(of_pod, home / "claim")
            yield Pod(pod, address, of_pod, home, fields, volumes)


def source_of(
    volume: Resource, pod: Resource, secrets: dict[str, pathlib.Path], maps: dict[str, pathlib.Path], home: pathlib.Path
) -> pathlib.Path:
    if "secret" in volume:
        return secrets[volume["secret"]["secretName"]]
    if "configMap" in volume:
        return maps[volume["configMap"]["name"]]
    return empty(pod, home / f"volume-{volume['name']}")


def empty(pod: Resource, folder: pathlib.Path) -> pathlib.Path:
    """Makes an empty volume, which belongs to root and the group of the pod, as a kubelet does."""
    folder.mkdir(exist_ok=True)
    os.chown(folder, 0, pod["securityContext"]["fsGroup"])
    folder.chmod(0o2777)
    return folder


def issue(certificates: list[Resource], group: int, folder: pathlib.Path) -> dict[str, pathlib.Path]:
    """Issues certificates as cert-manager does, and returns the folders of their Secrets."""
    (authority,) = [c["spec"] for c in certificates if c["spec"].get("isCA")]
    ca = folder / "ca"
    ca.mkdir()
    openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", ca / "tls.key")
    uses = ["-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,digitalSignature,keyCertSign,cRLSign"]
    openssl("req", "-x509", "-new", "-key", ca / "tls.key", "-subj", f"/CN={authority['commonName']}", *uses, "-out", ca / "ca.crt")
    secrets = {}
    for spec in (c["spec"] for c in certificates if not c["spec"].get("isCA")):
        secret = secrets[spec["secretName"]] = folder / spec["secretName"]
        secret.mkdir()
        (secret / "ca.crt").write_bytes((ca / "ca.crt").read_bytes())
        usage = ",".join(ISSUED[use] for use in spec["usages"] if use in ISSUED)
        names = ",".join(f"DNS:{name}" for name in spec["dnsNames"])
        extensions = folder / "extensions"
        extensions.write_text(
            f"basicConstraints=critical,CA:FALSE\nkeyUsage=critical,digitalSignature\nextendedKeyUsage={usage}\nsubjectAltName={names}\n"
        )
        key, request = secret / "tls.key", folder / "request"
        openssl("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", key)
        openssl("req", "-new", "-key", key, "-subj", f"/CN={spec['commonName']}", "-out", request)
        by: list[str | pathlib.Path] = [
            "-CA",
            ca / "ca.crt",
            "-CAkey",
            ca / "tls.key",
            "-CAcreateserial",
            "-days",
            "90",
            "-extfile",
            extensions,
        ]
        openssl("x509", "-req", "-in", request, *by, "-out", secret / "tls.crt")
        protect(secret, group)
    return secrets


def protect(secret: pathlib.Path, group: int) -> None:
    """Gives the files of a Secret the group of the pod, and the mode 0440."""
    for file in secret.iterdir():
        os.chown(file, 0, group)
        file.chmod(0o440)


def openssl(*arguments: str | pathlib.Path) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)


@dataclasses.dataclass
class Run:
    """How a training ended."""

    #: What each trainer printed.
    reports: list[dict[str, Any]]
    #: The statuses of the servers, which were asked to end.
    servers: set[int]
    #: Seconds from the start of the coordinator's container to the first batch of the last trainer.
    first_batch_s: float


def train(binaries: pathlib.Path, dataset: pathlib.Path, trainers: int, folder: pathlib.Path) -> Run:
    """Runs the JobSet with so many trainers to its end. Everything lies in `folder`."""
    folder.chmod(0o755)
    resources = render(HERE / "jobset")
    jobset = copy.deepcopy(next(r for r in resources if r["kind"] == "JobSet"))
    resize(jobset, trainers)
    group = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["securityContext"]["fsGroup"]
    secrets = issue([r for r in resources if r["kind"] == "Certificate"], group, folder)
    secrets["spdl-http"] = folder / "spdl-http"
    secrets["spdl-http"].mkdir()
    (secrets["spdl-http"] / "token").write_text("0123456789abcdef0123456789abcdef")
    protect(secrets["spdl-http"], group)
    maps = {}
    for config in (r for r in resources if r["kind"] == "ConfigMap"):
        maps[config["metadata"]["name"]] = folder / config["metadata"]["name"]
        maps[config["metadata"]["name"]].mkdir()
        for file, text in config["data"].items():
            (maps[config["metadata"]["name"]] / file).write_text(text)
    image = build(binaries, folder / "image").root
    coordinator, *of_trainers = pods_of(jobset, secrets, maps, folder)
    name = coordinator.fields["metadata.annotations['jobset.sigs.k8s.io/coordinator']"]
    hosts = folder / "hosts"
    hosts.write_text(f"{coordinator.address} {name}\n")
    node = Node(image, hosts, dataset)
    try:
        begin = time.monotonic()
        (server,) = coordinator.spec["containers"]
        node.start(coordinator, server)
        node.wait_for(coordinator, server, "readinessProbe")
        for pod in of_trainers:
            (sidecar,) = pod.spec["initContainers"]
            node.start(pod, sidecar)
        ranks = []
        for pod in of_trainers:
            (sidecar,), (trainer,) = pod.spec["initContainers"], pod.spec["containers"]
            node.wait_for(pod, sidecar, "startupProbe")
            ranks.append((pod, node.start(pod, trainer), time.monotonic() - begin))
        reports, first_batches = [], []
        for pod, rank, started_s in ranks:
            if rank.wait(LIMIT_S) != 0:
                raise AssertionError(f"{pod.name}: the trainer's log is:\n{(pod.folder / 'trainer.log').read_text()}")
            reports.append(json.loads((pod.folder / "trainer.out").read_text()))
            first_batches.append(started_s + reports[-1]["first_batch_s"])
        return Run(reports, set(node.end().values()), max(first_batches))
    finally:
        node.kill()


def resize(jobset: Resource, trainers: int) -> None:
    """Gives a JobSet another number of trainers, as k8s/README.md says."""
    job = jobset["spec"]["replicatedJobs"][1]["template"]["spec"]
    job |= {"completions": trainers, "parallelism": trainers}
    for variable in job["template"]["spec"]["containers"][0]["env"]:
        if variable["name"] == "WORLD_SIZE":
            variable["value"] = str(trainers)


def become(container: dict[str, Any]) -> None:
    """Becomes the program of a container. This process has a mount namespace of its own."""
    root = pathlib.Path(container["root"])
    mount("--make-rprivate", "/")
    mount("--bind", root, root)
    for source, path, _ in container["mounts"]:
        target = root / path[1:]
        if pathlib.Path(source).is_dir():
            target.mkdir(parents=True, exist_ok=True)
        else:
            target.touch()
    for folder in ("proc", "dev"):
        (root / folder).mkdir(exist_ok=True)
    mount("-o", "remount,bind,ro", root)
    mount("--rbind", "/dev", root / "dev")
    mount("-t", "proc", "proc", root / "proc")
    for source, path, read_only in container["mounts"]:
        mount("--bind", source, root / path[1:])
        if read_only:
            mount("-o", "remount,bind,ro", root / path[1:])
    os.chroot(root)
    os.chdir("/")
    os.setgroups([container["user"]])
    os.setgid(container["user"])
    # Without root's id, all capabilities go too.
    os.setuid(container["user"])
    no_new_privileges = 38
    assert ctypes.CDLL(None).prctl(no_new_privileges, 1, 0, 0, 0) == 0
    os.execvpe(container["words"][0], container["words"], container["environment"])


def mount(*arguments: str | pathlib.Path) -> None:
    subprocess.run(["mount", *arguments], check=True)


def raise_loopback() -> None:
    """Makes the loopback device of a new network usable."""
    set_flags, up = 0x8914, 0x1
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, set_flags, struct.pack("16sh14x", b"lo", up))


def may_use_namespaces() -> bool:
    return os.getuid() == 0 and subprocess.run(["unshare", "--net", "--mount", "true"], capture_output=True).returncode == 0


def enter_namespaces(script: str, *arguments: str) -> None:
    """Runs a script again, with a network and mounts of its own, in place of this process."""
    os.execvp("unshare", ["unshare", "--net", "--mount", sys.executable, script, "--inside", *arguments])


def measure(binaries: pathlib.Path, photos: pathlib.Path) -> float:
    """Packs, and trains with two trainers. Returns the seconds that took until both had a batch."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        begin = time.monotonic()
        subprocess.run([binaries / "spdl-ctl", "pack", photos, folder / "dataset"], check=True, capture_output=True)
        packed_s = time.monotonic() - begin
        return packed_s + train(binaries, folder / "dataset", 2, folder).first_batch_s


if __name__ == "__main__":
    mode, *rest = sys.argv[1:]
    if mode == "--container":
        become(json.loads(rest[0]))
    elif mode == "--inside":
        raise_loopback()
        print(f"{measure(pathlib.Path(rest[0]), pathlib.Path(rest[1])):.2f}")
    else:
        enter_namespaces(__file__, *(str(pathlib.Path(path).resolve()) for path in (mode, *rest)))
