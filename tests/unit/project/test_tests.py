"""Rules for the tests themselves: no hidden skips, and a home folder that no user shares."""

from __future__ import annotations

import ast
import os
import pwd
import re
from collections import Counter
from pathlib import Path

import pytest

from support.paths import ROOT

PYTHON = sorted((ROOT / "tests").rglob("*.py"))


def test_no_test_is_skipped_where_something_is_not_built() -> None:
    """What the system lacks is skipped; what `make setup` builds must exist, or the test fails."""
    skips = re.compile(r"(skip|skipif|importorskip)\(.*(built|no build|this build|make setup)")
    lines = [(p.name, line) for p in (ROOT / "tests").rglob("test_*.py") for line in p.read_text().splitlines()]
    assert [result for result in lines if skips.search(result[1])] == []


def test_names_of_test_files_are_unique() -> None:
    """pytest refuses a second file of the same name, and `make fuzz` runs the tests of all folders at once."""
    names = Counter(p.name for p in PYTHON if p.name.startswith("test_"))
    assert [name for name, count in names.items() if count > 1] == []


def test_tests_have_an_own_home_and_miss_only_what_nobody_can_make() -> None:
    """Some programs create /nonexistent; nobody can create a file in /proc."""
    assert Path.home() != Path(pwd.getpwuid(os.getuid()).pw_dir)
    assert all(Path(os.environ[f"XDG_{name}_HOME"]).is_relative_to(Path.home()) for name in ("DATA", "CONFIG", "CACHE"))
    missing = re.compile(r"""["'](/nonexistent|/nowhere|/no/such)""")
    files = [p for p in (ROOT / "tests").rglob("test_*.py") if missing.search(p.read_text())]
    assert [p.name for p in files if p != Path(__file__)] == []


def private(node: ast.AST) -> str:
    """Return the private name of Meshmark that a node uses, or "". Private names of a test class itself are allowed."""

    def hidden(name: object) -> bool:
        return isinstance(name, str) and name.startswith("_") and not name.startswith("__")

    if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("meshmark"):
        return next((a.name for a in node.names if hidden(a.name)), "")
    if isinstance(node, ast.Attribute) and hidden(node.attr):
        owner = node.value.id if isinstance(node.value, ast.Name) else ""
        return "" if owner in {"self", "cls", "os"} else node.attr
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in {"setattr", "delattr"}:
        texts = [
            a.value.rpartition(".")[2]
            for a in node.args[:2]
            if isinstance(a, ast.Constant) and isinstance(a.value, str)
        ]
        return next((text for text in texts if hidden(text)), "")
    return ""


@pytest.mark.parametrize(
    "line",
    [
        "from meshmark.store.store import _x",
        "store._x",
        "build.f()._x()",
        'monkeypatch.setattr(build, "_x", 1)',
        'm.setattr("meshmark.web.server._x", 1)',
    ],
)
def test_a_private_name_is_found(line: str) -> None:
    assert [names for node in ast.walk(ast.parse(line)) if (names := private(node))] == ["_x"]


def test_tests_use_public_names_only() -> None:
    """A test of a private function depends on the implementation, and does not notice that the function is used
    wrongly."""
    lines = [
        f"{file.name}:{node.lineno}: {name}"  # type: ignore[attr-defined]
        for file in PYTHON
        for node in ast.walk(ast.parse(file.read_text()))
        if (name := private(node))
    ]
    assert lines == []


# Tests wait for a condition; a simulated program may be slow on purpose.
MAY_SLEEP = {ROOT / "tests" / "support" / name for name in ("waiting.py", "fake_probe.py")}


def sleeps(node: ast.AST) -> bool:
    if isinstance(node, ast.ImportFrom):
        return node.module == "time" and any(a.name == "sleep" for a in node.names)
    return (
        isinstance(node, ast.Attribute)
        and node.attr == "sleep"
        and isinstance(node.value, ast.Name)
        and node.value.id in {"time", "asyncio"}
    )


def test_no_test_sleeps() -> None:
    """A fixed time is too short on slow machines and too long on all others: `support.waiting.until` waits for a
    condition."""
    lines = [
        f"{file.name}:{node.lineno}"  # type: ignore[attr-defined]
        for file in PYTHON
        if file not in MAY_SLEEP
        for node in ast.walk(ast.parse(file.read_text()))
        if sleeps(node)
    ]
    assert lines == []


def test_no_test_file_is_imported() -> None:
    """Code that two of them need is in tests/support, or in a module beside them."""
    lines = [(file.name, line) for file in PYTHON for line in file.read_text().splitlines()]
    assert [result for result in lines if re.search(r"\b(from|import) test_\w+ ?(import|$)", result[1])] == []
