"""Reads published numbers as records, so that they compare with the records of hosts and models.

`reference/records/NAME.toml` states for the machine `paper:NAME` which numbers of a publication have the meaning of a
Meshmark metric. The numbers stay in the file of the publication (`machine.reference`); a `[[records]]` names them:

    table       the dotted path of a table, or of an array of tables
    where       only the tables of the array with these values
    values      keys of the table; each number in them is a record
    samples     a key whose numbers are the samples of one record
    numbered    the condition that counts the numbers of `values`, from 0
    each        conditions with a value for each number of `values`
    statistic   what a single number is: `best of 10 runs`, `mean`; without it, the publication does not say
    runs        the number of runs behind a single number
    spread      a key of the table: the spread of these runs that the publication prints
    conditions  conditions of the record; `=KEY` is the value of a key of the table
    peak        the dotted path of the theoretical peak
    misprint    the `id` of the publication's `[[discrepancy]]` about the number
    unit, better  unit and direction of a metric that no instrument has

`class` names the architecture and the number of packages, for machines with which a report may compare a host.
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
from meshmark.machine.published.reference import FOLDER, Publication, PublishedNumber, publication
from meshmark.machine.tree import MachineError
from meshmark.store.record import Metric, Record

PAPER: Final = "paper:"
RECORDS: Final = FOLDER / "records"
# Keys of the provenance of a record: what its value is, the number of runs behind it, and their spread, as published.
STATISTIC: Final = "statistic"
RUNS: Final = "runs"
SPREAD: Final = "spread"
UNSTATED: Final = "not stated"


@dataclass(frozen=True, slots=True)
class Paper:
    """A machine with published numbers. `name` follows `paper:` on the command line.

    Attributes:
        architecture: Architecture such as `x86-64`; "" if reports compare the machine only on request.
        packages: Number of packages; 0 if `architecture` is "".
    """

    name: str
    title: str
    publication: Publication
    rows: Sequence[Mapping[str, Any]]
    architecture: str = ""
    packages: int = 0

    def records(self) -> list[Record]:
        """Return the numbers, one record each. The provenance states their places as printed, and misprints."""
        return [record for row in self.rows for record in _records(self, row)]


@cache
def papers(folder: Path = RECORDS) -> tuple[Paper, ...]:
    """Return the machines with published numbers, by name.

    Raises:
        MachineError: A file is not TOML, lacks a key, or names a publication that does not exist.
    """
    machines = []
    for path in sorted(folder.glob("*.toml")):
        try:
            data = tomllib.loads(path.read_text(encoding="utf-8"))
            machine_class = data.get("class", {"architecture": "", "packages": 0})
            source = publication(data["publication"])
            machines.append(
                Paper(
                    path.stem,
                    data["title"],
                    source,
                    data["records"],
                    machine_class["architecture"],
                    int(machine_class["packages"]),
                )
            )
        except (OSError, ValueError, KeyError) as error:
            raise MachineError(f"{path.name}: {error}") from None
    return tuple(machines)


def paper(name: str) -> Paper:
    """Return the machine of this name, with or without `paper:`.

    Raises:
        MachineError: No publication has numbers of this machine.
    """
    short_name = name.removeprefix(PAPER)
    papers_by_name = {p.name: p for p in papers()}
    if short_name not in papers_by_name:
        raise MachineError(
            f"{PAPER}NAME: found '{quoted(short_name)}'; allowed: {', '.join(papers_by_name)}",
            near(short_name, papers_by_name) or "meshmark list machines",
        )
    return papers_by_name[short_name]


def _records(paper: Paper, row: Mapping[str, Any]) -> Iterator[Record]:
    entries = {e.path: e for e in paper.publication.entries()}
    for path, table in _tables(paper.publication.data, row["table"], row.get("where", {})):
        keys = [row["samples"]] if "samples" in row else row["values"]
        numbers = [(entries[f"{path}.{key}"], i) for key in keys for i in range(len(entries[f"{path}.{key}"].values))]
        groups = [numbers] if "samples" in row else [[number] for number in numbers]
        for count, group in enumerate(groups):
            conditions = {k: _resolved(v, table) for k, v in row.get("conditions", {}).items()}
            if "numbered" in row:
                conditions[row["numbered"]] = count
            conditions |= {k: values[count] for k, values in row.get("each", {}).items()}
            yield _record(paper, {**row, **_spread(row, path, entries)}, group, conditions, entries)


def _spread(row: Mapping[str, Any], path: str, entries: Mapping[str, PublishedNumber]) -> Mapping[str, float]:
    """Return the printed spread of the runs behind a number, dimensionless."""
    return {"spread": entries[f"{path}.{row['spread']}"].values[0]} if "spread" in row else {}


def _record(
    paper: Paper,
    row: Mapping[str, Any],
    numbers: Sequence[tuple[PublishedNumber, int]],
    conditions: Mapping[str, Any],
    entries: Mapping[str, PublishedNumber],
) -> Record:
    entry = numbers[0][0]
    metric = (
        Metric(row["metric"], row["unit"], row["better"], "")
        if "unit" in row
        else description(row["instrument"]).metric(row["metric"])
    )
    if entry.unit != metric.unit:
        raise MachineError(
            f"{paper.name}.toml: {entry.path}: found {entry.unit or 'no unit'}; {metric.unit} is required"
        )
    provenance: dict[str, str | float] = {
        "publication": paper.publication.title,
        "place": entry.place,
        "number": entry.path,
        "start": _date(paper.publication),
    }
    if entry.qualifier:
        provenance["qualifier"] = entry.qualifier
    if entry.computed:
        provenance["origin"] = "computed"
    provenance[STATISTIC] = str(
        row.get("statistic", UNSTATED if len(numbers) == 1 else f"median of {len(numbers)} printed runs")
    )
    if (runs := row.get("runs", len(numbers) if len(numbers) > 1 else None)) is not None:
        provenance[RUNS] = runs
    if "spread" in row:
        provenance[SPREAD] = row["spread"]
    if "peak" in row:
        provenance["peak"] = entries[_indexed(row["peak"])].values[0]
    if "misprint" in row:
        provenance["misprint"] = _finding(paper.publication, row["misprint"])
    return Record.from_samples(
        metric,
        [e.values[i] for e, i in numbers],
        source="paper",
        machine=PAPER + paper.name,
        instrument=row["instrument"],
        conditions=conditions,
        provenance=provenance,
    )


def _tables(data: Mapping[str, Any], path: str, where: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the tables at a path, with their paths in the form of `PublishedNumber.path`."""
    part: Any = data
    for key in path.split("."):
        part = part[key]
    for i, table in enumerate(part if isinstance(part, list) else [part]):
        if all(table.get(k) == v for k, v in where.items()):
            yield (f"{path}[{i}]" if isinstance(part, list) else path), table


def _resolved(value: Any, table: Mapping[str, Any]) -> Any:
    return table[value[1:]] if isinstance(value, str) and value.startswith("=") else value


def _indexed(path: str) -> str:
    """Return a path in the form of `PublishedNumber.path`: `peak_bandwidth[6].x` for `peak_bandwidth.6.x`."""
    parts: list[str] = []
    for part in path.split("."):
        if part.isdigit():
            parts[-1] += f"[{part}]"
        else:
            parts.append(part)
    return ".".join(parts)


def _finding(publication: Publication, name: str) -> str:
    discrepancy = next(d for d in publication.data["discrepancy"] if d["id"] == name)
    return f"printed: {discrepancy['printed']}; found: {discrepancy['finding']}"


def _date(publication: Publication) -> str:
    """Return the month of the publication, or only its year; "" if both are unknown."""
    month = publication.data["document"].get("month")
    return (
        ""
        if publication.year is None
        else f"{publication.year}-{month:02}"
        if isinstance(month, int)
        else str(publication.year)
    )
