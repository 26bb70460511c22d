"""Writes `docs/reference/job.md`, the reference of a job's keys, from the JSON Schema of job files.

usage: job_reference.py > docs/reference/job.md

What the page says of a key is the doc comment of that key in Rust. A sentence `Default: ...` or `Required.` at its end goes into the
column of defaults, and `For KIND: ` at its beginning divides what is said of a key that several kinds of column have.
"""

from __future__ import annotations

import json
import re
import struct
import sys
from collections.abc import Iterable
from typing import Any

from job_types import name_of, one_line, operations, read_schema, target

PAGE = "docs/reference/job.md"
GUIDE = "../guide/job.md"
#: The sections of the guide with examples, by what they are about.
SHOWN = {
    "The job": "job.md#the-smallest-job-that-trains",
    "BadSamples": "job.md#bad-samples",
    "ColumnFile": "job.md#a-column",
    "EpochEnd": "job.md#the-end-of-an-epoch",
    "FunctionFile": "job.md#a-function",
    "ImageColor": "columns.md#channels-and-depths",
    "ImageDepth": "columns.md#channels-and-depths",
    "MixFile": "job.md#a-mix",
    "Normalise": "job.md#normalisation",
    "OrderFile": "job.md#the-order",
    "SampleCostFile": "balance.md",
    "SequenceFile": "language.md#2-the-job",
    "JobSourceFile": "sources.md#weights-and-how-often-a-source-comes",
    "JobStageFile": "sources.md#other-weights-later-stages",
    "Redaction": "redaction.md",
    "SamplingFile": "sources.md#the-classes-of-one-dataset-equally-often",
    "ViewFile": "job.md#a-view",
    "audio": "audio.md#what-a-column-can-have",
    "audio_length": "audio.md#segments-of-one-length",
    "audio_rate": "audio.md#what-a-column-can-have",
    "boxes": "job.md#boxes",
    "box_labels": "job.md#boxes",
    "five_crop": "columns.md#several-views-of-a-picture",
    "geometry": "job.md#back-to-the-picture",
    "image": "columns.md#lists-of-pictures",
    "image_size": "job.md#back-to-the-picture",
    "is_pad": "robots.md#several-frames-in-a-sample",
    "mask": "job.md#masks",
    "one_hot": "job.md#a-mix",
    "operations": "job.md#operations",
    "sound operations": "speech.md#augmentation",
    "smart_resize": "columns.md#pictures-in-sizes-of-their-own",
    "ten_crop": "columns.md#several-views-of-a-picture",
    "tokens": "columns.md#tokens",
    "video": "video.md#which-frames",
    "video_mask": "video.md#which-frames",
    "video_times": "video.md#which-frames",
}
#: Headings of tables, as they are written in a job file, and of values.
HEADINGS = {
    "ColumnFile": "`[[column]]`",
    "CostName": "Words of `cost`",
    "CostTable": "Table of `cost`",
    "DType": "`dtype`",
    "FunctionFile": "`[[function]]`",
    "MixFile": "`[mix]`",
    "Normalise": "`normalise`",
    "OrderFile": "`[order]`",
    "ReturnedFile": "`returns` of a function",
    "ReturnsFile": "`returns` of a column",
    "SampleCostFile": "`cost`",
    "SequenceFile": "`[sequence]`",
    "JobSourceFile": "`[[source]]`",
    "JobStageFile": "`[[stage]]`",
    "Redaction": "`[[redaction]]`",
    "SamplingFile": "`[view.sampling]`",
    "ViewFile": "`[view]`",
}
#: What has no section of its own: the place that describes it.
PLACES = {
    "DecodeFile": "[a kind](#kinds)",
    "Operation": "[an operation](#operations)",
    "SoundOperation": "[a sound operation](#operations-on-sounds)",
    "ArgumentsFile": "table of any keys",
}
#: The operations that the kinds of column with `ops` take.
TAKEN = {"image": "Operation", "audio": "SoundOperation", "video": "Operation"}
#: Enums with more values are named in tables, and not listed.
FEW = 5
HEAD = f"""# The keys of a job file

This page is generated from the JSON Schema of job files, `spdl-ctl job schema`, by `python tests/python/job_reference.py > {PAGE}`. Change the doc
comments in `crates/core/job/src` and not this page.

[The job file]({GUIDE}) leads from the smallest job to what most people change. Here is every key: [the job](#the-job), [`[[column]]`](#column) with
[the kinds](#kinds), [`[[function]]`](#function), [`[mix]`](#mix), [`[order]`](#order), [`[sequence]`](#sequence), [`[[source]]`](#source), [`[view]`](#view), [the operations](#operations) on pictures and [on sounds](#operations-on-sounds), and
[the values](#values) that several keys have. An unknown key is an error that names the column, the key and the line."""


