"""Says when more threads are runnable than CPUs, from the frames of a machine.

Two things show it: the run queue of the whole machine, and the busiest programs whose threads may use some of the CPUs
only, which a machine with idle CPUs otherwise hides. One tick says little, since threads start and end: as for hot
spots, it must hold at most of the last ticks.
"""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass
from typing import Any, Final

from meshmark.errors import MeshmarkError, quoted
from meshmark.machine.tree import format_list, parse_list
from meshmark.values.units import counted, duration
from meshmark.watch.frames import Frame, Header
from meshmark.watch.hotspots import HELD, KEPT

_CROWDED: Final = 1.1  # threads per CPU
_SHOWN: Final = 3


@dataclass(frozen=True, slots=True)
class Crowd:
    """CPUs and the mean number of threads that run on them or wait for them, with their programs, busiest first."""

    cpus: tuple[int, ...]
    threads: float
    programs: tuple[str, ...]

    @property
    def is_crowded(self) -> bool:
        return self.threads > _CROWDED * len(self.cpus)


@dataclass(frozen=True, slots=True)
class Oversubscribed:
    """CPUs on which more threads are runnable than there are CPUs.

    Attributes:
        cpus: Their numbers.
        components: Their indices in the frames; none if all CPUs are meant.
        threads: Mean number of runnable threads over the recent ticks.
        since_s: The first tick, in the frames' time.
        programs: The busiest programs there, busiest first.
    """

    cpus: tuple[int, ...]
    components: tuple[int, ...]
    threads: float
    since_s: float
    programs: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "class": "cpu",
            "components": list(self.components),
            "verdict": "oversubscribed",
            "threads": round(self.threads, 2),
            "since_s": self.since_s,
            "culprits": list(self.programs),
            "text": str(self),
        }

    def __str__(self) -> str:
        where = f"{counted(len(self.cpus), 'CPU')} ({format_list(self.cpus)}), since {duration(self.since_s)}"
        busiest = f"; busiest: {', '.join(self.programs)}" if self.programs else ""
        return f"CPUs oversubscribed: {self.threads:.1f} runnable threads on {where}{busiest}"


class Oversubscription:
    """Follows a stream of frames."""

    def __init__(self, header: Header) -> None:
        cpus = header.components.get("cpu", ())
        numbers = (cpu.get("number") for cpu in cpus)
        self._cpus = tuple(n if isinstance(n, int) else i for i, n in enumerate(numbers))
        self._past: deque[dict[tuple[int, ...], Crowd]] = deque(maxlen=KEPT)
        self._since: dict[tuple[int, ...], float] = {}

    def add(self, frame: Frame) -> Oversubscribed | None:
        """Add a frame, and return the CPUs that are oversubscribed; None if none are."""
        crowds = {crowd.cpus: crowd for crowd in self._crowds(frame) if crowd.is_crowded}
        self._past.append(crowds)
        recent = {cpus for past in self._past for cpus in past}
        self._since = {cpus: self._since.get(cpus, frame.t_s) for cpus in recent}
        held = [cpus for cpus in recent if sum(cpus in past for past in self._past) >= HELD]
        if not held:
            return None
        cpus = self._cpus if self._cpus in held else min(held)
        seen = [past[cpus] for past in self._past if cpus in past]
        return Oversubscribed(
            cpus,
            () if cpus == self._cpus else tuple(i for i, number in enumerate(self._cpus) if number in cpus),
            sum(crowd.threads for crowd in seen) / len(seen),
            self._since[cpus],
            seen[-1].programs[:_SHOWN],
        )

    def _crowds(self, frame: Frame) -> list[Crowd]:
        """The whole machine, and each set of CPUs to which busy programs are restricted."""
        programs = [_title(p) for p in frame.processes]
        running = frame.value("host.running", 0)
        # The sampler itself runs while it reads the run queue.
        whole = [Crowd(self._cpus, running - 1, tuple(programs))] if running is not None and self._cpus else []
        threads: dict[tuple[int, ...], float] = defaultdict(float)
        names: dict[tuple[int, ...], list[str]] = defaultdict(list)
        for program in frame.processes:
            cpus = _allowed(program)
            if cpus and len(cpus) < len(self._cpus):
                threads[cpus] += _demand(program, cpus)
                names[cpus].append(_title(program))
        return whole + [Crowd(cpus, number, tuple(names[cpus])) for cpus, number in threads.items()]


def _title(program: dict[str, Any]) -> str:
    return f"{quoted(program.get('name'), 30)} ({program.get('pid')})"


def _allowed(program: dict[str, Any]) -> tuple[int, ...]:
    """The CPUs that a program may use; none if they are unknown."""
    try:
        return parse_list(str(program.get("allowed") or ""))
    except MeshmarkError:
        return ()


def _demand(program: dict[str, Any], cpus: tuple[int, ...]) -> float:
    """The mean number of threads of a program that ran on these CPUs or waited for them.

    The waiting time is known of programs with several threads. Threads that are bound elsewhere do not count.
    """
    threads = program.get("busiest")
    if not isinstance(threads, list):
        return _number(program.get("cpu"))
    return sum(
        _number(t.get("cpu")) + _number(t.get("waiting"))
        for t in threads
        if isinstance(t, dict) and t.get("on") in cpus and t.get("waiting") is not None
    )


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else 0.0
