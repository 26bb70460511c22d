"""Validates the manifests in this folder against the current Kubernetes schemas, and checks the promised security settings.

usage: validate.py [FOLDER_OF_BINARIES]      needs the packages kubernetes-validate and jsonpatch

Checks each resource as it is written, then each overlay with its patches applied. With the binaries, checks that each flag in
a manifest is a flag of the binary. If kubectl is installed, checks everything as its kustomize renders it, too. Kubernetes has no
schema of the resources of the Prometheus operator and of KEDA: the former are checked against the pods and the rules that they
refer to, the latter against `schemas`. What scales workers is checked against those workers and the metrics that there are.
"""

import copy
import pathlib
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import jsonpatch
import jsonschema
import kubernetes_validate
import yaml

HERE = pathlib.Path(__file__).resolve().parent
OPERATOR = "monitoring.coreos.com/v1"
KEDA = "keda.sh/v1alpha1"
ROOT_CONTAINERS = {"own-socket-folder"}
Resource = dict[str, Any]
flags_of: dict[str, str] = {}


def main(binaries: str | None = None) -> None:
    count = 0
    subprocess.run([sys.executable, HERE / "monitoring/generate.py", "--check"], check=True)
    for path in sorted(HERE.rglob("kustomization.yaml")):
        resources = render(path.parent)
        for resource in resources:
            check(resource, str(path.relative_to(HERE)), binaries)
            count += 1
        check_scaling(resources, str(path.relative_to(HERE)))
        if kubectl := shutil.which("kubectl"):
            rendered = subprocess.run([kubectl, "kustomize", path.parent], check=True, capture_output=True).stdout
            resources = list(yaml.safe_load_all(rendered))
            for resource in resources:
                check(resource, f"{path.relative_to(HERE)} as kubectl renders it", binaries)
                count += 1
            check_scaling(resources, f"{path.relative_to(HERE)} as kubectl renders it")
    for path in sorted(HERE.glob("example-*.yaml")):
        for resource in yaml.safe_load_all(path.read_text()):
            check(resource, path.name, binaries)
            count += 1
    print(f"{count} resources are valid for Kubernetes {kubernetes_validate.latest_version()}")


def render(folder: pathlib.Path) -> list[Resource]:
    """Returns the resources of a kustomization with its patches applied: the part of kustomize that matters for validity."""
    kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text())
    resources: list[Resource] = []
    for entry in kustomization.get("resources", []):
        path = folder / entry
        resources += render(path) if path.is_dir() else list(yaml.safe_load_all(path.read_text()))
    for generator in kustomization.get("configMapGenerator", []):
        for file in generator["files"]:
            demand((folder / file).is_file(), f"{folder}: no file `{file}`")
    for patch in kustomization.get("patches", []):
        operations = yaml.safe_load((folder / patch["path"]).read_text())
        targets = [r for r in resources if matches(r, patch["target"])]
        demand(len(targets) == 1, f"{folder}: {patch['path']} has {len(targets)} targets")
        if isinstance(operations, dict):
            demand(operations["$patch"] == "delete" and matches(operations, patch["target"]), f"{folder}: {patch['path']}")
            resources.remove(targets[0])
            continue
        targets[0].update(jsonpatch.apply_patch(copy.deepcopy(targets[0]), operations))
    return resources


def matches(resource: Resource, target: dict[str, str]) -> bool:
    return resource["kind"] == target["kind"] and resource["metadata"]["name"] == target["name"]


def check(resource: Resource, origin: str, binaries: str | None) -> None:
    name = f"{origin}: {resource['kind']} {resource['metadata']['name']}"
    if resource["apiVersion"] == OPERATOR:
        return check_of_operator(name, resource)
    if resource["apiVersion"] == KEDA:
        return check_of_keda(name, resource)
    check_schema(name, resource)
    for pod in pods(resource):
        for container in pod.get("initContainers", []) + pod["containers"]:
            check_container(f"{name}: container {container['name']}", pod, container)
            if binaries:
                check_flags(name, container, pathlib.Path(binaries))
        if resource["kind"] != "Job":
            for container in pod["containers"]:
                demand({"livenessProbe", "readinessProbe"} <= container.keys(), f"{name}: no probes")


def check_schema(name: str, resource: Resource) -> None:
    try:
        kubernetes_validate.validate(resource, kubernetes_validate.latest_version(), strict=True)
    except kubernetes_validate.ValidationError as error:
        sys.exit(f"{name}: {error.message}")


def check_of_keda(name: str, resource: Resource) -> None:
    demand(resource["kind"] == "ScaledObject", f"{name}: no schema for this kind")
    try:
        jsonschema.validate(resource["spec"], yaml.safe_load((HERE / "schemas/scaled-object.yaml").read_text()))
    except jsonschema.ValidationError as error:
        sys.exit(f"{name}: {error.json_path}: {error.message}")
    check_schema(name, autoscaler_of(resource))


def autoscaler_of(resource: Resource) -> Resource:
    """Returns the HorizontalPodAutoscaler that KEDA makes of a ScaledObject, as far as it is written there."""
    spec = resource["spec"]
    (trigger,) = spec["triggers"]
    target = {"type": trigger["metricType"], "averageValue": trigger["metadata"]["threshold"]}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": resource["metadata"],
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment"} | spec["scaleTargetRef"],
            "minReplicas": spec["minReplicaCount"],
            "maxReplicas": spec["maxReplicaCount"],
            "metrics": [{"type": "External", "external": {"metric": {"name": trigger["metadata"]["query"]}, "target": target}}],
            "behavior": spec["advanced"]["horizontalPodAutoscalerConfig"]["behavior"],
        },
    }


