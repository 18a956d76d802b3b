"""Reads the publications that ship with the package: numbers with their units and their places in the documents.

Conventions of the files: a key ends with its unit (`_ns`, `_gb_per_s`, `_percent` …), `source.place` is the place in
the document, and `origin = "computed"` marks numbers that were derived rather than printed.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from meshmark.machine.tree import MachineError

FOLDER = Path(__file__).parent / "reference"
_FACTS = "machine_facts.toml"

# Suffix of a key, SI unit, and factor. The longest suffix is first, since `_mb_per_s` ends in `_s`.
_SUFFIXES: tuple[tuple[str, str, float], ...] = tuple(
    sorted(
        (
            ("_gb_per_s", "B/s", 1e9),
            ("_mb_per_s", "B/s", 1e6),
            ("_gflop_per_s", "flop/s", 1e9),
            ("_mflop_per_s", "flop/s", 1e6),
            ("_tflop_per_s", "flop/s", 1e12),
            ("_ns", "s", 1e-9),
            ("_us", "s", 1e-6),
            ("_ms", "s", 1e-3),
            ("_s", "s", 1.0),
            ("_h", "s", 3600.0),
            ("_mhz", "Hz", 1e6),
            ("_ghz", "Hz", 1e9),
            ("_kib", "B", 1024.0),
            ("_mib", "B", 1024.0**2),
            ("_gib", "B", 1024.0**3),
            ("_tib", "B", 1024.0**4),
            ("_bytes", "B", 1.0),
            ("_percent", "1", 0.01),
            ("_ratio", "1", 1.0),
        ),
        key=lambda s: -len(s[0]),
    )
)


class PrintedNumber(float):
    """A number of a file, with half a unit of its last printed digit: 0.05 for 11.5, and 0.005 for 11.50."""

    half_digit: float

    @staticmethod
    def parse(text: str) -> PrintedNumber:
        """Parse a number as TOML writes it. The exponent counts: 1.5e3 was rounded to 100."""
        number = PrintedNumber(text)
        digits, _, exponent = text.replace("_", "").lower().partition("e")
        decimals = len(digits.partition(".")[2])
        number.half_digit = 0.5 * 10.0 ** (int(exponent or 0) - decimals)
        return number


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedNumber:
    """One number of a publication.

    `path` is its dotted path in the file, `printed` is the number in the unit of the key, and `values` is the number
    in `unit` (SI; 1 for ratios and shares). A range or a row has several values. `unit` is "" if the key has no known
    unit (counts, cycles, `_kb`, bits); `values` are then as printed. `half_digits` are half units of the last printed
    digits, in the unit of the key: rounding changed a number by at most this much. Counts and computed numbers are
    exact.
    `compares` has the metric, subject and baseline of a number that compares two machines; otherwise it is empty.
    """

    path: str
    printed: tuple[float, ...]
    half_digits: tuple[float, ...]
    values: tuple[float, ...]
    unit: str
    place: str
    qualifier: str
    computed: bool
    compares: Mapping[str, str]

    @property
    def comparison(self) -> str:
        """Return the comparison, such as "STREAM Triad bandwidth: GS1280 against GS320"; "" if `compares` is empty."""
        if not self.compares:
            return ""
        return f"{self.compares['metric']}: {self.compares['subject']} against {self.compares['baseline']}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """A text of a publication's file, which describes a number or states a fact without a number."""

    path: str
    text: str
    place: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """One document, with its parsed file."""

    name: str  # name of the file; `paper:NAME` on the command line
    title: str
    authors: tuple[str, ...]
    year: int | None
    kind: str
    data: Mapping[str, Any]

    def entries(self) -> Iterator[PublishedNumber]:
        """Return every number outside `[document]`, in the order of the file."""
        return (part for part in self.content() if isinstance(part, PublishedNumber))

    def content(self) -> Iterator[PublishedNumber | Text]:
        """Yield every number and text outside `[document]`, in the order of the file."""
        for key, value in self.data.items():
            if key not in {"document", "reference_format"}:
                yield from _content(key, value, {})


_COMPARES: Final = ("metric", "subject", "baseline")  # keys of a table that compares two machines
_ABOUT: Final = frozenset({"source", "origin"})  # keys that describe the numbers of a table; fields of entries


