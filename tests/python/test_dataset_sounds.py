"""Noise and rooms of other datasets, beside what numpy makes of the same draws."""

from __future__ import annotations

import pathlib
from typing import Any

import numpy
import pytest
import spdl_cluster
from conftest import Cluster, ctl
from numpy.typing import NDArray
from test_audio import RATE, WAVE, sound

soundfile = pytest.importorskip("soundfile")

SEED = 5
#: The part of a sample that its first operation draws recordings with.
FIRST_PART = 1 << 20
BITS = (1 << 64) - 1


def mixed(number: int) -> int:
    """Returns what splitmix64 makes of a number."""
    number = (number + 0x9E3779B97F4A7C15) & BITS
    number = ((number ^ (number >> 30)) * 0xBF58476D1CE4E5B9) & BITS
    number = ((number ^ (number >> 27)) * 0x94D049BB133111EB) & BITS
    return number ^ (number >> 31)


class Draw:
    """The random numbers of an operation on a sample: xoshiro256++, keyed by seed, epoch, sample and the operation's place."""

    def __init__(self, epoch: int, sample: int, operation: int) -> None:
        key = mixed(mixed(mixed(mixed(SEED) ^ epoch) ^ sample) ^ (FIRST_PART + operation))
        self.state = [0] * 4
        for place in range(4):
            key = mixed(key)
            self.state[place] = key

    def bits(self) -> int:
        def rotated(number: int, by: int) -> int:
            return ((number << by) | (number >> (64 - by))) & BITS

        a, b, c, d = self.state
        drawn = (rotated((a + d) & BITS, 23) + a) & BITS
        c, d = c ^ a, d ^ b
        self.state = [a ^ d, b ^ c, c ^ ((b << 17) & BITS), rotated(d, 45)]
        return drawn

    def unit(self) -> float:
        return (self.bits() >> 11) / (1 << 53)


def recordings(folder: pathlib.Path, number: int, frames: list[int]) -> dict[int, NDArray[Any]]:
    """Writes recordings of these lengths, every third one of two channels, and indexes them. Returns each by its number in the dataset, as
    `soundfile` reads it, with one channel."""
    folder.mkdir()
    for place, length in enumerate(frames):
        channels = 2 if place % 3 == 0 else 1
        written = sound(number + place, length, channels) + 0.01
        soundfile.write(folder / f"{place:03}.{'flac' if place % 2 else 'wav'}", written, RATE, subtype="PCM_16")
    ctl("index", folder)
    job = {"name": "recordings", "dataset": folder, "global_batch": 1, "shuffle": False, "column": [{"name": "key", "from": "__key__", "decode": "text"}]}
    found = {}
    with spdl_cluster.local(job, tensors="numpy") as loader:
        for batch in loader:
            [path] = folder.glob(f"{batch['key'].text()[0]}.*")
            read, _ = soundfile.read(path, dtype="float32", always_2d=True)
            found[int(batch.ids[0])] = read.mean(axis=1)
    assert sorted(found) == list(range(len(frames)))
    return found


def with_noise(clean: NDArray[Any], draw: Draw, noises: dict[int, NDArray[Any]], low: float, high: float) -> NDArray[Any]:
    noise = noises[(draw.bits() * len(noises)) >> 64]
    ratio = low + (high - low) * draw.unit()
    long = len(noise) > len(clean)
    start = int(draw.unit() * (len(noise) - len(clean) + 1 if long else len(noise)))
    added = numpy.resize(numpy.roll(noise, -start), len(clean)).astype(float)
    energies = numpy.square(clean, dtype=float).sum(), numpy.square(added).sum()
    return numpy.asarray(clean + numpy.sqrt(energies[0] / energies[1]) * 10 ** (-ratio / 20) * added)


def in_room(clean: NDArray[Any], draw: Draw, rooms: dict[int, NDArray[Any]]) -> NDArray[Any]:
    response = rooms[(draw.bits() * len(rooms)) >> 64].astype(float)
    if draw.unit() >= 0.5:
        return clean
    direct = int(abs(response).argmax())
    whole = numpy.convolve(clean, response / numpy.linalg.norm(response))
    return numpy.asarray(whole[direct : direct + len(clean)])


