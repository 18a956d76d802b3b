"""Derives the answer from the runs of an application: a row per configuration, comparisons, scaling and exceptions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from meshmark.applications.application import COUNTS, Application
from meshmark.applications.attempt import ConfigurationRun
from meshmark.applications.configuration import Configuration, varied
from meshmark.applications.effects.clock_effects import clock_effects
from meshmark.applications.effects.prefetcher_effect import prefetcher_effects
from meshmark.applications.effects.profile import Profile
from meshmark.applications.effects.reasons import RunMedians, levels, of_sublinear, waiting_share
from meshmark.applications.effects.working_set import WorkingSet, working_sets
from meshmark.applications.records import FIGURE, neighbours_of
from meshmark.applications.trials import Trials
from meshmark.machine.topology import Topology
from meshmark.place.other_work import result_flags
from meshmark.statistics.cache_gain import UNKNOWN, superlinear_reason
from meshmark.statistics.pairs import ConfigurationPair, MeritUnit, compare
from meshmark.statistics.scaling import ScalingPoint, confidence_of_each, scaling
from meshmark.store.record import median, median_interval


def answer(trials: Trials, app: Application, machine: Topology, profiles: Sequence[Profile] = ()) -> dict[str, Any]:
    """Return the object that `--json` prints after the records. Values have the unit of the metric.

    Args:
        trials: Runs of all configurations.
        app: The application that ran.
        machine: Topology of this machine, for its caches, cores and CPUs.
        profiles: Profiles of its configurations; empty if it was not profiled.
    """
    configs = [c for c in trials.all if trials.valid_runs(c.label)]
    merit = _merit(app)
    return {
        "type": "application",
        "name": app.name,
        "metric": FIGURE if app.figure.pattern else "elapsed",
        "unit": merit.unit,
        "better": merit.better,
        "margin": trials.plan.margin,
        "verified": bool(app.verify.pattern or app.verify.command),
        "stopped": trials.stopped,
        "seed": trials.plan.seed,
        "run": trials.plan.run,
        "configurations": [_row(trials, item) for item in configs],
        "failed": dict(trials.excluded),
        "pairs": [asdict(p) | {"text": p.text(merit)} for p in _pairs(trials, app, configs)],
        "working_sets": [asdict(item) for item in _working_sets(trials, app, configs)],
        "prefetchers": [
            asdict(item)
            for item in prefetcher_effects(
                _values(trials, configs), configs, merit, trials.plan.margin, _confidence(configs)
            )
        ],
        "clocks": clock_effects(_values(trials, configs), configs, merit.better),
        "scaling": _scalings(trials, app, configs, machine),
        "levels": [
            {"configuration": c.label, **asdict(level_pair)}
            for c in configs
            if (level_pair := levels(trials.valid_runs(c.label))) is not None
        ],
        "profiles": [asdict(item) for item in profiles],
    }


def _merit(app: Application) -> MeritUnit:
    """Return the merit of the figure that the application prints, or of its elapsed time."""
    better: Any = app.figure.better or "lower"
    return MeritUnit(better, app.figure.unit if app.figure.pattern else "s")


def _row(trials: Trials, configuration: Configuration) -> dict[str, Any]:
    runs = list(trials.valid_runs(configuration.label).values())
    values = [a.value or 0.0 for a in runs]
    warm = trials.warm(configuration.label)
    medians = RunMedians.from_runs(runs)
    sorted_values = sorted(values)
    return {
        "configuration": configuration.label,
        "values": dict(configuration.values),
        "value": median(values),
        "interval": median_interval(values),
        "lowest": sorted_values[0],
        "highest": sorted_values[-1],
        "runs": len(runs),
        "flags": sorted(result_flags(runs)),
        "failed": trials.failures.get(configuration.label, 0),
        "neighbours": neighbours_of(runs),
        "elapsed_s": medians.elapsed_s,
        "user_s": medians.cpu_s - medians.system_s,
        "system_s": medians.system_s,
        "waiting_share": None if warm is None or "waiting" not in warm.times else waiting_share(warm),
        "peak_bytes": medians.peak_bytes,
        "faults": medians.faults,
        "cpus": "" if warm is None else warm.seen.get("cpus", ""),
        "node_bytes": {} if warm is None else warm.seen.get("node_bytes", {}),
        "findings": [] if warm is None else warm.findings,
    }


def _pairs(trials: Trials, app: Application, ran: list[Configuration]) -> list[ConfigurationPair]:
    """Compare each configuration with the first, at the confidence of `_confidence`."""
    if len(ran) < 2:
        return []
    values = _values(trials, ran)
    first = ran[0].label
    confidence = _confidence(ran)
    return [
        compare(c.label, first, (values[c.label], values[first]), _merit(app), trials.plan.margin, confidence)
        for c in ran[1:]
    ]


def _values(trials: Trials, ran: list[Configuration]) -> dict[str, dict[int, float]]:
    """Return the values of each configuration by label and round."""
    return {c.label: {r: a.value or 0.0 for r, a in trials.valid_runs(c.label).items()} for c in ran}


def _working_sets(trials: Trials, app: Application, ran: list[Configuration]) -> list[WorkingSet]:
    return working_sets(_values(trials, ran), ran, _merit(app), trials.plan.margin, _confidence(ran))


def _confidence(ran: Sequence[Configuration]) -> float:
    """Return the confidence of every comparison.

    It is the same for all purposes, because two statements about the same pair must not differ. Comparisons with the
    first configuration are the most numerous, so the confidence that they need suffices for all others.
    """
    return confidence_of_each(len(ran) - 1)


def _scalings(trials: Trials, app: Application, ran: list[Configuration], machine: Topology) -> list[dict[str, Any]]:
    """Return the scaling with each dimension that counts workers, for each combination of the other dimensions."""
    groups = {
        (name, others): {configuration.count(name): configuration for configuration in configurations}
        for name in COUNTS
        for others, configurations in varied(ran, name).items()
    }
    confidence = confidence_of_each(len(groups))
    results = []
    for (name, others), members in groups.items():
        runs = {n: trials.valid_runs(c.label) for n, c in members.items()}
        speeds = {
            n: {r: _speed(app, n, name, a) for r, a in runs_by_round.items()} for n, runs_by_round in runs.items()
        }
        fit = scaling(speeds, confidence=confidence)
        kinds = fit.kinds(trials.plan.margin)
        fewest = min(members)
        # Number of units in each worker, such as the threads of a copy.
        units_each = math.prod(members[fewest].count(count_name) for count_name in COUNTS if count_name != name)
        medians = {
            n: RunMedians.from_runs(list(runs_by_round.values()), trials.warm(members[n].label))
            for n, runs_by_round in runs.items()
        }
        results.append(
            {
                "dimension": name,
                "others": others,
                "points": [
                    asdict(p) | _explained(p, kinds.get(p.workers, ""), fewest, medians, name, machine, units_each)
                    for p in fit.points
                ],
                "amdahl": fit.amdahl and asdict(fit.amdahl),
                "universal": fit.universal and asdict(fit.universal),
            }
        )
    return results


def _speed(app: Application, count: int, name: str, run: ConfigurationRun) -> float:
    """Return the work per time; for copies, the work of all copies together."""
    value = run.value or 0.0
    if app.figure.pattern and app.figure.better == "higher":
        return value
    return (count if name == "copies" else 1) / value


def _explained(
    point: ScalingPoint, kind: str, few: int, usual: Mapping[int, RunMedians], name: str, machine: Topology, each: int
) -> dict[str, str]:
    if not kind:
        return {"kind": "", "reason": ""}
    fewest_medians, point_medians = usual[few], usual[point.workers]
    if kind == "sub-linear":
        return {"kind": kind, "reason": of_sublinear(machine, fewest_medians, point_medians, point.workers, name, each)}
    if name != "threads":
        return {"kind": kind, "reason": UNKNOWN}
    cpus = [core.cpus[0] for core in machine.cores]  # each thread has a separate core
    reason = superlinear_reason(machine.caches, fewest_medians.peak_bytes, cpus[:few], cpus[: point.workers])
    return {"kind": kind, "reason": reason}
