"""The command `benches/peers/run --tokens`: sequences of the same documents of tokens, by this project's loader and others, in
turns, on the same cores, as batches of ids."""

import argparse

import turns
from data import Settings
from peer import tokens

#: Tokens of a batch.
BATCH = 256 << 10


def kind(documents: int) -> turns.Kind:
    holds = f"{documents:,} documents of {tokens.SHORT} tokens" if documents else f"{tokens.TOKENS:,} tokens, documents as long as code"
    return turns.Kind(
        name="tokens",
        names=["ours", "ours_chunk", "megatron", "olmo", "trl", "grain", "mosaic", "litdata"],
        data=f"documents-{documents}" if documents else f"tokens-{tokens.TOKENS}",
        holds=holds,
        format=tokens.FORMAT,
        unit="tokens",
        unit_of_cpu="1,000,000,000",
        case="seq_len",
        requirements=tuple(tokens.OURS),
    )


def cases(args: argparse.Namespace) -> dict[str, Settings]:
    lengths = [int(length) for length in args.lengths.split(",")]
    return {str(length): Settings(cores=0, batch=BATCH // length, seq_len=length) for length in lengths}


if __name__ == "__main__":
    first = argparse.ArgumentParser(add_help=False)
    first.add_argument("--documents", type=int, default=0, help="so many short ones, to see how long a first batch takes")
    parser = argparse.ArgumentParser(prog="benches/peers/run --tokens", description=__doc__, parents=[first])
    parser.add_argument("--lengths", default="8192", help="tokens of a sequence (default 8192)")
    turns.command(kind(first.parse_known_args()[0].documents), parser, cases)
