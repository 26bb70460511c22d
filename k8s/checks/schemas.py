"""Checks each resource against its schema: Kubernetes' own, or one of `schemas/` for what operators define."""

import functools
from typing import Any

import jsonschema
import kubernetes_validate
import yaml

from .manifest import HERE, Invalid, Resource, claims, demand, jobset_spec, ray_templates, replicated_jobs
from .scaling import autoscaler_of

VERSION = kubernetes_validate.latest_version()
#: What operators define, and the file of the schema of its `spec`.
FILES = {
    ("cert-manager.io/v1", "Certificate"): "certificate.yaml",
    ("cert-manager.io/v1", "Issuer"): "issuer.yaml",
    ("jobset.x-k8s.io/v1alpha2", "JobSet"): "job-set.yaml",
    ("keda.sh/v1alpha1", "ScaledObject"): "scaled-object.yaml",
    ("kueue.x-k8s.io/v1beta2", "LocalQueue"): "local-queue.yaml",
    ("monitoring.coreos.com/v1", "PodMonitor"): "pod-monitor.yaml",
    ("monitoring.coreos.com/v1", "PrometheusRule"): "prometheus-rule.yaml",
    ("ray.io/v1", "RayJob"): "ray-job.yaml",
    ("trainer.kubeflow.org/v1alpha1", "ClusterTrainingRuntime"): "training-runtime.yaml",
    ("trainer.kubeflow.org/v1alpha1", "TrainJob"): "train-job.yaml",
}


def check_schema(name: str, resource: Resource) -> None:
    file = FILES.get((resource["apiVersion"], resource["kind"]))
    if file:
        demand(resource.keys() == {"apiVersion", "kind", "metadata", "spec"}, f"{name}: has {sorted(resource)}")
        _check_value(name, "spec", resource["spec"], file)
        return _check_parts(name, resource)
    _check_kubernetes(name, resource)


def _check_kubernetes(name: str, resource: Resource) -> None:
    try:
        kubernetes_validate.validate(resource, VERSION, strict=True)
    except kubernetes_validate.SchemaNotFoundError as error:
        custom = ", ".join(f"{kind} of {version}" for version, kind in FILES)
        kind = f"{resource['kind']} of {resource['apiVersion']}"
        raise Invalid(f"{name}: no schema for {kind}: it is neither Kubernetes' own nor one of {custom}") from error
    except kubernetes_validate.ValidationError as error:
        raise Invalid(f"{name}: {_place(error.path)}{error.message}") from error


def _place(path: Any) -> str:
    place = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return f"{place.lstrip('.')}: " if place else ""


@functools.cache
def schema(file: str) -> dict[str, Any]:
    return yaml.safe_load((HERE / "schemas" / file).read_text())


def _check_value(name: str, place: str, value: Any, file: str) -> None:
    validator = jsonschema.Draft202012Validator(schema(file))
    error = jsonschema.exceptions.best_match(validator.iter_errors(value))
    if error:
        raise Invalid(f"{name}: {_place([place, *error.absolute_path])}{error.message}")


def _check_parts(name: str, resource: Resource) -> None:
    """Checks the parts of an operator's resource whose types are defined elsewhere, most by Kubernetes."""
    if resource["kind"] == "ScaledObject":
        _check_kubernetes(name, autoscaler_of(resource))
    if resource["kind"] == "ClusterTrainingRuntime":
        _check_value(name, "spec.template.spec", jobset_spec(resource), "job-set.yaml")
    for claim in claims(resource):
        _check_kubernetes(f"{name}: claim `{claim['metadata']['name']}`", {"apiVersion": "v1", "kind": "PersistentVolumeClaim"} | claim)
    for job in replicated_jobs(resource):
        as_job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": job["template"].get("metadata", {}), "spec": job["template"]["spec"]}
        _check_kubernetes(f"{name}: replicated job `{job['name']}`", as_job)
    for part, template in ray_templates(resource).items():
        as_template = {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": resource["metadata"]["name"]}, "template": template}
        _check_kubernetes(f"{name}: {part}", as_template)
