"""Tests of errors in files: one line names the place, the key, the value and the allowed values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

import pytest
from pydantic import AfterValidator, Field

from meshmark.errors import MeshmarkError, UsageError
from meshmark.values.inputs import LIST, Input, Label, Name, OneOf, checked


def even(number: int) -> int:
    if number % 2:
        raise ValueError("allowed: an even number")
    return number


@dataclass(frozen=True)
class Inner(Input):
    """A docstring that no error message contains."""

    size: Annotated[int, Field(ge=1, le=8), AfterValidator(even)] = 2
    rate: Annotated[float, Field(gt=0)] | None = None


@dataclass(frozen=True)
class Outer(Input):
    name: Name
    kind: Annotated[str, OneOf(("ring", "mesh"))] = "ring"
    on: bool = False
    one: Inner = Inner()
    many: Annotated[tuple[Inner, ...], LIST, Field(max_length=2)] = ()
    numbers: Mapping[Label, Annotated[float, Field(ge=0)]] = field(default_factory=dict)
    either: str | list[int] | None = None


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (3, "found 3; allowed: a table with name, kind, on, one, many, numbers, either"),
        ({}, "name: found nothing; allowed: printable text of 1 to 60 characters"),
        ({"name": ""}, "name: found ''; allowed: printable text of 1 to 60 characters"),
        ({"name": "a\nb"}, r"name: found 'a\nb'; allowed: printable text"),
        ({"name": "a", "kinds": 1}, "kinds: unknown key; did you mean kind?"),
        ({"kinds": 1}, "kinds: unknown key; did you mean kind?"),
        ({"name": "a", "x": 1}, "x: unknown key; allowed: name, kind, on, one, many, numbers, either"),
        ({"name": "a", "\x1b": 1}, r"'\x1b': unknown key; allowed: name, kind, on, one, many, numbers, either"),
        ({"name": "a", "kind": "rings"}, "kind: found 'rings'; allowed: ring, mesh; did you mean ring?"),
        ({"name": "a", "on": 1}, "on: found 1; allowed: true and false"),
        ({"name": "a", "one": []}, "one: found []; allowed: a table with size, rate"),
        ({"name": "a", "one": {"size": 9}}, "one.size: found 9; allowed: an integer from 1 to 8"),
        ({"name": "a", "one": {"size": True}}, "one.size: found True; allowed: an integer from 1 to 8"),
        ({"name": "a", "one": {"size": 2.0}}, "one.size: found 2.0; allowed: an integer from 1 to 8"),
        ({"name": "a", "one": {"size": 3}}, "one.size: found 3; allowed: an even number"),
        ({"name": "a", "one": {"rate": "1"}}, "one.rate: found '1'; allowed: a number above 0"),
        ({"name": "a", "one": {"rate": float("nan")}}, "one.rate: found nan; allowed: a number above 0"),
        ({"name": "a", "one": {"rates": 1}}, "one.rates: unknown key; did you mean rate?"),
        ({"name": "a", "many": [{}, {"size": 0}]}, "many[1].size: found 0; allowed: an integer from 1 to 8"),
        ({"name": "a", "many": 1}, "many: found 1; allowed: a list of 0 to 2 entries, each a table with size, rate"),
        ({"name": "a", "numbers": {"x.y": -1}}, "numbers.x.y: found -1; allowed: a number from 0"),
        ({"name": "a", "either": 3}, "either: found 3; allowed: printable text or a list of entries, each an integer"),
        (
            {"name": "a", "either": {"x": 1}},
            "either: found {'x': 1}; allowed: printable text or a list of entries, each an integer",
        ),
        ({"name": "a", "numbers": {"": 1}}, "numbers: found ''; allowed: printable text of 1 to 120 characters"),
    ],
)
def test_an_error_names_the_key_and_what_is_allowed(raw: Any, said: str) -> None:
    with pytest.raises(UsageError) as error:
        checked(Outer, raw, "a.toml")
    assert str(error.value) == f"a.toml: {said}"


def test_what_is_right_is_read_with_its_defaults() -> None:
    outer = checked(Outer, {"name": "a", "many": [{"size": 4, "rate": 1}], "numbers": {"x": 2}}, "a.toml")
    assert outer == Outer(name="a", many=(Inner(size=4, rate=1.0),), numbers={"x": 2.0})


def test_the_error_is_of_the_kind_that_the_caller_needs() -> None:
    with pytest.raises(MeshmarkError) as error:
        checked(Outer, [], "a.json", MeshmarkError)
    assert error.type is MeshmarkError
