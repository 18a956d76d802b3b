"""Names of nodes, which become words of commands and parts of paths."""

from __future__ import annotations

import re
from typing import Final

MAX_CHARACTERS: Final = 200
NODE_NAME: Final = f"up to {MAX_CHARACTERS} letters, digits, '.', '-' and '_', not first '.' or '-'"
_NAME: Final = re.compile(rf"[A-Za-z0-9_][A-Za-z0-9._-]{{0,{MAX_CHARACTERS - 1}}}")  # as in native/node/main.cpp


def is_node_name(text: object) -> bool:
    """Return true if a text is the name of a node, and neither a path nor an option."""
    return isinstance(text, str) and _NAME.fullmatch(text) is not None
