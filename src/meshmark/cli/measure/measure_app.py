"""`meshmark measure app`: measures a program of the user like an instrument."""

from __future__ import annotations

import json
import secrets
import shlex
import sys
import time
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from meshmark.cli.console import say
from meshmark.cli.help_form import with_uniform_help
from meshmark.cli.options import (
    JsonOption,
    NoStoreOption,
    RunResumeOption,
    RunSeedOption,
    StoreOption,
    given,
    named_values,
    refuse_with_resume,
    share,
    shipped_applications,
    time_option,
)
from meshmark.cli.process import ended
from meshmark.errors import AbsentError, MeshmarkError, UsageError
from meshmark.values.paths import default_store, run_folder
from meshmark.values.secrets import mask_words

if TYPE_CHECKING:
    from meshmark.applications.application import Application
    from meshmark.applications.effects.profile import Profile
    from meshmark.applications.preparation import PreparationResult
    from meshmark.applications.trials import ApplicationPlan, Trials

_BUDGET_S: Final = 600.0
_LINE_S: Final = 10.0  # time between lines of progress without a terminal


@cache
def command() -> Any:
    """Return the command. It is not a subcommand of a group: its name is an argument of `meshmark measure`."""
    app = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=False)
    app.command("app", context_settings={"help_option_names": ["-h", "--help"]})(measure_app)
    return with_uniform_help(typer.main.get_command(app))


FileArgument = Annotated[
    str,
    typer.Argument(
        metavar="[FILE]",
        help="application file (TOML), or a name of meshmark list applications",
        autocompletion=shipped_applications,
        show_default=False,
    ),
]
CommandOption = Annotated[
    str, typer.Option("--command", help="command line instead of a file", metavar="TEXT", show_default=False)
]
PatternOption = Annotated[
    str,
    typer.Option(
        "--pattern", help="figure of merit in the output: a regular expression", metavar="REGEX", show_default=False
    ),
]
BetterOption = Annotated[
    str,
    typer.Option(
        "--better",
        help="which figures are better: lower, higher",
        autocompletion=lambda: ["lower", "higher"],
        show_default=False,
    ),
]
UnitOption = Annotated[str, typer.Option("--unit", help="unit of the figure", show_default=False)]
VaryOption = Annotated[
    list[str] | None,
    typer.Option(
        "--vary",
        help="values of a dimension, such as threads=1,2,4 or size=100,200; may be repeated",
        metavar="NAME=VALUES",
        show_default=False,
    ),
]
RepetitionsOption = Annotated[
    int | None,
    typer.Option(
        "--repetitions",
        help="runs of each configuration  [default: 7, or what their comparisons need]",
        min=1,
        max=1000,
        show_default=False,
    ),
]
ProfileOption = Annotated[
    bool,
    typer.Option("--profile", help="then run each once more under perf, and name its hottest functions"),
]


