"""From a prescription to a program: how many seconds of which variant.

Unknown are x_k >= 0, the part of the run time that is spent in variant k. Every prescribed metric a / d = v is one
linear equation, sum over k of (a_k - v d_k) / t_k x_k = 0, with t_k the seconds of one call, and the parts add up to 1.

1. Linear programs (HiGHS) tell at once whether there is such an x, within which range each metric could be while the
   others hold, and which possible wish is nearest. A metric with a denominator other than time is brought to a linear
   program by the transformation of Charnes and Cooper (1962).
2. A vertex of a linear program uses as many variants as there are equations. Of all solutions the one of least
   sum x_k^2 / s_k is taken: non-negative least squares with a ridge, equations kept exactly. It is solved in its dual,
   which has one unknown an equation and is piecewise quadratic, by Newton steps: milliseconds, whatever the number of
   variants.
3. Calls are whole numbers: rounded, then repaired greedily.
4. `order.py` spreads the calls evenly.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from meshmark.errors import MeshmarkError, UsageError
from meshmark.load.metrics import Linear, Metric, Metrics, all_metrics
from meshmark.load.order import PLAIN, best_phases
from meshmark.load.prescription import Prescription
from meshmark.load.program import Part, Program, spinning
from meshmark.load.variants import Table, Variant, Vector

MIB: Final = 1 << 20
_MOST_VARIANTS: Final = 160
_CALLS_EACH: Final = 30  # on average, at least: fewer would come in lumps
_GRANULARITY: Final = 1e-3  # relative error of a sum that is worth a word
_CLOSE: Final = 1e-5  # likewise that needs no repair
_EXCHANGED: Final = 64  # variants that take part in it
_LEAST_DENOMINATOR: Final = 1e-4  # of the largest that there is: keeps ratios from 0 / 0
# Kinds that are used only where a prescribed metric is about them, or `kernels` names them.
_SPECIAL: Final = ("idle", "system")
_SYSTEM: Final = frozenset({"system_s", "system_calls"})
_IO: Final = frozenset({"io_read_bytes", "io_write_bytes"})


class ImpossibleError(UsageError):
    """No mix of the variants gives what is prescribed.

    Attributes:
        ranges: of each prescribed metric, what is reachable while the others hold; None where nothing is.
        nearest: the possible prescription of least relative change.
    """

    def __init__(
        self, message: str, hint: str, ranges: Mapping[str, tuple[float, float] | None], nearest: Prescription | None
    ) -> None:
        super().__init__(message, hint)
        self.ranges = dict(ranges)
        self.nearest = nearest


# ------------------------------------------------------------------ equations


@dataclass(frozen=True, slots=True)
class _Row:
    """One prescribed metric as numbers of one second of each variant."""

    name: str
    value: float
    over: Vector  # a_k / t_k
    under: Vector  # d_k / t_k
    over_constant: float  # over the run time
    under_constant: float
    pinned: bool  # the other prescribed values keep its denominator from 0
    typical: float  # about the denominator, per second

    def equation(self, value: float | None = None) -> tuple[Vector, float]:
        """Coefficients of x and the right-hand side, scaled so that an error of e is about a relative one of e."""
        v = self.value if value is None else value
        c = self.over - v * self.under
        rhs = v * self.under_constant - self.over_constant
        # A write fraction is to be right to 0.0005, be it large or small; all else to a thousandth of itself.
        scale = max(abs(v), 0.5 if self.name == "write_fraction" else 0.0) * self.typical
        if scale == 0:
            scale = float(np.abs(c).max(initial=0.0)) or 1.0
        return c / scale, rhs / scale


@dataclass(frozen=True, slots=True)
class _Problem:
    """The usable variants and the equations on them."""

    table: Table
    rows: tuple[_Row, ...]
    wish: Prescription

    @property
    def seconds(self) -> Vector:
        return self.table.columns["wall_s"]

    def only(self, which: NDArray[np.intp]) -> _Problem:
        rows = tuple(dataclasses.replace(r, over=r.over[which], under=r.under[which]) for r in self.rows)
        return _Problem(self.table.only(which), rows, self.wish)

    def equations(self) -> tuple[NDArray[np.float64], Vector]:
        """Shape (1 + metrics, variants) and (1 + metrics,); the first is that the parts add up to 1, less the pace."""
        both = [r.equation() for r in self.rows]
        return np.stack([np.ones(len(self.table)), *(c for c, _ in both)]), np.array(
            [1.0 - self.wish.pace, *(b for _, b in both)]
        )


def _pins(row: Linear, wish: Prescription, metrics: Metrics) -> float | None:
    """The value of a denominator per second, where the prescription tells it."""
    if (factor := row.times(Linear({"wall_s": 1.0}))) is not None:
        return factor
    for name, value in sorted(wish.metrics.items()):
        ratio = metrics[name].ratio
        assert ratio is not None
        of_time = ratio[1].times(Linear({"wall_s": 1.0}))
        same = row.times(ratio[0])
        if same is not None and of_time is not None and value > 0:
            return same * value * of_time
    return None


def _rows(table: Table, wish: Prescription, metrics: Metrics) -> tuple[_Row, ...]:
    rows = []
    t = table.columns["wall_s"]
    waits = spinning(wish)

    def constant(sums: Linear) -> float:
        return (sums.constant + sum(f * waits.get(k, 0.0) for k, f in sorted(sums.factors.items()))) / wish.run_time_s

    for name, value in sorted(wish.metrics.items()):
        over, under = _parts_of(metrics[name])
        pin = _pins(under, wish, metrics)
        per_s = under.of(table.columns) / t
        most = float(np.abs(per_s).max(initial=0.0))
        rows.append(
            _Row(
                name,
                value,
                over.of(table.columns) / t,
                per_s,
                constant(over),
                constant(under),
                pin is not None or under.bare,
                pin if pin is not None else abs(under.constant) / wish.run_time_s if under.bare else most * 1e-2,
            )
        )
    return tuple(rows)


def _parts_of(m: Metric) -> tuple[Linear, Linear]:
    if m.ratio is None:
        raise UsageError(f"{m.name}: can be shown, not prescribed: {m.formula[:60]!r} is no ratio of two sums")
    return m.ratio


def _usable(table: Table, wish: Prescription, metrics: Metrics) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Indices of the variants that the program may use, and those to fall back on (idle, system).

    Raises:
        UsageError: there is none, by the name of the key that left none.
    """
    where = wish.name
    known = set(table.kernels)
    for key in ("kernels", "without"):
        for k in getattr(wish, key):
            if k not in known:
                import difflib

                near = difflib.get_close_matches(k, sorted(known), 1, 0.5)
                also = f"did you mean {near[0]}?" if near else f"base data have {', '.join(sorted(known))}"
                raise UsageError(f"{where}: {key}: unknown kernel {k!r}; {also}")
    needed = frozenset().union(*(metrics[m].names for m in wish.metrics)) if wish.metrics else frozenset()
    lacks = sorted(needed - table.columns.keys())
    if lacks:
        raise UsageError(f"{where}: base data have no {lacks[0]}, which a prescribed metric needs")
    mask = np.ones(len(table), dtype=bool)

    def keep(those: NDArray[np.bool_], why: str) -> None:
        nonlocal mask
        if not (mask & those).any():
            raise UsageError(f"{where}: {why}")
        mask = mask & those

    vs = table.variants
    threads = sorted({v.threads for v in vs})
    keep(
        np.array([v.threads == wish.threads for v in vs], dtype=bool),
        f"threads: found {wish.threads}; base data have variants with {', '.join(map(str, threads))}",
    )
    allowed = (set(wish.kernels) or known) - set(wish.without)
    keep(
        np.array([v.kernel in allowed for v in vs], dtype=bool),
        "kernels and without leave no variant with these threads",
    )
    keep(
        table.volume_bytes <= wish.memory_mib * MIB,
        f"memory_mib: found {wish.memory_mib:g}; the least volume is "
        f"{float(table.volume_bytes[mask].min(initial=math.inf)) / MIB:.3g} MiB",
    )
    if wish.load_balance < 1:
        keep(
            np.array([not v.team for v in vs], dtype=bool),
            f"load_balance: found {wish.load_balance:g}; the kernels left work as a team, in even shares",
        )
    for name in sorted(wish.metrics):
        told = np.isfinite(sum((table.columns[c] for c in metrics[name].names), np.zeros(len(table))))
        keep(told, f"{name}: base data do not tell it of any variant with threads = {wish.threads}")
    system, io = bool(needed & (_SYSTEM | _IO)), bool(needed & _IO)
    does_io = (table.columns["io_read_bytes"] + table.columns["io_write_bytes"]) > 0
    special = np.array([v.kind in _SPECIAL and v.kernel not in wish.kernels for v in vs], dtype=bool) | does_io
    wanted = np.array([v.kernel in wish.kernels or (v.kind != "idle" and system) for v in vs], dtype=bool)
    if not io:
        wanted &= ~does_io | np.array([v.kernel in wish.kernels for v in vs], dtype=bool)
    usual = mask & (~special | wanted)
    return np.flatnonzero(usual), np.flatnonzero(mask & ~usual)


