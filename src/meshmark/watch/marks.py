"""Marks of a recording: the start and the end of a command, and gaps in which nothing was recorded.

While recording, each mark is a line of the recording, written to disk at once. A finished recording has them in its
header. Marks have wall-clock times, by which they are aligned with frames. See docs/reference/frames.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

START: Final = "start"
END: Final = "end"
GAP: Final = "gap"
KINDS: Final = (START, END, GAP)
MAX_MARKS: Final = 10_000
LINE: Final = b'{"type":"mark",'  # the beginning of each line with a mark
_MAX_AT_S: Final = 1e11  # in the year 5138


@dataclass(frozen=True, slots=True)
class Mark:
    """An event of a recording.

    Attributes:
        kind: `start` or `end` of a command, or `gap`: nothing was recorded until `at`.
        at: Wall-clock time, in s since 1970.
        details: Further keys of the kind. `start`: `command` (list of words without secrets) and `pid`. `end`:
            `status` (exit status; 128 + N after signal N), `elapsed_s`, `user_s`, `system_s`, and `peak_bytes` (largest
            resident memory of a process) or `peak_below_bytes` (its upper limit). `gap`: `from` (its start, in s since
            1970; missing if unknown).
    """

    kind: str
    at: float
    details: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the mark as JSON, of type `mark`."""
        return {"type": "mark", "kind": self.kind, "at": round(self.at, 6), **self.details}

    def number(self, key: str) -> float | None:
        """Return a number of the details; None if it is unknown."""
        value = self.details.get(key)
        return None if value is None else float(value)


def mark_of(line: Mapping[str, Any]) -> Mark:
    """Read a mark from a parsed line.

    Raises:
        LookupError, TypeError, ValueError: The line is not a mark.
    """
    kind, at = line["kind"], line["at"]
    if kind not in KINDS:
        raise ValueError(f"mark: found kind {kind!r}; allowed: {', '.join(KINDS)}")
    details = {str(k): v for k, v in line.items() if k not in ("type", "kind", "at")}
    for key, value in {"at": at, **details}.items():
        if key == "command":
            if not (isinstance(value, list) and all(isinstance(word, str) for word in value)):
                raise TypeError("mark: command: a list of texts is required")
        elif isinstance(value, bool) or not isinstance(value, int | float) or not -_MAX_AT_S < value < 1e18:
            raise TypeError(f"mark: {key}: a number is required")
    if not 0 <= at < _MAX_AT_S:
        raise ValueError("mark: at: a time in s since 1970 is required")
    return Mark(kind, float(at), details)


def marks_of(lines: Iterable[Any]) -> tuple[Mark, ...]:
    """Read the marks of a header.

    Raises:
        LookupError, TypeError, ValueError: An entry is not a mark, or there are more than `MAX_MARKS`.
    """
    marks = tuple(map(mark_of, lines))
    if len(marks) > MAX_MARKS:
        raise ValueError(f"marks: found {len(marks)}; allowed: at most {MAX_MARKS}")
    return marks
