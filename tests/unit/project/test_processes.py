"""Child processes are started in one place, and never by a copy of this interpreter, which may wait for a lock."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from support.paths import ROOT

FORKS = {"fork", "forkpty"}  # attributes of os; `fork` is a start method of multiprocessing, too


def forks(source: str) -> Iterator[int]:
    """Yield the lines that run Python code between fork and exec, or without an exec."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.keyword) and node.arg == "preexec_fn":
            yield node.value.lineno
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
            methods = [a.value for a in node.args if isinstance(a, ast.Constant)]
            if name in FORKS or (name in {"get_context", "set_start_method"} and methods != ["spawn"]):
                yield node.lineno
            if (
                name == "Process"
                and isinstance(node.func, ast.Attribute)
                and ast.unparse(node.func) == "multiprocessing.Process"
            ):
                yield node.lineno


@pytest.mark.parametrize(
    "line",
    [
        "subprocess.Popen(['x'], preexec_fn=f)",
        "os.fork()",
        "multiprocessing.get_context('fork')",
        "multiprocessing.get_context()",
        "multiprocessing.Process(target=f)",
    ],
)
def test_a_fork_is_found(line: str) -> None:
    assert list(forks(line)) == [1]


def test_no_module_forks_the_interpreter() -> None:
    paths = sorted((ROOT / "src").rglob("*.py"))
    assert paths
    assert [f"{path.relative_to(ROOT)}:{line}" for path in paths for line in forks(path.read_text())] == []


def test_one_module_starts_processes() -> None:
    starts = re.compile(
        r"\bsubprocess\.(run|Popen|call|check_call|check_output|getoutput)\(|\bos\.(system|popen|posix_spawn|spawn)"
    )
    source = ROOT / "src" / "meshmark"
    assert {str(p.relative_to(source)) for p in source.rglob("*.py") if starts.search(p.read_text())} == {"process.py"}
