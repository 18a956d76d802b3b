"""A pytest plugin: learns which tests execute which functions of the mutated files, or runs the tests of one function.

`python.py` loads it with `-p covering`. MUTATION_TESTS names the file of what was learned: the seconds of each test,
and the tests that execute each function. With MUTATION_RUN, a list of tests, only these run, in this order, after
tests that were not known then. Tests that start the command `meshmark` are left out.
"""

from __future__ import annotations

import inspect
import json
import os
import re
from collections import defaultdict
from pathlib import Path

import pytest

LEARNED = Path(os.environ["MUTATION_TESTS"])
RUN = json.loads(os.environ.get("MUTATION_RUN", "null"))
_seconds: dict[str, float] = {}
_tests: defaultdict[str, set[str]] = defaultdict(set)


def pytest_configure() -> None:
    if RUN is None:  # in this process only: programs that tests start must not record
        from mutmut.mutation.trampoline import set_mutant_under_test

        set_mutant_under_test("stats")
        del os.environ["MUTANT_UNDER_TEST"]


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _seconds[report.nodeid] = _seconds.get(report.nodeid, 0.0) + report.duration


def pytest_runtest_teardown(item: pytest.Item) -> None:
    from mutmut.state import state

    executed = vars(state())["_stats"]  # mutmut has no public name for it
    for function in executed:
        _tests[function].add(item.nodeid)
    executed.clear()


def _starts_command(item: pytest.Item) -> bool:
    """Return whether a test starts the command `meshmark`, whose functions run in another process, and which takes
    seconds."""
    return (
        isinstance(item, pytest.Function) and re.search(r"\bmeshmark\(", inspect.getsource(item.function)) is not None
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items[:] = [item for item in items if not _starts_command(item)]
    if RUN is None:
        return
    seconds = json.loads(LEARNED.read_text(encoding="utf-8"))["seconds"]
    order = {test: position for position, test in enumerate(RUN)}
    items[:] = [item for item in items if item.nodeid in order or item.nodeid not in seconds]
    items.sort(key=lambda item: order.get(item.nodeid, -1))


def pytest_sessionfinish(session: pytest.Session) -> None:
    if RUN is None and not session.testsfailed:
        coverage = {"seconds": _seconds, "tests": {function: sorted(tests) for function, tests in _tests.items()}}
        LEARNED.write_text(json.dumps(coverage), encoding="utf-8")
