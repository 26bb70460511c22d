"""A second implementation of sequences of several sources: each source is packed by itself, as in sequence.py, and blend.py deals its sequences.

Reads a JSON list of configurations from stdin and writes to stdout the sequences at some positions of each.
"""
import json, sys

from blend import SOURCE, Blend
from order import key
from sequence import Pool, cut_into_pools


def found(c):
    """Returns the source, the pool and the pieces of the sequence at each position of a configuration."""
    pools = []
    for number, source in enumerate(c["sources"]):
        alone = {**c, "seed": key(c["seed"], SOURCE, number), "blocks": source["documents"]}
        of_pool = [sum(source["documents"][first:end], []) for first, end in cut_into_pools(alone)]
        pools.append([Pool(alone, lengths) for lengths in of_pool])
    sources = [{**source, "blocks": [(pool.count, 1) for pool in of]} for source, of in zip(c["sources"], pools)]
    blend, sequences = Blend(sources, c["stages"], c["seed"], c["samples"]), []
    for at in c["at"]:
        source, (epoch, _) = blend.source(*at)
        number, pool = blend.at(*at) - blend.first[source], 0
        while number >= pools[source][pool].count:
            number, pool = number - pools[source][pool].count, pool + 1
        sequences.append([source, pool, pools[source][pool].pieces(epoch, pool, number)])
    return sequences


if __name__ == "__main__":
    json.dump([found(config) for config in json.load(sys.stdin)], sys.stdout)
