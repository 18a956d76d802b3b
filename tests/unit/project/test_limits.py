"""Sizes that the project keeps: files, classes and functions that a reader can take in."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from support.paths import ROOT

FILE_LINES, CLASS_LINES, FUNCTION_LINES = 600, 300, 100
PYTHON = sorted((ROOT / "src").rglob("*.py"))
NATIVE = sorted(p for p in (ROOT / "native").rglob("*") if p.suffix in {".cpp", ".hpp", ".f90"})
# To be split. A file that is short enough leaves this list.
TOO_LONG = {
    "native/load/scenario.cpp",
}


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def test_there_is_something_to_check() -> None:
    assert len(PYTHON) > 100 and len(NATIVE) > 100


def test_no_file_is_too_long() -> None:
    long = {name(p) for p in (*PYTHON, *NATIVE) if len(p.read_text().splitlines()) > FILE_LINES}
    assert long == TOO_LONG, "split what is new, and remove what is short enough from TOO_LONG"


@pytest.mark.parametrize("path", PYTHON, ids=name)
def test_no_class_or_function_is_too_long(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            most = CLASS_LINES if isinstance(node, ast.ClassDef) else FUNCTION_LINES
            assert (node.end_lineno or 0) - node.lineno < most, f"{node.name} is longer than {most} lines"


def test_the_formatter_lays_out_all_python() -> None:
    files = {*PYTHON, *(p for folder in ("tests", "bench") for p in (ROOT / folder).rglob("*.py"))} - {Path(__file__)}
    assert not [name(p) for p in sorted(files) if re.search(r"# fmt: (skip|off)", p.read_text())]
