"""Breaks good manifests, one thing at a time, and demands that the check which is for it names it."""

import copy
import unittest
from collections.abc import Callable

import validate
from checks.kustomization import load, render
from checks.manifest import HERE, Invalid, Resource, pods, ray_templates
from checks.restricted import violations

SIDECAR = HERE / "overlays/sidecar"
FOLDER_OF_NODE = {"name": "node", "hostPath": {"path": "/run/spdl"}}


def of_pod(**values: object) -> Callable[[Resource], None]:
    """Returns what sets keys of a pod."""
    return lambda pod: pod.update(copy.deepcopy(values))


def of_security(**values: object) -> Callable[[Resource], None]:
    """Returns what sets keys of a pod's security context."""
    return lambda pod: pod["securityContext"].update(copy.deepcopy(values))


def of_sidecar(**values: object) -> Callable[[Resource], None]:
    """Returns what sets keys of the security context of the sidecar."""
    return lambda pod: pod["initContainers"][0]["securityContext"].update(copy.deepcopy(values))


def of_trainer(**values: object) -> Callable[[Resource], None]:
    """Returns what sets keys of the trainer's container."""
    return lambda pod: pod["containers"][0].update(copy.deepcopy(values))


def without(key: str) -> Callable[[Resource], None]:
    """Returns what removes a key of the security context of the pod, or else of the trainer's container."""

    def remove(pod: Resource) -> None:
        of_container = pod["containers"][0]["securityContext"]
        del (pod["securityContext"] if key in pod["securityContext"] else of_container)[key]

    return remove


#: For each rule of the level `restricted`, ways to break it and what the message has to say.
RESTRICTED = [
    ("hostNetwork", of_pod(hostNetwork=True)),
    ("hostPID", of_pod(hostPID=True)),
    ("hostIPC", of_pod(hostIPC=True)),
    ("a `hostPath`", of_pod(volumes=[{"name": "socket", "hostPath": {"path": "/run/spdl"}}])),
    ("a `nfs`", of_pod(volumes=[{"name": "data", "nfs": {"server": "store", "path": "/"}}])),
    ("sysctl `kernel.msgmax`", of_security(sysctls=[{"name": "kernel.msgmax", "value": "1"}])),
    ("`runAsUser` is 0", of_security(runAsUser=0)),
    ("container `spdl-worker`: `runAsUser` is 0", of_sidecar(runAsUser=0)),
    ("container `trainer`: `runAsNonRoot` is not true", without("runAsNonRoot")),
    ("container `spdl-worker`: `runAsNonRoot` is not true", of_sidecar(runAsNonRoot=False)),
    ("`seccompProfile` is not set", without("seccompProfile")),
    ("`seccompProfile` is `Unconfined`", of_security(seccompProfile={"type": "Unconfined"})),
    ("container `spdl-worker`: `seccompProfile` is `Unconfined`", of_sidecar(seccompProfile={"type": "Unconfined"})),
    ("`appArmorProfile` is `Unconfined`", of_security(appArmorProfile={"type": "Unconfined"})),
    ("`seLinuxOptions.type`", of_security(seLinuxOptions={"type": "spc_t"})),
    ("`seLinuxOptions.user`", of_security(seLinuxOptions={"user": "system_u"})),
    ("`seLinuxOptions.role`", of_sidecar(seLinuxOptions={"role": "system_r"})),
    ("`windowsOptions.hostProcess`", of_security(windowsOptions={"hostProcess": True})),
    ("`allowPrivilegeEscalation` is not false", without("allowPrivilegeEscalation")),
    ("container `spdl-worker`: `allowPrivilegeEscalation` is not false", of_sidecar(allowPrivilegeEscalation=True)),
    ("`privileged` is true", of_sidecar(privileged=True)),
    ("`capabilities.drop` lacks `ALL`", without("capabilities")),
    ("`capabilities.drop` lacks `ALL`", of_sidecar(capabilities={"drop": ["NET_RAW"]})),
    ("`capabilities.add` has `SYS_ADMIN`", of_sidecar(capabilities={"drop": ["ALL"], "add": ["SYS_ADMIN"]})),
    ("`procMount` is `Unmasked`", of_sidecar(procMount="Unmasked")),
    ("`hostPort` 7402", of_trainer(ports=[{"containerPort": 7402, "hostPort": 7402}])),
    ("`livenessProbe` connects", of_trainer(livenessProbe={"httpGet": {"host": "10.0.0.1", "port": 80}})),
    ("`startupProbe` connects", of_trainer(startupProbe={"tcpSocket": {"host": "10.0.0.1", "port": 80}})),
    ("`lifecycle.preStop` connects", of_trainer(lifecycle={"preStop": {"httpGet": {"host": "10.0.0.1", "port": 80}}})),
]


