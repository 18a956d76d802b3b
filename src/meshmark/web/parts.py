"""Defines the content that `meshmark serve` shows and other packages provide."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from meshmark.watch.frames import Frame, Header
from meshmark.web.live import IDLE_S, Start


@dataclass(frozen=True, slots=True)
class ModelRow:
    """A modelled machine in the list."""

    name: str
    title: str


@dataclass(frozen=True, slots=True)
class RunRow:
    """A run of the store; `stamp` changes when the results of the run change.

    Attributes:
        kind: What created the run: survey, measure, load, study, advise, model, sweep or import.
    """

    kind: str
    name: str
    machine: str
    started: str
    records: int
    instruments: Sequence[str]
    stamp: object = None


@dataclass(frozen=True, slots=True)
class LoadRow:
    """A run of a scenario, or a study; `stamp` changes when the run or study changes.

    Attributes:
        kind: `run` or `study`; the address contains the kind and the name.
        what: The programs of a run, or the question of a study.
        state: The progress as text.
        shown: Whether the run or study has a page.
        broken: Why the run or study cannot be listed; "" if it can.
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
    """Runs and studies by name; only listed ones are accessible."""

    def rows(self) -> tuple[Sequence[LoadRow], int]:
        """Return the newest runs and studies, newest first, and the number of older ones.

        Raises:
            MeshmarkError: The runs and studies cannot be read.
        """

    def page(self, row: LoadRow) -> bytes:
        """Return the self-contained page of a run or study."""

    def compared(self, a: LoadRow, b: LoadRow) -> bytes:
        """Return the page that compares two runs.

        Raises:
            MeshmarkError: The runs have nothing in common.
        """


@dataclass(frozen=True, slots=True)
class SiteParts:
    """The content of the site.

    Attributes:
        machine: Name of this machine, and a line that describes it.
        start: Starts the sampler.
        recordings: Folder of recordings.
        models: Modelled machines.
        workloads: Workloads under which each modelled machine can be shown.
        simulate: Simulates a machine under a workload.
        runs: Returns the runs in the store; raises MeshmarkError if the store cannot be read.
        report: Returns the self-contained page of a run.
        compared: Returns the self-contained page of two runs; raises NotFoundError if they have nothing in common.
        idle_s: The sampler stops this time after the last reader has left, in s.
        loads: Runs of scenarios, and studies; None to omit them.
    """

    machine: tuple[str, str]
    start: Start
    recordings: Path
    models: Sequence[ModelRow]
    workloads: Sequence[str]
    simulate: Callable[[str, str], tuple[Header, Sequence[Frame]]]
    runs: Callable[[], Sequence[RunRow]]
    report: Callable[[str], bytes]
    compared: Callable[[str, str], bytes]
    idle_s: float = IDLE_S
    loads: Loads | None = None
