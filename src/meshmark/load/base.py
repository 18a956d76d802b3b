"""Base data: measured by a survey of the instrument `kernels`, read back as variants for synthesis."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from meshmark.errors import MeshmarkError, UsageError
from meshmark.load.variants import COUNTER_PREFIX, COUNTS, LEVELS, Variant
from meshmark.measure.journal import parse_line
from meshmark.measure.plan import Plan
from meshmark.store.files import open_regular, read_json
from meshmark.store.lines import MAX_LINE_BYTES
from meshmark.store.record import Record

CALL_S = 2.5e-4  # aimed at: between 0.05 and 1 ms, so that windows of a tenth of a second keep the mean
SPECS: Final = ("load", "load-quick")  # taken by themselves, the first before the second; others by name
INSTRUMENT: Final = "kernels"


def _size(volume: int) -> str:
    for unit, power in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if volume >= 1 << power and volume % (1 << (power - 2)) == 0:
            return f"{volume / (1 << power):g}{unit}"
    return f"{volume}B"


def variants_of(records: Iterable[Record]) -> list[Variant]:
    """Variants with the times and counts of one call, from results of the instrument `kernels`.

    A call is a power of two of units, as near a quarter of a millisecond as may be. Results whose kernel's check
    failed are left out.

    Raises:
        MeshmarkError: a condition is not what the instrument writes, by its name.
    """
    wall: dict[tuple[str, int, int, int], Record] = {}
    cpu: dict[tuple[str, int, int, int], Record] = {}
    for r in records:
        if r.instrument != INSTRUMENT or "unverified" in r.flags:
            continue
        key = (
            _text(r, "kernel"),
            int(_number(r, "volume_bytes")),
            int(_number(r, "stride")),
            int(_number(r, "threads")),
        )
        {"unit_time": wall, "unit_cpu_time": cpu}.get(r.metric, {})[key] = r
    found = []
    for key, r in sorted(wall.items()):
        kernel, volume, stride, threads = key
        if key not in cpu or not r.value > 0:
            continue
        window = 2 ** max(0, round(math.log2(CALL_S / r.value)))
        level = str(r.conditions.get("served_by", "memory"))
        cpu_s = max(0.0, cpu[key].value) * window
        found.append(
            Variant(
                name=f"{kernel}/{_size(volume)}/s{stride}/t{threads}" if volume else f"{kernel}/s{stride}/t{threads}",
                kernel=kernel,
                kind=_text(r, "kind"),
                volume_bytes=volume,
                stride=stride,
                threads=threads,
                window=window,
                team=bool(r.conditions.get("team")),
                served_by=level if level in LEVELS else "memory",
                wall_s=r.value * window,
                cpu_s=cpu_s,
                system_s=min(1.0, max(0.0, _number(r, "system_share"))) * cpu_s,
                wall_interval_s=(r.interval[0] * window, r.interval[1] * window) if r.interval else None,
                counters={
                    name.removeprefix(COUNTER_PREFIX): _number(r, name) * window
                    for name in sorted(r.conditions)
                    if name.startswith(COUNTER_PREFIX)
                },
                **{name: _number(r, name) * window for name in COUNTS},
            )
        )
    return found


def _number(r: Record, name: str) -> float:
    value = r.conditions.get(name, 0)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise MeshmarkError(f"base data: {r.metric}: condition {name}: found {value!r}, a number is needed")
    return float(value)


def _text(r: Record, name: str) -> str:
    value = r.conditions.get(name)
    if not isinstance(value, str):
        raise MeshmarkError(f"base data: {r.metric}: condition {name}: found {value!r}, text is needed")
    return value


@dataclass(frozen=True, slots=True)
class BaseRun:
    """What a run folder of base data says of itself, without its results."""

    folder: Path
    spec: str
    machine: str
    started: str  # ISO 8601
    finished: bool  # all steps were run, also where some of them failed


def look(folder: Path) -> BaseRun | None:
    """Whether a folder holds base data (a survey of the instrument `kernels` alone), and whose; None where it does not.

    Reads the plan and, of base data alone, the state and the first line of a journal: a folder of runs may hold many,
    and long ones.

    Raises:
        MeshmarkError: the plan or the state of the run cannot be read.
    """
    plan = Plan.load(folder / "plan.json")
    if not plan.steps or any(step.instrument != INSTRUMENT for step in plan.steps):
        return None
    try:
        state = read_json(folder / "run.json")
        started, finished = str(state["started"]), bool(state["steps"])
        machine = next((m for step in plan.steps if (m := _machine(folder / "journal" / f"{step.id}.jsonl"))), "")
    except (UsageError, OSError, ValueError, KeyError, TypeError) as why:
        raise MeshmarkError(f"cannot read {folder / 'run.json'}: {why}") from why
    if not machine:  # killed before its first word: the plan says which machine was meant
        words = plan.steps[0].argv
        machine = words[words.index("--machine") + 1] if "--machine" in words[:-1] else ""
    return BaseRun(folder, plan.spec, machine, started, finished)


def _machine(journal: Path) -> str:
    """The machine of a journal's header, "" where there is none."""
    try:
        lines = open_regular(journal)
    except FileNotFoundError:
        return ""
    with lines:
        header = parse_line(lines.readline(MAX_LINE_BYTES)) or {}
    return str(header.get("machine", ""))


