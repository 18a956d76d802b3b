"""`meshmark placed`: whether a running program is placed well, and the one command that would help."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated

import typer

from meshmark.cli.options import StoreToReadOption
from meshmark.errors import UnjudgedError, UsageError, quoted
from meshmark.values import grammar
from meshmark.values.paths import default_store

if TYPE_CHECKING:
    from meshmark.applications.effects.profile import Profile
    from meshmark.explain.situation import Situation
    from meshmark.explain.targets import Kind, Target
    from meshmark.explain.verdict import PlacementVerdict
    from meshmark.store.record import Record


def placed(
    process: Annotated[str, typer.Argument(metavar="[PID]", help="a process; its descendants count, too")] = "",
    container: Annotated[str, typer.Option("--container", help="a container instead: its name or ID")] = "",
    cgroup: Annotated[str, typer.Option("--cgroup", help="a control group instead: its path")] = "",
    unit: Annotated[str, typer.Option("--unit", help="a unit of systemd instead: its name")] = "",
    job: Annotated[str, typer.Option("--slurm-job", help="a job of Slurm on this node instead: JOB or JOB.STEP")] = "",
    pod: Annotated[str, typer.Option("--pod", help="a pod of Kubernetes instead: its name or UID")] = "",
    duration: Annotated[str, typer.Option("--duration", help="observe for this time", metavar="TIME")] = "1s",
    survey: Annotated[
        str,
        typer.Option(
            "--survey", help="latencies between nodes, and bandwidths: a run or a machine of the store [this machine]"
        ),
    ] = "",
    cpus: Annotated[
        str, typer.Option("--cpus", help="verify: CPUs that every thread should be allowed to use [its reservation]")
    ] = "",
    nodes: Annotated[str, typer.Option("--nodes", help="verify: memory nodes where its pages should be")] = "",
    each: Annotated[
        bool, typer.Option("--each", help="verify: each rank or thread has its own CPU of --cpus or of the reservation")
    ] = False,
    interval: Annotated[str, typer.Option("--interval", help="verify: interval of samples", metavar="TIME")] = "",
    profile: Annotated[
        bool,
        typer.Option("--profile", help="also name the hottest functions of the process that ran most, by perf"),
    ] = False,
    fix: Annotated[bool, typer.Option("--fix", help="carry the command out, observe again, and print both")] = False,
    undo: Annotated[bool, typer.Option("--undo", help="restore the placement before the last --fix")] = False,
    store: StoreToReadOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON object")] = False,
) -> None:
    """Judge whether a running program is placed well, and name the one command that would help.

    With --cpus, --nodes, --each or --interval, and for a process with a reservation, verify that expectation instead.

    Exit status 0: well placed, or the expectation held; 1: badly placed, or it did not hold; 3: could not tell.

    example: meshmark placed 4711 --profile; meshmark placed --unit postgresql
    example: meshmark placed 4711 --cpus 0-3 --nodes 0
    """
    kinds: dict[Kind, str] = {
        "process": process,
        "container": container,
        "cgroup": cgroup,
        "unit": unit,
        "slurm-job": job,
        "pod": pod,
    }
    named = {kind: name for kind, name in kinds.items() if name}
    if len(named) != 1:
        message = "found several programs" if named else "found no program"
        raise UsageError(f"placed: {message}; required: one of PID, --container, --cgroup, --unit, --slurm-job, --pod")
    if cpus or nodes or each or interval or (_has_reservation(process) and not profile):
        from meshmark.cli.place.native_verb import become

        become("placed")
    seconds = grammar.seconds("--duration", duration)
    if not 0.01 <= seconds <= 3600:
        raise UsageError(f"--duration: found '{quoted(duration)}'; allowed: 10ms to 1h")
    if fix and undo:
        raise UsageError("--fix: found with --undo; one of them is allowed")
    if profile and undo:
        raise UsageError("--profile: found with --undo; allowed without it")
    ((kind, name),) = named.items()
    target = _target(kind, name)
    if undo:
        from meshmark.explain.change import undo as undo_change

        for line in undo_change(target):
            print(line)
        return
    verdict = _answer(_observer(target, seconds, survey, store), fix, profile, as_json)
    if verdict.kind == "badly placed":
        raise typer.Exit(1)
    if verdict.kind == "could not tell":
        raise typer.Exit(UnjudgedError.status)


def _observer(target: Target, seconds: float, survey: str, store: Path | None) -> Callable[[], Situation]:
    """Return the function that observes a program.

    On a machine with one memory node, no latency matters, so that the store is not read.
    """
    from meshmark.explain.situation import situation
    from meshmark.machine.sources import from_sysfs

    topology = from_sysfs()
    records = _measurements(survey, store) if survey or len(topology.nodes) > 1 else []
    return partial(situation, topology, target, seconds, records)


def _answer(observe: Callable[[], Situation], fix: bool, with_profile: bool, as_json: bool) -> PlacementVerdict:
    """Observe, judge and print; with `fix`, also carry out what the verdict suggests, and observe again."""
    from meshmark.explain.verdict import judge

    first = observe()
    verdict = judge(first)
    profile = _profile(first) if with_profile else None
    if not fix or verdict.action is None:
        _print(first, verdict, as_json, profile=profile)
        return verdict
    from meshmark.explain.answer import answer
    from meshmark.explain.change import carry_out

    if not as_json:
        _print(first, verdict, as_json, profile=profile)
    changes = carry_out(first, verdict.action)
    if not as_json:
        print("", *changes, "", sep="\n")
    before, last = answer(first, verdict), observe()
    verdict = judge(last)
    _print(last, verdict, as_json, {"changes": changes, "before": before}, profile if as_json else None)
    return verdict


def _profile(observed: Situation) -> Profile | None:
    """Return the profile of the process that ran most; None if no process ran."""
    from tempfile import TemporaryDirectory

    from meshmark.applications.effects.profiler import profile_process

    observation = observed.observation
    hottest = max(observation.processes, key=lambda p: p.ran_s, default=None)
    if hottest is None:
        return None
    with TemporaryDirectory(prefix="meshmark-profile-") as folder:
        name = f"{hottest.command} ({hottest.process})"
        cpus = hottest.ran_s / observation.seconds
        return profile_process(hottest.process, name, max(observation.seconds, 1.0), cpus, Path(folder))


def _print(
    observed: Situation,
    verdict: PlacementVerdict,
    as_json: bool,
    more: Mapping[str, object] = MappingProxyType({}),
    profile: Profile | None = None,
) -> None:
    """Print a verdict and a profile as text, or as one JSON object with these further keys."""
    if as_json:
        from meshmark.explain.answer import answer, profile_answer

        profiled = {"profile": profile_answer(profile)} if profile else {}
        print(json.dumps({**answer(observed, verdict), **more, **profiled}))
        return
    from meshmark.views.terminal.placed import print_profile, print_verdict

    print_verdict(observed, verdict)
    if profile:
        print_profile(profile)


def _target(kind: Kind, name: str) -> Target:
    """Return the program without this process, which may be one of its descendants."""
    from meshmark.explain.targets import find_target
    from meshmark.machine.tree import FileTree

    target = find_target(FileTree(Path("/")), kind, name)
    others = tuple(p for p in target.processes if p != os.getpid())
    return replace(target, processes=others or target.processes)


def _has_reservation(process: str) -> bool:
    if not process.isdecimal():
        return False
    try:
        return b"\0MESHMARK_CLAIM=" in b"\0" + Path(f"/proc/{process}/environ").read_bytes()
    except OSError:
        return False


def _measurements(survey: str, store: Path | None) -> list[Record]:
    """Return latencies and bandwidths of this machine, or of a run or machine of the store."""
    from meshmark.machine.facts import host_id
    from meshmark.store.store import Store

    archive = Store(store or default_store())

    def rows(instrument: str, metric: str, **of: str) -> list[Record]:
        return [record for _, _, record in archive.rows(instrument=instrument, metric=metric, **of)]

    of = {"machine": host_id()} if not survey else {"run": survey}
    latencies = rows("latency", "load_latency", **of)
    if survey and not latencies:
        of = {"machine": survey}
        latencies = rows("latency", "load_latency", **of)
    if survey and not latencies:
        raise UsageError(
            f"--survey: found '{quoted(survey)}', of which the store has no latency", "meshmark store list"
        )
    return latencies + rows("bandwidth", "bandwidth_net", **of)
