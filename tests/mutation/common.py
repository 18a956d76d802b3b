"""Code that the mutation runs of the native and the Python code share."""

from __future__ import annotations

import argparse
import os
from collections.abc import Collection
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
FLOOR: Final = 0.85  # share of the mutants that must be detected
EQUIVALENT: Final = Path(__file__).with_name("equivalent.txt")


@cache
def equivalent() -> frozenset[str]:
    """Return the names of the mutants that were judged to change nothing observable."""
    lines = EQUIVALENT.read_text(encoding="utf-8").splitlines() if EQUIVALENT.is_file() else []
    return frozenset(line.split()[0] for line in lines if line.strip() and not line.startswith("#"))


def arguments(doc: str | None, option: str, rooms: Collection[str], count: int, count_help: str) -> argparse.Namespace:
    """Return the parsed command line; `rooms` contains the rooms that `option` names."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(option, dest="rooms", default=",".join(rooms), help="rooms of the core [all]")
    parser.add_argument("--count", type=int, default=count, help=count_help)
    parser.add_argument("--seed", type=int, default=1, help="of the sample [1]")
    parser.add_argument("--children", type=int, default=os.cpu_count() or 1, help="processes at once")
    parser.add_argument("--survivors", action="store_true", help="list survivors of the last run, run nothing")
    parser.add_argument("--show", default="", help="print the difference that a mutant makes")
    options = parser.parse_args()
    options.rooms = options.rooms.split(",")
    if unknown_names := set(options.rooms) - set(rooms):
        parser.error(f"{option}: found {', '.join(sorted(unknown_names))}; allowed: {', '.join(rooms)}")
    return options
