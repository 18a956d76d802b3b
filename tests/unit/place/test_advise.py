"""The adviser: statistics on made-up machines, candidates, and whole advices with a program that stands in for
meshmark-place and takes the time it is told to."""

from __future__ import annotations

import itertools
import json
import math
import os
import random
import signal
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from meshmark.errors import AbsentError, MeshmarkError, UsageError
from meshmark.native import find_native
from meshmark.place.advice import Advice, gain, lines, records, to_json
from meshmark.place.advise import advise, make_plan
from meshmark.place.candidates import (
    BASELINE,
    Candidate,
    Inherited,
    Plan,
    Resources,
    SearchSpace,
    candidates,
    inherited_memory,
)
from meshmark.place.halving import DECISION_PAIRS, Race, floor_of, shift, trial
from meshmark.place.trial import Outcome, Runner, evidence
from meshmark.store.files import held
from meshmark.store.record import Record
from meshmark.store.store import Store
from support.cli import meshmark
from support.waiting import until

# ------------------------------------------------------------------ statistics


def test_the_interval_of_a_shift_is_that_of_the_signed_ranks() -> None:
    # Hollander and Wolfe, Nonparametric Statistical Methods, table A.4: n = 6: P(T <= 0) = 1/64; n = 10: P(T <= 8) =
    # .024, P(T <= 9) = .032.
    assert shift([1, 2, 3, 4, 5])[1] is None
    assert shift([3, 1, 2, 6, 5, 4]) == (3.5, (1, 6))
    ten = [float(2**i) for i in range(10)]
    walsh = sorted((a + b) / 2 for i, a in enumerate(ten) for b in ten[i:])
    assert shift(ten) == (statistics.median(walsh), (walsh[8], walsh[-9]))


def test_the_interval_holds_the_truth_as_often_as_it_says() -> None:
    rng = random.Random(1)
    held = 0
    for _ in range(1000):
        bounds = shift([rng.gauss(0.1, 1) for _ in range(8)])[1]
        assert bounds is not None
        held += bounds[0] <= 0.1 <= bounds[1]
    assert 940 <= held <= 985  # exact: 1 - 2 * P(W <= 3) = 96.1 % of 1000, four standard errors of 6


def test_the_floor_grows_with_the_noise_and_not_with_drift() -> None:
    rng = random.Random(2)
    quiet, loud = ([1 + rng.gauss(0, s) for _ in range(16)] for s in (0.002, 0.04))
    assert floor_of(quiet) < 0.01 < floor_of(loud) < 0.15
    drifting = [v * (1 + 0.01 * i) for i, v in enumerate(quiet)]
    assert floor_of(drifting) < 0.02
    assert floor_of(quiet[:3]) == math.inf


def gaussian(cost: float, _: int, rng: random.Random) -> float:
    return cost * math.exp(rng.gauss(0, 0.01))


def heavy(cost: float, _: int, rng: random.Random) -> float:
    return cost * math.exp(rng.gauss(0, 0.03)) * (1.3 if rng.random() < 0.1 else 1)


def drifting(cost: float, run: int, rng: random.Random) -> float:
    return gaussian(cost, run, rng) * (1 + 0.002 * run)


@pytest.mark.parametrize("noise", [gaussian, heavy, drifting], ids=lambda n: n.__name__)
def test_a_clear_winner_is_found_with_few_runs(noise: Any) -> None:
    costs = [1.2, *[1.1 + 0.01 * i for i in range(10)], 0.9]
    found = [trial(costs, noise, seed) for seed in range(40)]
    assert sum(t.loss == 0 for t in found) >= 37
    assert statistics.fmean(t.share for t in found) <= 0.4
    assert sum(t.claimed for t in found) >= 37


def test_repeats_of_the_other_one_make_the_floor_better_known() -> None:
    rng = random.Random(3)
    alone, both = list[float](), list[float]()
    for seed in range(40):
        a, b = ([math.exp(rng.gauss(0, 0.03)) for _ in range(8)] for _ in range(2))
        alone.append(floor_of(a, seed))
        both.append(floor_of(a, seed, b))
    assert statistics.stdev(both) < 0.9 * statistics.stdev(alone)


@pytest.mark.parametrize("noise", [gaussian, heavy, drifting], ids=lambda n: n.__name__)
def test_where_nothing_is_better_nothing_is_claimed(noise: Any) -> None:
    found = [trial([1.0] * 12, noise, seed) for seed in range(40)]
    assert sum(t.claimed for t in found) <= 3
    assert statistics.fmean(t.share for t in found) <= 0.4


