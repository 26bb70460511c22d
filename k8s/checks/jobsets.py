"""Jobs and JobSets, and those that training runtimes of Kubeflow make: what JobSet's admission webhook refuses, and what pods rely on."""

from .manifest import (
    Resource,
    containers,
    demand,
    jobset_spec,
    label,
    pod_templates,
    replicated_jobs,
)

COORDINATOR = "metadata.annotations['jobset.sigs.k8s.io/coordinator']"


def check_jobsets(resources: list[Resource], origin: str) -> None:
    for resource in resources:
        jobs = [resource] if resource["kind"] == "Job" else [job["template"] for job in replicated_jobs(resource)]
        for job in jobs:
            _check_ranks(f"{origin}: {label(resource)}", job["spec"])
        if replicated_jobs(resource):
            name = f"{origin}: {label(resource)}"
            _check_names(name, jobset_spec(resource))
            _check_coordinator(name, resource)
            _check_claims(name, jobset_spec(resource))


def _check_ranks(name: str, job: Resource) -> None:
    """Checks that all ranks run at once, and know how many they are."""
    demand(
        job.get("completions") == job.get("parallelism"), f"{name}: `completions` and `parallelism` differ, so ranks would wait for ranks"
    )
    for container in containers(job["template"]["spec"]):
        for variable in container.get("env", []):
            if variable["name"] == "WORLD_SIZE":
                known = variable["value"] == str(job.get("completions"))
                demand(known, f"{name}: `WORLD_SIZE` is {variable['value']}, and `completions` {job.get('completions')}")


def _check_names(name: str, spec: Resource) -> None:
    """Checks that all names of replicated jobs are of jobs that are there, and of earlier ones where one waits for another."""
    earlier: set[str] = set()
    for job in spec["replicatedJobs"]:
        for wanted in job.get("dependsOn", []):
            demand(
                wanted["name"] in earlier, f"{name}: `{job['name']}` waits for `{wanted['name']}`, which is not a replicated job before it"
            )
        earlier.add(job["name"])
    policies = [spec.get("successPolicy", {}), *spec.get("failurePolicy", {}).get("rules", [])]
    for target in (target for policy in policies for target in policy.get("targetReplicatedJobs", [])):
        demand(target in earlier, f"{name}: a policy is for `{target}`; the replicated jobs are {sorted(earlier)}")


def _check_coordinator(name: str, resource: Resource) -> None:
    """Checks that the pod whose address all get is one that runs the coordinator, and has an index."""
    coordinator = jobset_spec(resource).get("coordinator")
    if coordinator is None:
        users = [c for t in pod_templates(resource) for c in containers(t["spec"]) if COORDINATOR in str(c.get("env", []))]
        demand(not users, f"{name}: has no `coordinator`, whose address its containers read")
        return
    job = {job["name"]: job for job in replicated_jobs(resource)}.get(coordinator["replicatedJob"])
    demand(job is not None, f"{name}: `coordinator` is `{coordinator['replicatedJob']}`, which is no replicated job")
    assert job is not None
    spec = job["template"]["spec"]
    demand(coordinator.get("jobIndex", 0) < job.get("replicas", 1), f"{name}: `coordinator.jobIndex` is {coordinator['jobIndex']}")
    demand(spec.get("completionMode") == "Indexed", f"{name}: `{job['name']}` has the coordinator, so it has to be Indexed")
    demand(
        coordinator.get("podIndex", 0) < spec.get("completions", 0), f"{name}: `{job['name']}` has no pod {coordinator.get('podIndex', 0)}"
    )
    programs = [container["command"][0] for container in spec["template"]["spec"]["containers"]]
    demand(programs == ["spdl-coord"], f"{name}: the pod whose address all get runs {programs}")


def _check_claims(name: str, spec: Resource) -> None:
    """Checks that each claim is mounted, and that no pod has a volume of its name: JobSet adds the volume."""
    of_all = [job["template"]["spec"]["template"]["spec"] for job in spec["replicatedJobs"]]
    for claim in (claim for policy in spec.get("volumeClaimPolicies", []) for claim in policy["templates"]):
        volume = claim["metadata"]["name"]
        mounts = [mount["name"] for pod in of_all for container in containers(pod) for mount in container.get("volumeMounts", [])]
        demand(volume in mounts, f"{name}: nothing mounts the claim `{volume}`")
        own = [v["name"] for pod in of_all for v in pod.get("volumes", [])]
        demand(volume not in own, f"{name}: a pod has a volume `{volume}`, as the claim is called")