class TheLevelRestricted(unittest.TestCase):
    def setUp(self) -> None:
        (trainer,) = load(SIDECAR / "example-trainer.yaml")
        (self.pod,) = pods(trainer)

    def test_allows_a_trainer_with_its_worker_as_a_sidecar(self) -> None:
        self.assertEqual(violations(self.pod), [])

    def test_names_each_violation_and_nothing_else(self) -> None:
        for text, spoil in RESTRICTED:
            with self.subTest(text):
                pod = copy.deepcopy(self.pod)
                spoil(pod)
                found = violations(pod)
                self.assertTrue(found and all(text.rpartition(": ")[2] in problem for problem in found), found)
                self.assertTrue(any(text in problem for problem in found), found)

    def test_reads_the_annotation_of_older_app_armor(self) -> None:
        key = "container.apparmor.security.beta.kubernetes.io/trainer"
        self.assertEqual(violations(self.pod, {key: "localhost/ours"}), [])
        (problem,) = violations(self.pod, {key: "unconfined"})
        self.assertIn(key, problem)

    def test_allows_what_is_safe(self) -> None:
        of_sidecar(capabilities={"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]}, seLinuxOptions={"type": "container_t"})(self.pod)
        of_security(sysctls=[{"name": "net.ipv4.tcp_rmem", "value": "4096 87380 6291456"}])(self.pod)
        self.assertEqual(violations(self.pod), [])


class Broken(unittest.TestCase):
    """Manifests that pass until one thing in them is spoilt."""

    folder = SIDECAR

    def refused(self, text: str, spoil: Callable[[list[Resource]], None]) -> None:
        """Demands that the kustomization with its examples passes, and that what is spoilt in it is refused with this text."""
        around = render(self.folder)
        example = [resource for path in self.folder.glob("example-*.yaml") for resource in load(path)]
        self.check(around, example)
        spoil(around + example)
        with self.assertRaises(Invalid) as caught:
            self.check(around, example)
        self.assertIn(text, str(caught.exception))

    def check(self, around: list[Resource], example: list[Resource]) -> None:
        validate.check(around, "here", None)
        validate.check_example(example, around, "here", None)


class ABrokenManifest(Broken):
    def test_has_a_key_that_kubernetes_does_not_know(self) -> None:
        self.refused("'replicaz'", lambda it: named(it, "StatefulSet")["spec"].update(replicaz=2))

    def test_mounts_a_volume_that_is_not_there(self) -> None:
        self.refused("mounts `socket`", lambda it: pod_of(it, "Job")["volumes"].pop(2))

    def test_mounts_a_secret_that_nobody_makes(self) -> None:
        self.refused("`lost`", lambda it: pod_of(it, "Job")["volumes"][0]["secret"].update(secretName="lost"))

    def test_mounts_a_config_map_that_is_not_there(self) -> None:
        self.refused("no ConfigMap `spdl-jobs`", lambda it: named(it, "ConfigMap")["metadata"].update(name="others"))

    def test_shares_a_folder_of_the_node_where_that_is_forbidden(self) -> None:
        self.refused("`restricted` of its namespace forbids: volume `node`", lambda it: pod_of(it, "Job")["volumes"].append(FOLDER_OF_NODE))

    def test_gives_a_pod_a_role(self) -> None:
        role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "all"}, "rules": []}

        def spoil(it: list[Resource]) -> None:
            service = named(it, "Service")
            service.clear()
            service.update(role)

        self.refused("no program of ours needs the API server", spoil)

    def test_gives_a_pod_a_token(self) -> None:
        self.refused("token of the API server", lambda it: pod_of(it, "Job").pop("automountServiceAccountToken"))

    def test_starts_the_trainer_before_its_worker_serves(self) -> None:
        self.refused("without a `startupProbe`", lambda it: pod_of(it, "Job")["initContainers"][0].pop("startupProbe"))

    def test_has_a_sidecar_that_is_none(self) -> None:
        self.refused("`restartPolicy` is `Allways`", lambda it: pod_of(it, "Job")["initContainers"][0].update(restartPolicy="Allways"))

    def test_probes_a_port_that_is_not_there(self) -> None:
        probe = {"httpGet": {"path": "/readyz", "port": "htpp"}}
        self.refused("`readinessProbe` asks port `htpp`", lambda it: pod_of(it, "Job")["initContainers"][0].update(readinessProbe=probe))

    def test_asks_for_what_is_no_amount(self) -> None:
        self.refused(
            "`many` is no amount of cpu", lambda it: pod_of(it, "Job")["containers"][0]["resources"]["requests"].update(cpu="many")
        )

    def test_has_ranks_that_wait_for_others(self) -> None:
        self.refused("`completions` and `parallelism` differ", lambda it: named(it, "Job")["spec"].update(parallelism=2))

    def test_has_ranks_that_do_not_know_how_many_they_are(self) -> None:
        more = {"completions": 8, "parallelism": 8}
        self.refused("`WORLD_SIZE` is 4, and `completions` 8", lambda it: named(it, "Job")["spec"].update(more))

    def test_has_pods_without_a_network_policy(self) -> None:
        labels = {"app.kubernetes.io/name": "mine"}
        self.refused("no NetworkPolicy selects its pods", lambda it: named(it, "Job")["spec"]["template"]["metadata"].update(labels=labels))

    def test_serves_on_a_port_that_no_network_policy_lets_in(self) -> None:
        def spoil(it: list[Resource]) -> None:
            pod_of(it, "Job")["initContainers"][0]["ports"][0]["containerPort"] = 7409

        self.refused("lets in UDP 7409, its port `quic`", spoil)

    def test_is_of_a_kind_without_a_schema(self) -> None:
        self.refused("no schema for Thing of example.com/v1", lambda it: named(it, "Job").update(apiVersion="example.com/v1", kind="Thing"))


