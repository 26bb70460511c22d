"""Runs the pods of `jobset/`, as `kubelet.py` does, to the end of a training.

usage: test_pods.py FOLDER_OF_BINARIES      needs root, `unshare` and `openssl`; without the right to use namespaces, it is skipped
"""

import pathlib
import subprocess
import sys
import tempfile
import unittest

from kubelet import enter_namespaces, may_use_namespaces, raise_loopback, train

TRAINERS = 2
PICTURES = 256


class AJobSet(unittest.TestCase):
    def test_trains_from_shared_memory_in_pods_that_share_nothing_with_their_node(self) -> None:
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        folder = pathlib.Path(temporary.name)
        run = train(binaries, packed(folder), TRAINERS, folder)

        # Two epochs of the example's job.
        self.assertEqual(sum(report["samples"] for report in run.reports), 2 * PICTURES)
        self.assertEqual({report["transport"] for report in run.reports}, {"local"})
        self.assertEqual(run.servers, {0}, "the servers end when they are asked to")


def packed(folder: pathlib.Path) -> pathlib.Path:
    """Returns a packed dataset of pictures."""
    program, photos, dataset = binaries / "spdl-ctl", folder / "photos", folder / "dataset"
    subprocess.run([program, "pictures", "--quiet", "--count", str(PICTURES), photos], check=True, capture_output=True)
    subprocess.run([program, "pack", photos, dataset], check=True, capture_output=True)
    return dataset


if __name__ == "__main__":
    if sys.argv[1] == "--inside":
        binaries = pathlib.Path(sys.argv[2])
        raise_loopback()
        unittest.main(argv=sys.argv[:1])
    elif may_use_namespaces():
        enter_namespaces(__file__, str(pathlib.Path(sys.argv[1]).resolve()))
    else:
        print("namespaces cannot be used here, so no pod runs")