def check_scaling(resources: list[Resource], origin: str) -> None:
    """Checks what scales workers: its target, its metric, the cores of a worker, up at once and down by one in five minutes."""
    for resource in resources:
        if resource["kind"] not in ("ScaledObject", "HorizontalPodAutoscaler"):
            continue
        name = f"{origin}: {resource['kind']} {resource['metadata']['name']}"
        spec = (autoscaler_of(resource) if resource["kind"] == "ScaledObject" else resource)["spec"]
        demand(spec["minReplicas"] < spec["maxReplicas"], f"{name} scales nothing")
        workers = [r for r in resources if matches(r, spec["scaleTargetRef"])]
        demand(len(workers) == 1 and "replicas" not in workers[0]["spec"], f"{name}: no workers, or with a fixed number")
        (pod,) = pods(workers[0])
        (container,) = pod["containers"]
        (metric,) = spec["metrics"]
        external = metric["external"]
        (measured,) = re.findall(r"\bspdl_\w+", external["metric"]["name"])
        documented = (HERE.parent / "docs/guide/observe.md").read_text()
        demand(f"| `{measured}` | gauge |" in documented, f"{name}: no metric {measured}")
        cores = external["target"]["averageValue"]
        demand(f"--cores={cores}" in container["args"], f"{name} is for {cores} cores, {container['args']}")
        demand(container["resources"]["requests"]["cpu"] == cores, f"{name}: the workers ask for other cores")
        demand("--no-socket" in container["args"], f"{name}: the workers do not count as the pool")
        up, down = spec["behavior"]["scaleUp"], spec["behavior"]["scaleDown"]
        demand(up["stabilizationWindowSeconds"] == 0, f"{name} waits before it goes up")
        one = [{"type": "Pods", "value": 1, "periodSeconds": 300}]
        demand(down["policies"] == one and down["stabilizationWindowSeconds"] == 300, f"{name} goes down too fast")


def check_of_operator(name: str, resource: Resource) -> None:
    spec = resource["spec"]
    if resource["kind"] == "PrometheusRule":
        rules = yaml.safe_load((HERE / "monitoring/rules.yaml").read_text())
        demand(spec == rules, f"{name} has other rules than monitoring/rules.yaml")
        return
    demand(resource["kind"] == "PodMonitor", f"{name}: no check for this kind")
    (wanted,) = spec["selector"]["matchExpressions"]
    workloads = [r for r in render(HERE / "base") if r["kind"] in ("StatefulSet", "DaemonSet")]
    names = [workload["spec"]["template"]["metadata"]["labels"][wanted["key"]] for workload in workloads]
    demand(sorted(names) == sorted(wanted["values"]), f"{name} selects {wanted['values']}, and the pods are {names}")
    for endpoint in spec["podMetricsEndpoints"]:
        for workload in workloads:
            ports = {port["name"] for pod in pods(workload) for c in pod["containers"] for port in c["ports"]}
            demand(endpoint["port"] in ports, f"{name}: no port `{endpoint['port']}` in {workload['metadata']['name']}")
        demand(endpoint["honorLabels"] is True, f"{name}: Prometheus would rename the label `job`")


def pods(resource: Resource) -> Iterator[Resource]:
    template = resource.get("spec", {}).get("template")
    if template:
        yield template["spec"]


def check_container(name: str, pod: Resource, container: Resource) -> None:
    security = pod["securityContext"] | container["securityContext"]
    non_root = security["runAsNonRoot"] is True and security["runAsUser"] > 0
    demand(non_root or container["name"] in ROOT_CONTAINERS, f"{name} runs as root")
    demand(security["readOnlyRootFilesystem"] is True, f"{name} can write its root file system")
    demand(security["allowPrivilegeEscalation"] is False, f"{name} can gain privileges")
    demand(security["capabilities"]["drop"] == ["ALL"], f"{name} keeps capabilities")
    demand(security["seccompProfile"]["type"] == "RuntimeDefault", f"{name} has no seccomp profile")
    demand({"cpu", "memory"} <= container["resources"]["requests"].keys(), f"{name} asks for no CPU and memory")
    demand("memory" in container["resources"]["limits"], f"{name} has no memory limit")
    demand(pod["enableServiceLinks"] is False, f"{name}: Kubernetes would set SPDL_COORD_* variables")


def check_flags(name: str, container: Resource, binaries: pathlib.Path) -> None:
    program, *words = container["command"] + container.get("args", [])
    if not program.startswith("spdl-"):
        return
    subcommand = [word for word in words if not word.startswith("-")]
    command = " ".join([program, *subcommand])
    if command not in flags_of:
        arguments = [str(binaries / program), *subcommand, "--help"]
        flags_of[command] = subprocess.run(arguments, check=True, capture_output=True, text=True).stdout
    for flag in (word.split("=")[0] for word in words if word.startswith("--")):
        demand(f"{flag} " in flags_of[command] or f"{flag}\n" in flags_of[command], f"{name}: `{command}` has no {flag}")


def demand(holds: bool, problem: str) -> None:
    if not holds:
        sys.exit(problem)


if __name__ == "__main__":
    main(*sys.argv[1:])
