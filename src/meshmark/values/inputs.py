"""Validates input files against types that describe their keys, limits and defaults.

The types are dataclasses, read by pydantic. `checked` turns its errors into one line that names the file, the key, what
was found and what is allowed; what is allowed comes from the JSON Schema of the type.
"""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Collection, Mapping
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

from pydantic import AfterValidator, ConfigDict, Field, GetCoreSchemaHandler, Strict, TypeAdapter, ValidationError
from pydantic_core import core_schema

from meshmark.errors import MeshmarkError, UsageError, near, quoted

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T")

LIST: Final = Strict(False)  # for tuples, because TOML and JSON have lists
_UNKNOWN: Final = {"extra_forbidden", "unexpected_keyword_argument"}


class Input:
    """Base class of dataclasses that describe a table of a file by its keys. Neither true nor "3" is a number."""

    __slots__ = ()
    __pydantic_config__ = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        schema = handler(source)
        resolved: Any = handler.resolve_ref_schema(schema)
        resolved["strict"] = False  # a table is not an instance of the class
        return schema


class Excerpt(Input):
    """A table whose other keys are ignored."""

    __slots__ = ()
    __pydantic_config__ = ConfigDict(extra="ignore", strict=True, allow_inf_nan=False)


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("allowed: printable text")
    return text


PRINTABLE: Final = AfterValidator(_printable)
Name = Annotated[str, Field(min_length=1, max_length=60), PRINTABLE]
Label = Annotated[str, Field(min_length=1, max_length=120), PRINTABLE]


@dataclasses.dataclass(frozen=True)
class OneOf:
    """Annotation in `Annotated[str, …]` that allows only these words."""

    words: tuple[str, ...]

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> core_schema.CoreSchema:
        return core_schema.literal_schema(list(self.words))


def checked(kind: type[T], raw: object, where: str, error: type[MeshmarkError] = UsageError) -> T:
    """Validate `raw` and convert it to `kind`.

    Args:
        kind: Type that describes the file or a part of it.
        raw: The parsed content.
        where: Name of the file in errors, followed by the table if `raw` is only a part of the file.
        error: Type of the exception.

    Raises:
        error: One line that names the key, what was found and what is allowed.
    """
    any_kind: Any = kind
    try:
        value: T = _adapter(any_kind).validate_python(raw)
    except ValidationError as failure:
        faults = failure.errors(include_url=False)
        fault = next((f for f in faults if f["type"] in _UNKNOWN), faults[0])
        raise error(f"{where}: {_line(fault, raw, _schema(any_kind))}") from failure
    return value


