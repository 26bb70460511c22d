"""A second implementation of version 1 of the order: docs/spec/order.md in plain Python, independent of the Rust code."""
from bisect import bisect_right
from functools import cache, reduce
from itertools import accumulate
from math import gcd

MASK, GAMMA = 2**64 - 1, 0x9E3779B97F4A7C15
DEAL, SPANS, WINDOW_START, WINDOW, SUBSTITUTE = 1, 2, 3, 4, 5

def mix(x):
    x = ((x ^ x >> 30) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ x >> 27) * 0x94D049BB133111EB) & MASK
    return x ^ x >> 31

def key(seed, *words):
    return reduce(lambda k, word: mix(k ^ mix((word + GAMMA) & MASK)), words, mix((seed + GAMMA) & MASK))

def below(bits, n):
    return bits * n >> 64

def permute(k, n, x):
    shift = ((n - 1).bit_length() + 1) // 2
    a, b = ((n - 1) >> shift) + 1, 1 << shift
    while True:
        left, right = divmod(x, b)
        for i in range(1, 25 if n < 256 else 9):
            if i % 2:
                left = (left + below(mix((right + k + i * GAMMA) & MASK), a)) % a
            else:
                right = (right + below(mix((left + k + i * GAMMA) & MASK), b)) % b
        x = left * b + right
        if x < n:
            return x

class Plan:
    def __init__(self, blocks, seed, lanes, window, shuffle):
        self.blocks, self.seed, self.window, self.shuffle = blocks, seed, window, shuffle
        self.lanes, self.samples = lanes if shuffle else 1, sum(blocks)
        self.firsts = [0, *accumulate(blocks)]
        self.dealt = [permute(key(seed, DEAL), len(blocks), i) for i in range(len(blocks))]
        self.line = [0, *accumulate(blocks[block] for block in self.dealt)]
        self.cuts = [lane * self.samples // self.lanes for lane in range(self.lanes + 1)]
        self.longer = [c for c in range(self.lanes) if self.cuts[c + 1] - self.cuts[c] > self.samples // self.lanes]
        self.lane = cache(self.lane)

    def lane(self, epoch, lane):
        """Returns the lane's spans in this epoch's order, as (first place on the line, end), and the start of each in the lane."""
        first, end = self.cuts[lane], self.cuts[lane + 1]
        low, high = bisect_right(self.line, first) - 1, bisect_right(self.line, end - 1) - 1
        count, k = high - low + 1, key(self.seed, SPANS, epoch, lane)
        order = [low + permute(k, count, i) for i in range(count)]
        spans = [(max(first, self.line[d]), min(end, self.line[d + 1])) for d in order]
        return spans, [0, *accumulate(e - f for f, e in spans)]

    def shuffled(self, epoch, lane, brick, x):
        size = self.cuts[lane + 1] - self.cuts[lane]
        m = min(self.window, size)
        start = 0 if m == size else (below(key(self.seed, WINDOW_START, epoch, lane), m) + brick * (m // 2)) % m
        number = (x - start) // m + 1
        first, end = max(0, start + (number - 1) * m), min(size, start + number * m)
        return first + permute(key(self.seed, WINDOW, epoch, lane, brick, number), end - first, x - first)

    def at(self, epoch, offset):
        if not self.shuffle:
            return offset
        turn, x = offset % self.lanes, offset // self.lanes
        lane = turn if x < self.samples // self.lanes else self.longer[turn]
        x = self.shuffled(epoch, lane, 0, self.shuffled(epoch, lane, 1, x))
        spans, starts = self.lane(epoch, lane)
        span = bisect_right(starts, x) - 1
        place = spans[span][0] + x - starts[span]
        dealt = bisect_right(self.line, place) - 1
        return self.firsts[self.dealt[dealt]] + place - self.line[dealt]

    def substitute(self, epoch, offset, attempt):
        bad, k = self.at(epoch, offset), key(self.seed, SUBSTITUTE, epoch, offset, attempt)
        block = bisect_right(self.firsts, bad) - 1
        first, size = self.firsts[block], self.blocks[block]
        return first + (bad - first + 1 + below(k, size - 1)) % size if attempt < 8 and size > 1 else below(k, self.samples)

    def steps(self, epoch, offset, batch, epochs, end):
        """Yields (from, next, entries in batch order) for each step; an entry is (epoch, offset, id, kind)."""
        n = self.samples
        while True:
            if end == "drop" and offset + batch > n:
                epoch, offset = epoch + 1, 0
            stop = min(offset + batch, n) if end in ("pad", "exact", "partial") else offset + batch
            if epoch >= epochs or stop > (epochs - epoch) * n or end == "drop" and batch > n:
                return
            size = stop - offset if end == "partial" else batch
            entries, q = [], gcd(self.lanes, size)
            for g in sorted(range(offset, offset + size), key=lambda g: (g % q, g)):
                e, o = (epoch, g % n) if end == "pad" else (epoch, g) if end == "exact" else (epoch + g // n, g % n)
                kind = "sample" if end in ("drop", "continuous") or g < n else "padding" if end == "pad" else "invalid"
                entries.append((e, o, None if kind == "invalid" else self.at(e, o), kind))
            after = (epoch + stop // n, stop % n)
            yield (epoch, offset), after, entries
            epoch, offset = after
