"""Simulates how often `meshmark experiment` reports equal settings as different, and how many pairs it needs.

    .venv/bin/python bench/experiment.py                     # all tables, a minute of CPU time
    .venv/bin/python bench/experiment.py --count 200 aa      # one of them, coarser: aa, power, equal, spread

A model of a machine gives the times of both runs of each pair. All experiments of a row are computed at once; the
first ones are also given to `meshmark.experiments.experiment.Experiment`, which decides as the command does, and must
agree. Three rules that test the same pairs after each one, from the eighth on, are compared: the t-test of the
log-ratios at 5 %, which assumes one test; the same for the means of both settings, without pairs; and the rule of
Meshmark.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from results import add_row, bench_parser, recording

from meshmark.experiments.experiment import Experiment, ExperimentPlan, ExperimentRun, order
from meshmark.statistics import sequential

Array = NDArray[np.float64]
Bools = NDArray[np.bool_]
Noise = Callable[[np.random.Generator, tuple[int, ...]], Array]

FIRST = 8  # pairs before the first t-test, the minimum of Meshmark
MARGIN = 0.02
CHECKED = 10  # experiments of a row that are computed as the command does
WORDS = ("higher", "lower", "equal", "inconclusive")


def gaussian(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Return standard normal noise of a shape."""
    return rng.normal(0, 1, shape)