def test_the_interval_of_the_gain_holds_the_true_one() -> None:
    found = [trial([1.2, 1.15, 1.1, 1.0, 1.05, 1.3], heavy, seed) for seed in range(60)]
    known = [t.covered for t in found if t.covered is not None]
    assert len(known) >= 50 and sum(known) >= 0.85 * len(known)


def test_all_that_are_left_run_once_a_round_in_an_order_of_the_seed() -> None:
    def order(seed: int) -> list[str]:
        race, asked = Race("abcdef", "a", seed), []
        for _ in range(12):
            name = race.next()
            assert name is not None and race.next() == name
            asked.append(name)
            race.add(name, 1.0)
        return asked

    asked = order(1)
    assert sorted(asked[:6]) == sorted(asked[6:]) == list("abcdef") and asked[:6] != asked[6:]
    assert order(1) == asked != order(2)


def test_who_fails_twice_is_out_and_the_baseline_ends_the_race() -> None:
    race = Race(["a", "b", "c"], "a")
    while (name := race.next()) is not None:
        race.add(name, None if name == "b" else 1.0)
        assert race.failures.get("b", 0) <= 2
    assert race.failures == {"b": 2} and "b" not in race.alive
    race = Race(["a", "b"], "a")
    while (name := race.next()) is not None:
        race.add(name, None if name == "a" else 1.0)
    assert "baseline failed" in race.stopped and race.verdict().word == "not decided"
    race = Race(["a", "b"], "a")
    while (name := race.next()) is not None:
        race.add(name, None if name == "b" else 1.0)
    assert race.failures == {"b": 2}
    assert (race.verdict().word, race.verdict().choice, race.stopped) == (
        "no difference",
        "a",
        "all other candidates failed",
    )


@pytest.mark.parametrize(
    ("cost", "pairs", "word", "stopped"),
    [
        (0.9, 6, "better", "the interval is clear"),
        (0.99, 4, "no difference", "a relevant difference is ruled out"),
        (1.1, 4, "no difference", "the best other candidate is no better"),
    ],
)
def test_a_race_ends_as_soon_as_it_is_clear(cost: float, pairs: int, word: str, stopped: str) -> None:
    race, rng = Race(["a", "b"], "a"), random.Random(1)
    while (name := race.next()) is not None:
        race.add(name, (1.0 if name == "a" else cost) * (1 + rng.gauss(0, 0.001)))
    said = race.verdict()
    assert (said.pairs, said.word, said.stopped) == (pairs, word, stopped)


def test_a_gain_that_is_certain_but_below_the_noise_floor_is_no_difference() -> None:
    race = Race(["a", "b"], "a")
    while (name := race.next()) is not None:  # rounds differ by a fifth, the two within a round by 3 %
        race.add(name, (1.2 if len(race.rounds) % 2 else 1.0) * (1.0 if name == "a" else 0.97))
    said = race.verdict()
    assert said.interval is not None
    assert said.interval[1] < 1
    assert said.floor > 0.05
    assert (said.pairs, said.word, said.choice, said.stopped) == (
        6,
        "no difference",
        "a",
        "a relevant difference is ruled out",
    )


@pytest.mark.parametrize("cost", [1.0, 1.1])
def test_what_cannot_win_is_given_up_before_an_interval_is_known_but_not_before_the_floor_is(cost: float) -> None:
    race, rng = Race("abcdef", "a"), random.Random(1)
    while (name := race.next()) is not None:
        race.add(name, (1.0 if name == "a" else cost) * (1 + rng.gauss(0, 0.001)))
    said = race.verdict()
    assert (said.word, said.choice, said.effect, len(race.costs("a"))) == ("no difference", "a", 0.02, 4)
    assert race.runs == 6 + 6 + 2 + 2


def test_rounds_that_chose_one_out_of_many_do_not_count_for_its_interval() -> None:
    race = Race([str(i) for i in range(13)], "0")
    while (name := race.next()) is not None:
        at_first = race.runs < 4 * 13 and len(race.rounds) < 5
        race.add(name, 1.0 if name == "0" else 0.5 if at_first else 0.9 + 0.001 * int(name))
    said = race.verdict()
    assert said.ratio is not None and said.ratio > 0.89, said  # and not the half of the first four rounds


def test_of_two_the_rounds_that_all_ran_in_do_not_count_either() -> None:
    race = Race("abc", "a")
    while (name := race.next()) is not None:
        race.add(name, 1.0 if name == "a" else 0.5 if len(race.rounds) <= 2 and name == "b" else 0.9)
    said = race.verdict()
    assert (said.best, said.pairs) == ("b", len(race.rounds) - 2) and said.ratio == pytest.approx(0.9)


