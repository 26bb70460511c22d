"""Videos: the frames of clips beside those of `ffmpeg`, of files of several codecs and containers; and the page of the guide."""

from __future__ import annotations

import os
import pathlib
import shutil
import signal
import subprocess
import sys
from typing import Any

import numpy
import pytest
import spdl_cluster
import stores
from conftest import LIMIT_S, Cluster, ctl, ctl_json, once, samples
from numpy.typing import NDArray
from test_recipes import Recipe

FROM = "mp4|mov|mkv|webm"
KEY = {"name": "key", "from": "__key__", "decode": "text"}
RATE = 25
#: Without upsampling of colours, as a column has it. Of other arithmetic, so that both may round a value differently.
SCALE = "scale=flags=neighbor+accurate_rnd+full_chroma_int+bitexact"
NEAR = 1

X264 = ["-c:v", "libx264", "-preset", "veryfast", "-g", "12", "-bf", "3"]
X265 = ["-c:v", "libx265", "-preset", "ultrafast", "-x265-params", "log-level=none:keyint=10:bframes=3"]
VP9 = ["-c:v", "libvpx-vp9", "-deadline", "realtime", "-cpu-used", "8", "-g", "9"]
YUV = ["-pix_fmt", "yuv420p"]
#: Files: how `ffmpeg` writes them.
KINDS = {
    "plain.mp4": [*X264, *YUV],
    "open.mkv": [*X264, *YUV, "-x264-params", "open-gop=1:b-pyramid=normal"],
    "fragments.mp4": [*X264, *YUV, "-movflags", "frag_keyframe+empty_moov"],
    "hevc.mov": [*X265, *YUV, "-tag:v", "hvc1"],
    "vp9.webm": [*VP9, *YUV],
    "vp8.webm": ["-c:v", "libvpx", "-deadline", "realtime", "-cpu-used", "8", "-g", "9", *YUV],
    "mpeg4.mp4": ["-c:v", "mpeg4", "-bf", "2", "-g", "10", *YUV],
    "ten.mp4": [*X264, "-pix_fmt", "yuv420p10le"],
    "wide.mp4": [*X264, "-pix_fmt", "yuv422p"],
    "full.mp4": [*X264, "-pix_fmt", "yuv444p"],
    "grey.mkv": [*X264, "-pix_fmt", "gray"],
    "bt709.mp4": [*X264, *YUV, "-vf", "scale=out_color_matrix=bt709", "-colorspace", "bt709"],
    "full-range.mp4": [*X264, "-vf", "scale=out_range=full", "-pix_fmt", "yuvj420p"],
    "rotated-90.mp4": [*X264, *YUV],
    "rotated-180.mp4": [*X264, *YUV],
    "rotated-270.mp4": [*X264, *YUV],
    # It has no key frame but the first one: points from which on pictures become whole are marked like some.
    "refreshed.mp4": [*X264[:-4], "-g", "10", "-x264-params", "intra-refresh=1", *YUV],
    "cut.mp4": [*X264, *YUV, "-ss", "0.3"],
    "av1.mp4": ["-c:v", "libsvtav1", "-preset", "12", "-g", "8", *YUV],
    "av1-ten.mkv": ["-c:v", "libsvtav1", "-preset", "12", "-g", "8", "-pix_fmt", "yuv420p10le"],
    "hevc-ten.mkv": [*X265, "-pix_fmt", "yuv420p10le"],
    "odd.webm": [*VP9, *YUV],
    "odd.mp4": ["-c:v", "mpeg4", "-bf", "2", "-g", "10", *YUV],
    # Their first frames are shown after 1.5 seconds.
    "late.mp4": [*X264, *YUV, "-output_ts_offset", "1.5"],
    "late.mkv": [*X264, *YUV, "-output_ts_offset", "1.5"],
    # Their edit lists begin within a group of pictures.
    "trimmed.mp4": [*X264, *YUV],
    "trimmed-open.mp4": [*X264, *YUV, "-x264-params", "open-gop=1:b-pyramid=normal"],
}


