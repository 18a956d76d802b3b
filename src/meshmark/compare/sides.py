"""Finds the sides of a comparison: a run, a machine of the store, a model, a publication, or a file of results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from meshmark.compare.models import memory_peak, simulated
from meshmark.describe import observed_conditions
from meshmark.errors import MeshmarkError, UsageError, near, quoted
from meshmark.machine.facts import host_id, wire_bandwidth
from meshmark.machine.published.papers import PAPER, paper, papers
from meshmark.measure.importers.importing import read_output
from meshmark.measure.latest import LATEST, newest_run
from meshmark.measure.repetitions import group_key, pool, with_common_plateaus
from meshmark.measure.survey import is_survey, load_run_and_steps
from meshmark.model.machine import MachineFile, find_machine, machine_names
from meshmark.model.sweeps.sweep import SWEEP
from meshmark.store.machines import FACTS, machines
from meshmark.store.newest import first_start, newest
from meshmark.store.record import MODE_SUFFIX, Record
from meshmark.store.store import Store
from meshmark.values.paths import data_home, default_store

HOST: Final = "host"
ALL: Final = "all"  # MACHINE@all


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultSide:
    """Results of one machine.

    Attributes:
        name: As the user named it.
        what: What the name refers to, in words.
        start: Start of the newest result, ISO 8601; "" if unknown.
        records: One record per point and metric; each mode of a point has another record, see `repetitions.pool`.
        facts: Software and settings at that time, by a name in `store.machines.FACTS`; unknown values are left out.
        peak: Theoretical peak of all memory of the machine in B/s; None if it is not known.
    """

    name: str
    what: str
    machine: str
    start: str
    records: Sequence[Record]
    facts: Mapping[str, str] = field(default_factory=dict)
    peak: float | None = None

    @property
    def points(self) -> list[Record]:
        """Return the records that are not modes of others."""
        return [r for r in self.records if not r.metric.endswith(MODE_SUFFIX)]


class Sides:
    """Finds sides by name.

    Args:
        store: Runs and machines.
        runs: Folder of the runs of surveys.
        host: Name of this machine in the store.
        command: Command to which the names were passed; messages about a name start with it.
    """

    def __init__(self, store: Store, runs: Path, host: str, command: str = "compare") -> None:
        self.store, self.host = store, host
        self._runs, self._command = runs, command

    @classmethod
    def here(cls, store: Path | None, command: str = "compare") -> Sides:
        """Return an object that finds sides on this machine.

        Args:
            store: Folder of the store; None for the store of this user.
            command: See `Sides`.
        """
        return cls(Store(store or default_store()), data_home() / "runs", host_id(), command)

    def find_all(self, names: Sequence[str], instrument: str = "") -> list[ResultSide]:
        """Return the sides of several names. Models are simulated with the options that the other sides used.

        Args:
            names: Names, see `find`.
            instrument: The only instrument that models need to simulate; "": all.

        Raises:
            UsageError: One of the names does not refer to anything, or refers to results of several machines.
        """
        models = {name: self._model(name) for name in names}
        side_by_name = {name: self._recorded(name) for name, model in models.items() if model is None}
        others = [r for side in side_by_name.values() for r in side.points]
        side_by_name |= {
            name: self._simulated(name, machine_file, others, instrument)
            for name, machine_file in models.items()
            if machine_file is not None
        }
        return [side_by_name[name] for name in names]

    def find(self, name: str, others: Sequence[Record] = (), instrument: str = "") -> ResultSide:
        """Return the side of a name.

        A name is `host`, `latest`, a file, a run folder, a run, MACHINE, MACHINE@DATE, MACHINE@all, `paper:NAME`, or a
        model.

        Args:
            name: Name of the side.
            others: Results of the sides that a model is compared with.
            instrument: The only instrument that a model needs to simulate; "": all.

        Raises:
            UsageError: Nothing has this name, or it has results of several machines.
        """
        model = self._model(name)
        return self._recorded(name) if model is None else self._simulated(name, model, others, instrument)

    def _recorded(self, name: str) -> ResultSide:
        """Return the side of a name that does not refer to a model."""
        if name == LATEST:
            run = newest_run(self.store.folder, self._runs, self.host)
            return self._of_folder(name, run) if isinstance(run, Path) else replace(self.run(run), name=name)
        if name.startswith(PAPER):
            return self._of_paper(name)
        if "/" in name or Path(name).is_file() or is_survey(Path(name)):
            return self._of_path(name, Path(name))
        machine, _, date = name.partition("@")
        if (side := self._of_machine(name, self.host if machine == HOST else machine, date)) is not None:
            return side
        if rows := self.store.rows(run=name):
            return self._of_run(name, rows)
        if is_survey(self._runs / name):
            return self._of_folder(name, self._runs / name)
        if machine == HOST:
            raise UsageError(f"{self._command}: found no results of this host, {self.host}", "meshmark survey --quick")
        known_names = [HOST, *(str(row[k]) for row in self.store.runs() for k in ("run", "machine"))]
        known_names += [*machine_names(), *(PAPER + p.name for p in papers())]
        raise UsageError(
            f"{self._command}: found no file, run or machine '{quoted(name)}'",
            near(name, {*known_names}) or "meshmark list machines",
        )

    def _model(self, name: str) -> MachineFile | None:
        """Return the model of a name; None if the name refers to something else, such as a machine in the store."""
        if name.endswith(".toml") and Path(name).is_file():
            return find_machine(name)
        if name not in machine_names() or Path(name).exists() or self._has(name):
            return None
        return find_machine(name)

    def _has(self, machine: str) -> bool:
        """Return whether the store has results of the machine itself, not only of a sweep, which simulates variants."""
        query = f"SELECT 1 FROM {{rows}} AND run NOT LIKE '{SWEEP}%' LIMIT 1"
        return bool(self.store.select(query, machine=machine))

    def _simulated(self, name: str, model: MachineFile, others: Sequence[Record], instrument: str) -> ResultSide:
        description = f"model, simulated: {model.title}, {len(model.uncertain_keys())} values assumed"
        return self._side(name, description, simulated(model, others, instrument), memory_peak(model))

    def _of_paper(self, name: str) -> ResultSide:
        entry = paper(name)
        source = (
            f"{entry.publication.authors[0]}, {entry.publication.year}"
            if entry.publication.authors
            else entry.publication.year
        )
        return self._side(name, f"{entry.title}, published by {source}", entry.records())

    def run(self, name: str) -> ResultSide:
        """Return the side of a run of the store.

        Raises:
            UsageError: There is no run of this name, or it has results of several machines.
        """
        if rows := self.store.rows(run=name):
            return self._of_run(name, rows)
        raise UsageError(f"{self._command}: found no run '{quoted(name)}'", "meshmark store list")

    def _of_path(self, name: str, path: Path) -> ResultSide:
        if is_survey(path):
            return self._of_folder(name, path)
        if path.is_dir():
            raise UsageError(f"{self._command}: found no run in {quoted(path)}")
        try:
            output = read_output(path)
        except MeshmarkError as error:
            raise UsageError(str(error).replace("import:", f"{self._command}:", 1), error.hint) from error
        self._check_one_machine(name, (r for part in output.parts for r in part.records))
        rows = [(part.run, part.step, r) for part in output.parts for r in part.records]
        description = f"file {path.name}"
        if output.left_out:
            description += f", left out {output.left_out_count}: {quoted(output.left_out[0])}"
        return self._side(name, description, latest(_by_run(rows)))

    def _of_folder(self, name: str, folder: Path) -> ResultSide:
        (_, _, info), steps = load_run_and_steps(folder)
        rows = [(info.run_id, step, record) for step, record in steps]
        return self._side(name, f"run {info.run_id}", _pooled(rows))

    def _of_run(self, name: str, rows: Sequence[tuple[str, str, Record]]) -> ResultSide:
        self._check_one_machine(name, (r for _, _, r in rows))
        return self._side(name, f"run {name}", _pooled(rows))

    def _of_machine(self, name: str, machine: str, when: str) -> ResultSide | None:
        """Return the side of a machine; None if the store has no results of it."""
        if when == ALL:
            runs = _by_run(self.store.rows(machine=machine))
            description = f"all of {_runs(len(runs))}"
            return self._side(name, description, pool([_points(run) for run in runs])) if runs else None
        results = newest(self.store, machine, when, observed_conditions())
        if results.rows:
            period = f" until {when}" if when else ""
            description = f"newest result of each point, of {_runs(results.runs)}{period}"
            return self._side(name, description, latest(_by_run(results.rows)))
        if when and (first := first_start(self.store, machine)):
            raise UsageError(
                f"{self._command}: found no result up to '{when}' in {quoted(name)}; the first is of {first[:10]}"
            )
        return None

    def _check_one_machine(self, name: str, records: Iterable[Record]) -> None:
        if len(machine_ids := sorted({r.machine for r in records})) > 1:
            raise UsageError(
                f"{self._command}: {quoted(name)}: found results of {len(machine_ids)} machines "
                f"({', '.join(machine_ids[:4])}), one is allowed",
                "import a file with: meshmark store import FILE; then compare the machines by name",
            )

    def _side(self, name: str, what: str, records: Sequence[Record], peak: float | None = None) -> ResultSide:
        if not records:
            raise UsageError(f"{self._command}: found no result in {quoted(name)}")
        machine, start = records[0].machine, max(str(r.provenance.get("start", "")) for r in records)
        earlier_rows = [row for row in machines(self.store, machine) if row["seen"] <= start]
        facts = {k: v for k, v in earlier_rows[-1].items() if k in FACTS} if earlier_rows else {}
        if peak is None and machine == self.host:
            peak = wire_bandwidth()
        return ResultSide(name=name, what=what, machine=machine, start=start, records=records, facts=facts, peak=peak)


def latest(runs: Sequence[Sequence[Record]]) -> list[Record]:
    """Return the newest result of each point, with its modes.

    Args:
        runs: Results of each run, oldest first, with its repetitions pooled.
    """
    if len(runs) == 1:
        return with_common_plateaus(runs)[0]
    newest: dict[tuple[Any, ...], list[Record]] = {}
    for run in with_common_plateaus(runs):
        run_points: dict[tuple[Any, ...], list[Record]] = {}
        for r in run:
            run_points.setdefault(_of_point(r), []).append(r)
        newest |= run_points
    return [r for records in newest.values() for r in records]


def _of_point(record: Record) -> tuple[Any, ...]:
    """Return the key of a point and metric, which its modes share."""
    metric = record.metric.removesuffix(MODE_SUFFIX)
    return group_key(record if metric == record.metric else replace(record, metric=metric))


def _pooled(rows: Sequence[tuple[str, str, Record]]) -> list[Record]:
    """Return the results of one run, with its repetitions pooled; each repetition is a step."""
    steps: dict[str, list[Record]] = {}
    for _, step, record in rows:
        steps.setdefault(step, []).append(record)
    return pool([*steps.values()])


def _points(run: Sequence[Record]) -> list[Record]:
    return [r for r in run if not r.metric.endswith(MODE_SUFFIX)]


def _by_run(rows: Sequence[tuple[str, str, Record]]) -> list[list[Record]]:
    """Return the results of each run, with its repetitions pooled, oldest run first."""
    runs: dict[str, list[tuple[str, str, Record]]] = {}
    for row in rows:
        runs.setdefault(row[0], []).append(row)
    return sorted(map(_pooled, runs.values()), key=_start)


def _start(run: Sequence[Record]) -> str:
    return max(str(r.provenance.get("start", "")) for r in run)


def _runs(count: int) -> str:
    return f"{count} run{'s' * (count != 1)}"