def test_costs_and_turns_are_checked() -> None:
    race = Race(["a", "b"], "a")
    name = race.next()
    for wrong in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="positive"):
            race.add(str(name), wrong)
    with pytest.raises(ValueError, match="the next candidate is"):
        race.add("b" if name == "a" else "a", 1.0)


def test_a_race_that_is_stopped_early_decides_nothing() -> None:
    race = Race(["a", "b"], "a")
    for _ in range(2 * DECISION_PAIRS[0] - 1):
        name = race.next()
        assert name is not None
        race.add(name, 1.0 if name == "a" else 0.5)
    race.stop("the budget ended")
    assert race.next() is None
    assert (race.verdict().word, race.verdict().choice, race.verdict().stopped) == (
        "not decided",
        "a",
        "the budget ended",
    )
    assert race.verdict().ratio == pytest.approx(0.5)


def test_what_was_not_told_apart_from_the_choice_is_named_with_its_ratio() -> None:
    race = Race("abc", "a")
    noise = {"a": [1.0, 1.2, 1.0, 1.2, 1.0], "b": [1.3, 1.1, 1.3, 1.1, 1.3], "c": [3.0, 3.6, 3.6, 3.0, 3.0]}
    while len(race.rounds) < 6 and (name := race.next()) is not None:
        race.add(name, noise[name][len(race.costs(name))] if len(race.costs(name)) < 5 else 1.0)
    race.stop("the budget ended")
    close = race.verdict().close
    assert list(close) == ["b"]  # c is three times as slow, whatever the noise; a is the choice
    assert 1 < close["b"] < 1.3


def test_who_failed_twice_is_not_close_to_the_choice() -> None:
    race = Race("abc", "a")
    while len(race.rounds) < 5 and (name := race.next()) is not None:
        race.add(name, None if name == "b" and race.costs("b") else 1.0)
    race.stop("the budget ended")
    assert race.failures == {"b": 2}
    assert "b" not in race.verdict().close


def test_a_race_that_is_stopped_late_says_that_it_found_no_difference() -> None:
    race, costs = Race("ab", "a"), [0.7, 1.2, 0.75, 1.15, 0.8, 1.1, 0.9]
    while len(race.costs("b")) < 7 and (name := race.next()) is not None:
        race.add(name, 1.0 if name == "a" else costs[len(race.costs("b"))])
    race.stop("the budget ended")
    said = race.verdict()
    assert said.interval is not None
    assert said.interval[0] < 1 < said.interval[1]
    assert (said.word, said.choice) == ("no difference", "a")
    assert said.floor == floor_of(race.costs("a"), race.seed, race.costs("b"))


# ------------------------------------------------------------------ candidates


def made_parts(policy: str, count: int, slots: str) -> list[list[int]]:
    """Two sockets of four cores, two threads each: CPU n and n + 8 share a core, even cores are on socket 0."""
    if count > 8:
        raise MeshmarkError(f"jobs: found {count}, the machine has 8 {slots}")
    cores = {"balance": range(8), "pack": (0, 2, 4, 6, 1, 3, 5, 7), "compact": (0, 2, 4, 6, 1, 3, 5, 7)}
    return [[c, c + 8] if slots == "cores" else [c] for c in list(cores.get(policy, range(7, -1, -1)))[:count]]


WIDE = Resources(cpus=16, threads_per_core=2, memory_nodes=2, thp="madvise")


def names(*given: Any, **more: Any) -> tuple[list[str], Mapping[str, str]]:
    made, left_out = candidates(*given, parts_of=made_parts, missing=lambda _: "", **more)
    return [c.name for c in made], left_out


def test_candidates_are_all_combinations_that_differ_with_the_baseline_first() -> None:
    found, left_out = names(
        SearchSpace(
            ("none", "balance", "pack", "compact"),
            (),
            ("default", "local", "interleave"),
            ("default", "thp"),
            (),
            (False,),
        ),
        WIDE,
        2,
        False,
    )
    assert found[0] == BASELINE and len(found) == len(set(found)) == 3 * 2 * 2
    assert left_out["none"] == f"the same as '{BASELINE}'"
    assert left_out["compact"] == "the same as 'pack'"
    assert left_out["balance, local"] == "the same as 'balance'"
    assert set(found) & set(left_out) == set()


def test_a_mask_over_everything_binds_nothing_but_pinned_threads_differ() -> None:
    space = SearchSpace(("none", "balance", "pack"), memory=("default",), pages=("default",), smt=(False,))
    assert names(space, WIDE, 8, False)[0] == [BASELINE]
    assert names(space, WIDE, 8, True)[0] == [BASELINE, "balance", "pack"]


