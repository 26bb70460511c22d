"""Writes `python/spdl_cluster/job.py`, the types of a job's keys, from the JSON Schema of job files.

usage: job_types.py > python/spdl_cluster/job.py
"""

from __future__ import annotations

import json
import keyword
import pathlib
import sys
from collections.abc import Iterator
from typing import Any

ROOT = pathlib.Path(__file__).parents[2]
SCHEMA = ROOT / "examples/job.schema.json"
#: Names of tables in Python, where they differ from the schema's without `File`.
NAMES = {"ImageOp": "Operations", "SoundOp": "SoundOperations", "OrderFile": "Order", "ColumnFile": "Column", "SequenceFile": "Sequences", "JobSourceFile": "Source",
         "JobStageFile": "SourceStage"}
#: What dicts take beside what job files take: functions and paths as they are.
MORE = {
    ("Job", "dataset"): "str | os.PathLike[str]",
    ("Source", "dataset"): "str | os.PathLike[str]",
    ("Column", "transform"): "str | Callable[..., Any]",
    ("Function", "call"): "str | Callable[..., Any]",
}
PLAIN = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}
HEAD = '''"""The keys of a job as types, for a dict that editors complete and type checkers check. They do nothing at run time.

    image: spdl_cluster.Column = {"name": "image", "from": "jpg", "decode": "image", "ops": [{"resize": 256}, {"center_crop": 224}]}
    job: spdl_cluster.Job = {"name": "first", "dataset": "dataset", "global_batch": 64, "column": [image]}

Made from `examples/job.schema.json` by `tests/python/job_types.py`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypedDict
'''


def read_schema() -> dict[str, Any]:
    """Returns the JSON Schema of job files, which `spdl-ctl job schema` prints."""
    schema: dict[str, Any] = json.loads(SCHEMA.read_text(encoding="utf-8"))
    return schema


def target(schema: dict[str, Any]) -> str:
    """Returns the name of the definition that a schema refers to, or nothing."""
    name: str = schema.get("$ref", "").rpartition("/")[2]
    return name


def name_of(definition: str) -> str:
    """Returns the name of a definition without what only the Rust code needs."""
    return NAMES.get(definition, definition.removesuffix("File"))


def one_line(text: str) -> str:
    return " ".join(text.split())


