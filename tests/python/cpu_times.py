"""A plugin of pytest that adds up the CPU time of each test, with that of the processes that it has waited for, and lists the costliest:
how long a test takes depends on what runs beside it, and most time passes in waiting."""

from __future__ import annotations

import collections
import resource
from collections.abc import Generator

import forks
import pytest

#: How many tests are listed.
LISTED = 40
#: The CPU time of each test in seconds, by its name.
SPENT: collections.defaultdict[str, float] = collections.defaultdict(float)
#: The name of a report's property.
PROPERTY = "cpu_s"


def spent() -> float:
    """Returns the CPU time so far of this process and of those that it has waited for."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, bool | None, bool | None]:
    """Begins to count."""
    item.stash[BEGAN] = spent()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Notes what a part of the test has taken: what it sets up for others too is its own."""
    report = yield
    now = spent()
    report.user_properties.append((PROPERTY, now - item.stash[BEGAN]))
    item.stash[BEGAN] = now
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    SPENT[report.nodeid] += sum(value for name, value in report.user_properties if name == PROPERTY and isinstance(value, float))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Lists the costliest tests, if any have run."""
    if not SPENT:
        return
    for name, seconds in forks.spent(terminalreporter.config):
        SPENT[name] += seconds
    terminalreporter.section(f"{LISTED} costliest tests, of {sum(SPENT.values()):.0f} CPU s of all")
    for name, seconds in sorted(SPENT.items(), key=lambda test: -test[1])[:LISTED]:
        terminalreporter.write_line(f"{seconds:8.1f} CPU s  {name}")


#: What the process and those that it has waited for had taken when a test, or its last part, began.
BEGAN = pytest.StashKey[float]()
