"""The command `benches/peers/run --au`: how many cores each loader needs to keep an emulated accelerator busy.

An accelerator that takes a batch computes for a step's time, which here is a sleep, and then asks for the next batch. Its
utilisation (AU) is the time that it computes over all time, as MLPerf Storage defines it. The machine is too small to feed a
whole accelerator, so the step's time is stretched, to the shortest with which the AU reaches the workload's bar: n cores that
feed an accelerator of a step f times as long are n x f cores for one. Where the samples are arrays, a peer writes them, and ours
reads its files."""

import argparse
import dataclasses
import json
import pathlib
import random
import statistics
import subprocess
import sys

import arrays
import install
import loaders
import main
import measure
import table
from data import Data, Settings
from install import Failed

#: How much longer a step is made at least and at most, where its AU is below the bar, and how often its length is changed.
STRETCH, MOST_STRETCH, TRIES = 1.06, 1.25, 6


@dataclasses.dataclass(frozen=True)
class Pictures:
    """Pictures, and what is made of them."""

    count: int
    size: int
    whole: bool
    #: Pictures of the demo that are put together to one, and the JPEG's quality, which give the bytes.
    tiles: int
    quality: int


@dataclasses.dataclass(frozen=True)
class Workload:
    """What an accelerator needs. Bytes, batch, step and bar are those of MLPerf Storage, unless the title says otherwise."""

    title: str
    batch: int
    step_s: float
    least_au: float
    #: The first one writes the data, where these are arrays.
    peers: tuple[str, ...]
    #: None where the samples are arrays.
    pictures: Pictures | None = None
    #: Memory for slots and blocks of our loader.
    memory_bytes: int = 512 << 20

    @property
    def per_s(self) -> float:
        """Samples per second that keep one accelerator busy all the time."""
        return self.batch / self.step_s


OF_PICTURES = ("tfdata", "torch_tv", "dali", "grain_tv", "litdata")
WORKLOADS = {
    "retinanet": Workload(
        "RetinaNet on a B200: JPEGs of 1000x750, resized to 800x800",
        24, 0.04755, 0.85, OF_PICTURES, Pictures(400, 800, True, 2, 91),
    ),
    "resnet50": Workload(
        "ResNet-50 on an H100: JPEGs of 500x375, random resized crops of 224",
        400, 0.224, 0.90, OF_PICTURES, Pictures(2000, 224, False, 1, 0),
    ),
    "flux": Workload(
        "Flux on a B200: Parquet with lists of floats, 2.2 MB a sample",
        48, 1.35, 0.90, ("arrays.torch_parquet",), memory_bytes=1536 << 20,
    ),
    "dlrm": Workload(
        "DLRM on a B200: 40 of 200 columns of Parquet", 16_384, 0.000375, 0.70, ("arrays.torch_parquet",)
    ),
    "cosmoflow": Workload(
        "CosmoFlow on an H100: a TFRecord file of 2.8 MB for each sample", 1, 0.0035, 0.70, ("arrays.tfdata",)
    ),
    "unet3d": Workload(
        "U-Net 3D on a B200: an .npz file for each sample; of a sixteenth of the bytes, for a sixteenth of the step",
        7, 0.162 / 16, 0.90, ("arrays.torch_npz",), memory_bytes=1 << 30,
    ),
}  # fmt: skip
COLUMNS = [
    ("cores / accelerator", "cores", "{:.2f}"),
    ("AU", "au", "{:.3f}"),
    ("step ms", "step_ms", "{:.0f}"),
    ("samples/s without steps", "free_per_s", "{:,.0f}"),
    ("CPU s / 1,000", "cpu_s_per_1000", "{:.2f}"),
    ("peak MB", "peak_mb", "{:,.0f}"),
]


def run() -> None:
    args = arguments()
    cores = measure.begin(args.cores)
    if not args.no_build:
        loaders.build()
    runs, versions = [], {}
    for name in args.workloads:
        workload = WORKLOADS[name]
        settings = settings_of(name, cores)
        contestants = prepare(workload, Data(args.home / "data" / f"au-{name}"), args)
        for number in range(args.repeats):
            for loader in contestants if number % 2 == 0 else contestants[::-1]:
                main.warm_cache(loader)
                about = {"workload": name, "loader": loader.title, "round": number}
                runs.append(about | measured(loader, workload, settings, args))
                measure.progress(f"{name}: {loader.title}: {text(runs[-1])}")
        versions |= {package: version for loader in contestants for package, version in loader.versions.items()}
    print(f"{cores} cores of {main.processor()}; medians of {args.repeats} rounds in turns", end="\n\n")
    for name in args.workloads:
        print(WORKLOADS[name].title, markdown([run for run in runs if run["workload"] == name]), sep="\n\n", end="\n\n")
    print("- versions: " + ", ".join(f"{package} {version}" for package, version in sorted(versions.items())))
    if args.json:
        print(json.dumps({"versions": versions, "runs": runs}))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="benches/peers/run --au", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workloads", default=",".join(WORKLOADS), help="names, with commas between (default: all)")
    parser.add_argument("--peers", help="names, with commas between, or none (default: all of the workload)")
    parser.add_argument("--ours", default="cluster", help=f"of pictures: {', '.join(loaders.OURS)} (default cluster)")
    parser.add_argument("--home", type=pathlib.Path, default=main.HOME, help="environments and data")
    measure.add_options(parser, repeats=1, warm=3, seconds=15, quiet=30)
    args = parser.parse_args()
    args.workloads = args.workloads.split(",")
    for name in args.workloads:
        if name not in WORKLOADS:
            parser.error(f"--workloads: there is no `{name}`, but {', '.join(WORKLOADS)}")
    return args


