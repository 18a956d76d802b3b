"""`meshmark load study`: studies of co-run slowdown, one command per study.

`STUDIES` is the table of the commands; the modules of `meshmark.load.studies` contain the studies.
"""

from __future__ import annotations

import contextlib
import inspect
import json
import shlex
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import typer

from meshmark.cli.console import interruptible, say, say_undrawn
from meshmark.cli.load.load_base import base_variants, cpus_of
from meshmark.cli.options import ApplicationOption, JsonOption, NoStoreOption, StoreOption, named_values, time_option
from meshmark.errors import MeshmarkError, UsageError, quoted
from meshmark.values.numbers import decimal
from meshmark.values.paths import data_home, default_store

if TYPE_CHECKING:
    from meshmark.load.studies.cells import Work
    from meshmark.load.studies.study import Study

app = typer.Typer(help="Study the slowdown of co-running programs.", no_args_is_help=True)


class StudyOption(NamedTuple):
    """An option of study commands."""

    declaration: Any
    default: Any
    parameter: str = ""  # parameter of the study that it sets; "": all studies read it in the same way
    parse: Callable[[Any], Any] | None = None


class StudyCommand(NamedTuple):
    """A study as a command."""

    name: str
    study: str  # its class, in a module of `meshmark.load.studies`
    help: str
    example: str
    options: str  # names in `OPTIONS`, in the order of the help
    lacks: str = ""  # common option that the study does not have
    needs_work: bool = False  # a command or an application is required; otherwise it replaces the calibration data


def _option(
    name: str, default: Any, text: str, parameter: str = "", parse: Callable[[Any], Any] | None = None, **limits: Any
) -> StudyOption:
    """Return an option that has the type of its default."""
    option = typer.Option(name, help=text, show_default=default != "", **limits)
    return StudyOption(Annotated[type(default), option], default, parameter, parse)


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(","))


def _numbers(option: str, text: str) -> tuple[float, ...]:
    values = [decimal(word) for word in text.split(",") if word.strip()]
    numbers = tuple(value for value in values if value is not None)
    if len(numbers) < len(values):
        raise UsageError(f"{option}: found '{quoted(text)}'; allowed: numbers, for example 1,2.5,4")
    return numbers


def _counts(text: str) -> tuple[int, ...]:
    numbers = _numbers("--counts", text)
    if not all(n.is_integer() for n in numbers):
        raise UsageError(f"--counts: found '{text}'; allowed: integers, for example 1,2,4")
    return tuple(map(int, numbers))


def _run_time(default: float, text: str) -> StudyOption:
    option = time_option("--run-time", "run time of a generated program", 0.1, 3600, text)
    return StudyOption(Annotated[float, option], default, "run_time_s")


