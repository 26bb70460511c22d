"""Writes the files of this folder: what torchaudio and transformers compute of `speech.s16`, as 32-bit floats, little endian.

usage: make.py

Needs librosa, numpy, torch, torchaudio and transformers. `tests/python/test_sound_golden.py` compares the files with what those
that are installed compute. `speech.s16` is half a second of LibriVox's *Sense and Sensibility*, which is in the
public domain, as Debian's package `pocketsphinx-testdata` has it: 16-bit samples, 16,000 a second.
"""

import pathlib
import sys

import numpy as np

FOLDER = pathlib.Path(__file__).parent
RATES = (8000, 11025, 16000, 22050, 24000, 32000, 44100, 48000, 96000)
TARGETS = (16000, 24000, 44100)
#: Samples that are resampled, as if they had each rate.
RESAMPLED = 300


def speech() -> np.ndarray:
    """Returns the samples, from -1 to 1."""
    return np.fromfile(FOLDER / "speech.s16", "<i2").astype(np.float32) / 32768


def resample() -> np.ndarray:
    """Returns the start of the speech, resampled from each rate to each target, one after the other."""
    import torch
    import torchaudio

    samples = torch.from_numpy(speech()[2000:][:RESAMPLED])
    pairs = [(rate, target) for rate in RATES for target in TARGETS]
    return np.concatenate([torchaudio.functional.resample(samples, *pair).numpy() for pair in pairs])


def whisper(mels: int) -> np.ndarray:
    """Returns the features of the speech, which the extractor pads to 30 seconds; frames of the padding are left out."""
    from transformers import WhisperFeatureExtractor

    extract = WhisperFeatureExtractor(feature_size=mels)
    samples = speech()
    return extract(samples, sampling_rate=16000, return_tensors="np").input_features[0].T[: len(samples) // 160]


def kaldi() -> np.ndarray:
    """Returns Kaldi's features of 80 bands, of samples that are as large as Kaldi's."""
    import torch
    import torchaudio

    samples = torch.from_numpy(speech() * 32768)[None]
    return torchaudio.compliance.kaldi.fbank(samples, num_mel_bins=80, sample_frequency=16000).numpy()


def nemo() -> np.ndarray:
    """Returns NeMo's features of 80 bands, by the extractor for NeMo's models."""
    from transformers import ParakeetFeatureExtractor

    found = ParakeetFeatureExtractor(feature_size=80)(speech(), sampling_rate=16000, return_tensors="np")
    return found.input_features[0][: len(speech()) // 160]


def torchaudio_mel() -> np.ndarray:
    """Returns the features of torchaudio's `MelSpectrogram` with its defaults."""
    import torch
    import torchaudio

    return torchaudio.transforms.MelSpectrogram(16000)(torch.from_numpy(speech())).numpy().T


GOLDEN = {
    "resample": resample,
    "whisper-80": lambda: whisper(80),
    "whisper-128": lambda: whisper(128),
    "kaldi": kaldi,
    "nemo": nemo,
    "torchaudio": torchaudio_mel,
}


def main() -> None:
    for name, compute in GOLDEN.items():
        np.ascontiguousarray(compute(), "<f4").tofile(FOLDER / f"{name}.f32")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        sys.exit(__doc__)
    main()
