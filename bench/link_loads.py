"""Measures how often `meshmark replay --expected` finds wrong routes, and how often it reports healthy machines.

    .venv/bin/python bench/link_loads.py [--count N] [--seed N] [--record]

Each case of `tests/support/link_cases.py` is a simulated recording of 2 ms with even or uneven traffic. A planted wrong
route begins with a link that is on no shortest path. 40 cases take about two minutes of one CPU.
"""

from __future__ import annotations

import sys
from pathlib import Path

from results import add_row, bench_parser, recording

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
from support.link_cases import CASES, healthy_case, planted_case  # type: ignore[import-not-found]


def main() -> None:
    """Judge all cases and print the counts."""
    parser = bench_parser(__doc__)
    parser.add_argument("--count", type=int, default=20, help="cases with and without a wrong route")
    parser.add_argument("--seed", type=int, default=0, help="0: the cases with which the method was developed")
    options = parser.parse_args()
    with recording("Watching", options):
        found_count = named = listed = false_alarms = undecided = 0
        for number in range(options.count):
            for case in (healthy_case(number, options.seed), planted_case(number, options.seed)):
                loads = case.compared()
                route = loads.route
                undecided += loads.verdict == "undecided"
                if case.path:
                    found_count += loads.verdict == "differ"
                    named += route is not None and route.path == case.path
                    listed += route is not None and case.path in (route.path, *route.alternatives)
                else:
                    false_alarms += loads.verdict == "differ"
                path = f"planted {case.path}: " if case.path else "healthy: "
                result = f"{loads.verdict}, within {100 * loads.within:.1f} %"
                print(f"{case.model} {case.workload} {path}{result} {route.path if route else ''}", flush=True)
        count = options.count
        print(
            f"found {found_count}, named {named}, listed {listed} of {count}; "
            f"false alarms {false_alarms} of {count}; {undecided} undecided"
        )
        notes = f"{len(CASES)} pairs of model and workload, seed {options.seed}; {undecided} without a verdict"
        add_row(
            "wrong routes of simulated machines that are found",
            f"of {count}",
            found_count,
            limits=(count, None),
            notes=notes,
        )
        add_row("wrong routes whose path is named first", f"of {count}", named, notes=f"{listed} among the named paths")
        add_row("healthy simulated machines with a report", f"of {count}", false_alarms, limits=(None, 0), notes=notes)


if __name__ == "__main__":
    main()
