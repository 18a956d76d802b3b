"""Writes pieces of Markdown, as GitHub and GitLab render it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

BOLD: Final = "**{}**"


def escaped(text: str) -> str:
    """Return the text as one line without markup, because names come from files and commands."""
    for character in "\\|<>`[]":
        text = text.replace(character, f"\\{character}")
    return " ".join(text.split("\n"))


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table whose first two columns are texts and whose other columns are numbers."""
    rule = ["---", "---", *["--:"] * (len(head) - 2)]
    lines = [[escaped(cell) for cell in head], rule, *([escaped(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def folded(summary: str, text: str) -> str:
    """Return text that is shown only after a click on its summary."""
    return f"<details><summary>{summary}</summary>\n\n{text}\n\n</details>"
