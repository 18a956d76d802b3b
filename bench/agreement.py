"""Do two surveys of one machine agree? The share of metrics whose 95 % intervals overlap.

    .venv/bin/python bench/agreement.py RUN_A RUN_B

Metrics are matched by instrument, metric and identity; flagged ones are counted apart, since their flag says that
they should not be relied on; values without an interval (fewer than 6 samples) are left out and counted.
"""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path

from meshmark.measure.repetitions import point_key
from meshmark.measure.survey import load_run


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs=2, type=Path)
    parser.add_argument("--all", action="store_true", help="name every metric that disagrees, flagged ones too")
    words = parser.parse_args()
    first, second = ({point_key(r): r for r in load_run(run)[0]} for run in words.runs)
    counts: Counter[str] = Counter()
    by_instrument: dict[str, Counter[str]] = {}
    for name in first.keys() & second.keys():
        a, b = first[name], second[name]
        if a.interval is None or b.interval is None:
            counts["without interval"] += 1
            continue
        # A clock's grain comes out the same to a billionth, with an interval of no width: that is agreement.
        grain = 1e-6 * abs(a.value)
        overlap = a.interval[0] <= b.interval[1] + grain and b.interval[0] <= a.interval[1] + grain
        flagged = "flagged" if a.flags | b.flags else "unflagged"
        counts[f"{flagged} {'agree' if overlap else 'differ'}"] += 1
        by_instrument.setdefault(a.instrument, Counter())[f"{flagged} {'agree' if overlap else 'differ'}"] += 1
        if not overlap and (words.all or flagged == "unflagged"):
            flags = " ".join(sorted(a.flags | b.flags))
            print(f"{flagged}: {name}: {a.value:.4g} {a.interval} | {b.value:.4g} {b.interval} {a.unit} {flags}")
    for instrument, found in sorted(by_instrument.items()):
        print(f"{instrument}: {dict(found)}")
    for word, n in sorted(counts.items()):
        print(f"{word}: {n}")
    print(f"only in one of the two: {len(first.keys() ^ second.keys())}")
    sure = counts["unflagged agree"] + counts["unflagged differ"]
    print(
        f"agreement of unflagged metrics: {100 * counts['unflagged agree'] / sure:.1f} %"
        if sure
        else "nothing unflagged"
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
