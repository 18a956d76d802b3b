"""Files, classes and functions stay small enough to be understood."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.paths import ROOT

FILE_LINES, CLASS_LINES, FUNCTION_LINES, FOLDER_SOURCES = 600, 300, 100, 15
PYTHON = sorted((ROOT / "src").rglob("*.py"))
NATIVE = sorted(p for p in (ROOT / "native").rglob("*") if p.suffix in {".cpp", ".hpp", ".f90"})
TESTS = sorted(p for f in ("tests", "bench") for p in (ROOT / f).rglob("*") if p.suffix in {".py", ".cpp", ".hpp"})
# Files that should be split. A file that has become short enough leaves this list.
TOO_LONG: set[str] = set()
# Native classes and functions that should be split, by file. One that has become short enough leaves this list.
TOO_LONG_NATIVE: dict[str, set[str]] = {}


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def test_there_is_something_to_check() -> None:
    assert len(PYTHON) > 100 and len(NATIVE) > 100 and len(TESTS) > 100


def test_no_file_is_too_long() -> None:
    long = {name(p) for p in (*PYTHON, *NATIVE, *TESTS) if len(p.read_text().splitlines()) > FILE_LINES}
    assert long == TOO_LONG, "split what is new, and remove what is short enough from TOO_LONG"


def test_no_folder_has_too_many_sources() -> None:
    counts = Counter(path.parent for path in (*PYTHON, *NATIVE) if path.name != "__init__.py")
    assert {name(folder) for folder, count in counts.items() if count > FOLDER_SOURCES} == set()


@pytest.mark.parametrize("path", PYTHON, ids=name)
def test_no_class_or_function_is_too_long(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            limit = CLASS_LINES if isinstance(node, ast.ClassDef) else FUNCTION_LINES
            assert (node.end_lineno or 0) - node.lineno < limit, f"{node.name} is longer than {limit} lines"


def native_blocks(text: str) -> Iterator[tuple[str, bool, int]]:
    """Yield the name, whether it is a class, and the lines of each class and function of C++ that clang-format laid
    out.

    A definition ends with the brace that stands at the indentation at which it starts.
    """
    lines = text.splitlines()
    last = -1
    for start, line in enumerate(lines):
        head = line.strip()
        if start <= last or not head or head.startswith(("#", "/", "}", "namespace", "extern", "public:", "private:")):
            continue
        last = start
        while not lines[last].endswith(("{", ";", "}", "},", ":")) and last + 1 < len(lines):
            last += 1
            head += " " + lines[last].strip()
        of_class = re.match(r"(?:template <.*> )?(?:class|struct) (\w[\w:]*)[^=(]*{$", head)
        of_function = re.match(r"(?!if|for|while|switch|do|else|case|return)[^={]*?([\w:~]+)\(.*\)[^()]* ?{$", head)
        if head.count("(") != head.count(")"):  # the rest of a condition that contains a semicolon
            continue
        if match := of_class or of_function:
            brace = " " * (len(line) - len(line.lstrip())) + "}"
            end = next((i for i in range(last + 1, len(lines)) if lines[i].startswith(brace)), last)
            yield match[1], of_class is not None, end - start + 1


def test_native_definitions_are_found() -> None:
    text = """
struct A {
  int f(int a,
        int b) const {
    if (a) {
    }
    return 1;
  }
};
template <class T>
class B : A {
};
A::A(int x)
    : x_(x) {
  g([&] {
  });
}
int table[] = {
    1,
};
"""
    assert list(native_blocks(text)) == [("A", True, 8), ("f", False, 6), ("B", True, 3), ("A::A", False, 5)]


@pytest.mark.parametrize("path", [p for p in NATIVE if p.suffix != ".f90"], ids=name)
def test_no_native_class_or_function_is_too_long(path: Path) -> None:
    long = {
        block
        for block, of_class, lines in native_blocks(path.read_text())
        if lines > (CLASS_LINES if of_class else FUNCTION_LINES)
    }
    assert long == TOO_LONG_NATIVE.get(name(path), set()), "split what is new, and remove what is short enough"


def test_the_formatter_lays_out_all_python() -> None:
    files = {*PYTHON, *(p for folder in ("tests", "bench") for p in (ROOT / folder).rglob("*.py"))} - {Path(__file__)}
    assert not [name(p) for p in sorted(files) if re.search(r"# fmt: (skip|off)", p.read_text())]
