"""Compiles regular expressions that users write."""

from __future__ import annotations

import re
from functools import cache

from meshmark.errors import UsageError, quoted

MAX_LENGTH = 2000  # characters


@cache
def expression(field: str, text: str) -> re.Pattern[str]:
    """Return the compiled regular expression, whose `^` and `$` match at every line.

    Args:
        field: Name of the option or key, for the message.
        text: The regular expression.

    Raises:
        UsageError: The text is not a regular expression, is longer than 2000 characters, or Python cannot compile
            it because of its nesting or its repetition counts.
    """
    try:
        return compiled(text)
    except ValueError as error:
        raise UsageError(f"{field}: {error}") from error


@cache
def compiled(text: str) -> re.Pattern[str]:
    """Return the same as `expression`, but raise ValueError with a message that does not name a field."""
    if len(text) > MAX_LENGTH:
        raise ValueError(f"found {len(text)} characters; allowed: a regular expression of at most {MAX_LENGTH}")
    try:
        return re.compile(text, re.M)
    except RecursionError:
        reason = "it is nested too deep"
    except (re.error, OverflowError, MemoryError) as error:  # huge repetition counts
        reason = str(error) or "it is too large"
    raise ValueError(f"found '{quoted(text, 60)}', which is not a regular expression: {reason}")
