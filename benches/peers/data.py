"""The input of the peers: the pictures, a folder for their own formats, and their settings."""

import dataclasses
import functools
import json
import os
import pathlib
import time


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings that are the same for every peer."""

    cores: int  # threads or processes that may work
    batch: int = 64  # pictures
    size: int = 224  # pixels
    whole: bool = False  # pictures are resized, in place of a random resized crop and a random flip
    slow_ms: int = 0  # delay of one object in a hundred
    address: str = ""  # of the peer's own servers
    columns: int = 0  # of numbers, in place of pictures with labels
    seq_len: int = 0  # tokens of a sequence, in place of pictures with labels
    frames: int = 0  # of a clip, in place of pictures with labels
    clips: str = "random"  # which: of random videos, a `window` of several of each, or the `first` of one long video after the other
    robot: str = ""  # where a robot's dataset is, `local` or `s3`, in place of pictures with labels
    sound: str = ""  # seconds of a segment, or `whole`, in place of pictures with labels
    arrays: str = ""  # workload whose arrays are read, in place of pictures with labels

    @staticmethod
    def parse(text: str) -> "Settings":
        return Settings(**json.loads(text))

    def text(self) -> str:
        return json.dumps(dataclasses.asdict(self))


@dataclasses.dataclass(frozen=True)
class Data:
    """Pictures in class folders, and beside them a folder for each format that is made of them."""

    home: pathlib.Path

    @property
    def pictures(self) -> pathlib.Path:
        return self.home / "pictures"

    def format(self, name: str) -> pathlib.Path:
        return self.home / name

    @functools.cached_property
    def samples(self) -> list[tuple[str, int]]:
        """The path and the class number of every picture."""
        classes = sorted(entry.name for entry in os.scandir(self.pictures))
        return [
            (str(self.pictures / name / file), number)
            for number, name in enumerate(classes)
            for file in sorted(os.listdir(self.pictures / name))
        ]


def read(index: int, path: str, settings: Settings) -> bytes:
    """Returns the bytes of a file, which is the object of this index; waits first if it is one of the slow objects."""
    delay(index, settings)
    with open(path, "rb") as file:
        return file.read()


def delay(index: int, settings: Settings) -> None:
    """Waits if the object of this index is one of the slow ones: one in a hundred, always the same ones."""
    if settings.slow_ms and index % 100 == 37:
        time.sleep(settings.slow_ms / 1000)