def test_siblings_are_tried_where_cores_have_them_and_nobody_said_otherwise() -> None:
    space = SearchSpace(("balance",), memory=("default",), pages=("default",))
    found, _ = names(space, WIDE, 2, False)
    assert found == [BASELINE, "balance", "balance, siblings"]


def test_one_node_has_no_memory_policies_and_one_thread_no_siblings() -> None:
    small = Resources(cpus=2, threads_per_core=1, memory_nodes=1, thp="always")
    space = SearchSpace(policies=("none", "balance"), memory=("default", "interleave", "bind"))
    found, left_out = candidates(space, small, 1, True, parts_of=lambda *_: [[0]], missing=lambda _: "")
    assert [c.name for c in found] == [BASELINE, "none, 4KiB", "balance", "balance, 4KiB"]
    assert left_out["balance, interleave"] == "the same as 'balance'"
    assert not any(c.pinned for c in found)


def test_thread_counts_set_the_variable_and_the_slots() -> None:
    found, _ = candidates(
        SearchSpace(("none", "balance"), (2, 4), ("default",), ("default",), smt=(True,)),
        WIDE,
        1,
        True,
        parts_of=made_parts,
        missing=lambda _: "",
    )
    by_name = {c.name: c for c in found}
    assert set(by_name) == {
        BASELINE,
        "none, 2 threads",
        "none, 4 threads",
        "balance, 2 threads, siblings",
        "balance, 4 threads, siblings",
    }
    four = by_name["balance, 4 threads, siblings"]
    assert four.environment() == {"OMP_NUM_THREADS": "4"} and four.parts == ((0,), (1,), (2,), (3,))
    assert four.options() == ["--bind", "balance", "-n", "4", "--slots", "threads", "--openmp"]
    assert by_name["none, 2 threads"].options() == ["--bind", "none"]
    assert by_name[BASELINE].environment() == {}
    assert four.line(["./a b", "-x"]) == (
        "OMP_NUM_THREADS=4 meshmark run --bind balance -n 4 --slots threads --openmp -- './a b' -x"
    )


def test_what_cannot_be_had_is_left_out_with_its_reason_and_asked_for_once() -> None:
    asked: list[Sequence[str]] = []

    def missing(words: Sequence[str]) -> str:
        asked.append(words)
        return "the pool of 2 MiB pages is empty" if words[1] == "2MiB" else ""

    found, left_out = candidates(
        SearchSpace(("balance", "pack"), (2, 9), ("default",), ("default", "2MiB"), smt=(False,)),
        WIDE,
        1,
        False,
        parts_of=made_parts,
        missing=missing,
    )
    assert [c.name for c in found] == [BASELINE, "balance, 2 threads", "pack, 2 threads"]
    assert left_out["pack, 2 threads, 2MiB"] == "absent: the pool of 2 MiB pages is empty"
    assert left_out["balance, 9 threads"].startswith("absent: jobs: found 9")
    assert asked == [("--pages", "2MiB")]


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("55f0 default file=/usr/bin/python3 mapped=2 N0=2", "default"),
        ("55f0 local heap", "local"),
        ("", "default"),
        ("55f0 prefer:1 file=/x", "preferred=1"),
        ("55f0 prefer (many):0-1 anon=1", "preferred=0-1"),
        ("55f0 bind:0,2\n66f0 default", "bind=0,2"),
        ("55f0 interleave=static:0-3 heap", "interleave=0-3"),
        ("55f0 weighted interleave:0-1", "weighted=0-1"),
        ("55f0 bind=relative: heap", "bind"),
        ("55f0 prefer=relative: heap", "preferred"),
        ("55f0 weighted interleave: heap", "weighted"),
        ("nonsense", "default"),
    ],
)
def test_an_inherited_memory_policy_is_read(text: str, policy: str) -> None:
    assert inherited_memory(text) == policy


NODES_OF = {c: c % 2 for c in range(16)}


@pytest.mark.parametrize(
    ("inherited", "same"),
    [
        ("default", {"none", "none, local", "none, bind", "none, bind=0-1", "none, preferred"}),
        ("bind=0-1", {"none", "none, local", "none, bind", "none, bind=0-1", "none, preferred"}),
        ("preferred=1", {"none", "none, preferred=1"}),
        ("bind=1", {"none", "none, bind=1"}),
        ("interleave=0-1", {"none", "none, interleave", "none, interleave=0-1"}),
    ],
)
def test_what_equals_what_is_inherited_is_not_run_twice(inherited: str, same: set[str]) -> None:
    """Under `numactl --preferred=1` a plain run prefers node 1: `none, bind` then is another thing."""
    here = Resources(16, 2, 2, "madvise", Inherited(memory=inherited), NODES_OF)
    memory = (
        "default",
        "local",
        "bind",
        "bind=0-1",
        "bind=1",
        "preferred",
        "preferred=1",
        "interleave",
        "interleave=0-1",
    )
    _, left_out = names(SearchSpace(("none",), memory=memory, pages=("default",)), here, 2, True)
    assert {n for n, why in left_out.items() if why == f"the same as '{BASELINE}'"} == same