def test_noise_and_rooms_of_other_datasets_are_those_of_the_draws_everywhere(tmp_path: pathlib.Path, cluster: Cluster) -> None:
    recordings(tmp_path / "speech", 0, [1500 + 400 * number for number in range(12)])
    noises = recordings(tmp_path / "noise", 20, [700, 5000, 12_000, 3000, 9000])
    rooms = recordings(tmp_path / "rooms", 40, [400, 800, 1200])
    noise = {"snr": [0, 20], "dataset": tmp_path / "noise"}
    columns = [
        {**WAVE, "name": "plain"},
        {**WAVE, "name": "noisy", "ops": [{"noise": noise}]},
        {**WAVE, "name": "room", "ops": [{"reverb": {"dataset": {"url": tmp_path / "rooms", "from": "wav|flac"}, "p": 0.5}}]},
        {**WAVE, "name": "both", "ops": [{"reverb": tmp_path / "rooms"}, {"noise": {**noise, "p": 1}}]},
    ]
    made = {"name": "noise-and-rooms", "dataset": tmp_path / "speech", "seed": SEED, "global_batch": 4, "epochs": 2, "column": columns}

    def of(loader: spdl_cluster.Loader, epochs: int) -> dict[tuple[int, int], list[bytes]]:
        found = {}
        for epoch in range(epochs):
            for batch in loader:
                for number, sample in enumerate(batch.ids.tolist()):
                    found[epoch, sample] = [batch[name][number].tobytes() for name in ("plain", "noisy", "room", "both")]
        return found

    with spdl_cluster.local(made, tensors="numpy") as loader:
        alone = of(loader, 2)
    assert len(alone) == 24
    changed = 0
    for (epoch, sample), values in alone.items():
        plain, noisy, room, both = (numpy.frombuffer(value, "float32") for value in values)
        assert numpy.allclose(noisy, with_noise(plain, Draw(epoch, sample, 0), noises, 0, 20), atol=1e-5)
        expected = in_room(plain, Draw(epoch, sample, 0), rooms)
        changed += expected is not plain
        assert numpy.allclose(room, expected, atol=1e-5), (epoch, sample)
        assert len(both) == len(plain) and not numpy.array_equal(both, noisy)
    assert 4 < changed < 20, changed
    assert any(alone[0, sample] != alone[1, sample] for sample in range(12))
    with cluster.connect(0, 1, job=cluster.submit(made), tensors="numpy") as loader:
        assert of(loader, 2) == alone
    shared = {}
    for rank in range(2):
        with spdl_cluster.local(made, rank=rank, world=2, tensors="numpy") as loader:
            shared.update(of(loader, 1))
    assert shared == {key: value for key, value in alone.items() if key[0] == 0}


def test_the_dataset_of_a_noise_is_part_of_what_the_job_promises(tmp_path: pathlib.Path, cluster: Cluster) -> None:
    recordings(tmp_path / "speech", 0, [1500] * 8)
    recordings(tmp_path / "noise", 20, [700, 5000])
    column = {**WAVE, "ops": [{"noise": {"snr": 10, "dataset": tmp_path / "noise"}}]}
    made = {"name": "noise-that-changes", "dataset": tmp_path / "speech", "seed": SEED, "global_batch": 4, "column": [column]}
    cluster.submit(made)
    soundfile.write(tmp_path / "noise/more.wav", sound(3, 900), RATE, subtype="PCM_16")
    ctl("index", tmp_path / "noise", "--force")
    with pytest.raises(AssertionError, match="there already"):
        cluster.submit(made)
    elsewhere = {"url": tmp_path / "noise", "from": "mp3|opus"}
    wrong = {**made, "name": "noise-of-no-field", "column": [{**WAVE, "ops": [{"noise": {"snr": 10, "dataset": elsewhere}}]}]}
    told = "is `mp3` or `opus`, which no record of the dataset has; its fields are flac, wav"
    with pytest.raises(AssertionError, match=told):
        cluster.submit(wrong)
    with pytest.raises(spdl_cluster.SettingError, match=told), spdl_cluster.local(wrong, tensors="numpy") as loader:
        loader.next()
    missing = {**made, "column": [{**WAVE, "ops": [{"reverb": tmp_path / "nowhere"}]}]}
    with pytest.raises(spdl_cluster.SpdlError, match="nowhere"), spdl_cluster.local(missing, tensors="numpy") as loader:
        loader.next()
