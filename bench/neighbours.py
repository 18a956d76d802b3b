"""Measures how well profiles predict the slowdown of programs beside each other.

    bench/neighbours.py [--rounds 3] [--check-rounds 3] [--programs xz,triad …] [--keep FOLDER] [--record]

Each program is profiled, and then every pair of programs really runs together, each of the two beside the other, which
the profiles predict. The programs are load kernels of Meshmark and installed packages, about a second of work each. The
error of a prediction counts beyond the half width of the measured interval. An assumption without a profile, that
programs do not slow each other, is judged by the same runs.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median, quantiles
from typing import Any, Final

from results import add_row, bench_parser, recording

from meshmark.applications.resources.load_kernels import horner, pointer_chase, triad
from meshmark.native import find_native

ROOT: Final = Path(__file__).parents[1]
KERNELS: Final = (  # with the number of calls
    (horner("horner"), 1200),
    (triad("triad 128 MiB", 128 << 20), 60_000),
    (triad("triad 4 MiB", 4 << 20), 200_000),
    (pointer_chase("chase 8 MiB", 8 << 20), 500),
    (pointer_chase("chase 128 MiB", 128 << 20), 250),
)
PAIRS: Final = 60  # that a judgement needs
MEDIAN_POINTS: Final = 3.0  # aims for the error
NINE_TENTHS_POINTS: Final = 8.0
SQL: Final = " ".join(
    [
        "CREATE TABLE t(a INTEGER, b TEXT);",
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 400000)",
        "INSERT INTO t SELECT (i * 7919) % 400009, printf('%08d', i) FROM n;",
        "CREATE INDEX k ON t(a);",
        "SELECT count(*), sum(length(b)) FROM t WHERE a BETWEEN 1000 AND 300000;",
    ]
)
WORDS: Final = "while (<>) { $n{$_}++ for /\\w+/g } print scalar keys %n"
PYTHON: Final = (
    "import json, sys; t = json.dumps([{str(i): [i] * 8} for i in range(150000)]); print(len(json.loads(t)))"
)
PACKAGES: Final = {  # name → program, shell command
    "xz": ("xz", "head -c 6000000 corpus | xz -2 -c > /dev/null"),
    "gzip": ("gzip", "gzip -6 -c corpus > /dev/null"),
    "zstd": ("zstd", "zstd -q -9 --single-thread -c corpus > /dev/null"),
    "bzip2": ("bzip2", "head -c 12000000 corpus | bzip2 -c > /dev/null"),
    "sort": ("sort", "LC_ALL=C sort --parallel=1 corpus corpus corpus > /dev/null"),
    "sha256": ("openssl", "openssl dgst -sha256 $(yes corpus | head -n 60) > /dev/null"),
    "sqlite": ("sqlite3", f'sqlite3 :memory: "{SQL}" > /dev/null'),
    "perl": ("perl", f"head -c 12000000 corpus | perl -e '{WORDS}' > /dev/null"),
    "python": (sys.executable, f"'{sys.executable}' -c '{PYTHON}' > /dev/null"),
    "g++": ("g++", f"g++ -O1 -I'{ROOT / 'native'}' -std=c++20 -S -o /dev/null '{ROOT / 'bench/fixed_work.cpp'}'"),
}


def commands(folder: Path, chosen: list[str]) -> dict[str, list[str]]:
    """Return the command of each program, after writing what it needs into a folder."""
    sources = [path for kind in ("src", "native", "docs", "tests") for path in sorted((ROOT / kind).rglob("*"))]
    corpus = b"".join(path.read_bytes() for path in sources if path.suffix in {".py", ".cpp", ".hpp", ".md"})
    (folder / "corpus").write_bytes((corpus * 4)[:24_000_000])
    load = str(find_native("meshmark-load", "MESHMARK_LOAD"))
    result: dict[str, list[str]] = {}
    for work, calls in KERNELS:
        program = work.program([0])
        program["variants"][0]["calls"] = calls
        file = folder / f"{work.name.replace(' ', '_')}.json"
        file.write_text(json.dumps(program), encoding="utf-8")
        result[work.name] = ["sh", "-c", f"'{load}' program '{file}' > /dev/null"]
    for name, (package, text) in PACKAGES.items():
        if shutil.which(package):
            result[name] = ["sh", "-c", f"cd '{folder}' && {text}"]
    return {name: command for name, command in result.items() if not chosen or name in chosen}


def meshmark(*words: str) -> str:
    """Return what a command of Meshmark prints."""
    completed = subprocess.run(
        [sys.executable, "-m", "meshmark", *words], check=False, stdout=subprocess.PIPE, text=True
    )
    if completed.returncode:
        sys.exit(f"meshmark {' '.join(words[:3])} failed")
    return completed.stdout


def error_points(one: dict[str, Any], predicted: float) -> float:
    """Return how far a prediction lies beyond the measured interval, in percentage points."""
    half = (one["measured_high"] - one["measured_low"]) / 2 if one["measured_low"] is not None else 0.0
    return max(0.0, 100 * (abs(predicted - float(one["measured"])) - float(half)))


def report(predictions: list[dict[str, Any]], programs: int) -> None:
    """Add the rows of the result."""
    notes = f"{len(predictions)} ordered pairs of {programs} programs, one on each CPU of a pair, this machine"
    widths = [50 * (one["measured_high"] - one["measured_low"]) for one in predictions if one["measured_low"]]
    width = median(widths) if widths else float("inf")
    add_row(
        "slowdown of programs beside each other: half width of the measured interval, median",
        "percentage points",
        width,
        limits=(None, MEDIAN_POINTS),
        notes=f"above it, errors beyond it say nothing; {notes}",
    )
    is_judged = width <= MEDIAN_POINTS and len(predictions) >= PAIRS
    for label, errors in (
        ("predicted from profiles", [error_points(one, one["slowdown"]) for one in predictions]),
        ("assumed to be 1", [error_points(one, 1.0) for one in predictions]),
    ):
        is_ours = label.startswith("predicted")
        add_row(
            f"slowdown of programs beside each other, {label}: error beyond the measured half width, median",
            "percentage points",
            median(errors),
            limits=(None, MEDIAN_POINTS if is_ours and is_judged else None),
            notes=notes,
        )
        add_row(
            f"slowdown of programs beside each other, {label}: the same, 90 % of the pairs",
            "percentage points",
            quantiles(errors, n=10)[-1],
            limits=(None, NINE_TENTHS_POINTS if is_ours and is_judged else None),
            notes=notes,
        )
        add_row(
            f"slowdown of programs beside each other, {label}: error, median",
            "percentage points",
            median(100 * abs((one["slowdown"] if is_ours else 1.0) - one["measured"]) for one in predictions),
            notes=notes,
        )
    inside = [one["low"] <= one["measured"] <= one["high"] for one in predictions]
    add_row(
        "slowdown of programs beside each other: pairs whose predicted interval contains the measured median",
        "%",
        100 * sum(inside) / len(inside),
        notes=notes,
    )


def main() -> None:
    """Measure what the command line requests."""
    parser = bench_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--check-rounds", type=int, default=3)
    parser.add_argument("--programs", default="")
    parser.add_argument("--keep", type=Path)
    options = parser.parse_args()
    with recording("Neighbours", options), tempfile.TemporaryDirectory() as scratch:
        folder = options.keep or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        programs = commands(folder, [name for name in options.programs.split(",") if name])
        files = []
        for name, command in programs.items():
            file = folder / f"profile-{name.replace(' ', '_')}.json"
            if not file.exists():
                meshmark("profile", "--rounds", str(options.rounds), "--name", name, "--out", str(file), "--", *command)
            files.append(str(file))
        words = ("--check", "--rounds", str(options.check_rounds), "--budget", "1h", "--json")
        answer = json.loads(meshmark("predict", "neighbours", *files, *words))
        if options.keep:
            (folder / "answer.json").write_text(json.dumps(answer), encoding="utf-8")
        report([one for one in answer["predictions"] if one["measured"] is not None], len(programs))


if __name__ == "__main__":
    main()