def _presolved(problem: _Problem) -> _Problem:
    """Without the variants that an equation rules out: terms of one sign that add up to 0 are all 0."""
    keep = np.ones(len(problem.table), dtype=bool)
    for row in problem.rows:
        c, rhs = row.equation()
        if rhs == 0 and (not (c[keep] < 0).any() or not (c[keep] > 0).any()):
            keep &= c == 0
    return problem if keep.all() else problem.only(np.flatnonzero(keep))


# ------------------------------------------------------------------ linear programs


def _linear(
    cost: Vector,
    equal: NDArray[np.float64],
    rhs: Vector,
    most: float | None = None,
    less: NDArray[np.float64] | None = None,
    limit: Vector | None = None,
    upper: Vector | None = None,
) -> Vector | None:
    """Least cost @ x with equal @ x = rhs, less @ x <= limit, 0 <= x <= upper (or `most`); None where there is none."""
    from scipy.optimize import linprog

    if len(cost) == 0:
        return None
    bounds: Any = np.zeros((len(cost), 2))
    bounds[:, 1] = np.inf if most is None else most
    if upper is not None:
        bounds[:, 1] = upper
    found = linprog(cost, A_ub=less, b_ub=limit, A_eq=equal, b_eq=rhs, bounds=bounds, method="highs")
    return np.asarray(found.x, dtype=np.float64) if found.status == 0 and found.x is not None else None


