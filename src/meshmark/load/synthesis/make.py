"""Run synthetic programs and calibrate them in a mix, with trials on the machine.

A program planned from raw calibration data is off by 25 to 50 %, because in a mix the previous calls change the state
of the caches. A trial runs the program, shortened to a few seconds, alone on its CPUs. The measured times of its calls
replace the times in the calibration data, and the numbers of calls are solved again with the same kernels.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from meshmark import process
from meshmark.errors import AbsentError, MeshmarkError
from meshmark.load.calibration.metrics import Metrics, all_metrics
from meshmark.load.calibration.native import find_load
from meshmark.load.synthesis import MeasuredTimes, recalibrate
from meshmark.load.synthesis.program import SyntheticProgram, dump_program
from meshmark.native import start_error

DISTURBED: Final = 0.01  # share of its time that a trial waited for a CPU, above which CPU time replaces wall time
VARIES: Final = 0.05  # error of a trial after a correction, above which times vary too much to keep a plan
FLOOR: Final = 0.005  # smaller errors are not corrected: repeated runs of one program differ by more


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramTrial:
    """A measured run of a program. Times in s.

    `metrics` refer to `dedicated_s`: the wall time without waiting for a CPU, or the whole wall time if the program
    followed a schedule.
    """

    wall_s: float
    user_s: float
    system_s: float
    waiting_s: float  # for a CPU, sum over all threads
    dedicated_s: float
    spun_s: float  # part of wall_s spent spinning until the next scheduled call
    late_s: float  # delay against the schedule at the end
    totals: Mapping[str, float]  # counts, by name
    metrics: Mapping[str, float]
    per_call_s: Mapping[str, float]  # wall time of a call on dedicated CPUs, by variant
    windows: tuple[Mapping[str, float], ...]

    @property
    def disturbed(self) -> bool:
        """Return whether the threads waited for a CPU for more than the tolerated share of the time."""
        return self.waiting_s > DISTURBED * self.wall_s


def kernels() -> list[dict[str, Any]]:
    """Return the load kernels, one row each: name, kind, summary, source and variants."""
    load = find_load()
    try:
        completed = process.run_text([load, "kernels", "--json"], timeout_s=60)
        completed.check_returncode()
        return [json.loads(line) for line in completed.stdout.splitlines()]
    except OSError as error:
        raise start_error(load, error) from error
    except (ValueError, subprocess.SubprocessError) as error:
        raise MeshmarkError(f"cannot run meshmark-load kernels: {error}") from error


def shortened(program: SyntheticProgram, seconds: float) -> SyntheticProgram:
    """Return the program with proportionally fewer calls, at least one per variant."""
    share = min(1.0, seconds / program.profile.run_time_s)
    parts = tuple(dataclasses.replace(p, calls=max(1, round(p.calls * share))) for p in program.parts)
    return dataclasses.replace(program, parts=parts)


def run_program(
    program: SyntheticProgram, cpus: Sequence[int] = (), env: Mapping[str, str] | None = None
) -> ProgramTrial:
    """Run a program to completion on `cpus` (empty: on any allowed CPU).

    Raises:
        MeshmarkError, AbsentError: the native program failed; the message comes from the native program.
    """
    # An anonymous file, so that a killed process leaves nothing behind.
    with os.fdopen(os.memfd_create("program"), "wb") as file:
        file.write(dump_program(program).encode())
        file.flush()
        try:
            completed = process.run(
                [find_load(), "program", f"/proc/{os.getpid()}/fd/{file.fileno()}"],
                process.Preparation(cpus=cpus),
                encoding="utf-8",
                errors="replace",
                env={**os.environ, "OMP_DYNAMIC": "false", **(env or {})},
            )
        except OSError as error:
            raise MeshmarkError(f"{program.profile.name}: cannot run: {error.strerror or error}") from error
    if completed.returncode:
        errors = completed.stderr.strip().splitlines()
        line = (errors[0] if errors else f"status {completed.returncode}").removeprefix("meshmark: ")
        kind = AbsentError if completed.returncode == AbsentError.status else MeshmarkError
        raise kind(f"{program.profile.name}: {line.removeprefix('error: ').removeprefix('absent: ')}")
    return read_trial(program, [json.loads(line) for line in completed.stdout.splitlines()])


def read_trial(program: SyntheticProgram, lines: Sequence[Mapping[str, Any]]) -> ProgramTrial:
    """Return a trial from the lines of `meshmark-load program`."""
    end = next((x for x in lines if x.get("type") == "end"), None)
    if end is None:
        raise MeshmarkError(f"{program.profile.name}: its output has no end line")
    threads = program.profile.threads
    wall_s, waiting_s = float(end["wall_s"]), float(end["waiting_s"])
    cpu_s = float(end["user_s"]) + float(end["system_s"])
    dedicated_s = wall_s if program.profile.pace else max(wall_s - waiting_s / threads, 1e-9)
    is_disturbed = waiting_s > DISTURBED * wall_s
    kinds = {p.variant.name: p.variant.kind for p in program.parts}
    per_call = {}
    for x in lines:
        if x.get("type") != "variant":
            continue
        # These kernels sleep by design, so their CPU time is not their duration.
        is_sleeping = kinds.get(x["name"]) in ("system", "idle", "sharing")
        call_s = x["wall_s"] if is_sleeping or not is_disturbed else x["cpu_s"] / threads
        per_call[x["name"]] = max(float(call_s) / max(1, int(x["calls"])), 1e-9)
    totals = {k: float(v) for k, v in end.items() if isinstance(v, int | float) and not isinstance(v, bool)}
    totals |= {"wall_s": dedicated_s, "cpu_s": cpu_s, "thread_s": dedicated_s * threads}
    return ProgramTrial(
        wall_s=wall_s,
        user_s=float(end["user_s"]),
        system_s=float(end["system_s"]),
        waiting_s=waiting_s,
        dedicated_s=dedicated_s,
        spun_s=float(end["spun_s"]),
        late_s=float(end["late_s"]),
        totals=totals,
        metrics=_metrics(totals, all_metrics(program.own_metrics)),
        per_call_s=per_call,
        windows=tuple({k: float(v) for k, v in x.items() if k != "type"} for x in lines if x.get("type") == "window"),
    )


def _metrics(totals: Mapping[str, float], metrics: Metrics) -> dict[str, float]:
    import numpy as np

    values = {}
    for name, m in metrics.items():
        if m.names <= totals.keys():
            value = float(m.evaluate({k: np.array([totals[k]]) for k in m.names})[0])
            if np.isfinite(value):
                values[name] = value
    return values


def calibrate(
    program: SyntheticProgram,
    trial_s: float,
    rounds: int,
    cpus: Sequence[int] = (),
    env: Mapping[str, str] | None = None,
    floor: float = FLOOR,
    progress: Callable[[str], None] = lambda _: None,
) -> tuple[SyntheticProgram, list[ProgramTrial]]:
    """Return the program after up to `rounds` trials, each followed by a correction, and the trials.

    If trials disagree, the program receives a note.

    Args:
        program: the program.
        trial_s: duration of a trial; the duration of the program is the maximum.
        rounds: maximum number of trials; calibration ends early once the error is within `floor`.
        cpus: CPUs of a trial; empty: all that this process may use.
        env: additional variables of a trial.
        floor: relative error below which calibration ends.
        progress: function that is called with lines about the progress.
    """
    trials: list[ProgramTrial] = []
    name, error = program.profile.name, 0.0
    for number in range(rounds):
        trial_program = shortened(program, trial_s)
        # The trial has no schedule, because spinning would hide the time of the kernels.
        trial_program = dataclasses.replace(trial_program, profile=dataclasses.replace(trial_program.profile, pace=0.0))
        trial = run_program(trial_program, cpus, env)
        trials.append(trial)
        planned_s = trial_program.totals()["wall_s"]
        error = trial.dedicated_s / planned_s - 1
        progress(
            f"{name}: trial {number + 1}: {trial.dedicated_s:.2f} s of {planned_s:.2f} s planned ({100 * error:+.1f} %)"
            + (f"; it waited {trial.waiting_s:.2f} s for a CPU" if trial.disturbed else "")
        )
        if abs(error) <= floor:
            break
        program = recalibrate(
            program,
            MeasuredTimes(wall_s=program.totals()["wall_s"] * (1 + error), per_call_s=trial.per_call_s),
            damping=1.0 if number == 0 else 0.7,
        ).program
    if len(trials) > 1 and abs(error) > VARIES and not program.profile.pace:
        note = varying(error)
        progress(f"note: {name}: {note}")
        program = dataclasses.replace(program, notes=(*program.notes, note))
    return program, trials


def varying(error: float) -> str:
    """Return what the relative error of a trial after a correction means for the run."""
    pace = min(0.9, math.ceil(40 * abs(error)) / 20)  # twice the error, in steps of 0.05
    return (
        f"after a correction, the last trial was {100 * error:+.1f} % off its planned time: times vary on this "
        f"machine, and the run may differ from its plan as much; pace = {pace:g} keeps the program on schedule"
    )
