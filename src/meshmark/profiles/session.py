"""Runs a program alone and beside each pressure, in rounds, and makes its profile.

Every round contains a run alone and a run beside each pressure, in random order, so that a slowdown is the ratio of two
runs of the same round. A neighbour with nothing to wait for is a probe: its own rate is measured alone before and after
the program, and during it, so that the same runs show what the program does to its neighbours.
"""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from meshmark import process
from meshmark.applications.resources.load_kernels import TRIAD_BYTES
from meshmark.errors import MeshmarkError, UsageError
from meshmark.experiments.experiment import ExperimentRun
from meshmark.experiments.rounds import Rounds, RoundsPlan
from meshmark.experiments.setting import Setting
from meshmark.experiments.turns import Company
from meshmark.machine.tree import format_list
from meshmark.place.other_work import result_flags
from meshmark.profiles.division import CpuDivision
from meshmark.profiles.pressure import ALONE, NeighbourPressure, RunningPressure, running
from meshmark.profiles.profile import KernelRate, PressureEffect, ProgramProfile, interval_of
from meshmark.profiles.responses import Response, full_rate, measured_rate
from meshmark.store.files import write_json
from meshmark.store.record import Metric, Record, Scalar
from meshmark.store.session import load_plan
from meshmark.values.units import duration

PLAN: Final = "profile-plan.json"
RESULT: Final = "profile.json"
SHORTEST_S: Final = 0.1  # a probe reports its progress every 0.02 s
_BEFORE, _DURING = "rate_alone", "rate_beside"


@dataclass(slots=True, kw_only=True)
class ProfilePlan(RoundsPlan):
    """The request of a profile.

    Attributes:
        name: Short name of the program.
        division: The CPUs of the program and of its neighbours.
        pressures: All pressures.
        probes: Kernels that are only probes, see `pressure.other_probes`.
    """

    name: str
    division: CpuDivision
    pressures: list[NeighbourPressure]
    probes: list[NeighbourPressure]

    @property
    def labels(self) -> Sequence[str]:
        """Return the run alone and the names of all pressures."""
        return [ALONE, *(pressure.name for pressure in self.pressures)]

    @property
    def settings(self) -> dict[str, Setting]:
        """Return the placement on the CPUs of the program, which is the same beside all pressures."""
        return bound(self.labels, self.division.program)

    def save(self, folder: Path) -> None:
        """Write the plan into the folder of the profile."""
        write_json(folder / PLAN, self)

    @staticmethod
    def load(folder: Path) -> ProfilePlan:
        """Return the plan in a folder.

        Raises:
            UsageError: The folder has no plan.
            MeshmarkError: The plan cannot be read.
        """

        def parse(content: Any) -> ProfilePlan:
            division: dict[str, Any] = content.pop("division")
            division |= {name: tuple(division[name]) for name in ("program", "neighbours")}
            pressures, probes = (
                [NeighbourPressure(**pressure) for pressure in content.pop(name)] for name in ("pressures", "probes")
            )
            return ProfilePlan(**content, division=CpuDivision(**division), pressures=pressures, probes=probes)

        return load_plan(folder / PLAN, parse, "a profile", "meshmark profile -- COMMAND starts one")


def bound(labels: Sequence[str], cpus: Sequence[int]) -> dict[str, Setting]:
    """Return settings that all place the program on the same CPUs, with the usual memory policy and page size."""
    options = ("--bind", f"list={format_list(tuple(cpus))}", "--memory", "default", "--pages", "default")
    return {label: Setting(label, options=options) for label in labels}


class Solitary(Company):
    """No neighbours. Processes that a program leaves behind would disturb the next runs, so they are ended."""

    def __init__(self) -> None:
        super().__init__()
        self._children: set[int] = set()

    def begin(self) -> None:
        """Mark the start of the program."""
        self._children = set(process.children())

    def end(self) -> str:
        """End the processes that the program left behind, and return why its run failed in this case."""
        return process.left_running(process.end_children(self._children))


class _Probe(Solitary):
    """Neighbours beside a run, whose rates are measured."""

    def __init__(self, neighbours: RunningPressure) -> None:
        super().__init__()
        self._neighbours = neighbours
        self._start: list[int] = []

    def begin(self) -> None:
        super().begin()
        self._start = self._neighbours.marks()

    def end(self) -> str:
        end = self._neighbours.marks()
        self.cpu_s = self._neighbours.cpu_s(self._start, end)
        rate = self._neighbours.rate(self._start, end)
        if rate and self._neighbours.pressure.is_probe:
            self.counts[_DURING] = rate
        return super().end()


def beside(
    plan: ProfilePlan, responses: Sequence[Response]
) -> Callable[[str], contextlib.AbstractContextManager[Company]]:
    """Return the function that makes the context of a run."""
    pressures = {pressure.name: pressure for pressure in plan.pressures}

    @contextlib.contextmanager
    def context(label: str) -> Iterator[Company]:
        if label == ALONE:
            yield Solitary()
            return
        with running(pressures[label], plan.division.neighbours, full_rate(responses)) as neighbours:
            probe = _Probe(neighbours)
            before = measured_rate(neighbours)
            yield probe
            if _DURING in probe.counts:
                probe.counts[_BEFORE] = fmean([before, measured_rate(neighbours)])

    return context


