"""Files of `meshmark load` that were changed at random are accepted, or refused in one line."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshmark.errors import MeshmarkError, UsageError
from meshmark.load.calibration.metrics import all_metrics, parse_metrics
from meshmark.load.calibration.native import find_load
from meshmark.load.compare import compare, read_side
from meshmark.load.scenario.journal import JOURNAL, read_run
from meshmark.load.scenario.lines import journal_lines
from meshmark.load.scenario.placing import HostResources, threads_of
from meshmark.load.scenario.records import records_of
from meshmark.load.scenario.result import utilisation
from meshmark.load.scenario.run import run_scenario
from meshmark.load.scenario.scenario import parse_scenario, read_scenario
from meshmark.load.studies.outcome import read_outcomes
from meshmark.load.synthesis.program import parse_program
from meshmark.measure.runs.spec import parse_spec
from meshmark.views.gantt import gantt_html
from meshmark.views.pages.load_compare import compare_html
from meshmark.views.terminal.gantt import gantt_text
from meshmark.views.terminal.load_compare import print_load_comparison
from support.made_load import made_study
from support.made_program import PROGRAM, made_program

# Hypothesis chooses only seeds: drawing values from a seed takes a hundredth of the time that Hypothesis needs.
NOTHING: list[Any] = [
    None,
    True,
    False,
    0,
    -1,
    1.5,
    1e300,
    float("inf"),
    float("nan"),
    1 << 64,
    1 << 2000,
    "",
    "x",
    "ok",
    "0-3",
    "\ud800",
    "\x00",
    "x" * 9000,
    [],
    {},
    [[]],
    [1, "a"],
    {"a": None},
    {"": [True]},
    [[0, "R", 0, 1, 1, 1, 1]],
]


def mutated(rng: random.Random, value: Any) -> Any:
    """Return a copy of a JSON value in which one element is replaced by another value or removed."""
    places: list[tuple[Any, Any]] = []

    def collect(at: Any) -> None:
        for key in list(at) if isinstance(at, dict) else range(len(at)) if isinstance(at, list) else ():
            places.append((at, key))
            collect(at[key])

    value = json.loads(json.dumps(value))
    collect(value)
    container, key = rng.choice(places)
    if rng.random() < 0.7:
        container[key] = rng.choice(NOTHING)
    else:
        del container[key]
    return value


def spoiled(rng: random.Random, lines: list[bytes]) -> bytes:
    """Return the text of a journal in which some lines are mutated, cut, repeated, removed or not JSON."""
    changed_lines = list(lines)
    for _ in range(rng.randint(1, 4)):
        i = rng.randrange(len(changed_lines))
        match rng.choice(["value", "value", "bytes", "cut", "twice", "gone"]):
            case "value":
                try:
                    changed_lines[i] = json.dumps(mutated(rng, json.loads(changed_lines[i]))).encode()
                except ValueError:
                    continue
            case "bytes":
                offset = rng.randint(0, len(changed_lines[i]))
                changed_lines[i] = (
                    changed_lines[i][:offset]
                    + rng.randbytes(rng.randint(0, 8))
                    + changed_lines[i][offset + rng.randint(0, 8) :]
                )
            case "cut":
                changed_lines[i] = changed_lines[i][: rng.randint(0, len(changed_lines[i]))]
            case "twice":
                changed_lines.insert(i, changed_lines[i])
            case _:
                changed_lines[i] = b""
    return b"\n".join(changed_lines) + b"\n"


PIECES = [
    "true",
    "-",
    "1e999",
    "nan",
    "[",
    "]]",
    "{",
    "'",
    '"',
    "\n",
    "=",
    "0x" + "f" * 5000,
    "[[program]]",
    "9" * 400,
    "9" * 9000,
    "[" * 2000,
    "x" * 5000,
    "é",
    "\x00",
    "name = 'p'\n",
    "inf",
    "1979-05-27",
    "(",
    "*",
    "1",
]


def torn(rng: random.Random, text: str) -> str:
    """Return a text in which one to four places are replaced by other pieces."""
    for _ in range(rng.randint(1, 4)):
        offset = rng.randint(0, len(text))
        text = text[:offset] + rng.choice(PIECES) + text[offset + rng.randint(0, 9) :]
    return text


def quietly(work: Callable[[], object]) -> None:
    """Call `work`, which may raise only an error with one short line."""
    try:
        work()
    except MeshmarkError as error:
        assert "\n" not in str(error) and len(str(error)) < 1000, error


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a real run whose journal has all kinds of lines."""
    folder = tmp_path_factory.mktemp("whole")
    program = made_program(find_load(), folder / "p.json", 300)
    text = f"[[program]]\nname = 'p'\nfile = '{program}'\n"
    text += "[[program]]\nname = 'c'\ncommand = ['sh', '-c', 'sleep 0.1; exit 3']"
    run_scenario(parse_scenario(text + "\ncopies = 2", "made"), folder / "run")
    return folder / "run"


def reads(folder: Path) -> None:
    """Read a run and compute every view of it."""
    run = read_run(folder)
    run.totals(), run.fairness(), utilisation(run), records_of(run)
    gantt_text(run), gantt_html(run).encode()
    side = read_side(folder)
    comparison = compare(side, side)
    json.dumps(comparison.to_json(), allow_nan=False), compare_html(comparison).encode()
    print_load_comparison(comparison)


def check_run(whole: Path, folder: Path, seed: int) -> None:
    lines = (whole / JOURNAL).read_bytes().splitlines()
    (folder / JOURNAL).write_bytes(spoiled(random.Random(seed), lines))
    scenario = json.loads((whole / "scenario.json").read_text())
    (folder / "scenario.json").write_text(json.dumps(mutated(random.Random(seed), scenario)))
    quietly(lambda: reads(folder))


