"""One finding about a host or its MPI: what it is, how it is judged, and the command that changes it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final, Literal

Judged = Literal["spoils-measurements", "hidden", "unknown", "ok"]
ORDER: Final[tuple[Judged, ...]] = ("spoils-measurements", "hidden", "unknown", "ok")


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        found: what it is here, in words.
        why: what it means for measuring or watching, one line.
        command: what would change it; empty where nothing on this machine would, or nothing need be changed.
    """

    name: str
    found: str
    judged: Judged
    why: str
    command: str = ""

    def to_json(self) -> dict[str, str]:
        return {"name": self.name, "found": self.found, "judged": self.judged, "why": self.why, "command": self.command}


def in_order(findings: Iterable[Finding]) -> list[Finding]:
    """Each in one line, the worst first; of what is equally bad, first what a command would change."""
    return sorted(map(_one_line, findings), key=lambda f: (ORDER.index(f.judged), not f.command))


def _one_line(finding: Finding) -> Finding:
    """What files said, without what would move a terminal's cursor."""
    found = " ".join("".join(c if c.isprintable() else " " for c in finding.found).split())[:200]
    if not found:  # a spoiled file, of which nothing can be judged
        return replace(finding, found="nothing that can be read", judged="unknown", command="")
    return replace(finding, found=found, command=" ".join(finding.command.split()))