def heavy(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Return noise with Student's t distribution and 2 degrees of freedom: infinite variance, frequent outliers."""
    return rng.standard_t(2, shape)


def skewed(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Return disturbances that only lengthen runs."""
    return rng.exponential(1, shape)


def bimodal(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Return noise in which three runs of ten are slower by twice the scale; both vary by a fifth of it."""
    return rng.normal(0, 0.2, shape) + 2 * (rng.random(shape) < 0.3)


NOISES: dict[str, Noise] = {"Gaussian": gaussian, "heavy tails": heavy, "skewed": skewed, "bimodal": bimodal}


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine whose run times have a logarithm that consists of noise, drift and states.

    Attributes:
        drift: Difference between the first and the last run.
        states: Added in a state that begins and ends at random and lasts 20 runs on average.
        wider: Factor of the noise of B.
    """

    noise: Noise
    scale: float
    drift: float = 0.0
    states: float = 0.0
    wider: float = 1.0

    def logs(self, effect: float, pairs: int, count: int, seed: int = 1) -> tuple[Array, NDArray[np.int64]]:
        """Return the logarithms of the times of A and B, shape (2, count, pairs), and the place of B in each pair.

        The place is 0 or 1.
        """
        rng = np.random.default_rng(seed)
        noise = self.scale * self.noise(rng, (count, pairs, 2))
        trend = self.drift * np.linspace(0, 1, 2 * pairs).reshape(pairs, 2)
        slow = np.cumsum(rng.random((count, 2 * pairs)) < 1 / 20, axis=1) % 2
        centre = trend + self.states * slow.reshape(count, pairs, 2)
        place = np.array([[order(n, k).index("b") for k in range(pairs)] for n in range(count)])
        placed_logs = np.stack([1 - place, place])

        def of(values: Array) -> Array:
            return np.stack([np.take_along_axis(values, c[..., None], 2)[..., 0] for c in placed_logs])

        factors, effects = np.array([1.0, self.wider]), np.array([0.0, effect])
        noise, centre = of(noise), of(np.broadcast_to(centre, noise.shape))
        return noise * factors[:, None, None] + centre + effects[:, None, None], place


@dataclass(frozen=True, slots=True)
class Told:
    """The outcomes of experiments, one value each.

    Attributes:
        word: Index in WORDS.
        pairs: Number of pairs used.
        outside: Whether the interval would ever have missed the true ratio if the experiment had continued.
    """

    word: NDArray[np.int64]
    pairs: NDArray[np.int64]
    outside: Bools

    def percent(self, *words: str) -> float:
        """Return the share of comparisons with one of these words, in percent."""
        return float(100 * np.isin(self.word, [WORDS.index(w) for w in words]).mean())

    def share(self, *words: str) -> str:
        """Return `percent` as text."""
        return f"{self.percent(*words):.1f} %"


def excluded(x: Array, point: float) -> Bools:
    """Return whether the interval is above a point, after each pair of each experiment; shape (count, pairs)."""
    count, pairs = x.shape
    logs = np.zeros((len(sequential.STAKES), count))
    effects = np.zeros((count, pairs), bool)
    upper = np.triu_indices(sequential.WINDOW, 1)
    needed = math.log(2 / (1 - sequential.CONFIDENCE))
    for n in range(pairs):
        deviation = x[:, n] - point
        scale = np.zeros(count)
        if n >= sequential.KNOWN:
            last = x[:, max(0, n - sequential.WINDOW) : n]
            i, j = upper if n >= sequential.WINDOW else np.triu_indices(n, 1)
            scale = 1.048 * np.median(np.abs(last[:, i] - last[:, j]), axis=1)
        for k, (multiple, _) in enumerate(sequential.STAKES):
            with np.errstate(divide="ignore", invalid="ignore"):
                nearness = np.clip(multiple * deviation / scale, -sequential.LIMIT, sequential.LIMIT)
            y = np.where(scale > 0, nearness, sequential.FIRST * np.sign(deviation))
            logs[k] += math.log(2) - np.log1p(np.exp(-2 * y))
        wealth = sum(share * np.exp(logs[k]) for k, (_, share) in enumerate(sequential.STAKES))
        effects[:, n] = np.log(wealth) >= needed
    return effects


def experiments(machine: Machine, effect: float, pairs: int, count: int) -> Told:
    """Return the outcomes of experiments of at most `pairs` pairs whose true ratio is e^effect."""
    logs, place = machine.logs(effect, pairs, count)
    x = logs[1] - logs[0]
    margin = math.log1p(MARGIN)
    above, below = excluded(x, 0), excluded(-x, 0)
    tie = excluded(x, -margin) & excluded(-x, -margin)
    decided = above | below | tie
    decided[:, -1] = True
    stops = decided.argmax(axis=1)
    row = np.arange(count)
    word = np.select([tie[row, stops], above[row, stops], below[row, stops]], [2, 0, 1], 3)
    outside: Bools = np.any(excluded(x, effect) | excluded(-x, -effect), axis=1)
    outcome = Told(word, stops + 1, outside)
    check(logs, place, outcome)
    return outcome


def check(logs: Array, place: NDArray[np.int64], told: Told) -> None:
    """Let `Experiment` decide the first experiments; it must reach the same outcome after the same number of pairs."""
    pairs = logs.shape[2]
    for n in range(min(CHECKED, logs.shape[1])):
        experiment = Experiment(plan(pairs, n))
        while not experiment.finished():
            k = experiment.next_pair
            for position in (0, 1):
                side = int(position == place[n, k])
                s = math.exp(logs[side, n, k])
                name = order(n, k)[position]
                experiment.add(ExperimentRun(pair=k, side=name, position=position, value=s, elapsed_s=s, spent_s=0.0))
        if (experiment.word(), len(experiment.pairs)) != (WORDS[told.word[n]], told.pairs[n]):
            raise SystemExit(
                f"experiment {n}: {experiment.word()} after {len(experiment.pairs)}, {WORDS[told.word[n]]} here"
            )


def t_tests(logs: Array) -> tuple[float, float]:
    """Return the shares of experiments that a 5 % t-test ever calls different: of log-ratios, and of both means."""
    from scipy.stats import t

    n = np.arange(1, logs.shape[2] + 1)

    def moments(v: Array) -> tuple[Array, Array]:
        mean = np.cumsum(v, axis=1) / n
        return mean, np.cumsum(v * v, axis=1) - n * mean**2

    (mean, rest), (_, a), (_, b) = moments(logs[1] - logs[0]), moments(logs[0]), moments(logs[1])
    with np.errstate(divide="ignore", invalid="ignore"):
        paired = np.abs(mean) > t.ppf(0.975, n - 1) * np.sqrt(rest / (n - 1) / n)
        unpaired = np.abs(mean) > t.ppf(0.975, 2 * n - 2) * np.sqrt((a + b) / (n - 1) / n)
    return tuple(float(v[:, FIRST - 1 :].any(axis=1).mean()) for v in (paired, unpaired))  # type: ignore[return-value]


def plan(pairs: int, seed: int) -> ExperimentPlan:
    """Return the plan of a simulated experiment with a number of pairs."""
    return ExperimentPlan(
        a="same",
        b="same",
        command=["simulated"],
        seed=seed,
        budget_s=math.inf,
        warmup=0,
        max_pairs=pairs,
        timeout_s=None,
        margin=0.02,
        pattern="",
        metric="",
        better="",
        restore="",
        run="simulated",
        started="",
    )


def table(head: tuple[str, ...]) -> Callable[[tuple[str, ...]], None]:
    """Print the head of a table, and return a function that prints a row."""

    def line(cells: tuple[str, ...]) -> None:
        print("| " + " | ".join(cells) + " |", flush=True)

    line(head)
    print("|" + "---|" * len(head))
    return line


def aa(count: int) -> None:
    """Print the rate of false differences: equal settings, at most 60 pairs."""
    row = table(("noise of a run", "called different", "equal", "interval ever without 1", "paired t-test", "unpaired"))
    for name, noise in NOISES.items():
        for scale, drift, states in ((0.05, 0.0, 0.0), (0.05, 0.05, 0.0), (0.02, 0.05, 0.0), (0.02, 0.0, 0.2)):
            machine = Machine(noise, scale, drift, states)
            outcome = experiments(machine, 0.0, 60, count)
            tests = t_tests(machine.logs(0.0, 60, count)[0])
            label = f"{name} {100 * scale:.0f} %" + (f", drift {100 * drift:.0f} %" if drift else "")
            label += f", states of {100 * states:.0f} %" if states else ""
            outside = f"{100 * outcome.outside.mean():.1f} %"
            shares = (outcome.share("higher", "lower"), outcome.share("equal"), outside)
            row((label, *shares, *(f"{100 * v:.1f} %" for v in tests)))
            add_row(
                f"equal settings called different: {label}",
                "%",
                outcome.percent("higher", "lower"),
                peer="paired t-test after every pair",
                theirs=100 * tests[0],
                limits=(None, 5),
                notes=f"equal {shares[1]}; interval ever without 1 {outside}; unpaired t-test {100 * tests[1]:.1f} %",
            )
    print()


def power(count: int) -> None:
    """Print the power for B slower by 5 %, by number of pairs, with a drift of 5 %."""
    pair_counts = (10, 15, 20, 30, 40, 60, 100)
    row = table(("noise of a run", *map(str, pair_counts), "mean pairs (at most 100)", "faster"))
    for name, noise in NOISES.items():
        for scale in (0.02, 0.05, 0.1):
            outcome = experiments(Machine(noise, scale, 0.05), math.log(1.05), pair_counts[-1], count)
            right = outcome.word == WORDS.index("higher")
            cells = [f"{100 * (right & (outcome.pairs <= look)).mean():.0f} %" for look in pair_counts]
            row((f"{name} {100 * scale:.0f} %", *cells, f"{outcome.pairs.mean():.0f}", outcome.share("lower")))
            add_row(
                f"B slower by 5 % is called different within 100 pairs: {name} {100 * scale:.0f} %",
                "%",
                100 * float(right.mean()),
                notes="; ".join(f"{n} pairs {cell}" for n, cell in zip(pair_counts, cells, strict=True))
                + f"; mean pairs {outcome.pairs.mean():.0f}; called faster {outcome.share('lower')}",
            )
    print()


def equal(count: int) -> None:
    """Print the rate of equality within 2 %: equal settings, at most 300 pairs, with a drift of 5 %."""
    row = table(("noise of a run", "called equal", "different", "mean pairs"))
    for scale in (0.01, 0.02, 0.05):
        outcome = experiments(Machine(gaussian, scale, 0.05), 0.0, 300, count)
        add_row(
            f"equal settings called equal within a margin of 2 %: Gaussian {100 * scale:.0f} %",
            "%",
            outcome.percent("equal"),
            notes=f"different {outcome.share('higher', 'lower')}, after {outcome.pairs.mean():.0f} pairs on average",
        )
        row(
            (
                f"Gaussian {100 * scale:.0f} %",
                outcome.share("equal"),
                outcome.share("higher", "lower"),
                f"{outcome.pairs.mean():.0f}",
            )
        )
    print()


def spread(count: int) -> None:
    """Print the results for settings that differ in spread only: B has three times the noise of A, at most 60 pairs."""
    row = table(("noise of a run of A", "called different", "equal"))
    for name, noise in NOISES.items():
        outcome = experiments(Machine(noise, 0.03, wider=3.0), 0.0, 60, count)
        row((f"{name} 3 %", outcome.share("higher", "lower"), outcome.share("equal")))
        what = f"equal medians, B with three times the noise of A, called different: {name}"
        add_row(what, "%", outcome.percent("higher", "lower"))
    print()


TABLES: dict[str, Callable[[int], None]] = {"aa": aa, "power": power, "equal": equal, "spread": spread}


def main() -> None:
    """Measure what the command line requests."""
    parser = bench_parser(__doc__)
    parser.add_argument("tables", nargs="*", help=f"which of {', '.join(TABLES)} [all]")
    parser.add_argument("--count", type=int, default=2000, help="experiments of each row [2000]")
    options = parser.parse_args()
    if unknown_names := set(options.tables) - TABLES.keys():
        parser.error(f"found table {min(unknown_names)!r}; allowed: {', '.join(TABLES)}")
    with recording("Experiments", options):
        for name in options.tables or TABLES:
            print((TABLES[name].__doc__ or "").strip())
            TABLES[name](options.count)


if __name__ == "__main__":
    main()