def check_scenario_text(seed: int) -> None:
    text = (
        "[scenario]\nname = 'x'\nsample_s = 0.1\ntimeout_s = 3\ncanary = { before_s = 1, during = false }\n"
        "[[program]]\nname = 'p'\nrun_time_s = 2\nmemory_gb_per_s = 3\nthreads = 2\nkernels = ['triad']\n"
        "[[program]]\nname = 'q'\ncommand = ['x', 'y']\ncpus = ['0', '1']\ncopies = 2\nenv = { A = 1 }\n"
        "[metric.mine]\nformula = 'flops / cpu_s'\nunit = 'x'\n"
    )
    quietly(lambda: parse_scenario(torn(random.Random(seed), text), "s.toml"))


METRICS = "[metric.mine]\nformula = '(flops + 2 * int_ops) / wall_s / 1e9'\nunit = 'Gop/s'\n"


def check_metrics_text(seed: int) -> None:
    quietly(lambda: all_metrics(parse_metrics(torn(random.Random(seed), METRICS), "m.toml")))


def check_program_file(file: Path, seed: int) -> None:
    text = json.dumps(mutated(random.Random(seed), PROGRAM))
    file.write_text(text)
    quietly(lambda: parse_program(text, "p.json").planned())
    quietly(lambda: threads_of(file))


def check_study(folder: Path, seed: int) -> None:
    if not folder.exists():
        made_study(folder)
    file = folder / "journal.jsonl"
    original = folder / "journal.kept"
    if not original.exists():
        original.write_bytes(file.read_bytes())
    file.write_bytes(spoiled(random.Random(seed), original.read_bytes().splitlines()))
    for outcome in read_outcomes(folder):
        json.dumps(outcome.to_json(), allow_nan=False)
        if not outcome.reason:
            outcome.time_s("wall"), outcome.time_s("dedicated")


SPEC = """
name = 'x'
summary = 'y'
[[step]]
instrument = 'kernels'
name = 'a'
repetitions = 2
options = { kernel = 'triad', volume = '64KiB', threads = 1, budget = '5s' }
"""


@pytest.mark.parametrize("seed", range(40))
def test_whatever_a_specification_says_it_is_taken_or_refused(seed: int) -> None:
    quietly(lambda: parse_spec(torn(random.Random(seed), SPEC), "s.toml"))


@pytest.mark.parametrize("key", ["repetitions", "options.threads", "options.volume", "name", "unknown"])
def test_a_huge_number_in_a_specification_is_one_line(key: str) -> None:
    text = f"name = 'x'\n[[step]]\ninstrument = 'kernels'\n{key} = 0x{'f' * 9000}"
    with pytest.raises(UsageError) as error:
        parse_spec(text, "s.toml")
    assert len(str(error.value)) < 400 and "\n" not in str(error.value)


MANY = settings(max_examples=3000, deadline=None)
FEW = settings(max_examples=40, deadline=None)


def test_the_program_that_is_mutated_is_one() -> None:
    assert parse_program(json.dumps(PROGRAM), "p.json").planned()["run_time_s"] == 1.0


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("scratch")


@given(seed=st.integers(0, 1 << 32))
@FEW
def test_whatever_a_run_holds_it_is_shown_or_refused(whole: Path, scratch: Path, seed: int) -> None:
    check_run(whole, scratch, seed)


@given(seed=st.integers(0, 1 << 32))
@settings(max_examples=150, deadline=None)
def test_whatever_a_text_says_it_is_taken_or_refused(scratch: Path, seed: int) -> None:
    check_scenario_text(seed)
    check_metrics_text(seed)
    check_program_file(scratch / "p.json", seed)
    check_study(scratch / "study", seed)


@pytest.mark.slow
@pytest.mark.timeout(1800)  # several minutes if the machine is busy
@given(seed=st.integers(0, 1 << 32))
@MANY
def test_many_damaged_runs_are_shown_or_refused(whole: Path, scratch: Path, seed: int) -> None:
    check_run(whole, scratch, seed)


@pytest.mark.slow
@pytest.mark.timeout(1800)  # several minutes if the machine is busy
@given(seed=st.integers(0, 1 << 32))
@MANY
def test_many_texts_are_taken_or_refused(scratch: Path, seed: int) -> None:
    check_scenario_text(seed)
    check_metrics_text(seed)
    check_program_file(scratch / "p.json", seed)
    check_study(scratch / "study", seed)


def test_a_line_is_passed_over_as_a_whole(tmp_path: Path) -> None:
    valid = {"type": "event", "event": "exit", "t_s": 1.0, "program": "p", "copy": 0, "status": 0}
    changes: list[dict[str, Any]] = [
        {"t_s": True},
        {"t_s": 1e300},
        {"copy": -1},
        {"copy": 1.5},
        {"program": 3},
        {"status": "0"},
        {"event": None},
        {"program": "\ud800"},
    ]
    (tmp_path / JOURNAL).write_text("".join(json.dumps({**valid, **b}) + "\n" for b in [*changes, {}]))
    assert list(journal_lines(tmp_path / JOURNAL)) == [valid]


def test_a_name_that_no_terminal_can_show_is_still_a_scenario(tmp_path: Path) -> None:
    file = tmp_path / "é \u2028.toml"
    file.write_text("[[program]]\ncommand = ['true']")
    assert read_scenario(file).programs[0].command == ("true",)
    assert HostResources.now().cpus
