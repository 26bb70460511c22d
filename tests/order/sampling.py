"""A second implementation of the stream of a sampling: section 7 of docs/spec/order.md in plain Python, independent of the Rust code.

Reads a JSON list of configurations from stdin and writes to stdout what each delivers.
"""
import json, sys
from bisect import bisect_right
from functools import cache
from itertools import accumulate

from deliver import blocks, deliver
from order import SUBSTITUTE, Plan, below, key


class Sampled(Plan):
    """The stream of a sampling; `steps` is that of one dataset. A sample that is not kept has no class."""

    def __init__(self, blocks, classes, given, seed, lanes, window, shuffle):
        starts = [0, *accumulate(blocks)]
        kept = [[i for i in range(first, end) if classes[i] is not None] for first, end in zip(starts, starts[1:])]
        self.kept_blocks, self.classes, self.given = [block for block in kept if block], classes, given
        self.kept = [i for block in self.kept_blocks for i in block]
        self.sizes = [classes.count(c) for c in range(len(given))]
        self.most = max(-(-t // n) for t, n in zip(given, self.sizes))
        self.order = (seed, lanes, window, shuffle)
        self.samples, self.lanes, self.seed = sum(given), lanes if shuffle else 1, seed
        self.epoch = cache(self.epoch)

    def epoch(self, epoch):
        """Returns the plan of an epoch, and its samples in the order of their ids."""
        seen, blocks = [0] * len(self.given), []
        for block in self.kept_blocks:
            blocks.append([])
            for i in block:
                c = self.classes[i]
                t, n, x = self.given[c], self.sizes[c], seen[c] + epoch
                blocks[-1] += [i] * ((x + 1) * t // n - x * t // n)
                seen[c] += 1
        return Plan([len(block) for block in blocks], *self.order), [i for block in blocks for i in block]

    def at(self, epoch, offset):
        plan, ids = self.epoch(epoch)
        return ids[plan.at(epoch, offset)]

    def draws(self, epoch, offset):
        plan, ids = self.epoch(epoch)
        number = plan.at(epoch, offset)
        return epoch * self.most + ids[:number].count(ids[number]) if self.most > 1 else epoch

    def substitute(self, epoch, offset, attempt):
        plan, ids = self.epoch(epoch)
        number, k = plan.at(epoch, offset), key(self.seed, SUBSTITUTE, epoch, offset, attempt)
        bad, size = ids[number], plan.blocks[bisect_right(plan.firsts, number) - 1]
        drawn = ids[plan.substitute(epoch, offset, attempt)] if attempt < 8 and size > 1 else self.kept[below(k, len(self.kept))]
        from_drawn = self.kept[self.kept.index(drawn) :] + self.kept
        mates = [i for i in from_drawn if self.classes[i] == self.classes[bad] and i != bad]
        return mates[0] if attempt < 32 and mates else drawn


def sampled(c):
    plan = Sampled(blocks(c), c["classes"], c["given"], c["seed"], c["lanes"], c["window"], c["shuffle"])
    late = [plan.substitute(*p, i) for p in c["at"] for i in (31, 32, 63)]
    return {**deliver(c, plan), "source_epochs": [plan.draws(*p) for p in c["at"]], "late_substitutes": late}


if __name__ == "__main__":
    json.dump([sampled(config) for config in json.load(sys.stdin)], sys.stdout)
