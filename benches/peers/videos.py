"""The command `benches/peers/run --videos`: clips of the same videos, by this project's loader and others, in turns, on the same cores, as
batches of cropped and resized frames; and what clips read of a long video in a store."""

import argparse
import json
import pathlib
import subprocess

import turns
from data import Data, Settings
from peer import videos

HERE = pathlib.Path(__file__).resolve().parent
#: Clips of a batch, by which clips it has.
BATCH = {"random": 8, "window": videos.WINDOW, "first": 2}


def kind(coded: str) -> turns.Kind:
    return turns.Kind(
        name="videos",
        names=["ours", "torchcodec_exact", "torchcodec_approximate", "pyav", "decord"],
        data=f"videos-{coded}",
        holds=f"{videos.FILES} files of {videos.FRAMES} frames of {videos.WIDTH}x{videos.HEIGHT}, {coded}",
        format=videos.FORMAT,
        unit="clips",
        unit_of_cpu="1,000",
        case="clips of",
        requirements=tuple(videos.OURS),
        indexes=videos.indexes,
        more=read_of_a_store,
    )


def cases(args: argparse.Namespace) -> dict[str, Settings]:
    found = {}
    for case in args.clips.split(","):
        clips, _, frames = case.rpartition("-")
        clips = clips or "random"
        if clips not in BATCH or not frames.isdigit():
            raise turns.Failed(f"--clips: `{case}` is no number of frames, nor one behind `window-` or `first-`")
        found[case] = Settings(cores=0, batch=BATCH[clips], frames=int(frames), clips=clips)
    return found


def read_of_a_store(python: pathlib.Path, data: Data) -> list[str]:
    """Returns a line about what clips of 16 frames read of long videos in a store."""
    command = [python, HERE / "clip_bytes.py", data.format("served")]
    read = json.loads(subprocess.run(list(map(str, command)), check=True, stdout=subprocess.PIPE).stdout)
    return [
        f"{read['clips']} clips of {read['frames']} frames of {read['files']} videos of {read['file_mb']:,.0f} MB in a store of files: "
        f"{read['requests']:.2f} requests a clip for packets, of {read['bytes_of_groups']:.2f} times the bytes that the groups of pictures "
        f"have up to the last frame; and {read['table_requests']:.1f} requests of {read['table_kb']:,.0f} KB in all for the tables of a file"
    ]


if __name__ == "__main__":
    first = argparse.ArgumentParser(add_help=False)
    first.add_argument("--coded", default="h264", choices=list(videos.ENCODERS), help="how the videos are coded (default h264)")
    parser = argparse.ArgumentParser(prog="benches/peers/run --videos", description=__doc__, parents=[first])
    told = (
        "frames of a clip of a random video; behind `window-` those of clips of which 16 in a window are of one video, and behind `first-` "
        "those from the beginning of a video of 200 MB that was not opened before (default 1,16,window-1,first-1)"
    )
    parser.add_argument("--clips", default="1,16,window-1,first-1", help=told)
    turns.command(kind(first.parse_known_args()[0].coded), parser, cases)
