"""Results of the Python interface that are more than a table: comparisons, fits and recordings."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from meshmark.errors import UsageError, quoted
from meshmark.table import Table
from meshmark.values.arguments import checked

if TYPE_CHECKING:
    from meshmark.compare.join import ResultComparison, ResultPair
    from meshmark.compare.pairing import UnpairedResult
    from meshmark.model.fitting.fit import SurveyFit
    from meshmark.store.record import Record
    from meshmark.watch.frames import Frame, Header
    from meshmark.watch.live import LiveSampler


_RATIO: Final = {"ratio": "1", "low": "1", "high": "1"}  # units


class Comparison:
    """B beside A. `meshmark.compare` makes one.

    Attributes:
        a: What A is: machine, time and run.
        b: What B is.
        summary: How many results were compared, with the number of each verdict and the margin.
    """

    def __init__(self, comparison: ResultComparison) -> None:
        from meshmark.views.content.compared_text import side_text, summary

        self._found = comparison
        self.a, self.b, self.summary = side_text(comparison.a), side_text(comparison.b), summary(comparison)

    @property
    def pairs(self) -> Table:
        """Return one row per result that both have.

        Columns: ``verdict``, ``ratio`` (B over A) with ``low`` and ``high``, its 95 % interval, ``reason`` (why there
        is no verdict), ``instrument``, ``metric``, ``unit``, ``better``; ``a``, ``a_low``, ``a_high`` and ``a_flags``
        in that unit, and the same of B; then the conditions of A. A condition in which B differs is followed by the
        column ``NAME_b``.
        """
        from meshmark.views.content.listing import visible

        keys = visible([r for p in self._found.pairs for r in (p.a, p.b)])
        differing_keys = {key for p in self._found.pairs for key in p.differ}
        return Table.of_rows([_pair(p, keys, differing_keys) for p in self._found.pairs], _RATIO)

    @property
    def means(self) -> Table:
        """Return the geometric means of the ratios.

        The columns are instrument, metric, ``ratio`` with ``low`` and ``high``, ``pairs``, the number of ``doubtful``
        ones, and of pairs ``left_out`` because they have no ratio.
        """
        return Table.of_rows(
            [
                {
                    "instrument": m.instrument,
                    "metric": m.metric,
                    "ratio": m.value,
                    **_bounds("", m.interval),
                    "pairs": m.pairs,
                    "doubtful": m.doubtful,
                    "left_out": m.left_out,
                }
                for m in self._found.means()
            ],
            _RATIO,
        )

    @property
    def facts(self) -> Table:
        """Return software, settings and builds that differ: ``name``, ``a`` and ``b``."""
        return Table.of_rows([{"name": name, "a": a, "b": b} for name, a, b in self._found.facts])

    @property
    def counts(self) -> Mapping[str, int]:
        """Return the number of pairs by verdict."""
        return {str(word): count for word, count in self._found.counts().items()}

    @property
    def only_a(self) -> Table:
        """Return the records of A that B has no counterpart of, with the ``reason``."""
        return _unpaired(self._found.only_a)

    @property
    def only_b(self) -> Table:
        """Return the records of B that A has no counterpart of, with the ``reason``."""
        return _unpaired(self._found.only_b)

    @checked
    def chart(self, name: str = "") -> Any:
        """Return a chart of the comparison, an ``altair`` chart.

        Args:
            name: ``means``, ``latency`` or ``bandwidth``; "": the first for which both have results.

        Raises:
            UsageError: There is no chart of this name.
            AbsentError: The results do not give it.
        """
        from meshmark.views.pages.comparison import charts
        from meshmark.views.pages.notebook import altair_chart, chosen

        return altair_chart(chosen(charts([self._found]), name, ("means", "latency", "bandwidth")))

    @checked
    def page(self) -> str:
        """Return the page of ``meshmark compare --html``, self-contained."""
        from meshmark.views.pages.comparison import comparison_page

        return comparison_page([self._found])

    def __repr__(self) -> str:
        return f"<meshmark.Comparison: A {self.a}; B {self.b}; {self.summary}>".replace("\u00a0", " ")

    @checked
    def html(self) -> str:
        """Return all pairs as HTML with its own style, as notebooks show them."""
        from meshmark.views.pages.notebook import comparison_html

        return comparison_html(self._found)

    _repr_html_ = html


def _unpaired(unpaired: Sequence[UnpairedResult]) -> Table:
    from dataclasses import replace

    return Table(
        None, [("", "", replace(u.record, conditions={**u.record.conditions, "reason": u.reason})) for u in unpaired]
    )


def _bounds(prefix: str, interval: tuple[float, float] | None) -> dict[str, float | None]:
    low, high = interval or (None, None)
    return {f"{prefix}low": low, f"{prefix}high": high}


def _pair(p: ResultPair, keys: list[str], differ: set[str]) -> dict[str, Any]:
    def side_columns(letter: str, r: Record) -> dict[str, Any]:
        return {letter: r.value, **_bounds(f"{letter}_", r.bounds), f"{letter}_flags": sorted(r.flags)}

    conditions = {}
    for key in keys:
        conditions[key] = p.a.conditions.get(key)
        if key in differ:
            conditions[f"{key}_b"] = p.b.conditions.get(key)
    return {
        "verdict": p.word,
        "ratio": p.ratio.value if p.ratio else None,
        **_bounds("", p.ratio.interval if p.ratio else None),
        "reason": p.reason,
        **{k: getattr(p.a, k) for k in ("instrument", "metric", "unit", "better")},
        **side_columns("a", p.a),
        **side_columns("b", p.b),
        **conditions,
    }


class Fit:
    """A machine file fitted to a host. `meshmark.fit` makes one.

    Attributes:
        text: The machine file.
        rms_fitted: Root mean square of the relative errors of the points that the fit used.
        rms_predicted: The same of the points that it did not use, which tells what the model is worth.
    """

    def __init__(self, fit: SurveyFit) -> None:
        self._found = fit
        self.text, self.rms_fitted, self.rms_predicted = fit.text, fit.rms(True), fit.rms(False)

    @property
    def points(self) -> Table:
        """Return one row per point: ``point``, ``host`` and ``model`` in ``unit``, ``error``, ``fitted``, ``flags``."""
        return Table.of_rows(
            [
                {
                    "point": p.what,
                    "host": p.host,
                    "model": p.model,
                    "error": p.error,
                    "fitted": p.fitted,
                    "flags": sorted(p.flags),
                    "unit": p.unit,
                }
                for p in self._found.points
            ],
            {"error": "1"},
        )

    def __repr__(self) -> str:
        rms = f"fitted points {100 * self.rms_fitted:.2g} %, predicted points {100 * self.rms_predicted:.2g} %"
        return f"<meshmark.Fit: {len(self._found.points)} points, rms error: {rms}>"

    @checked
    def html(self) -> str:
        """Return the points as HTML with its own style, as notebooks show them."""
        return self.points.html()

    _repr_html_ = html


class Recording:
    """Frames of a machine: of a recording, or live. `meshmark.recording` and `meshmark.watch` make one.

    Iterating yields each frame as an object with the keys of `frames.md`: ``t_s``, ``window_s`` and ``values``, which
    holds a list per metric, with one number per component. Frames are kept, so that a recording can be iterated over
    again. A live one is a context manager, which ends the sampler.

    Attributes:
        machine: Its name.
    """

    def __init__(self, header: Header, frames: Iterator[Frame], live: LiveSampler | None = None) -> None:
        self._header, self._source, self._live = header, frames, live
        self._kept: list[Frame] = []
        self.machine = header.machine

    @property
    def metrics(self) -> Table:
        """Return what each metric is: ``metric``, ``unit``, ``what``, ``full_scale`` (what 1 means), ``estimated``."""
        return Table.of_rows(
            [
                {"metric": m.name, "unit": m.unit, "what": m.what, "full_scale": m.of, "estimated": m.estimated}
                for m in self._header.metrics
            ]
        )

    @property
    def absent(self) -> Table:
        """Return what cannot be watched here: ``metric``, ``why``, and ``hint``, how to enable it."""
        return Table.of_rows([{k: a.get(k, "") for k in ("metric", "why", "hint")} for a in self._header.absent])

    @checked
    def table(self, *, wide: bool = False, metric: str = "") -> Table:
        """Return the values of all frames. For a live recording, this waits for its end.

        Args:
            wide: One row per frame with a column ``METRIC:COMPONENT`` for each value; otherwise one row per value, with
                the columns ``t_s``, ``metric``, ``component``, ``value`` and ``unit``. Unknown values are null.
            metric: Only this one; "": all.

        Raises:
            UsageError: There is no such metric.
        """
        metric_names = [m.name for m in self._header.metrics]
        if metric and metric not in metric_names:
            raise UsageError(f"metric: found '{quoted(metric)}'; allowed: {', '.join(metric_names)}")
        metrics = [m for m in self._header.metrics if metric in {"", m.name}]
        names = {m.name: self._header.names(m.component_class) for m in metrics}
        notes = [f"absent: {a['metric']}: {a['why']}" for a in self._header.absent]
        frames = self._all()
        if wide:
            units = {f"{m.name}:{name}": m.unit for m in metrics for name in names[m.name]}
            rows: list[dict[str, Any]] = [
                {
                    "t_s": f.t_s,
                    "window_s": f.window_s,
                    **{f"{m.name}:{n}": f.value(m.name, i) for m in metrics for i, n in enumerate(names[m.name])},
                }
                for f in frames
            ]
            return Table.of_rows(rows, {"t_s": "s", "window_s": "s", **units}, notes)
        rows = [
            {"t_s": f.t_s, "metric": m.name, "component": name, "value": f.value(m.name, i), "unit": m.unit}
            for f in frames
            for m in metrics
            for i, name in enumerate(names[m.name])
        ]
        return Table.of_rows(rows, {"t_s": "s"}, notes)

    @checked
    def chart(self) -> Any:
        """Return the use of CPUs, memories, links and devices over time, an ``altair`` chart; grey is unknown.

        Raises:
            MeshmarkError: There is no frame.
            AbsentError: No frame has the use of a component.
        """
        from meshmark.views.pages.notebook import recording_chart

        return recording_chart(self._header, self._all())

    @checked
    def save(self, path: str | os.PathLike[str]) -> None:
        """Write all frames to a file of ``meshmark record`` (Parquet). Of a live recording, this waits for its end.

        Raises:
            RecordingError: The file exists, or cannot be written.
        """
        from meshmark.watch.recording import Recorder

        with Recorder(Path(path), self._header) as recorder:
            for frame in self._all():
                recorder.add(frame)

    @checked
    def stop(self) -> None:
        """End a live recording. Frames that have arrived can still be read."""
        if self._live is not None:
            self._live.stop()

    def _all(self) -> list[Frame]:
        for _ in self:
            pass
        return self._kept

    def __iter__(self) -> Iterator[dict[str, Any]]:
        index = 0
        while True:
            while index < len(self._kept):
                yield self._kept[index].to_json()
                index += 1
            frame = next(self._source, None)
            if frame is None:
                break
            self._kept.append(frame)
        if self._live is not None:
            self._live.__exit__(None, None, None)
            self._live = None

    def __enter__(self) -> Recording:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.__exit__(kind, error, trace)
            self._live = None
            self._source = iter(())

    def __repr__(self) -> str:
        return f"<meshmark.Recording: {self.machine}, {len(self._header.metrics)} metrics>"

    @checked
    def html(self) -> str:
        """Return the metrics, and what is absent, as HTML with its own style, as notebooks show them."""
        from meshmark.views.pages.notebook import rows_html

        metrics = self.metrics
        notes = [f"absent: {a['metric']}: {a['why']}" for a in self._header.absent]
        columns = ["metric", "unit", "what", "full_scale"]
        return rows_html(columns, {}, metrics, [f"{self.machine}: metrics of its frames", *notes])

    _repr_html_ = html
