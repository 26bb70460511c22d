"""A second implementation of sequences: docs/spec/sequences.md in plain Python, independent of the Rust code.

Reads a JSON list of configurations from stdin and writes to stdout the pools of each, and the pieces of their sequences.
"""
import json, sys

from order import key, permute

PIECES, DOCUMENTS = 7, 8


class Pool:
    def __init__(self, c, lengths):
        self.seed, self.seq_len, self.method = c["seed"], c["seq_len"], c["method"]
        self.tokens = [length and length + c["added_tokens"] for length in lengths]
        self.kept = [kept(self.method, self.seq_len, tokens) for tokens in self.tokens]
        self.rooms, self.layout = {}, []
        if self.method == "chunk":
            self.count = max(0, sum(self.tokens) - 1) // self.seq_len
        else:
            self.pack(self.method["best_fit"])
            self.count = len(self.layout)

    def pack(self, method):
        """Cuts documents into pieces, and packs these in two ways, by looking at all sequences again and again."""
        align, most = method["align"], method.get("max_documents") or float("inf")
        for document, tokens in enumerate(self.kept):
            for first in range(0, tokens, self.seq_len):
                room = min(-(-min(tokens - first, self.seq_len) // align) * align, self.seq_len)
                self.rooms.setdefault(room, []).append((document, first))
        fewest = self.packed(most, spread=False)
        self.layout = self.packed(most, spread=True)
        if len(self.layout) > len(fewest) + len(fewest) // 256:
            self.layout = fewest

    def packed(self, most, spread):
        """Returns the places of each sequence: a room, and a number among its pieces."""
        free, layout, unplaced = [], [], sum(room * len(pieces) for room, pieces in self.rooms.items())
        for room in sorted(self.rooms, reverse=True):
            place, count = 0, len(self.rooms[room])
            while place < count:
                is_open = [f >= min(self.rooms) and len(places) < most for f, places in zip(free, layout)]
                fitting = sorted((f, n) for n, f in enumerate(free) if is_open[n] and f >= room)
                missing = max(0, -(-(unplaced - sum(f for f, o in zip(free, is_open) if o)) // self.seq_len))
                new = min(missing, max(0, count - place - len(fitting))) if spread else 0
                for _ in range(max(new, not fitting)):
                    fitting.append((self.seq_len, len(free)))
                    free.append(self.seq_len)
                    layout.append([])
                for _, number in fitting[: count - place if spread else 1]:
                    free[number] -= room
                    layout[number].append((room, place))
                    place, unplaced = place + 1, unplaced - room
        return layout

    def pieces(self, epoch, pool, number):
        """Returns the pieces of a sequence as [document, first token, tokens, place, whether it ends], and what follows."""
        if self.method == "chunk":
            return self.cut(epoch, pool, number * self.seq_len)
        pieces, at = [], 0
        for room, place in self.layout[number]:
            k = key(self.seed, PIECES, epoch, pool, room)
            document, first = self.rooms[room][permute(k, len(self.rooms[room]), place)]
            end = min(first + self.seq_len, self.kept[document])
            pieces.append([document, first, end - first, at, end == self.tokens[document]])
            at += room
        return pieces, None

    def cut(self, epoch, pool, start):
        k, count, begin, pieces = key(self.seed, DOCUMENTS, epoch, pool), len(self.tokens), 0, []
        for document in (permute(k, count, place) for place in range(count)):
            end = begin + self.tokens[document]
            low, high = max(begin, start), min(end, start + self.seq_len)
            if low < high:
                pieces.append([document, low - begin, high - low, low - start, high == end])
            if begin <= start + self.seq_len < end:
                first = start + self.seq_len - begin
                return pieces, [document, first, 1, self.seq_len, begin + first + 1 == end]
            begin = end

    def fill(self):
        used = self.count * self.seq_len if self.method == "chunk" else sum(self.kept)
        lost = [k < t for k, t in zip(self.kept, self.tokens)]
        gone = [(t > 0 and self.count == 0) if self.method == "chunk" else k == 0 and t > 0 for k, t in zip(self.kept, self.tokens)]
        return [self.count, self.count * self.seq_len, used, sum(self.tokens) - used, len(lost), self.tokens.count(0),
                sum(l and not g for l, g in zip(lost, gone)), sum(gone)]


def kept(method, seq_len, tokens):
    long = method["best_fit"]["long"] if method != "chunk" else "split"
    return tokens if tokens <= seq_len or long == "split" else seq_len if long == "truncate" else 0


def cut_into_pools(c):
    """Returns the blocks of each pool, as (first, end)."""
    first, sum_of_pool = 0, 0
    for block, lengths in enumerate(c["blocks"]):
        tokens = [length and length + c["added_tokens"] for length in lengths]
        sum_of_pool += sum(max(1, kept(c["method"], c["seq_len"], t)) for t in tokens)
        if sum_of_pool >= c["pool_tokens"]:
            yield first, block + 1
            first, sum_of_pool = block + 1, 0
    if first < len(c["blocks"]):
        yield first, len(c["blocks"])


def packed(c):
    pools = []
    for number, (first, end) in enumerate(cut_into_pools(c)):
        pool = Pool(c, [length for block in c["blocks"][first:end] for length in block])
        sequences = [[pool.pieces(epoch, number, n) for n in range(pool.count)] for epoch in c["epochs"]]
        pools.append({"blocks": [first, end], "fill": pool.fill(), "sequences": sequences})
    return pools


if __name__ == "__main__":
    json.dump([packed(config) for config in json.load(sys.stdin)], sys.stdout)
