"""`meshmark doctor` and `check-os`: report findings about this machine, its MPI libraries and its placement."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from meshmark.cli.console import counted, say
from meshmark.cli.options import RootOption
from meshmark.errors import MeshmarkError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from meshmark.doctor.finding import HostFinding


def register(app: typer.Typer) -> None:
    """Add the commands `doctor` and `check-os`."""
    app.command("doctor")(doctor)
    app.command("check-os")(check_os)


def doctor(
    what: Annotated[str, typer.Argument(help="mpi: check launchers and MPI libraries [check this machine]")] = "",
    root: RootOption = None,
    pid: Annotated[
        int | None, typer.Option("--pid", min=1, help="find what slows this process now", show_default=False)
    ] = None,
    mpi: Annotated[
        str, typer.Option("--mpi", help="MPI library to check: openmpi, mpich, mpi (any other), or all")
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="print one finding per line")] = False,
) -> None:
    """Find what slows this machine or a process now, and settings that hide data or affect measurements.

    example: meshmark doctor; meshmark doctor --pid 4711
    example: meshmark doctor mpi --mpi openmpi
    """
    if what not in {"", "mpi"}:
        raise UsageError(f"doctor: found '{what}'; allowed: mpi, or nothing for this machine")
    if mpi and not what:
        raise UsageError("--mpi: found without mpi", "meshmark doctor mpi --mpi " + mpi)
    if root and what:
        raise UsageError("--root: found with mpi, allowed without: MPI pitfalls are tested on the running system")
    if pid and (what or root):
        conflict, reason = ("mpi", "it tests libraries") if what else ("--root", "a recorded machine has no processes")
        raise UsageError(f"--pid: found with {conflict}, allowed without: {reason}")
    if pid:
        _print_process(pid, as_json)
        return
    if what:
        from meshmark.doctor.mpi.checks import examine as examine_mpi

        with counted("doctor mpi") as progress:
            _print(examine_mpi(mpi or "all", progress=progress), as_json)
        return
    from meshmark.doctor.finding import HostFinding, in_order
    from meshmark.doctor.host import examine

    absent, failed = _absent_in_sampler(root)
    findings = examine(root or Path("/"), absent)
    if failed:
        consequence = "the metrics that it cannot read are unknown"
        findings.append(HostFinding("sampler", failed, "unknown", consequence))
    if all(f.verdict == "unknown" for f in findings if not f.name.startswith("sampler")):
        raise MeshmarkError(f"doctor: nothing could be read below {root or '/'}", "--root: a folder with proc and sys")
    current_findings, interval_s = _slow_now(root or Path("/"))
    _print(in_order([*current_findings, *findings]), as_json)
    if interval_s and not as_json:
        _say_slow(current_findings, f"this machine, observed for {interval_s:.1f} s")


def _slow_now(root: Path) -> tuple[list[HostFinding], float]:
    """Return findings about what slows a machine now, and the observed interval in s; 0 if observation failed."""
    from meshmark.doctor import now
    from meshmark.doctor.finding import HostFinding
    from meshmark.watch.activity import observe

    try:
        return now.examine(observe, root)
    except MeshmarkError as error:
        return [
            HostFinding("activity", " ".join(str(error).split()), "unknown", "what slows programs now is unknown")
        ], 0.0


def _print_process(pid: int, as_json: bool) -> None:
    """Print the findings about one process."""
    import shutil
    from functools import partial

    from meshmark.doctor.counters import CounterHost, open_counter
    from meshmark.doctor.one_process import examine, pause
    from meshmark.watch.activity import INTERVAL_S

    findings = examine(CounterHost(Path("/"), shutil.which, open_counter), pid, partial(pause, INTERVAL_S))
    _print(findings, as_json)
    if not as_json:
        _say_slow(findings, f"process {pid}, observed for {INTERVAL_S:.1f} s")


def _say_slow(findings: Sequence[HostFinding], subject: str) -> None:
    """Print one line with the causes that slow a machine or a process."""
    causes = [finding.name for finding in findings if finding.verdict == "slows"]
    say(f"{subject}: {'slowed by ' + ', '.join(causes) if causes else 'nothing slows it now'}")


def _print(findings: Sequence[HostFinding], as_json: bool) -> None:
    if as_json:
        for finding in findings:
            print(json.dumps(finding.to_json()))
        return
    from meshmark.doctor.finding import ORDER
    from meshmark.views.terminal.findings import print_findings

    print_findings(findings)
    counts = {j: sum(f.verdict == j for f in findings) for j in ORDER}
    say(
        f"findings: {counts['slows']} that slow programs now, {counts['spoils-measurements']} that affect "
        f"measurements, {counts['hidden']} that hide data, {counts['unknown']} unknown, {counts['ok']} OK"
    )


def _absent_in_sampler(root: Path | None) -> tuple[Sequence[Mapping[str, str]], str]:
    """Return the absent metrics of the sampler, and why it cannot be started ("" if it can)."""
    from meshmark.watch.live import LiveSampler

    try:
        with LiveSampler(10, 0.1, root) as live:
            return live.header.absent, ""
    except MeshmarkError as error:
        return (), " ".join(str(error).split())


def check_os(
    starts: Annotated[
        int, typer.Option("--starts", min=0, max=10_000, help="starts of the triad, each bound and unbound; 0: none")
    ] = 10,
    threads: Annotated[
        int, typer.Option("--threads", min=0, help="threads of the triad [half of the cores]", show_default=False)
    ] = 0,
    provoke: Annotated[
        bool, typer.Option("--provoke", help="briefly fill the memory of each node to show where allocations spill")
    ] = False,
    strict: Annotated[bool, typer.Option("--strict", help="exit with status 1 if a check fails")] = False,
    root: RootOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="print one check per line")] = False,
) -> None:
    """Check that the operating system enforces placement. Also measures what its scheduler costs.

    example: meshmark check-os --starts 20
    """
    from meshmark.doctor.placement import examine

    if starts == 1:
        raise UsageError("--starts: found 1; allowed: 0, or at least 2, since one start has no spread")
    if root is None and threads > len(os.sched_getaffinity(0)):
        raise UsageError(
            f"--threads: found {threads}; allowed: at most {len(os.sched_getaffinity(0))}, the CPUs of this process"
        )
    if root is None and starts:
        say(f"{2 * starts} starts of the triad: up to two minutes")
    from meshmark.views.terminal.findings import print_findings

    findings = examine(root or Path("/"), starts, threads, provoke)
    if as_json:
        for finding in findings:
            print(json.dumps(finding.to_json()))
    else:
        print_findings(findings)
    failed, unknown, ok = (sum(f.verdict == status for f in findings) for status in ("wrong", "unknown", "ok"))
    say(f"{failed} wrong, {unknown} unknown, {ok} ok")
    if strict and failed:
        raise SystemExit(1)
