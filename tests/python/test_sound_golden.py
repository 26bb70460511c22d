"""The values that the crate of sound is tested with are what the libraries compute that they are from."""

import importlib.util
import pathlib

import pytest

np = pytest.importorskip("numpy")

MAKE = pathlib.Path(__file__).resolve().parents[2] / "crates/sound/tests/golden/make.py"
SPEC = importlib.util.spec_from_file_location("sound_golden", MAKE)
assert SPEC and SPEC.loader
make = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(make)

#: What a value may differ by, in parts of the greatest: libraries add up in another order from version to version.
WITHIN = 1e-5
#: Logarithms of quiet bands, whose energies are rounding errors of loud ones.
WITHIN_LOGARITHMS = {"kaldi": 1e-4, "nemo": 1e-4}


@pytest.mark.parametrize("name", make.GOLDEN)
def test_the_golden_values_are_what_the_libraries_compute(name: str) -> None:
    for module in ("torch", "torchaudio", "librosa", "transformers") if name == "nemo" else ("torch", "torchaudio", "transformers"):
        pytest.importorskip(module, reason=f"{module}, which computes them, is not installed")
    expected = np.asarray(make.GOLDEN[name]()).ravel()
    found = np.fromfile(MAKE.parent / f"{name}.f32", "<f4")
    assert found.shape == expected.shape
    assert np.abs(expected).max() > 1e-2
    assert np.abs(found - expected).max() <= WITHIN_LOGARITHMS.get(name, WITHIN) * np.abs(expected).max()
