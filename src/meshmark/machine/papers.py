"""Published numbers as records, so that they compare with those of hosts and models.

`reference/records/NAME.toml` says for the machine `paper:NAME` which numbers of a publication have the meaning of a
metric of ours. The numbers stay in the publication's own file (`machine.reference`); a `[[records]]` names them:

    table       the dotted path of a table, or of an array of tables
    where       only the tables of the array with these values
    values      keys of the table; each number in them is a record
    samples     a key whose numbers are the samples of one record
    numbered    the condition that counts the numbers of `values`, from 0
    each        conditions with a value for each number of `values`
    statistic   what a single number is: `best of 10 runs`, `mean`; without it, the publication does not say
    runs        the number of runs behind a single number
    spread      a key of the table: the spread of these runs that the publication prints
    conditions  of the record; `=KEY` is the value of a key of the table
    peak        the dotted path of the theoretical peak
    misprint    the `id` of the publication's `[[discrepancy]]` about the number
    unit, better  of a metric that none of our instruments has

`class` names the architecture and the number of packages, for machines that a report may put beside a host.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from meshmark.describe import description
from meshmark.errors import near, quoted
from meshmark.machine.reference import FOLDER, Entry, Publication, publication
from meshmark.machine.tree import MachineError
from meshmark.store.record import Metric, Record

PAPER: Final = "paper:"
RECORDS: Final = FOLDER / "records"
# In the provenance of a record: what its value is, the number of runs behind it, and their spread, all as published.
STATISTIC: Final = "statistic"
RUNS: Final = "runs"
SPREAD: Final = "spread"
UNSTATED: Final = "not stated"


@dataclass(frozen=True, slots=True)
class Paper:
    """A machine of which a publication gives numbers. `name` follows `paper:` on the command line.

    Attributes:
        architecture: Such as `x86-64`; "" if the machine is not to be put beside others unasked.
        packages: Number of packages; 0 like `architecture`.
    """

    name: str
    title: str
    publication: Publication
    rows: Sequence[Mapping[str, Any]]
    architecture: str = ""
    packages: int = 0

    def records(self) -> list[Record]:
        """Its numbers, one record each; the provenance has their place, as printed, and what is wrong with them."""
        return [record for row in self.rows for record in _records(self, row)]


@cache
def papers(folder: Path = RECORDS) -> tuple[Paper, ...]:
    """The machines with published numbers, by name.

    Raises:
        MachineError: A file is not TOML, lacks a key, or names a publication that does not exist.
    """
    found = []
    for path in sorted(folder.glob("*.toml")):
        try:
            data = tomllib.loads(path.read_text(encoding="utf-8"))
            of = data.get("class", {"architecture": "", "packages": 0})
            which = publication(data["publication"])
            found.append(
                Paper(path.stem, data["title"], which, data["records"], of["architecture"], int(of["packages"]))
            )
        except (OSError, ValueError, KeyError) as why:
            raise MachineError(f"{path.name}: {why}") from None
    return tuple(found)


def paper(name: str) -> Paper:
    """The machine of this name, with or without `paper:`.

    Raises:
        MachineError: No publication gives numbers of it.
    """
    wanted = name.removeprefix(PAPER)
    known = {p.name: p for p in papers()}
    if wanted not in known:
        raise MachineError(
            f"{PAPER}NAME: found '{quoted(wanted)}'; allowed: {', '.join(known)}",
            near(wanted, known) or "meshmark list machines",
        )
    return known[wanted]


def _records(of: Paper, row: Mapping[str, Any]) -> Iterator[Record]:
    entries = {e.path: e for e in of.publication.entries()}
    for path, table in _tables(of.publication.data, row["table"], row.get("where", {})):
        keys = [row["samples"]] if "samples" in row else row["values"]
        numbers = [(entries[f"{path}.{key}"], i) for key in keys for i in range(len(entries[f"{path}.{key}"].values))]
        groups = [numbers] if "samples" in row else [[one] for one in numbers]
        for count, group in enumerate(groups):
            conditions = {k: _resolved(v, table) for k, v in row.get("conditions", {}).items()}
            if "numbered" in row:
                conditions[row["numbered"]] = count
            conditions |= {k: listed[count] for k, listed in row.get("each", {}).items()}
            yield _record(of, {**row, **_spread(row, path, entries)}, group, conditions, entries)


def _spread(row: Mapping[str, Any], path: str, entries: Mapping[str, Entry]) -> Mapping[str, float]:
    """The printed spread of the runs behind a number, dimensionless."""
    return {"spread": entries[f"{path}.{row['spread']}"].values[0]} if "spread" in row else {}


def _record(
    of: Paper,
    row: Mapping[str, Any],
    numbers: Sequence[tuple[Entry, int]],
    conditions: Mapping[str, Any],
    entries: Mapping[str, Entry],
) -> Record:
    entry = numbers[0][0]
    metric = (
        Metric(row["metric"], row["unit"], row["better"], "")
        if "unit" in row
        else description(row["instrument"]).metric(row["metric"])
    )
    if entry.unit != metric.unit:
        raise MachineError(f"{of.name}.toml: {entry.path}: found {entry.unit or 'no unit'}; {metric.unit} is required")
    about: dict[str, str | float] = {
        "publication": of.publication.title,
        "place": entry.place,
        "number": entry.path,
        "start": _date(of.publication),
    }
    if entry.qualifier:
        about["qualifier"] = entry.qualifier
    if entry.computed:
        about["origin"] = "computed"
    about[STATISTIC] = str(
        row.get("statistic", UNSTATED if len(numbers) == 1 else f"median of {len(numbers)} printed runs")
    )
    if (runs := row.get("runs", len(numbers) if len(numbers) > 1 else None)) is not None:
        about[RUNS] = runs
    if "spread" in row:
        about[SPREAD] = row["spread"]
    if "peak" in row:
        about["peak"] = entries[_indexed(row["peak"])].values[0]
    if "misprint" in row:
        about["misprint"] = _finding(of.publication, row["misprint"])
    return Record.of(
        metric,
        [e.values[i] for e, i in numbers],
        source="paper",
        machine=PAPER + of.name,
        instrument=row["instrument"],
        conditions=conditions,
        provenance=about,
    )


def _tables(data: Mapping[str, Any], path: str, where: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The tables at a path, with their paths as entries have them."""
    at: Any = data
    for key in path.split("."):
        at = at[key]
    for i, one in enumerate(at if isinstance(at, list) else [at]):
        if all(one.get(k) == v for k, v in where.items()):
            yield (f"{path}[{i}]" if isinstance(at, list) else path), one


def _resolved(value: Any, table: Mapping[str, Any]) -> Any:
    return table[value[1:]] if isinstance(value, str) and value.startswith("=") else value


def _indexed(path: str) -> str:
    """`peak_bandwidth.6.x` as entries write it, `peak_bandwidth[6].x`."""
    parts: list[str] = []
    for part in path.split("."):
        if part.isdigit():
            parts[-1] += f"[{part}]"
        else:
            parts.append(part)
    return ".".join(parts)


def _finding(of: Publication, name: str) -> str:
    found = next(d for d in of.data["discrepancy"] if d["id"] == name)
    return f"printed: {found['printed']}; found: {found['finding']}"


def _date(of: Publication) -> str:
    """The month of the publication, or its year, as far as it is known."""
    month = of.data["document"].get("month")
    return "" if of.year is None else f"{of.year}-{month:02}" if isinstance(month, int) else str(of.year)
