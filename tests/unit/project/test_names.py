"""A class has a name of its own, so that a name in a message, a search or a trace means one class."""

from __future__ import annotations

import ast
from collections import defaultdict

from support.paths import ROOT

SOURCES = ROOT / "src" / "meshmark"


def test_class_names_are_unique() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for path in sorted(SOURCES.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                # An underscore does not make another name: `_Row` beside `Row` is as hard to tell apart.
                places[node.name.lstrip("_")].append(f"{path.relative_to(SOURCES)}:{node.lineno}")
    assert len(places) > 500
    assert {name: where for name, where in places.items() if len(where) > 1} == {}
