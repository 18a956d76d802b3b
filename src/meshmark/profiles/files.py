"""Reads the files of profiles and of rates, which are JSON objects that name their type and their version."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from meshmark.errors import UsageError
from meshmark.store.files import read_text
from meshmark.values.inputs import quoted_value

_MOST_BYTES: Final = 16 << 20


def read_object(path: Path, kind: str, version: int, maker: str) -> dict[str, Any]:
    """Return the object in a file.

    Args:
        path: The file.
        kind: Its `type`.
        version: Its `schema`.
        maker: Command that makes such a file.

    Raises:
        UsageError: The file has no such object; the error names the field, what was found and what is allowed.
        MeshmarkError: The file cannot be read.
    """
    hint = f"{maker} makes one"
    text = read_text(path, _MOST_BYTES)
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path.name}: found no JSON: {error}", hint) from None
    if not isinstance(content, dict) or content.get("type") != kind:
        name = quoted_value(content.get("type")) if isinstance(content, dict) else "no object"
        raise UsageError(f"{path.name}: type: found {name}; allowed: {kind}", hint)
    if content.get("schema") != version:
        raise UsageError(f"{path.name}: schema: found {quoted_value(content.get('schema'))}; allowed: {version}", hint)
    return content
