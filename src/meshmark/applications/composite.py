"""Reads composites: sets of programs that are measured together against a reference machine.

[composite]
name = "ours"

[[member]]
application = "lammps"                  # an application file, or a name of meshmark list applications
dimensions = { ranks = 4 }              # one value for each dimension that the file varies

[[member]]
name = "ocean"
instrument = "pop"                      # an instrument of Meshmark; a metric of its records counts
metric = "iteration_time"
options = "--grid 640x384 --ranks 4 --protocol irecv_isend --reductions 1"
why = "…"                               # why this program is a member

[reference]                             # without it, the figures are measured, but there are no ratios
machine = "n042"
source = "measured on 2026-11-26"

[[reference.figure]]
member = "ocean"
unit = "s"
runs = [1.21e-3, 1.19e-3, 1.20e-3]      # or one number, which is exact by definition
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BeforeValidator, Field

from meshmark.applications.application import Application, Command, hide_secrets, named_tables, of_tables
from meshmark.applications.configuration import Configuration, configurations
from meshmark.describe import Description, descriptions
from meshmark.errors import AbsentError, MeshmarkError, UsageError, near, quoted
from meshmark.store.files import parse_toml, read_text
from meshmark.values.inputs import LIST, PRINTABLE, Input, Label, Name, checked

MAX_MEMBERS: Final = 100
_MAX_BYTES: Final = 1 << 20


def _number_or_list(value: object) -> object:
    return [value] if isinstance(value, int | float) and not isinstance(value, bool) else value


def _text(value: object) -> object:
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


def _plain(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", text):
        raise ValueError("allowed: a name of letters, digits, _, - and .")
    return text


PlainName = Annotated[
    Name, Field(description="a name of letters, digits, _, - and ."), AfterValidator(_plain)
]  # it also names a folder


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberTable(Input):
    """[[member]]: either an application or an instrument."""

    name: PlainName | None = None
    application: Annotated[str, Field(max_length=1000), PRINTABLE] = ""
    dimensions: Mapping[str, Annotated[str, BeforeValidator(_text)]] = field(default_factory=dict)
    instrument: Annotated[str, Field(max_length=60), PRINTABLE] = ""
    metric: Annotated[str, Field(max_length=60), PRINTABLE] = ""
    options: Command | None = None
    why: Annotated[str, Field(max_length=400), PRINTABLE] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceFigureTable(Input):
    """[[reference.figure]]: figures of the runs of a member on the reference machine."""

    member: Label
    unit: Annotated[str, Field(min_length=1, max_length=30), PRINTABLE]
    runs: Annotated[
        tuple[Annotated[float, Field(gt=0)], ...],
        LIST,
        BeforeValidator(_number_or_list),
        Field(min_length=1, max_length=1000, description="a number above 0, or a list of them"),
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference(Input):
    """[reference]: the machine whose composite is 1, and the source of its figures."""

    machine: Label
    source: Annotated[str, Field(max_length=400), PRINTABLE] = ""
    figure: Annotated[tuple[ReferenceFigureTable, ...], LIST, Field(min_length=1)]

    @property
    def runs(self) -> dict[str, tuple[float, ...]]:
        """Return the figures of the runs by member, each in the unit of the member's figure."""
        return {f.member: f.runs for f in self.figure}


@dataclass(frozen=True, slots=True, kw_only=True)
class NameTable(Input):
    """[composite]."""

    name: PlainName | None = None  # by default the name of the file
    about: Annotated[str, Field(max_length=400), PRINTABLE] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompositeFile(Input):
    """The tables of a composite file."""

    composite: NameTable = field(default_factory=NameTable)
    member: Annotated[tuple[MemberTable, ...], LIST, Field(min_length=1, max_length=MAX_MEMBERS)]
    reference: Reference | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceFile(Input):
    """The table of a file that only has a reference."""

    reference: Reference


