"""Builds the image from the programs of a folder, and looks into it.

usage: test_image.py FOLDER_OF_BINARIES      needs root, buildah and the package cyclonedx-python-lib[json-validation]
"""

import functools
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

import files
from build import HERE, ROOT, Image, build
from sbom import package_of

USER = 65532
binaries = pathlib.Path()
FOLDER = tempfile.TemporaryDirectory()


@functools.cache
def image() -> Image:
    """Returns the image, which is built once."""
    return build(binaries, pathlib.Path(FOLDER.name, "image"))


class TheImage(unittest.TestCase):
    def test_has_the_programs_and_no_shell(self) -> None:
        found = {path.name for folder in ("bin", "sbin", "usr/bin", "usr/sbin", "usr/local/bin") for path in image().root.glob(f"{folder}/*")}
        self.assertEqual(found, {*files.PROGRAMS, "install"})

    def test_lets_nobody_gain_rights_or_change_a_program(self) -> None:
        self.assertEqual(image().config["config"]["User"], f"{USER}:{USER}")
        own = {image().root / folder for folder in ("var/lib/spdl", "var/cache/spdl", "run/spdl")}
        entries = set(image().root.rglob("*"))
        self.assertLessEqual(own, entries)
        for entry in entries:
            status = entry.lstat()
            self.assertEqual((status.st_uid, status.st_gid), (USER, USER) if entry in own else (0, 0), entry)
            self.assertFalse(status.st_mode & 0o6000, entry)
            self.assertFalse(status.st_mode & 0o022 and entry != image().root / "tmp", entry)

    def test_has_all_that_its_programs_load(self) -> None:
        for program in [*(f"/usr/local/bin/{program}" for program in files.PROGRAMS), str(files.INSTALL)]:
            command = ["chroot", f"--userspec={USER}:{USER}", image().root, program, "--version"]
            run = subprocess.run(command, capture_output=True, text=True)
            self.assertEqual(run.returncode, 0, run.stderr)

    def test_is_the_same_whenever_it_is_built(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            programs = pathlib.Path(folder, "programs")
            programs.mkdir()
            for program in files.PROGRAMS:
                copy = programs / program
                copy.write_bytes((binaries / program).read_bytes())
                copy.chmod(0o700)
                os.utime(copy, (1e9, 1e9))
            self.assertEqual(build(programs, pathlib.Path(folder, "image")).id, image().id)

    def test_is_not_built_without_a_program(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, HERE / "files.py", folder, pathlib.Path(folder, "files")]
            run = subprocess.run(command, capture_output=True, text=True)
            self.assertNotEqual(run.returncode, 0)
            self.assertIn("spdl-coord`: build the programs", run.stderr)


class TheBillOfMaterials(unittest.TestCase):
    def setUp(self) -> None:
        self.text = (image().root / files.SBOM).read_text()
        self.names = {component["name"] for component in json.loads(self.text)["components"]}

    def test_is_valid(self) -> None:
        self.assertIsNone(JsonStrictValidator(SchemaVersion.V1_6).validate_str(self.text))

    def test_has_what_the_programs_are_compiled_from(self) -> None:
        self.assertLessEqual({"spdl-control", "tokio", "quinn", "rustls", "opentelemetry"}, self.names)

    def test_lacks_what_only_builds_or_tests_them(self) -> None:
        self.assertFalse(self.names & {"syn", "serde_derive", "cc", "proptest", "spdl-testkit"})

    def test_has_the_package_of_each_file_of_this_system(self) -> None:
        root = image().root
        libraries = list(root.glob("lib*/**/*.so*"))
        self.assertGreater(len(libraries), 3)
        for package in {package_of(pathlib.Path("/", library.relative_to(root))) for library in libraries}:
            self.assertIn(package, self.names)
            self.assertTrue((root / "usr/share/doc" / package / "copyright").is_file(), package)

    def test_says_nothing_of_the_machine_that_built_it(self) -> None:
        self.assertNotIn(str(ROOT), self.text)


if __name__ == "__main__":
    binaries = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