class ABrokenCertificate(Broken):
    folder = HERE / "overlays/cert-manager"

    def test_names_no_role(self) -> None:
        self.refused("`spdl-coord.spdl.svc` names no role", lambda it: leaf(it).update(dnsNames=["spdl-coord.spdl.svc"]))

    def test_cannot_serve_where_its_role_does(self) -> None:
        self.refused("a coordinator needs the usages", lambda it: leaf(it).update(usages=["digital signature", "client auth"]))

    def test_has_an_issuer_that_is_not_there(self) -> None:
        self.refused("no Issuer `other`", lambda it: leaf(it)["issuerRef"].update(name="other"))

    def test_is_for_the_secret_of_another(self) -> None:
        self.refused("two certificates for one Secret", lambda it: leaf(it, "spdl-admin").update(secretName="spdl-worker-certs"))

    def test_has_a_key_that_cert_manager_does_not_know(self) -> None:
        self.refused("spec.privateKey.algorithm: 'RS' is not one of", lambda it: leaf(it)["privateKey"].update(algorithm="RS"))


class ABrokenJobSet(Broken):
    folder = HERE / "overlays/jobset-kueue"

    def test_waits_for_a_job_that_is_not_there(self) -> None:
        self.refused("waits for `coordinato`", lambda it: job(it, 1)["dependsOn"][0].update(name="coordinato"))

    def test_waits_for_a_job_that_is_ready_at_once(self) -> None:
        self.refused("container spdl-coord has no probes", lambda it: pod_of(it, "JobSet")["containers"][0].pop("readinessProbe"))

    def test_succeeds_with_a_job_that_is_not_there(self) -> None:
        self.refused("a policy is for `node`", lambda it: jobset(it)["successPolicy"].update(targetReplicatedJobs=["node"]))

    def test_gives_its_pods_no_address_of_the_coordinator(self) -> None:
        self.refused("has no `coordinator`, whose address", lambda it: jobset(it).pop("coordinator"))

    def test_gives_its_pods_the_address_of_a_trainer(self) -> None:
        self.refused("runs ['spdl-ctl']", lambda it: jobset(it)["coordinator"].update(replicatedJob="trainer"))

    def test_has_a_volume_that_nothing_mounts(self) -> None:
        self.refused("nothing mounts the claim `state`", lambda it: pod_of(it, "JobSet")["containers"][0]["volumeMounts"].pop(0))

    def test_has_a_volume_claim_that_kubernetes_does_not_know(self) -> None:
        claim = {"accessModes": ["Once"], "storage": "1Gi"}
        self.refused("claim `state`", lambda it: jobset(it)["volumeClaimPolicies"][0]["templates"][0].update(spec=claim))

    def test_has_a_job_that_kubernetes_does_not_know(self) -> None:
        self.refused("replicated job `trainer`: ", lambda it: job(it, 1)["template"]["spec"].update(parallel=4))

    def test_has_a_key_that_jobset_does_not_know(self) -> None:
        self.refused("spec.replicatedJobs[1]: ", lambda it: job(it, 1).update(replica=1))

    def test_has_a_budget_for_another_number_of_pods(self) -> None:
        self.refused("`minAvailable` has to be 4", lambda it: named(it, "PodDisruptionBudget")["spec"].update(minAvailable=3))

    def test_is_in_a_queue_that_is_not_there(self) -> None:
        self.refused("no LocalQueue `spdl`", lambda it: named(it, "LocalQueue")["metadata"].update(name="other"))


