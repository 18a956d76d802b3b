"""What the site shows, from rooms that this one does not know."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from meshmark.watch.frames import Frame, Header
from meshmark.web.live import IDLE_S, Start


@dataclass(frozen=True, slots=True)
class ModelRow:
    """A simulated machine of the list."""

    name: str
    title: str


@dataclass(frozen=True, slots=True)
class RunRow:
    """A run of the store; `stamp` changes when its results do."""

    name: str
    machine: str
    started: str
    records: int
    instruments: Sequence[str]
    stamp: object = None


@dataclass(frozen=True, slots=True)
class LoadRow:
    """A run of a scenario, or a study of many; `stamp` changes when it does.

    Attributes:
        kind: `run` or `study`; with the name its address.
        what: the programs, or what a study asks.
        state: how far it came, in words.
        shown: whether it has a page.
        broken: why it cannot be listed.
    """

    kind: str
    name: str
    started: str = ""
    what: str = ""
    state: str = ""
    length_s: float = 0.0
    runs: int = 1
    flags: Sequence[str] = ()
    shown: bool = True
    stamp: object = None
    broken: str = ""


class Loads(Protocol):
    """Runs and studies by their names; what is not listed is not there."""

    def rows(self) -> tuple[Sequence[LoadRow], int]:
        """The newest first, and how many older ones are not listed. Raises MeshmarkError: they cannot be read."""

    def page(self, row: LoadRow) -> bytes:
        """Its page, whole in itself."""

    def compared(self, a: LoadRow, b: LoadRow) -> bytes:
        """The page of two runs. Raises MeshmarkError: they have nothing in common."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What is shown, from rooms that this one does not know.

    Attributes:
        machine: name of this machine, and a line about it.
        models: simulated machines, and `workloads` that each can be shown under.
        simulate: the frames of a machine under a workload.
        runs: of the store; raises MeshmarkError where it cannot be read.
        report: the page of a run, whole in itself.
        loads: runs of scenarios and studies; none: nothing is said of them.
    """

    machine: tuple[str, str]
    start: Start
    recordings: Path
    models: Sequence[ModelRow]
    workloads: Sequence[str]
    simulate: Callable[[str, str], tuple[Header, Sequence[Frame]]]
    runs: Callable[[], Sequence[RunRow]]
    report: Callable[[str], bytes]
    idle_s: float = IDLE_S
    loads: Loads | None = None