def operations(some: list[dict[str, Any]]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yields name, description and keys of each operation, from the tables with a key each that `ImageOp` or `SoundOp` allows."""
    for table in some:
        [(name, keys)] = table["properties"].items()
        yield name, table.get("description", ""), keys


class Types:
    """The types of a schema."""

    def __init__(self, schema: dict[str, Any]) -> None:
        self._definitions: dict[str, Any] = schema["definitions"]
        #: The text of each table, in the order in which they can be read.
        self._tables: dict[str, str] = {}
        self._table("Job", schema)

    def text(self) -> str:
        """Returns the module."""
        return "\n\n\n".join([HEAD.rstrip("\n"), *self._tables.values()])

    def _table(self, name: str, schema: dict[str, Any], more: dict[str, Any] | None = None) -> str:
        """Adds a table and returns its name. `more` has shorter values of its keys."""
        if name in self._tables:
            return name
        # Operations contain operations.
        self._tables[name] = ""
        required = set(schema.get("required", []))
        lines: dict[bool, list[str]] = {True: [], False: []}
        keywords: dict[str, str] = {}
        for key, value in schema["properties"].items():
            kind = MORE.get((name, key)) or self._type(value, pascal(key))
            if more and key in more:
                kind = united([kind, self._type(more[key], pascal(key))])
            if keyword.iskeyword(key):
                keywords[key] = kind
                continue
            about = one_line(value.get("description") or (more or {}).get(key, {}).get("description", ""))
            lines[key in required] += [f"    #: {about}" if about else "", f"    {key}: {kind}"]
        bases = ["TypedDict"]
        text = ""
        if keywords:
            bases = [f"_{name}Keywords"]
            text += f"{bases[0]} = TypedDict(\"{bases[0]}\", {{{', '.join(f'{json.dumps(key)}: {json.dumps(kind)}' for key, kind in keywords.items())}}}, total={keywords.keys() <= required})\n\n\n"
        about = one_line(schema.get("description", "").split("\n\n")[0]) or f"The keys of `{name}`."
        docs = f'    """{about}"""\n\n'
        if lines[True]:
            text += f"class _{name}Required({bases[0]}):\n" + body(lines[True]) + "\n\n\n"
            bases = [f"_{name}Required"]
        text += f"class {name}({bases[0]}, total=False):\n{docs}" + (body(lines[False]) or "    pass")
        self._tables[name] = text
        return name

    def _type(self, schema: dict[str, Any], name: str) -> str:
        """Returns the type of a value as a text; `name` is for a table that has no name of its own."""
        if definition := target(schema):
            return self._type(self._definitions[definition], name_of(definition))
        if "const" in schema:
            return literal([schema["const"]])
        if "enum" in schema:
            return literal(schema["enum"])
        if "allOf" in schema:
            [one] = schema["allOf"]
            return self._type(one, name)
        if "anyOf" in schema or "oneOf" in schema:
            some = schema.get("anyOf") or schema["oneOf"]
            tables = [one for one in some if "properties" in one]
            if len(tables) > 1:
                return self._operations(name, some)
            if name in ("Operation", "SoundOperation"):
                return self._operation(some)
            if all(one.get("type") == "array" and "items" in one for one in some):
                # A type checker infers the type of a list that is written out only if all lists have one type.
                return f"Sequence[{united([self._type(one['items'], name) for one in some])}]"
            return united([self._type(one, name) for one in some])
        kinds = schema.get("type")
        if isinstance(kinds, list):
            return united([self._type({**schema, "type": kind}, name) for kind in kinds])
        if kinds == "array":
            return f"Sequence[{self._type(schema['items'], name)}]" if "items" in schema else "Sequence[Any]"
        if kinds == "object":
            return self._table(name, schema) if "properties" in schema else "dict[str, Any]"
        return PLAIN[kinds] if kinds else "Any"

    def _operations(self, name: str, some: list[dict[str, Any]], more: dict[str, Any] | None = None) -> str:
        """Returns a table for one of several tables with a key each."""
        one = {}
        for key, about_it, value in operations(some):
            one[key] = {"description": about_it, **value} if value.get("properties") else value
        about = {"description": "An operation: one of these keys.", "properties": one}
        return self._table(name, about, more)

    def _operation(self, some: list[dict[str, Any]]) -> str:
        """Returns an operation: in full, by its name alone, or short."""
        full, *names, short = some
        tables = self._definitions[target(full)]["oneOf"]
        return united([self._operations(NAMES[target(full)], tables, short["properties"]), *(self._type(one, "") for one in names)])


def pascal(key: str) -> str:
    return "".join(part.capitalize() for part in key.split("_"))


def body(lines: list[str]) -> str:
    return "\n".join(line for line in lines if line)


def literal(values: list[Any]) -> str:
    return f"Literal[{', '.join(map(json.dumps, values))}]"


def united(kinds: list[str]) -> str:
    """Returns the union of types, each once, of which those of literals are joined."""
    literals = [kind[len("Literal[") : -1] for kind in kinds if kind.startswith("Literal[") and " | " not in kind]
    others = [kind for kind in kinds if not (kind.startswith("Literal[") and " | " not in kind)]
    if literals:
        others.insert(0, f"Literal[{', '.join(literals)}]")
    parts = list(dict.fromkeys(part for kind in others for part in split(kind)))
    if "None" in parts:
        parts.remove("None")
        parts.append("None")
    return " | ".join(parts)


def split(kind: str) -> list[str]:
    """Returns the parts of a union at its top."""
    parts, depth = [""], 0
    for word in kind.split(" | "):
        parts[-1] += (" | " if parts[-1] else "") + word
        depth += word.count("[") - word.count("]")
        if depth == 0:
            parts.append("")
    return [part for part in parts if part]


if __name__ == "__main__":
    if len(sys.argv) > 1:
        sys.exit(__doc__)
    print(Types(read_schema()).text())
