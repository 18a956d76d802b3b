"""Measures how well the detector of hot spots tells hot spots from balanced loads, on simulated machines.

    .venv/bin/python bench/watch_spots.py [MODEL …] [--seed N] [--window NS] [--record]

`tests/support/spot_cases.py` defines the balanced loads and the injected hot spots. It prints each wrong outcome,
the confusion matrix of cases, and the time to find a hot spot; all models take about 40 minutes of one CPU.
"""

from __future__ import annotations

import statistics
import sys
from collections import Counter
from pathlib import Path

from results import add_row, bench_parser, recording

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
from support.spot_cases import (  # type: ignore[import-not-found]
    DEVELOPMENT,
    VALIDATION,
    SpotOutcome,
    balanced_cases,
    injected_cases,
    judge,
)


def main() -> None:
    """Judge all cases and print the figures."""
    parser = bench_parser(__doc__)
    parser.add_argument("models", nargs="*", default=[*DEVELOPMENT, *VALIDATION])
    parser.add_argument("--seed", type=int, default=2, help="1: the cases with which the detector was developed")
    parser.add_argument("--window", type=float, default=500.0, help="length of a frame in ns")
    options = parser.parse_args()
    outcomes: list[SpotOutcome] = []
    with recording("Watching", options):
        for model in options.models:
            balanced = balanced_cases(model, options.seed, window_ns=options.window)
            injected = injected_cases(model, options.seed, window_ns=options.window)
            new = [judge(case) for case in (*balanced, *injected)]
            outcomes += new
            for outcome in new:
                if outcome.false or outcome.is_missed:
                    state = "missed" if outcome.is_missed else "false"
                    print(f"  {model}, {outcome.case.name}: {state} {outcome.false or ''} use {outcome.use:.2f}")
            print(f"{model}: {len(new)} cases", flush=True)
        summarise(outcomes)


def summarise(outcomes: list[SpotOutcome]) -> None:
    """Print and record the confusion matrix and the latency."""
    counts: Counter[str] = Counter()
    latencies = []
    for outcome in outcomes:
        if outcome.case.target is None:
            counts["balanced, reported" if outcome.false else "balanced, not reported"] += 1
        elif outcome.is_clear:
            counts["hot spot, missed" if outcome.is_missed else "hot spot, reported"] += 1
            counts["hot spot, and another component reported"] += bool(outcome.false)
            if outcome.latency is not None:
                latencies.append(outcome.latency)
        else:
            counts["below the definition of a hot spot"] += 1
    for text, count in sorted(counts.items()):
        print(f"{count:6d}  {text}")
    right = counts["hot spot, reported"]
    wrong = counts["balanced, reported"] + counts["hot spot, and another component reported"]
    precision = right / max(1, right + wrong)
    recall = right / max(1, right + counts["hot spot, missed"])
    latency = f"median {statistics.median(latencies):.0f}, longest {max(latencies)}" if latencies else "unknown"
    print(f"precision {precision:.3f}, recall {recall:.3f}; frames to the report: {latency}")
    notes = ", ".join(f"{n} {text}" for text, n in sorted(counts.items()))
    for what, share in (("precision", precision), ("recall", recall)):
        add_row(f"hot spots of simulated machines: {what}", "", share, limits=(0.98, None), notes=notes)
    if latencies:
        add_row("frames to find a hot spot of a simulated machine", "", latencies)


if __name__ == "__main__":
    main()
