"""Methods of tests by computation, from the numbers that publications print and from statistics."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, reduce
from itertools import combinations
from typing import Any, Final

from meshmark.errors import MeshmarkError
from meshmark.machine.published.reference import PublishedNumber, publication
from meshmark.statistics.geometric import rounded
from meshmark.store.record import median, median_rank
from meshmark.validation.claims.judging import Effect, exact
from meshmark.validation.claims.modelled import explained
from meshmark.validation.claims.registry import method

XEON: Final = "xeon_5500_lsf_2009"
E325: Final = "eserver_325_2004"
GS1280: Final = "alphaserver_gs1280_2003"
Runs = tuple[float, ...]


@cache
def _printed(document: str) -> Mapping[str, PublishedNumber]:
    """Return the numbers of a publication by path, as printed."""
    return {e.path: e for e in publication(document).entries()}


def printed(document: str, path: str) -> RoundedNumber:
    """Return a printed number with the bounds of its rounding. A path that ends with `#2` names the third of a list.

    Raises:
        MeshmarkError: The publication does not print this number.
    """
    name, _, rest = path.rpartition("#")
    name, index = (name, int(rest)) if name else (path, 0)
    entry = _printed(document).get(name)
    if entry is None or index >= len(entry.printed):
        raise MeshmarkError(f"claims: {document}: found no number '{path}'")
    return RoundedNumber.from_printed(entry.printed[index], entry.half_digits[index])


@dataclass(frozen=True, slots=True)
class RoundedNumber:
    """A number that is not negative, and the bounds of its value before rounding."""

    value: float
    low: float
    high: float

    @staticmethod
    def from_printed(value: float, half_digit: float) -> RoundedNumber:
        """Return a number that was rounded to twice `half_digit`; its lower bound is at least 0."""
        return RoundedNumber(value, max(0.0, value - half_digit), value + half_digit)

    def times(self, other: RoundedNumber) -> RoundedNumber:
        """Return the product, with bounds that no product of numbers within the bounds exceeds."""
        return RoundedNumber(self.value * other.value, self.low * other.low, self.high * other.high)

    def over(self, other: RoundedNumber) -> RoundedNumber:
        """Return the quotient, with bounds that no quotient of numbers within the bounds exceeds."""
        return RoundedNumber(
            self.value / other.value, self.low / other.high, self.high / other.low if other.low > 0 else math.inf
        )

    def effect(self, what: str) -> Effect:
        """Return the number as the effect of a test, with its bounds as the interval."""
        return Effect(what, self.value, (self.low, self.high), rounded=self.low < self.high)


_ONE: Final = RoundedNumber(1.0, 1.0, 1.0)


def _product(document: str, paths: Sequence[str], factor: float = 1.0) -> RoundedNumber:
    return reduce(RoundedNumber.times, (printed(document, p) for p in paths), RoundedNumber(factor, factor, factor))


@method("computed")
def ratio(
    *, what: str, document: str, over: Sequence[str] = (), times: Sequence[str] = (), factor: float = 1.0
) -> list[Effect]:
    """Return a product of printed numbers over the product of other printed numbers."""
    return [_product(document, times, factor).over(_product(document, over)).effect(what)]


@method("computed")
def total(*, what: str, document: str, parts: Sequence[str], over: str = "", mean: bool = False) -> list[Effect]:
    """Return a sum, or mean, of printed numbers over another printed number."""
    terms = [printed(document, p) for p in parts]
    divisor = len(parts) if mean else 1
    value, low, high = (
        math.fsum(numbers) / divisor for numbers in zip(*((n.value, n.low, n.high) for n in terms), strict=True)
    )
    return [RoundedNumber(value, low, high).over(printed(document, over) if over else _ONE).effect(what)]


# ------------------------------------------------------------------ the ten printed runs of STREAM


def _runs(bound: bool, threads: int) -> tuple[Runs, Mapping[str, Any]]:
    """Return the totals of the ten runs in MB/s, and their table."""
    for row in publication(XEON).data["stream_run"]:
        if row["threads"] == threads and ("binding" in row["scheduler"]) == bound:
            return tuple(map(float, row["total_mb_per_s"])), row
    raise MeshmarkError(f"claims: {XEON}: found no runs with {threads} threads")


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _spread(values: Sequence[float]) -> float:
    ordered = sorted(values)
    return (ordered[-1] - ordered[0]) / ordered[0]


STATISTICS: Final[Mapping[str, Callable[[Sequence[float]], float]]] = {
    "mean": _mean,
    "best": lambda v: sorted(v)[-1],
    "worst": lambda v: sorted(v)[0],
    "median": median,
    "spread": _spread,
    "harmonic": lambda v: len(v) / math.fsum(1 / x for x in v),
}


@method("computed")
def binding(*, what: str, statistic: str, threads: Sequence[int]) -> list[Effect]:
    """Return a statistic of the ten bound runs over the same of the ten unbound runs, for each number of threads."""
    function = STATISTICS[statistic]
    return [exact(f"{what}, {n} threads", function(_runs(True, n)[0]) / function(_runs(False, n)[0])) for n in threads]


@method("computed")
def bad_runs(*, what: str, threads: int) -> list[Effect]:
    """Return the share of the gain of the mean by binding that results from runs below the best run.

    log(mean bound / mean unbound) is the sum of log(best bound / best unbound) and of a rest, by which the means are
    below the best runs. The result is the share of this rest.
    """
    bound, unbound = _runs(True, threads)[0], _runs(False, threads)[0]
    gain = math.log(_mean(bound) / _mean(unbound))
    best_gain = math.log(STATISTICS["best"](bound) / STATISTICS["best"](unbound))
    return [exact(what, 1 - best_gain / gain)]


@method("computed")
def runs(*, what: str, bound: bool, threads: int, statistic: str, over: str = "") -> list[Effect]:
    """Return a statistic of ten printed runs, or its ratio to another statistic of the same runs."""
    values = _runs(bound, threads)[0]
    return [exact(what, STATISTICS[statistic](values) / (STATISTICS[over](values) if over else 1.0))]


@method("computed")
def printed_averages(*, what: str) -> list[Effect]:
    """Return the largest difference in MB/s of a printed average of runs from the mean of its row."""
    rows = publication(XEON).data["stream_run"]
    pairs = [
        (_mean(r[f"{k}_mb_per_s"]), r[f"{k}_average_printed_mb_per_s"]) for r in rows for k in ("total", "per_core")
    ]
    return [exact(what, max(abs(a - b) for a, b in pairs))]


@method("computed")
def of_subsets(*, what: str, bound: bool, threads: int, statistic: str, small: int, large: int) -> list[Effect]:
    """Return the mean of a statistic over all choices of `large` of the ten runs, over its mean for `small` runs."""
    values, function = _runs(bound, threads)[0], STATISTICS[statistic]

    def mean(size: int) -> float:
        return _mean([function(subset) for subset in combinations(values, size)])

    return [exact(what, mean(large) / mean(small))]


@method("computed")
def normality(*, what: str, bound: bool, threads: int, level: float) -> list[Effect]:
    """Return the p-value of the Shapiro-Wilk test of ten printed runs over a level."""
    from scipy.stats import shapiro

    p = float(shapiro(_runs(bound, threads)[0]).pvalue)
    doubt = "" if p < level else f"p = {p:.2g} does not show a deviation from normality, and does not show normality"
    return [Effect(what, p / level, (p / level, p / level), doubt)]


# ------------------------------------------------------------------ tables


_DECIMALS: Final = 2  # decimals of the ratios in the SPEC MPI2007 table


def _programs(column: str) -> list[float]:
    return [float(r[column]) for r in publication(XEON).data["spec_mpi2007"]]


def _geometric(values: Sequence[float]) -> float:
    return math.exp(math.fsum(map(math.log, values)) / len(values))


def _rounded_mean(column: str) -> RoundedNumber:
    """Return the geometric mean of a column of the SPEC MPI2007 table with the bounds that its rounding allows."""
    values = _programs(column)
    return RoundedNumber(_geometric(values), *rounded(values, _DECIMALS))


@method("computed")
def composite(*, what: str, column: str) -> list[Effect]:
    """Return the geometric mean of the 13 rows of the SPEC MPI2007 table over the printed composite."""
    return [_rounded_mean(column).over(printed(XEON, f"spec_mpi2007_composite.{column}")).effect(what)]


@method("computed")
def composite_gain(*, what: str, column: str, over: str) -> list[Effect]:
    """Return the ratio of the geometric means of two columns."""
    return [_rounded_mean(column).over(_rounded_mean(over)).effect(what)]


@method("computed")
def programs_above(*, what: str, column: str, over: str, threshold: float, below: bool = False) -> list[Effect]:
    """Return the number of programs whose ratio of two columns is above, or below, a threshold."""
    ratios = [a / b for a, b in zip(_programs(column), _programs(over), strict=True)]
    return [exact(what, float(sum((r < threshold) if below else (r > threshold) for r in ratios)))]


@method("computed")
def largest_gain(*, what: str, column: str, over: str) -> list[Effect]:
    """Return the largest ratio of two columns among the programs."""
    half = 0.5 * 10.0**-_DECIMALS
    pairs = [
        (RoundedNumber.from_printed(a, half), RoundedNumber.from_printed(b, half))
        for a, b in zip(_programs(column), _programs(over), strict=True)
    ]
    return [max((a.over(b) for a, b in pairs), key=lambda ratio: ratio.value).effect(what)]


@method("computed")
def row_percentages(*, what: str) -> list[Effect]:
    """Return the largest deviation, in points, of a percentage of the SPEC MPI2007 table from its rounded ratios."""
    kinds = (("xeon_5500_8", "xeon_5400_8"), ("xeon_5500_16", "xeon_5500_8"), ("xeon_5500_16", "xeon_5400_8"))
    worst = 0.0
    for row in publication(XEON).data["spec_mpi2007"]:
        for a, b in kinds:
            ratio, base_ratio = float(row[f"{a}_processes_ratio"]), float(row[f"{b}_processes_ratio"])
            percentage = float(row[f"{a}_over_{b}_percent"])
            low = 100 * ((ratio - 0.005) / (base_ratio + 0.005) - 1) - 0.5
            high = 100 * ((ratio + 0.005) / (base_ratio - 0.005) - 1) + 0.5
            worst = max(worst, low - percentage, percentage - high)
    return [exact(what, worst)]


@method("computed")
def mean_of_ratios(*, what: str, column: str, over: str, geometric: bool) -> list[Effect]:
    """Return the mean of A over B times the mean of B over A: 1 if the mean does not depend on the reference."""
    a, b = _programs(column), _programs(over)
    mean = _geometric if geometric else _mean
    forward = mean([x / y for x, y in zip(a, b, strict=True)])
    return [exact(what, forward * mean([y / x for x, y in zip(a, b, strict=True)]))]


@method("computed")
def kernels(*, what: str, stream: str = "", statistic: str, behaviour: Sequence[str]) -> list[Effect]:
    """Return a statistic (best rate or median spread) of one kind of Linux kernels over the same of another kind."""
    rows = publication(E325).data["kernel_result"]
    streams = [stream] if stream else ["copy", "scale", "add", "triad"]
    key = "max_mb_per_s" if statistic == "best" else "spread_percent"
    function = STATISTICS[statistic]
    first, second = (
        function([float(r[f"{s}_{key}"]) for r in rows if r["behaviour"] == b for s in streams]) for b in behaviour
    )
    return [exact(what, first / second)]


def _figure_13() -> list[list[float]]:
    table = publication(GS1280).data["latency"]["remote_clean_16_cpus"]
    return [list(map(float, table[f"row_{y}_ns"])) for y in range(4)]


@method("computed")
def printed_hops(*, what: str, statistic: str) -> list[Effect]:
    """Return a statistic of the printed latencies of 16 CPUs from node 0.

    It is the variance that a `line` over hops explains, or the `worst` over the local latency.
    """
    rows = _figure_13()
    pairs = [(float(min(x, 4 - x) + min(y, 4 - y)), v) for y, row in enumerate(rows) for x, v in enumerate(row)]
    if statistic == "line":
        return [exact(what, explained([p for p in pairs if p[0]]))]
    return [exact(what, sorted(v for _, v in pairs)[-1] / rows[0][0])]


# ------------------------------------------------------------------ statistics


@method("computed")
def fewest_samples(*, what: str, confidence: float) -> list[Effect]:
    """Return the fewest samples with an interval of the median of this confidence, for any distribution."""
    return [exact(what, float(next(n for n in range(1, 1000) if median_rank(n, confidence) >= 1)))]


@method("computed")
def coverage(*, what: str, samples: Sequence[int]) -> list[Effect]:
    """Return the lowest probability, over numbers of samples, that the order-statistic interval contains the median."""

    def probability(n: int) -> float:
        k = median_rank(n)
        return 1 - 2 * math.fsum(math.comb(n, i) / 2.0**n for i in range(k))

    return [exact(what, min(probability(n) for n in range(samples[0], samples[1] + 1)))]


@method("computed")
def false_alarms(*, what: str, comparisons: int, level: float) -> list[Effect]:
    """Return the probability of at least one false difference among independent comparisons."""
    return [exact(what, 1 - (1 - level) ** comparisons)]


@method("computed")
def rates(*, what: str) -> list[Effect]:
    """Return the arithmetic mean of the rates of two equal parts of work, 1 and 4, over total work divided by time."""
    return [exact(what, _mean([1.0, 4.0]) / STATISTICS["harmonic"]([1.0, 4.0]))]


@method("computed")
def best_of_gain(*, what: str, threads: Sequence[int]) -> list[Effect]:
    """Return the gain of binding in the best of ten runs over its gain in the mean, for each number of threads."""
    best, mean = STATISTICS["best"], STATISTICS["mean"]

    def gain(of: Callable[[Sequence[float]], float], n: int) -> float:
        return of(_runs(True, n)[0]) / of(_runs(False, n)[0]) - 1

    return [exact(f"{what}, {n}", gain(best, n) / gain(mean, n)) for n in threads]
