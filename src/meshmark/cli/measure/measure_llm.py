"""`meshmark measure llm`: measures or predicts tokens per second for weights of any size; the answer is a sentence."""

from __future__ import annotations

import itertools
import json
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from meshmark.cli.console import interruptible, print_rows, progress, say
from meshmark.values.units import duration, round_size

if TYPE_CHECKING:
    from meshmark.describe import Description
    from meshmark.machine.topology import Topology
    from meshmark.measure.llm import AvailableMemory, LlmRequest, SettingChoice, SettingResult
    from meshmark.measure.single import Measurement

_TRIAL_SHARE: Final = 1 / 3  # maximum share of the trial in the budget
_LONGEST_S: Final = 600.0  # longest budget without --budget


@dataclass
class _Session:
    """The measurements of a command, which share one budget."""

    d: Description
    store: Path | None
    as_json: bool
    repetitions: int
    topology: Topology
    memory: AvailableMemory
    measured: list[Measurement] = field(default_factory=list)

    def measure(self, argv: Sequence[str], budget_s: float, repetitions: int) -> list[SettingResult]:
        """Measure with these arguments and return the measured settings."""
        from meshmark.measure.llm import points
        from meshmark.measure.runs.budget import BUDGET
        from meshmark.measure.runs.plan import measurement, replaced
        from meshmark.measure.single import measure
        from meshmark.store.store import run_name

        plan = measurement(self.d, replaced(argv, BUDGET, f"{budget_s:.3g}s"), repetitions)
        with tempfile.TemporaryDirectory(prefix="meshmark-") as folder, progress(plan.budget_s) as report:
            store = self.store or Path(folder) / "store"
            self.measured.append(measure(plan, Path(folder), store, run_name("measure"), report))
        return points(self.measured[-1].records, self.topology)

    def print_records(self) -> None:
        """Print the records of all measurements, then their absences and notes."""
        from meshmark.views.terminal.tables import print_tables

        records = [r for m in self.measured for r in m.records]
        if self.as_json:
            for record in records:
                print(json.dumps(record.to_json()))
        else:
            print_tables(records)
        for line in dict.fromkeys(line for m in self.measured for line in [*m.absent, *m.notes]):
            say(line)


def measure_llm(d: Description, argv: Sequence[str], repetitions: int, store: Path | None, as_json: bool) -> None:
    """Measure the sizes that fit into memory and budget, predict the others, and answer with a sentence for each.

    Raises:
        UsageError: An option is invalid.
        AbsentError: Nothing could be measured.
    """
    from meshmark.machine.facts import host_id
    from meshmark.machine.sources import from_sysfs
    from meshmark.measure.llm import AvailableMemory, request
    from meshmark.store.store import Store

    topology = from_sysfs()
    memory = AvailableMemory.from_topology(topology)
    llm_request = request([*argv, *([] if "--machine" in argv else ["--machine", host_id()])], memory)
    if store is not None:
        Store(store)  # raises early if the folder is not a store
    session = _Session(d, store, as_json, repetitions, topology, memory)
    after_interrupt = (
        "nothing is stored (--no-store)" if store is None else "completed steps are stored; run the command again"
    )
    with interruptible(after_interrupt):
        _measure_and_answer(session, llm_request)


def _measure_and_answer(session: _Session, request: LlmRequest) -> None:
    from meshmark.measure.llm import of_size, prepare_s_per_byte

    start_s = time.monotonic()
    total_s, trial_s = _budgets(session, request)
    trial = session.measure(request.trial_argv, trial_s, session.repetitions)
    if not trial:
        session.print_records()
        session.measured[0].check()
        return
    prepare_s = prepare_s_per_byte(session.measured[0].results)
    comparable = of_size(trial, request.trial_bytes, request.trial_sizes)
    full_points: dict[int, list[SettingResult]] = {}
    reasons: dict[int, str] = {}
    for number, size in enumerate(request.large):
        remaining_s = (total_s - (time.monotonic() - start_s)) / (len(request.large) - number)
        full_points[size], reasons[size] = _large(session, request, size, comparable, prepare_s, remaining_s)
    session.print_records()
    _print_answers(session, request, trial, comparable, full_points, reasons)
    session.measured[0].check()