class ABrokenTrainJob(Broken):
    folder = HERE / "kubeflow"

    def test_names_a_runtime_that_is_not_there(self) -> None:
        self.refused("no runtime `torch`", lambda it: named(it, "TrainJob")["spec"]["runtimeRef"].update(name="torch"))

    def test_has_a_runtime_without_nodes(self) -> None:
        labels = {"trainer.kubeflow.org/trainjob-ancestor-step": "node"}
        self.refused("0 replicated jobs have the label", lambda it: nodes(it)["metadata"].update(labels=labels))

    def test_has_a_runtime_without_the_container_of_its_nodes(self) -> None:
        self.refused("no container `node`", lambda it: nodes(it)["spec"]["template"]["spec"]["containers"][0].update(name="trainer"))

    def test_has_a_key_that_kubeflow_does_not_know(self) -> None:
        self.refused("spec.trainer: ", lambda it: named(it, "TrainJob")["spec"]["trainer"].update(nodes=2))

    def test_has_a_runtime_with_a_key_that_jobset_does_not_know(self) -> None:
        runtime = "ClusterTrainingRuntime"
        self.refused("spec.template.spec: ", lambda it: named(it, runtime)["spec"]["template"]["spec"].update(policy={}))

    def test_asks_for_resources_that_kubernetes_does_not_know(self) -> None:
        asked = {"limits": {"memory": ["64Gi"]}}
        self.refused(
            "of its runtime: replicated job `node`", lambda it: named(it, "TrainJob")["spec"]["trainer"].update(resourcesPerNode=asked)
        )

    def test_has_a_runtime_that_shares_a_folder_of_the_node(self) -> None:
        self.refused("volume `node` is a `hostPath`", lambda it: nodes(it)["spec"]["template"]["spec"]["volumes"].append(FOLDER_OF_NODE))


