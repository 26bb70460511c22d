"""Loaders of videos, as `benches/peers/run --videos` compares them: peers as those of pictures, whose batches are arrays of clips, or
tensors. All read the same files and crop and resize all frames of a clip alike. Clips begin at a random frame of a random file; in a
window, several of one file are near each other; and of long files, each clip is the first frame of the next file."""

import os
import pathlib
import random
import subprocess

FILES, FRAMES, RATE, WIDTH, HEIGHT = 16, 300, 30, 640, 480
#: Clips of a file in a window, and those of all its files.
CLIPS_OF_FILE, WINDOW = 16, 64
#: Bytes of a long file, which repeats a short one; and how many names it has: so many that no loader keeps what it knows of each.
LONG_BYTES, LONG_FILES = 200 << 20, 128
#: Names of a long file that is read over HTTP.
SERVED_FILES = 4
FORMAT = "clips"
SEED = 17
OURS = ["numpy==2.4.6", "maturin==1.16.0"]
#: How `ffmpeg` codes them: as x264 and x265 do by themselves, with B-frames and a key frame in 250; with one in 30 and no B-frames, as
#: phones write them; VP9; and AV1 with a key frame in 2, as LeRobot has it.
ENCODERS = {
    "h264": ["-c:v", "libx264", "-preset", "fast"],
    "h264-phone": ["-c:v", "libx264", "-preset", "fast", "-g", "30", "-bf", "0"],
    "hevc": ["-c:v", "libx265", "-preset", "fast", "-x265-params", "log-level=error", "-tag:v", "hvc1"],
    "vp9": ["-c:v", "libvpx-vp9", "-deadline", "realtime", "-cpu-used", "6", "-b:v", "2M"],
    "av1": ["-c:v", "libsvtav1", "-preset", "12", "-crf", "30", "-g", "2"],
}


def prepare(data) -> None:
    """Writes videos of moving shapes and some noise, each different."""
    coded = ENCODERS[data.home.name.removeprefix("videos-")]
    for file in range(FILES):
        source = f"testsrc2=size={WIDTH}x{HEIGHT}:rate={RATE},hue=h={360 * file // FILES},noise=alls=8:allf=t:all_seed={file}"
        wanted = ["-f", "lavfi", "-i", source, "-frames:v", str(FRAMES), "-pix_fmt", "yuv420p", *coded]
        path = pathlib.Path(data.format(FORMAT)) / f"{file:02}.mp4"
        ffmpeg(*wanted, path)
    rows = [f"{pathlib.Path(path).name},{clip}" for path in paths(data) for clip in range(CLIPS_OF_FILE)]
    (data.home / "windows.csv").write_text("\n".join(["file,offset", *rows, ""]))
    times = -(-LONG_BYTES // path.stat().st_size)
    long = data.home / "long.mp4"
    ffmpeg("-stream_loop", str(times), "-i", path, "-c", "copy", long)
    for folder, count in (("long", LONG_FILES), ("served", SERVED_FILES)):
        data.format(folder).mkdir(exist_ok=True)
        for file in range(count):
            name = data.format(folder) / f"{file:03}.mp4"
            name.unlink(missing_ok=True)
            os.link(long, name)


def ffmpeg(*arguments) -> None:
    subprocess.run(["ffmpeg", "-v", "error", "-nostdin", "-y", *map(str, arguments)], check=True)


def indexes(data) -> list[list]:
    """Returns the arguments of each `spdl-ctl index`."""
    files = data.format(FORMAT)
    windows = [files, "--table", data.home / "windows.csv", "--out", data.format("windows")]
    return [[files], windows, [data.format("long")], [data.format("served")]]


def paths(data, folder: str = FORMAT) -> list[str]:
    return sorted(map(str, pathlib.Path(data.format(folder)).glob("*.mp4")))


class Clips:
    """Clips of files, as a dataset of PyTorch: `read(path, first, frames)` returns the frames of one."""

    def __init__(self, data, settings, read) -> None:
        self.settings, self.read = settings, read
        self.paths = paths(data, "long" if settings.clips == "first" else FORMAT)

    def __len__(self) -> int:
        return 1 << 30

    def __getitem__(self, number: int):
        import torch
        from torchvision.transforms import v2

        torch.set_num_threads(1)
        path, first = self.place(number)
        clip = self.read(path, first, self.settings.frames)
        size = [self.settings.size] * 2
        # As `RandomResizedCrop` draws them, of all frames alike.
        torch.manual_seed(number)
        crop = v2.RandomResizedCrop(size, antialias=True)
        place = crop.make_params([clip])
        return v2.functional.resized_crop(clip, **place, size=size, antialias=True)


    def place(self, number: int) -> tuple[str, int]:
        """Returns the file of a clip, and its first frame."""
        if self.settings.clips == "first":
            return self.paths[number % len(self.paths)], 0
        of_file = number // CLIPS_OF_FILE if self.settings.clips == "window" else number
        path = random.Random(SEED + of_file).choice(self.paths)
        return path, random.Random(~number).randint(0, FRAMES - self.settings.frames)


def loaded(data, settings, read):
    """Yields the batches of PyTorch's `DataLoader`, with a process for each core."""
    import torch

    clips = Clips(data, settings, read)
    order = iter(range(1 << 30))
    loader = torch.utils.data.DataLoader(clips, settings.batch, sampler=order, num_workers=settings.cores)
    yield from loader