_OUT_HELP: Final = "folder of the study; an interrupted study in it is resumed"
OPTIONS: Final = {
    "command": StudyOption(
        Annotated[list[str] | None, typer.Argument(help="command and its arguments, after --", show_default=False)],
        None,
    ),
    "application": StudyOption(ApplicationOption, ""),
    "dimension": StudyOption(
        Annotated[
            list[str] | None,
            typer.Option(
                "--dimension",
                help="value of a dimension of --app; may be repeated",
                metavar="NAME=VALUE",
                show_default=False,
            ),
        ],
        None,
    ),
    "rates": _option(
        "--rates",
        "",
        "rates in GB/s, for example 1,2,4 [from calibration data]",
        "rates_gb_per_s",
        partial(_numbers, "--rates"),
    ),
    "rate": _option("--rate", 0.0, "rate of each program in GB/s; 0: from calibration data", "rate_gb_per_s", min=0),
    "copies": _option("--copies", 0, "copies; 0: one per CPU", "copies", min=0),
    "counts": _option("--counts", "", "numbers of copies, for example 1,2,4 [1 … all]", "counts", _counts),
    "threshold": _option("--threshold", 0.1, "slowdown to locate", "threshold", min=0.001, max=10),
    "margin": _option("--margin", 0.05, "equivalence margin", "margin", min=0.001, max=1),
    "extra": _option("--extra", 1, "number of programs beyond the number of CPUs", "extra", min=1, max=1000),
    "threads": _option("--threads", 0, "threads of the OpenMP program; 0: one per CPU", "threads", min=0),
    "sequentials": _option("--sequentials", 0, "co-running sequential programs; 0: one per CPU", "sequentials", min=0),
    "policies": _option("--policies", "active,passive", "values of OMP_WAIT_POLICY to compare", "policies", _words),
    "priorities": _option(
        "--priorities",
        "0",
        "priorities of the sequential programs: nice values, or classes such as batch, idle",
        "priorities",
        _words,
    ),
    "classes": _option(
        "--classes",
        "",
        "kinds or kernels, for example stream@memory [a selection]",
        "classes",
        lambda text: tuple(filter(None, _words(text))),
    ),
    "neighbours": _option("--neighbours", 1, "number of co-running programs", "neighbours", min=1, max=1000),
    "run_time": _run_time(5.0, "5s"),
    "short_run_time": _run_time(0.5, "500ms"),
    "out": StudyOption(
        Annotated[Path | None, typer.Option("--out", help=_OUT_HELP, show_default=False)],
        None,
    ),
    "repetitions": _option("--repetitions", 5, "repetitions of every run; intervals need 4", min=1, max=1000),
    "cpus": _option("--cpus", "", "CPUs to use, for example 0-3 [all allowed]", "cpus", cpus_of),
    "clock": _option(
        "--clock", "wall", "wall, or dedicated: wall time minus the time spent waiting for a CPU (for busy machines)"
    ),
    "seed": _option("--seed", 0, "seed for the order of runs"),
    "base": _option("--base", "", "run that measured the calibration data [newest of this machine]"),
    "store": StudyOption(StoreOption, None),
    "no_store": StudyOption(NoStoreOption, False),
    "as_json": StudyOption(JsonOption, False),
}
_COMMON: Final = ("out", "repetitions", "cpus", "clock", "seed", "base", "store", "no_store", "as_json")

STUDIES: Final = (
    StudyCommand(
        "shared-bus",
        "shared_bus.SharedBusStudy",
        "Measure the slowdown on one memory node by rate. Also finds the rate at which it exceeds a threshold.",
        "--rates 1,2,4,8",
        "rates copies threshold run_time",
    ),
    StudyCommand(
        "mix", "mix.MixStudy", "Measure the slowdown on one memory node by write share.", "--rate 4", "rate run_time"
    ),
    StudyCommand(
        "isolation",
        "isolation.IsolationStudy",
        "Test whether load on other memory nodes affects a program.",
        "--margin 0.03",
        "rate margin run_time",
        lacks="cpus",
    ),
    StudyCommand(
        "copies",
        "copies.CopiesStudy",
        "Measure run time and throughput of N copies of a command, or of an application with verified results.",
        "--counts 1,2,4 -- ./a.out",
        "command application dimension counts",
        lacks="base",
        needs_work=True,
    ),
    StudyCommand(
        "overload",
        "overload.OverloadStudy",
        "Measure waiting times with more programs than CPUs.",
        "--repetitions 4",
        "command application dimension extra run_time",
        lacks="clock",
    ),
    StudyCommand(
        "omp-overload",
        "omp_overload.OmpOverloadStudy",
        "Run OpenMP and sequential programs on too few CPUs. Reports serialization by OMP_WAIT_POLICY.",
        "--policies passive",
        "short_run_time threads sequentials policies priorities",
        lacks="clock",
    ),
    StudyCommand(
        "matrix",
        "matrix.MatrixStudy",
        "Measure the co-run slowdown of each pair of kernel classes.",
        "--classes stream@memory,dense,integer",
        "classes run_time",
    ),
    StudyCommand(
        "curve",
        "curve.CurveStudy",
        "Measure the slowdown of a command by bandwidth of co-running programs, and test its prediction for others.",
        "--rates 2,4,8 -- ./a.out",
        "command application dimension rates neighbours",
        needs_work=True,
    ),
)