def measure_app(
    context: typer.Context,
    file: FileArgument = "",
    command_line: CommandOption = "",
    pattern: PatternOption = "",
    better: BetterOption = "",
    unit: UnitOption = "",
    vary: VaryOption = None,
    repetitions: RepetitionsOption = None,
    warmup: Annotated[
        int, typer.Option("--warmup", help="warm-up runs of each configuration, which do not count", min=0)
    ] = 1,
    budget_s: Annotated[float, time_option("--budget", "time limit", low=0.01, default="10m")] = _BUDGET_S,
    timeout_s: Annotated[float, time_option("--timeout", "limit of one run", low=0.001, default="10m")] = 0.0,
    margin: Annotated[str, typer.Option("--margin", help="smallest difference that matters", metavar="PERCENT")] = "2%",
    seed: RunSeedOption = None,
    profile: ProfileOption = False,
    resume: RunResumeOption = "",
    store: StoreOption = None,
    no_store: NoStoreOption = False,
    as_json: JsonOption = False,
) -> None:
    """Measure a program of your own: its figure of merit or time, CPU time, memory and faults.

    All combinations of the dimensions run in rounds, in random order, each time in fresh processes. Dimensions:
    threads, copies, ranks, bind, memory, pages, build, wait, scheduler, cache, cache_method, clock, prefetchers,
    environment variables in capitals, and any {NAME} in the command.

    example: meshmark measure app --command './a.out {size}' --vary size=100,200 --vary threads=1,2
    """
    from meshmark.applications.application import hide_secrets, of_tables
    from meshmark.applications.configuration import configurations
    from meshmark.applications.resources.machine_limits import RESCTRL_METHOD
    from meshmark.applications.resources.neighbours import method
    from meshmark.applications.trials import INTERRUPTED, ApplicationPlan
    from meshmark.statistics.pairs import usual_rounds
    from meshmark.store.store import run_name

    threshold = share("--margin", margin)
    if resume:
        if file or command_line or vary:
            raise UsageError("--resume: found with an application; the original one applies")
        refuse_with_resume(context, "budget_s", "profile", "store", "no_store", "as_json")
        folder = run_folder(resume).absolute()
        plan = ApplicationPlan.load(folder)
        plan.budget_s = budget_s if given(context, "budget_s") else plan.budget_s
        if profile:
            _add(plan.tables, "application", {"profile": True})
        app = plan.application
    else:
        tables, source = _tables(file, command_line, {"pattern": pattern, "better": better, "unit": unit})
        _vary(tables, vary or [])
        tables = hide_secrets(tables)
        if timeout_s:
            _add(tables, "limits", {"timeout_s": timeout_s})
        if profile:
            _add(tables, "application", {"profile": True})
        app = of_tables(tables, file or "--command", source)
        if mechanism := method(app.dimensions):
            _add(tables, "dimensions", {"cache_method": mechanism})
            app = of_tables(tables, file or "--command", source)
            say(f"cache_method={mechanism}, since resctrl is {'' if mechanism == RESCTRL_METHOD else 'not '}mounted")
        plan = ApplicationPlan(
            tables=tables,
            source=str(source),
            rounds=repetitions or usual_rounds(len(configurations(app))),
            warmup=warmup,
            budget_s=budget_s,
            seed=secrets.randbelow(1 << 31) if seed is None else seed,
            margin=threshold,
            run=run_name("app"),
            started=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        )
        folder = run_folder(plan.run).absolute()
    trials, prepared, profiles = _conducted(plan, app, folder, bool(resume))
    _keep(trials, prepared, profiles, app, store, no_store, as_json)
    if trials.stopped == INTERRUPTED:
        text, status = ended()
        say(f"meshmark: {text}; resume with meshmark measure app --resume {plan.run}")
        raise SystemExit(status)
    if failures := {**prepared.failed, **trials.excluded}:
        name, reason = next(iter(failures.items()))
        raise MeshmarkError(f"{name}: {reason}", f"its output is in {folder / 'failed'}")


def _tables(file: str, command_line: str, figure: dict[str, str]) -> tuple[dict[str, Any], Path]:
    """Return the tables of an application file or of a command line, and the folder to which paths are relative."""
    from meshmark.applications.application import application_file
    from meshmark.store.files import parse_toml, read_text

    if bool(file) == bool(command_line):
        sources = "a file and --command" if file else "no file and no --command"
        raise UsageError(f"FILE: found {sources}; one of them is required", "meshmark measure app --command './a.out'")
    if file:
        path = application_file(file)
        tables, source = parse_toml(read_text(path), str(path)), path.absolute().parent
        _add(tables, "application", {"name": _plain(path.stem), **_table(tables, "application")})
    else:
        name = Path(next(iter(command_line.split()), "")).name
        tables, source = {"application": {"name": _plain(name), "command": command_line}}, Path.cwd()
    if figure_values := {key: text for key, text in figure.items() if text}:
        if "pattern" in figure_values:  # unit and scale in the file belong to the pattern in the file
            tables["figure"] = {}
        _add(tables, "figure", figure_values)
    return tables, source


def _table(tables: dict[str, Any], name: str) -> dict[str, Any]:
    """Return a table of the file; empty if the value is not a table, which is rejected later."""
    table = tables.get(name, {})
    return table if isinstance(table, dict) else {}


def _add(tables: dict[str, Any], name: str, more: dict[str, Any]) -> None:
    if isinstance(tables.get(name, {}), dict):
        tables[name] = {**tables.get(name, {}), **more}


def _plain(name: str) -> str:
    """Return a valid application name for the name of a program."""
    plain_name = "".join(c if (c.isascii() and c.isalnum()) or c in "_-" else "_" for c in name.partition(".")[0])[
        :60
    ].lstrip("-0123456789")
    return plain_name or "app"


def _vary(tables: dict[str, Any], words: list[str]) -> None:
    dimensions = named_values("--vary", words, "NAME=VALUES, such as threads=1,2,4")
    if dimensions:
        _add(tables, "dimensions", dimensions)