class Reference:
    """The page about a schema."""

    def __init__(self, schema: dict[str, Any]) -> None:
        self._schema = schema
        self._definitions: dict[str, Any] = schema["definitions"]
        self._parts = [HEAD]
        #: The definitions that have a section, are in one, or wait for theirs.
        self._tables: list[str] = []
        self._values: list[str] = []

    def text(self) -> str:
        """Returns the page."""
        self._add("## The job")
        self._show("The job")
        self._keys("Job", self._schema)
        for name in list(self._tables):
            known = len(self._tables)
            self._table(name)
            for part in self._tables[known:]:
                self._table(part, "###")
        form = "An operation is a table with one key, as `{ resize = { size = 256 } }`. Most have short forms: `{ resize = 256 }` has the first of their keys alone, and"
        form += ' `"random_flip"` has no keys. The short forms are the same operations.'
        self._operations("Operation", "## Operations", form, "operations")
        form = "They are written as [those on pictures](#operations): `{ gain = [-6, 6] }` is `{ gain = { decibels = [-6, 6] } }`."
        self._operations("SoundOperation", "## Operations on sounds", form, "sound operations")
        self._add("## Values", "What several keys have as their value, or one of several words.")
        described: set[str] = set()
        # A value can name others.
        while names := sorted(set(self._values) - described, key=lambda name: anchor(heading(name))):
            for name in names:
                known = len(self._tables)
                self._value(name)
                for part in self._tables[known:]:
                    self._table(part, "###")
            described.update(names)
        shown_here = {*self._tables, *self._values, *PLACES, "ImageOp", "SoundOp"}
        if missing := self._definitions.keys() - shown_here:
            raise SystemExit(f"these definitions are not on the page: {sorted(missing)}")
        page = "\n\n".join(part for part in self._parts if part)
        found = [anchor(line.lstrip("# ")) for line in page.splitlines() if line.startswith("#")]
        if twice := {name for name in found if found.count(name) > 1}:
            raise SystemExit(f"headings that are there twice: {sorted(twice)}")
        return page

    def _add(self, *parts: str) -> None:
        self._parts.extend(parts)

    def _show(self, name: str) -> None:
        """Adds a link to the part of the guide about it."""
        if name in SHOWN:
            self._add(f"[How it is used](../guide/{SHOWN[name]}).")

    def _table(self, name: str, level: str = "##") -> None:
        """Adds the section of a table, and those of the tables in it."""
        table = self._definitions[name]
        self._add(f"{level} {heading(name)}", *paragraphs(table["description"]))
        self._show(name)
        if name == "ColumnFile":
            self._columns(table)
        else:
            self._keys(name, table)

    def _columns(self, table: dict[str, Any]) -> None:
        """Adds what is in a column: the keys of all, and those of each kind."""
        common: dict[str, Any] = {}
        own: dict[str, dict[str, Any]] = {}
        kinds = {kind["const"]: kind["description"] for kind in self._definitions["DecodeFile"]["oneOf"]}
        for key, value in table["properties"].items():
            texts = of_kinds(value["description"], kinds)
            if not texts:
                common[key] = value
            for kind, text in texts.items():
                some = [one for one in value["anyOf"] if target(one["items"]) == TAKEN[kind]] if key == "ops" else [value]
                own.setdefault(kind, {})[key] = {**some[0], "description": sentence(text)}
        self._add("Keys that a column of any kind has:")
        self._keys("ColumnFile", {**table, "properties": common})
        self._add("### Kinds", "`decode` names the kind of a column.")
        facts = {kind: dict(re.findall(r"^- (\w+): (.*?)\.?$", unwrapped(text), re.MULTILINE)) for kind, text in kinds.items()}
        rows = [[f"[`{kind}`](#{kind})", fact["Field"], fact["Result"], fact["Shape"], fact["Types"]] for kind, fact in sorted(facts.items())]
        self._add(rendered(["`decode`", "what the field holds", "what the column holds", "shape of a sample", "`dtype`, the default first"], rows))
        for kind, text in sorted(kinds.items()):
            self._add(f"### `{kind}`", *paragraphs(text))
            self._show(kind)
            if kind in own:
                self._keys(kind, {"properties": own[kind]})
            else:
                self._add("It has no keys of its own.")

    def _operations(self, definition: str, title: str, form: str, shown: str) -> None:
        """Adds the section of some operations."""
        full, *names, short = self._definitions[definition]["anyOf"]
        self._add(title, form)
        self._show(shown)
        all_of_them = sorted(operations(self._definitions[target(full)]["oneOf"]))
        rows = [[f"[`{name}`](#{name})", one_line(about.split("\n\n")[0])] for name, about, _ in all_of_them]
        self._add(rendered(["operation", "what it does"], rows))
        known = len(self._tables)
        for name, about, keys in all_of_them:
            self._add(f"### `{name}`", *paragraphs(about))
            forms = [f'`"{name}"`'] if any(name in some["enum"] for some in names) else []
            if first := short["properties"].get(name):
                # The short form has no tables.
                [key] = [key for key, value in keys["properties"].items() if value == first or value.get("description", value) == first.get("description")][:1]
                forms.append(f"`{{ {name} = ... }}` with `{key}` alone")
            if forms:
                self._add(f"In short: {' or '.join(forms)}.")
            self._show(name)
            if "properties" in keys:
                self._keys(name, keys)
            else:
                self._add("It has no keys.")
        for part in self._tables[known:]:
            self._table(part, "###")

    def _value(self, name: str) -> None:
        """Adds the section of a value."""
        value = self._definitions[name]
        self._add(f"### {heading(name)}", *paragraphs(value["description"]))
        self._show(name)
        if "oneOf" in value:
            self._add(rendered(["value", "meaning"], [[f"`{one['const']}`", one["description"]] for one in value["oneOf"]]))
        elif "anyOf" in value:
            self._add(f"In the file: {self._type(value)}.")
        elif isinstance(value["enum"][0], str):
            self._add(f"One of {words([f'`{one}`' for one in value['enum']], 'and')}.")

    def _keys(self, name: str, table: dict[str, Any]) -> None:
        """Adds the keys of a table, those that have to be there first."""
        required = table.get("required", [])
        keys = sorted(table["properties"].items(), key=lambda item: (item[0] not in required, required.index(item[0]) if item[0] in required else 0, item[0]))
        rows = []
        for key, value in keys:
            about, default = split_default(one_line(value["description"]))
            if key in required:
                default = "required"
            elif not default and "default" in value:
                default = f"`{shown(value['default'], value)}`"
            if not default:
                raise SystemExit(f"`{key}` of `{name}` has no default; write `Default: ...` or `Required.` at the end of its doc comment")
            rows.append([f"`{key}`", self._type(value), default, about])
        self._add(rendered(["key", "type", "default", "meaning"], rows))

    def _type(self, schema: dict[str, Any]) -> str:
        """Returns what a value is, in words; tables and values that it names get a section."""
        if name := target(schema):
            return self._named(name)
        if "allOf" in schema:
            return self._type(schema["allOf"][0])
        if "anyOf" in schema:
            some = [self._type(one) for one in schema["anyOf"] if one.get("type") != "null"]
            return "; or ".join(some)
        kinds: list[str] = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        [kind] = [kind for kind in kinds if kind != "null"]
        if kind == "array":
            return self._list(schema)
        low, high = schema.get("minimum"), schema.get("maximum")
        if high is None or kind == "boolean":
            return kind
        return f"{kind}, {shown(low, schema)} to {shown(high, schema)}"

    def _list(self, schema: dict[str, Any]) -> str:
        least, most = schema.get("minItems"), schema.get("maxItems")
        items = self._type(schema["items"])
        if target(schema["items"]):
            # A link: "[an operation](#operations)" becomes "[operations](#operations)".
            return re.sub(r"^\[(?:an? )?(.*?)\]", r"list of [\1s]", items)
        if least is None:
            return f"list of {plural(items)}"
        return f"{least} {plural(items)}" if least == most else f"{least} to {most} {plural(items)}"

    def _named(self, name: str) -> str:
        """Returns the link to a definition."""
        if name in PLACES:
            return PLACES[name]
        table = self._definitions[name]
        if "properties" in table:
            self._want(self._tables, name)
            return f"[table](#{anchor(heading(name))})"
        self._want(self._values, name)
        some = table.get("enum") or [one["const"] for one in table.get("oneOf", [])]
        text = words([f"`{one}`" for one in some], "or") if 0 < len(some) <= FEW else heading(name).lower()
        return f"[{text}](#{anchor(heading(name))})"

    def _want(self, names: list[str], name: str) -> None:
        if name not in names:
            names.append(name)


