"""The JobSet that Kubeflow Trainer makes of a TrainJob and its runtime, so that it is checked as any other."""

import copy

from .manifest import Resource, demand, label

#: The label of the replicated job that the TrainJob's `trainer` is for, and the name of its container.
ANCESTOR = "trainer.kubeflow.org/trainjob-ancestor-step"
CONTAINER = "node"


def jobset_of(train_job: Resource, around: list[Resource], name: str) -> Resource:
    """Returns the JobSet that Kubeflow makes: that of the TrainJob's runtime, with what the TrainJob says of its nodes."""
    reference = train_job["spec"]["runtimeRef"]["name"]
    runtimes = {r["metadata"]["name"]: r for r in around if r["kind"] == "ClusterTrainingRuntime"}
    demand(reference in runtimes, f"{name}: no runtime `{reference}`; there are {sorted(runtimes)}")
    runtime = runtimes[reference]
    spec = copy.deepcopy(runtime["spec"]["template"]["spec"])
    trainers = [job for job in spec["replicatedJobs"] if _step(job) == "trainer"]
    demand(len(trainers) == 1, f"{label(runtime)}: {len(trainers)} replicated jobs have the label `{ANCESTOR}: trainer`")
    (trainer,) = trainers
    demand(trainer.get("replicas", 1) == 1, f"{label(runtime)}: `{trainer['name']}` needs one replica; `numNodes` says how many pods")
    of_job = trainer["template"]["spec"]
    named = [c for c in of_job["template"]["spec"]["containers"] if c["name"] == CONTAINER]
    demand(len(named) == 1, f"{label(runtime)}: `{trainer['name']}` has no container `{CONTAINER}`")
    wanted = train_job["spec"].get("trainer", {})
    nodes = wanted.get("numNodes", runtime["spec"].get("mlPolicy", {}).get("numNodes", 1))
    of_job |= {"completions": nodes, "parallelism": nodes}
    _override(named[0], wanted)
    metadata = {key: value for key, value in train_job["metadata"].items() if key in ("name", "namespace")}
    return {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": metadata, "spec": spec}


def _step(job: Resource) -> str | None:
    return job["template"].get("metadata", {}).get("labels", {}).get(ANCESTOR)


def _override(container: Resource, wanted: Resource) -> None:
    container |= {key: wanted[key] for key in ("image", "command", "args") if key in wanted}
    own = {variable["name"]: variable for variable in container.get("env", [])}
    container["env"] = list((own | {variable["name"]: variable for variable in wanted.get("env", [])}).values())
    for kind, amounts in wanted.get("resourcesPerNode", {}).items():
        container["resources"][kind] = container["resources"].get(kind, {}) | amounts
