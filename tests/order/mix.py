"""A second implementation of mixes: section 8 of docs/spec/order.md in plain Python, independent of the Rust code.

Reads a JSON list of configurations from stdin and writes to stdout how each mixes its samples.
"""
import itertools, json, math, sys

from order import below, key

MIX, WHOLE = 6, 2**16


def partner(g, distance, samples):
    if g // distance % 2:
        return g - distance
    return g + distance if g + distance < samples else None


def weight(alpha, number):
    for n in itertools.count(4, 2):
        u, v = (((number(n + i) >> 11) + 1) / 2**53 for i in range(2))
        if alpha > 1:
            share = 0.5 + 0.5 * math.sqrt(1 - u ** (2 / (2 * alpha - 1))) * math.cos(2 * math.pi * v)
        else:
            x, y = math.log(u) / alpha, math.log(v) / alpha
            x, y, scale = math.exp(x - max(x, y)), math.exp(y - max(x, y)), max(x, y)
            if scale + math.log(x + y) > 0:
                continue
            share = x / (x + y)
        return round(share * WHOLE)


def mixed(c, epoch, g):
    other = partner(g, c["distance"], c["samples"])
    number = lambda n: key(c["seed"], MIX, epoch, g, n)
    unit = lambda n: (number(n) >> 11) / 2**53
    if other is None or unit(0) >= c["p"]:
        return None
    if c["cutmix"] is None or c["mixup"] is not None and unit(1) >= c["cutmix_p"]:
        return ["mixup", other, weight(c["mixup"], number)]
    radius = math.sqrt((WHOLE - weight(c["cutmix"], number)) / WHOLE) / 2
    sides = []
    for n, size in ((2, c["width"]), (3, c["height"])):
        middle, half = below(number(n), size), int(radius * size)
        sides.append([max(middle - half, 0), min(middle + half, size)])
    return ["cutmix", other, *sides]


if __name__ == "__main__":
    configs = json.load(sys.stdin)
    json.dump([[mixed(c, epoch, g) for epoch in range(2) for g in range(c["samples"])] for c in configs], sys.stdout)
