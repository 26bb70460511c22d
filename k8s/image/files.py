"""Collects the files of the image, from which the Containerfile builds it.

usage: files.py FOLDER_OF_BINARIES FOLDER

The image has the programs, the libraries that they load, the certificates of public CAs, and nothing else: no shell, no package
manager. Its bill of materials is in it, at /usr/share/sbom/spdl-cluster.cdx.json. The libraries are those of this machine, which has to
have built the programs and to be a Debian or Ubuntu.
"""

import os
import pathlib
import subprocess
import sys

from sbom import bill_of_materials, package_of

PROGRAMS = ["spdl-coord", "spdl-worker", "spdl-ctl"]
#: What the DaemonSet's init container runs.
INSTALL = pathlib.Path("/usr/bin/install")
CERTIFICATES = pathlib.Path("/etc/ssl/certs/ca-certificates.crt")
SBOM = "usr/share/sbom/spdl-cluster.cdx.json"
FILES = {
    "etc/passwd": "root:x:0:0:root:/root:/sbin/nologin\nspdl:x:65532:65532:spdl:/var/lib/spdl:/sbin/nologin\n",
    "etc/group": "root:x:0:\nspdl:x:65532:\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
}


def main(binaries: pathlib.Path, folder: pathlib.Path) -> None:
    programs = [binaries / program for program in PROGRAMS]
    for path in [*programs, INSTALL, CERTIFICATES]:
        if not path.is_file():
            sys.exit(f"no file `{path}`: build the programs, and install Debian's coreutils and ca-certificates")
    os.umask(0o022)
    libraries = sorted({library for program in [*programs, INSTALL] for library in libraries_of(program)})
    # Debian's package makes the file of certificates when it is installed.
    packages = sorted({"ca-certificates", *(package_of(path) for path in [INSTALL, *libraries])})
    notices = [notice for package in packages if (notice := pathlib.Path("/usr/share/doc", package, "copyright")).is_file()]
    for path in ["empty", "system/run", "system/tmp", "system/var/cache", "system/var/lib"]:
        (folder / path).mkdir(parents=True)
    (folder / "system/tmp").chmod(0o1777)
    run("cp", "--dereference", "--parents", "--target-directory", folder / "system", INSTALL, CERTIFICATES, *libraries, *notices)
    run("install", "-D", "--strip", "--target-directory", folder / "programs/usr/local/bin", *programs)
    for name, text in FILES.items():
        write(folder / "system" / name, text)
    write(folder / "programs" / SBOM, bill_of_materials(packages))


def libraries_of(program: pathlib.Path) -> list[pathlib.Path]:
    """Returns the libraries that a program loads, and what loads them, by the paths under which they are looked for."""
    lines = subprocess.run(["ldd", program], check=True, capture_output=True, text=True).stdout.splitlines()
    words = [line.split() for line in lines]
    missing = [line[0] for line in words if "not" in line]
    if missing:
        sys.exit(f"`{program}` needs {', '.join(missing)}, which this machine does not have")
    found = [line[2] if "=>" in line else line[0] for line in words]
    return [pathlib.Path(path) for path in found if path.startswith("/")]


def run(*command: str | pathlib.Path) -> None:
    subprocess.run(command, check=True)


def write(path: pathlib.Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))
