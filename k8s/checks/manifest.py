"""The parts of a manifest that every check reads: resources, their pods and the containers of those."""

import pathlib
from collections.abc import Iterator
from typing import Any

#: The folder of the manifests.
HERE = pathlib.Path(__file__).resolve().parent.parent
Resource = dict[str, Any]


class Invalid(Exception):
    """A manifest does not pass a check. The text names the resource and the problem."""


def demand(holds: bool, problem: str) -> None:
    if not holds:
        raise Invalid(problem)


def matches(resource: Resource, target: dict[str, str]) -> bool:
    return resource["kind"] == target["kind"] and resource["metadata"]["name"] == target["name"]


def label(resource: Resource) -> str:
    return f"{resource['kind']} {resource['metadata']['name']}"


def jobset_spec(resource: Resource) -> Resource:
    """Returns the specification of a JobSet, or of the JobSet that a training runtime of Kubeflow makes."""
    spec = resource.get("spec") or {}
    return spec["template"]["spec"] if resource["kind"] in ("ClusterTrainingRuntime", "TrainingRuntime") else spec


def replicated_jobs(resource: Resource) -> list[Resource]:
    """Returns the Jobs of a JobSet."""
    return jobset_spec(resource).get("replicatedJobs") or []


def claims(resource: Resource) -> list[Resource]:
    """Returns the templates of the volume claims that a controller makes, and adds to the pods as volumes."""
    policies = jobset_spec(resource).get("volumeClaimPolicies", [])
    of_jobset = [template for policy in policies for template in policy.get("templates", [])]
    return (resource.get("spec") or {}).get("volumeClaimTemplates", []) + of_jobset


def ray_templates(resource: Resource) -> dict[str, Resource]:
    """Returns the templates of the pods of a RayJob, by what they are for."""
    spec = resource.get("spec") or {}
    cluster = spec.get("rayClusterSpec") or {}
    named = {f"worker group `{group['groupName']}`": group["template"] for group in cluster.get("workerGroupSpecs", [])}
    if "headGroupSpec" in cluster:
        named["head"] = cluster["headGroupSpec"]["template"]
    if "submitterPodTemplate" in spec:
        named["submitter"] = spec["submitterPodTemplate"]
    return named


def pod_templates(resource: Resource) -> Iterator[Resource]:
    """Yields the templates of the pods that a resource makes."""
    for job in replicated_jobs(resource):
        yield with_labels_of_jobset(resource, job)
    yield from ray_templates(resource).values()
    template = (resource.get("spec") or {}).get("template") or {}
    if "containers" in (template.get("spec") or {}):
        yield template


def with_labels_of_jobset(resource: Resource, job: Resource) -> Resource:
    """Returns the template of the pods of a replicated job, with the labels that JobSet gives them."""
    template = job["template"]["spec"]["template"]
    given = {"jobset.sigs.k8s.io/replicatedjob-name": job["name"]}
    if resource["kind"] == "JobSet":
        given["jobset.sigs.k8s.io/jobset-name"] = resource["metadata"]["name"]
    return template | {"metadata": template.get("metadata", {}) | {"labels": pod_labels(template) | given}}


def pods(resource: Resource) -> Iterator[Resource]:
    for template in pod_templates(resource):
        yield template["spec"]


def containers(pod: Resource) -> list[Resource]:
    return pod.get("initContainers", []) + pod["containers"]


def is_sidecar(container: Resource) -> bool:
    return container.get("restartPolicy") == "Always"


def pod_labels(template: Resource) -> dict[str, str]:
    return template.get("metadata", {}).get("labels", {})


def selects(selector: Resource, labels: dict[str, str]) -> bool:
    """Whether a label selector of `matchLabels` selects what has these labels; an empty one selects all."""
    demand(selector.keys() <= {"matchLabels"}, f"a selector with {sorted(selector)}: write `matchLabels`")
    return selector.get("matchLabels", {}).items() <= labels.items()
