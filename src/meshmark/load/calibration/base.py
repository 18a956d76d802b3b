"""Read calibration data, a survey of the instrument `kernels`, as variants for synthesis."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from meshmark.errors import MeshmarkError, UsageError
from meshmark.load.calibration.variants import COUNTER_PREFIX, COUNTS, LEVELS, Variant
from meshmark.measure.runs.journal import parse_line
from meshmark.measure.runs.plan import SurveyPlan
from meshmark.store.files import open_regular, read_json
from meshmark.store.record import Record
from meshmark.store.session import MAX_LINE_BYTES

CALL_S = 2.5e-4  # target duration of a call; 0.05 to 1 ms lets windows of 0.1 s keep the mean
SPECS: Final = ("load", "load-quick")  # the first is preferred if --base is missing; other runs are used by name only
INSTRUMENT: Final = "kernels"


def _size(volume: int) -> str:
    for unit, exponent in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if volume >= 1 << exponent and volume % (1 << (exponent - 2)) == 0:
            return f"{volume / (1 << exponent):g}{unit}"
    return f"{volume}B"


def variants_of(records: Iterable[Record]) -> list[Variant]:
    """Return variants with the times and counts of one call, from results of the instrument `kernels`.

    A call is a power of two of units, as close as possible to `CALL_S`. Results whose kernel failed its check are
    omitted.

    Raises:
        MeshmarkError: a condition has a type that the instrument does not write.
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
    variants = []
    for key, r in sorted(wall.items()):
        kernel, volume, stride, threads = key
        if key not in cpu or not r.value > 0:
            continue
        window = 2 ** max(0, round(math.log2(CALL_S / r.value)))
        level = str(r.conditions.get("served_by", "memory"))
        cpu_s = max(0.0, cpu[key].value) * window
        variants.append(
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
    return variants


def _number(r: Record, name: str) -> float:
    value = r.conditions.get(name, 0)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise MeshmarkError(f"calibration data: {r.metric}: condition {name}: found {value!r}; allowed: a number")
    return float(value)


def _text(r: Record, name: str) -> str:
    value = r.conditions.get(name)
    if not isinstance(value, str):
        raise MeshmarkError(f"calibration data: {r.metric}: condition {name}: found {value!r}; allowed: text")
    return value


@dataclass(frozen=True, slots=True)
class BaseRun:
    """A run of calibration data, without its results."""

    folder: Path
    spec: str
    machine: str
    started: str  # ISO 8601
    finished: bool  # all steps were run, even if some steps failed


def inspect_run(folder: Path) -> BaseRun | None:
    """Return the calibration run in a folder, a survey of only the instrument `kernels`; None for another kind of run.

    Reads the plan and, for calibration data only, the state and the first line of a journal, because a folder may hold
    many long runs.

    Raises:
        MeshmarkError: the plan or the state of the run cannot be read.
    """
    plan = SurveyPlan.load(folder / "plan.json")
    if not plan.steps or any(step.instrument != INSTRUMENT for step in plan.steps):
        return None
    try:
        state = read_json(folder / "run.json")
        started, finished = str(state["started"]), bool(state["steps"])
        machine = next((m for step in plan.steps if (m := _machine(folder / "journal" / f"{step.id}.jsonl"))), "")
    except (UsageError, OSError, ValueError, KeyError, TypeError) as error:
        raise MeshmarkError(f"cannot read {folder / 'run.json'}: {error}") from error
    if not machine:  # killed before it wrote a header; the plan names the machine
        argv = plan.steps[0].argv
        machine = argv[argv.index("--machine") + 1] if "--machine" in argv[:-1] else ""
    return BaseRun(folder, plan.spec, machine, started, finished)


def _machine(journal: Path) -> str:
    """Return the machine in a journal's header; "" if it is unknown."""
    try:
        lines = open_regular(journal)
    except FileNotFoundError:
        return ""
    with lines:
        header = parse_line(lines.readline(MAX_LINE_BYTES)) or {}
    return str(header.get("machine", ""))


def base_runs(runs: Path, machine: str) -> list[BaseRun]:
    """Return all calibration runs of a machine in a folder of runs, newest first, without unreadable runs."""
    from meshmark.measure.survey import surveys

    matches = []
    for folder in surveys(runs):
        try:
            run = inspect_run(folder)
        except MeshmarkError:
            continue
        if run is not None and run.machine == machine:
            matches.append(run)
    return sorted(matches, key=lambda b: (b.started, b.folder.name), reverse=True)


def base_spec(quick: bool, file: Path | None) -> str:
    """Return the survey specification to run: a shipped one, or a file with steps of the instrument `kernels` only.

    Raises:
        UsageError: a step of the file runs another instrument; the message names the step.
    """
    from meshmark.measure.runs.spec import load_spec

    if file is None:
        return SPECS[quick]
    if quick:
        raise UsageError("--spec: found with --quick; allowed: one of them")
    for i, step in enumerate(load_spec(str(file)).step):
        if step.instrument != INSTRUMENT:
            raise UsageError(
                f"--spec: {file}: step {step.name or i + 1}: instrument: found {step.instrument!r}; "
                f"allowed: {INSTRUMENT}",
                "meshmark survey --spec runs any instrument",
            )
    return str(file)


def base_run(runs: Path, machine: str, name: str = "") -> Path | None:
    """Return the folder of a calibration run; None if no run is finished.

    Without a name, this is the newest finished full run of this machine, or else its newest finished quick run.

    Raises:
        MeshmarkError: no run has that name, or the run is from another machine.
    """
    from meshmark.measure.survey import find_run

    if name:
        folder = find_run(name, runs)
        run = inspect_run(folder)
        if run is None:
            spec = SurveyPlan.load(folder / "plan.json").spec
            raise MeshmarkError(
                f"--base: {folder} contains the survey '{spec}', not calibration data", "run meshmark load base"
            )
        if run.machine != machine:
            raise MeshmarkError(
                f"--base: {folder} is from machine {run.machine or 'unknown'}, this is {machine}",
                "meshmark load base measures this machine",
            )
        return folder
    finished_runs = [b for b in base_runs(runs, machine) if b.finished]
    return next((b.folder for spec in SPECS for b in finished_runs if b.spec == spec), None)


def last_base(runs: Path, machine: str) -> Path | None:
    """Return the newest calibration run of a machine, finished or not, for --resume."""
    return next((b.folder for b in base_runs(runs, machine)), None)


def read_base(folder: Path) -> tuple[list[Variant], list[str]]:
    """Return the variants of a calibration run, and one line for each error in the run.

    Raises:
        MeshmarkError: the run cannot be read, or contains no variant.
    """
    from meshmark.measure.survey import load_run

    records, absences, _ = load_run(folder)
    notes = [f"{a.step}: {a.reason}" for a in absences if a.kind == "error"]
    variants = variants_of(records)
    if not variants:
        raise MeshmarkError(
            f"calibration data: {folder} contains no variant" + (f" ({notes[0]})" if notes else ""),
            "measure it again with meshmark load base --quick",
        )
    return variants, notes
