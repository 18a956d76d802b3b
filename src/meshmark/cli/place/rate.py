"""`meshmark rate`: finds groups of configurations that behave alike, from runs of a command or from a file."""

from __future__ import annotations

import json
import secrets
import shlex
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from meshmark.cli.console import say
from meshmark.cli.options import JsonOption, NoStoreOption, StoreOption, share, time_option
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
    split_at_dashes,
)
from meshmark.errors import MeshmarkError, UsageError, quoted
from meshmark.values.paths import default_store, run_folder
from meshmark.values.secrets import hide_text, hide_words, mask_words

if TYPE_CHECKING:
    from meshmark.experiments.rating_session import RatingPlan
    from meshmark.experiments.rounds import Rounds

_BUDGET_S: Final = 600.0
_ROUNDS: Final = 10


def register(app: typer.Typer) -> None:
    """Add the command `rate`."""
    app.command("rate")(rate)


def rate(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="SETTING… -- COMMAND",
            help="settings as for meshmark experiment, and the command; or a CSV file of runs",
            autocompletion=complete_setting,
            show_default=False,
        ),
    ] = None,
    rounds: Annotated[int, typer.Option("--rounds", help="runs of each setting", min=1, max=10_000)] = _ROUNDS,
    budget_s: Annotated[float, time_option("--budget", "time limit", low=0.01, default="10m")] = 0.0,
    timeout_s: TimeoutOption = 0.0,
    margin: Annotated[
        str, typer.Option("--margin", help="difference of medians that does not matter", metavar="PERCENT")
    ] = "2%",
    metric: MetricOption = "",
    pattern: PatternOption = "",
    better: BetterOption = "",
    by: Annotated[
        str,
        typer.Option("--by", help="columns of the file that make up a configuration, with commas", metavar="COLUMN"),
    ] = "configuration",
    value: Annotated[
        str, typer.Option("--value", help="column of the file with the values", metavar="COLUMN")
    ] = "value",
    name: Annotated[
        str,
        typer.Option(
            "--as",
            help="with --add-to: name of this configuration, such as a kernel",
            metavar="NAME",
            show_default=False,
        ),
    ] = "",
    add_to: Annotated[
        Path | None,
        typer.Option("--add-to", help="add the runs to this CSV file, and rate all runs in it", show_default=False),
    ] = None,
    restore: RestoreOption = "",
    seed: SeedOption = None,
    resume: ResumeOption = "",
    store: StoreOption = None,
    no_store: NoStoreOption = False,
    as_json: JsonOption = False,
) -> None:
    """Find which of several settings behave alike for a command, by level and by spread.

    Every setting runs once in each round, in random order. Configurations that cannot alternate, such as kernels,
    collect their runs in a file (--add-to).

    example: meshmark rate bind:none bind:compact bind:scatter -- ./a.out; meshmark rate --as "$(uname -r)" --add-to
    kernels.csv -- ./a.out; meshmark rate kernels.csv
    """
    threshold = share("--margin", margin)
    settings, command = split_at_dashes(words or [])
    _check_words(settings, bool(command or resume), name, add_to)
    if not command and not resume:
        _print(_rated_file(Path(settings[0]), by, value, better, threshold), as_json)
        return
    if resume:
        plan, folder = _resumed(resume, settings, command)
        plan.budget_s = budget_s or plan.budget_s
    else:
        plan = _plan(
            settings or ["same"],
            command,
            name,
            rounds=rounds,
            budget_s=budget_s or _BUDGET_S,
            timeout_s=timeout_s or None,
            margin=threshold,
            pattern=pattern,
            metric=metric,
            better=better,
            restore=hide_text(restore),
            seed=secrets.randbelow(1 << 31) if seed is None else seed,
            add_to="" if add_to is None else str(add_to.absolute()),
        )
        folder = run_folder(plan.run)
    session = _conducted(plan, folder, bool(resume))
    _finish(session, folder, None if no_store else store or default_store(), as_json)


def _check_words(settings: list[str], with_command: bool, name: str, add_to: Path | None) -> None:
    """Check that settings, a command and the options of a file fit together.

    Raises:
        UsageError: They do not, or no runs can be added to the file.
    """
    if not with_command and len(settings) != 1:
        raise UsageError(
            "COMMAND: found none; allowed: settings and a command after --, or a CSV file of runs",
            "meshmark rate same bind:compact -- ./a.out",
        )
    if not with_command and (name or add_to):
        raise UsageError(f"{'--as' if name else '--add-to'}: found without a command; allowed: with a command")
    if bool(name) != (add_to is not None) or (name and len(settings) > 1):
        raise UsageError("--as: found without --add-to, or with several settings; allowed: one setting and --add-to")
    if not name.isprintable():
        raise UsageError(f"--as: found '{quoted(name)}'; allowed: printable characters")
    if add_to is not None:
        from meshmark.experiments.rating_file import check_columns

        check_columns(add_to)


def _plan(settings: list[str], command: list[str], name: str, **more: Any) -> RatingPlan:
    from meshmark.experiments.rating_session import RatingPlan, unique
    from meshmark.store.store import run_name

    hidden = hide_words([*settings, *command])
    texts, command = hidden[: len(settings)], hidden[len(settings) :]
    start_time = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return RatingPlan(
        names=[name] if name else unique(texts),
        texts=texts,
        command=command,
        **more,
        run=run_name("rating"),
        started=start_time,
    )


