"""Writes stills of HEIF, ISO/IEC 23008-12: coded tiles with the boxes that say how they become a picture."""

from __future__ import annotations

import pathlib
import struct


def box(kind: bytes, *content: bytes) -> bytes:
    joined = b"".join(content)
    return struct.pack(">I", 8 + len(joined)) + kind + joined


def full(kind: bytes, version: int, *content: bytes) -> bytes:
    return box(kind, bytes([version, 0, 0, 0]), *content)


def coded(path: pathlib.Path) -> tuple[bytes, bytes]:
    """Returns the configuration and the only packet of an MP4 of HEVC."""
    file = path.read_bytes()

    def content(kind: bytes) -> bytes:
        at = file.index(kind)
        return file[at + 4 : at - 4 + int.from_bytes(file[at - 4 : at], "big")]

    sizes = content(b"stsz")
    assert int.from_bytes(sizes[8:12], "big") == 1, "one packet"
    size = int.from_bytes(sizes[4:8], "big") or int.from_bytes(sizes[12:16], "big")
    start = int.from_bytes(content(b"stco")[8:12], "big")
    return content(b"hvcC"), file[start : start + size]


def heic(
    tiles: list[bytes],
    config: bytes,
    tile_size: tuple[int, int],
    *,
    grid: tuple[int, int] | None = None,
    size: tuple[int, int] | None = None,
    turns: int = 0,
    mirror: int | None = None,
) -> bytes:
    """Returns a file of tiles of this height and width; with a `grid` of rows and columns, of this size in all. It is turned against the clock
    by so many quarters, and mirrored: 0 exchanges top and bottom, 1 left and right. Numbers are of BT.601, of limited range."""
    height, width = size or tile_size
    properties = [
        box(b"hvcC", config),
        full(b"ispe", 0, struct.pack(">2I", tile_size[1], tile_size[0])),
        full(b"ispe", 0, struct.pack(">2I", width, height)),
        box(b"colr", b"nclx", struct.pack(">3HB", 6, 6, 6, 0)),
    ]
    shown = [3, 4] if grid else [0x81, 2, 4]
    if turns:
        properties.append(box(b"irot", bytes([turns])))
        shown.append(0x80 | len(properties))
    if mirror is not None:
        properties.append(box(b"imir", bytes([mirror])))
        shown.append(0x80 | len(properties))
    items = [(b"hvc1", tile, [0x81, 2]) for tile in tiles]
    if grid:
        items.insert(0, (b"grid", struct.pack(">4B2H", 0, 0, grid[0] - 1, grid[1] - 1, width, height), shown))
    else:
        items[0] = (items[0][0], items[0][1], shown)
    numbered = list(enumerate(items, 1))
    entries = [full(b"infe", 2, struct.pack(">2H", number, 0), kind, b"\0") for number, (kind, _, _) in numbered]
    associations = [struct.pack(">HB", number, len(of_item)) + bytes(of_item) for number, (_, _, of_item) in numbered]
    references = [box(b"dimg", struct.pack(f">{2 + len(tiles)}H", 1, len(tiles), *range(2, 2 + len(tiles))))] if grid else []
    start = box(b"ftyp", b"heic", bytes(4), b"mif1heic")

    def boxes(at: int) -> bytes:
        places = []
        for number, (_, payload, _) in numbered:
            places.append(struct.pack(">3H2I", number, 0, 1, at, len(payload)))
            at += len(payload)
        return full(
            b"meta",
            0,
            full(b"hdlr", 0, bytes(4), b"pict", bytes(13)),
            full(b"pitm", 0, struct.pack(">H", 1)),
            full(b"iloc", 0, b"\x44\0", struct.pack(">H", len(items)), *places),
            full(b"iinf", 0, struct.pack(">H", len(items)), *entries),
            *([full(b"iref", 0, *references)] if references else []),
            box(b"iprp", box(b"ipco", *properties), full(b"ipma", 0, struct.pack(">I", len(items)), *associations)),
        )

    head = start + boxes(len(start) + len(boxes(0)) + 8)
    return head + box(b"mdat", *(payload for _, payload, _ in items))
