"""Validates the manifests in this folder against the current schemas, and checks the promised security settings.

usage: validate.py [FOLDER_OF_BINARIES]      needs the packages kubernetes-validate and jsonpatch

Checks each kustomization with its patches applied and the examples beside it: schemas, those of operators included (`schemas/`), each
pod, and what the resources say of each other. With the binaries, checks that each flag in a manifest is a flag of the binary. If
kubectl is installed, checks everything as its kustomize renders it, too. `checks/` has a file for each subject.
"""

import pathlib
import shutil
import subprocess
import sys

import yaml

from checks.certificates import check_certificates
from checks.jobsets import check_jobsets
from checks.kubeflow import jobset_of
from checks.kustomization import load, render
from checks.manifest import HERE, Invalid, Resource, claims, label, pod_templates
from checks.pods import check_pod
from checks.ray import check_ray
from checks.references import (
    check_disruption,
    check_level,
    check_monitoring,
    check_network,
    check_queues,
    check_sources,
)
from checks.scaling import check_scaling
from checks.schemas import VERSION, check_schema

TOGETHER = (
    check_level,
    check_network,
    check_sources,
    check_certificates,
    check_jobsets,
    check_ray,
    check_disruption,
    check_queues,
    check_monitoring,
    check_scaling,
)


def main(binaries: str | None = None) -> None:
    subprocess.run([sys.executable, HERE / "monitoring/generate.py", "--check"], check=True)
    count = 0
    for path in sorted(HERE.rglob("kustomization.yaml")):
        origin = str(path.relative_to(HERE))
        if yaml.safe_load(path.read_text())["kind"] == "Component":
            continue
        renderings = {origin: render(path.parent)}
        if kubectl := shutil.which("kubectl"):
            renderings[f"{origin} as kubectl renders it"] = rendered_by(kubectl, path.parent)
        for name, resources in renderings.items():
            count += check(resources, name, binaries)
        for example in sorted(path.parent.glob("example-*.yaml")):
            count += check_example(load(example), renderings[origin], str(example.relative_to(HERE)), binaries)
    for example in sorted(HERE.glob("example-*.yaml")):
        count += check_example(load(example), [], example.name, binaries)
    print(f"{count} resources are valid for Kubernetes {VERSION}")


def rendered_by(kubectl: str, folder: pathlib.Path) -> list[Resource]:
    run = subprocess.run([kubectl, "kustomize", folder], capture_output=True, text=True)
    if run.returncode:
        raise Invalid(f"`kubectl kustomize {folder.relative_to(HERE)}`: {run.stderr.strip()}")
    return list(yaml.safe_load_all(run.stdout))


def check(resources: list[Resource], origin: str, binaries: str | None) -> int:
    """Checks all resources of a kustomization, and returns their number."""
    for resource in resources:
        check_resource(resource, f"{origin}: {label(resource)}", binaries)
    # What a runtime makes is checked with the namespace of a TrainJob.
    of_namespace = [resource for resource in resources if resource["kind"] != "ClusterTrainingRuntime"]
    for check_together in TOGETHER:
        check_together(of_namespace, origin)
    return len(resources)


def check_example(example: list[Resource], around: list[Resource], origin: str, binaries: str | None) -> int:
    """Checks what is applied beside the resources of a kustomization, and returns the number of its own."""
    for resource in list(example):
        check_resource(resource, f"{origin}: {label(resource)}", binaries)
        if resource["kind"] == "TrainJob":
            jobset = jobset_of(resource, around, f"{origin}: {label(resource)}")
            check_resource(jobset, f"{origin}: {label(jobset)} of its runtime", binaries)
            around, example = render(HERE / "namespace"), [*example, jobset]
    check_jobsets(example, origin)
    if around:
        for check_together in (check_level, check_network, check_sources):
            check_together(around + example, origin)
    return len(example)


def check_resource(resource: Resource, name: str, binaries: str | None) -> None:
    check_schema(name, resource)
    added_volumes = {claim["metadata"]["name"] for claim in claims(resource)}
    for template in pod_templates(resource):
        check_pod(name, template["spec"], binaries, added_volumes)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except Invalid as problem:
        sys.exit(str(problem))
