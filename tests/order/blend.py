"""A second implementation of the stream of several sources: section 9 of docs/spec/order.md in plain Python, independent of the Rust code.

Reads a JSON list of configurations from stdin and writes to stdout what each delivers.
"""
import json, sys
from functools import cache
from itertools import accumulate, islice, takewhile

from deliver import receipt
from order import Plan, key

PERIOD, SOURCE = 2**16, 9


@cache
def table(weights):
    """Returns the source of each sample of a period: R. Tijdeman's chairman assignment."""
    parts, given, sources = max(1, 2 * sum(w > 0 for w in weights) - 2), [0] * len(weights), []
    for n in range(1, PERIOD + 1):
        behind = [parts * (w * n - PERIOD * g) for w, g in zip(weights, given)]
        urgent = [i for i, b in enumerate(behind) if b >= PERIOD]
        first = urgent[0]
        for i in urgent[1:]:
            left = lambda j: (parts - 1) * PERIOD - behind[j]
            if left(i) * weights[first] < left(first) * weights[i]:
                first = i
        sources.append(first)
        given[first] += 1
    assert tuple(given) == weights
    return sources


def without(weights, out):
    """Returns the weights without some sources, whose parts the others share; () if there is no other."""
    left = [0 if i in out else w for i, w in enumerate(weights)]
    if not (total := sum(left)):
        return ()
    parts = [w * PERIOD // total for w in left]
    for i in sorted(range(len(left)), key=lambda i: -(left[i] * PERIOD % total))[: PERIOD - sum(parts)]:
        parts[i] += 1
    return tuple(parts)


def with_limits(weights, limits, stages):
    """Returns the stages of sources that give only so many samples, sample by sample: one without weights is the end of the stream."""
    later, made, given = [(s["from"], tuple(s["weights"])) for s in stages], [], [0] * len(weights)
    limited = lambda i, what: limits[i] is not None and limits[i]["when_done"] == what
    over = lambda i, what: limited(i, what) and given[i] >= limits[i]["samples"]
    used_up = lambda: {i for i in range(len(weights)) if over(i, "reweight")}
    begin, now, g = 0, tuple(weights), 0
    while True:
        if later and later[0][0] == g:
            begin, now = later.pop(0)
            if any(now[i] for i in used_up()):
                now = without(now, used_up())
            made.append((g, now))
        elif not later and not any(w and (limited(i, "stop") or limited(i, "reweight")) for i, w in enumerate(now)):
            break
        if not now:
            break
        s = table(now)[(g - begin) % PERIOD]
        if over(s, "stop"):
            made = [stage for stage in made if stage[0] < g] + [(g, ())]
            break
        if over(s, "reweight"):
            begin, now = g, without(now, used_up())
            made.append((g, now))
            continue
        given[s] += 1
        g += 1
    return [{"from": begin, "weights": list(now)} for begin, now in made]


class Blend(Plan):
    """The stream of several sources; `steps` is that of one dataset, with another order of a batch's entries."""

    def __init__(self, sources, stages, seed, samples):
        self.samples, self.stages, counts = samples, [], [0] * len(sources)
        stages = [(0, tuple(s["weight"] for s in sources)), *((s["from"], tuple(s["weights"])) for s in stages)]
        for (begin, weights), end in zip(stages, [begin for begin, _ in stages[1:]] + [None]):
            dealt, given, ranks = table(weights), [0] * len(sources), []
            for source in dealt:
                ranks.append(given[source])
                given[source] += 1
            self.stages.append((begin, weights, dealt, ranks, tuple(counts)))
            # One by one: the plain way, where the other implementation counts periods.
            for n in range((end or begin) - begin):
                counts[dealt[n % PERIOD]] += 1
        blocks = [[samples for samples, count in s["blocks"] for _ in range(count)] for s in sources]
        seeds = [key(seed, SOURCE, number) for number in range(len(sources))]
        self.plans = [Plan(b, k, s["lanes"], s["window"], s["shuffle"]) for b, k, s in zip(blocks, seeds, sources)]
        self.first = [0, *accumulate(plan.samples for plan in self.plans)]
        reverse = lambda lane: int(f"{lane:032b}"[::-1], 2)
        self.places = [sorted(range(plan.lanes), key=reverse).index for plan in self.plans]

    def source(self, epoch, offset, last=None):
        """Returns the source and the position there of the sample at an offset, with the stage at offset `last`, if that is given."""
        g = epoch * self.samples + offset
        stage_at = g if last is None else epoch * self.samples + last
        begin, weights, dealt, ranks, before = [stage for stage in self.stages if stage[0] <= stage_at][-1]
        periods, place = divmod(g - begin, PERIOD)
        s = dealt[place]
        return s, divmod(before[s] + periods * weights[s] + ranks[place], self.plans[s].samples)

    def at(self, epoch, offset):
        s, at = self.source(epoch, offset)
        return self.first[s] + self.plans[s].at(*at)

    def substitute(self, epoch, offset, attempt):
        s, at = self.source(epoch, offset)
        return self.first[s] + self.plans[s].substitute(*at, attempt)

    def place(self, epoch, offset, end):
        s, (_, x) = self.source(epoch, offset, self.samples - 1 if end == "exact" and offset >= self.samples else None)
        plan = self.plans[s]
        lane = x % plan.lanes if x // plan.lanes < plan.samples // plan.lanes else plan.longer[x % plan.lanes]
        return self.places[s](lane) * 2**32 // plan.lanes

    def entries(self, epoch, offset, size, end):
        """Returns the entries of a batch in their order; an entry is (epoch, offset, id, kind)."""
        n = self.samples
        wrapped = lambda g: g % n if end == "pad" else g
        for g in sorted(range(offset, offset + size), key=lambda g: (self.place(epoch, wrapped(g), end), g)):
            e, o = (epoch, wrapped(g)) if end in ("pad", "exact") else (epoch + g // n, g % n)
            kind = "sample" if end in ("drop", "continuous") or g < n else "padding" if end == "pad" else "invalid"
            yield e, o, None if kind == "invalid" else self.at(e, o), kind


def deliver(c):
    stages, end = c.get("stages", []), float("inf")
    if "limits" in c:
        stages = with_limits([s["weight"] for s in c["sources"]], c["limits"], stages)
        end = stages[-1]["from"] if stages and not stages[-1]["weights"] else end
    blend, steps = Blend(c["sources"], [s for s in stages if s["weights"]], c["seed"], c["samples"]), []
    is_before_end = lambda step: step[1][0] * c["samples"] + step[1][1] <= end
    # One lane has the entries of a batch in the order of their offsets, which is all that is taken of them.
    blend.lanes = 1
    taken = blend.steps(*c["from"], c["global_batch"], c["epochs"], c["epoch_end"])
    for start, after, plain in islice(takewhile(is_before_end, taken), c["steps"]):
        entries = list(blend.entries(*start, len(plain), c["epoch_end"]))
        cut = lambda rank: rank * len(entries) // c["world"]
        ranks = [entries[cut(r) : cut(r + 1)] for r in range(c["world"])]
        steps.append({"from": start, "next": after, "ranks": ranks})
    return {**({"stages": stages} if "limits" in c else {}), "at": [blend.at(*p) for p in c["at"]], "source_epochs": [blend.source(*p)[1][0] for p in c["at"]],
            "substitutes": [blend.substitute(*p, i) for p in c["at"] for i in (0, 7, 8)], "steps": steps,
            "receipt": receipt(entry for step in steps for rank in step["ranks"] for entry in rank)}


if __name__ == "__main__":
    json.dump([deliver(config) for config in json.load(sys.stdin)], sys.stdout)