def _conducted(
    plan: ApplicationPlan, app: Application, folder: Path, resumed: bool
) -> tuple[Trials, PreparationResult, list[Profile]]:
    """Prepare and run the program and report progress; then profile it if requested."""
    from meshmark.applications.attempt import attempt, end_earlier
    from meshmark.applications.configuration import Folders, configurations
    from meshmark.applications.effects.profiler import Perf, find_perf, profile_all
    from meshmark.applications.preparation import prepare
    from meshmark.applications.trials import conduct
    from meshmark.store.session import held
    from meshmark.values.units import counted

    with held(folder, resumed=resumed):
        if resumed and (count := end_earlier(folder)):
            say(f"ended {counted(count, 'process', 'processes')} of the run that was interrupted")
        plan.save(folder)
        folders = Folders(folder)
        all_configurations = configurations(app)
        runs = len(all_configurations) * (plan.rounds + plan.warmup)
        perf: Perf | AbsentError | None = None
        if app.profile:
            try:
                perf = find_perf(folder)
            except AbsentError as error:  # reported before the runs, which may take long
                perf = error
                say("no profile: " + "; ".join(filter(None, (str(error), error.hint))))
        summary = f"{counted(len(all_configurations), 'configuration')}, {counted(runs, 'run')}"
        if isinstance(perf, Perf):
            summary += f" and {len(all_configurations)} under perf"
        say(f"{plan.run}: {summary}, at most {_time(plan.budget_s)}")
        prepared = prepare(app, folders, say)
        buildable = [c for c in all_configurations if c.values.get("build", "") not in prepared.failed]
        with RunProgress(len(buildable) * (plan.rounds + plan.warmup), plan.budget_s) as show:
            trials = conduct(
                plan,
                buildable,
                folder,
                lambda c, n, o, most: attempt(app, c, folders, n, observed=o, most_s=most),
                show,
            )
        profiles: list[Profile] = []
        if perf is not None:
            repetition = plan.rounds + 1
            profiles = profile_all(
                trials,
                all_configurations,
                folder,
                perf,
                lambda c, words: attempt(app, c, folders, repetition, under=words),
            )
    return trials, prepared, profiles


class RunProgress:
    """Shows a bar on a terminal, otherwise a line every ten seconds."""

    def __init__(self, runs: int, budget_s: float) -> None:
        self.runs, self.budget_s = runs, budget_s
        self.bar: Any = None
        self.task: Any = None
        self.said_s = time.monotonic()

    def __enter__(self) -> RunProgress:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

            columns = (
                TextColumn("{task.description}", markup=False),
                BarColumn(),
                MofNCompleteColumn(),
                TimeRemainingColumn(),
            )
            self.bar = Progress(*columns, console=Console(stderr=True), transient=True)
            self.task = self.bar.add_task("runs", total=self.runs)
            self.bar.start()
        return self

    def __call__(self, trials: Trials) -> None:
        """Show the last run: its failure, then the bar, or without a terminal a line from time to time."""
        attempt = trials.attempts[-1]
        if attempt.value is None:
            line = f"{attempt.configuration}: {attempt.reason}"
            say(line) if self.bar is None else self.bar.console.print(line, markup=False, highlight=False)
        if self.bar is not None:
            self.bar.update(self.task, completed=len(trials.attempts), description=attempt.configuration)
        elif time.monotonic() - self.said_s >= _LINE_S:
            self.said_s = time.monotonic()
            completed = len(trials.attempts)
            remaining_s = min(self.budget_s - trials.spent_s, trials.usual_s() * max(0, self.runs - completed))
            say(f"{completed} of {self.runs} runs, about {_time(max(0.0, remaining_s))} left")

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            self.bar.stop()


def _time(seconds: float) -> str:
    from meshmark.values.units import duration

    return duration(seconds)


def _keep(
    trials: Trials,
    prepared: PreparationResult,
    profiles: list[Profile],
    app: Application,
    store: Path | None,
    no_store: bool,
    as_json: bool,
) -> None:
    """Store the records, and print the records or the tables."""
    from importlib.metadata import version as installed

    from meshmark.applications.answer import answer
    from meshmark.applications.records import absences, records
    from meshmark.machine.boot import keep
    from meshmark.machine.facts import host_id
    from meshmark.machine.sources import from_sysfs
    from meshmark.store.store import Store
    from meshmark.views.terminal.application import print_application

    command_line = shlex.join(mask_words(["measure", "app", *sys.argv[3:]]))
    new_records = records(trials, app, host_id(), command_line, installed("meshmark"), profiles)
    if new_records and not no_store:
        new_absences = absences(trials, prepared.failed, profiles)
        keep(Store(store or default_store()), trials.plan.run, "app", new_records, new_absences)
    result = answer(trials, app, from_sysfs(), profiles)
    if as_json:
        for record in new_records:
            print(json.dumps({"type": "result", "schema": 1, **record.to_json()}))
        print(json.dumps(result))
    else:
        print_application(result)
