"""`make mutants`: plants faults in the core of the Python half, and counts those that its tests catch.

mutmut makes the faults and runs, for each, the tests that execute the changed function. It works in a copy of the tree,
build/mutants/python, and resumes an interrupted run.

    tests/mutation/python.py [--modules store,place] [--children 2]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TREE = ROOT / "build" / "mutants" / "python"
LIBRARIES = ROOT / "build" / "mutants" / "lib"  # of requirements/mutants.txt
CORE = {  # what is mutated → the tests that may catch it
    "values": (["values/grammar.py", "values/units.py"], ["tests/unit/values"]),
    "store": (["store/record.py", "store/run.py"], ["tests/unit/store"]),
    "measure": (["measure/repetitions.py", "measure/journal.py"], ["tests/unit/measure"]),
    "synthesis": (["load/synthesis/*.py"], ["tests/unit/load/test_load_synthesis.py"]),
    "load": (["load/metrics.py", "load/result.py", "load/studies/interference.py"], ["tests/unit/load"]),
    "place": (["place/halving.py", "place/candidates.py"], ["tests/unit/place/test_advise.py"]),
    "model": (["model/fit.py", "model/keys.py", "model/workloads.py"], ["tests/unit/model"]),
    "watch": (["watch/frames.py", "watch/difference.py"], ["tests/unit/watch"]),
}
FLOOR = 0.85  # share of the mutants that must be caught
COPIED = ("src", "tests", "native", "schema", "docs", "tools", "README.md", "ARCHITECTURE.md", "CMakeLists.txt")
# scikit-build's finder of editable installs would import the unchanged sources.
START = """
import sys
sys.meta_path[:] = [f for f in sys.meta_path if "skbc" not in type(f).__module__]
from mutmut.__main__ import cli
cli(sys.argv[1:])
"""


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
        "pytest_add_cli_args": ["-m", "not slow", "-p", "no:cacheprovider"],
    }
    lines = [f"{key} = {json.dumps(value)}" for key, value in config.items()]
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    (TREE / "pyproject.toml").write_text(text + "\n[tool.mutmut]\n" + "\n".join(lines) + "\n", encoding="utf-8")


def forget_survivors() -> None:
    """Makes mutmut run them again, with the tests of today: it keeps outcomes as long as the source stays the same."""
    (TREE / "mutants" / "mutmut-stats.json").unlink(missing_ok=True)
    for meta in (TREE / "mutants" / "src").rglob("*.meta"):
        kept = json.loads(meta.read_text(encoding="utf-8"))
        codes = kept["exit_code_by_key"]
        kept["exit_code_by_key"] = {name: None if code in {0, 33} else code for name, code in codes.items()}
        meta.write_text(json.dumps(kept), encoding="utf-8")


def mutmut(*words: str) -> list[str]:
    return [sys.executable, "-c", START, *words]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(LIBRARIES)}


def survivors() -> list[str]:
    """Names of the mutants that no test caught, or even ran."""
    found = []
    for meta in sorted((TREE / "mutants" / "src").rglob("*.meta")):
        codes = json.loads(meta.read_text(encoding="utf-8"))["exit_code_by_key"]
        found += [f"{name}{' (untested)' if code == 33 else ''}" for name, code in codes.items() if code in {0, 33}]
    return found


def results(rooms: list[str]) -> dict[str, Counter[str]]:
    """Numbers of mutants by module and outcome: caught, survived, untested, timeout."""
    outcomes = {None: "not run", 0: "survived", 33: "untested", 34: "skipped", 36: "timeout", 24: "timeout"}
    found: dict[str, Counter[str]] = {}
    for file in modules(rooms):
        meta = TREE / "mutants" / (file + ".meta")
        codes = json.loads(meta.read_text(encoding="utf-8"))["exit_code_by_key"] if meta.is_file() else {}
        name = file.removeprefix("src/meshmark/")
        found[name] = Counter(outcomes.get(code, "caught") for code in codes.values())
    return {name: counts for name, counts in found.items() if counts}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--modules", default=",".join(CORE), help="rooms of the core [all]")
    parser.add_argument("--children", type=int, default=os.cpu_count(), help="processes at once")
    parser.add_argument("--survivors", action="store_true", help="list survivors of the last run, run nothing")
    parser.add_argument("--show", default="", help="print the difference that a mutant makes")
    options = parser.parse_args()
    if options.survivors:
        print("\n".join(survivors()))
        return 0
    if options.show:
        return subprocess.run(mutmut("show", options.show), cwd=TREE, env=environment(), check=False).returncode
    rooms = options.modules.split(",")
    if unknown := set(rooms) - set(CORE):
        parser.error(f"--modules: found {', '.join(sorted(unknown))}, allowed are {', '.join(CORE)}")
    prepare(rooms)
    forget_survivors()
    patterns = [file.removeprefix("src/").removesuffix(".py").replace("/", ".") + ".*" for file in modules(rooms)]
    with (TREE / "mutmut.log").open("w") as log:  # its progress is drawn a hundred times a second
        subprocess.run(
            mutmut("run", "--max-children", str(options.children), *patterns),
            cwd=TREE,
            env=environment(),
            check=False,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    found = results(rooms)
    total: Counter[str] = Counter()
    print(f"{'module':40} {'mutants':>8} {'caught':>8} {'share':>7} {'untested':>9} {'survived':>9}")
    for name, counts in found.items():
        total += counts
        caught, count = counts["caught"] + counts["timeout"], sum(counts.values())
        print(f"{name:40} {count:8} {caught:8} {caught / count:7.0%} {counts['untested']:9} {counts['survived']:9}")
    caught, count = total["caught"] + total["timeout"], sum(total.values())
    print(f"{'all':40} {count:8} {caught:8} {caught / max(count, 1):7.1%}")
    print(f"{TREE / 'mutmut.log'}\nsurvivors: --survivors; the difference of one: --show NAME")
    return 0 if caught >= FLOOR * count else 1


if __name__ == "__main__":
    raise SystemExit(main())