def test_nodes_of_a_policy_are_those_of_the_cpus() -> None:
    here = Resources(16, 2, 2, "madvise", Inherited(memory="bind=0"), NODES_OF)
    space = SearchSpace(
        ("pack",), memory=("default", "bind", "bind=0", "bind=1", "local"), pages=("default",), smt=(False,)
    )
    assert names(space, here, 2, True) == (
        [BASELINE, "pack", "pack, bind=1", "pack, local"],
        {"pack, bind": "the same as 'pack'", "pack, bind=0": "the same as 'pack'"},
    )


# ------------------------------------------------------------------ evidence

NOTE: dict[str, Any] = {
    "type": "note",
    "kind": "placement",
    "conditions": {"minor_faults": 700, "major_faults": 2},
    "report": {
        "seconds": 2.0,
        "migrations": 5,
        "huge_bytes": 250,
        "pages": {"0": 600, "1": 400},
        "findings": ["thread 7\x1b[2J moved"],
        "threads": [
            {"user_s": 1.9, "system_s": 0.05, "waiting_s": 0.05, "ran_on": "0-1"},
            {"user_s": 0.0, "system_s": 0.0, "waiting_s": 0.0, "ran_on": "none"},
        ],
    },
}


def test_evidence_tells_remote_pages_by_the_cpus_that_were_used() -> None:
    node_of = {0: 0, 1: 0, 2: 1, 3: 1}
    found, said = evidence(NOTE, Candidate("x"), node_of)
    assert found == {
        "threads": 1,
        "migrations": 5,
        "waiting_share": 0.05 / 2.0,
        "remote_share": 0.4,
        "huge_share": 0.25,
        "minor_faults": 700,
        "major_faults": 2,
    }
    assert said == ["thread 7 [2J moved"]
    assert evidence(NOTE, Candidate("x", parts=((2,), (3,))), node_of)[0]["remote_share"] == 0.6


def test_what_was_not_seen_is_no_evidence() -> None:
    assert evidence({"report": {"threads": [], "migrations": None, "pages": {}}}, Candidate("x"), {}) == ({}, [])
    assert evidence({"report": 3}, Candidate("x"), {}) == ({}, [])


# ------------------------------------------------------------------ whole advices

