"""What scales workers: its target, its metric, the cores of a worker, up at once and down by one in five minutes."""

import re

from .manifest import HERE, Resource, demand, label, matches, pods


def check_scaling(resources: list[Resource], origin: str) -> None:
    for resource in resources:
        if resource["kind"] not in ("ScaledObject", "HorizontalPodAutoscaler"):
            continue
        name = f"{origin}: {label(resource)}"
        spec = (autoscaler_of(resource) if resource["kind"] == "ScaledObject" else resource)["spec"]
        demand(spec["minReplicas"] < spec["maxReplicas"], f"{name} scales nothing")
        workers = [r for r in resources if matches(r, spec["scaleTargetRef"])]
        demand(len(workers) == 1 and "replicas" not in workers[0]["spec"], f"{name}: no workers, or with a fixed number")
        (pod,) = pods(workers[0])
        (container,) = pod["containers"]
        (metric,) = spec["metrics"]
        external = metric["external"]
        (measured,) = re.findall(r"\bspdl_\w+", external["metric"]["name"])
        documented = (HERE.parent / "docs/guide/observe/metrics.md").read_text()
        demand(f"| `{measured}` | gauge |" in documented, f"{name}: no metric {measured}")
        cores = external["target"]["averageValue"]
        demand(f"--cores={cores}" in container["args"], f"{name} is for {cores} cores, {container['args']}")
        demand(container["resources"]["requests"]["cpu"] == cores, f"{name}: the workers ask for other cores")
        demand("--no-socket" in container["args"], f"{name}: the workers do not count as the pool")
        up, down = spec["behavior"]["scaleUp"], spec["behavior"]["scaleDown"]
        demand(up["stabilizationWindowSeconds"] == 0, f"{name} waits before it goes up")
        one = [{"type": "Pods", "value": 1, "periodSeconds": 300}]
        demand(down["policies"] == one and down["stabilizationWindowSeconds"] == 300, f"{name} goes down too fast")


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
