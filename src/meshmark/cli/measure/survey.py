"""`meshmark survey` and `meshmark report`: measure this machine and write reports."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from meshmark.cli.completion import runs
from meshmark.cli.console import interruptible, progress_of_plan, say, say_undrawn
from meshmark.cli.init import register as register_init
from meshmark.cli.options import StoreOption, in_folder
from meshmark.errors import UsageError
from meshmark.values.paths import data_home, default_store
from meshmark.values.secrets import mask_words

if TYPE_CHECKING:
    from meshmark.measure.survey import RunResults
    from meshmark.store.record import Record

survey_app = typer.Typer(invoke_without_command=True, subcommand_metavar="[init [FILE]]")
register_init(survey_app, "meshmark.measure", "a survey", "survey.toml", "meshmark survey --spec FILE")


def register(app: typer.Typer) -> None:
    """Add the group `survey` and the command `report`."""
    app.add_typer(survey_app, name="survey")
    app.command()(report)


@survey_app.callback()
def survey(
    context: typer.Context,
    quick: Annotated[bool, typer.Option("--quick", help="take 2 minutes instead of 10")] = False,
    spec: Annotated[
        str | None, typer.Option("--spec", help="file with the steps to run (TOML)", show_default=False)
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", help="folder for this run", show_default=False)] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="resume an interrupted run (in --out, or the last one)")
    ] = False,
    store: StoreOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="print one record per line")] = False,
) -> None:
    """Measure this machine and write a report.

    example: meshmark survey --quick --out survey-of-n042
    """
    if context.invoked_subcommand is not None:
        if quick or spec or out or resume or store or as_json:
            raise UsageError("survey init: found an option of survey before init; allowed: options of init")
        return
    from meshmark.measure.history import in_store
    from meshmark.measure.repetitions import quality
    from meshmark.measure.survey import last_run, load_run_and_steps, run_survey
    from meshmark.measure.suspicion import suspicious
    from meshmark.store.store import Store
    from meshmark.values.units import NBSP
    from meshmark.views.content.card import figures
    from meshmark.views.content.findings import sentences, trust
    from meshmark.views.content.strengths import earlier_runs, strengths
    from meshmark.views.pages.build import write_report

    if quick and spec is not None:
        raise UsageError("--quick: found with --spec; allowed: one of them")
    folder = out or (last_run(data_home() / "runs") if resume else None)
    resume_command = "meshmark survey --resume" + (f" --out {shlex.quote(str(out))}" if out else "")
    with (
        interruptible(f"completed measurements are kept; resume with {resume_command}"),
        progress_of_plan("survey") as start_progress,
    ):
        folder = run_survey(
            spec=spec if spec is not None else "quick" if quick else "full",
            folder=folder,
            runs=data_home() / "runs",
            store_folder=store or default_store(),
            resume=resume,
            command="meshmark survey " + " ".join(mask_words(sys.argv[2:])),
            progress=start_progress,
            notify=say,
        )
    (records, absences, info), steps = load_run_and_steps(folder)
    for record in records if as_json else ():
        print(json.dumps(record.to_json()))
    results_store = Store(store or default_store())
    earlier = earlier_runs(records, info, results_store)
    paths = write_report(records, absences, info, folder, earlier, steps)
    topology: Any = info.host.get("topology", {})
    for line in [*suspicious(records, topology), *in_store(records, results_store, info.run_id)]:
        say(line)
    main_figures = figures(records, len(topology.get("cpus", ())))
    for sentence in sentences(records, main_figures):
        say(str(sentence).replace(NBSP, " "))
    for point in strengths(records, info, main_figures, earlier):
        say(f"{'good' if point.good else 'bad'}: {point}".replace(NBSP, " "))
    say(trust(records))
    say(
        f"meshmark: {len(records)} results of {quality(records)}; {len(absences)} absent or failed; "
        f"{info.elapsed_s:.0f} s"
    )
    if not as_json:
        print(paths.html)
        print(paths.card)
    say_undrawn(paths.undrawn)


def results_of(run: str) -> tuple[Path, RunResults, list[tuple[str, Record]]]:
    """Return the folder of a run, its results, and step and record of every result without pooling of repetitions.

    Args:
        run: Folder or name of a survey, `latest`, or a run of the store.

    Raises:
        MeshmarkError: There is no such run, or it cannot be read.
    """
    from meshmark.cli.serve import Runs
    from meshmark.machine.facts import host_id
    from meshmark.measure.latest import LATEST, newest_run
    from meshmark.measure.survey import find_run, load_run_and_steps
    from meshmark.store.store import Store

    folders, store = data_home() / "runs", default_store()
    name = str(newest_run(store, folders, host_id())) if run == LATEST else run
    try:
        folder = find_run(name, folders)
        return folder, *load_run_and_steps(folder)
    except UsageError:
        if "/" in name or not store.is_dir() or not Store(store).query(run=name):
            raise
        steps = [(step, record) for _, step, record in Store(store).rows(run=name)]
        return folders / name, Runs(store, folders).stored(name), steps


def report(
    run: Annotated[str, typer.Argument(help="folder or name of a run, or latest", autocompletion=runs)] = "latest",
    out: Annotated[
        Path | None, typer.Option("--out", help="folder to write to [the folder of the run]", show_default=False)
    ] = None,
    pdf: Annotated[
        Path | None,
        typer.Option(
            "--pdf",
            help="also print the page to this PDF file, with an installed Chromium or Chrome",
            callback=in_folder,
            show_default=False,
        ),
    ] = None,
) -> None:
    """Write the report of a survey again, or of any run of the store. `latest` is the newest run of this machine.

    example: meshmark report latest --pdf report.pdf
    """
    from meshmark.store.store import Store
    from meshmark.views.content.strengths import earlier_runs
    from meshmark.views.pages.build import write_report
    from meshmark.views.pages.pdf import find_browser, print_pdf

    if pdf is not None:
        find_browser()  # fails before anything is written
    folder, results, steps = results_of(run)
    store = default_store()
    paths = write_report(*results, out or folder, earlier_runs(results[0], results[2], Store(store)), steps)
    print(paths.html)
    if pdf is not None:
        print_pdf(paths.html, pdf)
        print(pdf)
    say_undrawn(paths.undrawn)
