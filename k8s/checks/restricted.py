"""The level `restricted` of Kubernetes' Pod Security Standards, as rules on the specification of a pod.

As https://kubernetes.io/docs/concepts/security/pod-security-standards/ defines it for Kubernetes 1.37. Two relaxations that the
admission controller makes are left out, so what passes here passes there: for pods with their own user namespace, and for Windows.
"""

from collections.abc import Iterator
from typing import Any

Resource = dict[str, Any]

ENFORCE = "pod-security.kubernetes.io/enforce"
VOLUME_TYPES = {
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "image",
    "persistentVolumeClaim",
    "projected",
    "secret",
}
SELINUX_TYPES = {"", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"}
SYSCTLS = {
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ping_group_range",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_notsent_lowat",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_slow_start_after_idle",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.tcp_wmem",
}
APPARMOR_ANNOTATION = "container.apparmor.security.beta.kubernetes.io/"


def violations(pod: Resource, annotations: dict[str, str] | None = None) -> list[str]:
    """Returns what the level `restricted` forbids in a pod, each with its place; nothing if the pod may run."""
    found = list(_of_pod(pod, annotations or {}))
    for kind in ("initContainers", "containers", "ephemeralContainers"):
        for container in pod.get(kind) or []:
            place = f"container `{container['name']}`"
            found += [f"{place}: {problem}" for problem in _of_container(pod.get("securityContext") or {}, container)]
    return found


def _of_pod(pod: Resource, annotations: dict[str, str]) -> Iterator[str]:
    security = pod.get("securityContext") or {}
    for key in ("hostNetwork", "hostPID", "hostIPC"):
        if pod.get(key):
            yield f"`{key}` shares a namespace of the node"
    for volume in pod.get("volumes") or []:
        for kind in sorted(volume.keys() - {"name"} - VOLUME_TYPES):
            yield f"volume `{volume['name']}` is a `{kind}`; allowed are {', '.join(sorted(VOLUME_TYPES))}"
    for sysctl in security.get("sysctls") or []:
        if sysctl["name"] not in SYSCTLS:
            yield f"sysctl `{sysctl['name']}` is not one of the safe ones"
    for key, profile in annotations.items():
        if key.startswith(APPARMOR_ANNOTATION) and profile not in ("", "runtime/default") and not profile.startswith("localhost/"):
            yield f"annotation `{key}` is `{profile}`: it may be `runtime/default` or `localhost/...`"
    if security.get("runAsNonRoot") is False:
        yield "`runAsNonRoot` is false"
    yield from _of_either(security)


def _of_either(security: Resource) -> Iterator[str]:
    """What neither the pod nor a container may set."""
    if security.get("runAsUser") == 0:
        yield "`runAsUser` is 0, which is root"
    seccomp = (security.get("seccompProfile") or {}).get("type")
    if seccomp not in (None, "RuntimeDefault", "Localhost"):
        yield f"`seccompProfile` is `{seccomp}`: it may be `RuntimeDefault` or `Localhost`"
    apparmor = (security.get("appArmorProfile") or {}).get("type")
    if apparmor not in (None, "RuntimeDefault", "Localhost"):
        yield f"`appArmorProfile` is `{apparmor}`: it may be `RuntimeDefault` or `Localhost`"
    selinux = security.get("seLinuxOptions") or {}
    if selinux.get("type", "") not in SELINUX_TYPES:
        yield f"`seLinuxOptions.type` is `{selinux['type']}`"
    for key in ("user", "role"):
        if selinux.get(key):
            yield f"`seLinuxOptions.{key}` is set"
    if (security.get("windowsOptions") or {}).get("hostProcess"):
        yield "`windowsOptions.hostProcess` is true"


def _of_container(of_pod: Resource, container: Resource) -> Iterator[str]:
    security = container.get("securityContext") or {}
    yield from _of_either(security)
    if security.get("runAsNonRoot", of_pod.get("runAsNonRoot")) is not True:
        yield "`runAsNonRoot` is not true, neither here nor for the pod"
    if not (security.get("seccompProfile") or of_pod.get("seccompProfile")):
        yield "`seccompProfile` is not set, neither here nor for the pod"
    if security.get("allowPrivilegeEscalation") is not False:
        yield "`allowPrivilegeEscalation` is not false"
    if security.get("privileged"):
        yield "`privileged` is true"
    capabilities = security.get("capabilities") or {}
    if "ALL" not in (capabilities.get("drop") or []):
        yield "`capabilities.drop` lacks `ALL`"
    for capability in capabilities.get("add") or []:
        if capability != "NET_BIND_SERVICE":
            yield f"`capabilities.add` has `{capability}`; `NET_BIND_SERVICE` alone may be added"
    if security.get("procMount") not in (None, "Default"):
        yield f"`procMount` is `{security['procMount']}`: it may be `Default`"
    for port in container.get("ports") or []:
        if port.get("hostPort"):
            yield f"`hostPort` {port['hostPort']} is a port of the node"
    for handler, action in _handlers(container):
        if (action.get("httpGet") or {}).get("host") or (action.get("tcpSocket") or {}).get("host"):
            yield f"`{handler}` connects to a `host` that is not the pod"


def _handlers(container: Resource) -> Iterator[tuple[str, Resource]]:
    for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
        yield probe, container.get(probe) or {}
    for event, action in (container.get("lifecycle") or {}).items():
        if isinstance(action, dict):
            yield f"lifecycle.{event}", action