@dataclass(frozen=True, slots=True, kw_only=True)
class CompositeMember:
    """A program that belongs to the composite. It has one configuration and is verified.

    Attributes:
        why: Reason why the program is a member.
        tables: Tables of its application.
        source: Folder to which the paths in the tables are relative.
        instrument: Instrument that the program runs; "" for an application.
    """

    name: str
    why: str
    tables: Mapping[str, Any]
    source: str
    instrument: str = ""

    @property
    def application(self) -> Application:
        """Return the application that the tables of the member describe, read anew at each call."""
        return of_tables(self.tables, f"member {self.name}", Path(self.source))

    @property
    def configuration(self) -> Configuration:
        """Return the only configuration of the application."""
        return configurations(self.application)[0]

    @property
    def unit(self) -> str:
        """Return the unit of the figure."""
        figure = self.application.figure
        return figure.unit if figure.pattern else "s"

    @property
    def better(self) -> str:
        """Return the better direction, `higher` or `lower`; `lower` if the application does not state it."""
        return self.application.figure.better or "lower"


@dataclass(frozen=True, slots=True, kw_only=True)
class Composite:
    """A valid composite, with everything that its members need."""

    name: str
    about: str
    members: tuple[CompositeMember, ...]
    reference: Reference | None

    def tables(self) -> dict[str, Any]:
        """Return the tables from which `of_plan` makes the composite."""
        return asdict(self)

    @property
    def listed(self) -> list[Configuration]:
        """Return a configuration for each member, in the order of the file."""
        return [Configuration({"member": m.name}) for m in self.members]


def of_plan(tables: Mapping[str, Any], where: str) -> Composite:
    """Return the composite that `Composite.tables` describes.

    Raises:
        MeshmarkError: The tables are not a composite.
    """
    try:
        members = tuple(CompositeMember(**m) for m in tables["members"])
        composite = Composite(name=tables["name"], about=tables["about"], members=members, reference=None)
    except (KeyError, TypeError) as error:
        raise MeshmarkError(f"{where}: not the plan of a composite") from error
    raw = tables.get("reference")
    return composite if raw is None else against(composite, checked(Reference, raw, where, MeshmarkError), where)


def shipped() -> dict[str, Path]:
    """Return the composite files that belong to Meshmark, by name."""
    return {path.stem: path for path in sorted((Path(__file__).parent / "composites").glob("*.toml"))}


def read_composite(name: str) -> Composite:
    """Read a composite from a file.

    Args:
        name: A path, or a name in `shipped`.

    Raises:
        UsageError: One line that names the file, the key, what was found and what is allowed.
        AbsentError: An instrument was not built.
    """
    files = shipped()
    path = files.get(name, Path(name))
    if not path.is_file():
        raise UsageError(f"FILE: found '{quoted(name)}'; allowed: a file, {', '.join(files)}", near(name, files))
    location = str(path)
    file = checked(CompositeFile, parse_toml(read_text(path, _MAX_BYTES), location), location)
    members: list[CompositeMember] = []
    for number, table in enumerate(file.member, 1):
        key = f"{location}: member {table.name or table.application or table.instrument or number}"
        member = _member(table, path.absolute().parent, key)
        if member.name in {m.name for m in members}:
            raise UsageError(f"{key}: found a second member of this name", "give one of them another name")
        members.append(member)
    composite = Composite(
        name=file.composite.name or path.stem, about=file.composite.about, members=tuple(members), reference=None
    )
    return composite if file.reference is None else against(composite, file.reference, location)


def read_reference(path: Path) -> Reference:
    """Read the reference in a file, which may be the file of a composite.

    Raises:
        UsageError: One line; see `read_composite`.
    """
    tables = parse_toml(read_text(path, _MAX_BYTES), str(path))
    if "reference" not in tables:
        raise UsageError(f"{path}: reference: missing", "meshmark measure composite FILE --save-reference FILE")
    return checked(ReferenceFile, {"reference": tables["reference"]}, str(path)).reference


