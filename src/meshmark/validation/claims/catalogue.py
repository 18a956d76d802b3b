"""Reads the catalogue of general claims of publications, each with its source and its tests.

A file of `data/` contains the claims of one theme:

    claims_format = 1
    theme = "memory hierarchy"
    letter = "H"

    [[claim]]
    id = "H05"
    statement = "Beyond the caches, streaming stores raise the net bandwidth of copy by half."
    published = "1.5 times"
    source = { of = "xeon", place = "part 2, 'Sequential memory bandwidth'" }   # `of` is a name in sources.toml
    relation = "equal"                  # required relation of the effect to `value`
    value = 1.5
    margin = 0.1
    timing = true                       # a measurement on a guest never supports the claim
    host = { method = "ratio", …, cpus = 2 }
    model = { method = "ratio", on = ["xeon5500"], … }
    computed = { method = "…", … }

A claim has one or more tests: on the host, on models, or by computation. All keys of a test except `method`, `on` and
the requirements are parameters of the method.
"""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Final, Literal, get_args

from pydantic import Field

from meshmark.errors import MeshmarkError, UsageError, near, quoted
from meshmark.statistics.verdicts import MARGIN
from meshmark.values.inputs import LIST, Input, checked

FOLDER: Final = Path(__file__).with_name("data")
SOURCES: Final = "sources.toml"  # file of publications by name, to which claims refer
FORMAT: Final = 1
Relation = Literal["higher", "lower", "equal", "at least", "at most", "within", "none"]
RELATIONS: Final = get_args(Relation)
Where = Literal["host", "model", "computed"]
WHERE: Final[tuple[Where, ...]] = get_args(Where)
REQUIREMENTS: Final = ("cpus", "cores", "nodes", "packages", "smt", "pages", "ranks", "peak")
_ID: Final = r"^[A-Z][0-9]{2}$"


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicationTable(Input):
    """A publication that claims cite."""

    title: str
    year: Annotated[int, Field(ge=1900, le=2100)]


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicationsFile(Input):
    """The file of publications."""

    source: dict[str, PublicationTable]


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceTable(Input):
    """The name of the publication of a claim and the place in it; `also` is a further place."""

    of: str
    place: str
    also: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The publication of a claim and the place in it."""

    title: str
    year: int
    place: str
    also: str = ""

    def __str__(self) -> str:
        further = f"; also {self.also}" if self.also else ""
        return f"{self.title} ({self.year}), {self.place}{further}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimTest:
    """One test of a claim.

    Attributes:
        where: Whether the test runs on the host, on models or by computation.
        method: Name of a method that is registered for `where`.
        on: The modelled machines; empty for tests on the host and by computation.
        needs: Requirements of the host by a name in `REQUIREMENTS`.
        parameters: Parameters of the method.
    """

    where: Where
    method: str
    on: tuple[str, ...] = ()
    needs: Mapping[str, Any] = field(default_factory=dict)
    parameters: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimTable(Input):
    """A claim in the format of its file."""

    id: Annotated[str, Field(pattern=_ID, description="a letter and two digits")]
    statement: Annotated[str, Field(min_length=10, max_length=200)]
    published: str
    source: SourceTable
    relation: Relation
    value: float = 1.0
    range: Annotated[tuple[float, ...], LIST, Field(max_length=2)] = ()
    margin: Annotated[float, Field(ge=0, le=1)] = MARGIN
    timing: bool
    printed: bool = False
    note: str = ""
    host: dict[str, Any] = field(default_factory=dict)
    model: dict[str, Any] = field(default_factory=dict)
    computed: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimsFile(Input):
    """A file of claims."""

    claims_format: Annotated[int, Field(ge=FORMAT, le=FORMAT)]
    theme: str
    letter: Annotated[str, Field(pattern=r"^[A-Z]$", description="a letter")]
    claim: Annotated[tuple[ClaimTable, ...], LIST, Field(min_length=1, description="at least one table [[claim]]")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A statement of the literature.

    Attributes:
        published: The published value as text.
        relation: Required relation of the effect to `value` (`higher`, `equal`, `at most` …); or `within` the `range`;
            or `none` if the effect must be zero.
        margin: The smallest relative difference that matters; for `none`, the largest absolute value that does not.
        timing: Whether the claim is about durations or rates, which measurements on a guest never support.
        printed: Whether the computation only repeats printed numbers and is therefore not a test.
        note: A remark for readers of the verdict; "" if not needed.
    """

    id: str
    theme: str
    statement: str
    published: str
    source: Source
    relation: Relation
    value: float
    range: tuple[float, ...]
    margin: float
    timing: bool
    printed: bool
    note: str
    tests: tuple[ClaimTest, ...]

    @property
    def half_digit(self) -> float:
        """Return half a unit of the last printed digit of the `value` in the publication; 0 if the value is exact.

        A value of 1 states equality and values without a margin are counts: both are exact.
        """
        if self.relation != "equal" or self.value == 1 or not self.margin:
            return 0.0
        return 0.5 * 10.0 ** -len(f"{self.value:f}".rstrip("0").partition(".")[2])

    @property
    def expected(self) -> str:
        """Return the required effect as text, such as `higher than 1`, `1.5` or `0.09 to 0.14`."""
        if self.relation == "none":
            return "0"
        if self.relation == "within":
            return f"{self.range[0]:g} to {self.range[1]:g}"
        word = {"higher": "higher than ", "lower": "lower than ", "equal": ""}.get(self.relation, f"{self.relation} ")
        return f"{word}{self.value:g}"


