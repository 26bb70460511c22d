"""What each pod has to be: its security, its resources, its probes, and flags that the programs have."""

import functools
import pathlib
import re
import subprocess

from .manifest import Resource, containers, demand, is_sidecar

#: The only containers that may run as root.
ROOT_CONTAINERS = {"own-socket-folder"}
SERVERS = {"spdl-coord", "spdl-worker"}
PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
#: An amount of a resource. The schemas take any text.
QUANTITY = re.compile(r"([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?")


def check_pod(name: str, pod: Resource, binaries: str | None, added_volumes: set[str]) -> None:
    """Checks a pod, to which a controller adds some volumes."""
    demand(pod.get("enableServiceLinks") is False, f"{name}: Kubernetes would set SPDL_COORD_* variables; set `enableServiceLinks: false`")
    demand(
        pod.get("automountServiceAccountToken") is False,
        f"{name}: has a token of the API server; set `automountServiceAccountToken: false`",
    )
    for container in pod.get("initContainers", []):
        policy = container.get("restartPolicy", "Always")
        demand(
            policy == "Always", f"{name}: container {container['name']}: `restartPolicy` is `{policy}`; a sidecar has `Always`, others none"
        )
    volumes = {volume["name"] for volume in pod.get("volumes", [])} | added_volumes
    for container in containers(pod):
        of_container = f"{name}: container {container['name']}"
        _check_security(of_container, pod, container)
        _check_resources(of_container, container)
        _check_ports(of_container, container)
        for mount in container.get("volumeMounts", []):
            demand(mount["name"] in volumes, f"{of_container}: mounts `{mount['name']}`, and the pod has no such volume")
        if binaries:
            _check_flags(of_container, container, pathlib.Path(binaries))
    for container in pod["containers"] + [c for c in pod.get("initContainers", []) if is_sidecar(c)]:
        if container.get("command", [""])[0] in SERVERS:
            _check_server(f"{name}: container {container['name']}", container)


def _check_security(name: str, pod: Resource, container: Resource) -> None:
    security = pod.get("securityContext", {}) | container.get("securityContext", {})
    non_root = security.get("runAsNonRoot") is True and security.get("runAsUser", 0) > 0
    demand(non_root or container["name"] in ROOT_CONTAINERS, f"{name} runs as root")
    demand(security.get("readOnlyRootFilesystem") is True, f"{name} can write its root file system")
    demand(security.get("allowPrivilegeEscalation") is False, f"{name} can gain privileges")
    demand(security.get("capabilities", {}).get("drop") == ["ALL"], f"{name} keeps capabilities")
    demand(security.get("seccompProfile", {}).get("type") == "RuntimeDefault", f"{name} has no seccomp profile")


def _check_resources(name: str, container: Resource) -> None:
    resources = container.get("resources", {})
    demand({"cpu", "memory"} <= resources.get("requests", {}).keys(), f"{name} asks for no CPU and memory")
    demand("memory" in resources.get("limits", {}), f"{name} has no memory limit")
    for kind, amount in [*resources["requests"].items(), *resources["limits"].items()]:
        demand(bool(QUANTITY.fullmatch(str(amount))), f"{name}: `{amount}` is no amount of {kind}; amounts are as `500m`, `4` or `10Gi`")


def _check_ports(name: str, container: Resource) -> None:
    """Checks that probes are of ports that the container has, by name."""
    ports = sorted(port["name"] for port in container.get("ports", []))
    for probe in PROBES:
        port = container.get(probe, {}).get("httpGet", {}).get("port")
        demand(port is None or port in ports, f"{name}: `{probe}` asks port `{port}`; the container has {ports}")


def _check_server(name: str, container: Resource) -> None:
    demand({"livenessProbe", "readinessProbe"} <= container.keys(), f"{name} has no probes")
    if is_sidecar(container):
        demand("startupProbe" in container, f"{name}: without a `startupProbe` the trainer starts before its worker serves")


def _check_flags(name: str, container: Resource, binaries: pathlib.Path) -> None:
    # KubeRay writes the command of a container that has none.
    program, *words = container.get("command", [""]) + container.get("args", [])
    if not program.startswith("spdl-"):
        return
    subcommand = tuple(word for word in words if not word.startswith("-"))
    known = _help_of(binaries / program, subcommand)
    command = " ".join([program, *subcommand])
    for flag in (word.split("=")[0] for word in words if word.startswith("--")):
        demand(f"{flag} " in known or f"{flag}\n" in known, f"{name}: `{command}` has no {flag}")


@functools.cache
def _help_of(program: pathlib.Path, subcommand: tuple[str, ...]) -> str:
    return subprocess.run([program, *subcommand, "--help"], check=True, capture_output=True, text=True).stdout
