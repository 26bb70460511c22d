"""The user's functions in a job: a function that is given as an object is replaced by its name, as in a job file."""

from __future__ import annotations

import dataclasses
import functools
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple, Protocol

from . import _native
from .errors import SettingError
from .here import FunctionsHere


#: Of dicts and lists inside one another: more than the native half takes, which says so.
_MAX_DEPTH = 100


class DataclassObject(Protocol):
    """An object of a dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Any]]


#: A job: the path of a job file, a dict with the same keys, such as a `Job`, or an object of a dataclass with fields of these names.
AnyJob = Mapping[str, Any] | DataclassObject | str | os.PathLike[str]


class Program(NamedTuple):
    """A running program, for the processes that import it."""

    #: Whether it runs as a module, `python -m`, and not as a file.
    is_module: bool
    #: The name of the module, or the path of the file.
    code: str
    #: The program's arguments, its name first.
    sys_argv: list[str]


_IN_A_MODULE = (
    "put it into a separate module (in a notebook, a cell that begins with `%%writefile augment.py`), import that, and give `augment.{}`; "
    'or try it with `local(functions="here")`, which calls it in this process'
)


def plain(job: AnyJob, here: FunctionsHere | None = None) -> dict[str, Any] | str | os.PathLike[str]:
    """Returns a job as a dict of dicts and lists, in which each function is replaced by its name; a path as it is. Functions that are called `here` need
    none that other processes could find them by.

    Objects of dataclasses become dicts. A field that is `None` is left out, as a job file leaves out a key; one whose name ends with `_`, such as `from_`,
    is the key without it.
    """
    found: dict[str, Any] | str | os.PathLike[str] = _plain(job, _MAX_DEPTH)
    return _named(found, here) if isinstance(found, dict) else found


def _plain(value: object, depth: int) -> Any:
    if depth == 0:
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = ((field.name, getattr(value, field.name)) for field in dataclasses.fields(value))
        return {name.removesuffix("_"): _plain(content, depth - 1) for name, content in fields if content is not None}
    if isinstance(value, Mapping):
        return {key: _plain(content, depth - 1) for key, content in value.items()}
    return [_plain(content, depth - 1) for content in value] if isinstance(value, (list, tuple)) else value


def _named(job: Mapping[str, Any], here: FunctionsHere | None) -> dict[str, Any]:
    named = dict(job)
    for kind, subject, key in (("column", "name", "transform"), ("function", "call", "call")):
        tables = named.get(kind)
        if isinstance(tables, (list, tuple)):
            named[kind] = [_named_in(table, kind, subject, key, here) if isinstance(table, Mapping) else table for table in tables]
    return named


def job_text(job: AnyJob, name: str | None = None) -> str:
    """Returns a job, under another name if one is given, as the text of a job file that means the same in every folder."""
    return _native.job_text(plain(job), name)


def program() -> Program | None:
    """Returns the running program, for the processes that import it; `None` if it has no file: in a notebook, or typed
    in."""
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    if spec is not None and spec.name:
        return Program(True, str(spec.name), list(sys.argv))
    path = getattr(main, "__file__", None)
    if path is None or hasattr(main, "__IPYTHON__") or "get_ipython" in vars(main):
        return None
    return Program(False, os.path.abspath(path), list(sys.argv))


def _named_in(table: Mapping[str, Any], kind: str, subject: str, key: str, here: FunctionsHere | None) -> dict[str, Any]:
    named = dict(table)
    function = named.get(key)
    called = table.get(subject, "?")
    where = f"{kind} `{getattr(called, '__qualname__', called)}`: `{key}`"
    if here is not None:
        if callable(function):
            try:
                named[key] = here.name(function, _name(function, where))
            except SettingError:
                named[key] = here.name(function, None)
        return named
    if callable(function):
        named[key] = _name(function, where)
    name = named.get(key)
    if isinstance(name, str) and name.startswith("__main__:") and program() is None:
        path = name.partition(":")[2]
        raise SettingError(
            f"{where} is `{name}`, and the program has no file that other processes could import it from", _IN_A_MODULE.format(path)
        )
    return named


def _name(function: Callable[..., Any], where: str) -> str:
    """Returns `module:function`, after a check that this name gives this very function."""
    module, path = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    if not module or not path or "<" in path:
        what = f"`{path}`" if path else f"a `{type(function).__name__}`"
        raise SettingError(
            f"{where} is {what}, which has no name that other processes could find it by",
            "functions are called in processes of their own: define it with `def` or `class` at the top level of a module, and give fixed values as `arguments`; "
            '`local(functions="here")` calls any function, in this process',
        )
    try:
        found: Any = functools.reduce(getattr, path.split("."), sys.modules[module])
    except (AttributeError, KeyError):
        found = None
    if found is not function:
        raise SettingError(
            f"{where} is a function called `{path}`, and that of module `{module}` is another one",
            "functions are called in other processes, which find them by name: give the function that has the name",
        )
    return f"{module}:{path}"
