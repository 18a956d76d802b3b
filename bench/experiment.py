"""Does `meshmark experiment` tell equal settings apart, and how many pairs does it need? By simulation.

    .venv/bin/python bench/experiment.py                     # all tables, about 10 minutes of CPU time
    .venv/bin/python bench/experiment.py --count 200 aa      # one of them, coarser: aa, power, equal, spread

Every experiment is a `meshmark.place.experiment.Experiment`, which decides after each pair as the command does, with
times that a model of a machine gives instead of a command. The budget is expressed in pairs. Three rules that look at
the same pairs after each one, from the eighth on, are compared: the t-test of the log-ratios at 5 %, which assumes one
look; the same without pairs, which compares the means of both settings; and the one of Meshmark.
"""

from __future__ import annotations

import argparse
import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from statistics import fmean

from meshmark.place.experiment import DIFFERENT, Experiment, Outcome, Plan, order

FIRST: int = 8  # pairs before the t-tests look, as many as Meshmark needs at least
Noise = Callable[[random.Random, float], float]


def gaussian(rng: random.Random, scale: float) -> float:
    return rng.gauss(0, scale)


def heavy(rng: random.Random, scale: float) -> float:
    """Student's t with 2 degrees of freedom, which has no variance: outliers of ten times the scale are usual."""
    return scale * rng.gauss(0, 1) / math.sqrt(rng.expovariate(1))


def skewed(rng: random.Random, scale: float) -> float:
    """Disturbances that only lengthen runs."""
    return scale * rng.expovariate(1)


def bimodal(rng: random.Random, scale: float) -> float:
    """Three runs of ten are twice the scale slower; both modes scatter by a fifth of the scale."""
    return rng.gauss(0, scale / 5) + (2 * scale if rng.random() < 0.3 else 0)


NOISES: dict[str, Noise] = {"Gaussian": gaussian, "heavy tails": heavy, "skewed": skewed, "bimodal": bimodal}


@dataclass(frozen=True, slots=True)
class Machine:
    """How long a run takes: a log-time of noise, drift and states.

    Attributes:
        drift: Difference of the log-time between the first run and the last pair's.
        states: Log-time that a state adds which begins and ends at random, for 20 runs on average.
    """

    noise: Noise
    scale: float
    drift: float = 0.0
    states: float = 0.0

    def times(self, rng: random.Random, runs: int) -> Iterator[float]:
        slow = False
        for n in range(runs):
            slow ^= rng.random() < 1 / 20
            yield self.noise(rng, self.scale) + self.drift * n / runs + self.states * slow


@cache
def critical(freedom: int) -> float:
    from scipy.stats import t

    return float(t.ppf(0.975, freedom))


class Tests:
    """T-tests at 5 % that look after every pair: `paired` of the log-ratios, `unpaired` of both settings' log-times."""

    def __init__(self) -> None:
        self.called_different = {"paired": False, "unpaired": False}
        self._n = 0
        self._sums = {"a": (0.0, 0.0), "b": (0.0, 0.0), "x": (0.0, 0.0)}  # of values and their squares

    def add(self, a: float, b: float) -> None:
        self._n += 1
        for name, value in (("a", a), ("b", b), ("x", b - a)):
            total, squares = self._sums[name]
            self._sums[name] = total + value, squares + value * value
        n = self._n
        if n < FIRST:
            return
        mean = {name: total / n for name, (total, _) in self._sums.items()}
        rest = {name: squares - n * mean[name] ** 2 for name, (_, squares) in self._sums.items()}
        error = math.sqrt(rest["x"] / (n - 1) / n)
        pooled = math.sqrt((rest["a"] + rest["b"]) / (2 * n - 2) * 2 / n)
        self.called_different["paired"] |= abs(mean["x"]) > critical(n - 1) * error
        self.called_different["unpaired"] |= abs(mean["x"]) > critical(2 * n - 2) * pooled


