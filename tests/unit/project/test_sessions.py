"""One function locks files, and one module appends to journals."""

from __future__ import annotations

import ast
from collections.abc import Callable

import pytest

from support.paths import ROOT

SOURCE = ROOT / "src" / "meshmark"
# These append the output of a program, which is not a journal.
OUTPUTS = {"applications/attempt.py", "fleet/engines/processes.py"}


def appends(source: str) -> bool:
    """Return whether a module opens a file for appending."""
    for node in ast.walk(ast.parse(source)) if "open" in source else ():
        if isinstance(node, ast.Attribute) and node.attr == "O_APPEND":
            return True
        if isinstance(node, ast.Call) and "open" in ast.unparse(node.func):
            words = [*node.args, *(keyword.value for keyword in node.keywords)]
            modes = {a.value for a in words if isinstance(a, ast.Constant) and isinstance(a.value, str)}
            if any(mode.startswith("a") and set(mode) <= set("abt+") for mode in modes):
                return True
    return False


def modules_that(match: Callable[[str], bool]) -> set[str]:
    return {path.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*.py") if match(path.read_text())}


@pytest.mark.parametrize(
    "line",
    ['open_private(p, "ab", 0)', "path.open('a')", 'open(p, mode="a+b")', "os.open(p, os.O_WRONLY | os.O_APPEND)"],
)
def test_an_append_is_recognised(line: str) -> None:
    assert appends(line) and not appends('print("a"); open(p, "wb"); open("a/b", "rb")')


def test_one_module_locks_files() -> None:
    assert modules_that(lambda source: "fcntl" in source) == {"store/files.py"}
    assert (SOURCE / "store" / "files.py").read_text().count("fcntl.flock(") == 1


def test_one_module_appends_to_journals() -> None:
    assert modules_that(appends) == {"store/session.py", *OUTPUTS}
