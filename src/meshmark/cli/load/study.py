"""`meshmark load study`: studies of co-run slowdown, one command per study."""

from __future__ import annotations

import contextlib
import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from meshmark.cli.console import interruptible, say, say_undrawn
from meshmark.cli.options import ApplicationOption, JsonOption, NoStoreOption, StoreOption, named_values, time_option
from meshmark.errors import MeshmarkError, UsageError, quoted
from meshmark.values.numbers import decimal
from meshmark.values.paths import data_home

if TYPE_CHECKING:
    from meshmark.load.calibration.variants import Variant
    from meshmark.load.studies.bench import StudyOptions, StudyResult
    from meshmark.load.studies.cells import Work

app = typer.Typer(help="Study the slowdown of co-running programs.", no_args_is_help=True)

OutOption = Annotated[
    Path | None,
    typer.Option("--out", help="folder of the study; an interrupted study in it is resumed", show_default=False),
]
RepetitionsOption = Annotated[
    int, typer.Option("--repetitions", min=1, max=1000, help="repetitions of every run; intervals need 4")
]
RunTimeOption = Annotated[float, time_option("--run-time", "run time of a generated program", 0.1, 3600, "5s")]
CpusOption = Annotated[
    str, typer.Option("--cpus", help="CPUs to use, for example 0-3 [all allowed]", show_default=False)
]
RatesOption = Annotated[
    str, typer.Option("--rates", help="rates in GB/s, for example 1,2,4 [from calibration data]", show_default=False)
]
ClockOption = Annotated[
    str,
    typer.Option(
        "--clock", help="wall, or dedicated: wall time minus the time spent waiting for a CPU (for busy machines)"
    ),
]
SeedOption = Annotated[int, typer.Option("--seed", help="seed for the order of runs")]
BaseOption = Annotated[
    str, typer.Option("--base", help="run with calibration data [the newest of this machine]", show_default=False)
]
CommandArgument = Annotated[
    list[str] | None, typer.Argument(help="command and its arguments, after --", show_default=False)
]
DimensionOption = Annotated[
    list[str] | None,
    typer.Option(
        "--dimension", help="value of a dimension of --app; may be repeated", metavar="NAME=VALUE", show_default=False
    ),
]


def _work(study: str, command: list[str] | None, application: str, dimensions: list[str] | None) -> Work | None:
    """Return the command or the application that the study runs; None if the command line has neither."""
    if command and application:
        raise UsageError(f"{study}: found a command and --app; allowed: one of them")
    if dimensions and not application:
        raise UsageError("--dimension: found without --app")
    if not application:
        return command or None
    from meshmark.load.scenario.application import Asked, described

    dimension_values = named_values("--dimension", dimensions or (), "NAME=VALUE, such as size=1000")
    option_names = Asked("--app", "--dimension", "--dimension {name}={value}")
    work = described(application, dimension_values, None, Path(), option_names)
    if work.cpus > 1:
        raise UsageError(f"--dimension: found {work.one.label}; allowed: one rank, since a copy gets one CPU")
    return work


def _options(repetitions: int, clock: str, seed: int, machine: str = "") -> StudyOptions:
    from meshmark.load.studies.bench import StudyOptions

    if clock not in ("wall", "dedicated"):
        raise UsageError(f"--clock: found '{clock}'; allowed: wall and dedicated")
    return StudyOptions(
        repetitions=repetitions,
        seed=seed,
        clock="dedicated" if clock == "dedicated" else "wall",
        machine=machine,
        notify=say,
    )


def _variants(base: str) -> tuple[list[Variant], str]:
    from meshmark.cli.load.load_base import base_variants

    return base_variants(base)


def _cpus(text: str) -> tuple[int, ...]:
    from meshmark.cli.load.load_base import cpus_of

    return cpus_of(text)


def _numbers(option: str, text: str) -> tuple[float, ...]:
    values = [decimal(word) for word in text.split(",") if word.strip()]
    numbers = tuple(value for value in values if value is not None)
    if len(numbers) < len(values):
        raise UsageError(f"{option}: found '{quoted(text)}'; allowed: numbers, for example 1,2.5,4")
    return numbers


def _folder(out: Path | None, name: str) -> Path:
    from meshmark.store.store import run_name

    return out or data_home() / "studies" / run_name(name)


def end(result: StudyResult, as_json: bool, store: Path | None) -> None:
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


def _kept(store: Path | None, no_store: bool) -> Path | None:
    return None if no_store else store or data_home() / "store"


