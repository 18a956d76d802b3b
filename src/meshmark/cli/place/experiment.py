"""`meshmark experiment`: determines which of two settings is better by running a command under both in alternation."""

from __future__ import annotations

import json
import re
import secrets
import shlex
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from meshmark.cli.console import say
from meshmark.cli.options import (
    JsonOption,
    MarkdownOption,
    NoStoreOption,
    StoreOption,
    check_one_form,
    share,
    time_option,
)
from meshmark.cli.place.setting_options import (
    BetterOption,
    MetricOption,
    PatternOption,
    ProgressTimer,
    RestoreOption,
    ResumeOption,
    SeedOption,
    TimeoutOption,
    complete_setting,
    end_if_interrupted,
)
from meshmark.cli.results.gate import AllowUnjudgedOption, check_judged, check_used
from meshmark.errors import MeshmarkError, UsageError
from meshmark.values.paths import default_store, run_folder
from meshmark.values.secrets import hide_text, hide_words, mask_words

if TYPE_CHECKING:
    from meshmark.experiments.experiment import Experiment, ExperimentPlan

_BUDGET_S: Final = 300.0
_MAX_PAIRS: Final = 1000
_FailOnOption = Annotated[
    str,
    typer.Option(
        "--fail-on",
        help="exit with status 1 if B is worse by more than this",
        metavar="PERCENT",
        show_default=False,
    ),
]


def register(app: typer.Typer) -> None:
    """Add the command `experiment`."""
    app.command("experiment")(experiment)


def experiment(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="A B -- COMMAND",
            help="two settings (same, NAME=VALUE, bind:POLICY, memory:POLICY, pages:SIZE, run:OPTIONS, ssh:HOST, "
            "shell:COMMAND; several are joined by ' + '), and the command with its arguments",
            autocompletion=complete_setting,
            show_default=False,
        ),
    ] = None,
    budget_s: Annotated[float, time_option("--budget", "time limit", low=0.01, default="5m")] = 0.0,
    max_pairs: Annotated[int, typer.Option("--max-pairs", help="maximum number of pairs", min=1)] = _MAX_PAIRS,
    warmup: Annotated[int, typer.Option("--warmup", help="warm-up pairs, which do not count", min=0)] = 1,
    timeout_s: TimeoutOption = 0.0,
    margin: Annotated[str, typer.Option("--margin", help="smallest difference that matters", metavar="PERCENT")] = "2%",
    metric: MetricOption = "",
    pattern: PatternOption = "",
    better: BetterOption = "",
    fail_on: _FailOnOption = "",
    allow_unjudged: AllowUnjudgedOption = False,
    restore: RestoreOption = "",
    seed: SeedOption = None,
    resume: ResumeOption = "",
    store: StoreOption = None,
    no_store: NoStoreOption = False,
    as_markdown: MarkdownOption = False,
    as_json: JsonOption = False,
) -> None:
    """Find out which of two settings is better for a command, by running it under both in alternation.

    Stops when the difference is clear, when both are shown to be equal within the margin, or after the budget.

    example: meshmark experiment OMP_NUM_THREADS=4 OMP_NUM_THREADS=8 -- ./a.out
    """
    check_used(fail_on, 1, allow_unjudged)
    check_one_form(as_markdown, as_json)
    limit = share("--fail-on", fail_on) if fail_on else None
    threshold = limit if limit is not None else share("--margin", margin)
    if resume:
        has_margin = limit is not None or margin != "2%"
        plan, folder = _resumed(resume, words or [], budget_s, threshold if has_margin else None)
    else:
        plan, folder = _new(
            words or [],
            seed=secrets.randbelow(1 << 31) if seed is None else seed,
            budget_s=budget_s or _BUDGET_S,
            warmup=warmup,
            max_pairs=max_pairs,
            timeout_s=timeout_s or None,
            margin=threshold,
            pattern=pattern,
            metric=metric,
            better=better,
            restore=hide_text(restore),
        )
    result = _conducted(plan, folder, bool(resume))
    _keep(result, folder, "json" if as_json else "markdown" if as_markdown else "text", store, no_store)
    end_if_interrupted(result.stopped, "experiment", plan.run)
    _check(result, limit, fail_on, allow_unjudged)


def _new(words: list[str], **more: Any) -> tuple[ExperimentPlan, Path]:
    """Return a plan and the folder of its run."""
    from meshmark.experiments.experiment import ExperimentPlan
    from meshmark.store.store import run_name

    start_time = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    plan = ExperimentPlan(**_asked(words), **more, run=run_name("experiment"), started=start_time)
    return plan, run_folder(plan.run)


