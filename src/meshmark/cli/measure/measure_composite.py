"""`meshmark measure composite`: measures a set of programs against a reference machine."""

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
from meshmark.cli.measure.measure_app import RunProgress
from meshmark.cli.options import (
    JsonOption,
    NoStoreOption,
    RunResumeOption,
    RunSeedOption,
    StoreOption,
    given,
    refuse_with_resume,
    time_option,
    writable,
)
from meshmark.cli.process import ended
from meshmark.errors import MeshmarkError, UsageError
from meshmark.statistics.geometric import MIN_RUNS
from meshmark.values.paths import default_store, run_folder
from meshmark.values.secrets import mask_words

if TYPE_CHECKING:
    from meshmark.applications.composite import Composite, Reference
    from meshmark.applications.trials import ApplicationPlan, Trials

_BUDGET_S: Final = 3600.0


@cache
def command() -> Any:
    """Return the command, whose name is an argument of `meshmark measure`."""
    app = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=False)
    app.command("composite", context_settings={"help_option_names": ["-h", "--help"]})(measure_composite)
    return with_uniform_help(typer.main.get_command(app))


def _shipped() -> list[str]:
    from meshmark.applications.composite import shipped

    return list(shipped())


def measure_composite(
    context: typer.Context,
    file: Annotated[
        str,
        typer.Argument(
            metavar="[FILE]",
            help="composite file (TOML), or open13, the suite of Meshmark",
            autocompletion=_shipped,
            show_default=False,
        ),
    ] = "",
    runs: Annotated[int, typer.Option("--runs", help="runs of each member", min=MIN_RUNS, max=1000)] = 5,
    warmup: Annotated[int, typer.Option("--warmup", help="warm-up runs of each member, which do not count", min=0)] = 1,
    against: Annotated[
        str,
        typer.Option(
            "--against",
            help="reference instead of that of FILE: a file, or a stored run",
            metavar="FILE|RUN",
            show_default=False,
        ),
    ] = "",
    save_reference: Annotated[
        Path | None,
        typer.Option(
            "--save-reference",
            help="write the figures as a reference to this file",
            callback=writable,
            show_default=False,
        ),
    ] = None,
    budget_s: Annotated[float, time_option("--budget", "time limit", low=0.01, default="60m")] = _BUDGET_S,
    seed: RunSeedOption = None,
    resume: RunResumeOption = "",
    store: StoreOption = None,
    no_store: NoStoreOption = False,
    as_json: JsonOption = False,
) -> None:
    """Measure a set of programs, and the geometric mean of their ratios to a reference machine, with its interval.

    Members run in rounds, in random order, in fresh processes. There is no composite if a member fails, is not
    verified or has fewer than three runs; the results of the others are kept.

    example: meshmark measure composite open13 --against reference.toml
    """
    from meshmark.applications.composite import against as with_reference
    from meshmark.applications.composite import of_plan, read_composite
    from meshmark.applications.together import failed
    from meshmark.applications.trials import INTERRUPTED, ApplicationPlan
    from meshmark.store.store import run_name

    if resume:
        if file or against:
            raise UsageError(f"--resume: found with {'a file' if file else '--against'}; the original ones apply")
        refuse_with_resume(context, "budget_s", "save_reference", "store", "no_store", "as_json")
        folder = run_folder(resume).absolute()
        plan = ApplicationPlan.load(folder)
        plan.budget_s = budget_s if given(context, "budget_s") else plan.budget_s
        composite = of_plan(plan.tables, str(folder))
    else:
        if not file:
            raise UsageError("FILE: missing; a composite file is required", "meshmark measure composite open13")
        composite = read_composite(file)
        if against:
            composite = with_reference(composite, _reference(against, composite, store), "--against")
        plan = ApplicationPlan(
            tables=composite.tables(),
            source=str(Path.cwd()),
            rounds=runs,
            warmup=warmup,
            budget_s=budget_s,
            seed=secrets.randbelow(1 << 31) if seed is None else seed,
            margin=0.02,
            run=run_name("composite"),
            started=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        )
        folder = run_folder(plan.run).absolute()
    trials = _conducted(plan, composite, folder, bool(resume))
    _keep(trials, composite, store, no_store, as_json)
    if trials.stopped == INTERRUPTED:
        text, status = ended()
        say(f"meshmark: {text}; resume with meshmark measure composite --resume {plan.run}")
        raise SystemExit(status)
    if reason := failed(trials, composite):  # without a reference, only this is an error
        raise MeshmarkError(f"{composite.name}: no composite: {reason}", f"its runs are in {folder / 'members'}")
    if save_reference is not None:
        from meshmark.applications.together import reference_toml
        from meshmark.machine.facts import host_id
        from meshmark.store.files import write_text

        write_text(save_reference, reference_toml(trials, composite, host_id()))


def _reference(name: str, composite: Composite, store: Path | None) -> Reference:
    """Return the reference in a file or in a run of the store."""
    from meshmark.applications.composite import read_reference
    from meshmark.applications.together import reference_of
    from meshmark.store.store import Store
    from meshmark.values.inputs import checked

    if "/" in name or Path(name).is_file():
        return read_reference(Path(name))
    from meshmark.applications.composite import Reference

    rows = [r for _, _, r in Store(store or default_store()).rows(run=name)]
    member_by_name = {m.name: m for m in composite.members}
    figures = {}
    for r in rows:
        member = member_by_name.get(str(r.conditions.get("member", "")))
        if member and r.metric == ("figure_of_merit" if member.application.figure.pattern else "elapsed"):
            figures[member.name] = r
    if not figures:
        raise UsageError(f"--against: found neither a file nor a run of a composite '{name}'", "meshmark store list")
    return checked(Reference, reference_of(figures, name), name)


def _conducted(plan: ApplicationPlan, composite: Composite, folder: Path, resumed: bool) -> Trials:
    """Prepare and run the members, and report progress."""
    from meshmark.applications.attempt import end_earlier
    from meshmark.applications.together import folders_of, measured
    from meshmark.store.session import held
    from meshmark.values.units import counted, duration

    with held(folder, resumed=resumed):
        if resumed:
            count = sum(end_earlier(folders_of(m, folder).root) for m in composite.members)
            if count:
                say(f"ended {counted(count, 'process', 'processes')} of the run that was interrupted")
        plan.save(folder)
        runs = len(composite.members) * (plan.rounds + plan.warmup)
        summary = f"{counted(len(composite.members), 'member')}, {counted(runs, 'run')}"
        say(f"{plan.run}: {summary}, at most {duration(plan.budget_s)}")
        with RunProgress(runs, plan.budget_s) as show:
            return measured(plan, composite, folder, say, show)


def _keep(trials: Trials, composite: Composite, store: Path | None, no_store: bool, as_json: bool) -> None:
    """Store the records, and print the records or the table."""
    from importlib.metadata import version as installed

    from meshmark.applications.together import composite_absences, composite_answer, composite_records
    from meshmark.machine.boot import keep
    from meshmark.machine.facts import host_id
    from meshmark.store.store import Store
    from meshmark.views.terminal.composite import print_composite

    command_line = shlex.join(mask_words(["measure", "composite", *sys.argv[3:]]))
    new_records = composite_records(trials, composite, host_id(), command_line, installed("meshmark"))
    if new_records and not no_store:
        absences = composite_absences(trials, composite)
        keep(Store(store or default_store()), trials.plan.run, "composite", new_records, absences)
    answer = composite_answer(trials, composite)
    if as_json:
        for record in new_records:
            print(json.dumps({"type": "result", "schema": 1, **record.to_json()}))
        print(json.dumps(answer))
    else:
        print_composite(answer)