def _floors(rows: Sequence[_Row]) -> tuple[NDArray[np.float64], Vector] | None:
    """-d x <= -least for every denominator that nothing else keeps from 0."""
    free = [r for r in rows if not r.pinned and float(r.under.max(initial=0.0)) > 0]
    if not free:
        return None
    return np.stack([-r.under / r.under.max() for r in free]), np.full(len(free), -_LEAST_DENOMINATOR)


def _any(problem: _Problem, most: float | None = None) -> Vector | None:
    """Some x that fulfils all equations."""
    if len(problem.table) == 0 or any(not r.pinned and not r.under.any() for r in problem.rows):
        return None
    equal, rhs = problem.equations()
    floors = _floors(problem.rows)
    return _linear(np.zeros(len(problem.table)), equal, rhs, most, *(floors or (None, None)))


def _range(rows: Sequence[_Row], at: int, values: Mapping[str, float], busy: float) -> tuple[float, float] | None:
    """Least and largest value of one metric while the others in `values` hold; None where they cannot."""
    row = rows[at]
    n = len(row.over)
    # Unknown are x and one number tau, scaled so that the metric's denominator is 1.
    scale = float(np.abs(row.under).max(initial=0.0)) or abs(row.under_constant) or 1.0
    over_scale = float(np.abs(row.over).max(initial=0.0)) or abs(row.over_constant) or 1.0
    equal = [np.append(np.ones(n), -busy), np.append(row.under, row.under_constant) / scale]
    rhs = [0.0, 1.0]
    others = [r for i, r in enumerate(rows) if i != at and r.name in values]
    for r in others:
        c, b = r.equation(values[r.name])
        equal.append(np.append(c, -b))
        rhs.append(0.0)
    floors = _floors(others)
    less = None if floors is None else np.hstack([floors[0], -floors[1][:, None]])
    limit = None if floors is None else np.zeros(len(floors[1]))
    cost = np.append(row.over, row.over_constant) / over_scale
    ends = []
    for sign in (1.0, -1.0):
        x = _linear(sign * cost, np.stack(equal), np.array(rhs), None, less, limit)
        if x is None:
            return None
        ends.append(float(cost @ x) * over_scale / scale)
    return min(ends), max(ends)


def _inside(value: float, low: float, high: float) -> float:
    """The value in few digits, within [low, high]."""
    value = min(max(value, low), high)
    for digits in (4, 5, 6, 8, 10, 12):
        near = float(f"{value:.{digits - 1}e}")
        step = 10.0 ** (math.floor(math.log10(abs(value))) - digits + 1) if value else 0.0
        for tried in (near, near + step, near - step):
            said = float(f"{tried:.{digits - 1}e}")
            if low <= said <= high:
                return said
    return value


def _nearest(problem: _Problem) -> dict[str, float] | None:
    """Possible values of all prescribed metrics, with the least sum of relative changes."""
    rows = problem.rows
    n, m = len(problem.table), len(rows)
    if n == 0 or m == 0:
        return None
    typical = [r.typical for r in rows]
    x: Vector | None = None
    for _ in range(3):
        # Per metric two slacks, more and less; the cost of one is its change of the metric, in parts of the wish.
        equal = np.zeros((1 + m, n + 2 * m))
        rhs = np.zeros(1 + m)
        equal[0, :n], rhs[0] = 1.0, 1.0 - problem.wish.pace
        for i, r in enumerate(rows):
            size = abs(r.value) or float(np.abs(r.over).max(initial=0.0)) / (typical[i] or 1.0) or 1.0
            scale = size * (typical[i] or 1.0)
            equal[1 + i, :n] = (r.over - r.value * r.under) / scale
            rhs[1 + i] = (r.value * r.under_constant - r.over_constant) / scale
            equal[1 + i, n + 2 * i], equal[1 + i, n + 2 * i + 1] = -1.0, 1.0
        cost = np.concatenate([np.zeros(n), np.ones(2 * m)])
        floors = _floors(rows)
        less = None if floors is None else np.hstack([floors[0], np.zeros((len(floors[1]), 2 * m))])
        found = _linear(cost, equal, rhs, None, less, None if floors is None else floors[1])
        if found is None:
            return None
        x = found[:n]
        now = [float(r.under @ x) + r.under_constant for r in rows]
        if all(abs(a - b) <= 1e-3 * abs(a) for a, b in zip(now, typical, strict=True)):
            break
        typical = [d if d > 0 else old for d, old in zip(now, typical, strict=True)]
    assert x is not None
    gives = {}
    for r in rows:
        d = float(r.under @ x) + r.under_constant
        if d <= 0:
            return None
        gives[r.name] = (float(r.over @ x) + r.over_constant) / d
    kept = {
        r.name: r.value
        for r in rows
        if abs(gives[r.name] - r.value) <= 1e-5 * (abs(r.value) or float(np.abs(r.over).max(initial=0.0)) or 1.0)
    }
    # What changes is said in few digits, one after the other, each within what the ones before leave it.
    for i, r in enumerate(rows):
        if r.name in kept:
            continue
        span = _range(rows, i, kept, 1 - problem.wish.pace)
        if span is None:
            kept[r.name] = gives[r.name]
            continue
        low, high = span
        margin = 1e-6 * (high - low)
        kept[r.name] = _inside(gives[r.name], low + margin, high - margin)
    return kept


