"""The events in the journal of a campaign, and the checks of their values when they are read."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final

from pydantic import Field

from meshmark.errors import MeshmarkError, UsageError, quoted
from meshmark.fleet.nodesets import checked_names, expand
from meshmark.store.session import Journal
from meshmark.values.inputs import LIST, PRINTABLE, Excerpt

_Word = Annotated[str, Field(min_length=1, max_length=200), PRINTABLE]
_FileName = Annotated[
    str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,199}$", description="letters, digits, _ . -, not first _ . -")
]
_JobId = Annotated[
    str, Field(max_length=1000, pattern=r"^([^-](?s:.)*)?$", description="a text without a first hyphen")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class BeginEvent(Excerpt):
    """A campaign begins.

    Attributes:
        plan: The file of its plan, without its suffix.
        kind: The kind of campaign, such as `check`.
        limit_s: The time that a node may take, s.
        nodes: The set of nodes.
        groups: The nodes that measure together, by the name of the group; None: each node measures alone.
    """

    plan: _FileName
    kind: _Word
    limit_s: Annotated[float, Field(ge=0, le=1e8)]
    engine: _Word
    nodes: str
    cluster: _FileName
    groups: dict[str, list[str]] | None = None
    confirms: str = ""
    scratch: Annotated[str, Field(max_length=4096), PRINTABLE] = ""
    beside: bool = False

    def members(self, where: str) -> dict[str, tuple[str, ...]]:
        """Return the nodes of each group, or each node by its own name.

        Raises:
            MeshmarkError: A name is not the name of a node; the message begins with `where`.
        """
        try:
            names = expand(self.nodes, f"{where}: nodes")
            if not self.groups:
                return {name: (name,) for name in names}
            for group, nodes in self.groups.items():
                checked_names(nodes, f"{where}: groups")
                # The name of a pair becomes the name of its file: rROUND+NODE+NODE.
                round_, *names = group.split("+")
                if not (round_[:1] == "r" and round_[1:].isascii() and round_[1:].isdecimal()) or names != nodes:
                    finding = f"found '{quoted(group, 60)}' with {quoted(nodes, 60)}"
                    raise UsageError(
                        f"{where}: groups: {finding}; allowed: pairs such as r1+n1+n2 with their two nodes"
                    )
            return {group: tuple(nodes) for group, nodes in self.groups.items()}
        except UsageError as error:
            raise MeshmarkError(str(error)) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmittingEvent(Excerpt):
    """A job is about to be submitted for nodes, a set, or for groups, a list."""

    job: _FileName
    nodes: str | list[str]

    def names(self) -> list[str]:
        """Return the names of its nodes or groups.

        Raises:
            MeshmarkError: The text is not a set of nodes.
        """
        return expand(self.nodes, f"job {self.job}: nodes") if isinstance(self.nodes, str) else self.nodes


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmittedEvent(Excerpt):
    """The engine has accepted a job."""

    job: _FileName
    id: _JobId


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedEvent(Excerpt):
    """A job has ended, or does not count as a try of its nodes."""

    job: _FileName
    counts: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class EndEvent(Excerpt):
    """The campaign ends; `left` has the status of nodes that have not measured, and the reason."""

    left: dict[str, Annotated[tuple[str, str], LIST]]


Event = SubmittingEvent | SubmittedEvent | EndedEvent | EndEvent
EVENTS: Final[Mapping[str, type[Event]]] = {
    "submitting": SubmittingEvent,
    "submitted": SubmittedEvent,
    "ended": EndedEvent,
    "end": EndEvent,
}


def record(journal: Journal, event: str, **values: Any) -> None:
    """Append an event with its time to a journal.

    Raises:
        MeshmarkError: The file cannot be written.
    """
    journal.append({"at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "event": event, **values})


def events_in(journal: Journal) -> list[tuple[int, dict[str, Any]]]:
    """Return the events in a journal, oldest first, each with the number of its line. Damaged lines are left out.

    Raises:
        MeshmarkError: The file cannot be read.
    """
    return list(journal.entries(_event))


def _event(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError("not an object")
    return value
