"""What the resources of one kustomization say of each other: they are checked together."""

import yaml

from .kustomization import load, render
from .manifest import (
    HERE,
    Resource,
    containers,
    demand,
    label,
    pod_labels,
    pod_templates,
    pods,
    replicated_jobs,
    selects,
    with_labels_of_jobset,
)
from .restricted import ENFORCE, violations

QUEUE = "kueue.x-k8s.io/queue-name"
RBAC = {"ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "ServiceAccount"}


def check_level(resources: list[Resource], origin: str) -> None:
    """Checks the pods of a namespace with the level `restricted`. Nothing of ours talks to the API server, so no one has a role."""
    for resource in resources:
        demand(resource["kind"] not in RBAC, f"{origin}: {label(resource)}: no program of ours needs the API server")
    levels = {r["metadata"].get("labels", {}).get(ENFORCE) for r in resources if r["kind"] == "Namespace"}
    if "restricted" not in levels:
        return
    for resource in resources:
        for template in pod_templates(resource):
            annotations = template.get("metadata", {}).get("annotations", {})
            found = violations(template["spec"], annotations)
            demand(not found, f"{origin}: {label(resource)}: the level `restricted` of its namespace forbids: {'; '.join(found)}")


def check_network(resources: list[Resource], origin: str) -> None:
    """Checks that each pod has a network policy, which lets in what connects to its ports."""
    policies = [r["spec"] for r in resources if r["kind"] == "NetworkPolicy"]
    for resource in resources:
        for template in pod_templates(resource):
            name = f"{origin}: {label(resource)}"
            own = [p for p in policies if selects(p["podSelector"], pod_labels(template))]
            demand(bool(own), f"{name}: no NetworkPolicy selects its pods, whose labels are {pod_labels(template)}")
            allowed = {(p["protocol"], p["port"]) for policy in own for rule in policy["ingress"] for p in rule.get("ports", [])}
            for port in (p for c in containers(template["spec"]) for p in c.get("ports", [])):
                served = (port.get("protocol", "TCP"), port["containerPort"])
                demand(served in allowed, f"{name}: no NetworkPolicy lets in {served[0]} {served[1]}, its port `{port['name']}`")


def check_sources(resources: list[Resource], origin: str) -> None:
    """Checks that the ConfigMaps and claims that pods mount are there, and that the Secrets are made by a Certificate or by the README."""
    maps = {r["metadata"]["name"] for r in resources if r["kind"] == "ConfigMap"}
    claimed = {r["metadata"]["name"] for r in resources if r["kind"] == "PersistentVolumeClaim"}
    issued = {r["spec"]["secretName"] for r in resources if r["kind"] == "Certificate"}
    readme = (HERE / "README.md").read_text()
    for resource in resources:
        for volume in (volume for pod in pods(resource) for volume in pod.get("volumes", [])):
            name = f"{origin}: {label(resource)}: volume `{volume['name']}`"
            if "configMap" in volume:
                source = volume["configMap"]["name"]
                demand(source in maps, f"{name}: no ConfigMap `{source}`; there are {sorted(maps)}")
            if "persistentVolumeClaim" in volume:
                source = volume["persistentVolumeClaim"]["claimName"]
                demand(source in claimed, f"{name}: no PersistentVolumeClaim `{source}`; there are {sorted(claimed)}")
            if "secret" in volume:
                source = volume["secret"]["secretName"]
                by_hand = f"secret generic {source} " in readme
                demand(source in issued or by_hand, f"{name}: no Certificate makes the Secret `{source}`, nor does k8s/README.md")


def check_disruption(resources: list[Resource], origin: str) -> None:
    """Checks that disruption budgets select pods, and say it in the way that is followed for those."""
    for budget in (r for r in resources if r["kind"] == "PodDisruptionBudget"):
        name = f"{origin}: {label(budget)}"
        spec = budget["spec"]
        owners = [r for r in resources if any(selects(spec["selector"], pod_labels(t)) for t in pod_templates(r))]
        demand(bool(owners), f"{name} selects no pods")
        if any(owner["kind"] not in ("Deployment", "StatefulSet") for owner in owners):
            # Kubernetes knows the number of pods of these two alone, so for others the budget has to.
            jobs = [job for owner in owners for job in replicated_jobs(owner) if _covers(spec, owner, job)]
            wanted = sum(job["template"]["spec"]["parallelism"] for job in jobs)
            demand(spec.get("minAvailable") == wanted, f"{name}: for {wanted} pods that a JobSet makes, `minAvailable` has to be {wanted}")


def _covers(budget: Resource, owner: Resource, job: Resource) -> bool:
    return selects(budget["selector"], pod_labels(with_labels_of_jobset(owner, job)))


def check_queues(resources: list[Resource], origin: str) -> None:
    """Checks that what Kueue queues names a queue that is there, and that each queue is named."""
    queues = {r["metadata"]["name"] for r in resources if r["kind"] == "LocalQueue"}
    named = {q: r for r in resources if (q := r["metadata"].get("labels", {}).get(QUEUE))}
    for queue, resource in named.items():
        demand(queue in queues, f"{origin}: {label(resource)}: no LocalQueue `{queue}`; there are {sorted(queues)}")
    demand(queues <= named.keys(), f"{origin}: nothing is in the queues {sorted(queues - named.keys())}; the label is `{QUEUE}`")


def check_monitoring(resources: list[Resource], origin: str) -> None:
    """Checks what the Prometheus operator reads, against the rules, and against the pods of all variants."""
    for resource in resources:
        name = f"{origin}: {label(resource)}"
        if resource["kind"] == "PrometheusRule":
            rules = yaml.safe_load((HERE / "monitoring/rules.yaml").read_text())
            demand(resource["spec"] == rules, f"{name} has other rules than monitoring/rules.yaml")
        if resource["kind"] == "PodMonitor":
            _check_pod_monitor(name, resource["spec"])


def _check_pod_monitor(name: str, spec: Resource) -> None:
    (wanted,) = spec["selector"]["matchExpressions"]
    templates = [template for resource in _monitored() for template in pod_templates(resource)]
    names = {pod_labels(template)[wanted["key"]] for template in templates}
    demand(names == set(wanted["values"]), f"{name} selects {wanted['values']}, and the pods are {sorted(names)}")
    for endpoint in spec["podMetricsEndpoints"]:
        for template in templates:
            ports = {port["name"] for c in containers(template["spec"]) for port in c.get("ports", [])}
            demand(endpoint["port"] in ports, f"{name}: no port `{endpoint['port']}` in pods of {pod_labels(template)}")
        demand(endpoint["honorLabels"] is True, f"{name}: Prometheus would rename the label `job`")


def _monitored() -> list[Resource]:
    return render(HERE / "base") + load(HERE / "overlays/sidecar/example-trainer.yaml")
