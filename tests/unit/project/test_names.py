"""A class has a name of its own, so that a name in a message, a search or a trace means one class."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator

from support.paths import ROOT

SOURCES = ROOT / "src" / "meshmark"
NATIVE = ROOT / "native"
# What is not code: comments, literals and lines of the preprocessor.
NOT_CODE = re.compile(
    r"""//[^\n]*|/\*.*?\*/                            # comments
    |R"([^(\s]*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"        # texts
    |(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])*'              # characters, but not the separators of 1'000
    |^[ \t]*\#(?:\\\n|[^\n])*                         # the preprocessor
    """,
    re.DOTALL | re.MULTILINE | re.VERBOSE,
)
# The end of the text before the brace of a type's definition. The arguments of a specialization follow its name, so a
# specialization is not a match.
DEFINITION = re.compile(
    r"""\b(?:struct|class|union|enum(?:\s+(?:class|struct))?)\s+
    (?:alignas\([^)]*\)\s*|\[\[[^\]]*\]\]\s*|__attribute__\(\([^)]*\)\)\s*)*
    (?P<name>[A-Za-z_][\w:]*)(?:\s+final)?\s*(?::[^;{}()]*)?$""",
    re.VERBOSE,
)


def blank(match: re.Match[str]) -> str:
    """Return spaces in place of a match, with its line ends, so that line numbers stay the same."""
    return re.sub(r"[^\n]", " ", match.group())


def native_types(text: str) -> Iterator[tuple[str, int]]:
    """Yield the name and the line of each type that a C++ source defines outside of other types.

    A member of another type (`struct Team::State`) is known by both names, so it may share its own name.
    """
    code = NOT_CODE.sub(blank, text)
    are_types: list[bool] = []  # whether each open brace begins a type
    start = 0
    for brace in re.finditer(r"[{};]", code):
        if brace.group() == "{":
            definition = DEFINITION.search(code, start, brace.start())
            is_member = "::" in definition["name"] or are_types[-1:] == [True] if definition else False
            if definition and not is_member:
                yield definition["name"], code.count("\n", 0, definition.start("name")) + 1
            are_types.append(definition is not None)
        elif brace.group() == "}":
            are_types.pop()
        start = brace.end()


def shared(places: dict[str, list[str]]) -> dict[str, list[str]]:
    return {name: where for name, where in places.items() if len(where) > 1}


def test_class_names_are_unique() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for path in sorted(SOURCES.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                # An underscore does not make another name: `_Row` beside `Row` is as hard to tell apart.
                places[node.name.lstrip("_")].append(f"{path.relative_to(SOURCES)}:{node.lineno}")
    assert len(places) > 500
    assert shared(places) == {}


def test_native_class_names_are_unique() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for path in sorted(NATIVE.rglob("*")):
        if path.suffix in {".cpp", ".hpp"}:
            for name, line in native_types(path.read_text()):
                places[name].append(f"{path.relative_to(NATIVE)}:{line}")
    assert len(places) > 500
    assert shared(places) == {}


def test_native_types_are_recognized() -> None:
    text = """
    // struct Comment {
    struct Forward;
    namespace mm {
    template <class T>
    class Outer final : public Base<T> {
      struct Member {};
    };
    template <>
    struct Outer<int> {};
    enum class Level : int { low, high };
    struct Outer<int>::State {};
    struct Team::State {};
    int function(struct Outer* text = "struct Text {") {
      struct Local {
        int number = 1'000;
      } local;
      return local.number;
    }
    }
    """
    assert [name for name, _ in native_types(text)] == ["Outer", "Level", "Local"]
    assert dict(native_types(text))["Level"] == 11
