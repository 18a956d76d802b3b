"""A finding of a doctor about this host, its MPI libraries or its placement."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final, Literal

Judgement = Literal["wrong", "slows", "spoils-measurements", "hidden", "unknown", "ok"]
ORDER: Final[tuple[Judgement, ...]] = ("wrong", "slows", "spoils-measurements", "hidden", "unknown", "ok")


@dataclass(frozen=True, slots=True)
class HostFinding:
    """One property that was checked.

    Attributes:
        value: Value of the property on this host; if it is unknown, the reason why it could not be checked.
        verdict: Judgement of the value. `wrong` breaks what placement relies on; `slows` makes programs take longer at
            this moment; `hidden` withholds data from Meshmark.
        effect: Effect on measuring, watching or placing, in one line.
        command: Command that changes the value; "" if no command does, or nothing needs to change.
    """

    name: str
    value: str
    verdict: Judgement
    effect: str
    command: str = ""

    def to_json(self) -> dict[str, str]:
        """Return the finding with the keys of `--json`, all of which are texts."""
        return {
            "name": self.name,
            "found": self.value,
            "judged": self.verdict,
            "why": self.effect,
            "command": self.command,
        }


def by_limits(value: float, spoils: float, slows: float) -> Judgement:
    """Return the judgement of a value for which lower is better.

    Args:
        spoils: Lowest value that spoils measurements.
        slows: Lowest value that slows programs.
    """
    return "slows" if value >= slows else "spoils-measurements" if value >= spoils else "ok"


def in_order(findings: Iterable[HostFinding]) -> list[HostFinding]:
    """Return the findings with one line of text each, worst first; among equals, findings with a command first."""
    return sorted(map(_one_line, findings), key=lambda f: (ORDER.index(f.verdict), not f.command))


def _one_line(finding: HostFinding) -> HostFinding:
    """Return the finding without control characters and line breaks, which files may contain."""
    text = " ".join("".join(c if c.isprintable() else " " for c in finding.value).split())[:400]
    if not text:  # a corrupt file
        return replace(finding, value="nothing readable", verdict="unknown", command="")
    return replace(finding, value=text, command=" ".join(finding.command.split()))
