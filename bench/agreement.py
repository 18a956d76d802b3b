"""Are surveys of one machine called different? They are not: the share of metrics that the verdict separates is false.

    .venv/bin/python bench/agreement.py RUN RUN…

Every pair of runs is compared. Metrics are matched by instrument, metric and identity. Flagged ones, ones with modes,
and ones without an interval or with one wider than ±10 % are not judged, and are counted.
"""

from __future__ import annotations

import argparse
import itertools
from collections import Counter
from pathlib import Path

from meshmark.measure.repetitions import measured, point_key
from meshmark.measure.survey import load_run
from meshmark.store.record import MODE, Record
from meshmark.values.verdicts import ratio


def verdict(a: Record, b: Record) -> str:
    if a.flags or b.flags:
        return "flagged"
    if {"run_modes"} & (a.conditions.keys() | b.conditions.keys()):
        return "with modes"
    if a.bounds is None or b.bounds is None or min(a.value, b.value) <= 0:
        return "without interval"
    found = ratio(measured(a), measured(b))
    if measured(a).excluded or measured(b).excluded:
        return "too wide"
    return "called different" if found.differs else found.word


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--all", action="store_true", help="name every metric that is called different")
    given = parser.parse_args()
    surveys = [
        {point_key(r): r for r in load_run(run)[0] if not r.metric.endswith(MODE) and r.better != "none"}
        for run in given.runs
    ]
    counts: Counter[str] = Counter()
    wrong: Counter[str] = Counter()
    for first, second in itertools.combinations(surveys, 2):
        for name in first.keys() & second.keys():
            a, b = first[name], second[name]
            word = verdict(a, b)
            counts[word] += 1
            if word == "called different":
                wrong[a.instrument] += 1
                if given.all:
                    print(f"{name}: {a.value:.4g} {a.bounds} | {b.value:.4g} {b.bounds} {a.unit}")
    judged = sum(counts[word] for word in ("tie", "not distinguishable", "called different"))
    pairs = len(surveys) * (len(surveys) - 1) // 2
    print(f"{pairs} pairs, {sum(counts.values())} comparisons, {judged} judged")
    for word, n in counts.most_common():
        print(f"  {word}: {n}")
    if judged:
        by = ", ".join(f"{name} {n}" for name, n in wrong.most_common())
        print(f"called different: {100 * counts['called different'] / judged:.1f} %" + (f" ({by})" if by else ""))


if __name__ == "__main__":
    main()
