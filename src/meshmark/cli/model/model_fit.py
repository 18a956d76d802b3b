"""`meshmark model fit`: fits a machine file to a survey, or to results of other tools."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from meshmark.cli.completion import compared
from meshmark.cli.console import counted, print_rows, say
from meshmark.cli.model.model_init import error_text, number_option, parsed
from meshmark.cli.options import JsonOption, StoreToReadOption, in_folder
from meshmark.errors import UsageError, quoted
from meshmark.values.paths import data_home

if TYPE_CHECKING:
    from meshmark.compare.sides import ResultSide
    from meshmark.model.fitting.fit import FitPoint, SurveyFit


def register(app: typer.Typer) -> None:
    """Add the command `model fit`."""
    app.command("fit")(fit)


def fit(
    what: Annotated[
        str,
        typer.Argument(
            metavar="RESULTS",
            help="folder or name of a survey, latest, a file of another tool's output, or a machine of the store",
            autocompletion=compared,
        ),
    ] = "latest",
    out: Annotated[
        Path | None,
        typer.Option("--out", help="machine file to write [./MACHINE.toml]", show_default=False, callback=in_folder),
    ] = None,
    cores: Annotated[str | None, number_option("cores")] = None,
    idle_local: Annotated[str | None, number_option("idle-local")] = None,
    store: StoreToReadOption = None,
    as_json: JsonOption = False,
) -> None:
    """Fit a machine file to a survey or to results of another tool. It is tested on points that the fit did not use.

    Results of other tools become a machine of one or two sockets. --cores and --idle-local supply what they lack.

    example: meshmark model fit mlc.txt --cores 64 --out colleague.toml
    """
    import tempfile

    from meshmark.store.files import write_file
    from meshmark.values.units import percent

    folder = None if cores or idle_local else _survey(what)
    with tempfile.TemporaryDirectory(prefix="meshmark-") as scratch, counted("fit") as progress:
        if folder is not None:
            from meshmark.measure.survey import load_run
            from meshmark.model.fitting.fit import fit as fit_survey
            from meshmark.model.fitting.fit import shape_of

            records, _, info = load_run(folder)
            name = (out.stem if out else info.machine) or "host"
            result: SurveyFit = fit_survey(records, name, *shape_of(info.host), Path(scratch), progress)
            notes: Sequence[str] = ()
        else:
            from meshmark.compare.import_fit import fit_import

            numbers = {"cores": cores, "idle-local": idle_local}
            given_numbers = {n: parsed(n, text) for n, text in numbers.items() if text is not None}
            side = _side(what, store)
            name = (out.stem if out else side.machine) or "machine"
            count = int(given_numbers["cores"]) if "cores" in given_numbers else None
            import_fit = fit_import(side.points, name, Path(scratch), count, given_numbers.get("idle-local"), progress)
            warnings = [f"warning: {o.name}: {o.warning}" for o in import_fit.fitted.outcomes if o.warning]
            result, notes = import_fit, [*warnings, *(f"note: {note}" for note in import_fit.notes)]
    target = out or Path(f"{name}.toml")
    write_file(target, result.text.encode())
    print_rows([p.to_json() if as_json else _row(p) for p in result.points], as_json)
    for note in notes:
        say(note)
    predicted = (
        percent(result.rms(False)) if any(not p.fitted for p in result.points) else "none, so the fit is not tested"
    )
    say(f"rms error: fitted points {percent(result.rms(True))}, predicted points {predicted}")
    say(f"machine file: {target}")


def _survey(name: str) -> Path | None:
    """Return the folder of a survey; None if the name does not denote a survey."""
    from meshmark.measure.latest import LATEST
    from meshmark.measure.survey import find_run, is_survey

    runs = data_home() / "runs"
    if name == LATEST or is_survey(Path(name)) or is_survey(runs / Path(name).name):
        return find_run(name, runs)
    return None


def _side(name: str, store: Path | None) -> ResultSide:
    """Return results that do not come from a survey.

    Raises:
        UsageError: The name is unknown or denotes a model.
    """
    from meshmark.compare.sides import Sides

    side = Sides.here(store, "fit").find(name)
    if all(r.source == "model" for r in side.records):
        raise UsageError(f"fit: found the model {quoted(name)}; allowed: a survey, a file or a machine with results")
    return side


def _row(p: FitPoint) -> dict[str, str]:
    from meshmark.values.units import show

    return {
        "point": p.what,
        "host": show(p.host, p.unit),
        "model": show(p.model, p.unit),
        "error": error_text(p.error),
        "": "fitted" if p.fitted else "predicted",
        "flags": " ".join(sorted(p.flags)),
    }
