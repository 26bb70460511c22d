"""The command `benches/peers/run --videos`: random clips of the same videos, by this project's loader and others, in turns, on the same
cores, as batches of cropped and resized frames."""

import argparse

import turns
from data import Settings
from peer import videos

#: Clips of a batch.
BATCH = 8


def kind(coded: str) -> turns.Kind:
    return turns.Kind(
        name="videos",
        names=["ours", "torchcodec_exact", "torchcodec_approximate", "pyav", "decord"],
        data=f"videos-{coded}",
        holds=f"{videos.FILES} files of {videos.FRAMES} frames of {videos.WIDTH}x{videos.HEIGHT}, {coded}",
        format=videos.FORMAT,
        unit="clips",
        unit_of_cpu="1,000",
        case="frames",
        requirements=tuple(videos.OURS),
    )


def cases(args: argparse.Namespace) -> dict[str, Settings]:
    return {frames: Settings(cores=0, batch=BATCH, frames=int(frames)) for frames in args.frames.split(",")}


if __name__ == "__main__":
    first = argparse.ArgumentParser(add_help=False)
    first.add_argument("--coded", default="h264", choices=list(videos.ENCODERS), help="how the videos are coded (default h264)")
    parser = argparse.ArgumentParser(prog="benches/peers/run --videos", description=__doc__, parents=[first])
    parser.add_argument("--frames", default="1,16", help="frames of a clip, that follow each other (default 1,16)")
    turns.command(kind(first.parse_known_args()[0].coded), parser, cases)
