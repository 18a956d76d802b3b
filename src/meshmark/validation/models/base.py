"""Functions and classes that all checks of published statements use."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

from meshmark.describe import stream_kernels
from meshmark.model.engine import ask, median_of
from meshmark.model.instruments import measure
from meshmark.model.machine import MachineFile, find_machine
from meshmark.model.patterns import PatternProgram, program_cycles, programs_run
from meshmark.model.statements import MachineStatement, published_numbers
from meshmark.model.workloads import stream_actor, stream_trial

Numbers = Sequence[float]


@dataclass(frozen=True, slots=True)
class StatementResult:
    """Result of a model for a statement.

    Attributes:
        inside: Within the tolerance; None if the statement is not modelled.
        numbers: The compared values, in any unit; `dependence` shows how they depend on numbers of the machine files.
    """

    modelled: str
    inside: bool | None
    why: str = ""
    error_percent: float | None = None
    series: tuple[tuple[str, tuple[float, ...]], ...] = ()
    numbers: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """Dependence of the result of a statement on an assumed number of a machine file."""

    machine: str  # the file that states the number
    key: str
    elasticity: float  # relative change of the result over the relative change of the number; the largest of all values

    def __str__(self) -> str:
        return f"{self.elasticity:+.2f} {self.machine} {self.key}"


@dataclass(frozen=True, slots=True)
class StatementRow:
    """A statement, the result of its check, and how the result follows from fitted or assumed numbers."""

    claim: MachineStatement
    finding: StatementResult
    fitted_in: tuple[str, ...] = field(default=())  # machine files that were fitted to the statement
    depends: tuple[Sensitivity, ...] | None = field(default=None)  # strongest first; None if not examined

    @property
    def counts_as(self) -> str:
        """Return the score that includes the statement: its role, or `fitted` if a machine was fitted to a prediction.

        Only `predict` is blind: no number was fitted to these statements and no number restates them.
        """
        is_calibration = "calibrate" in self.claim.note  # "1 calibrates": the rest of the row is predicted
        return "fitted" if self.claim.role == "predict" and self.fitted_in and not is_calibration else self.claim.role


Check = Callable[[], StatementResult]


CHECKS: Final[dict[str, Check]] = {}


def check(name: str) -> Callable[[Check], Check]:
    """Register a function as the check of a statement."""

    def register(function: Check) -> Check:
        CHECKS[name] = function
        return function

    return register


_used: Final[set[str]] = set()  # machines that the checks used since `examined` began
_changed: Final[dict[str, str]] = {}  # machine → a setting, which the settings of the check override


@contextmanager
def examined(changed: Mapping[str, str] | None = None) -> Iterator[set[str]]:
    """Change a number while checks run, and yield the names of the machines that they use.

    Args:
        changed: A setting (such as `cpu.fill_ns=14`) by name of the machine.
    """
    functions = (machine, matrix)
    for function in functions:
        function.cache_clear()
    _used.clear()
    _changed.update(changed or {})
    try:
        yield _used
    finally:
        _changed.clear()
        for function in functions:
            function.cache_clear()


@cache
def machine(name: str, *settings: str) -> MachineFile:
    """Return a modelled machine with other settings, and remember that the current check uses it."""
    _used.add(name)
    return find_machine(name, [*([_changed[name]] if name in _changed else []), *settings])


@cache
def matrix(name: str, state: str = "clean", *settings: str) -> tuple[tuple[float, ...], ...]:
    """Return the latencies in seconds between all nodes, in closed form."""
    rows = ask(machine(name, *settings), [{"kind": "matrix", "state": state}], threads=1)[0]["latency_s"]
    return tuple(tuple(r) for r in rows)


def mean_remote(rows: Sequence[Numbers]) -> float:
    """Return the mean of a matrix of node pairs without its diagonal, in the unit of the matrix."""
    remote = [v for a, row in enumerate(rows) for b, v in enumerate(row) if a != b]
    return math.fsum(remote) / len(remote)


def gs320_mean(nodes: int, state: str = "clean") -> float:
    """Return the mean latency in seconds from a CPU of a GS320 to the memory of the other CPUs.

    Three of the other CPUs are on the same node. Means of a GS1280 exclude the memory of the CPU itself, too.
    """
    rows = matrix(f"gs320-{4 * nodes}", state)
    if nodes == 1:
        return rows[0][0]
    return (4 * (nodes - 1) * mean_remote(rows) + 3 * rows[0][0]) / (4 * nodes - 1)


def rate(m: MachineFile, run: Mapping[str, Any]) -> float:
    """Return the bandwidth of the first group of a run in B/s."""
    return median_of(ask(m, [run])[0]["groups"][0]["bytes_per_s"])


def triad(
    m: MachineFile, cpus: Sequence[int], store: str = "ordinary", kernel: str = "triad", homes: Any = "local"
) -> float:
    """Return the net bandwidth of a STREAM kernel on some CPUs in B/s."""
    gross = rate(m, stream_trial([stream_actor(m, cpus, kernel, store, homes)]))
    return gross * stream_kernels()[kernel].net / stream_kernels()[kernel].gross(store)


def published_number(document: str, path: str) -> float:
    """Return a number that a publication prints, in the unit of its key."""
    return published_numbers(document, path)[0]


def within_percent(
    value: float, published: float, percent: float, unit: str = "", reason: str = "", digits: int = 4
) -> StatementResult:
    """Return whether a value differs from the published value by at most `percent`."""
    error = 100 * (value / published - 1)
    inside = abs(error) <= percent + 1e-9
    text = f"{value:.{digits}g} {unit}".strip()
    return StatementResult(text, inside, "" if inside else reason, error, numbers=(value,))


def within_limits(value: float, low: float, high: float, unit: str = "", reason: str = "") -> StatementResult:
    """Return whether a value is within two limits."""
    inside = low <= value <= high
    return StatementResult(f"{value:.3g} {unit}".strip(), inside, "" if inside else reason, numbers=(value,))


def relation(holds: bool, text: str, reason: str = "", numbers: Numbers = ()) -> StatementResult:
    """Return whether a relation holds."""
    return StatementResult(text, holds, "" if holds else reason, numbers=tuple(numbers))


def slowdown(
    m: MachineFile, cpus: Sequence[int], gb_per_s: float, on: MachineFile | None = None, in_step: bool = False
) -> float:
    """Return the co-run slowdown of programs in per cent. `on` is the machine of the co-run if it differs from `m`."""
    programs = [PatternProgram(tuple(cpus), gb_per_s, 1 / 3)]
    cycles = program_cycles(m, programs)
    phases_s = ask(on or m, [programs_run(cycles, programs, in_step)])[0]["groups"][0]["phase_s"]
    slowdowns = cycles[0].slowdowns(phases_s)
    return 100 * (math.fsum(slowdowns) / len(slowdowns) - 1)


def level_ns(name: str, footprint: int) -> float:
    """Return the idle latency in ns of one CPU with a footprint in bytes in its own node."""
    options = {"footprint": str(footprint), "cpus": "0", "memory_node": "0", "pattern": "stride"}
    return measure("latency", machine(name), options)[0].value * 1e9