def base_runs(runs: Path, machine: str) -> list[BaseRun]:
    """All base data of a machine below a folder of runs, the newest first. Runs that cannot be read are passed by."""
    found = []
    for folder in runs.glob("*"):
        try:
            it = look(folder) if (folder / "plan.json").exists() else None
        except MeshmarkError:
            continue
        if it is not None and it.machine == machine:
            found.append(it)
    return sorted(found, key=lambda b: (b.started, b.folder.name), reverse=True)


def base_spec(quick: bool, own: Path | None) -> str:
    """The specification to run: a shipped one, or a file whose steps are all of the instrument `kernels`.

    Raises:
        UsageError: it is none, by the name of the step.
    """
    from meshmark.measure.spec import load_spec

    if own is None:
        return SPECS[quick]
    if quick:
        raise UsageError("--spec: found with --quick; allowed is one of them")
    for i, step in enumerate(load_spec(str(own)).step):
        if step.instrument != INSTRUMENT:
            raise UsageError(
                f"--spec: {own}: step {step.name or i + 1}: instrument: found {step.instrument!r}; "
                f"allowed is {INSTRUMENT}",
                "meshmark survey --spec runs any",
            )
    return str(own)


def base_run(runs: Path, machine: str, name: str = "") -> Path | None:
    """The folder of base data: of that name, or the newest full one of this machine, else its newest quick one. Without
    a name only finished ones count.

    Raises:
        MeshmarkError: there is none of that name, or it is of another machine.
    """
    from meshmark.measure.survey import find_run

    if name:
        folder = find_run(name, runs)
        it = look(folder)
        if it is None:
            spec = Plan.load(folder / "plan.json").spec
            raise MeshmarkError(
                f"--base: {folder} holds a survey '{spec}', no calibration data", "run meshmark load base"
            )
        if it.machine != machine:
            raise MeshmarkError(
                f"--base: {folder} is of machine {it.machine or 'unknown'}, this one is {machine}",
                "meshmark load base takes this machine's",
            )
        return folder
    mine = [b for b in base_runs(runs, machine) if b.finished]
    return next((b.folder for spec in SPECS for b in mine if b.spec == spec), None)


def last_base(runs: Path, machine: str) -> Path | None:
    """The newest base data of a machine, finished or not: what --resume goes on with."""
    return next((b.folder for b in base_runs(runs, machine)), None)


def read_base(folder: Path) -> tuple[list[Variant], list[str]]:
    """The variants of a run of base data, and one line for each thing that is wrong with it.

    Raises:
        MeshmarkError: it cannot be read, or holds no variant.
    """
    from meshmark.measure.survey import load_run

    records, absences, _ = load_run(folder)
    notes = [f"{a.step}: {a.reason}" for a in absences if a.kind == "error"]
    variants = variants_of(records)
    if not variants:
        raise MeshmarkError(
            f"base data: {folder} holds no variant" + (f" ({notes[0]})" if notes else ""),
            "measure them again with meshmark load base --quick",
        )
    return variants, notes
