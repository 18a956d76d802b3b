"""Tests of argument checks: annotations define the allowed arguments, and messages name the invalid one."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import pytest

from meshmark.errors import MeshmarkError, UsageError
from meshmark.values.arguments import checked


class Machine:
    """A stand-in for a class of the public interface."""


@checked
def call(
    text: str = "",
    count: int = 0,
    number: float = 0.0,
    flag: bool = False,
    path: str | os.PathLike[str] = "",
    word: Literal["a", "b"] = "a",
    numbers: Sequence[float] = (),
    table: Mapping[str, int | None] | None = None,
    machine: Machine | None = None,
    anything: Any = None,
    option: object = "",
    /,
    *texts: str,
    **options: object,
) -> str:
    return f"{text}{count}"


NAMES = ["text", "count", "number", "flag", "path", "word", "numbers", "table", "machine", "anything", "option"]
DEFAULTS: list[Any] = ["", 0, 0.0, False, "", "a", (), None, None, None, ""]


def call_with(name: str, value: Any) -> str:
    arguments = [*DEFAULTS]
    arguments[NAMES.index(name)] = value
    return call(*arguments)


RIGHT: dict[str, list[Any]] = {
    "text": ["x", "é", "x" * 100_000],
    "count": [0, -3, 10**30],
    "number": [1, 1.5, -0.0],
    "flag": [True, False],
    "path": ["a/b", Path("a")],
    "word": ["a", "b"],
    "numbers": [[], [1, 2.5], (3,), range(3)],
    "table": [None, {}, {"a": 1, "b": None}],
    "machine": [None, Machine()],
    "anything": [object(), float("nan"), b"x", {1: 2}],
    "option": ["x", 1, 2.5, True, Path("a"), ["a", 1], ("b", 2.0), range(2)],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in RIGHT.items() for value in values])
def test_right_arguments_are_passed_on(name: str, value: Any) -> None:
    assert isinstance(call_with(name, value), str)


TEXT, FINITE = "allowed: a text", "allowed: a finite number"
OPTION = "allowed: a text, a number, true, false, a path, or a list of them"
WRONG: list[tuple[str, Any, str]] = [
    ("text", 3, f"found 3; {TEXT}"),
    ("text", None, f"found None; {TEXT}"),
    ("text", b"x", f"found a value of type bytes; {TEXT}"),
    ("text", "a\0b", r"found 'a\x00b'; allowed: text without null characters"),
    ("text", "\ud800", r"found '\ud800'; allowed: text without lone surrogates"),
    ("text", "\udfff", r"found '\udfff'; allowed: text without lone surrogates"),
    ("text", "x" * 100_001, "found a text of 100,001 characters; allowed: at most 100,000"),
    ("count", True, "found True; allowed: an integer"),
    ("count", 1.0, "found 1.0; allowed: an integer"),
    ("count", "1", "found '1'; allowed: an integer"),
    ("number", False, "found False; allowed: a number"),
    ("number", "1", "found '1'; allowed: a number"),
    ("number", float("inf"), f"found inf; {FINITE}"),
    ("number", float("nan"), f"found nan; {FINITE}"),
    ("number", 10**400, f"found {'1' + '0' * 400}"[:60]),
    ("flag", 1, "found 1; allowed: True, False"),
    ("flag", None, "found None; allowed: True, False"),
    ("path", 3, "found 3; allowed: a text or a path"),
    ("path", b"x", "found a value of type bytes; allowed: a text or a path"),
    ("path", Path("a\0"), r"found 'a\x00'; allowed: text without null characters"),
    ("word", "c", "found 'c'; allowed: a, b"),
    ("word", 1, "found 1; allowed: a, b"),
    ("numbers", 3, "found 3; allowed: a list"),
    ("numbers", "12", "found '12'; allowed: a list"),
    ("numbers", {1}, "found a value of type set; allowed: a list"),
    ("numbers", [1, "x"], "found 'x'; allowed: a number"),
    ("numbers", (1, True), "found True; allowed: a number"),
    ("table", [], "found a value of type list; allowed: a dictionary or None"),
    ("table", {1: 2}, "found 1 as a key; allowed: a text"),
    ("table", {"a\0": 2}, r"found 'a\x00'; allowed: text without null characters"),
    ("table", {"a": "x"}, "a: found 'x'; allowed: an integer or None"),
    ("machine", 3, "found 3; allowed: a meshmark.Machine or None"),
    ("option", None, f"found None; {OPTION}"),
    ("option", {"a": 1}, f"found a value of type dict; {OPTION}"),
    ("option", [["a"]], f"found a value of type list; {OPTION}"),
    ("option", ["a", None], f"found a value of type list; {OPTION}"),
    ("option", float("nan"), f"found nan; {OPTION}"),
    ("option", ["a", "b\0"], r"found 'b\x00'; allowed: text without null characters"),
]


@pytest.mark.parametrize(("name", "value", "message"), WRONG)
def test_wrong_arguments_are_refused_with_their_name(name: str, value: Any, message: str) -> None:
    with pytest.raises(UsageError) as refusal:
        call_with(name, value)
    assert str(refusal.value).startswith(f"call: {name}: {message}")


class Odd(os.PathLike[bytes]):
    def __fspath__(self) -> bytes:
        return b"x"


@pytest.mark.parametrize("name", ["path", "option"])
def test_a_path_of_bytes_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="found a value of type Odd; allowed: "):
        call_with(name, Odd())


def test_each_of_several_arguments_is_checked() -> None:
    assert call(*DEFAULTS, "a", "b", c=1, d=["x"]) == "0"
    untyped: Any = call
    attempts: list[tuple[Any, str]] = [
        (lambda: untyped(*DEFAULTS, "a", 3), "call: texts: found 3; allowed: a text"),
        (lambda: untyped(*DEFAULTS, c=None), "call: c: found None; allowed: "),
        (lambda: untyped(*DEFAULTS, **{"c\0": 1}), "call: option: found "),
        (lambda: untyped(text="x"), "call: 'text' parameter is positional only"),
    ]
    for attempt, message in attempts:
        with pytest.raises(UsageError) as refusal:
            attempt()
        assert str(refusal.value).startswith(message)


def test_missing_and_unknown_arguments_are_refused() -> None:
    @checked
    def needs(text: str) -> str:
        return text

    untyped: Any = needs
    attempts: list[Any] = [untyped, lambda: untyped("a", "b"), lambda: untyped(texts="a")]
    for attempt in attempts:
        with pytest.raises(UsageError, match=r"^needs: (missing|too many|got|missing a required)"):
            attempt()
    assert needs.__name__ == "needs" and needs("x") == "x"


def test_an_error_without_a_file_has_its_reason() -> None:
    @checked
    def fails() -> None:
        raise OSError(28, "No space left on device")

    @checked
    def fails_oddly() -> None:
        raise OSError("odd")

    with pytest.raises(MeshmarkError, match=r"^fails: No space left on device$"):
        fails()
    with pytest.raises(MeshmarkError, match=r"^fails_oddly: odd$"):
        fails_oddly()
