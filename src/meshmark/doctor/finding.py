"""A finding of a doctor about this host, its MPI libraries or its placement."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final, Literal

Judged = Literal["wrong", "slows", "spoils-measurements", "hidden", "unknown", "ok"]
ORDER: Final[tuple[Judged, ...]] = ("wrong", "slows", "spoils-measurements", "hidden", "unknown", "ok")


@dataclass(frozen=True, slots=True)
class Finding:
    """One property that was checked.

    Attributes:
        found: its value here; if unknown, why it could not be checked.
        judged: `wrong` breaks what placement relies on; `slows` makes programs take longer at this moment; `hidden`
            withholds data from Meshmark.
        why: the consequence for measuring, watching or placing, in one line.
        command: the command that changes it; empty if none does, or nothing needs to change.
    """

    name: str
    found: str
    judged: Judged
    why: str
    command: str = ""

    def to_json(self) -> dict[str, str]:
        return {"name": self.name, "found": self.found, "judged": self.judged, "why": self.why, "command": self.command}


def by_limits(value: float, spoils: float, slows: float) -> Judged:
    """The judgement of a value that is better the lower it is, by the lowest values that spoil and that slow."""
    return "slows" if value >= slows else "spoils-measurements" if value >= spoils else "ok"


def in_order(findings: Iterable[Finding]) -> list[Finding]:
    """The findings on one line each, worst first; among equals, those with a command first."""
    return sorted(map(_one_line, findings), key=lambda f: (ORDER.index(f.judged), not f.command))


def _one_line(finding: Finding) -> Finding:
    """The finding without control characters and line breaks, which files may contain."""
    found = " ".join("".join(c if c.isprintable() else " " for c in finding.found).split())[:400]
    if not found:  # a corrupt file
        return replace(finding, found="nothing readable", judged="unknown", command="")
    return replace(finding, found=found, command=" ".join(finding.command.split()))
