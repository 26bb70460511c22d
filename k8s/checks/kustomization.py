"""Reads a kustomization with its patches applied: the parts of kustomize that matter for validity."""

import copy
import pathlib
from typing import Any

import jsonpatch
import yaml

from .manifest import HERE, Invalid, Resource, demand, matches

#: What is read of a kustomization. Another key would be ignored here, and what it does would not be checked.
KEYS = {
    "apiVersion",
    "components",
    "configMapGenerator",
    "generatorOptions",
    "images",
    "kind",
    "labels",
    "namespace",
    "patches",
    "resources",
}


def render(folder: pathlib.Path) -> list[Resource]:
    """Returns the resources of a kustomization."""
    return _render(folder, [])


def _render(folder: pathlib.Path, resources: list[Resource]) -> list[Resource]:
    """Returns the resources of a kustomization after those that are there, which a component may change."""
    kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text())
    demand(kustomization.keys() <= KEYS, f"{place(folder)}: {sorted(kustomization.keys() - KEYS)} of kustomize is not read here")
    for entry in kustomization.get("resources", []):
        path = folder / entry
        demand(path.exists(), f"{place(folder)}: no resource `{entry}`")
        resources = resources + (_render(path, []) if path.is_dir() else load(path))
    for component in kustomization.get("components", []):
        resources = _render(folder / component, resources)
    for generator in kustomization.get("configMapGenerator", []):
        resources = resources + _generated(folder, generator)
    for patch in kustomization.get("patches", []):
        resources = _patched(folder, kustomization["kind"] == "Component", resources, patch)
    return resources


def place(path: pathlib.Path) -> str:
    """Returns a path as messages have it: below the folder of the manifests."""
    return str(path.resolve().relative_to(HERE))


def load(path: pathlib.Path) -> list[Resource]:
    """Returns the resources of a file."""
    try:
        resources = [resource for resource in yaml.safe_load_all(path.read_text()) if resource]
    except yaml.YAMLError as error:
        raise Invalid(f"{place(path)}: {error}") from error
    for resource in resources:
        for key in ("apiVersion", "kind", "metadata"):
            demand(key in resource, f"{place(path)}: a resource has no `{key}`")
        demand("name" in (resource["metadata"] or {}), f"{place(path)}: {resource['kind']} has no `metadata.name`")
    return resources


def _generated(folder: pathlib.Path, generator: Resource) -> list[Resource]:
    for file in generator["files"]:
        demand((folder / file).is_file(), f"{place(folder)}: no file `{file}`")
    if generator.get("behavior", "create") != "create":
        return []
    data = {pathlib.Path(file).name: (folder / file).read_text() for file in generator["files"]}
    return [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": generator["name"]}, "data": data}]


def _patched(folder: pathlib.Path, is_component: bool, resources: list[Resource], patch: dict[str, Any]) -> list[Resource]:
    operations = yaml.safe_load((folder / patch["path"]).read_text())
    targets = [resource for resource in resources if matches(resource, patch["target"])]
    # A component is for several kustomizations, of which not all have what it changes.
    expected = (0, 1) if is_component else (1,)
    demand(len(targets) in expected, f"{place(folder)}: {patch['path']} has {len(targets)} targets")
    if isinstance(operations, dict):
        demand(operations["$patch"] == "delete" and matches(operations, patch["target"]), f"{place(folder)}: {patch['path']}")
        return [resource for resource in resources if resource not in targets]
    try:
        return [jsonpatch.apply_patch(copy.deepcopy(resource), operations) if resource in targets else resource for resource in resources]
    except jsonpatch.JsonPatchException as error:
        raise Invalid(f"{place(folder)}: {patch['path']}: {error}") from error
