"""Writes an array and a number beside it for each sample, as people keep features.

usage: write_arrays.py FOLDER COUNT
"""

import pathlib
import sys

import numpy

folder = pathlib.Path(sys.argv[1])
folder.mkdir()
for number in range(int(sys.argv[2])):
    numpy.save(folder / f"{number:06}.npy", numpy.random.default_rng(number).standard_normal(16).astype("float32"))
    (folder / f"{number:06}.cls").write_text(str(number % 3))
print("{}")
