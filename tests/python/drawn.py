"""A plugin of pytest that draws among tests that take minutes, and tells what it has drawn.

It draws where `SPDL_TEST_DRAW` has a number: another number draws others, and the same number the same. `tests/python/run` sets it where
all tests are asked for, and so `cargo test` does. All tests run of the files that `SPDL_TEST_WHOLE` names.
"""

from __future__ import annotations

import os
import pathlib
import random
from typing import Any

import pytest

ROOT = pathlib.Path(__file__).parents[2]
#: Of each group, how many tests were drawn, and of how many.
DRAWN: dict[str, tuple[int, int]] = {}


def pytest_configure(config: pytest.Config) -> None:
    told = "drawn(count, group=None, by=None): of the cases of this test, of the tests of this file, or of all tests of a group, so many run where "
    told += "`SPDL_TEST_DRAW` is set to the number that draws them; with `by`, so many values of this parameter"
    config.addinivalue_line("markers", told)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Draws the tests that run. Those that take minutes come first, so that at the end no process runs one of them alone."""
    items.sort(key=lambda item: item.get_closest_marker("drawn") is None)
    number = os.environ.get("SPDL_TEST_DRAW")
    if not number:
        return
    whole = {ROOT / name for name in os.environ.get("SPDL_TEST_WHOLE", "").split()}
    groups: dict[str, dict[Any, list[pytest.Item]]] = {}
    for item in items:
        if (marker := item.get_closest_marker("drawn")) and item.path not in whole:
            own = any(marker.name == "drawn" for marker in item.own_markers)
            group = marker.kwargs.get("group") or item.nodeid.split("[" if own else "::")[0]
            by = marker.kwargs.get("by")
            groups.setdefault(group, {}).setdefault(item if by is None else item.callspec.params[by], []).append(item)  # type: ignore[attr-defined]
    left_out: set[pytest.Item] = set()
    for name, of_group in groups.items():
        marker = next(iter(of_group.values()))[0].get_closest_marker("drawn")
        assert marker
        count = min(marker.args[0], len(of_group))
        DRAWN[name] = (count, len(of_group))
        for items_of in random.Random(f"{number} {name}").sample(list(of_group.values()), len(of_group) - count):
            left_out.update(items_of)
    config.hook.pytest_deselected(items=list(left_out))
    items[:] = [item for item in items if item not in left_out]


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Gives what was drawn to the process that prints the summary, if this is one of pytest-xdist's."""
    if (output := getattr(session.config, "workeroutput", None)) is not None:
        output["drawn"] = DRAWN


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Takes it from there. All of these processes have drawn the same."""
    DRAWN.update(getattr(node, "workeroutput", {}).get("drawn", {}))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Tells what was drawn, in a line."""
    if DRAWN:
        groups = ", ".join(f"{count} of {of} {name}" for name, (count, of) in sorted(DRAWN.items()))
        terminalreporter.write_line(f"drawn: {groups}; with SPDL_TEST_ALL=1 all run, with SPDL_TEST_DRAW={os.environ['SPDL_TEST_DRAW']} these again")
