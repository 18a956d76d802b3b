"""Averages the use of each class of components over time, for several recordings on one time axis."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from meshmark.errors import MeshmarkError
from meshmark.watch.frames import USE, Frame, Header

BINS: Final = 240
MIN_RECORDINGS: Final = 3  # recordings that an interval of their mean requires
_CONFIDENCE: Final = 0.95


@dataclass(frozen=True, slots=True)
class UseOverlay:
    """The use of one class in several recordings, as shares, averaged over the components of the class.

    Attributes:
        metrics: Metric of each recording; "" if the recording lacks the class.
        at_s: Ends of the time bins, shape (bins,), in s.
        use: Shape (recordings, bins); NaN if unknown.
        means: Mean of each recording over time, shape (recordings,).
        mean, low, high: Mean of the recordings and its 95 % interval, shape (bins,); NaN below three recordings.
        estimated: Whether a recording has estimates.
    """

    component_class: str
    metrics: tuple[str, ...]
    at_s: NDArray[np.float64]
    use: NDArray[np.float64]
    means: NDArray[np.float64]
    mean: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    estimated: bool


_Array = NDArray[np.float64]


def interval_of_mean(values: _Array) -> tuple[_Array, _Array, _Array]:
    """Return mean, lower and upper end of Student's 95 % interval over axis 0, for shares, which are at least 0.

    The result is NaN with fewer than three values.
    """
    from scipy import stats

    count = np.isfinite(values).sum(axis=0)
    is_enough = count >= MIN_RECORDINGS
    n = np.where(is_enough, count, np.nan)
    mean = np.nansum(values, axis=0) / n
    deviation = np.sqrt(np.nansum((values - mean) ** 2, axis=0) / (n - 1))
    half_width = stats.t.ppf((1 + _CONFIDENCE) / 2, n - 1) * deviation / np.sqrt(n)
    return mean, np.maximum(mean - half_width, 0.0), mean + half_width


def overlay(recordings: Sequence[tuple[Header, Iterable[Frame]]]) -> list[UseOverlay]:
    """Return the classes whose use at least one recording has.

    Args:
        recordings: Header and frames of each, whose times are on the common axis.

    Raises:
        MeshmarkError: No recording has a frame.
    """
    series = [_series(header, frames) for header, frames in recordings]
    spans = [(s.begin_s[0], s.end_s[-1]) for s in series if s.begin_s.size]
    if not spans:
        raise MeshmarkError("the recordings have no frame")
    begin_s, end_s = min(b for b, _ in spans), max(e for _, e in spans)
    period_s = max(header.period_s for header, _ in recordings)
    count = max(1, min(BINS, math.ceil((end_s - begin_s) / period_s - 1e-6)))
    edges = np.linspace(begin_s, end_s, count + 1)
    overlays = []
    for kind in USE:
        if not any(kind in s.use for s in series):
            continue
        unknown = np.full(count, np.nan)
        use = np.array([_binned(s, s.use[kind], edges) if kind in s.use else unknown for s in series])
        means = np.array([_mean(s, s.use[kind]) if kind in s.use else np.nan for s in series])
        metrics = tuple(h.use[kind] if kind in s.use else "" for (h, _), s in zip(recordings, series, strict=True))
        estimates = {m.name for h, _ in recordings for m in h.metrics if m.estimated}
        mean, low, high = interval_of_mean(use)
        is_estimated = bool(estimates & set(metrics))
        overlays.append(UseOverlay(kind, metrics, edges[1:], use, means, mean, low, high, is_estimated))
    return overlays


@dataclass(frozen=True, slots=True)
class _UseSeries:
    begin_s: NDArray[np.float64]
    end_s: NDArray[np.float64]
    use: dict[str, NDArray[np.float64]]  # mean over the components, by class


def _series(header: Header, frames: Iterable[Frame]) -> _UseSeries:
    kinds = {kind: metric for kind, metric in header.use.items() if any(m.name == metric for m in header.metrics)}
    begin_s, end_s = list[float](), list[float]()
    use: dict[str, list[float]] = {kind: [] for kind in kinds}
    for frame in frames:
        begin_s.append(frame.t_s - frame.window_s)
        end_s.append(frame.t_s)
        for kind, metric in kinds.items():
            known = [v for v in frame.values.get(metric, ()) if v is not None]
            use[kind].append(sum(known) / len(known) if known else math.nan)
    arrays = {kind: np.array(values) for kind, values in use.items()}
    known_kinds = {kind: values for kind, values in arrays.items() if np.isfinite(values).any()}
    return _UseSeries(np.array(begin_s), np.array(end_s), known_kinds)


def _binned(series: _UseSeries, values: NDArray[np.float64], edges: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return means over bins, weighted by the time that each frame shares with a bin; NaN if nothing is known."""
    is_known = np.isfinite(values)
    sums, seconds = np.zeros(len(edges) - 1), np.zeros(len(edges) - 1)
    for begin_s, end_s, value in zip(series.begin_s[is_known], series.end_s[is_known], values[is_known], strict=True):
        first = max(0, int(np.searchsorted(edges, begin_s, side="right")) - 1)
        last = min(len(edges) - 1, int(np.searchsorted(edges, end_s, side="left")))
        shared_s = np.minimum(edges[first + 1 : last + 1], end_s) - np.maximum(edges[first:last], begin_s)
        sums[first:last] += value * shared_s
        seconds[first:last] += shared_s
    return np.where(seconds > 0, sums / np.where(seconds > 0, seconds, 1.0), np.nan)


def _mean(series: _UseSeries, values: NDArray[np.float64]) -> float:
    is_known = np.isfinite(values)
    weights = np.maximum(series.end_s - series.begin_s, 1e-12)[is_known]
    return float((values[is_known] * weights).sum() / weights.sum())