def of_kinds(description: str, kinds: Iterable[str]) -> dict[str, str]:
    """Returns what is said of a key for each kind, in `For KIND: text For KIND, KIND and KIND: text`; nothing if all kinds have the key."""
    one = f"(?:{'|'.join(kinds)})"
    parts = re.split(rf"(?:^|\s)For ({one}(?:(?:, | and ){one})*): ", description)
    return {kind: text for some, text in zip(parts[1::2], parts[2::2]) for kind in re.split(", | and ", some)}


def heading(name: str) -> str:
    """Returns the heading of a definition: `NumberOrRange` is "Number or range"."""
    if name in HEADINGS:
        return HEADINGS[name]
    return re.sub(r"(?<!^)(?=[A-Z])", " ", name_of(name)).capitalize()


def anchor(text: str) -> str:
    """Returns the anchor that GitHub makes of a heading."""
    return re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")


def unwrapped(text: str) -> str:
    """Returns a doc comment with each paragraph and each item of a list on one line."""
    return re.sub(r"(?<=\S)\n +(?=\S)|(?<=\S)\n(?=[^\n-])", " ", text)


def paragraphs(text: str) -> list[str]:
    return unwrapped(text).split("\n\n")


def sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def split_default(text: str) -> tuple[str, str]:
    """Returns what is said of a key, and its default if the text ends with one."""
    if text.endswith(" Required."):
        return text.removesuffix(" Required."), "required"
    about, _, default = text.partition(" Default: ")
    return about, default.removesuffix(".")


