"""Methods of tests by name. A method takes parameters of the catalogue and returns the effects that it found."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from meshmark.errors import MeshmarkError, near
from meshmark.validation.claims.bench import Bench
from meshmark.validation.claims.catalogue import Where
from meshmark.validation.claims.judging import Effect

Method = Callable[..., Sequence[Effect]]
METHODS: Final[dict[tuple[Where, str], Method]] = {}


def method(where: Where) -> Callable[[Method], Method]:
    """Register a function as a method of tests on the host, on models, or by computation, under its own name.

    Its first argument is the `Bench`; those on hosts and models get the name of the test, and those on models the
    machine; all others are parameters of the catalogue.
    """

    def register(function: Method) -> Method:
        METHODS[where, function.__name__] = function
        return function

    return register


def call(where: Where, name: str, bench: Bench, test: str, machine: str, parameters: Mapping[str, Any]) -> list[Effect]:
    """Run a method.

    Raises:
        MeshmarkError: There is no such method, or a parameter is missing or unknown; or what the method raises.
    """
    function = METHODS.get((where, name))
    if function is None:
        known = [n for w, n in METHODS if w == where]
        raise MeshmarkError(f"claims: method: found '{name}'; allowed: {', '.join(known)}", near(name, known))
    given: tuple[Any, ...] = {"host": (bench, test), "model": (bench, test, machine), "computed": ()}[where]
    try:
        return list(function(*given, **parameters))
    except TypeError as why:
        if "argument" not in str(why):
            raise
        raise MeshmarkError(f"claims: {name}: {why}") from why
