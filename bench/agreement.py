"""Measures how often surveys of one machine are called different, which is the rate of false verdicts.

    .venv/bin/python bench/agreement.py RUN RUN…

Every pair of runs is compared as `meshmark compare` does. Results that are flagged, have modes, have no interval or
one wider than ±10 % are not judged, and are counted.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from results import add_row, bench_parser, recording

from meshmark.compare.join import ResultPair, compare
from meshmark.compare.sides import Sides
from meshmark.store.store import Store


def verdict(pair: ResultPair) -> str:
    """Return the word under which a pair is counted."""
    if pair.word == "not comparable":
        return "flagged"
    if pair.reason:
        return "with modes" if pair.reason.endswith(" modes") else "too wide, or without interval"
    return pair.word if pair.word in {"equal", "inconclusive"} else "called different"


def main() -> None:
    """Measure what the command line requests."""
    parser = bench_parser(__doc__)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--all", action="store_true", help="name every result that is called different")
    options = parser.parse_args()
    with recording("Reliability", options):
        judge(options.runs, options.all)


def judge(runs: Sequence[Path], print_all: bool) -> None:
    """Compare all pairs of surveys and print how many results are called different."""
    find = Sides(Store(Path("no store")), Path(), "")
    surveys = [find.find(str(run.resolve())) for run in runs]
    counts: Counter[str] = Counter()
    causes: Counter[str] = Counter()
    for first, second in itertools.combinations(surveys, 2):
        for pair in compare(first, second).pairs:
            if pair.a.better == "none":
                continue
            word = verdict(pair)
            counts[word] += 1
            if word == "called different":
                causes[pair.a.instrument] += 1
                if print_all:
                    a, b = pair.a, pair.b
                    print(
                        f"{a.metric} {dict(a.conditions)}: {a.value:.4g} {a.bounds} | {b.value:.4g} {b.bounds} {a.unit}"
                    )
    judged_count = sum(counts[word] for word in ("equal", "inconclusive", "called different"))
    pairs = len(surveys) * (len(surveys) - 1) // 2
    print(f"{pairs} pairs, {sum(counts.values())} comparisons, {judged_count} judged")
    for word, n in counts.most_common():
        print(f"  {word}: {n}")
    if judged_count:
        names = ", ".join(f"{name} {n}" for name, n in causes.most_common())
        print(
            f"called different: {100 * counts['called different'] / judged_count:.1f} %"
            + (f" ({names})" if names else "")
        )
        add_row(
            "A/A: metrics that the verdict calls different between quick surveys of this machine",
            "%",
            100 * counts["called different"] / judged_count,
            limits=(None, 5),
            notes=f"of {judged_count:,} judged, {pairs} pairs; of {sum(counts.values()):,} comparisons, "
            + ", ".join(f"{word} {n}" for word, n in counts.most_common()),
        )


if __name__ == "__main__":
    main()
