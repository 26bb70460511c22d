"""Writes the arrays of the tests of the decoder `tensor`, with numpy and ml_dtypes: python make.py"""

import pathlib

import ml_dtypes
import numpy

HERE = pathlib.Path(__file__).parent
GRID = numpy.arange(6).reshape(2, 3)

for name in ("u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f2", "f4", "f8"):
    numpy.save(HERE / f"{name}.npy", GRID.astype("<" + name))
numpy.save(HERE / "bool.npy", GRID % 2 == 1)
numpy.save(HERE / "bf16.npy", GRID.astype(ml_dtypes.bfloat16))
numpy.save(HERE / "big_endian.npy", GRID.astype(">f4"))
numpy.save(HERE / "fortran.npy", numpy.asfortranarray(GRID.astype(">f4")))
numpy.save(HERE / "scalar.npy", numpy.float32(7))
numpy.save(HERE / "objects.npy", numpy.array([{}, []], dtype=object))
numpy.save(HERE / "complex.npy", GRID.astype("<c8"))
numpy.save(HERE / "records.npy", numpy.zeros(2, dtype=[("a", "<f4"), ("b", "<i2")]))
for major in (1, 2, 3):
    with open(HERE / f"version{major}.npy", "wb") as file:
        numpy.lib.format.write_array(file, GRID.astype("<f4"), version=(major, 0))
numpy.savez(HERE / "stored.npz", first=GRID.astype("<i8"), second=GRID.astype("<f4"))
numpy.savez_compressed(HERE / "deflated.npz", first=GRID.astype("<i8"), second=numpy.asfortranarray(GRID.astype("<f4")))
numpy.savez_compressed(HERE / "single.npz", GRID.astype("<f4"))
numpy.savez_compressed(HERE / "bomb.npz", numpy.zeros(1 << 22, "<f4"))
