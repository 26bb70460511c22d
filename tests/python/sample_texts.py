"""Texts to tokenize, of any amount and the same each time: programs of Python's standard library, the manuals of this system and the
project's pages, and characters of all planes of Unicode."""

from __future__ import annotations

import gzip
import itertools
import pathlib
import random
import sysconfig
import unicodedata
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).resolve().parents[2]
#: Bytes of a document, at most.
DOCUMENT = 40_000
#: Shares of programs and prose; the rest is odd.
CODE, PROSE = 0.5, 0.35
#: What tokenizers treat each in a way of its own.
PIECES = ["<|endoftext|>", "<|im_start|>", "<s>", "</s>", "[INST]", "<bos>", "<0x0A>", "\u2581", " ", "  ", "\t", "\n", "\r\n", "\n\n \n", "\x00", "\x1b[0m", "\ufeff"]
PIECES += ["e\u0301\u0323", "\u1112\u1161\u11ab", "\u0915\u094d\u0937", "\U0001f469\u200d\U0001f469\u200d\U0001f467", "\U0001f1e6\U0001f1f9", "\ufb01", "\u00bd", "\u2160"]
PIECES += ["don't", "WE'LL", "3.14e-10", "1234567890", "0x7fff", "a_b", "CamelCase", "https://a.b/c?d=e&f#g", "\u202eabc", "\u0660\u0661", "\u00a0", "\u3000", "\u200b"]


def documents(size: int, seed: int = 17) -> list[str]:
    """Returns documents of about this many bytes, those of each kind among the others."""
    dice = random.Random(seed)
    of_kinds = [(code(dice), CODE), (prose(dice), PROSE), (odd(dice), 1 - CODE - PROSE)]
    found = [text for texts, share in of_kinds for text in up_to(size * share, texts)]
    dice.shuffle(found)
    return found


def up_to(size: float, texts: Iterator[str]) -> Iterator[str]:
    """Returns the first texts, to this many bytes."""
    for text in texts:
        if size <= 0:
            return
        size -= len(text.encode())
        yield text


def code(dice: random.Random) -> Iterator[str]:
    """Returns programs, or their beginnings."""
    paths = sorted(pathlib.Path(sysconfig.get_path("stdlib")).rglob("*.py"))
    dice.shuffle(paths)
    return (text[:DOCUMENT] for path in paths if "site-packages" not in path.parts and (text := path.read_text(errors="ignore")))


def prose(dice: random.Random) -> Iterator[str]:
    """Returns pages: of this project, and of what the system has."""
    paths = [*(ROOT / "docs").rglob("*.md"), *pathlib.Path("/usr/share/man").rglob("*.gz"), *pathlib.Path("/usr/share/doc").rglob("*.gz")]
    paths = sorted(paths)
    dice.shuffle(paths)
    for path in itertools.chain(paths, sorted(pathlib.Path("/usr/share/doc").rglob("copyright"))):
        read = gzip.open if path.suffix == ".gz" else open
        try:
            with read(path, "rt", errors="ignore") as file:
                text = file.read(DOCUMENT)
        except (OSError, EOFError):
            continue
        if text:
            yield text


def odd(dice: random.Random) -> Iterator[str]:
    """Returns lines of any characters, those of a script together, and of what tokenizers treat in a way of its own."""
    while True:
        letters: list[str] = []
        while len(letters) < 2000:
            kind = dice.randrange(4)
            if kind == 0:
                letters += dice.choices(PIECES, k=dice.randrange(1, 6))
            elif kind == 1:
                letters += (character(dice.randrange(0x110000)) for _ in range(dice.randrange(1, 12)))
            else:
                # Most characters are in the first plane, and some in the second and third.
                first = dice.choice([dice.randrange(0x3000), dice.randrange(0x10000), dice.randrange(0x10000, 0x33000)])
                letters += (character(first + dice.randrange(96)) for _ in range(dice.randrange(4, 40)))
            letters += dice.choice(["", " ", "\n", "  "])
        text = "".join(letters)
        yield unicodedata.normalize(dice.choice(["NFC", "NFD"]), text) if dice.randrange(2) else text


def character(number: int) -> str:
    return "\ufffd" if 0xD800 <= number < 0xE000 else chr(min(number, 0x10FFFF))
