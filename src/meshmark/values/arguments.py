"""Checks the arguments of public functions against their annotations and reports a wrong type in one sentence."""

from __future__ import annotations

import functools
import inspect
import math
import os
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, ParamSpec, TypeVar

from meshmark.errors import MeshmarkError, UsageError, quoted

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

_OPTION: Final = "a text, a number, true, false, a path, or a list of them"
_LONGEST: Final = 100_000  # characters of a text; an argument of a program has at most 131,072


def checked(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Decorate a public function: check its arguments before it runs.

    The annotation of each parameter says what is allowed. `object` stands for the value of an option, `Any` for
    everything. An error of the operating system becomes a `MeshmarkError`.
    """
    signature = inspect.signature(function)

    @functools.wraps(function)
    def wrapper(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        try:
            bound_arguments = signature.bind(*args, **kwargs)
        except TypeError as error:  # too many arguments, or an unknown name
            raise UsageError(f"{function.__name__}: {quoted(error)}") from None
        hints = _hints(function)
        for name, value in bound_arguments.arguments.items():
            if name in hints:
                _check_parameter(function.__name__, signature.parameters[name], hints[name], value)
        try:
            return function(*args, **kwargs)
        except OSError as error:
            file = f"{quoted(error.filename)}: " if error.filename else ""
            raise MeshmarkError(f"{function.__name__}: {file}{error.strerror or error}") from error

    return wrapper


@functools.cache
def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    return typing.get_type_hints(function)


def _check_parameter(function: str, parameter: inspect.Parameter, kind: Any, value: Any) -> None:
    """Check the value of a parameter, or each value that `*args` or `**kwargs` collects."""
    if parameter.kind is parameter.VAR_KEYWORD:
        for name, item in value.items():
            _check_text(f"{function}: option", name)
            _check(f"{function}: {name}", kind, item)
    elif parameter.kind is parameter.VAR_POSITIONAL:
        for item in value:
            _check(f"{function}: {parameter.name}", kind, item)
    else:
        _check(f"{function}: {parameter.name}", kind, value)


def _check(field: str, kind: Any, value: Any) -> None:
    """Raise if the value is not of this type.

    Raises:
        UsageError: The value is not allowed. The message names the field.
    """
    kinds = _alternatives(kind)
    if Any in kinds:
        return
    if not any(_fits(alternative, value) for alternative in kinds):
        if isinstance(value, float) and not math.isfinite(value) and float in kinds:
            raise UsageError(f"{field}: found {value}; allowed: a finite number")
        allowed = " or ".join(dict.fromkeys(_name(alternative) for alternative in kinds))
        raise UsageError(f"{field}: found {shown(value)}; allowed: {allowed}")
    if isinstance(value, str | os.PathLike):
        _check_text(field, os.fspath(value))
    elif isinstance(value, Mapping):
        item = next(typing.get_args(alternative)[1] for alternative in kinds if _origin(alternative) is Mapping)
        for key, part in value.items():
            if not isinstance(key, str):
                raise UsageError(f"{field}: found {shown(key)} as a key; allowed: a text")
            _check_text(field, key)
            _check(f"{field}: {quoted(key)}", item, part)
    elif isinstance(value, Sequence | set | frozenset) and not isinstance(value, bytes):
        item = next(
            (typing.get_args(alternative)[0] for alternative in kinds if _origin(alternative) is Sequence), object
        )
        for part in () if isinstance(value, range) else value:
            _check(field, item, part)


def _fits(kind: Any, value: Any) -> bool:
    origin = _origin(kind)
    if kind is None or kind is type(None):
        return value is None
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool) and _is_finite(value)
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if kind is object:
        return _is_option(value)
    if origin is Literal:
        return any(value is literal for literal in typing.get_args(kind))
    if origin is Sequence:
        return isinstance(value, list | tuple | range)
    if origin is os.PathLike:
        return isinstance(value, os.PathLike) and isinstance(os.fspath(value), str)
    return isinstance(value, origin)


def _is_option(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(not isinstance(item, list | tuple) and _is_option(item) for item in value)
    if isinstance(value, os.PathLike):
        return isinstance(os.fspath(value), str)
    if isinstance(value, int | float):
        return _is_finite(value)
    return isinstance(value, str | range)


def _is_finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer of hundreds of digits
        return False


def _check_text(field: str, text: str) -> None:
    if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
        raise UsageError(f"{field}: found {text[:60]!a}; allowed: text without lone surrogates")
    if "\0" in text:
        raise UsageError(f"{field}: found {text[:60]!a}; allowed: text without null characters")
    if len(text) > _LONGEST:
        raise UsageError(f"{field}: found a text of {len(text):,} characters; allowed: at most {_LONGEST:,}")


def shown(value: object) -> str:
    """Return a value as a message shows it: a text in quotes, a number as it is, otherwise the name of the type."""
    if value is None or isinstance(value, bool | int | float):
        return quoted(value)
    return f"'{quoted(value)}'" if isinstance(value, str) else f"a value of type {type(value).__name__}"


def _alternatives(kind: Any) -> tuple[Any, ...]:
    """Return the parts of a union, or the type itself."""
    if typing.get_origin(kind) in {typing.Union, types.UnionType}:
        return typing.get_args(kind)
    return (kind,)


def _origin(kind: Any) -> Any:
    return typing.get_origin(kind) or kind


def _name(kind: Any) -> str:
    """Return the words by which messages refer to the values of a type."""
    if kind is object:
        return _OPTION
    if _origin(kind) is Literal:
        return ", ".join(map(str, typing.get_args(kind)))
    names = {
        str: "a text",
        os.PathLike: "a path",
        float: "a number",
        int: "an integer",
        bool: "True, False",
        type(None): "None",
        Mapping: "a dictionary",
        Sequence: "a list",
    }
    origin = _origin(kind)
    return names.get(origin) or f"a meshmark.{origin.__name__}"
