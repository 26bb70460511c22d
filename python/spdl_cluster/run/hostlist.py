"""SLURM's lists of nodes: `n[1-3,7],login` are n1, n2, n3, n7 and login."""

from __future__ import annotations


def first_host(text: str) -> str | None:
    """Returns the first node of a list, or `None` if the text is no such list."""
    prefix, bracket, rest = text.partition("[")
    if not bracket or "," in prefix:
        return prefix.split(",")[0] or None
    ranges, closed, _ = rest.partition("]")
    number = ranges.split(",")[0].split("-")[0]
    suffix = rest[len(ranges) + 1 :].split(",")[0]
    if not closed or not number.isdigit():
        return None
    # Names with several brackets, such as those of racks and nodes: r[1-2]n[01-16].
    tail = first_host(suffix if "[" not in suffix else rest[len(ranges) + 1 :]) if suffix else ""
    return None if tail is None else prefix + number + tail
