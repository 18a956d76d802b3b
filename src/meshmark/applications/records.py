"""Turns the runs of an application into records."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from meshmark.applications.application import COUNTS, Application
from meshmark.applications.attempt import ConfigurationRun
from meshmark.applications.configuration import Configuration
from meshmark.applications.effects.profile import Profile
from meshmark.applications.effects.reasons import waiting_share
from meshmark.applications.trials import Trials
from meshmark.place.other_work import result_flags, shares_during
from meshmark.store.record import Metric, Record, Scalar, median
from meshmark.store.run import Absence

INSTRUMENT: Final = "app"
FIGURE: Final = "figure_of_merit"
SHARE: Final = Metric("function_share", "1", "none", "share of the samples of CPU time that were taken in a function")
# Conditions of runs whose cache neighbours limited, see `neighbours`.
_NEIGHBOURS: Final = ("cache_claimed_bytes", "neighbours_held_share", "neighbours_load_s", "neighbours_alone_s")
_TIMES: Final = {
    "user": "CPU time in user mode, all processes",
    "system": "CPU time in the kernel, all processes",
}
_COUNTS: Final = {
    "minor_faults": "page faults without reading from a disk",
    "major_faults": "page faults that read from a disk",
    "switches_involuntary": "times that a thread was preempted",
}


def conditions_of(app: Application, configuration: Configuration) -> dict[str, Scalar]:
    """Return the conditions of the records of a configuration."""
    values: dict[str, Scalar] = {n: int(v) if n in COUNTS else v for n, v in configuration.values.items()}
    return {"program": app.name, "command": shlex.join(app.command), **values}


def records(
    trials: Trials,
    app: Application,
    machine: str,
    command_line: str,
    build: str,
    profiles: Sequence[Profile] = (),
) -> list[Record]:
    """Return the records of each configuration that ran: figure of merit, times, memory and counts, with all samples.

    The share of a function has one sample. `share_low` and `share_high` contain its interval, rather than `run_low` and
    `run_high`, because the interval does not apply to other runs.

    Args:
        trials: Runs of all configurations.
        app: The application that ran.
        machine: Name of this machine.
        command_line: Command line of Meshmark.
        build: Version of Meshmark.
        profiles: Profiles of its configurations; empty if it was not profiled.
    """
    rows: list[Record] = []
    provenance: dict[str, Scalar] = {
        "build": build,
        "command": command_line,
        "start": trials.plan.started,
        "seed": trials.plan.seed,
        "margin": trials.plan.margin,
        "verified": bool(app.verify.pattern or app.verify.command),
    }
    for configuration in trials.all:
        runs = trials.valid_runs(configuration.label)
        if not runs:
            continue
        profile = next((p for p in profiles if p.configuration == configuration.label and not p.reason), None)
        own_provenance = {**provenance, "failed": trials.failures.get(configuration.label, 0)}
        rows += records_of(app, configuration, runs, machine, own_provenance, trials.warm(configuration.label), profile)
    return rows


def records_of(
    app: Application,
    configuration: Configuration,
    runs: Mapping[int, ConfigurationRun],
    machine: str,
    provenance: Mapping[str, Scalar],
    warm: ConfigurationRun | None = None,
    profile: Profile | None = None,
) -> list[Record]:
    """Return the records of a configuration.

    Args:
        app: The application that ran.
        configuration: Values of its dimensions.
        runs: At least one run, by round; all have a value.
        machine: Name of this machine.
        provenance: Provenance of every record.
        warm: The run in which placement was observed.
        profile: Shares of functions; None if it was not profiled.
    """
    flags = result_flags([*runs.values()])
    if warm is not None and warm.findings:
        flags |= {"misplaced"}
    conditions = conditions_of(app, configuration)
    if warm is not None and warm.seen.get("cpus"):
        conditions["observed_cpus"] = str(warm.seen["cpus"])
    conditions |= shares_during(runs.values())
    conditions |= neighbours_of(list(runs.values()))
    extra_provenance: dict[str, Scalar] = {}
    series = [(metric, samples, flags, conditions) for metric, samples in _series(app, configuration, runs)]
    series += [
        (observation, [value], frozenset(), {**conditions, **extra_conditions})
        for observation, value, extra_conditions in _observed(warm)
    ]
    if profile is not None:
        record_conditions = conditions_of(app, configuration)
        series += [
            (SHARE, [share], frozenset(), {**record_conditions, **extra_conditions})
            for share, extra_conditions in _shares(profile)
        ]
        extra_provenance |= {"profiler": profile.tool, "profile": profile.file}
    return [
        Record.from_samples(
            metric,
            samples,
            source="host",
            machine=machine,
            instrument=INSTRUMENT,
            conditions=record_conditions,
            flags=record_flags,
            provenance={**provenance, **extra_provenance},
        )
        for metric, samples, record_flags, record_conditions in series
    ]


def neighbours_of(runs: Sequence[ConfigurationRun]) -> dict[str, float]:
    """Return how well the processes that limited the cache kept their part of it; empty without such processes."""
    names = [name for name in _NEIGHBOURS if all(name in a.counts for a in runs)]
    return {name: median([a.counts[name] for a in runs]) for name in names}


def _series(
    app: Application, configuration: Configuration, runs: Mapping[int, ConfigurationRun]
) -> Iterator[tuple[Metric, list[float]]]:
    attempts = [runs[r] for r in sorted(runs)]
    if app.figure.pattern:
        metric = Metric(FIGURE, app.figure.unit, attempts[0].better, "what the application printed")
        yield metric, [a.value or 0.0 for a in attempts]
    yield (
        Metric("elapsed", "s", "lower", "from the start of the first copy to the end of the last"),
        [a.elapsed_s for a in attempts],
    )
    for name, text in _TIMES.items():
        if all(name in a.times for a in attempts):
            yield Metric(name, "s", "lower", text), [a.times[name] for a in attempts]
    if "copies" in app.dimensions:
        copies = configuration.count("copies")
        yield Metric("throughput", "1/s", "higher", "copies per time"), [copies / a.elapsed_s for a in attempts]
    if all(a.peak_bytes > 0 for a in attempts):  # 0: not known
        yield (
            Metric("peak_memory", "B", "lower", "largest resident memory of a process"),
            [a.peak_bytes for a in attempts],
        )
    for name, text in _COUNTS.items():
        if all(name in a.counts for a in attempts):
            yield Metric(name, "1", "lower", text), [a.counts[name] for a in attempts]


def _observed(warm: ConfigurationRun | None) -> Iterator[tuple[Metric, float, dict[str, Scalar]]]:
    """Yield the observations of the observed run, with further conditions."""
    if warm is None:
        return
    if "waiting" in warm.times:
        text = "time in which threads that could run waited for a CPU"
        yield Metric("waiting", "s", "lower", text), warm.times["waiting"], {}
        text = "waiting as a share of waiting and CPU time, of all threads"
        yield Metric("waiting_share", "1", "lower", text), waiting_share(warm), {}
    metric = Metric("node_memory", "B", "none", "pages on a NUMA node, at their most observed")
    for node, size in (warm.seen.get("node_bytes") or {}).items():
        yield metric, float(size), {"node": int(node)}


def _shares(profile: Profile) -> Iterator[tuple[float, dict[str, Scalar]]]:
    """Yield the share of each function, with further conditions."""
    for hot in profile.functions:
        low, high = hot.interval
        yield (
            hot.share,
            {
                "function": hot.function,
                "object": hot.object,
                "profile_event": profile.event,
                "profile_samples": profile.samples,
                "share_low": low,
                "share_high": high,
            },
        )


def absences(trials: Trials, failed_builds: Mapping[str, str], profiles: Sequence[Profile] = ()) -> list[Absence]:
    """Return why configurations have no result or no profile."""
    reasons = {**{f"build={n}": message for n, message in failed_builds.items()}, **trials.excluded}
    entries = [
        Absence(instrument=INSTRUMENT, metric="", reason=f"{label}: {message}", kind="error")
        for label, message in reasons.items()
    ]
    for (reason, enable), labels in without_profile(profiles).items():
        prefix = "" if len(labels) == len(profiles) else f"{', '.join(labels)}: "
        entries.append(Absence(instrument=INSTRUMENT, metric=SHARE.name, reason=prefix + reason, enable=enable))
    return entries


def without_profile(profiles: Sequence[Profile]) -> dict[tuple[str, str], list[str]]:
    """Return the labels of the configurations without a profile, by the reason and the change that would enable it."""
    groups: dict[tuple[str, str], list[str]] = {}
    for profile in profiles:
        if profile.reason:
            groups.setdefault((profile.reason, profile.enable), []).append(profile.configuration)
    return groups
