"""Methods of tests by name. A method takes parameters of the catalogue and returns the measured effects."""

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
    """Register a function under its name as a method of tests on the host, on models, or by computation.

    Methods on the host and on models take the `Bench` and the name of the test, and methods on models also the machine.
    All other arguments are parameters of the catalogue.
    """

    def register(function: Method) -> Method:
        METHODS[where, function.__name__] = function
        return function

    return register


def call(where: Where, name: str, bench: Bench, test: str, machine: str, parameters: Mapping[str, Any]) -> list[Effect]:
    """Run a method and return its effects.

    Raises:
        MeshmarkError: The method is unknown or fails, or a parameter is missing or unknown.
    """
    function = METHODS.get((where, name))
    if function is None:
        known_names = [n for w, n in METHODS if w == where]
        raise MeshmarkError(
            f"claims: method: found '{name}'; allowed: {', '.join(known_names)}", near(name, known_names)
        )
    positional: tuple[Any, ...] = {"host": (bench, test), "model": (bench, test, machine), "computed": ()}[where]
    try:
        return list(function(*positional, **parameters))
    except TypeError as error:
        if "argument" not in str(error):
            raise
        raise MeshmarkError(f"claims: {name}: {error}") from error