def shown(value: Any, schema: dict[str, Any]) -> str:
    """Returns a value as a job file has it: a number of single precision with the digits that it needs."""
    if isinstance(value, list):
        return f"[{', '.join(shown(one, schema.get('items', schema) if schema.get('type') == 'array' else schema) for one in value)}]"
    if isinstance(value, float):
        digits = next(digits for digits in range(1, 18) if single(float(f"{value:.{digits}g}")) == single(value))
        return f"{float(f'{value:.{digits}g}'):g}" if digits < 7 else f"{value:.{digits}g}"
    return value if isinstance(value, str) else json.dumps(value)


def single(value: float) -> bytes:
    return struct.pack("<f", value)


def plural(text: str) -> str:
    """Returns the plural of a type: "integer, 0 to 9" is "integers, 0 to 9"."""
    head, comma, tail = text.partition(",")
    return f"{head}s{comma}{tail}"


def words(some: list[str], last: str) -> str:
    return f" {last} ".join([", ".join(some[:-1]), some[-1]] if len(some) > 1 else some)


def rendered(head: list[str], rows: Iterable[list[str]]) -> str:
    """Returns a table."""
    cells = [[one_line(cell).replace("|", "\\|") for cell in row] for row in rows]
    return "\n".join([f"| {' | '.join(row)} |" for row in [head]] + ["|" + "---|" * len(head)] + [f"| {' | '.join(row)} |" for row in cells])


if __name__ == "__main__":
    if len(sys.argv) > 1:
        sys.exit(__doc__)
    print(Reference(read_schema()).text())