def read(folder: Path = FOLDER) -> tuple[Claim, ...]:
    """Return the claims of a folder in the order of their ids.

    Raises:
        MeshmarkError: A file is not valid; the message names the file, the claim and the field.
    """
    claim_by_id: dict[str, Claim] = {}
    publications = checked(PublicationsFile, _parsed(folder / SOURCES), SOURCES, MeshmarkError).source
    for path in sorted(folder.glob("*.toml")):
        if path.name == SOURCES:
            continue
        file = checked(ClaimsFile, _parsed(path), path.name, MeshmarkError)
        for entry in file.claim:
            if entry.id in claim_by_id or entry.id[0] != file.letter:
                problem = "occurs twice" if entry.id in claim_by_id else f"must begin with {file.letter}"
                raise MeshmarkError(f"{path.name}: claim {entry.id}: {problem}")
            if entry.source.of not in publications:
                hint = near(entry.source.of, publications)
                raise MeshmarkError(f"{path.name}: claim {entry.id}: source: found '{quoted(entry.source.of)}'", hint)
            claim_by_id[entry.id] = _claim(entry, publications[entry.source.of], file.theme, path.name)
    return tuple(claim_by_id[k] for k in sorted(claim_by_id))


def _parsed(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise MeshmarkError(f"{path.name}: {quoted(error)}") from error


def _claim(entry: ClaimTable, publication: PublicationTable, theme: str, origin: str) -> Claim:
    if (entry.relation == "within") != (len(entry.range) == 2):
        raise MeshmarkError(f"{origin}: claim {entry.id}: range: two numbers are required with within, and only there")
    if entry.relation not in {"within", "none"} and entry.value <= 0:
        raise MeshmarkError(f"{origin}: claim {entry.id}: value: found {entry.value:g}, a number above 0 is required")
    tables: dict[Where, dict[str, Any]] = {"host": entry.host, "model": entry.model, "computed": entry.computed}
    tests = []
    for where, table in tables.items():
        if not table:
            continue
        if not isinstance(table.get("method"), str) or (where == "model") != ("on" in table):
            raise MeshmarkError(f"{origin}: claim {entry.id}: {where}: method, and `on` for models, are required")
        parameters = {k: v for k, v in table.items() if k not in {"method", "on", *REQUIREMENTS}}
        needs: dict[str, Any] = {k: table[k] for k in REQUIREMENTS if k in table}
        tests.append(
            ClaimTest(
                where=where, method=table["method"], on=tuple(table.get("on", ())), needs=needs, parameters=parameters
            )
        )
    if not tests:
        raise MeshmarkError(f"{origin}: claim {entry.id}: found no test; allowed: {', '.join(WHERE)}")
    return Claim(
        id=entry.id,
        theme=theme,
        statement=entry.statement,
        published=entry.published,
        source=Source(title=publication.title, year=publication.year, place=entry.source.place, also=entry.source.also),
        relation=entry.relation,
        value=entry.value,
        range=entry.range,
        margin=entry.margin,
        timing=entry.timing,
        printed=entry.printed,
        note=entry.note,
        tests=tuple(tests),
    )


@cache
def claims() -> tuple[Claim, ...]:
    """Return the claims of the package in the order of their ids."""
    return read()


def themes() -> list[str]:
    """Return the themes in the order of their letters."""
    return list(dict.fromkeys(c.theme for c in claims()))


def chosen(ids: Collection[str], theme: str = "") -> list[Claim]:
    """Return the claims with these ids and this theme; without ids, all claims of the theme.

    Raises:
        UsageError: An id or the theme is unknown.
    """
    claim_by_id = {c.id: c for c in claims()}
    if (unknown_id := next((i for i in ids if i.upper() not in claim_by_id), None)) is not None:
        hint = near(unknown_id.upper(), claim_by_id) or "meshmark claims --list"
        raise UsageError(
            f"claims: found '{quoted(unknown_id)}'; allowed: {min(claim_by_id)} to {max(claim_by_id)}", hint
        )
    if theme and theme not in themes():
        raise UsageError(f"--theme: found '{quoted(theme)}'; allowed: {', '.join(themes())}")
    requested_ids = {i.upper() for i in ids} or {*claim_by_id}
    return [c for c in claim_by_id.values() if c.id in requested_ids and theme in {"", c.theme}]


def trials_of(claims: Sequence[Claim], on: str = "") -> list[tuple[Claim, ClaimTest, str]]:
    """Return the tests of these claims and the machine of each: a model, `host` or `computed`.

    Args:
        on: `host`, `guest`, `computed` or a modelled machine; "" for all.
    """
    tests = []
    for claim in claims:
        for test in claim.tests:
            for machine in test.on or (test.where,):
                if on == "guest" and (test.where != "host" or claim.timing):
                    continue
                if on in {"", machine, "guest"}:
                    tests.append((claim, test, machine))
    return tests
