"""`make mutants`: plants faults in the core of the Python half, and counts those that its tests catch.

mutmut makes the faults and runs, for each, the tests that execute the changed function. It works in a copy of the tree,
build/mutants/python, on a sample of each file's mutants. An interrupted run resumes: what was caught runs again only
when its file has changed. Mutants of equivalent.txt change nothing that can be observed and do not count.

    tests/mutation/python.py [--modules store,place] [--count 40] [--children 2]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
from collections import Counter

from common import FLOOR, ROOT, arguments, equivalent

TREE = ROOT / "build" / "mutants" / "python"
LIBRARIES = ROOT / "build" / "mutants" / "lib"  # of requirements/mutants.txt
CORE = {  # what is mutated → the tests that may catch it
    "values": (["values/grammar.py", "values/units.py"], ["tests/unit/values"]),
    "store": (["store/record.py", "store/run.py"], ["tests/unit/store"]),
    "measure": (
        ["measure/repetitions.py", "measure/journal.py"],
        [f"tests/unit/measure/test_{name}.py" for name in ("repetitions", "journal", "unfinished", "library_turns")],
    ),
    "synthesis": (
        ["load/synthesis/*.py"],
        ["tests/unit/load/test_load_synthesis.py"]
        + [f"tests/unit/load/test_synthesis_{name}.py" for name in ("problem", "feasible", "mix", "calls", "program")],
    ),
    "load": (
        ["load/metrics.py", "load/result.py", "load/studies/interference.py", "load/studies/curve.py"],
        [  # not those that run real programs for seconds
            f"tests/unit/load/test_{name}.py"
            for name in (
                "load_compare",
                "load_figures",
                "load_reference",
                "load_result",
                "load_synthesis",
                "metric_formulas",
                "metrics",
                "recorded",
            )
        ]
        + ["tests/unit/load/test_scenario.py", "tests/unit/load/test_study_plans.py"],
    ),
    "place": (
        ["place/halving.py", "place/candidates.py"],
        [f"tests/unit/place/test_{name}.py" for name in ("candidates", "halving", "races")],
    ),
    "model": (["model/fit.py", "model/keys.py", "model/workloads.py"], ["tests/unit/model"]),
    "watch": (
        ["watch/frames.py", "watch/difference.py"],
        [f"tests/unit/watch/test_{name}.py" for name in ("frames", "difference", "hotspots", "layout", "recording")],
    ),
}
COPIED = ("src", "tests", "native", "schema", "docs", "tools", "README.md", "ARCHITECTURE.md", "CMakeLists.txt")
# scikit-build's finder of editable installs would import the unchanged sources. With "prepare", mutmut makes the
# mutants, learns which tests execute them, and stops.
START = """
import sys
sys.meta_path[:] = [f for f in sys.meta_path if "skbc" not in type(f).__module__]
import mutmut.__main__ as mutmut
words = sys.argv[1:]
if words[0] == "prepare":
    mutmut.collect_source_file_mutation_data = lambda **_: sys.exit()
    words[0] = "run"
mutmut.cli(words)
"""
LEFT = {None, 0, 33}  # not run, survived, untested: to be run again with the tests of today


def modules(rooms: list[str]) -> list[str]:
    """Files that are mutated, relative to the tree."""
    source = ROOT / "src" / "meshmark"
    return sorted(
        path.relative_to(ROOT).as_posix()
        for room in rooms
        for pattern in CORE[room][0]
        for path in source.glob(pattern)
    )


def prepare(rooms: list[str]) -> None:
    """Copies the tree and writes mutmut's configuration into its pyproject.toml."""
    TREE.mkdir(parents=True, exist_ok=True)
    for name in COPIED:
        source, target = ROOT / name, TREE / name
        if source.is_dir():
            shutil.copytree(source, target, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(source, target)
    if not (TREE / "build").exists():
        (TREE / "build").symlink_to(ROOT / "build")
    config = {
        "source_paths": ["src"],
        "only_mutate": modules(list(CORE)),  # all, since mutmut keeps what it generated once
        "also_copy": [name for name in COPIED if name not in {"src", "tests"}]
        + ["build/release/bin", "build/release/lib"],
        "pytest_add_cli_args_test_selection": [test for room in rooms for test in CORE[room][1]],
        "timeout_multiplier": 3.0,  # of what the tests of the function take; 15 by default
        "timeout_constant": 5.0,
        "pytest_add_cli_args": ["-m", "not slow", "-p", "no:cacheprovider"],
    }
    lines = [f"{key} = {json.dumps(value)}" for key, value in config.items()]
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    (TREE / "pyproject.toml").write_text(text + "\n[tool.mutmut]\n" + "\n".join(lines) + "\n", encoding="utf-8")


def mutmut(*words: str) -> list[str]:
    return [sys.executable, "-c", START, *words]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(LIBRARIES)}


