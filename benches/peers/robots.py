"""The command `benches/peers/run --robots`: samples of a robot's dataset, by this project's loader and LeRobot's own, in turns, on the same
cores, as the batches that a policy takes: from a folder, and from a bucket."""

import argparse

import turns
from data import Settings
from peer import robots

#: Where the dataset is.
PLACES = ("local", "s3")
#: Samples of a batch, as LeRobot's program that trains has them.
BATCH = 8

KIND = turns.Kind(
    name="robots",
    names=["ours", "lerobot"],
    data="robots",
    holds=f"{robots.EPISODES} episodes of {robots.LENGTH} frames of {len(robots.CAMERAS)} cameras of {robots.WIDTH}x{robots.HEIGHT}, AV1, "
    f"with {robots.ACTIONS} actions each; in `s3` from a bucket that answers {1000 * robots.LATENCY_S:.0f} ms late",
    format=robots.FORMAT,
    unit="samples",
    unit_of_cpu="1,000",
    case="from",
    requirements=tuple(robots.OURS),
)


def cases(args: argparse.Namespace) -> dict[str, Settings]:
    places = args.places.split(",")
    for place in places:
        if place not in PLACES:
            raise turns.Failed(f"--places: there is no `{place}`, but {', '.join(PLACES)}")
    return {place: Settings(cores=0, batch=BATCH, robot=place) for place in places}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="benches/peers/run --robots", description=__doc__)
    parser.add_argument("--places", default=",".join(PLACES), help="where the dataset is: a folder, or a bucket (default local,s3)")
    turns.command(KIND, parser, cases)
