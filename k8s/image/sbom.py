"""The bill of materials of the image, in CycloneDX 1.6: the crates that the programs are built from, and Debian's packages.

`cargo cyclonedx` and `cargo sbom` know neither Debian's packages nor what three programs have together, and are 123 and 81 crates to compile.
"""

import json
import pathlib
import platform
import subprocess
import urllib.parse
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[2]


def bill_of_materials(packages: list[str]) -> str:
    """Returns the bill of materials of what the programs are built from, and of these packages of Debian."""
    crates = _crates()
    version = next(crate["version"] for crate in crates if crate["name"] == "spdl-cli")
    bill = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {"type": "container", "bom-ref": "spdl-cluster", "name": "spdl-cluster", "version": version}},
        "components": [*crates, *map(_package, packages)],
    }
    return json.dumps(bill, indent=1) + "\n"


def package_of(path: pathlib.Path) -> str:
    """Returns the package of Debian, or of a system derived from it, that a file is from."""
    # Where `/lib` is a link to `/usr/lib`, packages know a file by one of the two.
    resolved = path.resolve()
    without_usr = pathlib.Path("/", *resolved.parts[2:]) if resolved.parts[1] == "usr" else resolved
    for candidate in (path, resolved, without_usr, pathlib.Path("/usr", *path.parts[1:])):
        query = subprocess.run(["dpkg-query", "--search", candidate], capture_output=True, text=True)
        if query.returncode == 0:
            return query.stdout.split(": ")[0].split(":")[0]
    raise SystemExit(f"no package of this machine has `{path}`, so the bill of materials would lack it")


def _package(name: str) -> dict[str, Any]:
    version, architecture = _output("dpkg-query", "--show", "--showformat", "${Version} ${Architecture}\n", name)[0].split()
    return _component(f"deb/{platform.freedesktop_os_release()['ID']}", name, version, f"?arch={architecture}")


def _crates() -> list[dict[str, Any]]:
    """Returns the crates that are compiled into the programs; what only builds them is not in the image."""
    programs = ["--package=spdl-cli", "--package=spdl-worker", "--package=spdl-coordinator"]
    options = ["--edges=normal,no-proc-macro", "--prefix=none", "--format={p}|{l}"]
    components = {}
    for line in filter(None, _output("cargo", "tree", "--locked", *programs, *options)):
        package, licence = line.removesuffix(" (*)").split("|")
        name, version = package.split()[:2]
        # Some older crates separate alternatives with a slash, which is no expression of SPDX.
        licences = {"licenses": [{"expression": licence.replace("/", " OR ")}]} if licence else {}
        components[name, version] = _component("cargo", name, version.removeprefix("v")) | licences
    return [components[key] for key in sorted(components)]


def _component(kind: str, name: str, version: str, qualifiers: str = "") -> dict[str, Any]:
    url = f"pkg:{kind}/{name}@{urllib.parse.quote(version, safe='')}{qualifiers}"
    return {"type": "library", "bom-ref": url, "name": name, "version": version, "purl": url}


def _output(*command: str) -> list[str]:
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines()