def _register(study: StudyCommand) -> None:
    """Add the command of a study."""
    names = [*study.options.split(), *(name for name in _COMMON if name != study.lacks)]

    def command(**values: Any) -> None:
        _run(study, values)

    parameters = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=OPTIONS[name].default,
            annotation=OPTIONS[name].declaration,
        )
        for name in names
    ]
    command.__dict__["__signature__"] = inspect.Signature(parameters)  # typer derives the options from it
    command.__annotations__ = {p.name: p.annotation for p in parameters}
    example = f"example: meshmark load study {study.name} {study.example}"
    app.command(study.name, help=f"{study.help}\n\n{example}")(command)


for _study in STUDIES:
    _register(_study)


def _run(command: StudyCommand, values: dict[str, Any]) -> None:
    """Run a study with the values of its options.

    Raises:
        UsageError: A value is invalid.
        MeshmarkError: The study failed, or a run is invalid.
    """
    from meshmark.load.studies.study import StudyOptions
    from meshmark.store.store import run_name

    clock, machine, request = values.get("clock", "wall"), "", dict[str, Any]()
    if "command" in values:
        work = _work(command.name, values["command"], values["application"], values["dimension"])
        if work is None and command.needs_work:
            example = f"meshmark load study {command.name} -- ./a.out"
            raise UsageError(f"{command.name}: found no command and no --app", example)
        request["work"] = work
    if "base" in values and (command.needs_work or request.get("work") is None):
        request["variants"], machine = base_variants(values["base"])
    for name, value in values.items():
        if parameter := OPTIONS[name].parameter:
            parse = OPTIONS[name].parse
            request[parameter] = parse(value) if parse else value
    if clock not in ("wall", "dedicated"):
        raise UsageError(f"--clock: found '{clock}'; allowed: wall and dedicated")
    options = StudyOptions(
        repetitions=values["repetitions"], seed=values["seed"], clock=clock, machine=machine, notify=say
    )
    module, _, class_name = command.study.partition(".")
    study = getattr(import_module(f"meshmark.load.studies.{module}"), class_name)
    folder = values["out"] or data_home() / "studies" / run_name(command.name)
    with resumable(folder):
        result = study(folder, options=options, **request).run()
    end(result, values["as_json"], None if values["no_store"] else values["store"] or default_store())


def _work(study: str, command: list[str] | None, application: str, dimensions: list[str] | None) -> Work | None:
    """Return the command or the application that the study runs; None if the command line has neither."""
    if command and application:
        raise UsageError(f"{study}: found a command and --app; allowed: one of them")
    if dimensions and not application:
        raise UsageError("--dimension: found without --app")
    if not application:
        return command or None
    from meshmark.load.scenario.application import DimensionTerms, described

    dimension_values = named_values("--dimension", dimensions or (), "NAME=VALUE, such as size=1000")
    option_names = DimensionTerms("--app", "--dimension", "--dimension {name}={value}")
    work = described(application, dimension_values, None, Path(), option_names)
    if work.cpus > 1:
        raise UsageError(f"--dimension: found {work.configuration.label}; allowed: one rank, since a copy gets one CPU")
    return work


def end(result: Study, as_json: bool, store: Path | None) -> None:
    """Print the table, draw the charts and store the records.

    Raises:
        MeshmarkError: A run is invalid; raised last.
    """
    from meshmark.machine.boot import keep
    from meshmark.store.store import Store, run_name
    from meshmark.views.charts.drawing import charts_or_reason
    from meshmark.views.pages import studies

    if store is not None and result.records:
        keep(Store(store), run_name("study"), result.study, result.records, result.absences)
    paths = [studies.write_study(result.folder)]
    charts, undrawn = charts_or_reason(studies.draw(result.records), result.folder)
    paths += [path for path in charts if path.suffix == ".png"]
    if as_json:
        for record in result.records:
            print(json.dumps(record.to_json()))
    else:
        print(result.table)
        for path in paths:
            print(path)
    say_undrawn(undrawn)
    if result.excluded:
        raise MeshmarkError(f"{result.study}: {result.excluded}", f"runs and their output are in {result.folder}")


def resumable(folder: Path) -> contextlib.AbstractContextManager[None]:
    """Return a context that reports how to resume the study if it is interrupted."""
    return interruptible(f"completed runs are kept; resume with the same command and --out {shlex.quote(str(folder))}")
