"""Builds the image from the programs of a folder, and reads it as others do.

usage: test_build.py FOLDER_OF_BINARIES      needs the package cyclonedx-python-lib[json-validation]
"""

import functools
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest
from typing import Any

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

import build
from layout import Entry, Image, write_archive
from sbom import packages_of
from unpack import unpack

HERE = pathlib.Path(__file__).resolve().parent
NAME = "spdl-cluster:test"
binaries = pathlib.Path()
FOLDER = tempfile.TemporaryDirectory()


@functools.cache
def archive() -> pathlib.Path:
    """Returns the archive, which is built once."""
    path = pathlib.Path(FOLDER.name, "image.tar")
    subprocess.run([sys.executable, HERE / "build.py", binaries, path, "--name", NAME], check=True, stdout=subprocess.DEVNULL)
    return path


@functools.cache
def config_and_root() -> tuple[dict[str, Any], pathlib.Path, list[tarfile.TarInfo]]:
    """Returns the configuration, the folder with what all layers have, and their entries."""
    root = pathlib.Path(FOLDER.name, "root")
    config, entries = unpack(archive(), root)
    return config, root, entries


class TheImage(unittest.TestCase):
    def test_has_the_programs_and_no_shell(self) -> None:
        _, root, _ = config_and_root()
        found = {path.name for folder in ("bin", "sbin", "usr/bin", "usr/sbin", "usr/local/bin") for path in root.glob(f"{folder}/*")}
        self.assertEqual(found, {*build.PROGRAMS, "install"})

    def test_lets_nobody_gain_rights_or_change_a_program(self) -> None:
        config, _, entries = config_and_root()
        self.assertEqual(config["config"]["User"], f"{build.USER}:{build.USER}")
        for entry in entries:
            own = entry.name in build.FOLDERS
            self.assertEqual(entry.uid, build.USER if own else 0, entry.name)
            self.assertFalse(entry.mode & 0o6000, entry.name)
            self.assertFalse(entry.mode & 0o022 and entry.name != "tmp", entry.name)

    @unittest.skipUnless(os.getuid() == 0, "only root may change the root folder")
    def test_has_all_that_its_programs_load(self) -> None:
        _, root, _ = config_and_root()
        user = f"--userspec={build.USER}:{build.USER}"
        for program in [*(f"/usr/local/bin/{program}" for program in build.PROGRAMS), str(build.INSTALL)]:
            run = subprocess.run(["chroot", user, root, program, "--version"], capture_output=True, text=True)
            self.assertEqual(run.returncode, 0, run.stderr)

    @unittest.skipUnless(shutil.which("skopeo"), "skopeo is not installed")
    def test_is_read_and_copied_by_skopeo(self) -> None:
        source = f"oci-archive:{archive()}:{NAME}"
        inspected = subprocess.run(["skopeo", "inspect", source], check=True, capture_output=True, text=True).stdout
        self.assertEqual(json.loads(inspected)["Os"], "linux")
        copy = pathlib.Path(FOLDER.name, "copy")
        policy = ["--insecure-policy"]
        # It checks each layer against its digest.
        subprocess.run(["skopeo", *policy, "copy", "--quiet", source, f"dir:{copy}"], check=True, capture_output=True)
        self.assertTrue((copy / "manifest.json").is_file())


class TheBillOfMaterials(unittest.TestCase):
    def setUp(self) -> None:
        _, self.root, _ = config_and_root()
        self.text = (self.root / build.SBOM).read_text()
        self.names = {component["name"] for component in json.loads(self.text)["components"]}

    def test_is_valid(self) -> None:
        self.assertIsNone(JsonStrictValidator(SchemaVersion.V1_6).validate_str(self.text))

    def test_has_what_the_programs_are_compiled_from(self) -> None:
        self.assertLessEqual({"spdl-control", "tokio", "quinn", "rustls", "opentelemetry"}, self.names)

    def test_lacks_what_only_builds_or_tests_them(self) -> None:
        self.assertFalse(self.names & {"syn", "serde_derive", "cc", "proptest", "spdl-testkit"})

    def test_has_the_package_of_each_file_of_this_system(self) -> None:
        libraries = list(self.root.glob("lib*/**/*.so*"))
        self.assertGreater(len(libraries), 3)
        for package in packages_of([pathlib.Path("/", library.relative_to(self.root)) for library in libraries], {}):
            self.assertIn(package.name, self.names)
            self.assertTrue((self.root / "usr/share/doc" / package.name / "copyright").is_file(), package)

    def test_says_nothing_of_the_machine_that_built_it(self) -> None:
        self.assertNotIn(str(HERE.parents[1]), self.text)


class AnArchive(unittest.TestCase):
    def test_has_the_same_bytes_whenever_and_in_whichever_order_it_is_written(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            program = pathlib.Path(folder, "program")
            program.write_bytes(b"\x7fELF" * 1000)
            entries = [Entry.folder("var/lib/x", owner=7), Entry.text("etc/passwd", "root"), Entry.file("bin/program", program, mode=0o755)]
            written = []
            for number, order in enumerate((entries, entries[::-1])):
                os.utime(program, (number * 1e9, number * 1e9))
                path = pathlib.Path(folder, f"{number}.tar")
                write_archive(path, Image(name="x", user=7, layers=[("all", order)]))
                written.append(path.read_bytes())
            self.assertEqual(*written)

    def test_is_not_written_without_a_program(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "image.tar")
            run = subprocess.run([sys.executable, HERE / "build.py", folder, path], capture_output=True, text=True)
            self.assertNotEqual(run.returncode, 0)
            self.assertIn("spdl-coord`: build the programs", run.stderr)
            self.assertFalse(path.exists())


if __name__ == "__main__":
    binaries = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