@pytest.fixture(scope="session")
def ffmpeg() -> str:
    """Returns the program, where the library that decodes is, too."""
    path = shutil.which("ffmpeg")
    if path is None:
        pytest.skip("there is no `ffmpeg`: install the package of that name")
    linked = subprocess.run(["ldd", path], capture_output=True, text=True, check=True).stdout
    if "libavcodec.so" not in linked:
        pytest.skip("this `ffmpeg` has its libraries in itself: install the system's package")
    return path


def run(*command: object) -> bytes:
    done = subprocess.run([str(part) for part in command], capture_output=True, timeout=LIMIT_S, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, f"{command}: {done.stderr.decode()}"
    return done.stdout


def write(ffmpeg: str, path: pathlib.Path, arguments: list[str], frames: int = 30, size: str = "96x64") -> None:
    """Writes a video of so many frames, each of which differs from all others."""
    source = f"testsrc2=size={size}:rate={RATE},noise=alls=12:allf=t"
    run(ffmpeg, "-v", "error", "-f", "lavfi", "-i", source, *arguments, "-frames:v", frames, path)


def original(ffmpeg: str, path: pathlib.Path, size: tuple[int, int] = (64, 96), colour: str = "", before: str = "") -> NDArray[Any]:
    """Returns the frames that `ffmpeg` shows of a file, as they are behind a filter if there is one."""
    scale = f"{before}{SCALE}{colour}"
    raw = run(ffmpeg, "-v", "error", "-i", path, "-vsync", "passthrough", "-vf", scale, "-f", "rawvideo", "-pix_fmt", "rgb24", "-")
    return numpy.frombuffer(raw, numpy.uint8).reshape(-1, *size, 3)


def video(size: tuple[int, int] = (64, 96), **clip: Any) -> dict[str, Any]:
    return {"name": "video", "from": FROM, "decode": "video", "clip": clip, "ops": [{"center_crop": list(size)}]}


def job(dataset: pathlib.Path, *columns: dict[str, Any], **keys: Any) -> dict[str, Any]:
    return {"name": "videos", "dataset": dataset, "seed": 5, "global_batch": 2, **keys, "column": [*columns, KEY]}


def difference(ours: NDArray[Any], theirs: NDArray[Any]) -> int:
    return int(abs(ours.astype(int) - theirs.astype(int)).max())


def frames_of(clip: NDArray[Any], theirs: NDArray[Any]) -> list[int]:
    """Returns the numbers of a clip's frames among all frames of the video."""
    numbers = []
    for frame in clip:
        far = [difference(frame, other) for other in theirs]
        assert min(far) <= NEAR, far
        numbers.append(far.index(min(far)))
    return numbers


@pytest.mark.parametrize("name", KINDS)
def test_every_frame_is_what_ffmpeg_shows(ffmpeg: str, tmp_path: pathlib.Path, name: str) -> None:
    path = tmp_path / name
    size = (63, 95) if name.startswith("odd") else (64, 96)
    write(ffmpeg, path, KINDS[name], size=f"{size[1]}x{size[0]}")
    if name.startswith("trimmed"):
        run(ffmpeg, "-v", "error", "-ss", "0.3", "-i", path, "-c", "copy", tmp_path / "shorter.mp4")
        (tmp_path / "shorter.mp4").rename(path)
    if name.startswith("rotated"):
        # This version sets it only of packets that it copies.
        degrees = name.removeprefix("rotated-").removesuffix(".mp4")
        run(ffmpeg, "-v", "error", "-i", path, "-c", "copy", "-metadata:s:v", f"rotate={degrees}", tmp_path / "turned.mp4")
        (tmp_path / "turned.mp4").rename(path)
        size = (64, 96) if degrees == "180" else (96, 64)
    if name.startswith("odd"):
        # It stretches the planes of colours of odd sizes.
        theirs = original(ffmpeg, path, before="pad=96:64,")[:, :63, :95]
    else:
        theirs = original(ffmpeg, path, size)
    ctl("index", tmp_path)
    made = job(tmp_path, video(size, frames=len(theirs), pick="start", short="bad"), bad_samples="fail", epoch_end="partial")
    with spdl_cluster.local(made, tensors="numpy") as loader:
        [one] = samples(loader)
    assert len(theirs) >= 20
    assert one["video"].shape == theirs.shape
    far = [difference(ours, other) for ours, other in zip(one["video"], theirs)]
    assert max(far) <= NEAR, far


@pytest.mark.parametrize(("size", "colour"), [((1280, 720), "bt709"), ((640, 480), "bt601")])
def test_where_nothing_says_which_colours_they_are_the_size_does(ffmpeg: str, tmp_path: pathlib.Path, size: tuple[int, int], colour: str) -> None:
    width, height = size
    write(ffmpeg, tmp_path / "plain.mp4", [*X264, *YUV], 5, f"{width}x{height}")
    theirs = original(ffmpeg, tmp_path / "plain.mp4", (height, width), f":in_color_matrix={colour}")
    ctl("index", tmp_path)
    made = job(tmp_path, video((height, width), frames=2, stride=3, pick="start"), bad_samples="fail", epoch_end="partial")
    with spdl_cluster.local(made, tensors="numpy") as loader:
        [one] = samples(loader)
    assert difference(one["video"], theirs[[0, 3]]) <= NEAR


def test_frames_of_a_rate_are_those_that_are_shown_then(ffmpeg: str, tmp_path: pathlib.Path) -> None:
    # Frames of 0.04 seconds, of which some are left out: so others are shown for longer.
    kept = [0, 1, 2, 5, 6, 12, 13, 14, 15, 28, 29]
    chosen = "+".join(f"eq(n,{number})" for number in kept)
    files, tar = tmp_path / "files/one", tmp_path / "tar"
    files.mkdir(parents=True)
    for name in ("varied.mp4", "varied.mkv"):
        write(ffmpeg, files / name, [*X264, *YUV, "-vf", f"select='{chosen}'", "-vsync", "vfr"], len(kept))
    theirs = {name: original(ffmpeg, files / name) for name in ("varied.mp4", "varied.mkv")}
    ctl("pack", files.parent, tar, "--fields", "mp4,mkv")
    columns = []
    for suffix in ("mp4", "mkv"):
        columns.append({**video(frames=15, rate=12.5, pick="start"), "name": suffix, "from": suffix})
        columns.append({**video(frames=5, pick="uniform"), "name": f"{suffix}-uniform", "from": suffix})
        for follows, kind in [(suffix, "video_times"), (suffix, "video_mask"), (f"{suffix}-uniform", "video_times")]:
            columns.append({"name": f"{kind}-{follows}", "from": suffix, "decode": kind, "follows": follows})
        columns.append({**video(frames=8, stride=2, pick="random"), "name": f"{suffix}-long", "from": suffix})
        columns.append({"name": f"{suffix}-mask", "from": suffix, "decode": "video_mask", "dtype": "u8", "follows": f"{suffix}-long"})
    with spdl_cluster.local(job(tar, *columns, bad_samples="fail", epoch_end="partial"), tensors="numpy") as loader:
        [one] = samples(loader)
    shown = [max(number for number, at in enumerate(kept) if at <= 2 * nth) for nth in range(15)]
    for suffix in ("mp4", "mkv"):
        assert frames_of(one[suffix], theirs[f"varied.{suffix}"]) == shown
        assert frames_of(one[f"{suffix}-uniform"], theirs[f"varied.{suffix}"]) == [1, 3, 5, 7, 9]
        assert numpy.allclose(one[f"video_times-{suffix}"], [kept[number] / RATE for number in shown], atol=0.001)
        assert numpy.allclose(one[f"video_times-{suffix}-uniform"], [kept[number] / RATE for number in (1, 3, 5, 7, 9)], atol=0.001)
        assert one[f"video_mask-{suffix}"].dtype == bool and one[f"video_mask-{suffix}"].all()
        assert frames_of(one[f"{suffix}-long"], theirs[f"varied.{suffix}"]) == [0, 2, 4, 6, 8, 10, 10, 10]
        assert one[f"{suffix}-mask"].tolist() == [1, 1, 1, 1, 1, 1, 0, 0]


def test_all_frames_those_at_times_and_those_from_key_frames_on(ffmpeg: str, tmp_path: pathlib.Path) -> None:
    files = tmp_path / "files"
    files.mkdir()
    write(ffmpeg, files / "one.mp4", [*X264, *YUV])
    theirs = original(ffmpeg, files / "one.mp4")
    (tmp_path / "times.csv").write_text("file,times\none.mp4,1.13 0.2 0.68\n")
    ctl("index", files, "--table", tmp_path / "times.csv")
    wanted: dict[str, dict[str, Any]] = {
        "all": {"frames": 40, "pick": "all"},
        "every": {"frames": 40, "pick": "all", "rate": 12.5},
        "at": {"frames": 4, "at": "times"},
        "uniform": {"frames": 5, "pick": "uniform", "snap": "key_frame"},
        "random": {"frames": 3, "stride": 2, "snap": "key_frame"},
    }
    columns = [{**video(**clip), "name": name} for name, clip in wanted.items()]
    columns.append({"name": "mask", "from": FROM, "decode": "video_mask", "follows": "at"})
    for follows in ("all", "every"):
        columns.append({"name": f"{follows}-times", "from": FROM, "decode": "video_times", "follows": follows})
        columns.append({"name": f"{follows}-mask", "from": FROM, "decode": "video_mask", "follows": follows})
    packets = run("ffprobe", "-v", "error", "-select_streams", "v", "-show_entries", "packet=pts,flags", "-of", "csv=p=0", files / "one.mp4")
    shown = sorted((int(pts), flags) for pts, flags in (line.split(",")[:2] for line in packets.decode().split()))
    keys = [number for number, (_, flags) in enumerate(shown) if flags.startswith("K")]
    assert len(shown) == len(theirs) == 30 and len(keys) >= 3, shown
    made = job(files, *columns, bad_samples="fail", epochs=3, epoch_end="partial")
    with spdl_cluster.local(made, tensors="numpy") as loader:
        epochs = [one for _ in range(3) for one in samples(loader)]
    for one in epochs:
        assert frames_of(one["all"], theirs) == list(range(30))
        assert frames_of(one["every"], theirs) == list(range(0, 30, 2))
        for follows, step in (("all", 1), ("every", 2)):
            assert numpy.allclose(one[f"{follows}-times"], [number / RATE for number in range(0, 30, step)])
            assert one[f"{follows}-mask"].tolist() == [True] * (30 // step)
        assert frames_of(one["at"], theirs) == [28, 5, 17, 17] and one["mask"].tolist() == [True, True, True, False]
        assert frames_of(one["uniform"], theirs) == [max(key for key in keys if key <= middle) for middle in (3, 9, 15, 21, 27)]
        first = frames_of(one["random"], theirs)
        assert first[0] in keys and first == [first[0], first[0] + 2, first[0] + 4]
    made = job(files, {**video(frames=29, pick="all"), "name": "short"}, bad_samples="fail", epoch_end="partial")
    with pytest.raises(spdl_cluster.SpdlError, match="more frames than the 29"), spdl_cluster.local(made, tensors="numpy") as loader:
        samples(loader)


@pytest.fixture(scope="module")
def clips(ffmpeg: str, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Writes a dozen videos of different lengths as a folder and as WebDataset, and returns the folder of both."""
    return once(tmp_path_factory, "clips-of-videos", lambda folder: write_clips(ffmpeg, folder))


def write_clips(ffmpeg: str, folder: pathlib.Path) -> None:
    kinds = ["plain.mp4", "open.mkv", "vp9.webm"]
    (folder / "files/one").mkdir(parents=True)
    for number in range(12):
        name = kinds[number % 3]
        write(ffmpeg, folder / "files/one" / f"{number:02}{pathlib.Path(name).suffix}", KINDS[name], 12 + 5 * number)
    ctl("index", folder / "files")
    ctl("pack", folder / "files", folder / "tar", "--fields", "mp4,mkv,webm")


def test_clips_depend_on_seed_epoch_and_sample_and_not_on_the_number_of_ranks(ffmpeg: str, clips: pathlib.Path, cluster: Cluster) -> None:
    crop = {"ops": [{"random_resized_crop": 32}, "random_flip"], "dtype": "f32", "layout": "nchw", "name": "crop"}
    clip: dict[str, Any] = {"frames": 5, "stride": 3}
    made = job(clips / "tar", video(**clip), {**video(**clip), **crop}, name="random-clips", epochs=2, bad_samples="fail")
    name = cluster.submit(made)
    with spdl_cluster.local(made, tensors="numpy") as loader:
        alone = samples(loader)
        state = loader.state_dict()
        alone += samples(loader)
    assert len(alone) == 24
    with spdl_cluster.local(made, tensors="numpy") as loader:
        loader.load_state_dict(state)
        resumed = samples(loader)
    starts: dict[str, list[int]] = {}
    for one in alone:
        [path] = (clips / "files/one").glob(f"{one['key'][-2:]}.*")
        theirs = original(ffmpeg, path)
        found = frames_of(one["video"], theirs)
        assert found == [min(found[0] + 3 * nth, len(theirs) - 1) for nth in range(5)], one["key"]
        starts.setdefault(one["key"], []).append(found[0])
        assert one["crop"].shape == (5, 3, 32, 32) and one["crop"].dtype == numpy.float32
    long = [of_key for key, of_key in starts.items() if int(key[-2:]) > 4]
    assert sum(first != second for first, second in long) >= len(long) - 2, starts
    for again in (resumed, alone[12:]):
        assert [one["key"] for one in again] == [one["key"] for one in alone[12:]]
        assert all(numpy.array_equal(a[name], b[name]) for a, b in zip(again, alone[12:]) for name in ("video", "crop"))
    with cluster.connect(0, 2, job=name, tensors="numpy") as first, cluster.connect(1, 2, job=name, tensors="numpy") as second:
        for number, batches in enumerate(zip(first, second)):
            for column in ("video", "crop"):
                rows = [row.tobytes() for batch in batches for row in batch[column]]
                assert sorted(rows) == sorted(one[column].tobytes() for one in alone[2 * number : 2 * number + 2])


def test_all_frames_of_a_clip_are_changed_alike(ffmpeg: str, tmp_path: pathlib.Path) -> None:
    # All frames of the video are the same.
    run(ffmpeg, "-v", "error", "-f", "lavfi", "-i", f"testsrc2=size=96x64:rate={RATE}", "-vf", "select='eq(n,3)',loop=9:1", *X264, "-crf", "0", "-frames:v", "9", tmp_path / "one.mp4")
    ctl("index", tmp_path)
    ops = [{"random_resized_crop": 48}, "random_flip", {"color_jitter": {"brightness": 0.5, "hue": 0.3}}, {"random_erasing": {"p": 1.0}}]
    made = job(tmp_path, {**video(frames=6, pick="uniform"), "ops": ops}, bad_samples="fail", epochs=3, epoch_end="partial")
    with spdl_cluster.local(made, tensors="numpy") as loader:
        epochs = [samples(loader)[0]["video"] for _ in range(3)]
    for clip in epochs:
        assert clip.shape == (6, 48, 48, 3) and all(numpy.array_equal(clip[0], frame) for frame in clip)
    assert not numpy.array_equal(epochs[0], epochs[1])


def broken(ffmpeg: str, folder: pathlib.Path) -> dict[str, str]:
    """Writes five good videos and some that are not; returns what is said of these."""
    for number in range(5):
        write(ffmpeg, folder / f"good-{number}.mp4", [*X264, *YUV, "-movflags", "+faststart"], 20 + number)
    whole = (folder / "good-1.mp4").read_bytes()
    (folder / "half.mp4").write_bytes(whole[: len(whole) // 2])
    (folder / "text.mp4").write_bytes(b"no video at all")
    (folder / "empty.mp4").write_bytes(b"")
    (folder / "noise.mp4").write_bytes(whole[:2000] + numpy.random.default_rng(1).bytes(len(whole) - 2000))
    run(ffmpeg, "-v", "error", "-f", "lavfi", "-i", "sine", "-t", "1", folder / "sound.mp4")
    write(ffmpeg, folder / "short.mp4", [*X264, *YUV], 7)
    return {
        "half": "ends at byte",
        "text": "it begins with",
        "empty": "is empty",
        "noise": "decode",
        "sound": "has no",
        "short": "has 7 frames, which are fewer than those of the clip",
    }


def test_what_is_no_video_is_a_bad_sample_that_is_named(ffmpeg: str, tmp_path: pathlib.Path) -> None:
    said = broken(ffmpeg, tmp_path)
    ctl("index", tmp_path)
    column = video(frames=8, stride=2, pick="start", short="bad")
    made = job(tmp_path, column, bad_samples="mask", max_bad_fraction=0.9, shuffle=False, epoch_end="partial")
    with spdl_cluster.local(made, tensors="numpy") as loader, pytest.warns(UserWarning, match="6 of the samples"):
        good = [bytes(key).decode() for batch in loader for key, valid in zip(batch["key"], batch.valid) if valid]
    assert sorted(good) == [f"good-{number}" for number in range(5)]
    for key, problem in said.items():
        alone = tmp_path / "alone" / key
        alone.mkdir(parents=True)
        [path] = tmp_path.glob(f"{key}.*")
        path.rename(alone / path.name)
        ctl("index", alone)
        failing = job(alone, column, bad_samples="fail", global_batch=1)
        with pytest.raises(spdl_cluster.SpdlError) as error, spdl_cluster.local(failing, tensors="numpy") as loader:
            samples(loader)
        assert problem in str(error.value) and f"`{key}`" in str(error.value), error.value


def children() -> list[int]:
    """Returns the processes that decode for this one."""
    found = []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            status, command = (folder / "stat").read_text(), (folder / "cmdline").read_bytes()
        except OSError:
            continue
        if int(status.rpartition(")")[2].split()[1]) == os.getpid() and b"frame_child" in command:
            found.append(int(folder.name))
    return found


def test_a_process_that_is_killed_costs_no_more_than_its_sample_and_none_is_left(clips: pathlib.Path) -> None:
    made = job(clips / "files", video(frames=4), epochs=4, bad_samples="mask", max_bad_fraction=0.9)
    valid = 0
    with spdl_cluster.local(made, tensors="numpy") as loader:
        for epoch in range(4):
            for batch in loader:
                valid += int(batch.valid.sum())
                if epoch == 1:
                    for process in children():
                        os.kill(process, signal.SIGKILL)
        assert children()
    assert 48 - 6 - 16 <= valid <= 48
    assert not children()


def test_without_a_library_the_error_says_how_to_get_one(clips: pathlib.Path, tmp_path: pathlib.Path) -> None:
    program = f"""
import spdl_cluster
column = {{"name": "video", "from": {FROM!r}, "decode": "video", "clip": {{"frames": 2}}, "ops": [{{"center_crop": 32}}]}}
job = {{"name": "a", "dataset": {str(clips / "files")!r}, "global_batch": 2, "column": [column]}}
with spdl_cluster.local(job) as loader:
    next(iter(loader))
"""
    environment = {**os.environ, "SPDL_LIBAV": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=LIMIT_S, env=environment)
    assert done.returncode != 0
    assert "SPDL_LIBAV=FOLDER" in done.stderr and "pip install av" in done.stderr, done.stderr


def test_of_a_long_video_a_clip_reads_its_own_packets(ffmpeg: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bucket = tmp_path / "bucket"
    bucket.mkdir()
    noisy = ["-vf", "noise=alls=90:allf=t", "-c:v", "libx264", "-preset", "ultrafast", "-crf", "12", "-g", "12", *YUV]
    # The first one has its tables in one place, and the second one in the index. Fragments are read whole.
    names = ["tables.mp4", "long.mkv", "fragments.mp4"]
    for name in names:
        fragments = ["-movflags", "frag_keyframe+empty_moov"] if name == "fragments.mp4" else []
        write(ffmpeg, bucket / name, [*noisy, *fragments], frames=240, size="320x240")
    short = "short.mp4"
    write(ffmpeg, bucket / short, [*X264, *YUV], size="320x240")
    sizes = {name: (bucket / name).stat().st_size for name in [*names, short]}
    assert all(sizes[name] > 5 << 20 for name in names) and sizes[short] < 1 << 20, sizes
    ctl("index", bucket)
    column = video((240, 320), frames=8, stride=2)
    with spdl_cluster.local(job(bucket, column, epochs=3), tensors="numpy") as loader:
        # Each loop is an epoch.
        from_folder = [one for _ in range(3) for one in samples(loader)]
    sent: list[tuple[str, int]] = []
    with stores.bucket("videos", bucket, sent) as variables:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        made = {**job(bucket, column, epochs=3), "dataset": "s3://videos"}
        with spdl_cluster.local(made, tensors="numpy") as loader:
            from_bucket = [one for _ in range(3) for one in samples(loader)]
    theirs = {name: original(ffmpeg, bucket / name, (240, 320)) for name in sizes}
    starts: dict[str, set[int]] = {name: set() for name in sizes}
    for one, other in zip(from_folder, from_bucket, strict=True):
        assert one["key"] == other["key"] and numpy.array_equal(one["video"], other["video"])
        [name] = [name for name in sizes if pathlib.Path(name).stem == one["key"]]
        # So much noise leaves the range of colours, where `ffmpeg` wraps around for some pixels.
        far = [[abs(frame[::4, ::4].astype(int) - other).mean() for other in theirs[name][:, ::4, ::4]] for frame in one["video"]]
        numbers = [int(numpy.argmin(each)) for each in far]
        assert all(min(each) < 1 for each in far), [min(each) for each in far]
        last = len(theirs[name]) - 1
        assert numbers == [min(numbers[0] + nth, last) for nth in range(0, 16, 2)]
        starts[name].add(numbers[0])
    assert all(len(starts[name]) == 3 for name in names), starts
    # Three clips of 15 frames, from the key frame before each on: at most 26 of 240 frames each, and the tables once.
    for name, table_bytes, table_reads in ((names[0], 600 << 10, 2 * 3), (names[1], 0, 0)):
        read = [bytes for other, bytes in sent if other == name]
        assert sum(read) < 3 * sizes[name] * 30 // 240 + table_bytes, (name, read, sizes[name])
        # Two batches at once may both read the tables.
        assert len(read) <= 2 * 3 + table_reads, f"a clip of {name} takes at most two requests once the tables are known: {read}"


def test_the_page_on_video_runs_as_it_is_written(ffmpeg: str, tmp_path: pathlib.Path, temporary: pathlib.Path) -> None:
    (tmp_path / "clips").mkdir()
    for number in range(8):
        folder = tmp_path / "clips" / ["running", "waving"][number % 2]
        folder.mkdir(exist_ok=True)
        sound = ["-f", "lavfi", "-i", "sine=sample_rate=16000", "-c:a", "aac", "-shortest"]
        write(ffmpeg, folder / f"{number}.mp4", [*sound, *KINDS["plain.mp4"]], 70, "320x240")
    page = Recipe("../guide/video.md", tmp_path, temporary, {}, {})
    told = page.run("spdl-ctl index clips")
    assert "8 samples" in told and "H.264 320x240 x70" in told, told
    suggested = tmp_path / "suggested.toml"
    ctl("job", "init", tmp_path / "clips", "--out", suggested)
    assert ctl_json("replay", suggested)["samples"] > 0
    assert 'decode = "video"\nclip = { frames = 16, stride = 4 }' in suggested.read_text()
    looked = subprocess.run([sys.executable, "look.py"], cwd=tmp_path, capture_output=True, text=True, timeout=LIMIT_S, env=os.environ)
    assert looked.returncode == 0, looked.stderr
    assert looked.stdout.count("(4, 16, 3, 224, 224) float16") == 2, looked.stdout
    page.run("spdl-ctl replay clips.toml")
    assert "8 samples in 8 records" in page.run("spdl-ctl pack clips packed --fields mp4")
    assert "8 videos coded anew, with other pixels than their files" in page.run("spdl-ctl pack clips packed-8")
    for number in range(4):
        folder = tmp_path / "frames" / ["running", "waving"][number % 2] / f"v{number}"
        folder.mkdir(parents=True)
        write(ffmpeg, folder / "%06d.jpg", [], 20)
    told = page.run("spdl-ctl index frames --frames")
    assert "4 samples in 4 records" in told, told
    page.run("spdl-ctl replay frames.toml")
    page.run("spdl-ctl replay sound.toml")
    page.end()
    assert ctl_json("replay", tmp_path / "clips.toml", "--all")["samples"] == 80