FAKE = """#!{python} -SE
import json, os, random, signal, sys
words = sys.argv[1:]
if words == ["describe"]:
    os.execv({real!r}, ["meshmark-place", "describe"])
world = json.load(open(os.environ["FAKE_WORLD"]))
def value(option, otherwise=""):
    return words[words.index(option) + 1] if option in words else otherwise
if words[0] == "plan":
    n = int(value("--jobs"))
    parts = {{"balance": [0, 1, 2, 3], "pack": [4, 5, 6, 7]}}.get(value("--policy"), [3, 2, 1, 0])
    print(json.dumps({{"jobs": [{{"parts": [[c] for c in parts[:n]]}}]}}))
elif words[0] == "translate":
    print(json.dumps({{"forms": {{"taskset": {{"line": "taskset -c " + value("--parts") + " " + value("--command")}},
                                 "parts": {{"line": value("--parts")}}}}}}))
elif words[-1] == "true":
    if value("--pages") in world["absent"]:
        sys.stderr.write("meshmark: absent: no such pages\\nhint: reserve some\\n")
        sys.exit(77)
else:
    name = value("--bind") + ("/" + value("--pages") if value("--pages") != "default" else "")
    with open(os.environ["FAKE_WORLD"] + ".log", "a+") as log:
        log.write(name + "\\n")
        log.seek(0)
        number = len(log.readlines())
    if name in world["hangs"]:
        signal.pause()
    if name in world["fails"]:
        sys.stderr.write("it broke\\n")
        sys.exit(3)
    rng = random.Random(number)
    seconds = world["seconds"].get(name, 1.0) * (1 + rng.gauss(0, 0.005))
    print("rate: %.6f\\nrate: %.6f" % (1, 100 / seconds))
    sys.stderr.write("placement held: rate: 999999\\n")
    with open(value("--record"), "a") as record:
        for metric, s in (("elapsed", seconds), ("user", 0.9 * seconds), ("system", 0.1), ("waiting", 0.01)):
            record.write(json.dumps({{"type": "result", "schema": 1, "source": "host", "machine": "m",
                "instrument": "run", "metric": metric, "unit": "s", "value": s, "interval": None, "samples": [s],
                "flags": ["migrated"] if name == "none" else [], "conditions": {{}}, "provenance": {{}}}}) + "\\n")
        record.write(json.dumps({{"type": "note", "kind": "placement", "conditions": {{"minor_faults": 10}},
            "report": {{"seconds": seconds, "migrations": 40 if name == "none" else 0, "pages": {{}},
            "findings": ["thread 7 moved"] * (name == "balance"),
                       "threads": [{{"user_s": seconds, "system_s": 0, "waiting_s": 0, "ran_on": "0"}}] * 2}}}}))
        record.write("\\n")
"""


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Sets what runs take; returns a function that does, and makes the folder of an advice."""
    fake = tmp_path / "meshmark-place"
    fake.write_text(FAKE.format(python=sys.executable, real=str(find_native("meshmark-place"))))
    fake.chmod(0o755)
    said = tmp_path / "world.json"
    monkeypatch.setenv("MESHMARK_PLACE", str(fake))
    monkeypatch.setenv("FAKE_WORLD", str(said))
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)

    def make(
        seconds: Mapping[str, float], fails: Sequence[str] = (), hangs: Sequence[str] = (), absent: Sequence[str] = ()
    ) -> Path:
        said.write_text(json.dumps({"seconds": seconds, "fails": fails, "hangs": hangs, "absent": absent}))
        return tmp_path / "advice"

    return make


HERE = Resources(cpus=8, threads_per_core=1, memory_nodes=1, thp="madvise")
TALK: list[str] = []


def run(folder: Path, space: SearchSpace | None = None, **more: Any) -> Advice:
    runner = Runner(folder, ["prog", "-x"], more.get("figure", ""), more.get("higher", False), {})
    asked = space or SearchSpace(("none", "balance", "pack"), pages=("default", "thp"))
    plan = make_plan(["prog", "-x"], asked, HERE, runner, **{"budget_s": 1000.0, "seed": 1, **more})
    plan.save(folder / "plan.json")
    TALK.clear()
    return advise(plan, folder, runner, TALK.append)


def test_the_quickest_is_chosen_with_its_gain_spread_reasons_and_lines(world: Any) -> None:
    folder = world({"pack": 0.8, "pack/thp": 0.9})
    advice = run(folder)
    answer = to_json(advice, lines(advice))
    assert (answer["verdict"], answer["choice"]) == ("better", "pack")
    low, high = answer["gain_interval"]
    assert low <= 0.2 <= high and low > 0.15
    assert answer["before"]["n"] >= 6 and answer["before"]["worst"] >= answer["before"]["best"]
    assert 0.1 < answer["best_vs_best"] < 0.3 and 0.1 < answer["worst_vs_worst"] < 0.3
    assert answer["why"] == ["thread migrations per run: 40 baseline, 0 with pack"]
    runs = len(advice.of("balance"))
    assert answer["not_held"] == [f"balance: in {runs} of {runs} runs, for example: thread 7 moved"]
    assert answer["lines"] == {
        "meshmark": "meshmark run --bind pack -n 2 --slots cores --openmp -- prog -x",
        "taskset": "taskset -c 4;5 prog -x",
    }
    assert not {"pack", BASELINE} & set(answer["not_distinguishable"])
    json.loads(json.dumps(answer, allow_nan=False))


def test_where_nothing_helps_it_says_so(world: Any) -> None:
    advice = run(world({}))
    assert (advice.verdict.word, advice.verdict.choice) == ("no difference", BASELINE)
    assert lines(advice) == {"meshmark": "prog -x"}
    assert advice.verdict.effect == 0.02
    assert set(advice.verdict.close) == {c.name for c in advice.plan.candidates} - {BASELINE}


def test_records_keep_every_sample_and_read_back(world: Any) -> None:
    advice = run(world({"pack": 0.8}), figure=r"^rate: (\S+)", higher=True)
    made = records(advice, "m", "advise", "2026-01-01T00:00:00Z", "0")
    again = [Record.from_json(json.loads(json.dumps(r.to_json()))) for r in made]
    assert again == made
    pack = {r.metric: r for r in made if r.conditions["candidate"] == "pack"}
    assert set(pack) == {"elapsed", "user", "system", "waiting", "figure_of_merit"}
    assert len(pack["elapsed"].samples) == len(advice.of("pack")) >= 6
    assert pack["figure_of_merit"].value == pytest.approx(100 / pack["elapsed"].value, rel=1e-4)
    assert pack["elapsed"].conditions["cpus"] == "4-5"
    base = next(r for r in made if r.conditions["candidate"] == BASELINE)
    assert base.flags == {"migrated"} and base.conditions["cpus"] == "none"


def test_what_is_inherited_is_said_and_kept(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = world({"pack": 0.8})
    inherited = Inherited("0-3", "preferred=1")
    monkeypatch.setattr(sys.modules[__name__], "HERE", Resources(4, 1, 2, "madvise", inherited))
    advice = run(folder, SearchSpace(("none", "pack"), memory=("default", "bind"), pages=("default",)))
    assert Plan.load(folder / "plan.json").inherited == inherited
    assert str(inherited) == "CPUs 0-3, memory preferred=1"
    assert to_json(advice, {})["as_it_is"] == {"cpus": "0-3", "memory": "preferred=1"}
    told = {
        r.conditions["candidate"]: (r.conditions["cpus"], r.conditions["memory"])
        for r in records(advice, "m", "advise", "2026-01-01T00:00:00Z", "0")
    }
    assert told == {
        BASELINE: ("0-3", "preferred=1"),
        "none, bind": ("0-3", "bind"),
        "pack": ("4-5", "preferred=1"),
        "pack, bind": ("4-5", "bind"),
    }


def test_a_figure_of_merit_is_the_last_match_of_the_commands_own_output(world: Any) -> None:
    folder = world({"pack": 0.5})
    advice = run(folder, figure=r"rate: (\S+)", higher=True)
    assert (advice.verdict.word, advice.verdict.choice) == ("better", "pack")
    found = gain(advice)
    assert found is not None and found[0] == pytest.approx(1.0, abs=0.05)  # twice the rate
    # The same figure, were less better: then pack is the worst.
    worse = run(folder.with_name("lower"), figure=r"rate: (\S+)", higher=False)
    assert worse.verdict.choice == BASELINE
    with pytest.raises(UsageError, match=r"^--fom: found no match"):
        run(folder.with_name("none"), figure="no such figure: (.*)")
    with pytest.raises(UsageError, match="positive number is required"):
        run(folder.with_name("text"), figure="(rate)")


def test_a_candidate_that_fails_or_hangs_is_told_and_out_after_the_second_time(
    world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules["meshmark.place.advise"], "MIN_LIMIT_S", 0.5)
    folder = world(
        {"pack/thp": 0.02, "none": 0.03, "balance": 0.03, "none/thp": 0.03, "balance/thp": 0.03},
        fails=["balance"],
        hangs=["pack"],
    )
    advice = run(folder)
    assert advice.failed["balance"] == "ended with status 3: it broke"
    assert advice.failed["pack"].startswith("took longer than 0.5 s")
    assert [o.cost for o in advice.outcomes if o.candidate == "balance"] == [None, None]
    assert sum("exclude" in t for t in TALK) == 4 and sum("second failure" in t for t in TALK) == 2
    assert advice.verdict.choice == "pack/thp".replace("/", ", ")


def test_a_command_that_fails_as_it_is_is_one_line(world: Any) -> None:
    with pytest.raises(MeshmarkError, match="the command ended with status 3: it broke"):
        run(world({}, fails=["none"]))


def test_absent_pages_are_left_out_and_nothing_to_try_is_said(world: Any) -> None:
    folder = world({}, absent=["2MiB"])
    advice = run(folder, SearchSpace(("none", "pack"), pages=("default", "2MiB")))
    assert [c.name for c in advice.plan.candidates] == [BASELINE, "pack"]
    assert advice.plan.left_out["pack, 2MiB"] == "absent: no such pages (would help: reserve some)"
    with pytest.raises(AbsentError, match="no candidate differs"):
        run(folder, SearchSpace(("none",), pages=("default", "2MiB")))


def test_the_budget_ends_it(world: Any) -> None:
    advice = run(world({}), budget_s=12.5)
    assert advice.spent_s <= 12.5 and 10 <= len(advice.outcomes) <= 12
    assert (advice.verdict.word, advice.verdict.stopped) == ("not decided", "the budget ended")


def test_an_advice_that_was_killed_at_any_line_goes_on_to_the_same_runs(world: Any) -> None:
    folder = world({"pack": 0.8})
    whole = run(folder)
    lines = (folder / "journal.jsonl").read_bytes().splitlines(keepends=True)
    order = [o.candidate for o in whole.outcomes]
    for kept, torn in itertools.product((0, 1, 7), (b"", b'{"type": "run", "cand')):
        (folder / "journal.jsonl").write_bytes(b"".join(lines[:kept]) + torn)
        plan = Plan.load(folder / "plan.json")
        assert plan == whole.plan
        again = advise(plan, folder, Runner(folder, plan.command, "", False, {}), TALK.append)
        assert again.outcomes[:kept] == whole.outcomes[:kept]
        # Times are new ones, so only the first rounds, in which all run, must be in the same order.
        assert [o.candidate for o in again.outcomes][: 2 * len(plan.candidates)] == order[: 2 * len(plan.candidates)]
        kept_lines = [json.loads(x) for x in (folder / "journal.jsonl").read_bytes().splitlines()]
        assert [x["candidate"] for x in kept_lines] == [o.candidate for o in again.outcomes]


def test_a_run_is_on_disk_before_it_counts(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = world({"pack": 0.8})

    def die(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Race, "add", die)
    with pytest.raises(KeyboardInterrupt):
        run(folder)
    assert len((folder / "journal.jsonl").read_bytes().splitlines()) == 1


@pytest.mark.parametrize("line", [b"nonsense\n", b"[]\n", b'{"type": "run", "candidate": 3}\n', b'{"x": 1}\n'])
def test_a_journal_that_is_none_is_refused_in_one_line(world: Any, line: bytes) -> None:
    folder = world({})
    run(folder, budget_s=3.0)
    (folder / "journal.jsonl").write_bytes(line)
    plan = Plan.load(folder / "plan.json")
    with pytest.raises(MeshmarkError, match="line 1 is not a run"):
        advise(plan, folder, Runner(folder, plan.command, "", False, {}), TALK.append)
    other = {**asdict(Outcome("pack", 1.0, 1.0)), "candidate": "elsewhere", "type": "run"}
    (folder / "journal.jsonl").write_text(json.dumps(other) + "\n")
    with pytest.raises(MeshmarkError, match="belongs to another plan: found a run of 'elsewhere'"):
        advise(plan, folder, Runner(folder, plan.command, "", False, {}), TALK.append)


@pytest.mark.parametrize("text", ["", "[]", '{"command": []}', '{"candidates": [{"parts": 3}]}'])
def test_a_plan_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "plan.json").write_text(text)
    with pytest.raises(MeshmarkError, match=r"cannot read the plan|not a plan"):
        Plan.load(tmp_path / "plan.json")
    with pytest.raises(UsageError, match="found no plan"):
        Plan.load(tmp_path / "other" / "plan.json")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_interrupting_ends_what_runs(world: Any, tmp_path: Path, number: signal.Signals) -> None:
    folder = world({}, hangs=["none"])
    code = (
        "from pathlib import Path; from meshmark.place.advise import *\n"
        "from meshmark.cli.process import end_by_signals; end_by_signals()\n"
        f"Runner(Path({str(folder)!r}), ['prog'], '', False, {{}}).run(Candidate(BASELINE), 1, 60)"
    )
    child = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL)
    log = Path(os.environ["FAKE_WORLD"] + ".log")
    assert until(log.exists)
    child.send_signal(number)
    child.wait(20)

    def left() -> list[Path]:
        return [p for p in Path("/proc").iterdir() if p.name.isdigit() and _is(p, str(tmp_path / "meshmark-place"))]

    assert until(lambda: left() == [])


def test_an_advice_that_another_is_at_is_refused(tmp_path: Path) -> None:
    Plan(["true"], 1.0, 1, "", False, [Candidate(BASELINE)]).save(tmp_path / "plan.json")
    with held(tmp_path):
        done = meshmark("advise", "--resume", tmp_path)
    assert done.returncode == 1
    assert f"{tmp_path}: in use by another measuring process" in done.stderr


def test_nothing_runs_or_changes_in_a_folder_that_another_holds(tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    Plan(["true"], 1.0, 1, "", False, [Candidate(BASELINE)]).save(tmp_path / "old" / "plan.json")
    plan = (tmp_path / "old" / "plan.json").read_bytes()
    for words in (
        ["--out", str(tmp_path / "new"), "--", "touch", str(ran)],
        ["--resume", str(tmp_path / "old"), "--budget", "7s"],
    ):
        with held(Path(words[1])):
            done = meshmark("advise", *words)
        assert done.returncode == 1 and "in use by another measuring process" in done.stderr
    assert not ran.exists() and not (tmp_path / "new" / "plan.json").exists()
    assert (tmp_path / "old" / "plan.json").read_bytes() == plan


def test_advices_in_folders_of_one_name_are_two_runs_of_the_store(tmp_path: Path) -> None:
    for folder in (tmp_path / "a" / "best", tmp_path / "b" / "best"):
        words = ["--policies", "pack", "--pages", "default", "--store", str(tmp_path / "store"), "--out", str(folder)]
        done = meshmark("advise", "--budget", "1s", *words, "--", "true")
        assert done.returncode == 0, done.stderr
    assert len(Store(tmp_path / "store").runs()) == 2


def _is(process: Path, program: str) -> bool:
    try:
        return program in (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return False
