"""Reports when more threads are runnable than there are CPUs, from the frames of a machine.

There are two sources: the run queue of the whole machine, and the busiest programs whose threads may use only some of
the CPUs, which a machine with idle CPUs otherwise hides. One tick says little, because threads start and end: the
condition must hold at most of the last ticks.
"""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass
from typing import Any, Final

from meshmark.errors import MeshmarkError, quoted
from meshmark.machine.tree import format_list, parse_list
from meshmark.values.units import counted, duration
from meshmark.watch.frames import Frame, Header

KEPT: Final = 5  # number of recent ticks considered
HELD: Final = 4  # minimum number of recent ticks at which CPUs are oversubscribed
_CROWDED: Final = 1.1  # threads per CPU
_SHOWN: Final = 3


@dataclass(frozen=True, slots=True)
class CpuCrowd:
    """CPUs and the mean number of threads that run on them or wait for them, with their programs, busiest first."""

    cpus: tuple[int, ...]
    threads: float
    programs: tuple[str, ...]

    @property
    def is_crowded(self) -> bool:
        """Return whether there are more runnable threads than the CPUs can run, beyond a tolerance."""
        return self.threads > _CROWDED * len(self.cpus)


@dataclass(frozen=True, slots=True)
class OversubscribedCpus:
    """CPUs on which more threads are runnable than there are CPUs.

    Attributes:
        cpus: Numbers of the CPUs.
        components: Indices of the CPUs in the frames; empty if all CPUs are meant.
        threads: Mean number of runnable threads over the recent ticks.
        since_s: The first tick at which the CPUs were oversubscribed, in the frames' time.
        programs: The busiest programs on these CPUs, busiest first.
    """

    cpus: tuple[int, ...]
    components: tuple[int, ...]
    threads: float
    since_s: float
    programs: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the finding as JSON, with the keys of a hot spot."""
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
        cpus_text = f"{counted(len(self.cpus), 'CPU')} ({format_list(self.cpus)}), since {duration(self.since_s)}"
        busiest = f"; busiest: {', '.join(self.programs)}" if self.programs else ""
        return f"CPUs oversubscribed: {self.threads:.1f} runnable threads on {cpus_text}{busiest}"


class Oversubscription:
    """Detects oversubscription in a stream of frames."""

    def __init__(self, header: Header) -> None:
        cpus = header.components.get("cpu", ())
        numbers = (cpu.get("number") for cpu in cpus)
        self._cpus = tuple(n if isinstance(n, int) else i for i, n in enumerate(numbers))
        self._past: deque[dict[tuple[int, ...], CpuCrowd]] = deque(maxlen=KEPT)
        self._since: dict[tuple[int, ...], float] = {}

    def add(self, frame: Frame) -> OversubscribedCpus | None:
        """Add a frame and return the CPUs that are oversubscribed; None if there are none."""
        crowds = {crowd.cpus: crowd for crowd in self._crowds(frame) if crowd.is_crowded}
        self._past.append(crowds)
        recent = {cpus for past in self._past for cpus in past}
        self._since = {cpus: self._since.get(cpus, frame.t_s) for cpus in recent}
        persistent = [cpus for cpus in recent if sum(cpus in past for past in self._past) >= HELD]
        if not persistent:
            return None
        cpus = self._cpus if self._cpus in persistent else min(persistent)
        crowds_of_cpus = [past[cpus] for past in self._past if cpus in past]
        return OversubscribedCpus(
            cpus,
            () if cpus == self._cpus else tuple(i for i, number in enumerate(self._cpus) if number in cpus),
            sum(crowd.threads for crowd in crowds_of_cpus) / len(crowds_of_cpus),
            self._since[cpus],
            crowds_of_cpus[-1].programs[:_SHOWN],
        )

    def _crowds(self, frame: Frame) -> list[CpuCrowd]:
        """Return the whole machine, and each set of CPUs to which busy programs are restricted."""
        programs = [_title(p) for p in frame.processes]
        running = frame.value("host.running", 0)
        # The sampler itself runs while it reads the run queue.
        machine = [CpuCrowd(self._cpus, running - 1, tuple(programs))] if running is not None and self._cpus else []
        threads: dict[tuple[int, ...], float] = defaultdict(float)
        names: dict[tuple[int, ...], list[str]] = defaultdict(list)
        for program in frame.processes:
            cpus = _allowed(program)
            if cpus and len(cpus) < len(self._cpus):
                threads[cpus] += _demand(program, cpus)
                names[cpus].append(_title(program))
        return machine + [CpuCrowd(cpus, number, tuple(names[cpus])) for cpus, number in threads.items()]


def _title(program: dict[str, Any]) -> str:
    return f"{quoted(program.get('name'), 30)} ({program.get('pid')})"


def _allowed(program: dict[str, Any]) -> tuple[int, ...]:
    """Return the CPUs that a program may use; empty if they are unknown."""
    try:
        return parse_list(str(program.get("allowed") or ""))
    except MeshmarkError:
        return ()


def _demand(program: dict[str, Any], cpus: tuple[int, ...]) -> float:
    """Return the mean number of threads of a program that ran on these CPUs or waited for them.

    The waiting time is known only for programs with several threads. Threads that are bound elsewhere do not count.
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
