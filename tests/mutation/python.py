"""`make mutants`: plants faults in the core of the Python code, and counts those that its tests detect.

mutmut creates the faults in a copy of the tree, build/mutants/python. For each fault of the sample of a file, the
tests that execute the changed function run in a fresh interpreter: the tests leave processes and threads, with which
a fork is not safe. An interrupted run resumes: detected mutants run again only if their file has changed. Mutants of
equivalent.txt change nothing observable and do not count.

    tests/mutation/python.py [--modules store,place] [--count 40] [--children 2]
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import Any

from common import FLOOR, ROOT, arguments, equivalent

TREE = ROOT / "build" / "mutants" / "python"
LIBRARIES = ROOT / "build" / "mutants" / "lib"  # packages of requirements/mutants.txt
CORE = {  # mutated files → the tests that may detect their mutants
    "values": (["values/grammar.py", "values/units.py"], ["tests/unit/values"]),
    "arguments": (
        [f"values/{name}.py" for name in ("arguments", "expressions", "numbers", "secrets")],
        [
            *(f"tests/unit/values/test_{name}.py" for name in ("arguments", "numbers", "hidden_values")),
            "tests/unit/interface/test_interface_arguments.py",
        ],
    ),
    "store": (["store/record.py", "store/run.py"], ["tests/unit/store"]),
    "files": (["store/files.py", "store/session.py", "store/compaction.py"], ["tests/unit/store"]),
    "machine": (["machine/*.py"], ["tests/unit/machine"]),
    "doctor": (["doctor/*.py"], ["tests/unit/doctor", "tests/ranks/test_doctor_mpi.py"]),
    "process": (
        ["process.py", "measure/importers/importing.py", "measure/importers/outdated.py", "measure/runs/rank_files.py"],
        [f"tests/unit/measure/test_{name}.py" for name in ("process", "rank_files")]
        + [f"tests/unit/measure/importers/test_{name}.py" for name in ("importing", "outdated")],
    ),
    "readers": (
        [f"measure/importers/{name}.py" for name in ("base", "documents", "formats", "output", "quantities")],
        ["tests/unit/measure/importers"],
    ),
    "compare": (
        [f"validation/claims/{name}.py" for name in ("bench", "catalogue", "computed", "judging", "measured")]
        + [f"compare/{name}.py" for name in ("declared", "join", "sides", "exports/base")],
        ["tests/unit/compare", "tests/unit/validation"],
    ),
    "views": (["views/content/*.py"], ["tests/unit/views", "tests/unit/compare"]),
    "applications": (
        ["applications/*.py", "applications/resources/*.py", "applications/effects/*.py"],
        ["tests/unit/applications"],
    ),
    "fleet": (
        [f"fleet/{folder}*.py" for folder in ("", "campaigns/", "data/", "engines/", "network/")],
        ["tests/unit/fleet"],
    ),
    "measure": (
        ["measure/repetitions.py", "measure/runs/journal.py"],
        [f"tests/unit/measure/test_{name}.py" for name in ("repetitions", "journal", "unfinished", "library_turns")],
    ),
    "synthesis": (
        ["load/synthesis/*.py"],
        ["tests/unit/load/test_load_synthesis.py"]
        + [f"tests/unit/load/test_synthesis_{name}.py" for name in ("problem", "feasible", "mix", "calls", "program")],
    ),
    "load": (
        [
            "load/calibration/metrics.py",
            "load/scenario/result.py",
            "load/studies/matrix.py",
            "load/studies/curve.py",
        ],
        [  # without tests that run real programs for seconds
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
        ["experiments/halving.py", "place/candidates.py"],
        [
            "tests/unit/place/test_candidates.py",
            *(f"tests/unit/experiments/test_{name}.py" for name in ("halving", "races")),
        ],
    ),
    "model": (["model/fitting/fit.py", "model/keys.py", "model/workloads.py"], ["tests/unit/model"]),
    "watch": (
        ["watch/frames.py", "watch/difference.py"],
        [f"tests/unit/watch/test_{name}.py" for name in ("frames", "difference", "hotspots", "layout", "recording")],
    ),
}
PATIENCE = 20  # factor of the time of the tests without a mutant: the machine may be busy with other work
MOST_TESTS = 60  # per mutant, the fastest first: if hundreds of tests execute a function, the first ones detect it
# Tests that take seconds, execute most functions of their room, and would run again for most mutants.
LONG = (
    "torus",
    "intel-spr-8s",
    "all_lines_together",
    "goes_wrong_in_the_filling",
    "have_the_same_palettes",  # reads web/, which is not in the copy
    "hops_and_pairs",
    "mutilated",
    "no_process_outlives",
    "no_tree_causes",
    "seldom_called",
    "show_answers",
    "who_is_ended",
)
COPIED = (
    "src",
    "tests",
    "native",
    "schema",
    "docs",
    "tools",
    "README.md",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CMakeLists.txt",
)
# The import hook of scikit-build for editable installs would import the unchanged sources.
START = """
import runpy, sys
sys.meta_path[:] = [f for f in sys.meta_path if "skbc" not in type(f).__module__]
sys.argv.pop(0)
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
"""
# mutmut generates the mutants and stops.
GENERATE = START.replace(
    "sys.argv.pop(0)",
    "import mutmut.__main__ as mutmut; mutmut.collect_or_load_stats = lambda *_, **__: sys.exit(); mutmut.cli(['run'])",
)
OUTCOMES = TREE / "outcomes.json"  # by file: the digest of its text, and the outcome of each mutant
PYTEST = ("-x", "-q", "-m", "not slow", "-p", "no:cacheprovider", "-p", "covering")


def modules(rooms: list[str]) -> list[str]:
    """Return the mutated files, relative to the tree."""
    source = ROOT / "src" / "meshmark"
    return sorted(
        path.relative_to(ROOT).as_posix()
        for room in rooms
        for pattern in CORE[room][0]
        for path in source.glob(pattern)
    )


def prepare() -> None:
    """Copy the tree and write the configuration of mutmut into its pyproject.toml."""
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
    }
    lines = [f"{key} = {json.dumps(value)}" for key, value in config.items()]
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    (TREE / "pyproject.toml").write_text(text + "\n[tool.mutmut]\n" + "\n".join(lines) + "\n", encoding="utf-8")


def environment(room: str, **more: str) -> dict[str, str]:
    mutants = TREE / "mutants"
    paths = (mutants / "src", mutants / "tests", mutants / "tests" / "mutation", LIBRARIES)
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, paths)),
        "MUTATION_TESTS": str(TREE / f"{room}.json"),
        **more,
    }


def sampled(file: str, count: int, seed: int) -> list[str]:
    """Return the sampled mutants of a file; the same for a seed and a file."""
    meta = TREE / "mutants" / (file + ".meta")
    names = sorted(json.loads(meta.read_text(encoding="utf-8"))["exit_code_by_key"]) if meta.is_file() else []
    random.Random(f"{seed} {file}").shuffle(names)
    return [name for name in names[: count or None] if name not in equivalent()]


def load_outcomes() -> dict[str, dict[str, str]]:
    """Return the known outcomes of the mutants of each file in its current version."""
    outcomes = json.loads(OUTCOMES.read_text(encoding="utf-8")) if OUTCOMES.is_file() else {}
    return {
        file: dict(outcomes[file]) if outcomes.get(file, {}).get("digest") == digest else {"digest": digest}
        for file in modules(list(CORE))
        for digest in [hashlib.sha256((ROOT / file).read_bytes()).hexdigest()]
    }


def learn(room: str) -> dict[str, Any] | None:
    """Return which tests execute which functions, learned again if a file of the room changed; None if they fail."""
    path = TREE / f"{room}.json"
    digest = hashlib.sha256(b"".join((ROOT / file).read_bytes() for file in modules([room]))).hexdigest()
    if not path.is_file() or json.loads(path.read_text(encoding="utf-8")).get("digest") != digest:
        path.unlink(missing_ok=True)
        words = [sys.executable, "-c", START, "pytest", *PYTEST, "-k", " and ".join(f"not {n}" for n in LONG)]
        with (TREE / f"{room}.log").open("w") as log:
            subprocess.run(
                [*words, *CORE[room][1]],
                cwd=TREE / "mutants",
                env=environment(room),
                stdout=log,
                stderr=log,
                check=False,
            )
        if not path.is_file():
            return None
        coverage = {**json.loads(path.read_text(encoding="utf-8")), "digest": digest}
        path.write_text(json.dumps(coverage), encoding="utf-8")
    coverage = json.loads(path.read_text(encoding="utf-8"))
    assert isinstance(coverage, dict)
    return coverage


def outcome_of(room: str, mutant: str, learned: dict[str, Any]) -> str:
    """Run the tests that execute the changed function in a fresh interpreter."""
    function = mutant.rpartition("__mutmut_")[0]
    tests = sorted(learned["tests"].get(function, ()), key=learned["seconds"].__getitem__)[:MOST_TESTS]
    path = TREE / f"{room}.json"
    new = [
        test.relative_to(TREE / "mutants").as_posix()
        for name in CORE[room][1]
        for test in [*(TREE / "mutants").glob(name), *(TREE / "mutants" / name).rglob("test_*.py")]
        if test.is_file() and test.stat().st_mtime > path.stat().st_mtime
    ]
    files = sorted({test.partition("::")[0] for test in tests} | set(new))
    if not files:
        return "untested"
    limit_s = 60 + PATIENCE * sum(learned["seconds"][test] for test in tests)
    with subprocess.Popen(
        [sys.executable, "-c", START, "pytest", *PYTEST, *files],
        cwd=TREE / "mutants",
        env=environment(room, MUTANT_UNDER_TEST=mutant, MUTATION_RUN=json.dumps(tests)),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as child:
        try:
            status = child.wait(limit_s)
        except subprocess.TimeoutExpired:
            return "timeout"
        finally:  # including everything that the tests left
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
    return {0: "survived", 5: "untested"}.get(status, "caught")


def run_rooms(rooms: list[str], options: argparse.Namespace) -> None:
    """Run the mutants of the samples that were not detected before, each with the tests of its room."""
    prepare()
    with (TREE / "mutmut.log").open("w") as log:
        words = [sys.executable, "-c", GENERATE]
        paths = {**os.environ, "PYTHONPATH": str(LIBRARIES)}
        subprocess.run(words, cwd=TREE, env=paths, check=False, stdout=log, stderr=subprocess.STDOUT)
    shutil.copytree(TREE / "tests", TREE / "mutants" / "tests", dirs_exist_ok=True)
    outcomes, lock = load_outcomes(), Lock()

    def run(room: str, file: str, mutant: str, learned: dict[str, Any]) -> None:
        if outcomes[file].get(mutant) in {"caught", "timeout"}:
            return
        outcome = outcome_of(room, mutant, learned)
        print(f"{mutant} {outcome}", flush=True)
        with lock:
            outcomes[file][mutant] = outcome
            OUTCOMES.write_text(json.dumps(outcomes), encoding="utf-8")

    def run_room(room: str) -> None:
        coverage = learn(room)
        if coverage is None:
            print(f"{room}: its tests fail without a mutant: {TREE / f'{room}.log'}", flush=True)
            return
        for file in modules([room]):
            for mutant in sampled(file, options.count, options.seed):
                run(room, file, mutant, coverage)

    with ThreadPoolExecutor(options.children) as pool:
        list(pool.map(run_room, rooms))  # raises the exception of a room


def main() -> int:
    options = arguments(__doc__, "--modules", CORE, 40, "mutants a file, 0: all [40]")
    rooms = options.rooms
    if options.show:
        words = [sys.executable, "-c", START, "mutmut", "show", options.show]
        return subprocess.run(words, cwd=TREE, env={**os.environ, "PYTHONPATH": str(LIBRARIES)}, check=False).returncode
    if not options.survivors:
        run_rooms(rooms, options)
    outcomes = load_outcomes()
    samples = {file: sampled(file, options.count, options.seed) for file in modules(rooms)}
    if options.survivors:
        for file, names in samples.items():
            for name in names:
                if (outcome := outcomes[file].get(name)) in {"survived", "untested"}:
                    print(f"{name}{' (untested)' if outcome == 'untested' else ''}")
        return 0
    total: Counter[str] = Counter()
    print(f"{'module':40} {'mutants':>8} {'caught':>8} {'share':>7} {'untested':>9} {'survived':>9}")
    for file, names in samples.items():
        counts = Counter(outcomes[file].get(name, "not run") for name in names)
        total += counts
        if not counts:
            continue
        detected, count = counts["caught"] + counts["timeout"], sum(counts.values())
        name = file.removeprefix("src/meshmark/")
        print(f"{name:40} {count:8} {detected:8} {detected / count:7.0%} {counts['untested']:9} {counts['survived']:9}")
    detected, count = total["caught"] + total["timeout"], sum(total.values())
    print(f"{'all':40} {count:8} {detected:8} {detected / max(count, 1):7.1%}")
    print("survivors: --survivors; the difference of one: --show NAME")
    return 0 if detected >= FLOOR * count and not total["not run"] else 1


if __name__ == "__main__":
    raise SystemExit(main())
