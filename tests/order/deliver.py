"""Reads a JSON list of configurations from stdin and writes to stdout what the order in `order.py` delivers for each."""
import itertools, json, sys

from order import GAMMA, MASK, Plan, mix


def receipt(entries):
    total = 0
    for epoch, offset, sample, kind in entries:
        if kind == "sample":
            a = mix((epoch + GAMMA) & MASK)
            b = mix((offset + a + GAMMA) & MASK)
            low = mix((sample + b + GAMMA) & MASK)
            total += mix((low + (a ^ (b << 32 | b >> 32) & MASK) + GAMMA) & MASK) << 64 | low
    return f"{total % 2**128:032x}"


def blocks(c):
    return [samples for samples, count in c["blocks"] for _ in range(count)]


def deliver(c, plan):
    steps = list(itertools.islice(plan.steps(*c["from"], c["global_batch"], c["epochs"], c["epoch_end"]), c["steps"]))
    cut = lambda n, rank: rank * n // c["world"]
    ranks = lambda entries: [entries[cut(len(entries), r) : cut(len(entries), r + 1)] for r in range(c["world"])]
    return {"at": [plan.at(*p) for p in c["at"]], "substitutes": [plan.substitute(*p, i) for p in c["at"] for i in (0, 7, 8)],
            "steps": [{"from": f, "next": t, "ranks": ranks(entries)} for f, t, entries in steps],
            "receipt": receipt(entry for _, _, entries in steps for entry in entries)}


if __name__ == "__main__":
    plan = lambda c: Plan(blocks(c), c["seed"], c["lanes"], c["window"], c["shuffle"])
    json.dump([deliver(config, plan(config)) for config in json.load(sys.stdin)], sys.stdout)