@app.command("shared-bus")
def shared_bus(
    rates: RatesOption = "",
    copies: Annotated[int, typer.Option("--copies", min=0, help="copies; 0: one per CPU")] = 0,
    threshold: Annotated[float, typer.Option("--threshold", min=0.001, max=10, help="slowdown to locate")] = 0.1,
    run_time: RunTimeOption = 5.0,
    out: OutOption = None,
    repetitions: RepetitionsOption = 5,
    cpus: CpusOption = "",
    clock: ClockOption = "wall",
    seed: SeedOption = 0,
    base: BaseOption = "",
    store: StoreOption = None,
    no_store: NoStoreOption = False,
    as_json: JsonOption = False,
) -> None:
    """Slowdown on one memory node, by rate. Also finds the rate at which the slowdown exceeds a threshold.

    example: meshmark load study shared-bus --rates 1,2,4,8
    """
    from meshmark.load.studies.shared_bus import shared_bus as study

    variants, machine = _variants(base)
    folder = _folder(out, "shared-bus")
    with resumable(folder):
        result = study(
            variants,
            folder,
            cpus=_cpus(cpus),
            copies=copies,
            rates_gb_per_s=_numbers("--rates", rates),
            run_time_s=run_time,
            threshold=threshold,
            options=_options(repetitions, clock, seed, machine),
        )
    end(result, as_json, _kept(store, no_store))


@app.command("mix")
def mix(
    rate: Annotated[
        float, typer.Option("--rate", min=0, help="rate of each program in GB/s; 0: from calibration data")
    ] = 0.0,
    run_time: RunTimeOption = 5.0,
    out: OutOption = None,
    repetitions: RepetitionsOption = 5,
    cpus: CpusOption = "",
    clock: ClockOption = "wall",
    seed: SeedOption = 0,
    base: BaseOption = "",
    store: StoreOption = None,
    no_store: NoStoreOption = False,
    as_json: JsonOption = False,
) -> None:
    """Slowdown on one memory node, by write share.

    example: meshmark load study mix --rate 4
    """
    from meshmark.load.studies.mix import mix as study

    variants, machine = _variants(base)
    folder = _folder(out, "mix")
    with resumable(folder):
        result = study(
            variants,
            folder,
            cpus=_cpus(cpus),
            rate_gb_per_s=rate,
            run_time_s=run_time,
            options=_options(repetitions, clock, seed, machine),
        )
    end(result, as_json, _kept(store, no_store))


@app.command("isolation")
def isolation(
    rate: Annotated[
        float, typer.Option("--rate", min=0, help="rate of each program in GB/s; 0: from calibration data")
    ] = 0.0,
    margin: Annotated[float, typer.Option("--margin", min=0.001, max=1, help="equivalence margin")] = 0.05,
    run_time: RunTimeOption = 5.0,
    out: OutOption = None,
    repetitions: RepetitionsOption = 5,
    clock: ClockOption = "wall",
    seed: SeedOption = 0,
    base: BaseOption = "",
    store: StoreOption = None,
    no_store: NoStoreOption = False,
    as_json: JsonOption = False,
) -> None:
    """Test whether load on other memory nodes affects a program.

    example: meshmark load study isolation --margin 0.03
    """
    from meshmark.load.studies.isolation import isolation as study

    variants, machine = _variants(base)
    folder = _folder(out, "isolation")
    with resumable(folder):
        result = study(
            variants,
            folder,
            rate_gb_per_s=rate,
            run_time_s=run_time,
            margin=margin,
            options=_options(repetitions, clock, seed, machine),
        )
    end(result, as_json, _kept(store, no_store))


@app.command("copies")
def copies(
    command: CommandArgument = None,
    application: ApplicationOption = "",
    dimension: DimensionOption = None,
    counts: Annotated[
        str, typer.Option("--counts", help="numbers of copies, for example 1,2,4 [1 … all]", show_default=False)
    ] = "",
    out: OutOption = None,
    repetitions: RepetitionsOption = 5,
    cpus: CpusOption = "",
    clock: ClockOption = "wall",
    seed: SeedOption = 0,
    store: StoreOption = None,
    no_store: NoStoreOption = False,
    as_json: JsonOption = False,
) -> None:
    """Run time and throughput of N copies of a command, or of an application, whose results are verified.

    example: meshmark load study copies --counts 1,2,4 -- ./a.out
    """
    from meshmark.load.studies.copies import copies as study

    work = _work("copies", command, application, dimension)
    if work is None:
        raise UsageError("copies: found no command and no --app", "meshmark load study copies -- ./a.out")
    numbers = _numbers("--counts", counts)
    if not all(n.is_integer() for n in numbers):
        raise UsageError(f"--counts: found '{counts}'; allowed: integers, for example 1,2,4")
    folder = _folder(out, "copies")
    with resumable(folder):
        result = study(
            work,
            folder,
            cpus=_cpus(cpus),
            counts=tuple(map(int, numbers)),
            options=_options(repetitions, clock, seed),
        )
    end(result, as_json, _kept(store, no_store))


