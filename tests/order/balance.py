"""A second implementation of balance: docs/spec/balance.md in plain Python, independent of the Rust code.

Reads a JSON list of configurations from stdin and writes to stdout the rank that each entry of each batch is dealt to.
"""
import json, sys


def deal(costs, sizes):
    """Deals entries, by what they cost, to ranks that get so many of them."""
    hands, load = [[] for _ in sizes], [0] * len(sizes)
    for entry in sorted(range(len(costs)), key=lambda entry: (-costs[entry], entry)):
        rank = min((r for r in range(len(sizes)) if len(hands[r]) < sizes[r]), key=lambda r: (load[r], r))
        hands[rank].append((costs[entry], entry))
        load[rank] += costs[entry]
    bound = least(costs, [size for size in sizes if size])
    for _ in range(4 * len(sizes)):
        ranks = sorted((r for r in range(len(sizes)) if sizes[r]), key=lambda r: (load[r], r))
        if not ranks or load[ranks[-1]] <= bound + bound // 1000:
            break
        heavy = ranks[-1]
        for light in ranks[:64]:
            best = light != heavy and exchange(hands[heavy], hands[light], load[heavy] - load[light])
            if best:
                break
        else:
            break
        _, given, taken = best
        hands[heavy] = [entry for entry in hands[heavy] if entry != given] + [taken]
        hands[light] = [entry for entry in hands[light] if entry != taken] + [given]
        load[heavy] += taken[0] - given[0]
        load[light] += given[0] - taken[0]
    return {entry: rank for rank, hand in enumerate(hands) for _, entry in hand}


def least(costs, sizes):
    """Returns what no deal can do better than: the mean, or the largest cost with the least ones beside it."""
    if not sizes:
        return 0
    *others, largest = sorted(costs)
    return max(-(-sum(costs) // len(sizes)), largest + sum(others[: min(sizes) - 1]))


def exchange(heavy, light, gap):
    """Returns what is left of the gap after the best exchange, with its two entries; None if there is none."""
    best = None
    for given in sorted(heavy):
        wanted = max(0, given[0] - gap // 2)
        ordered = sorted(light)
        at = sum(cost < wanted for cost, _ in ordered)
        for taken in ordered[max(0, at - 1) : at + 1]:
            difference = given[0] - taken[0]
            left = abs(gap - 2 * difference)
            if 0 < difference < gap and (best is None or left < best[0]):
                best = left, given, taken
    return best


def ranks(costs, world, within):
    """Returns the rank of each entry of a batch; without balance, they are those of its slice."""
    entries, found = len(costs), []
    size = min(within or world, world)
    for first in range(0, world, size):
        group = range(first, min(first + size, world))
        ends = [rank * entries // world for rank in [*group, group[-1] + 1]]
        dealt = deal(costs[ends[0] : ends[-1]], [b - a for a, b in zip(ends, ends[1:])])
        found += [first + dealt[entry] for entry in range(ends[-1] - ends[0])]
    return found


if __name__ == "__main__":
    json.dump([ranks(c["costs"], c["world"], c["within"]) for c in json.load(sys.stdin)], sys.stdout)
