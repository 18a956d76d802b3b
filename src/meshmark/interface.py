"""The Python interface: what the commands do, with tables in place of printed output. `import meshmark` offers it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from meshmark.errors import UsageError, quoted
from meshmark.results import Comparison, Fit, Recording
from meshmark.table import Table, as_records, texts
from meshmark.values.arguments import checked

if TYPE_CHECKING:
    from meshmark.compare.sides import ResultSide
    from meshmark.describe import Description
    from meshmark.model.machine import MachineFile
    from meshmark.store.record import Record
    from meshmark.store.run import Absence

Folder = str | os.PathLike[str]
Store = Folder | Literal[False] | None | Sequence[Folder]
_SET_BY_THE_RUN: Final = ("machine", "resume")


@checked
def records(
    *,
    machine: str = "",
    run: str = "",
    instrument: str = "",
    metric: str = "",
    since: str = "",
    until: str = "",
    store: Folder | None = None,
) -> Table:
    """Return records of the store, as ``meshmark store export`` selects them.

    Args:
        machine: Only this machine; ``host`` is this one.
        run: Only this run.
        instrument: Only this instrument.
        metric: Only this metric.
        since: Only what began at this time or later, ISO 8601, such as ``2026-11`` or ``2026-11-25T08``.
        until: Only what began up to this time.
        store: Folder of the store; None: the user's.

    Returns:
        One row per stored record, in the order of the store; repetitions are rows of their own, which
        `Table.pooled` joins. Files that cannot be read are named in its notes.

    Raises:
        UsageError: A text is not a date, or the store, run, machine, instrument or metric does not exist.
        StoreError: The folder is no store.

    Example:
        >>> t = mm.records(machine="host", instrument="latency", since="2026-11")
    """
    from meshmark.machine.facts import host_id
    from meshmark.measure.selection import check_selection
    from meshmark.store.export import check_date, started_between
    from meshmark.store.store import Store as Kept
    from meshmark.values.paths import default_store

    check_date("since", since)
    check_date("until", until)
    if store is not None and not Path(store).exists():
        raise UsageError(f"store: {quoted(store)}: No such file or directory")
    opened_store = Kept(Path(store) if store is not None else default_store())
    equal = {"machine": host_id() if machine == "host" else machine, "run": run}
    equal |= {"instrument": instrument, "metric": metric}
    filters = {column: name for column, name in equal.items() if name}
    rows = opened_store.converted(lambda row: row if started_between(row, since, until) else None, **filters)
    if not rows:
        check_selection(opened_store, filters)
    broken = [f"warning: {path.name} was skipped: {reason}" for path, reason in opened_store.broken.items()]
    return Table(None, rows, broken)


@checked
def measure(
    instrument: str,
    *,
    on: str | Model = "host",
    store: Store = None,
    repetitions: int = 0,
    settings: Mapping[str, object] | None = None,
    **options: object,
) -> Table:
    """Run one instrument on this host or on a model, as ``meshmark measure`` does.

    Args:
        instrument: See ``meshmark list instruments``.
        on: ``host``, the name or file of a modelled machine, or a `Model`.
        store: Folder of the store; None: the user's; False: nothing is stored. For ``bandwidth``, ``ordinary`` and
            ``streaming`` are its option ``--store``; a list of both is possible.
        repetitions: Fresh processes, which share the budget; 0: three, or one if each had less than 1 s.
        settings: Overrides values of a modelled machine, as ``--set`` does.
        options: Options of the instrument, without dashes: ``memory_node=0`` is ``--memory-node 0``,
            ``kernel=["copy", "triad"]`` is ``--kernel copy,triad``, and ``True`` sets a flag.

    Returns:
        The records, with repetitions pooled. What could not be measured, and what limits the results, is in the notes.

    Raises:
        UsageError: The instrument, an option or a value is not valid.
        AbsentError: Nothing could be measured; the message is the reason.
        MeshmarkError: The instrument failed. A stored measurement that failed after some points, or was interrupted,
            can be resumed by ``meshmark measure --resume``.

    Example:
        >>> mm.measure("bandwidth", threads=2, footprint="1GiB", budget="2s")
    """
    from meshmark.describe import description

    d = description(instrument)
    if isinstance(on, str) and on != "host":
        on = Model(_machine(on, settings), on, settings)
    elif settings:
        raise UsageError("settings: found with a host or a Model; allowed with the name of a modelled machine")
    if isinstance(on, Model):
        if repetitions:
            raise UsageError(
                "repetitions: found with a model, allowed on the host only: a model repeats itself exactly"
            )
        return on.measure(instrument, store=store, **options)
    kinds, folder = _store(d, store)
    return _on_host(d, [*_arguments(d, options), *kinds], repetitions, folder)


@checked
def model(name: Folder, settings: Mapping[str, object] | None = None, /, **more: object) -> Model:
    """Return a modelled machine.

    Args:
        name: See ``meshmark model list``, or the path of a machine file.
        settings: Overrides values, as ``--set`` does: ``{"placement.striping": "pair"}``.
        more: The same, with two underscores in place of a dot: ``placement__striping="pair"``.

    Raises:
        UsageError: The machine or a key is unknown, or a value is not valid.

    Example:
        >>> mm.model("gs1280-16", links__bandwidth=3.0).measure("loaded", threads="all")
    """
    all_settings = {**(settings or {}), **{key.replace("__", "."): value for key, value in more.items()}}
    return Model(_machine(name, all_settings), os.fspath(name), all_settings)


class Model:
    """A modelled machine, which instruments measure by simulation. `meshmark.model` makes one.

    Attributes:
        name: Of its file.
        label: The name with its settings, the ``machine`` of its records.
        title: One line about it.
    """

    def __init__(self, machine: MachineFile, named: str, settings: Mapping[str, object] | None = None) -> None:
        self._machine, self._named, self._settings = machine, named, _assignments(settings)
        self.name, self.label, self.title = machine.name, machine.label, machine.title

    @property
    def values(self) -> Table:
        """Return the values of its file: key, value, origin (published, derived, fitted, assumed, unknown), source."""
        rows = [
            {"key": key, "value": _at(self._machine.data, key), "origin": origin.kind, "of": origin.text}
            for key, origin in sorted(self._machine.origins.items())
        ]
        rows += [
            {"key": k, "value": None, "origin": "unknown", "of": source}
            for k, source in sorted(self._machine.unknown.items())
        ]
        return Table.of_rows(rows)

    @property
    def figures(self) -> Table:
        """Return key figures in closed form: name, value in ``unit``, and how it was found."""
        from meshmark.model.sweeps.figures import figures

        key_figures = figures(self._machine, simulate=False)
        return Table.of_rows([{"figure": f.name, "value": f.value, "unit": f.unit, "by": f.how} for f in key_figures])

    @checked
    def measure(self, instrument: str, *, store: Store = None, **options: object) -> Table:
        """Run an instrument, or a workload of ``meshmark model measure``, by simulation.

        Args:
            instrument: An instrument that models support, or ``hot_spot``, ``random_reads``, ``throughput`` …
            store: Folder of the store; None: the user's; False: nothing is stored.
            options: Options of the instrument or the workload, as for `meshmark.measure`.

        Raises:
            UsageError: The instrument or an option is not valid.
            AbsentError: The machine file lacks values that the instrument needs.
        """
        from meshmark.describe import description
        from meshmark.measure.single import absent_lines
        from meshmark.model.patterns import PATTERNS
        from meshmark.model.published import misses
        from meshmark.model.single import assumptions, keep
        from meshmark.model.single import measure as simulated

        absences: list[Absence] = []
        if instrument in PATTERNS:
            results, folder = self._workload(instrument, options), _folder(store)
        else:
            d = description(instrument)
            kinds, folder = _store(d, store)
            argv = [*_arguments(d, options), *kinds]
            words = iter(argv)
            pairs = {p.word: "true" if p.kind == "flag" else next(words) for p in map(d.parameter, words)}
            changed = [word for setting in self._settings for word in ("--set", setting)]
            command = [instrument, "--on", self._named, *changed, *argv]
            results = simulated(instrument, self._machine, pairs, command, on_absence=absences.append)
        keep(folder, results, instrument)
        note = assumptions(self._machine)
        lines = [*absent_lines(absences), *misses(results), *([note] if note else [])]
        return Table(None, [("", "", r) for r in results], lines)

    def _workload(self, workload: str, options: Mapping[str, object]) -> list[Record]:
        from meshmark.model.patterns import PatternRequest, run_pattern

        allowed = {f.name for f in fields(PatternRequest)} - {"workload", "window_ns"}
        for key in options:
            if key not in allowed:
                raise UsageError(f"{workload}: found '{quoted(key)}'; allowed: {', '.join(sorted(allowed))}")
        arguments: dict[str, Any] = {
            k: v if isinstance(v, bool | float | Path) else ",".join(texts(v)) for k, v in options.items()
        }
        command = " ".join(["model measure", workload, self._named, *(f"--{k} {v}" for k, v in arguments.items())])
        return run_pattern(self._machine, PatternRequest(workload, **arguments), command)[0]

    @checked
    def sweep(
        self,
        vary: Mapping[str, Sequence[object] | str],
        instrument: str = "loaded",
        *,
        store: Store = None,
        **options: object,
    ) -> Table:
        """Measure with each combination of values, as ``meshmark model sweep`` does, on all CPUs of this host.

        Args:
            vary: Values of each key, a list or a range such as ``1.5..6/4``. Each key becomes a column.
            instrument: Run at each point.
            store: Folder of the store; None: the user's; False: nothing is stored.
            options: Options of the instrument.

        Raises:
            UsageError: A key, a range or an option is not valid; nothing has been simulated then.
        """
        from meshmark.model.sweeps.sweep import run_sweep

        axes = [f"{key}={','.join(texts(values))}" for key, values in vary.items()]
        texts_by_option = {key: ",".join(texts(value)) for key, value in options.items()}
        notes: list[str] = []
        results = run_sweep(self._machine, axes, instrument, texts_by_option, _folder(store), False, None, notes.append)
        return Table(None, [("", "", r) for r in results], notes)

    def __repr__(self) -> str:
        return f"<meshmark.Model: {self.label}, {self.title}>"

    def html(self) -> str:
        """Return its mesh and key figures as HTML with its own style, as notebooks show them."""
        from meshmark.model.single import assumptions
        from meshmark.model.sweeps.figures import figures
        from meshmark.views.pages.notebook import machine_html

        figure_rows = [(f.name, f.shown(), f.how) for f in figures(self._machine, simulate=False)]
        note = assumptions(self._machine)
        return machine_html(self._machine, figure_rows, [note] if note else [])

    _repr_html_ = html


@checked
def fit(what: Table | Folder = "latest", out: Folder | None = None, name: str = "") -> Fit:
    """Fit a machine file to the survey of a host, as ``meshmark model fit`` does.

    Args:
        what: Folder or name of a survey, ``latest``, or a table with the records of latency, bandwidth and loaded
            latency of this host.
        out: Machine file to write; None: none is written.
        name: Of the model; "": that of the file or the host.

    Returns:
        The points, fitted and predicted, and the text of the file.

    Raises:
        UsageError: There is no such survey.
        AbsentError: A value is missing that the fit needs; the message names it.
    """
    from meshmark.machine.facts import host_id
    from meshmark.machine.sources import from_sysfs
    from meshmark.measure.survey import find_run, load_run
    from meshmark.model.fitting.fit import fit as fitted
    from meshmark.model.fitting.fit import shape_of
    from meshmark.store.files import write_file
    from meshmark.values.paths import data_home

    if isinstance(what, Table):
        fit_records = as_records(what, "fit").records
        machine, host = host_id(), {"topology": from_sysfs().to_dict()}
    else:
        fit_records, _, info = load_run(find_run(os.fspath(what), data_home() / "runs"))
        machine, host = info.machine, dict(info.host)
    model_name = name or (Path(out).stem if out is not None else machine) or "host"
    with tempfile.TemporaryDirectory(prefix="meshmark-") as folder:
        fitted_model = fitted(fit_records, model_name, *shape_of(host), Path(folder))
    if out is not None:
        write_file(Path(out), fitted_model.text.encode())
    return Fit(fitted_model)


@checked
def compare(
    a: str | Table,
    b: str | Table,
    *,
    margin: float | str = 0.02,
    per: str = "",
    instrument: str = "",
    metric: str = "",
    store: Folder | None = None,
) -> Comparison:
    """Set the results of B beside the results of A, as ``meshmark compare`` does.

    Args:
        a: A side as on the command line (``host@2026-10``, ``latest``, a machine, a run, a file), or a table of the
            records of one machine, whose repetitions are pooled.
        b: The same.
        margin: The smallest relative difference that matters: 0.02, or ``"2%"``.
        per: ``thread``: rates per thread; ``clock``: times in clock cycles, rates per cycle.
        instrument: Only this instrument.
        metric: Only this metric.
        store: Folder of the store; None: the user's.

    Raises:
        UsageError: A side does not exist or has several machines, or the sides have nothing in common.

    Example:
        >>> mm.compare("host@2026-10", "host", margin="5%").pairs.where(verdict="slower")
    """
    from meshmark.compare.join import compare as joined
    from meshmark.compare.normalise import PER
    from meshmark.compare.sides import Sides

    per_kind = next((p for p in ("", *PER) if p == per), None)
    if per_kind is None:
        raise UsageError(f"per: found '{quoted(per)}'; allowed: {', '.join(PER)}")
    find = Sides.here(Path(store) if store is not None else None)
    named_sides = iter(find.find_all([s for s in (a, b) if isinstance(s, str)], instrument))
    side_a, side_b = (next(named_sides) if isinstance(s, str) else _side(n, s) for n, s in (("a", a), ("b", b)))
    comparison = joined(
        side_a, side_b, margin=_share("margin", margin), per=per_kind, instrument=instrument, metric=metric
    )
    return Comparison(comparison)


@checked
def chart(what: Table, name: str = "") -> Any:
    """Return a chart of records as the report draws it. Bands and whiskers are 95 % intervals, flagged marks hollow.

    Args:
        what: A table of records.
        name: That of a section of the report, such as ``latency``; "": the first that the records give.

    Returns:
        An ``altair`` chart, which can be changed further.

    Raises:
        UsageError: There is no chart of this name, or the table has no records.
        AbsentError: The records do not give it.
    """
    return as_records(what, "chart").chart(name)


@checked
def recording(path: Folder) -> Recording:
    """Return a recording of ``meshmark record``, complete or interrupted (``NAME.part``).

    Raises:
        RecordingError: The file is not a recording, or is corrupt.
    """
    from meshmark.watch.recording import RecordingFile

    file = RecordingFile(Path(path))
    return Recording(file.header, file.frames())


@checked
def watch(
    *, duration: float | str = 10.0, rate: float = 1.0, full_scale: str = "sustained", canary: bool = True
) -> Recording:
    """Watch this machine for a time. Frames arrive while they are iterated over; a table waits for the last.

    Args:
        duration: In s, or a time such as ``"5m"``; at most a day.
        rate: Frames per second, 0.01 to 100.
        full_scale: Memory bandwidth that counts as 1: ``sustained`` (of a survey, if there is one), ``theoretical``.
        canary: Probe memory contention with a few loads per second, if it is calibrated.

    Raises:
        UsageError: A value is not valid.
        MeshmarkError: The sampler does not start.

    Example:
        >>> mm.watch(duration="5s", rate=2).table().where(metric="cpu.busy").to_pandas()
    """
    from meshmark.values.grammar import seconds
    from meshmark.watch.live import sample_this_host

    duration_s = seconds("duration", str(duration), 0.01, 86400.0)
    if not 0.01 <= rate <= 100:
        raise UsageError(f"rate: found {rate:g}; allowed: 0.01 to 100 Hz")
    if full_scale not in {"sustained", "theoretical"}:
        raise UsageError(f"full_scale: found '{quoted(full_scale)}'; allowed: sustained, theoretical")
    live = sample_this_host(rate, duration_s, full_scale=full_scale, canary=canary)
    return Recording(live.header, live.frames(), live)


# ------------------------------------------------------------------ options


def _arguments(d: Description, options: Mapping[str, object]) -> list[str]:
    """Return options as arguments of an instrument."""
    from meshmark.measure.runs.probe import arguments

    for name in _SET_BY_THE_RUN:
        if name in options:
            raise UsageError(f"{d.name}: found '{name}', which is set by Meshmark")
    return arguments(d, {k: [*v] if isinstance(v, tuple | range) else v for k, v in options.items()})


def _store(d: Description, store: Store) -> tuple[list[str], Path | None]:
    """Return the kinds of stores of an instrument as arguments, and the folder of the store; None to store nothing."""
    from meshmark.measure.single import stores
    from meshmark.values.paths import default_store

    values = store if isinstance(store, Sequence) and not isinstance(store, str) else [store]
    # A path without a slash could be mistaken for a kind of store.
    words = [s if isinstance(s, str) else f"./{s}" if "/" not in os.fspath(s) else os.fspath(s) for s in values if s]
    argv, folder = stores(d, words)
    if store is False:
        return argv, None
    return argv, Path(folder) if folder else default_store()


def _folder(store: Store) -> Path | None:
    from meshmark.values.paths import default_store

    if store is False:
        return None
    if store is None:
        return default_store()
    if not isinstance(store, str | os.PathLike):
        raise UsageError(f"store: found a {type(store).__name__}, a folder is required")
    return Path(store)


def _on_host(d: Description, argv: Sequence[str], repetitions: int, store: Path | None) -> Table:
    """Measure on this host, in fresh processes. With a store, an interrupted measurement can be resumed."""
    from meshmark.machine.facts import host_id
    from meshmark.measure import single
    from meshmark.measure.runs import unfinished
    from meshmark.measure.runs.plan import measurement
    from meshmark.store.store import Store as Kept
    from meshmark.store.store import run_name

    if not 0 <= repetitions <= 100:
        raise UsageError(f"repetitions: found {repetitions}; allowed: 0 to 100")
    machine = host_id()
    plan, run = measurement(d, [*argv, "--machine", machine], repetitions), run_name("measure")
    if store is None:
        with tempfile.TemporaryDirectory(prefix="meshmark-") as name:
            result = single.measure(plan, Path(name), Path(name) / "store", run)
            result.check()
    else:
        Kept(store)  # raises early if the folder is not a store
        with unfinished.begin(store, run, plan, machine) as unfinished_run:
            result = single.measure(plan, unfinished_run.folder, store, run)
            result.check()
    return Table(None, [(run, "", r) for r in result.records], [*result.absent, *result.notes])


def _machine(name: Folder, settings: Mapping[str, object] | None) -> MachineFile:
    from meshmark.model.machine import find_machine

    return find_machine(os.fspath(name), _assignments(settings))


def _assignments(settings: Mapping[str, object] | None) -> list[str]:
    return [f"{k}={str(v).lower() if isinstance(v, bool) else v}" for k, v in (settings or {}).items()]


def _at(data: Any, dotted: str) -> str | None:
    """Return a value of a machine file by its key, as text; None if the key does not exist."""
    for part in dotted.replace("[", ".").replace("]", "").split("."):
        if isinstance(data, list) and part.isdigit() and int(part) < len(data):
            data = data[int(part)]
        elif isinstance(data, dict):
            data = data.get(part)
        else:
            return None
    return None if data is None else str(data)


def _share(name: str, value: float | str) -> float:
    """Return a share that is given as a number, or as a text in percent."""
    try:
        share = float(value.removesuffix("%").strip()) / 100 if isinstance(value, str) else float(value)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 10 or (isinstance(value, str) and not value.endswith("%")):
        raise UsageError(f"{name}: found '{quoted(value)}', a share from 0 to 10, or from 0% to 1000% is required")
    return share


def _side(name: str, table: Table) -> ResultSide:
    """Return a side of a comparison from a table of the records of one machine."""
    from meshmark.compare.sides import ResultSide, latest

    records = as_records(table, f"compare: {name}").pooled().records
    if len(machines := sorted({r.machine for r in records})) > 1:
        raise UsageError(
            f"compare: {name}: found results of {len(machines)} machines ({', '.join(machines[:4])}), one is allowed"
        )
    start = max(str(r.provenance.get("start", "")) for r in records)
    description = f"table of {len(records)} records"
    return ResultSide(name=machines[0], what=description, machine=machines[0], start=start, records=latest([records]))