def settings_of(name: str, cores: int) -> Settings:
    workload = WORKLOADS[name]
    pictures = workload.pictures
    if pictures:
        return Settings(cores=cores, batch=workload.batch, size=pictures.size, whole=pictures.whole)
    return Settings(cores=cores, batch=workload.batch, arrays=name)


def prepare(workload: Workload, data: Data, args: argparse.Namespace) -> list:
    """Returns the loaders that can run, installed and with their data, ours first."""
    data.home.mkdir(parents=True, exist_ok=True)
    if workload.pictures:
        pictures = workload.pictures
        loaders.once(data, "pictures", lambda folder: write_pictures(pictures, folder, args.home / "venvs"))
        everybody = [loaders.Ours(name, args.home / "venvs", data, False) for name in args.ours.split(",")]
        for loader in everybody:
            loader.memory_bytes = workload.memory_bytes
    else:
        everybody = [arrays.OurArrays(workload.peers[0], args.home / "venvs", data, workload.memory_bytes)]
    peers = workload.peers if args.peers is None else [name for name in args.peers.split(",") if name != "none"]
    everybody += [loaders.Peer(name, args.home / "venvs", data) for name in peers]
    ready = []
    for loader in everybody:
        try:
            loader.versions = loader.install()
            loader.prepare()
            ready.append(loader)
        except (Failed, OSError, subprocess.SubprocessError) as error:
            measure.progress(f"{loader.title}: {error}")
    return ready


def write_pictures(pictures: Pictures, folder: pathlib.Path, venvs: pathlib.Path) -> None:
    """Writes pictures of the workload's size: those of the demo, or several of them put together."""
    if pictures.tiles == 1:
        return main.make_pictures(folder, pictures.count)
    small = folder.with_name("small-pictures")
    main.make_pictures(small, pictures.count)
    python = install.environment(venvs, "torch", tuple(install.LAYERS["torch"]))
    loaders.run([python, __file__, "--tile", small, folder, pictures.tiles, pictures.quality, pictures.count])


def tile(small: str, folder: str, tiles: str, quality: str, count: str) -> None:
    """Puts `tiles` x `tiles` pictures together to one, `count` times."""
    from PIL import Image

    width, height, draw = 500, 375, random.Random(17)
    paths = sorted(pathlib.Path(small).rglob("*.jpg"))
    for number in range(int(count)):
        side = int(tiles)
        whole = Image.new("RGB", (side * width, side * height))
        for place in range(side * side):
            part = Image.open(draw.choice(paths))
            part = part.transpose(Image.Transpose.ROTATE_90) if part.width < part.height else part
            whole.paste(part, (place % side * width, place // side * height))
        home = pathlib.Path(folder) / f"class-{number % 10}"
        home.mkdir(parents=True, exist_ok=True)
        whole.save(home / f"{number:06}.jpg", quality=int(quality))


def measured(loader, workload: Workload, settings: Settings, args: argparse.Namespace) -> dict:
    """Returns the loader's figures at the shortest step with which it reaches the bar."""
    best = None
    try:
        free = measure_one(loader, settings, args, 0)
        stretch = workload.least_au * workload.per_s / free["images_per_s"]
        for _ in range(TRIES):
            step_s = workload.step_s * stretch
            figures = measure_one(loader, settings, args, step_s * 1000)
            au = figures["images_per_s"] / settings.batch * step_s
            if au < workload.least_au and best:
                break
            if au < workload.least_au:
                longer = min(max(STRETCH, workload.least_au / au), MOST_STRETCH)
                stretch *= longer
                continue
            about = {"au": au, "step_ms": step_s * 1000, "free_per_s": free["images_per_s"]}
            best = figures | about | {"cores": settings.cores * stretch}
            if au < workload.least_au * STRETCH:
                break
            # It was faster than without steps, so that a shorter one may do.
            stretch *= workload.least_au / au
        if best:
            return best
        raise Failed(f"an AU of {au:.2f} with steps {stretch / longer:.1f} times as long")
    except Failed as error:
        return {"error": str(error)}


def measure_one(loader, settings: Settings, args: argparse.Namespace, step_ms: float) -> dict:
    """Returns the figures of a run that other programs did not disturb."""
    for _ in range(3):
        measure.wait_for_quiet(args.quiet)
        figures = measure.measure(loader, settings, measure.Timing(args.warm, args.seconds, step_ms))
        if table.is_good(figures):
            return figures
    raise Failed(f"others used {figures['others_cores']:.1f} cores")


def text(run: dict) -> str:
    return run["error"] if "error" in run else f"{run['cores']:.2f} cores per accelerator"


def markdown(runs: list[dict]) -> str:
    """Returns a line for each loader, with how many times the cores of the first it needs."""
    titles = list(dict.fromkeys(run["loader"] for run in runs))
    lines = ["| loader | " + " | ".join(title for title, _, _ in COLUMNS) + " | it / ours |"]
    lines.append("|---" + "|---:" * (len(COLUMNS) + 1) + "|")
    first = None
    for title in titles:
        own = [run for run in runs if run["loader"] == title]
        good = [run for run in own if "error" not in run]
        if not good:
            lines.append(f"| {title} | {own[-1]['error']}" + " |" * (len(COLUMNS) + 1))
            continue
        medians = {key: statistics.median(run[key] for run in good) for _, key, _ in COLUMNS}
        first = first or medians["cores"]
        cells = [form.format(medians[key]) for _, key, form in COLUMNS]
        lines.append(f"| {title} | " + " | ".join(cells) + f" | {medians['cores'] / first:.2f} |")
    return "\n".join(lines)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--tile"]:
        tile(*sys.argv[2:])
    else:
        try:
            run()
        except (Failed, OSError, subprocess.SubprocessError) as error:
            sys.exit(f"benches/peers/run --au: {error}")