def _budgets(session: _Session, request: LlmRequest) -> tuple[float, float]:
    """Return the budgets of the command and of its trial in s: `--budget`, or in proportion to the sizes that fit."""
    from meshmark.measure.runs.budget import BUDGET, budget_s

    options = dict(itertools.pairwise(request.argv))
    trial_s = budget_s(session.d, request.trial_argv)
    fitting_sizes = [s for s in request.large if s <= session.memory.usable()]
    if BUDGET in options:
        usual_s = budget_s(session.d, [w for w in request.trial_argv if w not in {BUDGET, options[BUDGET]}])
        total_s = trial_s
        return total_s, min(usual_s, total_s * _TRIAL_SHARE) if fitting_sizes else total_s
    total_s = trial_s
    if fitting_sizes:
        total_s = max(trial_s, min(_LONGEST_S, trial_s * (1 + sum(fitting_sizes) / request.trial_bytes)))
    if total_s > trial_s:
        say(f"note: the budget is up to {duration(total_s)} for weights of this size; --budget changes it")
    return total_s, trial_s


def _large(
    session: _Session,
    request: LlmRequest,
    size: int,
    compared: Sequence[SettingResult],
    prepare_s: float,
    rest_s: float,
) -> tuple[list[SettingResult], str]:
    """Measure a large size if it fits, and return its settings; if it does not fit, return none and the reason."""
    from meshmark.measure.llm import WEIGHTS, choose
    from meshmark.measure.runs.plan import replaced

    if not compared:
        return [], "the trial measured nothing"
    choice = choose(compared, size, session.memory, prepare_s, rest_s, session.repetitions)
    if not choice.points:
        return [], _not_measured(session, choice, compared, size)
    is_single = len(choice.points) == 1
    argv = choice.points[0].argv(request.argv, size) if is_single else replaced(request.argv, WEIGHTS, str(size))
    measured_points = session.measure(argv, rest_s, choice.runs)
    reasons = [a.reason for a in session.measured[-1].absences]
    return measured_points, "" if measured_points else next(iter(reasons), "the instrument measured nothing")


def _not_measured(session: _Session, chosen: SettingChoice, compared: Sequence[SettingResult], size: int) -> str:
    if chosen.needs_s:
        return f"the budget is too short, --budget {_round_s(chosen.needs_s)}s would probably suffice"
    return session.memory.lacks(compared[0], size)


def _round_s(seconds: float) -> int:
    step = 10 if seconds < 300 else 60
    return int(-(-seconds // step) * step)


def _print_answers(
    session: _Session,
    request: LlmRequest,
    trial: Sequence[SettingResult],
    compared: Sequence[SettingResult],
    full: dict[int, list[SettingResult]],
    reasons: dict[int, str],
) -> None:
    """Print an answer for each size on standard output; with JSON records, on standard error."""
    from meshmark.measure.llm import of_size
    from meshmark.measure.llm_answer import measured_answer, predicted_answer, predictions

    for size in sorted({*request.small, *request.large}):
        points = full.get(size) or (of_size(trial, size, request.trial_sizes) if size in request.small else [])
        if points:
            comparable = compared if size in full else ()
            lines = measured_answer(points, size, comparable, request.trial_bytes, session.topology)
        elif size in full and compared:
            if not session.as_json:
                print()
                print_rows(predictions(compared, size, session.memory), False)
            lines = predicted_answer(compared, size, request, session.memory, reasons[size])
        else:
            lines = [f"{round_size(size)} of weights: absent, since the budget ended before the first sample."]
        if session.as_json:
            say(" ".join(lines))
        else:
            print("\n" + "\n  ".join(lines))
