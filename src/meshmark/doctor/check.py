"""One check of what placement relies on: ok, wrong or absent, what it means, and a remedy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Judged = Literal["ok", "wrong", "absent"]
ORDER: Final[tuple[Judged, ...]] = ("wrong", "absent", "ok")


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was checked.

    Attributes:
        found: what it is here; of an absent one, why it could not be checked.
        means: what follows for placing programs, one line.
        remedy: what would change it; empty where nothing need or can be changed.
    """

    name: str
    judged: Judged
    found: str
    means: str
    remedy: str = ""

    def to_json(self) -> dict[str, str]:
        return {
            "name": self.name,
            "judged": self.judged,
            "found": self.found,
            "means": self.means,
            "remedy": self.remedy,
        }
