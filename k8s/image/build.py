"""Writes a container image of the built programs, without a container engine: an archive in OCI layout.

usage: build.py FOLDER_OF_BINARIES ARCHIVE.tar [--name NAME]

The image has the programs, the libraries that they load, the certificates of public CAs, and nothing else: no shell, no package
manager. It runs as user 65532. Its bill of materials is in it, at /usr/share/sbom/spdl-cluster.cdx.json. The libraries are those of this
machine, which has to have built the programs and to be a Debian or Ubuntu. The same inputs make the same bytes. To push it:
`skopeo copy oci-archive:ARCHIVE.tar docker://REGISTRY/NAME`.
"""

import argparse
import pathlib
import platform
import shutil
import subprocess
import sys
import tempfile

from layout import ARCHITECTURES, Entry, Image, write_archive
from sbom import bill_of_materials, packages_of

PROGRAMS = ["spdl-coord", "spdl-worker", "spdl-ctl"]
#: What the DaemonSet's init container runs.
INSTALL = pathlib.Path("/usr/bin/install")
CERTIFICATES = pathlib.Path("/etc/ssl/certs/ca-certificates.crt")
USER = 65532
SBOM = "usr/share/sbom/spdl-cluster.cdx.json"
#: Folders of the user, where volumes are mounted.
FOLDERS = ["var/lib/spdl", "var/cache/spdl", "run/spdl"]
FILES = {
    "etc/passwd": f"root:x:0:0:root:/root:/sbin/nologin\nspdl:x:{USER}:{USER}:spdl:/var/lib/spdl:/sbin/nologin\n",
    "etc/group": f"root:x:0:\nspdl:x:{USER}:\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
}


def main(binaries: pathlib.Path, archive: pathlib.Path, name: str) -> None:
    for path in [*(binaries / program for program in PROGRAMS), INSTALL, CERTIFICATES]:
        if not path.is_file():
            sys.exit(f"no file `{path}`: build the programs, and install Debian's coreutils and ca-certificates")
    if platform.machine() not in ARCHITECTURES:
        sys.exit(f"no image for `{platform.machine()}`; there are {', '.join(ARCHITECTURES)}")
    with tempfile.TemporaryDirectory() as folder:
        programs = [stripped(binaries / program, pathlib.Path(folder)) for program in PROGRAMS]
        libraries = sorted({library for program in [*programs, INSTALL] for library in libraries_of(program)})
        packages = packages_of([INSTALL, *libraries], {CERTIFICATES: "ca-certificates"})
        system = [Entry.folder("tmp", mode=0o1777), *(Entry.folder(path, owner=USER) for path in FOLDERS)]
        system += [Entry.text(path, text) for path, text in FILES.items()]
        system += [Entry.file(str(path)[1:], path) for path in [CERTIFICATES, INSTALL, *libraries]]
        system += [Entry.file(str(notice)[1:], notice) for package in packages if (notice := package.copyright)]
        own = [Entry.file(f"usr/local/bin/{program.name}", program, mode=0o755) for program in programs]
        own.append(Entry.text(SBOM, bill_of_materials(packages)))
        write_archive(archive, Image(name=name, user=USER, layers=[("system", system), ("programs", own)]))
    print(f"{archive}: {archive.stat().st_size / 1e6:.0f} MB, {len(libraries)} libraries of {len(packages)} packages")


def stripped(program: pathlib.Path, folder: pathlib.Path) -> pathlib.Path:
    """Returns a copy without symbols."""
    copy = folder / program.name
    shutil.copyfile(program, copy)
    subprocess.run(["strip", copy], check=True)
    return copy


def libraries_of(program: pathlib.Path) -> list[pathlib.Path]:
    """Returns the libraries that a program loads, and what loads them, by the paths under which they are looked for."""
    lines = subprocess.run(["ldd", program], check=True, capture_output=True, text=True).stdout.splitlines()
    words = [line.split() for line in lines]
    missing = [line[0] for line in words if "not" in line]
    if missing:
        sys.exit(f"`{program}` needs {', '.join(missing)}, which this machine does not have")
    found = [line[2] if "=>" in line else line[0] for line in words]
    return [pathlib.Path(path) for path in found if path.startswith("/")]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("binaries", type=pathlib.Path)
    parser.add_argument("archive", type=pathlib.Path)
    parser.add_argument("--name", default="spdl-cluster:dev", help="name and tag that the archive has for its image")
    arguments = parser.parse_args()
    main(arguments.binaries, arguments.archive, arguments.name)
