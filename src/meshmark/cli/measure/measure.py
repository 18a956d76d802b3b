"""`meshmark measure`: runs one instrument on this host or on a modelled machine."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from meshmark.cli.completion import InstrumentCommand, instruments, machines_and_host
from meshmark.cli.console import counted, interruptible, progress, say
from meshmark.cli.options import SetOption
from meshmark.errors import AbsentError, UsageError
from meshmark.values.paths import default_store
from meshmark.views.terminal.records import print_records

if TYPE_CHECKING:
    from meshmark.describe import Description
    from meshmark.measure.runs.plan import SurveyPlan
    from meshmark.measure.runs.unfinished import UnfinishedMeasurement
    from meshmark.store.run import Absence


class _MeasureCommand(InstrumentCommand):
    """`meshmark measure`; `measure app` and `measure composite` are commands with options of their own."""

    @staticmethod
    def nested(name: str) -> Any:
        """Return the command of this name; None if the name does not denote a command."""
        if name == "app":
            from meshmark.cli.measure.measure_app import command

            return command()
        if name == "composite":
            from meshmark.cli.measure.measure_composite import command as composite

            return composite()
        return None

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        if args and (command := self.nested(args[0])) is not None:
            return command.make_context(f"{info_name} {args[0]}", args[1:], parent, **extra)
        return super().make_context(info_name, args, parent, **extra)


def register(app: typer.Typer) -> None:
    """Add the command `measure`, whose help and options depend on the instrument."""
    app.command(
        cls=_MeasureCommand,
        context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []},
    )(measure)


def measure(
    context: typer.Context,
    instrument: Annotated[
        str | None, typer.Argument(help="instrument, see meshmark list instruments", autocompletion=instruments)
    ] = None,
    on: Annotated[
        str, typer.Option("--on", help="host, or a modelled machine", autocompletion=machines_and_host)
    ] = "host",
    as_json: Annotated[bool, typer.Option("--json", help="print one record per line")] = False,
    stores: Annotated[
        list[str] | None, typer.Option("--store", help="store folder; for some instruments also the kinds of stores")
    ] = None,
    no_store: Annotated[bool, typer.Option("--no-store", help="store nothing; the run cannot be resumed")] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="resume the last interrupted run (of INSTRUMENT, if given)")
    ] = False,
    repetitions: Annotated[
        int,
        typer.Option(
            "--repetitions",
            min=0,
            max=100,
            help="fresh processes, which share the budget; 0: 3, or 1 if each would have less than 1 s",
        ),
    ] = 0,
    settings: SetOption = None,
) -> None:
    """Run one instrument. For its options: meshmark measure INSTRUMENT --help.

    example: meshmark measure latency --footprint 4KiB..1GiB --pages thp
    """
    from meshmark.cli.measure.instrument_help import general_help, instrument_help
    from meshmark.describe import description, descriptions, require_built
    from meshmark.measure import single

    extra = list(context.args)
    help_wanted = {"-h", "--help"} & {instrument, *extra}
    if instrument in {"-h", "--help"} or (instrument is None and (help_wanted or not resume)):
        print(general_help(descriptions()))
        raise SystemExit(0 if help_wanted else UsageError.status)
    d = None if instrument is None else description(instrument)
    if d and help_wanted:
        print(instrument_help(d))
        return
    if repetitions and on != "host":
        raise UsageError("--repetitions: found with --on, allowed on the host only: a model repeats itself exactly")
    if resume:
        if extra or len(stores or []) > 1 or no_store or settings or repetitions or on != "host":
            raise UsageError(
                "--resume: found with other options; allowed: --store and --json; the original options apply"
            )
        _measure_resumed(Path(stores[0]) if stores else default_store(), instrument or "", as_json)
        return
    assert d is not None
    kinds, folder = single.stores(d, stores or [])
    extra += kinds
    store = Path(folder) if folder else None
    if on != "host":
        from meshmark.machine.published.papers import PAPER, paper

        if on.startswith(PAPER):
            paper(on)  # raises if the name is unknown
            raise AbsentError(f"{on}: its values are published, not measured", f"meshmark machine show {on}")
        _measure_model(on, d, extra, as_json, settings, None if no_store else store or default_store())
        return
    if settings:
        raise UsageError("--set: found with --on host, allowed for a modelled machine only", "meshmark model list")
    require_built(d.name)
    argv = _checked_argv(d, extra)
    store_or_none = None if no_store else store or default_store()
    if d.name == "llm":
        from meshmark.cli.measure.measure_llm import measure_llm

        measure_llm(d, argv, repetitions, store_or_none, as_json)
        return
    _measure_host(d, argv, repetitions, store_or_none, as_json)


def _measure_host(d: Description, argv: list[str], repetitions: int, store: Path | None, as_json: bool) -> None:
    """Measure on this host, in fresh processes. With a store, an interrupted run can be resumed."""
    import tempfile

    from meshmark.machine.facts import host_id
    from meshmark.measure.runs import unfinished
    from meshmark.measure.runs.budget import BUDGET
    from meshmark.measure.runs.plan import measurement
    from meshmark.store.store import Store, run_name
    from meshmark.values import grammar

    machine = host_id()
    if "--machine" not in argv:
        argv += ["--machine", machine]
    plan, run_id = measurement(d, argv, repetitions), run_name("measure")
    default = d.parameter("budget").default
    if BUDGET not in argv and not d.ranks and plan.budget_s > grammar.seconds(BUDGET, default):
        say(
            f"note: the budget is {plan.budget_s:.0f}s instead of {default}, enough for all points; --budget changes it"
        )
    if store is None:
        with interruptible("nothing is stored (--no-store)"), tempfile.TemporaryDirectory(prefix="meshmark-") as folder:
            _run_and_print(plan, Path(folder), Path(folder) / "store", run_id, as_json)
        return
    Store(store)  # raises early if the folder is not a store
    with unfinished.begin(store, run_id, plan, machine) as run:
        _run(run, as_json)


def _measure_resumed(store: Path, instrument: str, as_json: bool) -> None:
    """Resume the newest interrupted run."""
    from meshmark.machine.facts import host_id
    from meshmark.measure.runs.unfinished import newest

    with newest(store, host_id(), instrument) as run:
        say(f"meshmark: resuming {run.run_id}: {' '.join(run.plan.steps[0].argv)}")
        _run(run, as_json)


def _run(what: UnfinishedMeasurement, as_json: bool) -> None:
    """Run a plan. A run that is killed, or fails after some points, can be resumed."""
    from meshmark.measure.runs.unfinished import PartlyError

    is_default = what.store == default_store()
    resume_command = "meshmark measure --resume" + ("" if is_default else f" --store {shlex.quote(str(what.store))}")
    try:
        with interruptible(f"completed points are kept; resume with {resume_command}"):
            _run_and_print(what.plan, what.folder, what.store, what.run_id, as_json)
    except PartlyError as error:
        raise PartlyError(str(error), f"measure the rest with {resume_command}") from error


def _run_and_print(plan: SurveyPlan, folder: Path, store: Path, run_id: str, as_json: bool) -> None:
    """Run the steps and print their records and absences.

    Raises:
        UsageError: A step rejected its options.
        AbsentError: Nothing could be measured.
        MeshmarkError: A step failed.
    """
    from meshmark.measure.single import measure as measured
    from meshmark.views.terminal.tables import print_tables

    with progress(plan.budget_s, repetitions=len(plan.steps)) as report:
        measurement = measured(plan, folder, store, run_id, report)
    for record in measurement.records if as_json else ():
        print(json.dumps(record.to_json()))
    if not as_json:
        print_tables(measurement.records)
    for line in [*measurement.absent, *measurement.notes]:
        say(line)
    measurement.check()


def _measure_model(
    on: str, d: Description, extra: list[str], as_json: bool, settings: list[str] | None, store: Path | None
) -> None:
    from meshmark.cli.model.model import note_assumptions
    from meshmark.measure.single import absent_lines
    from meshmark.model.machine import find_machine
    from meshmark.model.published import misses
    from meshmark.model.single import keep
    from meshmark.model.single import measure as measure_model

    machine = find_machine(on, settings)
    argv = iter(_checked_argv(d, extra))
    options: dict[str, str] = {}
    for option in argv:
        parameter = d.parameter(option)
        options[parameter.word] = "true" if parameter.kind == "flag" else next(argv)
    with counted(f"{d.name} on {machine.name}") as progress:
        set_arguments = [word for setting in settings or [] for word in ("--set", setting)]
        command = [d.name, "--on", on, *set_arguments, *extra]
        absences: list[Absence] = []
        records = measure_model(d.name, machine, options, command, progress, absences.append)
    for record in records if as_json else ():
        print(json.dumps(record.to_json()))
    if not as_json:
        print_records(records)
    keep(store, records, d.name)
    for line in [*absent_lines(absences), *misses(records)]:
        say(line)
    note_assumptions(machine)


def _checked_argv(d: Description, extra: list[str]) -> list[str]:
    """Return the options as arguments of the native program; raise UsageError for an unknown option."""
    argv: list[str] = []
    words = iter(extra)
    for word in words:
        if not word.startswith("--"):
            raise UsageError(f"{d.name}: found '{word}'; allowed: options", f"meshmark measure {d.name} --help")
        name, equals, value = word.partition("=")
        parameter = d.parameter(name)
        if parameter.kind == "flag":
            argv.append(parameter.option)
            continue
        if not equals:
            value = next(words, "")
            if not value:
                raise UsageError(f"{d.name}: {name}: found no value, one is required")
        argv += [parameter.option, value]
    return argv
