"""The structure of the source where import-linter has no word for it: no circles, few rooms, few arrows."""

from __future__ import annotations

import ast
from graphlib import TopologicalSorter

from support.paths import ROOT

SOURCE = ROOT / "src"


def imports() -> dict[str, set[str]]:
    """Modules of ours that each imports, within functions too."""
    files = {
        ".".join(p.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__"): p for p in SOURCE.rglob("*.py")
    }
    found: dict[str, set[str]] = {}
    for module, path in files.items():
        found[module] = set()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module in files:
                whole = {f"{node.module}.{alias.name}" for alias in node.names}
                found[module] |= whole & files.keys() or {node.module}
        found[module].discard(module)
    return found


def test_no_module_imports_itself_through_others() -> None:
    list(TopologicalSorter(imports()).static_order())  # which names a circle


def test_rooms_are_few_know_few_others_and_stand_on_few_floors() -> None:
    def room(module: str) -> str:
        return ".".join(module.split(".")[:2]) if module.count(".") > 1 else ""

    found = imports()
    rooms = {room(m) for m in found} - {""}
    arrows = {(room(a), room(b)) for a, them in found.items() for b in them if "" != room(a) != room(b) != ""}
    floor: dict[str, int] = {}
    for one in TopologicalSorter({r: {b for a, b in arrows if a == r} for r in rooms}).static_order():
        floor[one] = 1 + max((floor[b] for a, b in arrows if a == one), default=0)
    floors = max(floor.values())
    assert len(rooms) <= 15 and floors <= 7 and len(arrows) <= 67, f"{len(rooms)} rooms, {floors} floors, {arrows}"
