"""Compares two recordings: the mean use of every component before and after, with an interval of the change.

Consecutive frames are correlated, so they are not independent samples and their variance would underestimate the
interval. Therefore each recording is split into ten batches, whose means are the samples; the interval of the
difference of means is Welch's, with degrees of freedom after Satterthwaite. Its coverage depends on the length of a
batch relative to the correlation time of the load: with a ratio of 8 it is 94 % instead of 95 % (simulated), with a
ratio of 2 it is 87 %. The interval covers the variation within a recording, but not between runs. On average, 5 of 100
unchanged components are outside it by chance.

Source: method of batch means, e.g. Law, Simulation Modeling and Analysis (5th ed., 2015), 9.5.3; few long batches after
Schmeiser, Operations Research 30 (1982).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from meshmark.errors import MeshmarkError, quoted
from meshmark.statistics.verdicts import judge
from meshmark.watch.frames import USE, Frame, Header

BATCHES: Final = 10
ROUNDING: Final = 1e-6  # smaller changes of a share are rounding errors
MIN_BATCHES: Final = 4  # batches with at least two frames each that an interval requires
TITLES: Final = {"cpu": "CPUs", "memory": "memory", "link": "links", "io": "I/O"}


@dataclass(frozen=True, slots=True)
class UseChange:
    """The mean use of one component in two recordings, as shares; None is unknown.

    Attributes:
        low, high: 95 % interval of the change; None if a recording is too short.
        why: reason for an unknown value or interval.
    """

    component_class: str
    index: int
    name: str
    before: float | None = None
    after: float | None = None
    low: float | None = None
    high: float | None = None
    why: str = ""

    @property
    def change(self) -> float | None:
        """Return the use after minus the use before, as a share; None if either is unknown."""
        return None if self.before is None or self.after is None else self.after - self.before

    @property
    def certain(self) -> bool:
        """Return whether the use differs significantly."""
        has_interval = self.low is not None and self.high is not None
        interval = ((self.low or 0.0) - ROUNDING, (self.high or 0.0) + ROUNDING) if has_interval else None
        return judge(interval, (-ROUNDING, ROUNDING), 0.0) in {"higher", "lower"}

    def to_json(self) -> dict[str, Any]:
        """Return the change as JSON; shares are rounded to six digits."""

        def rounded(value: float | None) -> float | None:
            return None if value is None else round(value, 6)

        return {
            "name": self.name,
            "before": rounded(self.before),
            "after": rounded(self.after),
            "change": rounded(self.change),
            "low": rounded(self.low),
            "high": rounded(self.high),
            "certain": self.certain,
            **({"why": self.why} if self.why else {}),
        }


@dataclass(frozen=True, slots=True)
class RecordingSide:
    """One of the two recordings.

    Args:
        name: display name, usually the file name.
        count: number of frames to read.
    """

    name: str
    header: Header
    count: int
    frames: Iterable[Frame]


@dataclass(frozen=True, slots=True)
class RecordingDifference:
    """The changes between two recordings, by class, in the order of the header."""

    before: dict[str, Any]
    after: dict[str, Any]
    changes: dict[str, list[UseChange]]

    def to_json(self) -> dict[str, Any]:
        """Return the difference as JSON, of type `difference`, with the changes by class of component."""
        return {
            "type": "difference",
            "format": 1,
            "unit": "1",
            "before": self.before,
            "after": self.after,
            "changes": {k: [c.to_json() for c in v] for k, v in self.changes.items()},
        }


@dataclass(slots=True)
class _WindowSums:
    """Sums over the windows of each batch: `[batch, component]`."""

    sums: dict[str, NDArray[np.float64]]
    weights: dict[str, NDArray[np.float64]]
    seconds: float = 0.0

    def statistics(self, kind: str) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """Return per component the mean, its variance, and the number of batches with values; NaN if unknown."""
        sums, weights = self.sums[kind], self.weights[kind]
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = sums.sum(axis=0) / weights.sum(axis=0)
            batches = sums / weights
            batch_count = np.isfinite(batches).sum(axis=0).astype(np.float64)
            centre = np.where(batch_count > 0, np.nansum(batches, axis=0) / batch_count, np.nan)
            scatter = np.nansum((batches - centre) ** 2, axis=0) / (batch_count - 1)
            return mean, scatter / batch_count, batch_count


def _means(side: RecordingSide) -> _WindowSums:
    use = {k: m for k, m in side.header.use.items() if any(m == x.name for x in side.header.metrics)}
    batches = max(1, min(BATCHES, side.count // 2))
    means = _WindowSums(
        {k: np.zeros((batches, side.header.count(k))) for k in use},
        {k: np.zeros((batches, side.header.count(k))) for k in use},
    )
    for i, frame in enumerate(side.frames):
        if i >= side.count:
            break  # the recording may still grow
        batch = i * batches // side.count
        means.seconds += frame.window_s
        for kind, metric in use.items():
            values = np.array(frame.values.get(metric, ()), dtype=np.float64)
            if values.size != means.sums[kind].shape[1]:
                continue
            is_known = np.isfinite(values)
            length = frame.window_s or 1e-12  # a frame without duration still counts
            means.sums[kind][batch] += np.where(is_known, values, 0.0) * length
            means.weights[kind][batch] += is_known * length
    return means


def _check_components(before: Header, after: Header) -> None:
    for kind, title in TITLES.items():
        a, b = ([str(c.get("name", i)) for i, c in enumerate(h.components.get(kind, ()))] for h in (before, after))
        if len(a) != len(b):
            raise MeshmarkError(
                f"replay --against: the recordings differ in their {title}: found {len(a)} before and {len(b)} after;"
                " they must be the same"
            )
        for x, y in zip(a, b, strict=True):
            if x != y:
                raise MeshmarkError(
                    f"replay --against: the recordings differ in their {title}: found '{quoted(x)}' before and"
                    f" '{quoted(y)}' after;"
                    " they must be the same"
                )


def compare(before: RecordingSide, after: RecordingSide) -> RecordingDifference:
    """Compute the change in mean use of every component.

    Means are weighted by the length of the frames' windows.

    Raises:
        MeshmarkError: the machines have different components, or a recording has no frame.
    """
    from scipy import stats

    _check_components(before.header, after.header)
    for side in (before, after):
        if side.count == 0:
            raise MeshmarkError(f"replay --against: {side.name}: the recording has no frames")
    a, b = _means(before), _means(after)
    changes: dict[str, list[UseChange]] = {}
    for kind in USE:
        names = [str(c.get("name", f"{kind} {i}")) for i, c in enumerate(after.header.components.get(kind, ()))]
        if not names:
            continue
        metrics = [side.header.use[kind] for side in (before, after)]
        if metrics[0] != metrics[1]:
            reason = f"the metric is {metrics[0]} before and {metrics[1]} after"
            changes[kind] = [UseChange(kind, i, name, why=reason) for i, name in enumerate(names)]
            continue
        if kind not in a.sums or kind not in b.sums:
            incomplete = before if kind not in a.sums else after
            changes[kind] = [
                UseChange(kind, i, name, why=f"{incomplete.header.why_unknown(metrics[0], i)} ({incomplete.name})")
                for i, name in enumerate(names)
            ]
            continue
        (m1, v1, n1), (m2, v2, n2) = a.statistics(kind), b.statistics(kind)
        with np.errstate(invalid="ignore", divide="ignore"):
            # Degrees of freedom after Satterthwaite; without variance, any number works.
            degrees = (v1 + v2) ** 2 / (v1**2 / (n1 - 1) + v2**2 / (n2 - 1))
            half_widths = stats.t.ppf(0.975, np.where(np.isfinite(degrees), degrees, 1.0)) * np.sqrt(v1 + v2)
        class_changes = []
        for i, name in enumerate(names):
            if not (np.isfinite(m1[i]) and np.isfinite(m2[i])):
                incomplete = after if np.isfinite(m1[i]) else before
                class_changes.append(
                    UseChange(
                        kind,
                        i,
                        name,
                        before=float(m1[i]) if np.isfinite(m1[i]) else None,
                        after=float(m2[i]) if np.isfinite(m2[i]) else None,
                        why=f"{incomplete.header.why_unknown(metrics[0], i)} ({incomplete.name})",
                    )
                )
                continue
            before_i, after_i = float(m1[i]), float(m2[i])
            if min(n1[i], n2[i]) < MIN_BATCHES:
                reason = f"too few frames for an interval: each recording needs {2 * MIN_BATCHES}"
                class_changes.append(UseChange(kind, i, name, before_i, after_i, why=reason))
                continue
            change, half_width = after_i - before_i, float(half_widths[i])
            class_changes.append(UseChange(kind, i, name, before_i, after_i, change - half_width, change + half_width))
        changes[kind] = class_changes

    def side_json(side: RecordingSide, means: _WindowSums) -> dict[str, Any]:
        return {
            "name": side.name,
            "machine": side.header.machine,
            "started": side.header.started,
            "frames": side.count,
            "seconds": round(means.seconds, 9),
        }

    return RecordingDifference(side_json(before, a), side_json(after, b), changes)


def _points(share: float) -> str:
    text = f"{100 * share:+.1f}"
    return "0.0" if text in {"+0.0", "-0.0"} else text


def table(difference: RecordingDifference) -> Iterator[str]:
    """Yield lines of text: significant changes by size, then the others, then unknown ones."""
    all_changes = [c for changes in difference.changes.values() for c in changes]
    known_changes = [c for c in all_changes if c.change is not None]
    known_changes.sort(key=lambda c: (not c.certain, -abs(c.change or 0.0)))

    def name(c: UseChange) -> str:
        return f"link {c.name}" if c.component_class == "link" else c.name

    width = max([9, *(len(name(c)) for c in all_changes)])
    before, after = difference.before, difference.after
    yield f"from {before['name']} ({before['frames']} frames) to {after['name']} ({after['frames']} frames)"
    yield f"{'component':<{width}}  before (%)  after (%)  change (points)  95 % interval"
    for c in known_changes:
        assert c.before is not None and c.after is not None and c.change is not None
        line = f"{name(c):<{width}}  {100 * c.before:10.1f}  {100 * c.after:9.1f}  {_points(c.change):>15}"
        if c.low is None or c.high is None:
            yield f"{line}  {c.why}"
        else:
            remark = "" if c.certain else "  inconclusive"
            yield f"{line}  {_points(c.low)} to {_points(c.high)}{remark}"
    unknown: dict[str, list[str]] = {}
    for c in all_changes:
        if c.change is None:
            unknown.setdefault(c.why, []).append(name(c))
    for reason, names in unknown.items():
        shown_names = ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")
        yield f"not known: {shown_names}: {reason}"
