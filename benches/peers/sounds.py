"""The command `benches/peers/run --sounds`: segments of the same recordings of speech, or all of each, by this project's loader and others, in
turns, on the same cores, as batches of samples of 32-bit floats."""

import argparse

import turns
from data import Settings
from peer import sounds

#: Segments of a batch.
BATCH = 16


def kind(coded: str) -> turns.Kind:
    return turns.Kind(
        name="sounds",
        names=["ours", "soundfile", "torchcodec", "torchaudio", "datasets_audio", "lhotse_shar"],
        data=f"sounds-{coded}",
        holds=f"{sounds.FILES} files of some {sounds.SECONDS} s of speech at {sounds.RATE} Hz, {coded}",
        format=sounds.FORMAT,
        unit="segments",
        unit_of_cpu="1,000",
        case="seconds",
        requirements=tuple(sounds.OURS),
    )


def cases(args: argparse.Namespace) -> dict[str, Settings]:
    return {length: Settings(cores=0, batch=BATCH, sound=length) for length in args.lengths.split(",")}


if __name__ == "__main__":
    first = argparse.ArgumentParser(add_help=False)
    first.add_argument("--coded", default="flac", choices=list(sounds.ENCODERS), help="how the files are coded (default flac)")
    parser = argparse.ArgumentParser(prog="benches/peers/run --sounds", description=__doc__, parents=[first])
    parser.add_argument("--lengths", default="2,whole", help="seconds of a segment, or `whole` (default 2,whole)")
    turns.command(kind(first.parse_known_args()[0].coded), parser, cases)