@app.command("overload")
def overload(
    command: CommandArgument = None,
    application: ApplicationOption = "",
    dimension: DimensionOption = None,
    extra: Annotated[
        int, typer.Option("--extra", min=1, max=1000, help="number of programs beyond the number of CPUs")
    ] = 1,
    run_time: RunTimeOption = 5.0,
    out: OutOption = None,
    repetitions: RepetitionsOption = 5,
    cpus: CpusOption = "",
    seed: SeedOption = 0,
    base: BaseOption = "",
    store: StoreOption = None,
    no_store: NoStoreOption = False,
    as_json: JsonOption = False,
) -> None:
    """Waiting times with more programs than CPUs.

    example: meshmark load study overload --repetitions 4
    """
    from meshmark.load.studies.overload import overload as study

    work = _work("overload", command, application, dimension)
    variants, machine = ((), "") if work else _variants(base)
    folder = _folder(out, "overload")
    with resumable(folder):
        result = study(
            folder,
            variants=variants,
            work=work,
            cpus=_cpus(cpus),
            extra=extra,
            run_time_s=run_time,
            options=_options(repetitions, "wall", seed, machine),
        )
    end(result, as_json, _kept(store, no_store))


@app.command("omp-overload")
def omp_overload(
    run_time: Annotated[float, time_option("--run-time", "run time of a generated program", 0.1, 3600, "500ms")] = 0.5,
    threads: Annotated[int, typer.Option("--threads", min=0, help="threads of the OpenMP program; 0: one per CPU")] = 0,
    sequentials: Annotated[
        int, typer.Option("--sequentials", min=0, help="co-running sequential programs; 0: one per CPU")
    ] = 0,
    policies: Annotated[
        str, typer.Option("--policies", help="values of OMP_WAIT_POLICY to compare")
    ] = "active,passive",
    out: OutOption = None,
    repetitions: RepetitionsOption = 5,
    cpus: CpusOption = "",
    seed: SeedOption = 0,
    base: BaseOption = "",
    store: StoreOption = None,
    no_store: NoStoreOption = False,
    as_json: JsonOption = False,
) -> None:
    """OpenMP and sequential programs on too few CPUs. Reports serialization by OMP_WAIT_POLICY.

    example: meshmark load study omp-overload --policies passive
    """
    from meshmark.load.studies.omp_overload import omp_overload as study

    variants, machine = _variants(base)
    folder = _folder(out, "omp-overload")
    with resumable(folder):
        result = study(
            folder,
            variants=variants,
            threads=threads,
            sequentials=sequentials,
            cpus=_cpus(cpus),
            policies=tuple(p.strip() for p in policies.split(",")),
            run_time_s=run_time,
            options=_options(repetitions, "wall", seed, machine),
        )
    end(result, as_json, _kept(store, no_store))


@app.command("matrix")
def matrix(
    classes: Annotated[
        str,
        typer.Option("--classes", help="kinds or kernels, for example stream@memory [a selection]", show_default=False),
    ] = "",
    run_time: RunTimeOption = 5.0,
    out: OutOption = None,
    repetitions: RepetitionsOption = 5,
    cpus: CpusOption = "",
    clock: ClockOption = "wall",
    seed: SeedOption = 0,
    base: BaseOption = "",
    store: StoreOption = None,
    no_store: NoStoreOption = False,
    as_json: JsonOption = False,
) -> None:
    """Co-run slowdown of each pair of kernel classes.

    example: meshmark load study matrix --classes stream@memory,dense,integer
    """
    from meshmark.load.studies.interference import interference_matrix as study

    variants, machine = _variants(base)
    folder = _folder(out, "matrix")
    with resumable(folder):
        result = study(
            variants,
            folder,
            classes=tuple(c.strip() for c in classes.split(",") if c.strip()),
            cpus=_cpus(cpus),
            run_time_s=run_time,
            options=_options(repetitions, clock, seed, machine),
        )
    end(result, as_json, _kept(store, no_store))


@app.command("curve")
def curve(
    command: CommandArgument = None,
    application: ApplicationOption = "",
    dimension: DimensionOption = None,
    rates: RatesOption = "",
    neighbours: Annotated[int, typer.Option("--neighbours", min=1, max=1000, help="number of co-running programs")] = 1,
    out: OutOption = None,
    repetitions: RepetitionsOption = 5,
    cpus: CpusOption = "",
    clock: ClockOption = "wall",
    seed: SeedOption = 0,
    base: BaseOption = "",
    store: StoreOption = None,
    no_store: NoStoreOption = False,
    as_json: JsonOption = False,
) -> None:
    """Slowdown of a command, by bandwidth of co-running programs. Also reports how well the curve predicts others.

    example: meshmark load study curve --rates 2,4,8 -- ./a.out
    """
    from meshmark.load.studies.curve import interference_curve as study

    work = _work("curve", command, application, dimension)
    if work is None:
        raise UsageError("curve: found no command and no --app", "meshmark load study curve -- ./a.out")
    variants, machine = _variants(base)
    folder = _folder(out, "curve")
    with resumable(folder):
        result = study(
            work,
            variants,
            folder,
            cpus=_cpus(cpus),
            neighbours=neighbours,
            rates_gb_per_s=_numbers("--rates", rates),
            options=_options(repetitions, clock, seed, machine),
        )
    end(result, as_json, _kept(store, no_store))