def run_mutmut(*words: str) -> None:
    with (TREE / "mutmut.log").open("a") as log:  # its progress is drawn a hundred times a second
        subprocess.run(mutmut(*words), cwd=TREE, env=environment(), check=False, stdout=log, stderr=subprocess.STDOUT)


def sampled(file: str, count: int, seed: int) -> dict[str, int | None]:
    """Outcomes of the mutants of a file that are in the sample, by name; the same for a seed and a file."""
    meta = TREE / "mutants" / (file + ".meta")
    codes = json.loads(meta.read_text(encoding="utf-8"))["exit_code_by_key"] if meta.is_file() else {}
    names = sorted(codes.keys())
    random.Random(f"{seed} {file}").shuffle(names)
    return {name: codes[name] for name in names[: count or None] if name not in equivalent()}


def run_room(room: str, options: argparse.Namespace) -> None:
    """Runs the mutants of a room's sample that were not caught before, with the tests of that room."""
    prepare([room])
    (TREE / "mutants" / "mutmut-stats.json").unlink(missing_ok=True)  # which tests execute what, today
    children = ("--max-children", str(options.children))
    run_mutmut("prepare", *children)
    if not (TREE / "mutants" / "mutmut-stats.json").is_file():
        print(f"{room}: its tests fail without a mutant: {TREE / 'mutmut.log'}", flush=True)
        return
    names = [
        name
        for file in modules([room])
        for name, code in sampled(file, options.count, options.seed).items()
        if code in LEFT
    ]
    if names:
        run_mutmut("run", *children, *names)


OUTCOMES = {None: "not run", 0: "survived", 33: "untested", 34: "skipped", 36: "timeout", 24: "timeout", -24: "timeout"}


def main() -> int:
    options = arguments(__doc__, "--modules", CORE, 40, "mutants a file, 0: all [40]")
    rooms = options.rooms
    if options.show:
        return subprocess.run(mutmut("show", options.show), cwd=TREE, env=environment(), check=False).returncode
    if not options.survivors:
        (TREE / "mutmut.log").unlink(missing_ok=True)
        for room in rooms:
            run_room(room, options)
    found = {file.removeprefix("src/meshmark/"): sampled(file, options.count, options.seed) for file in modules(rooms)}
    if options.survivors:
        for outcomes in found.values():
            for name, code in outcomes.items():
                if code in {0, 33}:
                    print(f"{name}{' (untested)' if code == 33 else ''}")
        return 0
    total: Counter[str] = Counter()
    print(f"{'module':40} {'mutants':>8} {'caught':>8} {'share':>7} {'untested':>9} {'survived':>9}")
    for name, outcomes in found.items():
        counts = Counter(OUTCOMES.get(code, "caught") for code in outcomes.values())
        total += counts
        if not counts:
            continue
        caught, count = counts["caught"] + counts["timeout"], sum(counts.values())
        print(f"{name:40} {count:8} {caught:8} {caught / count:7.0%} {counts['untested']:9} {counts['survived']:9}")
    caught, count = total["caught"] + total["timeout"], sum(total.values())
    print(f"{'all':40} {count:8} {caught:8} {caught / max(count, 1):7.1%}")
    print(f"{TREE / 'mutmut.log'}\nsurvivors: --survivors; the difference of one: --show NAME")
    return 0 if caught >= FLOOR * count and not total["not run"] else 1


if __name__ == "__main__":
    raise SystemExit(main())