def _resumed(run: str, words: list[str], budget_s: float, margin: float | None) -> tuple[ExperimentPlan, Path]:
    """Return the plan of an earlier run, updated with the current budget and margin, and its folder."""
    from meshmark.experiments.experiment import ExperimentPlan
    from meshmark.store.session import check_same

    folder = run_folder(run)
    plan = ExperimentPlan.load(folder)
    words = hide_words(words)  # also stores the secret values, which the plan lacks
    if words:
        recorded = {"A": plan.a, "B": plan.b, "COMMAND": shlex.join(plan.command)}
        requested = dict(zip(recorded, (*words[:2], shlex.join(words[2:])), strict=False))
        check_same(folder, "an experiment", recorded, requested, f"meshmark experiment --resume {shlex.quote(run)}")
    plan.budget_s = budget_s or plan.budget_s
    plan.margin = plan.margin if margin is None else margin
    return plan, folder


def _conducted(plan: ExperimentPlan, folder: Path, resumed: bool) -> Experiment:
    """Run the plan and report progress."""
    from meshmark.experiments.experiment import conduct
    from meshmark.experiments.turns import SettingRunner
    from meshmark.store.session import held

    plan.figure.check()
    turns = SettingRunner(plan, folder)  # also checks the settings
    with held(folder, resumed=resumed):
        plan.save(folder)
        say(f"{plan.run}: seed {plan.seed}, at most {_time(plan.budget_s)}: {shlex.join(plan.command)}")
        try:
            return conduct(plan, folder, turns.run, _PairProgress())
        finally:
            turns.restore()


def _asked(words: list[str]) -> dict[str, Any]:
    """Return the settings and the command."""
    if len(words) < 3:
        words_text = ("neither settings nor a command", "one setting and no command", "no command")[len(words)]
        raise UsageError(
            f"A B COMMAND: found {words_text}; allowed: two settings and a command after --",
            "meshmark experiment same OMP_NUM_THREADS=1 -- ./a.out",
        )
    hidden = hide_words(words)
    return {"a": hidden[0], "b": hidden[1], "command": hidden[2:]}


class _PairProgress:
    """Prints a line on standard error after a pair."""

    def __init__(self) -> None:
        self._timer = ProgressTimer()

    def __call__(self, experiment: Experiment) -> None:
        if not experiment.pairs or not self._timer.is_due():
            return
        from meshmark.views.terminal.experiments.experiment import interval_text

        ratios = sorted(experiment.ratios)
        ratio = ratios[len(ratios) // 2]
        remaining_s = max(0.0, experiment.plan.budget_s - experiment.spent_s)
        failed = f", {experiment.failures()} runs failed" if experiment.failures() else ""
        say(
            f"pair {len(experiment.pairs)}: B over A {ratio:.3f}, {interval_text(experiment.interval())}{failed}, "
            f"at most {_time(remaining_s)} left"
        )


def _time(seconds: float) -> str:
    from meshmark.values.units import duration

    return duration(seconds)


def _keep(
    experiment: Experiment, folder: Path, form: Literal["json", "markdown", "text"], store: Path | None, no_store: bool
) -> None:
    """Store the records, and print the records or the result."""
    from importlib.metadata import version as installed

    from meshmark.experiments.experiment import records, to_json
    from meshmark.machine.boot import keep
    from meshmark.machine.facts import host_id
    from meshmark.store.files import write_json
    from meshmark.store.store import Store
    from meshmark.views.terminal.experiments.experiment import markdown, print_experiment

    answer = to_json(experiment)
    new_records = records(
        experiment, host_id(), shlex.join(mask_words(["experiment", *sys.argv[2:]])), installed("meshmark")
    )
    write_json(folder / "answer.json", answer)
    if new_records and not no_store:
        keep(Store(store or default_store()), experiment.plan.run, "experiment", new_records)
    if form == "json":
        for record in new_records:
            print(json.dumps({"type": "result", "schema": 1, **record.to_json()}))
        print(json.dumps(answer))
    elif form == "markdown":
        print(markdown(answer), end="")
    else:
        print_experiment(answer)


def _check(experiment: Experiment, limit: float | None, text: str, allow_unjudged: bool) -> None:
    """Raise if the command failed repeatedly, if B is worse by more than the limit, or if this is inconclusive."""
    from meshmark.experiments.experiment import to_json

    answer = to_json(experiment)
    if re.search(r"in a row failed$", experiment.stopped):
        raise MeshmarkError(f"experiment: {experiment.stopped}: {answer['failure']}")
    if limit is None:
        return
    ratio, low, high = answer["ratio"], answer["low"], answer["high"]
    if answer["best"] == "A" and not 1 / (1 + limit) <= ratio <= 1 + limit:
        raise MeshmarkError(f"B is worse than A by more than {text}: B over A {ratio:.3f} ({low:.3f} – {high:.3f})")
    is_judged = bool(answer["pairs"]) and answer["verdict"] != "inconclusive"
    check_judged(
        f"experiment: {int(is_judged)} of 1 result judged", int(is_judged), 1, allow_unjudged, experiment.stopped
    )
