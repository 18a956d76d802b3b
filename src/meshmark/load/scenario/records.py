"""Convert the results of runs and studies to records of the instrument `load`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from meshmark.load.scenario.result import LoadRun, ProgramUse
from meshmark.machine.tree import format_list
from meshmark.store.record import Metric, Record, Scalar, value_problem
from meshmark.store.run import Absence

INSTRUMENT: Final = "load"
METRICS: Final[Mapping[str, Metric]] = {
    m.name: m
    for m in (
        # A copy of a program.
        Metric("elapsed", "s", "lower", "time from a program's start to its end"),
        Metric("setup", "s", "lower", "time that a program's process needed before it could start"),
        Metric("running", "s", "lower", "time of a synthetic program's calls, spinning included"),
        Metric("check", "s", "lower", "time from a synthetic program's last call to its end: it checks its results"),
        Metric("plan_gap", "1", "none", "relative difference of the running time from the planned one"),
        Metric("user", "s", "lower", "CPU time in user mode, sum over threads"),
        Metric("system", "s", "lower", "CPU time in the Linux kernel, sum over threads"),
        Metric("waiting", "s", "lower", "time that runnable threads waited for a CPU, sum over threads"),
        Metric("sleeping", "s", "none", "time that threads slept, sum over threads"),
        Metric("attained", "1", "higher", "CPU time of threads over the time that they were runnable"),
        Metric("spun", "s", "none", "time that paced threads spun until their next call"),
        Metric("late", "s", "lower", "delay of paced threads against their schedule at the end"),
        Metric("memory_rate", "B/s", "higher", "bytes to and from memory over time, as the calls count them"),
        Metric("cache_rate", "B/s", "higher", "bytes to and from caches over time, as the calls count them"),
        Metric("flop_rate", "flop/s", "higher", "floating-point operations over time"),
        Metric("integer_rate", "op/s", "higher", "integer operations over time"),
        Metric("io_rate", "B/s", "higher", "bytes read and written over time"),
        Metric("write_fraction", "1", "none", "bytes written to memory over bytes read and written"),
        # A whole run.
        Metric("bench", "s", "lower", "time from the first start to the last end"),
        Metric("available", "s", "none", "duration times the number of CPUs"),
        Metric("idle", "s", "lower", "CPU time that the programs did not use"),
        Metric("completion", "s", "lower", "mean over the programs of the time from the start of the run to their end"),
        Metric("run_sum", "s", "lower", "sum of the run times of all programs"),
        Metric("waiting_sum", "s", "lower", "sum of the waiting times of all threads"),
        Metric("user_sum", "s", "lower", "sum of the user times of all threads"),
        Metric("system_sum", "s", "lower", "sum of the system times of all threads"),
        Metric("fairness", "1", "higher", "Jain's index: 1 if all get the same, 1/n if one of n gets everything"),
        # A study.
        Metric("slowdown", "1", "lower", "co-run time over time alone"),
        Metric("throughput", "op/s", "higher", "copies over the time of the slowest"),
        Metric("prediction_gap", "1", "lower", "difference between predicted and measured slowdown"),
        Metric("crossing_rate", "B/s", "higher", "bandwidth of a copy at which the slowdown crosses the threshold"),
        Metric("equivalence_p", "1", "none", "p-value of the null hypothesis that times differ by the margin or more"),
        Metric("serialisation", "1", "lower", "share of an OpenMP program's time in which only one thread runs"),
        Metric("running_threads", "1", "higher", "mean number of running threads of an OpenMP program"),
    )
}


def records_of(run: LoadRun, machine: str = "") -> tuple[list[Record], list[Absence]]:
    """Return the results of a run for the store.

    The results are times and rates of every successful copy, totals of the run, and an absence of kind `error` for
    every copy that failed.

    Args:
        run: the run.
        machine: id of the machine; "": the name in the run's header.
    """
    header = run.header
    name = machine or str(header.get("machine", "")) or "host"
    provenance: dict[str, Scalar] = {
        "build": str(header.get("build", "")),
        "compiler": str(header.get("compiler", "")),
        "kernel": str(header.get("conditions", {}).get("kernel_release", "")),
        "start": str(header.get("start", "")),
        "duration_s": run.bench_s,
        "command": f"load run {run.scenario.get('name', '')}",
        "run": run.folder.name,
    }
    run_conditions: dict[str, Scalar] = {
        "scenario": str(run.scenario.get("name", header.get("scenario", ""))),
        "processes": len(run.programs),
        "load_1min": header.get("conditions", {}).get("load_1min"),
    }
    programs = {str(p.get("name")): p for p in run.scenario.get("programs", ()) if isinstance(p, dict)}
    records: list[Record] = []
    absences: list[Absence] = []

    def add(metric: str | Metric, value: float, conditions: Mapping[str, Scalar], flags: frozenset[str]) -> None:
        definition = metric if isinstance(metric, Metric) else METRICS[metric]
        if not value_problem(definition.unit, definition.better, value):
            records.append(
                Record.from_samples(
                    definition,
                    (value,),
                    source="host",
                    machine=name,
                    instrument=INSTRUMENT,
                    conditions=conditions,
                    flags=flags,
                    provenance=provenance,
                )
            )

    for p in run.programs:
        conditions = _conditions_of(run, p, run_conditions, programs.get(p.program, {}))
        if p.how != "ok":
            absences.append(
                Absence(
                    instrument=INSTRUMENT,
                    metric="elapsed",
                    conditions=conditions,
                    kind="error",
                    reason=f"program {p.program}, copy {p.copy}: {p.reason}",
                )
            )
            continue
        flags = run.flags(p)
        observed: dict[str, Scalar] = {**conditions, "migrations": p.migrations, "largest_bytes": p.largest_bytes}
        for name_or_metric, value in _values_of(p):
            add(name_or_metric, value, observed, flags)
    if run.cut:
        absences.append(
            Absence(
                instrument=INSTRUMENT,
                metric="bench",
                conditions=run_conditions,
                reason="the run was interrupted",
                kind="error",
            )
        )
        return records, absences
    t, run_flags = (
        run.totals(),
        frozenset().union(*(run.flags(p) for p in run.programs)) if run.programs else frozenset(),
    )
    conditions = {**run_conditions, "cpus": format_list(run.cpus), "policy": str(run.scenario.get("policy") or "none")}
    for metric, value in (
        ("bench", t.bench_s),
        ("available", t.available_s),
        ("idle", t.idle_s),
        ("completion", t.completion_s),
        ("run_sum", t.run_s),
        ("waiting_sum", t.waiting_s),
        ("user_sum", t.user_s),
        ("system_sum", t.system_s),
    ):
        add(metric, value, conditions, run_flags)
    add("fairness", run.fairness(), conditions, run_flags)
    return records, absences


def _values_of(p: ProgramUse) -> Iterator[tuple[str | Metric, float]]:
    """Yield times, rates and the figure of merit of a copy that succeeded."""
    yield "elapsed", p.wall_s
    for part in ("user", "system", "waiting", "sleeping"):
        yield part, getattr(p, f"{part}_s")
    yield "attained", p.cpu_share
    if p.figure is not None:
        yield p.figure, p.figure_value
    if p.paced:
        yield "spun", float(p.done["spun_s"])
        yield "late", float(p.done["late_s"])
    if not p.synthetic:
        return
    yield from (("setup", p.setup_s), ("running", p.running_s), ("check", p.check_s))
    if p.plan_gap is not None:
        yield "plan_gap", p.plan_gap
    yield from p.rates().items()
    traffic_bytes = float(p.done.get("memory_read_bytes", 0)) + float(p.done.get("memory_write_bytes", 0))
    if traffic_bytes > 0:
        yield "write_fraction", float(p.done.get("memory_write_bytes", 0)) / traffic_bytes


def _conditions_of(
    run: LoadRun, p: ProgramUse, common: Mapping[str, Scalar], of: Mapping[str, Any]
) -> dict[str, Scalar]:
    """Return the conditions of a copy: what the scenario requests for its program `of`, and where the copy ran."""
    bound_cpus = run.bound.get((p.program, p.copy), ())
    starts = of.get("start_s") or [0.0]
    return {
        **common,
        "program": p.program,
        "copy": p.copy,
        "copies": int(of.get("copies", 1)),
        "threads": int(of.get("threads", 1)),
        "policy": str(of.get("policy") or "none"),
        "cpus": format_list(bound_cpus or run.cpus),
        "binding": "soft" if bound_cpus else "none",
        "start_s": float(starts[min(p.copy, len(starts) - 1)]),
        "nice": int(of.get("nice", 0)),
        "priority": str(of.get("priority", "other")),
        "wait_policy": str(of.get("wait_policy", "")),
        "synthesised": not of.get("command"),
        **{k: str(of[k]) for k in ("application", "configuration") if of.get(k)},
        "memory": str(of.get("memory") or "default"),
        **_observed(p.pages),
    }


def _observed(pages: Mapping[int, int]) -> dict[str, Scalar]:
    """Return the node with most of a program's memory and its share; empty if pages were not counted."""
    if not any(pages.values()):
        return {}
    node = max(pages, key=lambda n: pages[n])
    return {"observed_node": node, "observed_node_share": pages[node] / sum(pages.values())}
