"""RayJobs of KubeRay: what its operator refuses, what it makes of them, and what the nodes of Ray and our servers rely on."""

from collections.abc import Iterator

from .manifest import Resource, demand, label, pod_labels, ray_templates, selects
from .references import QUEUE

HEAD, SUBMITTER = "head", "submitter"
#: Where KubeRay's operator asks for the state of a job.
DASHBOARD = ("TCP", 8265)


def check_ray(resources: list[Resource], origin: str) -> None:
    policies = [resource["spec"] for resource in resources if resource["kind"] == "NetworkPolicy"]
    for job in (resource for resource in resources if resource["kind"] == "RayJob"):
        name = f"{origin}: {label(job)}"
        _check_end(name, job)
        _check_submitter(name, job["spec"])
        _check_replicas(name, job["spec"])
        _check_amounts(name, job)
        _check_ports(name, job, policies)


def _check_end(name: str, job: Resource) -> None:
    """Checks that the Ray cluster ends with the job, where that is relied on."""
    if job["spec"].get("shutdownAfterJobFinishes"):
        return
    queue = job["metadata"].get("labels", {}).get(QUEUE)
    demand(queue is None, f"{name}: is in the queue `{queue}`, and Kueue needs `shutdownAfterJobFinishes: true`")
    demand(not job["spec"].get("ttlSecondsAfterFinished"), f"{name}: `ttlSecondsAfterFinished` needs `shutdownAfterJobFinishes: true`")


def _check_submitter(name: str, spec: Resource) -> None:
    """Checks that no pod or container for `ray job submit` is as KubeRay makes it by itself: without any security settings."""
    mode = spec.get("submissionMode", "K8sJobMode")
    template = spec.get("submitterPodTemplate")
    if mode == "HTTPMode":
        demand(template is None, f"{name}: with `HTTPMode`, nothing is made of `submitterPodTemplate`")
        return
    demand(mode == "K8sJobMode", f"{name}: with `{mode}`, KubeRay's container has no security settings; take `K8sJobMode` or `HTTPMode`")
    demand(template is not None, f"{name}: KubeRay's pod for `ray job submit` has no security settings; write `submitterPodTemplate`")
    assert template is not None
    policy = template["spec"].get("restartPolicy")
    demand(policy in ("Never", "OnFailure"), f"{name}: {SUBMITTER}: `restartPolicy` is `{policy}`; that of a Job is `Never` or `OnFailure`")


def _check_replicas(name: str, spec: Resource) -> None:
    groups = spec["rayClusterSpec"].get("workerGroupSpecs", [])
    names = [group["groupName"] for group in groups]
    demand(len(names) == len(set(names)), f"{name}: two worker groups have one name: {sorted(names)}")
    for group in groups:
        least, wanted, most = (group.get(key, 0) for key in ("minReplicas", "replicas", "maxReplicas"))
        demand(least <= wanted <= most, f"{name}: worker group `{group['groupName']}` has {wanted} replicas, not {least} to {most}")


def _check_amounts(name: str, job: Resource) -> None:
    """Checks that a node of Ray has what it counts on: it takes the limits of the first container as its own."""
    for part, template in _nodes(job):
        resources = template["spec"]["containers"][0].get("resources", {})
        for kind in ("cpu", "memory"):
            limit, request = (resources.get(key, {}).get(kind) for key in ("limits", "requests"))
            demand(limit == request, f"{name}: {part}: Ray counts on the limit of {kind}, {limit}, and {request} is requested")


def _check_ports(name: str, job: Resource, policies: list[Resource]) -> None:
    """Checks that nodes reach each other on all ports, of which the system chooses most, and that the head's dashboard can be asked."""
    labels = {part: pod_labels(template) for part, template in ray_templates(job).items()}
    for part, _ in _nodes(job):
        rules = [rule for policy in policies if selects(policy["podSelector"], labels[part]) for rule in policy["ingress"]]
        for other in labels:
            reaches = any("ports" not in rule and _lets_in(rule, labels[other]) for rule in rules)
            is_needed = part == HEAD or other != SUBMITTER
            demand(reaches or not is_needed, f"{name}: no NetworkPolicy lets the pods of the {other} connect to all ports of the {part}")
        served = {(port["protocol"], port["port"]) for rule in rules if _lets_in_others(rule) for port in rule.get("ports", [])}
        demand(part != HEAD or DASHBOARD in served, f"{name}: no NetworkPolicy lets KubeRay connect to the dashboard, TCP {DASHBOARD[1]}")


def _lets_in(rule: Resource, labels: dict[str, str]) -> bool:
    """Whether a rule lets in pods of its namespace that have these labels."""
    return any(peer.keys() == {"podSelector"} and selects(peer["podSelector"], labels) for peer in rule["from"])


def _lets_in_others(rule: Resource) -> bool:
    """Whether a rule lets in pods of other namespaces."""
    return any("namespaceSelector" in peer for peer in rule["from"])


def _nodes(job: Resource) -> Iterator[tuple[str, Resource]]:
    """Yields the templates of the pods that are nodes of Ray."""
    for part, template in ray_templates(job).items():
        if part != SUBMITTER:
            yield part, template