def reachable(problem: _Problem) -> dict[str, tuple[float, float] | None]:
    """Of each prescribed metric, its range while the others hold."""
    values = {r.name: r.value for r in problem.rows}
    return {r.name: _range(problem.rows, i, values, 1 - problem.wish.pace) for i, r in enumerate(problem.rows)}


def _g(value: float) -> str:
    return f"{value:.6g}" if abs(value) > 1e-12 else "0"


def _impossible(problem: _Problem) -> ImpossibleError:
    ranges = reachable(problem)
    values = _nearest(problem)
    nearest = dataclasses.replace(problem.wish, metrics=values) if values is not None else None
    asked = ", ".join(f"{r.name} = {_g(r.value)}" for r in problem.rows)
    said = "; ".join(
        f"{name} {_g(span[0])} to {_g(span[1])}" if span else f"{name} none" for name, span in ranges.items()
    )
    message = f"{problem.wish.name}: no mix of the kernels gives {asked}"
    if len(ranges) > 1:
        message += f"; possible while the others hold: {said}"
    else:
        message += f"; possible: {said}"
    hint = ""
    if values is not None:
        hint = "the nearest that is possible: " + ", ".join(f"{k} = {v!r}" for k, v in sorted(values.items()))
    return ImpossibleError(message, hint, ranges, nearest)


# ------------------------------------------------------------------ many kernels share the work


def _spread(
    equal: NDArray[np.float64], rhs: Vector, weight: Vector, most: float, start: Vector | None = None
) -> Vector | None:
    """The x of least sum (x - start)^2 / weight with equal @ x = rhs and 0 <= x <= most; None where Newton fails.

    In the dual there is one number l an equation, x = clip(start + weight * (l @ equal), 0, most), and what is to be
    least is convex and piecewise quadratic.
    """
    centre = np.zeros(len(weight)) if start is None else start
    norm = np.sqrt((equal**2 * weight).sum(axis=1))
    norm[norm == 0] = 1.0
    a, b = equal / norm[:, None], rhs / norm

    def at(dual: Vector) -> tuple[Vector, float, Vector]:
        z = dual @ a
        x = np.clip(centre + weight * z, 0.0, most)
        return x, float((z * x - (x - centre) ** 2 / (2 * weight)).sum() - b @ dual), a @ x - b

    dual = np.zeros(len(b))
    x, value, slope = at(dual)
    damping = 1e-12
    for _ in range(300):
        if float(np.abs(slope * norm).max()) <= 1e-9:
            return x
        free = (x > 0) & (x < most)
        h = (a[:, free] * weight[free]) @ a[:, free].T
        size = max(float(np.trace(h)), 1e-6)
        step = -np.linalg.solve(h + damping * size * np.eye(len(b)), slope)
        descent = float(slope @ step)
        length = 1.0
        for _ in range(40):
            tried = at(dual + length * step)
            if tried[1] <= value + 1e-4 * length * descent:
                break
            # Beside the least, values no longer tell steps apart but slopes do.
            if float(np.abs(tried[2]).max()) < 0.5 * float(np.abs(slope).max()):
                break
            length /= 2
        else:
            if damping > 1e3:
                return None
            damping *= 1e3
            continue
        dual = dual + length * step
        x, value, slope = tried
        damping = max(damping / 10, 1e-12)
    return x if float(np.abs(slope * norm).max()) <= 1e-6 else None


