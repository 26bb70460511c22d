"""Loaders of sound, as `benches/peers/run --sounds` compares them: peers as those of pictures, whose batches are an array or a tensor of
segments; of whole files, it is a pair of padded samples and lengths, or of samples end to end and where each begins. All read the same files,
in a random order, and a segment begins at a random sample."""

import json
import pathlib
import random
import subprocess

FILES, SECONDS, RATE = 200, 15, 16000
FORMAT = "files"
SEED = 17
OURS = ["numpy==2.4.6", "maturin==1.16.0"]
#: How `ffmpeg` codes them, by the name of `--coded`: the ending of the files and the options.
ENCODERS = {
    "wav": ("wav", ["-c:a", "pcm_s16le"]),
    "flac": ("flac", ["-c:a", "flac"]),
    "mp3": ("mp3", ["-c:a", "libmp3lame", "-b:a", "48k"]),
    "vorbis": ("ogg", ["-c:a", "libvorbis", "-q:a", "3"]),
    "opus": ("opus", ["-c:a", "libopus", "-b:a", "32k"]),
}
#: What the voice of `ffmpeg`'s filter `flite` says: words of random order, some 15 seconds of them.
WORDS = "the worker reads a block of samples from the store while the trainer waits for no batch and every rank has the same number of steps"
SPOKEN = 60


def ending(data) -> str:
    return ENCODERS[data.home.name.removeprefix("sounds-")][0]


def prepare(data) -> None:
    """Writes speech of a synthetic voice, each file another, and beside them how many samples each has."""
    name, coded = ENCODERS[data.home.name.removeprefix("sounds-")]
    folder, lengths = pathlib.Path(data.format(FORMAT)), {}
    for file in range(FILES):
        words = " ".join(random.Random(file).choices(WORDS.split(), k=SPOKEN))
        voice = ["-f", "lavfi", "-i", f"flite=text={words}:voice=slt"]
        sound = ffmpeg(*voice, "-ar", str(RATE), "-ac", "1", "-f", "s16le", "-")
        path = folder / f"{file:04}.{name}"
        ffmpeg("-f", "s16le", "-ar", str(RATE), "-ac", "1", "-i", "-", *coded, str(path), sound=sound)
        lengths[path.name] = len(sound) // 2
    (data.home / "lengths.json").write_text(json.dumps(lengths))


def ffmpeg(*arguments: str, sound: bytes = b"") -> bytes:
    return subprocess.run(["ffmpeg", "-v", "error", "-y", *arguments], input=sound, check=True, stdout=subprocess.PIPE).stdout


def paths(data) -> list[str]:
    return sorted(map(str, pathlib.Path(data.format(FORMAT)).glob(f"*.{ending(data)}")))


def wanted(settings) -> int:
    """Samples of a segment, or 0 for all."""
    return 0 if settings.sound == "whole" else round(float(settings.sound) * RATE)


class Segments:
    """Segments of files in a random order, as a dataset of PyTorch: `read(path, first, count)` returns a tensor of some of a file's
    samples, or of all if `count` is 0. How long the files are is known, as a manifest has it."""

    def __init__(self, data, settings, read) -> None:
        lengths = json.loads((data.home / "lengths.json").read_text())
        self.files = [(path, lengths[pathlib.Path(path).name]) for path in paths(data)]
        self.count, self.read = wanted(settings), read

    def __len__(self) -> int:
        return 1 << 30

    def __getitem__(self, number: int):
        import torch

        torch.set_num_threads(1)
        draw = random.Random(SEED + number)
        path, samples = draw.choice(self.files)
        return self.read(path, draw.randint(0, samples - self.count) if self.count else 0, self.count)


def collate(sounds: list):
    """Returns segments of one length as one tensor; others padded, with their lengths."""
    import torch

    lengths = [len(sound) for sound in sounds]
    if min(lengths) == max(lengths):
        return torch.stack(sounds)
    return torch.nn.utils.rnn.pad_sequence(sounds, batch_first=True), torch.tensor(lengths)


def loaded(data, settings, read):
    """Yields the batches of PyTorch's `DataLoader`, with a process for each core."""
    import torch

    order = iter(range(1 << 30))
    options = {"num_workers": settings.cores, "collate_fn": collate}
    yield from torch.utils.data.DataLoader(Segments(data, settings, read), settings.batch, sampler=order, **options)