class ABrokenRayJob(Broken):
    folder = HERE / "ray"

    def test_has_a_key_that_kuberay_does_not_know(self) -> None:
        self.refused("spec.rayClusterSpec: ", lambda it: rayjob(it)["rayClusterSpec"].update(workers=2))

    def test_has_a_parameter_of_ray_that_is_no_text(self) -> None:
        self.refused("0 is not of type 'string'", lambda it: workers(it)["rayStartParams"].update({"num-gpus": 0}))

    def test_has_a_pod_that_kubernetes_does_not_know(self) -> None:
        self.refused("RayJob train: worker group `gpu`: ", lambda it: ray_pod(it, "worker group `gpu`").update(toleration=[]))

    def test_has_a_head_that_shares_a_folder_of_the_node(self) -> None:
        self.refused("volume `node` is a `hostPath`", lambda it: ray_pod(it, "head")["volumes"].append(FOLDER_OF_NODE))

    def test_has_workers_that_can_gain_privileges(self) -> None:
        security = {"allowPrivilegeEscalation": True}
        self.refused(
            "container ray-worker can gain privileges",
            lambda it: ray_pod(it, "worker group `gpu`")["containers"][0]["securityContext"].update(security),
        )

    def test_has_a_submitter_that_may_be_root(self) -> None:
        self.refused("container submitter runs as root", lambda it: ray_pod(it, "submitter")["securityContext"].pop("runAsNonRoot"))

    def test_leaves_its_submitter_to_kuberay(self) -> None:
        self.refused("write `submitterPodTemplate`", lambda it: rayjob(it).pop("submitterPodTemplate"))

    def test_has_its_submitter_in_the_pod_of_the_head(self) -> None:
        self.refused("take `K8sJobMode` or `HTTPMode`", lambda it: rayjob(it).update(submissionMode="SidecarMode"))

    def test_has_a_submitter_where_nothing_is_made_of_it(self) -> None:
        self.refused("nothing is made of `submitterPodTemplate`", lambda it: rayjob(it).update(submissionMode="HTTPMode"))

    def test_has_a_submitter_that_starts_again_for_ever(self) -> None:
        self.refused("submitter: `restartPolicy` is `Always`", lambda it: ray_pod(it, "submitter").update(restartPolicy="Always"))

    def test_has_fewer_workers_than_it_has_at_least(self) -> None:
        self.refused("`gpu` has 1 replicas, not 2 to 2", lambda it: workers(it).update(replicas=1))

    def test_has_two_groups_of_workers_with_one_name(self) -> None:
        def spoil(it: list[Resource]) -> None:
            rayjob(it)["rayClusterSpec"]["workerGroupSpecs"].append(copy.deepcopy(workers(it)))

        self.refused("two worker groups have one name", spoil)

    def test_requests_less_than_ray_counts_on(self) -> None:
        self.refused(
            "the limit of memory, 96Gi, and 64Gi is requested",
            lambda it: ray_pod(it, "worker group `gpu`")["containers"][0]["resources"]["requests"].update(memory="64Gi"),
        )

    def test_is_queued_and_keeps_its_cluster(self) -> None:
        def spoil(it: list[Resource]) -> None:
            named(it, "RayJob")["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "spdl"}
            del rayjob(it)["shutdownAfterJobFinishes"]

        self.refused("Kueue needs `shutdownAfterJobFinishes: true`", spoil)

    def test_has_workers_that_do_not_reach_each_other(self) -> None:
        of_ray = {"ports": [{"protocol": "TCP", "port": 6379}]}
        self.refused(
            "connect to all ports of the worker group `gpu`", lambda it: named(it, "NetworkPolicy")["spec"]["ingress"][0].update(of_ray)
        )

    def test_has_a_dashboard_that_kuberay_does_not_reach(self) -> None:
        self.refused("connect to the dashboard, TCP 8265", lambda it: named(it, "NetworkPolicy")["spec"]["ingress"].pop(1))

    def test_mounts_a_claim_that_is_not_there(self) -> None:
        self.refused("no PersistentVolumeClaim `train`", lambda it: named(it, "PersistentVolumeClaim")["metadata"].update(name="other"))

    def test_mounts_a_script_that_is_not_there(self) -> None:
        self.refused("no ConfigMap `train`", lambda it: named(it, "ConfigMap")["metadata"].update(name="other"))


class TheSidecars(unittest.TestCase):
    def test_are_the_same_in_all_variants_but_for_how_they_find_the_coordinator(self) -> None:
        files = ["overlays/sidecar/example-trainer.yaml", "jobset/jobset.yaml", "kubeflow/runtime.yaml"]
        found = [sidecar(resource) for file in files for resource in load(HERE / file)]
        self.assertEqual(len(found), len(files))
        for other in found[1:]:
            self.assertEqual(found[0], other)


def sidecar(resource: Resource) -> Resource:
    """Returns the worker of a variant, without its image and what tells it the coordinator's address."""
    (worker,) = (copy.deepcopy(c) for pod in pods(resource) for c in pod.get("initContainers", []))
    del worker["image"]
    worker["args"] = [argument for argument in worker["args"] if not argument.startswith("--coord=")]
    worker["env"] = [variable for variable in worker["env"] if variable["name"] != "COORDINATOR"]
    return worker


def nodes(resources: list[Resource]) -> Resource:
    """Returns the template of the Job of a runtime that makes the nodes."""
    return named(resources, "ClusterTrainingRuntime")["spec"]["template"]["spec"]["replicatedJobs"][1]["template"]


def jobset(resources: list[Resource]) -> Resource:
    """Returns the specification of the JobSet."""
    return named(resources, "JobSet")["spec"]


def job(resources: list[Resource], index: int) -> Resource:
    """Returns a replicated job of the JobSet."""
    return jobset(resources)["replicatedJobs"][index]


def rayjob(resources: list[Resource]) -> Resource:
    """Returns the specification of the RayJob."""
    return named(resources, "RayJob")["spec"]


def ray_pod(resources: list[Resource], part: str) -> Resource:
    """Returns a pod of the RayJob by what it is for."""
    return ray_templates(named(resources, "RayJob"))[part]["spec"]


def workers(resources: list[Resource]) -> Resource:
    """Returns the group of workers of the RayJob."""
    return rayjob(resources)["rayClusterSpec"]["workerGroupSpecs"][0]


def leaf(resources: list[Resource], name: str = "spdl-coord") -> Resource:
    """Returns the specification of a certificate."""
    certificates = (r for r in resources if r["kind"] == "Certificate" and r["metadata"]["name"] == name)
    return next(certificates)["spec"]


def named(resources: list[Resource], kind: str) -> Resource:
    """Returns the first resource of a kind."""
    return next(resource for resource in resources if resource.get("kind") == kind)


def pod_of(resources: list[Resource], kind: str) -> Resource:
    """Returns the pod of the first resource of a kind."""
    return next(pods(named(resources, kind)))


if __name__ == "__main__":
    unittest.main()
