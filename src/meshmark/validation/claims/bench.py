"""Measures the terms of tests: interleaved in fresh processes on the host, and on modelled machines."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from meshmark.describe import description
from meshmark.errors import AbsentError, MeshmarkError
from meshmark.machine.absence import is_absent
from meshmark.machine.facts import host_facts, host_id
from meshmark.measure.repetitions import measured, pool
from meshmark.measure.runs.budget import BUDGET
from meshmark.measure.runs.plan import SurveyStep, launched
from meshmark.measure.runs.probe import arguments
from meshmark.measure.runs.runner import PlanRunner
from meshmark.statistics.verdicts import MedianEstimate
from meshmark.store.record import MODE_SUFFIX, Record, Scalar
from meshmark.store.store import Store

BUDGET_S: Final = 5.0  # sampling time of a test on the host
REPETITIONS: Final = (2, 6)  # fresh processes of each condition; the medians of six or more give an interval
SHORTEST_S: Final = 0.4  # minimum sampling time of a process
HALF: Final = "@half"  # stands for half of the CPUs in the options of a model


@dataclass(frozen=True, slots=True)
class EffectTerm:
    """One condition of a test and the power of its value in the effect.

    Attributes:
        instrument: An instrument or, on a model, a workload.
        options: Options of the instrument, as in the specification of a survey; on a workload, fields of
            `PatternRequest`.
        where: Conditions that select one record of the instrument.
        settings: Changed numbers of the machine file; only on models.
        machine: A modelled machine that replaces the machine of the test; "" for the latter.
    """

    instrument: str
    metric: str
    options: Mapping[str, Any]
    power: float = 1.0
    where: Mapping[str, Scalar] = field(default_factory=dict)
    settings: tuple[str, ...] = ()
    machine: str = ""


def terms_of(parameters: Mapping[str, Any]) -> list[EffectTerm]:
    """Return the terms of a test.

    `a` is divided by `b`, each a table of options; `more` has further tables with their `Power`. Keys of a table that
    begin with a capital letter are not options: `Instrument`, `Metric`, `Where`, `Set`, `Machine`. If a table lacks one
    of these keys, the value of the test applies. `both` has options of all tables.

    Raises:
        MeshmarkError: A parameter is missing.
    """
    if "a" not in parameters:
        raise MeshmarkError("claims: a: found nothing, a table of options is required")
    tables: list[tuple[Mapping[str, Any], float]] = [(parameters["a"], 1.0)]
    tables += [(parameters["b"], -1.0)] if "b" in parameters else []
    tables += [(table, float(table.get("Power", 1.0))) for table in parameters.get("more", ())]
    terms = []
    for table, power in tables:
        options = {k: v for k, v in table.items() if not k[:1].isupper()}
        terms.append(
            EffectTerm(
                instrument=str(table.get("Instrument") or parameters["instrument"]),
                metric=str(table.get("Metric") or parameters["metric"]),
                options={**parameters.get("both", {}), **options},
                power=power,
                where={**parameters.get("where", {}), **table.get("Where", {})},
                settings=(*parameters.get("set", ()), *table.get("Set", ())),
                machine=str(table.get("Machine", "")),
            )
        )
    return terms


def selected(records: Sequence[Record], metric: str, where: Mapping[str, Scalar]) -> Record:
    """Return the first record of a metric with the given conditions.

    Raises:
        AbsentError: No record matches.
    """
    matches = [
        r for r in records if r.metric == metric and all(str(r.conditions.get(k)) == str(v) for k, v in where.items())
    ]
    if not matches:
        raise AbsentError(f"{records[0].instrument if records else 'the instrument'} gave no {metric}")
    return matches[0]


@dataclass
class Bench:
    """Measures the terms of the tests in a run of claims.

    Args:
        folder: Folder of the journals.
        run: Name of the run in the store to which the evidence is added.
        budget_s: Sampling time of a test on the host in seconds.
        report: Called with every line of the protocol.
    """

    store: Store
    run: str
    folder: Path
    budget_s: float = BUDGET_S
    report: Callable[[SurveyStep, Mapping[str, Any]], None] | None = None
    facts_of: Callable[[], Mapping[str, Any]] = host_facts

    @cached_property
    def facts(self) -> Mapping[str, Any]:
        """Return the facts of this host, which are read once."""
        return self.facts_of()

    @cached_property
    def host(self) -> str:
        """Return the id of this host."""
        return host_id()

    @property
    def guest(self) -> bool:
        """Return whether this machine is virtual."""
        return self.fact("virtual", "guest") is True

    def fact(self, *path: str) -> Any:
        """Return a fact of the host; None if it is missing."""
        value: Any = self.facts
        for key in path:
            value = value.get(key) if isinstance(value, Mapping) else None
        return None if is_absent(value) else value

    def lacks(self, needs: Mapping[str, Any]) -> str:
        """Return the first requirement that the host does not meet, as a reason; "" if it meets all."""
        topology = self.facts.get("topology", {})
        cores = topology.get("cores") or []
        allowed = {*(topology.get("allowed_cpus") or os.sched_getaffinity(0))}
        counts = {
            "cpus": len(allowed),
            "cores": sum(bool(allowed & {*c["cpus"]}) for c in cores),
            "nodes": sum(bool(n.get("memory_bytes")) for n in topology.get("nodes") or []),
            "packages": sum(bool(allowed & {*p["cpus"]}) for p in topology.get("packages") or []),
        }
        for name, count in counts.items():
            if (required := needs.get(name, 0)) > count:
                noun = {"cpus": "CPU", "cores": "core", "nodes": "memory node", "packages": "package"}[name]
                return f"it needs {required} {noun}s, this machine has {count}"
        if needs.get("smt") and not any(len(allowed & {*c["cpus"]}) > 1 for c in cores):
            return "it needs cores with several CPUs (SMT), this machine has none"
        if (pages := needs.get("pages")) and not self._has_pages(str(pages)):
            return f"it needs pages of {pages}, this machine provides none"
        if needs.get("peak") and self.fact("memory", "peak_bytes_per_s") is None:
            return "it needs the peak bandwidth of the memory, which the firmware does not state here"
        if ranks := needs.get("ranks"):
            from meshmark.measure.runs.launch import launchers

            if not launchers():
                return "it needs an MPI library with its launcher, which was not found"
            if ranks > counts["cpus"]:
                return f"it needs {ranks} CPUs for ranks, this machine has {counts['cpus']}"
        return ""

    def filled(self, value: Any) -> Any:
        """Return the value of an option, with names that depend on the host replaced.

        `@cpu` is the first allowed CPU, `@pair` the first CPU of each of two cores, `@cores` and `@cpus` are numbers.
        """
        if not isinstance(value, str) or not value.startswith("@"):
            return value
        topology = self.facts.get("topology", {})
        allowed = sorted(topology.get("allowed_cpus") or os.sched_getaffinity(0))
        first_cpus = [
            core_cpus[0] for c in topology.get("cores") or [] if (core_cpus := sorted({*c["cpus"]} & {*allowed}))
        ]
        return {
            "@cpu": str(allowed[0]),
            "@pair": ",".join(map(str, (first_cpus if len(first_cpus) > 1 else allowed)[:2])),
            "@cores": len(first_cpus) or len(allowed),
            "@cpus": len(allowed),
        }[value]

    def _has_pages(self, pages: str) -> bool:
        if pages == "thp":
            return self.fact("pages", "thp") in {"madvise", "always"}
        sizes = {"2MiB": 2 << 20, "1GiB": 1 << 30}
        huge = self.fact("pages", "huge") or []
        return any(
            h.get("size_bytes") == sizes.get(pages) and isinstance(free := h.get("free"), int) and free > 0
            for h in huge
        )

    def take(self, test: str, terms: Sequence[EffectTerm]) -> list[Record]:
        """Measure the terms on the host in alternation (A, B, A, B …), in fresh processes that share the budget.

        Args:
            test: Name of the test, with which the names of the steps of the evidence begin.
            terms: What is measured, one term after the other.

        Returns:
            One record per term, with the samples of all its processes.

        Raises:
            AbsentError: A term cannot be measured on this host.
            MeshmarkError: A measurement failed.
        """
        low, high = REPETITIONS
        count = max(low, min(high, int(self.budget_s / (SHORTEST_S * len(terms)))))
        process_s = max(self.budget_s / (count * len(terms)), 0.01)
        runner = PlanRunner(self.folder, self.report)
        runs: list[list[Sequence[Record]]] = [[] for _ in terms]
        for repetition in range(1, count + 1):
            for number, term in enumerate(terms):
                letter = chr(ord("a") + number)
                runs[number].append(self._run(runner, term, f"{test}.{letter}.r{repetition}", repetition, process_s))
        return [selected(pool(repetitions), t.metric, t.where) for repetitions, t in zip(runs, terms, strict=True)]

    def _run(self, runner: PlanRunner, term: EffectTerm, step_id: str, seed: int, budget_s: float) -> Sequence[Record]:
        instrument = description(term.instrument)
        options = {k: self.filled(v) for k, v in term.options.items()}
        argv = [*arguments(instrument, {**options, "seed": seed}), BUDGET, f"{budget_s:.6g}s", "--machine", self.host]
        launch = launched(instrument, argv)[0]
        step = SurveyStep(step_id, term.instrument, launch.argv, launch.budget_s, launch.ranks, launch.mpi)
        result = runner.run_step(step)
        reading = result.reading
        self.store.add(self.run, step.id, reading.records, reading.absences, self.host)
        if result.message:
            raise MeshmarkError(f"{term.instrument}: {result.message}")
        records = [r for r in reading.records if not r.metric.endswith(MODE_SUFFIX)]
        if not any(r.metric == term.metric for r in records):
            reasons = [a.reason for a in reading.absences if a.metric in {None, term.metric}]
            raise AbsentError(f"{term.instrument}: {reasons[0] if reasons else 'nothing was measured'}")
        return records

    def simulate(self, test: str, machine: str, terms: Sequence[EffectTerm]) -> list[Record]:
        """Measure the terms on a modelled machine.

        Returns:
            One record per term.

        Raises:
            AbsentError: The machine file lacks numbers that an instrument needs.
            UsageError: The machine or a value is invalid.
        """
        return [
            selected(self.records(f"{test}.{chr(ord('a') + number)}", machine, term), term.metric, term.where)
            for number, term in enumerate(terms)
        ]

    def records(self, step: str, machine: str, term: EffectTerm) -> list[Record]:
        """Return all records of a term on a modelled machine and add them to the run as a step."""
        from meshmark.model.instruments import POINTS, measure, nodes_and_cpus
        from meshmark.model.machine import find_machine
        from meshmark.model.patterns import PatternRequest, run_pattern

        file = find_machine(term.machine or machine, list(term.settings))
        command = f"{term.instrument} --on {file.label}"
        if term.instrument in POINTS:
            half = str(max(1, len(nodes_and_cpus(file)[1]) // 2)) if HALF in term.options.values() else ""
            options = {k: half if v == HALF else str(v) for k, v in term.options.items()}
            records = measure(term.instrument, file, options, command=command)
        else:
            records, _ = run_pattern(file, PatternRequest(workload=term.instrument, **term.options), command)
        if records:
            self.store.add(self.run, step, records, (), records[0].machine)
        return records


def value_of(record: Record) -> MedianEstimate:
    """Return the value and interval of a record; a single value of a model is exact: models are deterministic."""
    if record.source == "model" and record.bounds is None:
        return MedianEstimate(record.value, (record.value, record.value))
    return measured(record)
