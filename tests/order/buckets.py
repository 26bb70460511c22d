"""A second implementation of buckets: docs/spec/balance.md in plain Python, independent of the Rust code.

Reads a JSON list of configurations from stdin and writes to stdout what each delivers.
"""
import json, sys
from functools import cache
from math import gcd

from deliver import blocks, deliver
from order import Plan, below, key, permute

BUCKET = 10


def window(sizes, batch, k):
    """Returns for each place in a window the number of the sample that comes there; k(words) is a key."""
    by_size = sorted(range(len(sizes)), key=lambda number: (sizes[number], number))
    batches, rest = divmod(len(sizes), batch)
    at = below(k(0), batches + 1) * batch
    last, by_size = by_size[at : at + rest], by_size[:at] + by_size[at + rest :]
    numbers = [permute(k(1), batches, place) for place in range(batches)]
    return [by_size[batch * number + i] for number in numbers for i in range(batch)] + last


class Bucketed(Plan):
    """The stream of a plan with buckets. It has one lane, so that `steps` leaves entries in the order of their offsets."""

    def __init__(self, plan, sizes, seed, window, batch, continuous):
        self.plan, self.sizes, self.seed, self.lanes, self.samples = plan, sizes, seed, 1, plan.samples
        self.window, self.batch, self.continuous = window, batch, continuous
        self.order = cache(self.order)

    def order(self, epoch, number, first, end):
        sizes = [self.sizes[self.plan.at(epoch, offset)] for offset in range(first, end)]
        return window(sizes, self.batch, lambda word: key(self.seed, BUCKET, epoch, number, word))

    def unsorted(self, epoch, offset):
        """Returns the offset of a sample in the stream without buckets."""
        begin = -epoch * self.samples % self.batch if self.continuous else 0
        number = (offset - begin) // self.window + 1
        first, end = max(0, begin + (number - 1) * self.window), min(self.samples, begin + number * self.window)
        return first + self.order(epoch, number, first, end)[offset - first]

    def at(self, epoch, offset):
        return self.plan.at(epoch, self.unsorted(epoch, offset))

    def substitute(self, epoch, offset, attempt):
        return self.plan.substitute(epoch, self.unsorted(epoch, offset), attempt)

    def steps(self, *args):
        for start, after, entries in super().steps(*args):
            q = gcd(self.plan.lanes, len(entries))
            yield start, after, sorted(entries, key=lambda e: (e[1] if e[3] == "invalid" else self.unsorted(e[0], e[1])) % q)


def bucketed(c):
    plan = Plan(blocks(c), c["seed"], c["lanes"], c["window"], True)
    return Bucketed(plan, c["sizes"], c["seed"], c["bucket"] * c["bucket_batch"], c["bucket_batch"], c["is_continuous"])


if __name__ == "__main__":
    json.dump([deliver(config, bucketed(config)) for config in json.load(sys.stdin)], sys.stdout)
