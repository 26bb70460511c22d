"""Resampling and features of speech, ours beside other libraries', one thread each, in turns."""

import argparse
import functools
import json
import pathlib
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable

import kaldi_native_fbank
import numpy as np
import soxr
import torch
import torchaudio
import transformers
import whisper.audio

SPEECH = pathlib.Path(__file__).resolve().parents[2] / "crates/sound/tests/golden/speech.s16"
#: Seconds of sound of a measurement.
SECONDS = 30
RATES = ((44100, 16000), (48000, 16000), (22050, 16000), (8000, 16000), (16000, 44100))


class Ours:
    """The benchmark program of the crate, which measures what it is asked to."""

    def __init__(self, program: str, folder: pathlib.Path) -> None:
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.folder = folder

    def measure(self, command: str, samples: np.ndarray) -> tuple[float, np.ndarray]:
        """Returns the CPU seconds of one time, the second of two, and the result."""
        samples.astype("<f4").tofile(self.folder / "in")
        self.process.stdin.write(f"{command} {self.folder}/in {self.folder}/out 2\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline().split()[1]), np.fromfile(self.folder / "out", "<f4")


def kaldi(samples: np.ndarray) -> np.ndarray:
    """Kaldi's features by kaldi-native-fbank."""
    options = kaldi_native_fbank.FbankOptions()
    options.frame_opts.dither = 0
    options.mel_opts.num_bins = 80
    bank = kaldi_native_fbank.OnlineFbank(options)
    bank.accept_waveform(16000, samples)
    bank.input_finished()
    return np.stack([bank.get_frame(frame) for frame in range(bank.num_frames_ready)])


def cases() -> dict[str, tuple[str, np.ndarray, dict[str, Callable[[], np.ndarray]], float]]:
    """Returns for each name our command, the samples, what others compute of them, and by how much the first may differ."""
    found = {}
    speech = np.fromfile(SPEECH, "<i2").astype("f4") / 32768
    for rate, target in RATES:
        samples = np.resize(speech, rate * SECONDS)
        tensor, resample = torch.from_numpy(samples), torchaudio.transforms.Resample(rate, target)
        peers = {
            "torchaudio": lambda resample=resample, tensor=tensor: resample(tensor).numpy(),
            "soxr": functools.partial(soxr.resample, samples, rate, target),
        }
        found[f"{rate} to {target} Hz"] = (f"resample {rate} {target}", samples, peers, 1e-5)
    samples = np.resize(speech, 16000 * SECONDS)
    tensor, extract = torch.from_numpy(samples), transformers.WhisperFeatureExtractor()
    peers = {
        "openai-whisper": lambda: whisper.audio.log_mel_spectrogram(tensor).numpy().T,
        "transformers": lambda: extract(samples, sampling_rate=16000, return_tensors="np").input_features[0].T,
        "transformers, NumPy": lambda: extract._np_extract_fbank_features(samples[None], "cpu")[0].T,
    }
    found["features of Whisper, 80 bands"] = ("features whisper 80", samples, peers, 1e-4)
    peers = {
        "torchaudio": lambda: torchaudio.compliance.kaldi.fbank(tensor[None], num_mel_bins=80).numpy(),
        "kaldi-native-fbank": lambda: kaldi(samples),
    }
    found["features of Kaldi, 80 bands"] = ("features kaldi 80 1", samples, peers, 1e-2)
    mel = torchaudio.transforms.MelSpectrogram(16000, 400, 400, 160, n_mels=80)
    found["mel spectrogram, 80 bands"] = ("features torchaudio 400 400 160 80 2", samples, {"torchaudio": lambda: mel(tensor).numpy().T}, 1e-2)
    return found


def seconds(call: Callable[[], object]) -> float:
    """Returns the CPU seconds of the second of two calls."""
    call()
    begun = time.process_time()
    call()
    return time.process_time() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7, help="how often each is measured; the median counts")
    parser.add_argument("--json", help="write the figures to this file")
    parser.add_argument("--program", required=True, help="the built benchmark of the crate")
    options = parser.parse_args()
    torch.set_num_threads(1)
    figures = []
    print("| what | ours, CPU s for an hour of sound | others, times as much |\n|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        ours = Ours(options.program, pathlib.Path(folder))
        for name, (command, samples, peers, within) in cases().items():
            result = ours.measure(command, samples)[1]
            expected = next(iter(peers.values()))().ravel()
            assert result.shape == expected.shape and np.abs(result - expected).max() <= within, f"{name}: the results differ"
            times: dict[str, list[float]] = {label: [] for label in ("ours", *peers)}
            for _ in range(options.rounds):
                times["ours"].append(ours.measure(command, samples)[0])
                for label, call in peers.items():
                    times[label].append(seconds(call))
            hours = {label: statistics.median(values) * 3600 / SECONDS for label, values in times.items()}
            shown = ", ".join(f"{label} {hours[label] / hours['ours']:.1f}" for label in peers)
            print(f"| {name} | {hours['ours']:.2f} | {shown} |", flush=True)
            figures.append({"what": name, "cpu_seconds_an_hour": hours})
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(figures, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
