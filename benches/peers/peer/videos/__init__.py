"""Loaders of videos, as `benches/peers/run --videos` compares them: peers as those of pictures, whose batches are arrays of clips, or
tensors. All read the same files, each clip at a random frame of a random file, and crop and resize all its frames alike."""

import pathlib
import random
import subprocess

FILES, FRAMES, RATE, WIDTH, HEIGHT = 16, 300, 30, 640, 480
FORMAT = "files"
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
        subprocess.run(["ffmpeg", "-v", "error", "-nostdin", "-y", *wanted, str(path)], check=True)


def paths(data) -> list[str]:
    return sorted(map(str, pathlib.Path(data.format(FORMAT)).glob("*.mp4")))


class Clips:
    """Clips at random frames of random files, as a dataset of PyTorch: `read(path, first, frames)` returns the frames of one."""

    def __init__(self, data, settings, read) -> None:
        self.paths, self.settings, self.read = paths(data), settings, read

    def __len__(self) -> int:
        return 1 << 30

    def __getitem__(self, number: int):
        import torch
        from torchvision.transforms import v2

        torch.set_num_threads(1)
        draw = random.Random(SEED + number)
        path, frames = draw.choice(self.paths), self.settings.frames
        clip = self.read(path, draw.randint(0, FRAMES - frames), frames)
        size = [self.settings.size] * 2
        # As `RandomResizedCrop` draws them, of all frames alike.
        torch.manual_seed(number)
        crop = v2.RandomResizedCrop(size, antialias=True)
        place = crop.make_params([clip])
        return v2.functional.resized_crop(clip, **place, size=size, antialias=True)


def loaded(data, settings, read):
    """Yields the batches of PyTorch's `DataLoader`, with a process for each core."""
    import torch

    clips = Clips(data, settings, read)
    order = iter(range(1 << 30))
    loader = torch.utils.data.DataLoader(clips, settings.batch, sampler=order, num_workers=settings.cores)
    yield from loader
