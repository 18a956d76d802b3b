"""Turns the runs of an application into records."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from meshmark.place.app.application import COUNTS, Application
from meshmark.place.app.attempt import Attempt
from meshmark.place.app.configuration import Configuration
from meshmark.place.app.profile import Profile
from meshmark.place.app.reasons import waiting_share
from meshmark.place.app.trials import Trials
from meshmark.place.other_work import result_flags, shares_during
from meshmark.store.record import Metric, Record, Scalar, median
from meshmark.store.run import Absence

INSTRUMENT: Final = "app"
FIGURE: Final = "figure_of_merit"
SHARE: Final = Metric("function_share", "1", "none", "share of the samples of CPU time that were taken in a function")
# Of runs whose cache neighbours limited, see `neighbours`.
_NEIGHBOURS: Final = ("cache_claimed_bytes", "neighbours_held_share", "neighbours_load_s", "neighbours_alone_s")
_TIMES: Final = {
    "user": "CPU time in user mode, all processes",
    "system": "CPU time in the kernel, all processes",
}
_COUNTS: Final = {
    "minor_faults": "page faults without reading from a disk",
    "major_faults": "page faults that read from a disk",
    "switches_involuntary": "times that a thread lost its CPU",
}


def conditions_of(app: Application, one: Configuration) -> dict[str, Scalar]:
    """Conditions of the records of a configuration."""
    values: dict[str, Scalar] = {n: int(v) if n in COUNTS else v for n, v in one.values.items()}
    return {"program": app.name, "command": shlex.join(app.command), **values}


def records(
    found: Trials,
    app: Application,
    machine: str,
    command_line: str,
    build: str,
    profiles: Sequence[Profile] = (),
) -> list[Record]:
    """Records of each configuration that ran: the figure of merit, times, memory and counts, each with all samples.

    The shares of functions have one sample, and its interval in `share_low` and `share_high`: not in `run_low` and
    `run_high`, since it says nothing about other runs.

    Args:
        machine: Name of this machine.
        command_line: Of Meshmark.
        build: Version of Meshmark.
    """
    made: list[Record] = []
    provenance: dict[str, Scalar] = {
        "build": build,
        "command": command_line,
        "start": found.plan.started,
        "seed": found.plan.seed,
        "margin": found.plan.margin,
        "verified": bool(app.verify.pattern or app.verify.command),
    }
    for one in found.all:
        runs = found.of(one.label)
        if not runs:
            continue
        profile = next((p for p in profiles if p.configuration == one.label and not p.reason), None)
        own = {**provenance, "failed": found.failures.get(one.label, 0)}
        made += records_of(app, one, runs, machine, own, found.warm(one.label), profile)
    return made


def records_of(
    app: Application,
    one: Configuration,
    runs: Mapping[int, Attempt],
    machine: str,
    provenance: Mapping[str, Scalar],
    warm: Attempt | None = None,
    profile: Profile | None = None,
) -> list[Record]:
    """Records of a configuration.

    Args:
        runs: At least one, by round; all have a value.
        warm: The run in which placement was observed.
    """
    flags = result_flags([*runs.values()])
    if warm is not None and warm.findings:
        flags |= {"misplaced"}
    conditions = conditions_of(app, one)
    if warm is not None and warm.seen.get("cpus"):
        conditions["observed_cpus"] = str(warm.seen["cpus"])
    conditions |= shares_during(runs.values())
    conditions |= neighbours_of(list(runs.values()))
    more: dict[str, Scalar] = {}
    series = [(metric, samples, flags, conditions) for metric, samples in _series(app, one, runs)]
    series += [(what, [value], frozenset(), {**conditions, **where}) for what, value, where in _observed(warm)]
    if profile is not None:
        under = conditions_of(app, one)
        series += [(SHARE, [share], frozenset(), {**under, **where}) for share, where in _shares(profile)]
        more |= {"profiler": profile.tool, "profile": profile.file}
    return [
        Record.of(
            metric,
            samples,
            source="host",
            machine=machine,
            instrument=INSTRUMENT,
            conditions=under,
            flags=flagged,
            provenance={**provenance, **more},
        )
        for metric, samples, flagged, under in series
    ]


def neighbours_of(runs: Sequence[Attempt]) -> dict[str, float]:
    """How well the processes that limited the cache kept their part of it; empty without such processes."""
    known = [name for name in _NEIGHBOURS if all(name in a.counts for a in runs)]
    return {name: median([a.counts[name] for a in runs]) for name in known}


def _series(app: Application, one: Configuration, runs: Mapping[int, Attempt]) -> Iterator[tuple[Metric, list[float]]]:
    these = [runs[r] for r in sorted(runs)]
    if app.figure.pattern:
        what = Metric(FIGURE, app.figure.unit, these[0].better, "what the application printed")
        yield what, [a.value or 0.0 for a in these]
    yield (
        Metric("elapsed", "s", "lower", "from the start of the first copy to the end of the last"),
        [a.elapsed_s for a in these],
    )
    for name, text in _TIMES.items():
        if all(name in a.times for a in these):
            yield Metric(name, "s", "lower", text), [a.times[name] for a in these]
    if "copies" in app.dimensions:
        copies = one.count("copies")
        yield Metric("throughput", "1/s", "higher", "copies per time"), [copies / a.elapsed_s for a in these]
    if all(a.peak_bytes > 0 for a in these):  # 0: not known
        yield Metric("peak_memory", "B", "lower", "largest resident memory of a process"), [a.peak_bytes for a in these]
    for name, text in _COUNTS.items():
        if all(name in a.counts for a in these):
            yield Metric(name, "1", "lower", text), [a.counts[name] for a in these]


def _observed(warm: Attempt | None) -> Iterator[tuple[Metric, float, dict[str, Scalar]]]:
    """What was seen in the observed run, with further conditions."""
    if warm is None:
        return
    if "waiting" in warm.times:
        text = "time in which threads that could run waited for a CPU"
        yield Metric("waiting", "s", "lower", text), warm.times["waiting"], {}
        text = "waiting as a share of waiting and CPU time, of all threads"
        yield Metric("waiting_share", "1", "lower", text), waiting_share(warm), {}
    what = Metric("node_memory", "B", "none", "pages on a NUMA node, at their most observed")
    for node, size in (warm.seen.get("node_bytes") or {}).items():
        yield what, float(size), {"node": int(node)}


def _shares(profile: Profile) -> Iterator[tuple[float, dict[str, Scalar]]]:
    """The share of each function, with further conditions."""
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


def absences(found: Trials, failed_builds: Mapping[str, str], profiles: Sequence[Profile] = ()) -> list[Absence]:
    """Why configurations have no result, or no profile."""
    reasons = {**{f"build={n}": why for n, why in failed_builds.items()}, **found.excluded}
    made = [
        Absence(instrument=INSTRUMENT, metric="", reason=f"{label}: {why}", kind="error")
        for label, why in reasons.items()
    ]
    for (reason, enable), labels in without_profile(profiles).items():
        which = "" if len(labels) == len(profiles) else f"{', '.join(labels)}: "
        made.append(Absence(instrument=INSTRUMENT, metric=SHARE.name, reason=which + reason, enable=enable))
    return made


def without_profile(profiles: Sequence[Profile]) -> dict[tuple[str, str], list[str]]:
    """The configurations without a profile, by the reason and what would enable it."""
    made: dict[tuple[str, str], list[str]] = {}
    for one in profiles:
        if one.reason:
            made.setdefault((one.reason, one.enable), []).append(one.configuration)
    return made
