"""The bill of materials of the image, in CycloneDX 1.6: the crates that the programs are built from, and Debian's packages."""

import dataclasses
import functools
import json
import pathlib
import subprocess
import urllib.parse
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[2]
#: The packages of the programs.
CARGO = ["--package", "spdl-cli", "--package", "spdl-worker", "--package", "spdl-coordinator"]


@dataclasses.dataclass(frozen=True, order=True)
class Package:
    """A package of Debian or of a system derived from it, of which the image has files."""

    name: str
    version: str
    architecture: str
    distribution: str

    @property
    def copyright(self) -> pathlib.Path | None:
        path = pathlib.Path("/usr/share/doc", self.name, "copyright")
        return path if path.is_file() else None

    def component(self) -> dict[str, Any]:
        version = urllib.parse.quote(self.version, safe=".+~-")
        url = f"pkg:deb/{self.distribution}/{self.name}@{version}?arch={self.architecture}"
        return {"type": "library", "bom-ref": url, "name": self.name, "version": self.version, "purl": url}


def packages_of(files: list[pathlib.Path], generated: dict[pathlib.Path, str]) -> list[Package]:
    """Returns the packages that files are from; those that a package has generated are named with it."""
    names = {_owner(path) for path in files} | set(generated.values())
    return sorted(_package(name) for name in names)


def _owner(path: pathlib.Path) -> str:
    # Where `/lib` is a link to `/usr/lib`, packages know a file by one of the two.
    resolved = path.resolve()
    without_usr = pathlib.Path("/", *resolved.parts[2:]) if resolved.parts[1] == "usr" else resolved
    for candidate in (path, resolved, without_usr, pathlib.Path("/usr", *path.parts[1:])):
        query = subprocess.run(["dpkg-query", "--search", candidate], capture_output=True, text=True)
        if query.returncode == 0:
            return query.stdout.split(": ")[0].split(":")[0]
    raise SystemExit(f"no package of this machine has `{path}`, so the bill of materials would lack it")


@functools.cache
def _package(name: str) -> Package:
    query = ["dpkg-query", "--show", "--showformat", "${Version} ${Architecture}\n", name]
    version, architecture = subprocess.run(query, check=True, capture_output=True, text=True).stdout.splitlines()[0].split()
    release = dict(line.split("=", 1) for line in pathlib.Path("/etc/os-release").read_text().splitlines() if "=" in line)
    return Package(name, version, architecture, release["ID"].strip('"'))


def bill_of_materials(packages: list[Package]) -> str:
    """Returns the bill of materials of what the programs are built from, and of these packages."""
    crates = _crates()
    own, version = "spdl-cluster", next(c["version"] for c in crates if c["name"] == "spdl-cli")
    bill = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {"type": "container", "bom-ref": own, "name": own, "version": version}},
        "components": crates + [package.component() for package in packages],
    }
    return json.dumps(bill, indent=1) + "\n"


def _crates() -> list[dict[str, Any]]:
    """Returns the crates that are compiled into the programs; what only builds them is not in the image."""
    tree = ["cargo", "tree", "--locked", *CARGO, "--edges", "normal,no-proc-macro", "--prefix", "none", "--format", "{p}|{l}"]
    lines = subprocess.run(tree, cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines()
    components = {}
    for line in filter(None, lines):
        package, licence = line.removesuffix(" (*)").split("|")
        name, version = package.split()[:2]
        components[name, version] = _crate(name, version.removeprefix("v"), licence)
    return [components[key] for key in sorted(components)]


def _crate(name: str, version: str, licence: str) -> dict[str, Any]:
    url = f"pkg:cargo/{name}@{urllib.parse.quote(version, safe='.-')}"
    crate = {"type": "library", "bom-ref": url, "name": name, "version": version, "purl": url}
    # Some older crates separate alternatives with a slash, which is no expression of SPDX.
    return crate | ({"licenses": [{"expression": licence.replace("/", " OR ")}]} if licence else {})
