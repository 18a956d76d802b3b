"""Read the folder of a scenario run as a `LoadRun`.

A killed scenario cannot be resumed, but its folder is readable like any other, and the result is marked as cut.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from meshmark.errors import MeshmarkError, UsageError, quoted
from meshmark.load.scenario.application import CopyVerdict, read_verdicts
from meshmark.load.scenario.lines import journal_lines, kept_scenario
from meshmark.load.scenario.result import Key, LoadRun, ProgramUse, ThreadSpan, ThreadUse
from meshmark.load.scenario.scenario import file_stem
from meshmark.machine.tree import parse_list
from meshmark.process import signal_name
from meshmark.store.files import open_regular
from meshmark.store.record import Metric

JOURNAL: Final = "run.jsonl"


@dataclass
class _JournalThread:
    line: Mapping[str, Any]
    samples: list[list[Any]] = field(default_factory=list)  # [t_s, state, cpu, ran_ns, waited_ns, user, system]
    total: Mapping[str, Any] | None = None


def read_run(folder: Path, samples: bool = True, judged: bool = True) -> LoadRun:
    """Return a run from its folder, complete or cut. Damaged lines of the journal are skipped.

    Args:
        folder: the folder of the run.
        samples: whether to read samples and windows; without them, a long run is fast to read, as in a list of runs.
        judged: whether a copy of an application succeeds only if its output was judged to be right.

    Raises:
        UsageError: the folder contains no run.
    """
    journal = folder / JOURNAL
    if not journal.is_file():
        raise UsageError(f"{folder}: contains no run of a scenario")
    header: dict[str, Any] = {}
    end: dict[str, Any] = {}
    events: list[dict[str, Any]] = []
    canary: list[dict[str, Any]] = []
    totals: dict[Key, dict[str, Any]] = {}
    done_lines: dict[Key, dict[str, Any]] = {}
    pages: dict[tuple[Key, int], dict[int, int]] = {}
    windows: dict[Key, list[dict[str, Any]]] = {}
    threads: dict[int, _JournalThread] = {}
    start_s, latest_s = None, 0.0
    for line in journal_lines(journal, () if samples else (b'{"type":"sample"', b'{"type":"window"')):
        kind = line["type"]
        t_s = float(line.get("t_s", latest_s))
        latest_s = max(latest_s, t_s)
        if kind == "header":
            header = line
        elif kind == "event":
            events.append(line)
            if line["event"] == "start":
                start_s = t_s
        elif kind == "thread":
            threads[line["thread"]] = _JournalThread(line)
        elif kind == "sample":
            for number, *sample in line["threads"]:
                if number in threads:
                    threads[number].samples.append([t_s, *sample])
        elif kind == "thread_total":
            threads.setdefault(line["thread"], _JournalThread(line)).total = line
        elif kind == "pages":
            key = (line["program"], line["copy"])
            pages[key, line["pid"]] = {int(n): b for n, b in line["bytes"].items()}
        elif kind == "canary":
            canary.append(line)
        elif kind == "end":
            end = line
        elif kind in {"window", "done", "total"}:
            key = (line["program"], line["copy"])
            if kind == "window":
                windows.setdefault(key, []).append(line)
            else:
                (done_lines if kind == "done" else totals)[key] = line
    clock_start_s = start_s if start_s is not None else latest_s
    scenario = kept_scenario(folder / "scenario.json")
    available = _list(str(scenario.get("available_cpus", header.get("conditions", {}).get("cpus_allowed", ""))))
    copies = {(p["program"], p["copy"]): p for p in header.get("programs", ())}
    bound_cpus = {key: _list(str(p.get("cpus", ""))) for key, p in copies.items()}
    nodes = {key: _list(str(p.get("nodes", "none"))) for key, p in copies.items()}
    cpus = set().union(*(set(c or available) for c in bound_cpus.values())) if bound_cpus else set(available)
    uses = sorted(
        (_thread_use(t, clock_start_s, float(header.get("sample_s", 0.1))) for t in threads.values()),
        key=lambda t: t.thread,
    )
    status = str(end.get("status", "cut"))
    programs = [
        _program_use(key, totals.get(key), events, uses, done_lines.get(key, {}), pages, clock_start_s, latest_s)
        for key in bound_cpus
    ]
    programs = [p if p.how == "ok" else replace(p, reason=p.reason + _last_error_line(folder, p)) for p in programs]
    described = {str(p["name"]) for p in scenario.get("programs", ()) if p.get("application")}
    if described and judged:
        verdicts = read_verdicts(folder)
        programs = [_judged(p, verdicts.get((p.program, p.copy))) if p.program in described else p for p in programs]
    for key, rows in windows.items():
        released = next((p.released_s for p in programs if (p.program, p.copy) == key), 0.0)
        for w in rows:
            w["from_s"], w["to_s"] = float(w["from_s"]) + released, float(w["to_s"]) + released
    for e in events + canary:
        e["t_s"] = float(e["t_s"]) - clock_start_s
    end_times = [p.ended_s for p in programs if p.how != "failed"]
    return LoadRun(
        folder=folder,
        status=status,
        header=header,
        scenario=scenario,
        programs=programs,
        threads=uses,
        bench_s=max(end_times, default=0.0),
        cpus=tuple(sorted(cpus)),
        bound=bound_cpus,
        events=events,
        windows=windows,
        canary=canary,
        end=end,
        begin_s=clock_start_s,
        nodes=nodes,
    )


def _judged(p: ProgramUse, verdict: CopyVerdict | None) -> ProgramUse:
    """Return a copy of an application, judged by its output."""
    if p.how != "ok":
        return p
    if verdict is None:
        return replace(p, how="cut", reason=f"{_INTERRUPTED} before its result was read")
    if verdict.reason:
        return replace(p, how="status", reason=verdict.reason)
    if verdict.value is None:
        return p
    figure = Metric("figure_of_merit", verdict.unit, verdict.better, "what the program reports about itself")
    return replace(p, figure=figure, figure_value=verdict.value)


def _list(text: str) -> tuple[int, ...]:
    try:
        return parse_list(text) if text != "none" else ()
    except MeshmarkError:
        return ()


def _thread_use(t: _JournalThread, begin: float, sample_s: float) -> ThreadUse:
    first_s = float(t.total["from_s"] if t.total else t.line["t_s"])
    spans, migrations, ran_on = spans_of(
        t.samples, first_s, float(t.total["to_s"]) if t.total else None, begin, sample_s
    )
    line = t.total or t.line
    fields: dict[str, Any] = {
        "thread": int(line["thread"]),
        "program": str(line["program"]),
        "copy": int(line["copy"]),
        "pid": int(line["pid"]),
        "tid": int(line["tid"]),
        "command": str(line["command"]),
        "spans": spans,
    }
    if t.total:
        return ThreadUse(
            from_s=first_s - begin,
            to_s=float(line["to_s"]) - begin,
            migrations=int(line["migrations"]),
            cpus=_list(str(line["cpus"])),
            user_s=float(line["user_s"]),
            system_s=float(line["system_s"]),
            waiting_s=float(line["waiting_s"]),
            sleeping_s=float(line["sleeping_s"]),
            **fields,
        )
    return ThreadUse(
        from_s=first_s - begin,
        to_s=spans[-1].to_s if spans else first_s - begin,
        migrations=migrations,
        cpus=ran_on,
        user_s=sum(x.user_s for x in spans),
        system_s=sum(x.system_s for x in spans),
        waiting_s=sum(x.waiting_s for x in spans),
        sleeping_s=sum(x.sleeping_s for x in spans),
        **fields,
    )


_INTERRUPTED: Final = "the run was interrupted"
_PARTS: Final = ("user_s", "system_s", "waiting_s", "sleeping_s")


def spans_of(
    samples: Sequence[Sequence[Any]], first: float, last: float | None, begin: float, sample_s: float
) -> tuple[tuple[ThreadSpan, ...], int, tuple[int, ...]]:
    """Return the samples as spans without gaps, the number of migrations, and the CPUs on which the thread ran.

    A sleeping thread is not sampled, so a gap is sleep. The Linux kernel adds to a thread's waiting time only when the
    thread gets a CPU: waiting time beyond the length of a span belongs to earlier spans. Waiting time that does not fit
    into earlier spans was read slightly later than the timestamp of the sample, and belongs to the next span.
    """
    spans: list[list[Any]] = []  # from, to, ran, waited, system share, CPU, moved
    position, cpu, moves, late_s = first, None, 0, 0.0
    cpus: set[int] = set()
    for t_s, _, sampled_cpu, ran_ns, waited_ns, user, system in samples:
        if t_s <= position and not spans:
            cpu = sampled_cpu
            continue
        ran_s, waited_s = ran_ns * 1e-9, waited_ns * 1e-9 + late_s
        late_s = 0.0
        length = max(0.0, t_s - position)
        if length > 1.5 * sample_s:
            # The thread slept until one sampling period ago, unless it ran and waited longer than that.
            sleep_s = min(length - sample_s, max(0.0, length - ran_s - waited_s))
            if sleep_s > 0:
                spans.append([position, position + sleep_s, 0.0, 0.0, 0.0, sampled_cpu if cpu is None else cpu, False])
                position += sleep_s
                length -= sleep_s
        has_moved = cpu is not None and sampled_cpu != cpu
        moves += has_moved
        if ran_s > 0:
            cpus.add(sampled_cpu)
        cpu = sampled_cpu
        excess = ran_s + waited_s - length
        if excess > 0:
            waited_s = max(0.0, waited_s - excess)
            ran_s = min(ran_s, length)
            for span in reversed(spans):
                free = span[1] - span[0] - span[2] - span[3]
                if excess <= 1e-9 or free <= 1e-9:
                    break
                span[3] += min(free, excess)
                excess -= min(free, excess)
            late_s = max(0.0, excess)
        spans.append(
            [position, t_s, ran_s, waited_s, system / (user + system) if user + system else 0.0, sampled_cpu, has_moved]
        )
        position = max(position, t_s)
    if last is not None and last > position and spans:
        spans.append([position, last, 0.0, 0.0, 0.0, spans[-1][5], False])
    return (
        tuple(
            ThreadSpan(
                a - begin,
                b - begin,
                ran_s * (1 - share),
                ran_s * share,
                waited_s,
                max(0.0, b - a - ran_s - waited_s),
                sampled_cpu,
                has_moved,
            )
            for a, b, ran_s, waited_s, share, sampled_cpu, has_moved in spans
        ),
        moves,
        tuple(sorted(cpus)),
    )


def _last_error_line(folder: Path, p: ProgramUse) -> str:
    """Return the last line that a program wrote to its standard error."""
    try:
        with open_regular(folder / "output" / f"{file_stem(p.program)}.{p.copy}.err") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - 4096))
            tail = file.read().decode(errors="replace").split("\n")
    except OSError:
        return ""
    lines = [" ".join(x.split()) for x in tail if x.strip()]
    return ": " + quoted(lines[-1].removeprefix("meshmark: ").removeprefix("error: "), 200) if lines else ""


def _program_use(
    key: Key,
    total: Mapping[str, Any] | None,
    events: Sequence[Mapping[str, Any]],
    threads: Sequence[ThreadUse],
    done: Mapping[str, Any],
    pages: Mapping[tuple[Key, int], Mapping[int, int]],
    begin: float,
    last: float,
) -> ProgramUse:
    program, copy = key
    own_events = {str(e["event"]): e for e in events if (e.get("program"), e.get("copy")) == key}
    work = {k: v for k, v in done.items() if k not in {"type", "t_s", "program", "copy"}}
    if total is not None and total.get("how") != "failed":
        how = str(total["how"])
        parts: dict[str, Any] = {k: float(total[k]) for k in _PARTS}
        reason = {
            "status": f"ended with status {total.get('status')}",
            "signal": f"was terminated by {signal_name(int(total.get('signal', 0)))}",
            "timeout": "was terminated at the scenario's timeout_s",
            "stopped": "was terminated with the run",
        }.get(how, "")
        if how == "ok" and work.get("wrong"):
            how, reason = "status", f"the result of a load kernel is wrong: {work['wrong'][0]}"
        return ProgramUse(
            program=program,
            copy=copy,
            how=how,
            reason=reason,
            setup_s=float(total.get("setup_s", 0.0)),
            released_s=float(total["released_s"]) - begin,
            ended_s=float(total["ended_s"]) - begin,
            unseen_s=float(total["unseen_s"]),
            threads=int(total["threads"]),
            migrations=int(total["migrations"]),
            largest_bytes=int(total["largest_bytes"]),
            pages={int(n): int(b) for n, b in total.get("pages", {}).items()},
            done=work,
            **parts,
        )
    if "failed" in own_events or "released" not in own_events:
        reason = str(own_events.get("failed", {}).get("reason", f"{_INTERRUPTED} before it was released"))
        return ProgramUse(program=program, copy=copy, how="failed", reason=reason)
    own_threads = [t for t in threads if (t.program, t.copy) == key]
    end_s = float(own_events["exit"]["t_s"]) if "exit" in own_events else last
    node_bytes: dict[int, int] = {}
    for (owner, _), nodes in pages.items():
        for node, n in nodes.items():
            if owner == key:
                node_bytes[node] = node_bytes.get(node, 0) + n
    times: dict[str, Any] = {k: sum(getattr(t, k) for t in own_threads) for k in _PARTS}
    is_clean = own_events.get("exit", {}).get("status") == 0
    return ProgramUse(
        program=program,
        copy=copy,
        how="ok" if is_clean else "cut",
        reason="" if is_clean else _INTERRUPTED if "exit" not in own_events else f"failed, and {_INTERRUPTED}",
        released_s=float(own_events["released"]["t_s"]) - begin,
        ended_s=end_s - begin,
        threads=len(own_threads),
        migrations=sum(t.migrations for t in own_threads),
        pages=node_bytes,
        done=work,
        **times,
    )
