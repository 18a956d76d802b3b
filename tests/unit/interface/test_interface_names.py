"""`import meshmark` offers the public names and does not delay commands."""

from __future__ import annotations

import ast
import inspect
import json
import re
import subprocess
import sys
from importlib import import_module
from importlib.metadata import version

import pytest

import meshmark as mm
from support.paths import ROOT

SHARED = {"measure", "model", "compare", "watch"}  # names of functions and of packages
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


def test_importing_it_imports_nothing_else() -> None:
    """Every command starts through it, so further imports would delay every command."""
    code = "import sys; before = {*sys.modules}; import meshmark; print(sorted({*sys.modules} - before))"
    completed = subprocess.run(
        [sys.executable, "-S", "-c", code],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(ROOT / "src")},
        check=True,
    )
    assert completed.stdout == "['meshmark']\n"


def test_every_name_exists_is_listed_and_documented() -> None:
    assert mm.__version__ == version("meshmark")
    assert {*mm.__all__} <= {*dir(mm)}
    for name in mm.__all__:
        attribute = getattr(mm, name)
        assert name == "__version__" or (inspect.getdoc(attribute) and attribute.__module__.startswith("meshmark.")), (
            name
        )
    with pytest.raises(AttributeError, match="module 'meshmark' has no attribute 'recrods'"):
        mm.recrods  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.parametrize("name", sorted(SHARED))
def test_a_function_with_the_name_of_a_package_stays_one(name: str) -> None:
    """The import of a package sets an attribute of its parent."""
    code = f"import meshmark as mm, meshmark.{name}; a = mm.{name}; import importlib; importlib.import_module("
    code += f"'meshmark.{name}'); print(callable(a), callable(mm.{name}), mm.{name}.__module__)"
    completed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert completed.stdout == "True True meshmark.interface\n"
    assert {p.name for p in (ROOT / "src" / "meshmark").iterdir()} >= {name}
    assert import_module(f"meshmark.{name}").__name__ == f"meshmark.{name}"


def test_no_code_reaches_those_packages_through_attributes() -> None:
    """Imports of the form `from package import module` work; `import … as`, and patches of texts, do not."""
    pattern = re.compile(
        rf"import meshmark\.({'|'.join(SHARED)})\.[\w.]+ as |(setattr|patch)\(\s*\"meshmark\.({'|'.join(SHARED)})\."
    )
    files = [p for folder in ("src", "tests", "bench", "docs") for p in (ROOT / folder).rglob("*.py")]
    assert [p.name for p in files if pattern.search(p.read_text(encoding="utf-8"))] == []


def test_type_checkers_and_programs_find_the_same_names() -> None:
    tree = ast.parse((ROOT / "src" / "meshmark" / "__init__.py").read_text(encoding="utf-8"))
    block = next(n for n in tree.body if isinstance(n, ast.If))
    names = {(n.module, a.name) for n in block.body if isinstance(n, ast.ImportFrom) for a in n.names}
    assert {name for _, name in names} | {"__version__"} == {*mm.__all__}
    assert all(getattr(import_module(str(module)), name) is getattr(mm, name) for module, name in names)


def test_the_reference_and_no_other_page_has_every_name() -> None:
    page = (ROOT / "docs" / "reference" / "python.md").read_text(encoding="utf-8")
    assert [
        name for name in mm.__all__ if not re.search(rf"auto\w+:: meshmark\.\w*\.?{name}\b|`mm\.{name}", page)
    ] == []


def public(tree: ast.AST) -> set[str]:
    return {
        n.attr
        for n in ast.walk(tree)
        if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name) and n.value.id == "mm"
    }


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: str(p.stem))
def test_a_notebook_uses_documented_names_of_plain_python(path: object) -> None:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]  # type: ignore[attr-defined]
    code = ["".join(c["source"]) for c in cells if c["cell_type"] == "code"]
    assert code and not any(line.startswith(("%", "!")) for source in code for line in source.splitlines())
    names = {name for source in code for name in public(ast.parse(source))}
    assert names and names <= {*mm.__all__}


def test_there_are_notebooks_which_are_small() -> None:
    assert len(NOTEBOOKS) == 4 and sum(p.stat().st_size for p in NOTEBOOKS) < 600_000