def _jitter(n: int, seed: int) -> Vector:
    """n numbers in [1/2, 3/2), by splitmix64: another seed is another program of the same behaviour."""
    z = (np.arange(1, n + 1, dtype=np.uint64) + np.uint64(seed)) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    return 0.5 + (z >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _weights(table: Table, seed: int) -> Vector:
    """By kernel, not by variant: one with many variants is to have no more of the time than one with few."""
    count = np.bincount(table.kernel_of, minlength=len(table.kernels))
    return _jitter(len(table), seed) / count[table.kernel_of]


def _variety(problem: _Problem, most: float, price: Vector, floor: float, free_kernels: int) -> Vector | None:
    """An x in which as many kernels as can have a part of `floor`, at the least price; at most `free_kernels` of it
    are paid for."""
    table = problem.table
    n = len(table)
    used = np.unique(table.kernel_of)
    k = len(used)
    equal, rhs = problem.equations()
    equal = np.hstack([equal, np.zeros((len(rhs), k))])
    # z <= sum of its kernel's parts; the sum of all z is worth something up to the number of kernels wanted.
    less = np.zeros((k + 1, n + k))
    at = np.searchsorted(used, table.kernel_of)
    less[at, np.arange(n)] = -1.0
    less[np.arange(k), n + np.arange(k)] = 1.0
    limit = np.zeros(k + 1)
    less[k, n:] = 1.0
    limit[k] = floor * min(free_kernels, k)
    floors = _floors(problem.rows)
    if floors is not None:
        less = np.vstack([less, np.hstack([floors[0], np.zeros((len(floors[1]), k))])])
        limit = np.append(limit, floors[1])
    upper = np.concatenate([np.full(n, most), np.full(k, floor)])
    cost = np.concatenate([price, np.full(k, -1.0 / floor)])
    x = _linear(cost, equal, rhs, None, less, limit, upper)
    return None if x is None else np.where(x[:n] > 1e-9, x[:n], 0.0)


def _most_share(problem: _Problem) -> float | None:
    """The least bound on a variant's part that is possible, at least the wish's; None where no bound is."""
    wish = problem.wish.most_share
    if _any(problem, wish) is not None:
        return wish
    if _any(problem) is None:
        return None
    low, high = wish, 1.0
    for _ in range(12):
        middle = (low + high) / 2
        if _any(problem, middle) is None:
            low = middle
        else:
            high = middle
    return min(1.0, high * 1.01)


def _by_kernel(table: Table, gain: Vector) -> NDArray[np.intp]:
    """Variants with a gain: each kernel's best first, the greatest gain leading, then the second best, …"""
    order = np.lexsort((-gain, table.kernel_of))
    first = np.flatnonzero(np.diff(table.kernel_of[order], prepend=-1))
    rank = np.empty(len(table), dtype=np.int64)
    rank[order] = np.arange(len(order)) - np.repeat(first, np.diff(np.append(first, len(order))))
    ranked = np.lexsort((-gain, rank))
    return ranked[gain[ranked] > 0]


def _select(problem: _Problem, most: float) -> tuple[NDArray[np.intp], Vector]:
    """Variants enough for the wish, for many kernels and for variety, within the memory; and an x on them.

    Raises:
        UsageError: the memory does not suffice.
    """
    wish, table = problem.wish, problem.table
    cap = wish.memory_mib * MIB
    volumes = table.volume_bytes
    typical_s = float(np.median(problem.seconds))
    number = int(min(_MOST_VARIANTS, max(wish.run_time_s / typical_s / _CALLS_EACH, 1.25 * wish.least_kernels + 8)))
    used = len(np.unique(table.kernel_of))
    floor = min(0.01, 0.5 / used)
    base_price = volumes / cap
    price = base_price
    best: Vector | None = None
    chosen: Vector | None = None
    targets = [max(wish.least_kernels, min(used, number))] + [wish.least_kernels] * 3
    # What is used a little costs as much memory as what is used a lot, so its price is raised: reweighting after
    # Candes, Wakin and Boyd (2008).
    for round_, kernels in enumerate(targets + [0] * 4):
        x = _variety(problem, most, price * 0.1 * 4.0**round_, floor, kernels)
        if x is None:
            break
        if best is None or volumes[x > 0].sum() < volumes[best > 0].sum():
            best = x
        if volumes[x > 0].sum() <= cap:
            chosen = x
            break
        price = base_price * floor / (x + 0.1 * floor)
    if chosen is None:
        if best is None:
            raise MeshmarkError(f"{wish.name}: the linear program of the selection failed")
        least = math.ceil(float(volumes[best > 0].sum()) / MIB)
        raise UsageError(
            f"{wish.name}: memory_mib: found {wish.memory_mib:g}; the least found for this wish is {least}"
        )
    weight = _weights(table, wish.seed)
    full = _spread(*problem.equations(), weight, most)
    picked: list[int] = [int(i) for i in np.flatnonzero(chosen)]
    taken = float(volumes[picked].sum())
    if full is not None:
        # In turns by share of the time and by share of each prescribed sum, so that none hangs on a few variants:
        # then it would be as coarse as their calls.
        cheap = full / (1 + volumes / (0.02 * cap))
        lists = [_by_kernel(table, cheap)] + [_by_kernel(table, cheap * np.abs(r.over)) for r in problem.rows]
        have = {int(i) for i in picked}
        at = [0] * len(lists)
        while len(picked) < number and any(i < len(one) for i, one in zip(at, lists, strict=True)):
            for turn, one in enumerate(lists):
                while at[turn] < len(one):
                    i = int(one[at[turn]])
                    at[turn] += 1
                    if i not in have and taken + volumes[i] <= 0.98 * cap:
                        have.add(i)
                        picked.append(i)
                        taken += float(volumes[i])
                        break
    which = np.sort(np.array(picked, dtype=np.intp))
    return which, chosen[which]


def _balanced(problem: _Problem, most: float, fallback: Vector, least_kernels: int, seed: int) -> Vector:
    """The spread solution, mixed with one of more kernels where it has too few."""
    x = _spread(*problem.equations(), _weights(problem.table, seed), most)
    if x is None or any(
        not r.pinned and float(r.under @ x) < 0.5 * _LEAST_DENOMINATOR * float(r.under.max()) for r in problem.rows
    ):
        return fallback

    def kernels(y: Vector) -> int:
        calls = y * problem.wish.run_time_s / problem.seconds
        return len(np.unique(problem.table.kernel_of[calls >= 1]))

    for part in (0.25, 0.5, 0.75):
        if kernels(x) >= least_kernels or kernels(fallback) <= kernels(x):
            break
        # A mixture of two solutions is a solution.
        mixed = (1 - part) * x + part * fallback
        if kernels(mixed) >= least_kernels or part == 0.75:
            return mixed
    return x


# ------------------------------------------------------------------ whole calls


def _whole_calls(problem: _Problem, x: Vector) -> tuple[NDArray[np.int64], float]:
    """Whole numbers of calls, at least one each, and the largest relative error of a prescribed sum."""
    equal, rhs = problem.equations()
    seconds, run_time = problem.seconds, problem.wish.run_time_s
    # Now that x is known, so is every denominator: errors are relative ones, in truth.
    actual = [float(r.under @ x) + r.under_constant for r in problem.rows]
    scale = np.array(
        [1.0, *(r.typical / d if d > 0 and r.value else 1.0 for r, d in zip(problem.rows, actual, strict=True))]
    )
    equal, rhs = equal * scale[:, None], rhs * scale
    # A sum of a few large calls can be no better than they are: it must not spoil the others.
    trust = np.array([1.0, *(1 / (1 + _quantum(r, seconds, x, run_time) / _GRANULARITY) for r in problem.rows)])
    equal, rhs = equal * trust[:, None], rhs * trust
    per_call = equal * (seconds / run_time)  # what one call adds to each equation
    calls = np.maximum(1, np.rint(x * run_time / seconds)).astype(np.int64)
    off = per_call @ calls - rhs
    # One call more or less of one variant or of two: time alone cannot be mended without the rates.
    moves = np.hstack([per_call, -per_call])
    n = len(calls)
    for _ in range(200):
        size = float(off @ off)
        open_ = np.concatenate([np.arange(n), n + np.flatnonzero(calls > 2)])
        some = moves[:, open_]
        alone = (some**2).sum(axis=0) + 2 * off @ some
        both = alone[:, None] + alone[None, :] + 2 * some.T @ some
        i, j = divmod(int(both.argmin()), len(open_))
        single = int(alone.argmin())
        chosen = [open_[single]] if alone[single] <= both[i, j] else [open_[i], open_[j]]
        if min(float(alone[single]), float(both[i, j])) >= -1e-3 * size:
            break
        for k in chosen:
            calls[k % n] += 1 if k < n else -1
        off = per_call @ calls - rhs
    for _ in range(3):
        if float(np.abs(off).max()) <= _CLOSE:
            break
        change = _exchange(per_call, off, calls)
        if change is None:
            break
        before = float(off @ off)
        calls += change
        off = per_call @ calls - rhs
        if float(off @ off) > 0.5 * before:
            break
    return calls, float(np.abs(off / trust).max())


def _quantum(row: _Row, seconds: Vector, x: Vector, run_time: float) -> float:
    """The mean call that a metric's sum is made of, as a part of the sum, weighted by what it brings."""
    brings = np.abs(row.over) * x
    total = float(brings.sum())
    return float(brings @ (np.abs(row.over) * seconds)) / total**2 / run_time if total else 0.0


def _exchange(per_call: NDArray[np.float64], off: Vector, calls: NDArray[np.int64]) -> NDArray[np.int64] | None:
    """The change of up to four calls that brings the sums nearest to what they should be; None where none is better.

    Two moves, each of them a call more, a call less or one for another, are met in the middle: all single moves are in
    a tree, which is asked for what each of them lacks.
    """
    from scipy.spatial import cKDTree

    some = np.linspace(0, per_call.shape[1] - 1, _EXCHANGED // len(off)).astype(np.intp)
    few = np.unique(np.argsort(per_call, axis=1, kind="stable")[:, some])  # of every size in every sum
    n = len(few)
    p = per_call[:, few]
    giver = np.flatnonzero(calls[few] > 2)  # may lose two
    plus = np.concatenate([np.full(1, -1), np.arange(n), np.full(len(giver), -1), np.repeat(np.arange(n), len(giver))])
    minus = np.concatenate([np.full(1, -1), np.full(n, -1), giver, np.tile(giver, n)])
    padded = np.hstack([p, np.zeros((len(off), 1))])  # index -1: no call
    moves = (padded[:, plus] - padded[:, minus]).T
    now = float(np.sqrt(off @ off))
    found = cKDTree(moves).query(-off - moves, distance_upper_bound=now)
    distance, other = np.asarray(found[0]), np.asarray(found[1])
    at = int(np.argmin(distance))
    if not distance[at] < now:
        return None
    change = np.zeros(len(calls), dtype=np.int64)
    for move in (at, int(other[at])):
        if plus[move] >= 0:
            change[few[plus[move]]] += 1
        if minus[move] >= 0:
            change[few[minus[move]]] -= 1
    return change


def _sums(table: Table, wish: Prescription, metrics: Metrics) -> dict[str, Vector]:
    """What must grow evenly: numerators and denominators of the prescribed metrics, of one call each."""
    out: dict[str, Vector] = {}
    for name in sorted(wish.metrics):
        over, under = _parts_of(metrics[name])
        out[name] = over.of(table.columns)
        if under.factors and under.times(Linear({"wall_s": 1.0})) is None:
            out[f"{name} (denominator)"] = under.of(table.columns)
    return {k: v for k, v in out.items() if v.any()}


def _finish(
    problem: _Problem,
    x: Vector,
    metrics: Metrics,
    own: Metrics,
    machine: str,
    versions: Mapping[str, str],
    phases: Vector | None,
    calibrations: int,
    notes: list[str],
) -> Program:
    wish = problem.wish
    calls, error = _whole_calls(problem, x)
    sums = _sums(problem.table, wish, metrics)
    found, even = best_phases(calls.tolist(), problem.seconds, sums, start=phases)
    if error > _GRANULARITY:
        notes.append(f"calls are whole, so sums are up to {100 * error:.2g} % off; a longer run_time_s is closer")
    if even.worst > PLAIN:
        worst = max(even.worst_deviation, key=lambda k: even.worst_deviation[k])
        notes.append(
            f"{worst} strays up to {100 * even.worst:.2g} % of its total from the straight line; "
            "a longer run_time_s is more even"
        )
    serial = problem.table.columns["serial_s"]
    parts = tuple(
        Part(dataclasses.replace(v, serial_s=float(s) if math.isfinite(s) else None), int(n), float(p))
        for v, s, n, p in zip(problem.table.variants, serial, calls, found, strict=True)
    )
    program = Program(
        prescription=wish,
        parts=parts,
        uniformity=even,
        machine=machine,
        versions=dict(versions),
        own_metrics={k: m for k, m in own.items() if k in wish.metrics},
        calibrations=calibrations,
    )
    if len(program.kernels) < wish.least_kernels:
        notes.append(
            f"{len(program.kernels)} kernels share the work, not {wish.least_kernels}: "
            "no more fit the prescription and its memory_mib"
        )
    top = max(parts, key=lambda p: p.calls * p.variant.wall_s)
    share = top.calls * top.variant.wall_s / wish.load_balance / wish.run_time_s
    if share > wish.most_share * 1.05:
        notes.append(f"{top.variant.name} has {100 * share:.0f} % of the time: the prescription needs so much of it")
    return dataclasses.replace(program, notes=tuple(notes))


# ------------------------------------------------------------------ public


def _problem(variants: Sequence[Variant], wish: Prescription, metrics: Metrics) -> tuple[_Problem, float, list[str]]:
    """The equations on the usable variants, and the largest part of one; ImpossibleError where there is no solution."""
    for name, value in (("run_time_s", wish.run_time_s), *sorted(wish.metrics.items())):
        if not math.isfinite(value) or name not in ("run_time_s", *metrics):
            raise UsageError(f"{wish.name}: {name}: found {value}; allowed are finite values of known metrics")
    table = Table(variants, wish.load_balance)
    usual, special = _usable(table, wish, metrics)

    def on(which: NDArray[np.intp]) -> _Problem:
        part = table.only(which)
        return _Problem(part, _rows(part, wish, metrics), wish)

    notes: list[str] = []
    whole = on(usual)
    problem = _presolved(whole)
    most = _most_share(problem)
    if most is None and len(special):
        whole = on(np.sort(np.concatenate([usual, special])))
        problem = _presolved(whole)
        most = _most_share(problem)
        if most is not None:
            notes.append("kernels of the system or idle ones are in it: without them the prescription is impossible")
    if most is None:
        raise _impossible(whole)
    return problem, most, notes


def synthesize(
    variants: Sequence[Variant],
    wish: Prescription,
    *,
    own_metrics: Metrics | None = None,
    machine: str = "",
    versions: Mapping[str, str] | None = None,
) -> Program:
    """A program that is planned to behave as prescribed.

    Args:
        variants: base data; those of other numbers of threads are ignored. `idle` and `system` kernels, and those that
            do I/O, are used only where a prescribed metric is about such things, `kernels` names them, or nothing else
            would do.
        own_metrics: users' (`parse_metrics`).
        machine: whose base data these are.
        versions: of the kernels, by name.

    Returns:
        The program; its `notes` say what fell short (granularity, number of kernels, evenness), if anything.

    Raises:
        ImpossibleError: no mix gives this; says the ranges and the nearest possible wish.
        UsageError: a key leaves no variant, by its name.
    """
    own = own_metrics or {}
    metrics = all_metrics(own)
    problem, most, notes = _problem(variants, wish, metrics)
    which, fallback = _select(problem, most)
    small = problem.only(which)
    x = _balanced(small, most, fallback, wish.least_kernels, wish.seed)
    for _ in range(4):
        # A variant with next to no calls takes memory and comes in lumps.
        few = (x * wish.run_time_s / small.seconds < 2) & (x < 0.01)
        if not few.any():
            break
        kept = np.flatnonzero(~few)
        fewer = small.only(kept)
        tried = _spread(*fewer.equations(), _weights(fewer.table, wish.seed), most)
        if tried is None or len(np.unique(fewer.table.kernel_of)) < min(
            wish.least_kernels, len(np.unique(small.table.kernel_of[x * wish.run_time_s / small.seconds >= 1]))
        ):
            # The equations need them: what is not used at all goes nevertheless.
            kept = np.flatnonzero(x * wish.run_time_s / small.seconds >= 0.5)
            small, x = small.only(kept), x[kept]
            break
        small, x = fewer, tried
    return _finish(small, x, metrics, own, machine, versions or {}, None, 0, notes)


def explain(
    variants: Sequence[Variant], wish: Prescription, *, own_metrics: Metrics | None = None
) -> dict[str, tuple[float, float] | None]:
    """Of each prescribed metric, what is reachable while the others hold; also of an impossible wish.

    Raises:
        UsageError: a key leaves no variant, by its name.
    """
    metrics = all_metrics(own_metrics)
    table = Table(variants, wish.load_balance)
    part = table.only(_usable(table, wish, metrics)[0])
    return reachable(_Problem(part, _rows(part, wish, metrics), wish))


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What a run of a program took. Give `per_call_s` where the executor measured it, else the totals only."""

    wall_s: float  # of all calls
    cpu_s: float | None = None  # sum of the threads
    per_call_s: Mapping[str, float] | None = None  # mean wall seconds of one call in the sequence, by variant


@dataclass(frozen=True, slots=True)
class Calibration:
    program: Program
    error: float  # of the run that was measured: wall over prescribed, less 1
    settled: bool  # the error is within the floor, and the program was left as it was


def recalibrate(program: Program, measured: Measured, *, damping: float = 0.7, floor: float = 0.0) -> Calibration:
    """The same variants with other numbers of calls, by times measured in context instead of each kernel alone.

    In a mix every call finds the caches as others left them, so that base data are a quarter to a half off. Times move
    by `damping` of the way to the measured ones, because a measurement is noisy too, and numbers of calls as little as
    the prescription allows. Rates are counts over time: right times make right rates.

    Args:
        damping: 1 takes the measured times as they are.
        floor: repeatability of the machine, relative; an error within it is noise.

    Raises:
        ImpossibleError: with these times the chosen variants cannot do it; synthesize again with them.
        UsageError: a time is no time.
    """
    wish = program.prescription

    def time(value: float, what: str) -> float:
        if not (math.isfinite(value) and value > 0):
            raise UsageError(f"{wish.name}: {what}: found {value}; allowed is a time > 0")
        return value

    if not 0 < damping <= 1:
        raise UsageError(f"{wish.name}: damping: found {damping}; allowed is a number above 0, at most 1")
    error = time(measured.wall_s, "wall_s") / wish.run_time_s - 1
    if abs(error) <= floor:
        return Calibration(program, error, True)
    totals = program.totals()
    all_wall = measured.wall_s / totals["wall_s"]
    all_cpu = (
        time(measured.cpu_s, "cpu_s") / totals["cpu_s"] if measured.cpu_s is not None and totals["cpu_s"] else all_wall
    )
    per_call = measured.per_call_s or {}
    names = {p.variant.name for p in program.parts}
    for name in per_call:
        if name not in names:
            raise UsageError(f"{wish.name}: measured {name!r}, which is not in the program")
    variants = []
    for p in program.parts:
        v = p.variant
        wall = cpu = all_wall
        if v.name in per_call:
            wall = time(per_call[v.name], v.name) / (v.wall_s / wish.load_balance)
        cpu = wall * all_cpu / all_wall
        moved: dict[str, Any] = {
            "wall_s": v.wall_s * (1 + damping * (wall - 1)),
            "cpu_s": v.cpu_s * (1 + damping * (cpu - 1)),
            "system_s": v.system_s * (1 + damping * (cpu - 1)),
            "wall_interval_s": None,
        }
        variants.append(dataclasses.replace(v, **moved))
    metrics = all_metrics(program.own_metrics)
    table = Table(variants, wish.load_balance)
    problem = _Problem(table, _rows(table, wish, metrics), wish)
    before = np.array([p.calls for p in program.parts], dtype=np.float64) * table.columns["wall_s"] / wish.run_time_s
    before *= (1 - wish.pace) / before.sum()
    most = max(wish.most_share, float(before.max()) * 1.2)
    # Weighted by what they have, so that all change by similar factors and none vanishes.
    x = _spread(*problem.equations(), np.maximum(before, 1e-9), most, before)
    if x is None:
        x = _any(problem)
    if x is None:
        raise _impossible(problem)
    phases = np.array([p.phase for p in program.parts])
    notes = [n for n in program.notes if n.startswith("kernels of the system")]
    made = _finish(
        problem,
        x,
        metrics,
        program.own_metrics,
        program.machine,
        program.versions,
        phases,
        program.calibrations + 1,
        notes,
    )
    return Calibration(made, error, False)