def _content(path: str, value: object, around: Mapping[str, Any]) -> Iterator[PublishedNumber | Text]:
    key = path.rsplit(".", 1)[-1]
    if isinstance(value, dict):
        inner = {**around, **{k: value[k] for k in ("source", "origin") if k in value}}
        inner["qualifiers"] = {k: v for k, v in value.items() if k.endswith("qualifier")}
        inner["compares"] = {k: str(value[k]) for k in _COMPARES} if all(k in value for k in _COMPARES) else {}
        for name, part in value.items():
            if name not in _ABOUT and not _qualifies(name, value):
                yield from _content(f"{path}.{name}", part, inner)
    elif isinstance(value, list) and any(isinstance(v, dict) for v in value):
        for i, part in enumerate(value):
            yield from _content(f"{path}[{i}]", part, around)
    else:
        items = value if isinstance(value, list) else [value]
        numbers = [float(v) for v in items if isinstance(v, int | float) and not isinstance(v, bool)]
        source, qualifiers = around.get("source", {}), around.get("qualifiers", {})
        place = str(source.get("place", "")) if isinstance(source, dict) else ""
        if not numbers or len(numbers) != len(items):
            yield Text(path=path, text="; ".join(_shown(v) for v in items), place=place)
            return
        suffix, unit, factor = next(((s, u, f) for s, u, f in _SUFFIXES if key.endswith(s)), ("", "", 1.0))
        qualifier = qualifiers.get(f"{key}_qualifier") or qualifiers.get(f"{key.removesuffix(suffix)}_qualifier")
        computed = around.get("origin") == "computed"
        exact = computed or not unit
        yield PublishedNumber(
            path=path,
            printed=tuple(numbers),
            half_digits=tuple(0.0 if exact else getattr(v, "half_digit", 0.5) for v in items),
            values=tuple(v * factor for v in numbers),
            unit=unit,
            place=place,
            qualifier=str(qualifier or (unit and qualifiers.get("qualifier")) or ""),  # a count of CPUs is exact
            computed=computed,
            compares=around.get("compares", {}) if unit else {},
        )


def _qualifies(name: str, table: Mapping[str, Any]) -> bool:
    """Return whether a key of a table is the qualifier of one of its numbers, and is shown with that number."""
    if not name.endswith("qualifier"):
        return False
    stem = name.removesuffix("qualifier").removesuffix("_")
    numbers = [k for k, v in table.items() if isinstance(v, int | float | list)]
    return any(stem in {"", key, *(key.removesuffix(s) for s, _, _ in _SUFFIXES)} for key in numbers)


def _shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@cache
def publications(folder: Path = FOLDER) -> tuple[Publication, ...]:
    """Return the publications in a folder, by name.

    Raises:
        MachineError: A file is not TOML, is not of format 1, or has no `[document]`.
    """
    all_publications = []
    for path in sorted(folder.glob("*.toml")):
        try:
            data = tomllib.loads(path.read_text(encoding="utf-8"), parse_float=PrintedNumber.parse)
        except (OSError, ValueError) as error:
            raise MachineError(f"{path.name}: {error}") from None
        if path.name == _FACTS:
            continue
        if data.get("reference_format") != 1:
            raise MachineError(f"{path.name}: reference_format: found {data.get('reference_format')!r}; allowed: 1")
        document = data.get("document", {})
        if not isinstance(document, dict) or not document.get("title"):
            raise MachineError(f"{path.name}: document: title: found nothing, a text is needed")
        all_publications.append(
            Publication(
                name=path.stem,
                title=str(document["title"]),
                authors=tuple(str(a) for a in document.get("authors", [])),
                year=document["year"] if isinstance(document.get("year"), int) else None,
                kind=str(document.get("kind", "")),
                data=data,
            )
        )
    return tuple(all_publications)


def publication(name: str) -> Publication:
    """Return the publication of this name, with or without `paper:`.

    Raises:
        MachineError: The publication is unknown.
    """
    short_name = name.removeprefix("paper:")
    match = next((p for p in publications() if p.name == short_name), None)
    if match is None:
        names = ", ".join(p.name for p in publications())
        raise MachineError(f"publication: found '{short_name}'; allowed: {names}", "meshmark list machines")
    return match


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFact:
    """One number for a machine model. `value` is in `unit`, as written; None if `origin` is `unknown`."""

    machine: str
    component: str
    key: str
    value: object
    unit: str
    origin: str  # publication, excerpt, derived or unknown
    source: str
    note: str


@cache
def machine_facts(folder: Path = FOLDER) -> tuple[ModelFact, ...]:
    """Return the facts on which machine models are based.

    Raises:
        MachineError: The file is missing or malformed.
    """
    return tuple(
        ModelFact(
            machine=str(row.get("machine", "")),
            component=str(row.get("component", "")),
            key=str(row.get("key", "")),
            value=None if row.get("origin") == "unknown" else row.get("value"),
            unit=str(row.get("unit", "")),
            origin=str(row.get("origin", "")),
            source=str(row.get("source", "")),
            note=str(row.get("note", "")),
        )
        for row in _facts_table("fact", folder)
    )


def model_claims(folder: Path = FOLDER) -> tuple[Mapping[str, Any], ...]:
    """Return the statements against which a model can be checked.

    Keys: id, document, place, quantity, value, unit, tolerance, role.
    """
    return _facts_table("claim", folder)


@cache
def _facts_table(name: str, folder: Path) -> tuple[Mapping[str, Any], ...]:
    try:
        with (folder / _FACTS).open("rb") as file:
            rows = tomllib.load(file).get(name, [])
    except (OSError, ValueError) as error:
        raise MachineError(f"{_FACTS}: {error}") from None
    return tuple(r for r in rows if isinstance(r, dict))