def fields_of(value: DataclassInstance) -> dict[str, Any]:
    """Return the fields of a dataclass by name, without conversion."""
    return {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


@cache
def _schema(kind: Any) -> Mapping[str, Any]:
    return _adapter(kind).json_schema()


def quoted_value(value: object) -> str:
    """Return a value as a message shows it: its Python representation, at most 60 characters on one line."""
    try:
        text = value.isoformat() if isinstance(value, datetime.date | datetime.time) else repr(value)
    except (ValueError, RecursionError):  # an integer of thousands of digits, or deeply nested lists
        text = f"a value of type {type(value).__name__}, too long to be shown"
    return quoted(text, 60)


def key_text(key: object) -> str:
    """Return a key as a message shows it."""
    text = str(key)
    return text if text.isprintable() and 0 < len(text) <= 60 else quoted_value(key)


def unknown_key(key: object, allowed: Collection[str]) -> str:
    """Return the message for an unknown key, with the nearest known key or all of them."""
    return f"{key_text(key)}: unknown key; {near(key, allowed) or 'allowed: ' + ', '.join(allowed)}"


def _line(fault: Any, raw: object, schema: Mapping[str, Any]) -> str:
    *parents, last = fault["loc"] or ("",)
    path, value, node = "", raw, _resolved(schema, schema)
    if "properties" in node:  # the description of a class is its docstring
        node = {**node, "description": ""}
    key = parents.pop() if last == "[key]" else None
    for part in parents:
        path, value, node = _step(path, value, node, part, schema)
    if fault["type"] in _UNKNOWN:
        return path + ("." if path else "") + unknown_key(last, node.get("properties", {}))
    if key is not None:
        value, node = key, {"type": "string", **node.get("propertyNames", {})}
    elif fault["loc"]:
        path, value, node = _step(path, value, node, last, schema)
    message = fault["msg"].removeprefix("Value error, ")
    prefix = f"{path}: " if path else ""
    if fault["type"] == "value_error" and (message.startswith("found ") or isinstance(value, dict)):
        return f"{prefix}{message}"
    value_text = "nothing" if fault["type"].startswith("missing") and isinstance(last, str) else quoted_value(value)
    return f"{prefix}found {value_text}; {message if fault['type'] == 'value_error' else _allowed(node, schema, value)}"


def _step(path: str, value: object, node: Mapping[str, Any], part: Any, schema: Mapping[str, Any]) -> Any:
    """Follow one part of a location, and return the path, the value in the file and its schema.

    A location may continue into values that a validator created, such as a list of one number. After a value of several
    types it contains the name of the alternative.
    """
    if isinstance(part, str) and len(_alternatives(node)) > 1:
        return path, value, node
    if isinstance(part, int):
        if isinstance(value, list) and part >= len(value):
            return path, value, node  # the list is too short
        item_schemas = node.get("prefixItems", [])
        node = item_schemas[part] if part < len(item_schemas) else node.get("items", node)
        if isinstance(value, list) and part < len(value):
            path, value = f"{path}[{part}]", value[part]
    elif part in node.get("properties", {}) or isinstance(value, dict):
        node = node.get("properties", {}).get(part) or node.get("additionalProperties") or node
        path = f"{path}.{key_text(part)}" if path else key_text(part)
        value = value.get(part) if isinstance(value, dict) else value
    return path, value, _resolved(node, schema) if isinstance(node, dict) else {}


def _resolved(node: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, Any]:
    if "$ref" in node:  # the description of a class is its docstring
        return {**schema["$defs"][node["$ref"].rpartition("/")[2]], "description": "", **node}
    alternatives = _alternatives(node)
    return {**_resolved(alternatives[0], schema), **node} if len(alternatives) == 1 else node


def _alternatives(node: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [n for n in node.get("anyOf", ()) if n.get("type") != "null"]


def _allowed(node: Mapping[str, Any], schema: Mapping[str, Any], value: object) -> str:
    choices = [c for c in node.get("enum", [node["const"]] if "const" in node else []) if c != ""]
    if choices:
        suggestion = near(value, choices) if isinstance(value, str) else ""
        return f"allowed: {', '.join(map(str, choices))}" + (suggestion and f"; {suggestion}")
    if node.get("type") == "boolean":
        return "allowed: true and false"
    return "allowed: " + (node.get("description") or _kind(node, schema))


def _kind(node: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    if len(alternatives := _alternatives(node)) > 1:
        return " or ".join(_kind(_resolved(alternative, schema), schema) for alternative in alternatives)
    kind = node.get("type", "another value")
    if kind in ("number", "integer"):
        style = "g" if kind == "number" else "d"
        low = next((f" {w} {node[k]:{style}}" for k, w in _LOW.items() if k in node), "")
        high = next((f" {w} {node[k]:{style}}" for k, w in _HIGH.items() if k in node), "")
        return f"{_NAMES[kind]}{low}{high}"
    if kind == "string":
        max_length = node.get("maxLength")
        return "printable text" + (f" of {node.get('minLength', 0)} to {max_length} characters" if max_length else "")
    if kind == "array" and isinstance(node.get("items"), dict):
        at_least, at_most = node.get("minItems", 0), node.get("maxItems")
        count = (
            f"{at_least} to {at_most} entries" if at_most else f"at least {at_least} entries" if at_least else "entries"
        )
        item = _resolved(node["items"], schema)
        return f"a list of {count}, each {item.get('description') or _kind(item, schema)}"
    if kind == "object" and "properties" in node:
        return "a table with " + ", ".join(node["properties"])
    return str(_NAMES.get(kind, kind))


_LOW: Final = {"minimum": "from", "exclusiveMinimum": "above"}
_HIGH: Final = {"maximum": "to", "exclusiveMaximum": "below"}
_NAMES: Final = {
    "number": "a number",
    "integer": "an integer",
    "array": "a list",
    "object": "a table",
    "boolean": "true or false",
}