def plan(pairs: int, seed: int) -> Plan:
    return Plan(
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


@dataclass(slots=True)
class Told:
    """What an experiment says, and what the t-tests say that look as often.

    Attributes:
        pairs: That it took.
        outside: Whether the interval at the end does not hold the true ratio.
    """

    word: str
    pairs: int
    outside: bool
    naive: dict[str, bool]


def simulated(machine: Machine, effect: float, pairs: int, seed: int, tests: bool = False, wider: float = 1.0) -> Told:
    """One experiment.

    Args:
        machine: Gives the times.
        effect: Log of the true ratio.
        pairs: At most.
        seed: Of order and noise.
        tests: Also the t-tests.
        wider: Factor of the noise of B.
    """
    rng = random.Random(f"noise {seed}")
    found = Experiment(plan(pairs, seed))
    times = machine.times(rng, 2 * pairs)
    more = Machine(machine.noise, machine.scale * math.sqrt(max(0.0, wider**2 - 1)))
    naive = Tests()
    stopped: Told | None = None
    for n in range(pairs):
        now: dict[str, float] = {}
        for position, side in enumerate(order(seed, n)):
            now[side] = next(times) + (effect if side == "b" else 0)
            if side == "b" and wider > 1:
                now[side] += more.noise(rng, more.scale)
            if stopped is None:
                value = math.exp(now[side])
                found.add(Outcome(pair=n, side=side, position=position, value=value, elapsed_s=value, spent_s=0.0))
        if tests:
            naive.add(now["a"], now["b"])
        if stopped is None and (found.finished() or n == pairs - 1):
            interval = found.interval()
            outside = interval is not None and not interval[0] <= math.exp(effect) <= interval[1]
            stopped = Told(found.word(), len(found.pairs), outside, naive.called_different)
        if stopped is not None and not tests:
            break
    assert stopped is not None
    return stopped


def share(told: list[Told], *words: str) -> str:
    return f"{100 * sum(t.word in words for t in told) / len(told):.1f} %"


def table(*rows: tuple[str, ...]) -> None:
    head, *rest = rows
    print("| " + " | ".join(head) + " |")
    print("|" + "---|" * len(head))
    for one in rest:
        print("| " + " | ".join(one) + " |", flush=True)
    print()


def aa(count: int) -> None:
    """False differences: settings that are equal, at most 60 pairs."""
    rows: list[tuple[str, ...]] = [
        (
            "noise of a run, drift",
            "called different",
            "equal",
            "interval without the truth",
            "paired t-test",
            "unpaired",
        )
    ]
    for name, noise in NOISES.items():
        for scale, drift, states in ((0.05, 0.0, 0.0), (0.05, 0.05, 0.0), (0.02, 0.0, 0.2)):
            machine = Machine(noise, scale, drift, states)
            told = [simulated(machine, 0.0, 60, seed, True) for seed in range(count)]
            outside = sum(t.outside for t in told) / count
            tests = [f"{100 * sum(t.naive[k] for t in told) / count:.1f} %" for k in ("paired", "unpaired")]
            what = f"{name} {100 * scale:.0f} %" + (f", drift {100 * drift:.0f} %" if drift else "")
            what += f", states of {100 * states:.0f} %" if states else ""
            rows.append((what, share(told, *DIFFERENT), share(told, "tie"), f"{100 * outside:.1f} %", *tests))
    table(*rows)


def power(count: int) -> None:
    """Power for a difference of 5 %, by number of pairs."""
    looks = (10, 15, 20, 30, 40, 60, 100)
    rows: list[tuple[str, ...]] = [
        ("noise of a run", *map(str, looks), "mean pairs to the decision", "wrong direction")
    ]
    for name, noise in NOISES.items():
        for scale in (0.02, 0.05, 0.1):
            told = [simulated(Machine(noise, scale, 0.05), math.log(1.05), looks[-1], seed) for seed in range(count)]
            right = [t.pairs for t in told if t.word == "higher"]
            found = [f"{100 * sum(n <= look for n in right) / count:.0f} %" for look in looks]
            mean = f"{fmean(t.pairs for t in told):.0f}" + (" (cut at 100)" if len(right) < 0.98 * count else "")
            rows.append((f"{name} {100 * scale:.0f} %", *found, mean, share(told, "lower")))
    table(*rows)


def equal(count: int) -> None:
    """Equality within 2 %: settings that are equal, at most 300 pairs."""
    rows: list[tuple[str, ...]] = [("noise of a run", "called equal", "different", "mean pairs")]
    for scale in (0.01, 0.02, 0.05):
        told = [simulated(Machine(gaussian, scale, 0.05), 0.0, 300, seed) for seed in range(count)]
        mean = f"{fmean(t.pairs for t in told):.0f}"
        rows.append((f"Gaussian {100 * scale:.0f} %", share(told, "tie"), share(told, *DIFFERENT), mean))
    table(*rows)


def spread(count: int) -> None:
    """Settings with one median of symmetric noise, or one minimum of skewed noise, whose spreads differ."""
    rows: list[tuple[str, ...]] = [("noise of a run of A; of B three times as much", "called different")]
    for name, noise in NOISES.items():
        told = [simulated(Machine(noise, 0.03), 0.0, 60, seed, wider=3.0) for seed in range(count)]
        rows.append((f"{name} 3 %", share(told, *DIFFERENT)))
    table(*rows)


TABLES = {"aa": aa, "power": power, "equal": equal, "spread": spread}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="*", choices=[[], *TABLES], help="which [all]")
    parser.add_argument("--count", type=int, default=2000, help="experiments of each row [2000]")
    given = parser.parse_args()
    for name in given.tables or TABLES:
        print((TABLES[name].__doc__ or "").strip())
        TABLES[name](given.count)


if __name__ == "__main__":
    main()
