"""The examples that pack a dataset in parts on several machines: an array of SLURM, and an Indexed Job of Kubernetes."""

from __future__ import annotations

import os
import pathlib
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import slurm
from conftest import ctl, ctl_json, files
from test_datasets import source

__all__ = ["source"]
EXAMPLES = pathlib.Path(__file__).parents[2]
OPTIONS = ("--name", "set", "--records-per-shard", "3", "--crop-ready")


@pytest.fixture(scope="module")
def whole(source: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Returns the files of a pack of them in one go."""
    folder = tmp_path_factory.mktemp("whole") / "dataset"
    ctl_json("pack", source, folder, *OPTIONS)
    return files(folder)


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[slurm.Slurm]:
    """Starts SLURM's daemons."""
    yield from slurm.cluster_for_tests(tmp_path_factory.mktemp("slurm"))


@pytest.mark.xdist_group("slurm")
def test_the_batch_script_packs_a_dataset_in_an_array(
    cluster: slurm.Slurm, source: pathlib.Path, whole: dict[str, bytes], tmp_path: pathlib.Path
) -> None:
    script, dataset = EXAMPLES / "examples/slurm/pack.sbatch", tmp_path / "dataset"
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "spdl-ctl").symlink_to(os.environ["SPDL_TEST_CTL"])
    variables = {"PATH": f"{programs}{os.pathsep}{slurm.PATH}"}
    array = ("--parsable", "--wait", "--cpus-per-task=1", f"--output={tmp_path}/%a.output")
    # Two of four parts, and then the others, as after a failure.
    for tasks in ("1,2", "0,3"):
        command = ["sbatch", *array, f"--array={tasks}", str(script), str(source), str(dataset), *OPTIONS]
        cluster.call(*command, variables={**variables, "PARTS": "4"})
    merge = [line for line in script.read_text().splitlines() if "merge" in line]
    wrap = re.search(r"--wrap='(.*)'", merge[0])
    assert wrap, merge
    merged = f"--wrap={wrap[1].replace('DATASET', str(dataset))}"
    cluster.call("sbatch", "--wait", f"--output={tmp_path}/merge.output", merged, variables=variables)
    assert files(dataset) == whole, [path.read_text() for path in tmp_path.glob("*.output")]


def test_the_indexed_job_of_kubernetes_packs_a_dataset(
    source: pathlib.Path, whole: dict[str, bytes], tmp_path: pathlib.Path
) -> None:
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    pack, merge = yaml.safe_load_all((EXAMPLES / "k8s/example-pack.yaml").read_text())

    def arguments(job: dict[str, Any], **variables: str) -> list[str]:
        container = job["spec"]["template"]["spec"]["containers"][0]
        assert container["command"] == ["spdl-ctl"]
        words: list[str] = container["args"]
        for name, value in {"s3://bucket/train": str(tmp_path / "dataset"), "/source": str(source), **variables}.items():
            words = [word.replace(name, value) for word in words]
        return words

    def run(index: int) -> None:
        ctl(*arguments(pack, **{"$(PART)": str(index)}), *OPTIONS)

    with ThreadPoolExecutor(pack["spec"]["parallelism"]) as pods:
        list(pods.map(run, range(pack["spec"]["completions"])))
    ctl(*arguments(merge))
    assert files(tmp_path / "dataset") == whole