def _resumed(run: str, settings: list[str], command: list[str]) -> tuple[RatingPlan, Path]:
    """Return the plan of an earlier run and its folder. The settings and the command may be repeated."""
    from meshmark.experiments.rating_session import RatingPlan
    from meshmark.store.session import check_same

    folder = run_folder(run)
    plan = RatingPlan.load(folder)
    hidden = hide_words([*settings, *command])  # also stores the secret values, which the plan lacks
    if hidden:
        recorded = {"SETTING": shlex.join(plan.texts), "COMMAND": shlex.join(plan.command)}
        requested = {"SETTING": shlex.join(hidden[: len(settings)]), "COMMAND": shlex.join(hidden[len(settings) :])}
        check_same(folder, "a rating", recorded, requested, f"meshmark rate --resume {shlex.quote(run)}")
    return plan, folder


def _conducted(plan: RatingPlan, folder: Path, resumed: bool) -> Rounds[RatingPlan]:
    """Run the plan and report progress."""
    from meshmark.experiments.rounds import conduct
    from meshmark.experiments.turns import SettingRunner
    from meshmark.machine.sources import from_sysfs
    from meshmark.store.session import held
    from meshmark.values.units import duration

    plan.figure.check()
    plan.check()
    nodes = {cpu.os_index: cpu.node for cpu in from_sysfs().cpus if cpu.node is not None}
    turns = SettingRunner(plan, folder, nodes)
    with held(folder, resumed=resumed):
        plan.save(folder)
        say(f"{plan.run}: seed {plan.seed}, at most {duration(plan.budget_s)}: {shlex.join(plan.command)}")
        try:
            return conduct(plan, folder, turns.run, _RatingProgress())
        finally:
            turns.restore()


class _RatingProgress:
    """Prints a line on standard error after a run."""

    def __init__(self) -> None:
        self._timer = ProgressTimer()

    def __call__(self, session: Rounds[RatingPlan]) -> None:
        if not self._timer.is_due():
            return
        plan = session.plan
        say(f"run {len(session.runs)} of {plan.rounds * (len(plan.names) - len(session.left_out))}")


def _finish(session: Rounds[RatingPlan], folder: Path, store: Path | None, as_json: bool) -> None:
    """Print and store the result; end with a status other than 0 if the rating was interrupted or nothing ran."""
    from importlib.metadata import version as installed

    from meshmark.experiments.rating import Rating, to_json
    from meshmark.experiments.rating_session import rated, records
    from meshmark.machine.boot import keep
    from meshmark.machine.facts import host_id
    from meshmark.place.other_work import disturbance, result_flags
    from meshmark.statistics.pairs import MeritUnit
    from meshmark.store.files import write_json
    from meshmark.store.store import Store

    plan, runs = session.plan, rated(session)
    end_if_interrupted(session.stopped, "rate", plan.run)
    if not runs:
        name, reason = next(iter(session.left_out.items()))
        raise MeshmarkError(f"rate: every setting failed: {name}: {reason}")
    first = session.counted[0]
    merit = MeritUnit("higher" if first.better == "higher" else "lower", first.unit)
    about = {
        "runs": len(session.runs),
        "rounds": plan.rounds,
        "stopped": session.stopped,
        "spent_s": session.spent_s,
        "seed": plan.seed,
        "left_out": session.left_out,
        "failed": session.failed,
        "flags": sorted(result_flags(session.counted)),
        "disturbance": disturbance(session.counted),
        "run": plan.run,
    }
    rating = Rating(runs, merit, plan.margin)
    if store is not None:
        command_line = shlex.join(mask_words(["rate", *sys.argv[2:]]))
        rows = records(session, rating.letters, host_id(), command_line, installed("meshmark"))
        keep(Store(store), plan.run, "rating", rows)
    if plan.add_to:
        _add(session, merit)
        answer = _rated_file(Path(plan.add_to), "configuration", "value", "", plan.margin)
    else:
        answer = to_json(rating, plan.figure.name)
    answer["session"] = about
    write_json(folder / "answer.json", answer)
    _print(answer, as_json)


def _add(session: Rounds[RatingPlan], merit: Any) -> None:
    """Add the runs to the file, unless they were added before an interruption."""
    from meshmark.experiments.rating_file import add_runs, read_runs

    plan, path = session.plan, Path(session.plan.add_to)
    if path.exists() and path.stat().st_size and plan.run in read_runs(path).sessions:
        return
    more = {"unit": merit.unit, "better": merit.better, "metric": plan.figure.name, "start": plan.started}
    rows = [{"configuration": run.side, "value": run.value, "place": run.place} for run in session.counted]
    add_runs(path, [{**row, "run": plan.run, **more} for row in rows])


def _rated_file(path: Path, by: str, value: str, better: str, margin: float) -> dict[str, Any]:
    """Return the rating of the runs in a file.

    Raises:
        UsageError: The file has no runs, or does not state which direction is better, and neither does an option.
    """
    from meshmark.experiments.figure import DIRECTIONS
    from meshmark.experiments.rating import Rating, to_json
    from meshmark.experiments.rating_file import read_runs
    from meshmark.statistics.pairs import MeritUnit

    if better not in ("", *DIRECTIONS):
        raise UsageError(f"--better: found '{better}'; allowed: {', '.join(DIRECTIONS)}")
    file = read_runs(path, [column.strip() for column in by.split(",")], value)
    if not file.runs:
        raise UsageError(f"{path.name}: found no runs; at least one is required")
    direction = better or file.better
    if not direction:
        raise UsageError(f"{path.name}: found no column better; required: --better lower, or --better higher")
    merit = MeritUnit("higher" if direction == "higher" else "lower", file.unit)
    return to_json(Rating(file.runs, merit, margin), file.metric or value)


def _print(answer: dict[str, Any], as_json: bool) -> None:
    from meshmark.views.terminal.experiments.rating import print_rating

    if as_json:
        print(json.dumps(answer))
    else:
        print_rating(answer)