def against(composite: Composite, reference: Reference, where: str) -> Composite:
    """Return the composite with this reference.

    Raises:
        UsageError: A member has no figure, or its figure has another unit.
    """
    figures = {f.member: f for f in reference.figure}
    if len(figures) < len(reference.figure):
        raise UsageError(f"{where}: reference.figure: found a member twice")
    for member in composite.members:
        if member.name not in figures:
            raise UsageError(f"{where}: reference.figure: missing for member {member.name}; each member needs one")
        if figures[member.name].unit != member.unit:
            raise UsageError(
                f"{where}: reference.figure: {member.name}: found the unit '{quoted(figures[member.name].unit)}'; "
                f"allowed: {member.unit}"
            )
    member_figures = tuple(figures[m.name] for m in composite.members)
    return replace(composite, reference=replace(reference, figure=member_figures))


def _member(table: MemberTable, folder: Path, at: str) -> CompositeMember:
    if bool(table.application) == bool(table.instrument):
        kinds = "both" if table.application else "neither"
        raise UsageError(f"{at}: found {kinds} of application and instrument; one of them is required")
    if table.instrument:
        if table.dimensions:
            raise UsageError(f"{at}: dimensions: found with an instrument; its options are in options")
        tables, source, name = _of_instrument(table, at), folder, table.instrument
    else:
        if table.metric or table.options:
            raise UsageError(f"{at}: {'metric' if table.metric else 'options'}: found with an application")
        tables, source = named_tables(table.application, table.dimensions, folder)
        name = Path(table.application).stem
    kind = table.instrument
    member = CompositeMember(
        name=table.name or name, why=table.why, tables=hide_secrets(tables), source=str(source), instrument=kind
    )
    app = of_tables(tables, at, source)
    if (count := len(configurations(app))) != 1:
        varied_names = [n for n, values in app.dimensions.items() if len(values) > 1]
        raise UsageError(f"{at}: dimensions: found {count} combinations of {', '.join(varied_names)}; allowed: one")
    if not (app.verify.pattern or app.verify.command):
        raise UsageError(f"{at}: found an application without [verify]; members are verified")
    return member


def _of_instrument(table: MemberTable, at: str) -> dict[str, Any]:
    """Return the tables of an application that runs an instrument once."""
    instruments = descriptions()
    if table.instrument not in instruments:
        if table.instrument in RANKS:
            raise AbsentError(f"{at}: {table.instrument} was not built, since no MPI library was found")
        raise UsageError(
            f"{at}: instrument: found '{quoted(table.instrument)}'; allowed: {', '.join(instruments)}",
            near(table.instrument, instruments),
        )
    metric = _metric(instruments[table.instrument], table.metric, at)
    words = ("{meshmark}", "measure", table.instrument, *(table.options or ()))
    result = rf'"metric": "{re.escape(metric.name)}", '
    # The output must contain one result of the metric, without the flag `unverified`. It is not the only result of the
    # options if the budget ended before another one (`Run::out_of_budget` in native/base/harness/run.cpp).
    one_result = rf"\A(?![\s\S]*{result}[\s\S]*{result})(?![\s\S]*^absent: .*: the budget of .* ended)"
    verified_pattern = rf'{one_result}[\s\S]*?^(?!.*"flags": \[[^]]*"unverified").*{result}'
    return {
        "application": {
            "name": table.instrument,
            "command": [*words, "--repetitions", "1", "--json", "--no-store"],
        },
        "figure": {"pattern": rf'{result}.*"value": ([^,]+),', "unit": metric.unit, "better": metric.better},
        "verify": {"pattern": verified_pattern},
    }


# Instruments that run on MPI ranks. They are only described where they were built.
RANKS: Final = frozenset({"halo", "alltoall", "allreduce"})


def _metric(description: Description, name: str, at: str) -> Any:
    metrics = {m.name: m for m in description.metrics if m.better != "none"}
    if name not in metrics:
        raise UsageError(f"{at}: metric: found '{quoted(name)}'; allowed: {', '.join(metrics)}", near(name, metrics))
    return metrics[name]