def check_run(run: ExperimentRun) -> None:
    """Check a run.

    Raises:
        MeshmarkError: The program failed without neighbours.
        UsageError: It was too short for its effect on neighbours to be measured.
    """
    if run.side == ALONE and run.value is None:
        raise MeshmarkError(f"the program failed without neighbours: {run.reason}")
    if run.value is not None and run.elapsed_s < SHORTEST_S:
        raise UsageError(
            f"COMMAND: it ran for {duration(run.elapsed_s)}; allowed: at least {duration(SHORTEST_S)}",
            "use a larger problem, or run the program several times: sh -c 'for i in 1 2 3; do …; done'",
        )


def profile_of(
    session: Rounds[ProfilePlan], responses: Sequence[Response], machine: str, processor: str, build: str
) -> ProgramProfile:
    """Return the profile that the runs so far give.

    Args:
        session: The runs.
        responses: The responses of all probes.
        machine, processor, build: See `ProgramProfile`.

    Raises:
        MeshmarkError: No run alone has succeeded, or no pressure has a run in the same round.
    """
    plan = session.plan
    alone = [run for run in session.counted if run.side == ALONE]
    rates = {response.probe: response.rate for response in responses}
    effects = []
    for pressure in plan.pressures:
        factors = slowdowns(session, pressure.name)
        if not factors:
            continue  # all its runs failed, or the budget ended before the first
        results = [run.beside for run in session.counted if run.side == pressure.name]
        units_per_s = pressure.share * rates.get(pressure.name, full_rate(responses)) * len(plan.division.neighbours)
        effects.append(
            PressureEffect(
                name=pressure.name,
                kind=pressure.kind,
                footprint_bytes=pressure.footprint_bytes,
                bytes_per_s=0.0 if pressure.kind == "compute" else units_per_s * TRIAD_BYTES,
                slowdowns=tuple(factors),
                caused=tuple(r[_BEFORE] / r[_DURING] for r in results if r.keys() >= {_BEFORE, _DURING}),
            )
        )
    if not effects:
        reason = next(iter(session.left_out.values()), session.stopped)
        raise MeshmarkError(f"profile: no run beside a pressure has succeeded: {reason}")
    first = session.counted[0]
    return ProgramProfile(
        name=plan.name,
        command=shlex.join(plan.command),
        program_cpus=plan.division.program,
        neighbour_cpus=plan.division.neighbours,
        shared_bytes=plan.division.shared_bytes,
        metric=plan.figure.name,
        unit=first.unit,
        better="higher" if first.better == "higher" else "lower",
        alone=tuple(_value(run) for run in alone),
        effects=tuple(effects),
        kernels=_kernels(plan, rates),
        responses=_complete(responses, [effect.name for effect in effects]),
        flags=tuple(sorted(result_flags(session.counted))),
        run=plan.run,
        started=plan.started,
        machine=machine,
        processor=processor,
        build=build,
    )


def _complete(responses: Sequence[Response], names: Sequence[str]) -> dict[str, dict[str, float]]:
    """Return the speeds of the probes beside the pressures that have an effect."""
    return {r.probe: {name: r.speeds[name] for name in names} for r in responses}


def _kernels(plan: ProfilePlan, rates: Mapping[str, float]) -> tuple[KernelRate, ...]:
    count = len(plan.division.neighbours)
    return tuple(
        KernelRate(
            name=one.name, kind=one.kind, footprint_bytes=one.footprint_bytes // count, units_per_s=rates[one.name]
        )
        for one in (*plan.pressures, *plan.probes)
        if one.name in rates
    )


def _value(run: ExperimentRun) -> float:
    assert run.value is not None
    return run.value


def slowdowns(session: Rounds[Any], label: str) -> list[float]:
    """Return the time of each run of a setting divided by the time alone in the same round."""
    alone = {run.pair: run for run in session.counted if run.side == ALONE}
    runs = [run for run in session.counted if run.side == label and run.pair in alone]
    ratios = [_value(run) / _value(alone[run.pair]) for run in runs]
    return [1 / ratio if runs[0].better == "higher" else ratio for ratio in ratios]


def records(profile: ProgramProfile, session: Rounds[ProfilePlan], command_line: str) -> list[Record]:
    """Return the records of a profile: the values alone, and the slowdowns by each pressure and of each probe."""
    shared = {
        "program": profile.name,
        "command": profile.command,
        "cpus": format_list(profile.program_cpus),
        "neighbour_cpus": format_list(profile.neighbour_cpus),
    }
    provenance: dict[str, Scalar] = {
        "build": profile.build,
        "command": command_line,
        "start": profile.started,
        "seed": session.plan.seed,
        "stopped": session.stopped,
    }
    value = Metric(profile.metric, profile.unit, profile.better, "figure of the program without neighbours")
    slowdown = Metric("slowdown", "1", "lower", "time beside neighbours divided by the time alone")
    caused = Metric("caused_slowdown", "1", "none", "time of neighbours beside the program divided by their time alone")
    rows: list[tuple[Metric, Sequence[float], dict[str, Any]]] = [(value, profile.alone, {"pressure": ALONE})]
    for effect in profile.effects:
        conditions = {"pressure": effect.name, **{k: v for k, v in asdict(effect).items() if k in _CONDITIONS}}
        for metric, factors in ((slowdown, effect.slowdowns), (caused, effect.caused)):
            if factors:
                interval = interval_of(factors)
                bounds = {"run_low": interval[0], "run_high": interval[1]} if interval else {}
                rows.append((metric, factors, {**conditions, **bounds}))
    return [
        Record.from_samples(
            metric,
            samples,
            source="host",
            machine=profile.machine,
            instrument="profile",
            conditions={**shared, **conditions},
            flags=frozenset(profile.flags),
            provenance=provenance,
        )
        for metric, samples, conditions in rows
    ]


_CONDITIONS: Final = ("kind", "footprint_bytes", "bytes_per_s")
