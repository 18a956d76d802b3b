"""The structure of the source that import-linter cannot express."""

from __future__ import annotations

import ast
from graphlib import TopologicalSorter

from support.paths import ROOT

SOURCE = ROOT / "src"


def imports() -> dict[str, set[str]]:
    """Return the modules of Meshmark that each module imports, including imports within functions."""
    files = {
        ".".join(p.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__"): p for p in SOURCE.rglob("*.py")
    }
    imported: dict[str, set[str]] = {}
    for module, path in files.items():
        imported[module] = set()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module in files:
                names = {f"{node.module}.{alias.name}" for alias in node.names}
                imported[module] |= names & files.keys() or {node.module}
        imported[module].discard(module)
    return imported


def test_no_module_imports_itself_through_others() -> None:
    list(TopologicalSorter(imports()).static_order())  # raises an error that names a cycle


def test_only_the_command_line_imports_the_validation() -> None:
    package, importers = "meshmark.validation", set()
    for module, imported in imports().items():
        if not module.startswith(package) and any(name.startswith(package) for name in imported):
            importers.add(module)
    assert importers and all(name.startswith("meshmark.cli.") for name in importers), importers
