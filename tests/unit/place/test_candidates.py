"""Tests of the candidates of an advice: different combinations, their options, and what this machine lacks."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from meshmark.errors import MeshmarkError, UsageError
from meshmark.place.candidates import (
    BASELINE,
    AdvicePlan,
    Candidate,
    InheritedPlacement,
    PlacementResources,
    SearchSpace,
    candidates,
    inherited_memory,
)


def made_parts(policy: str, count: int, slots: str) -> list[list[int]]:
    """Return parts on two sockets of four cores with two threads each.

    CPUs n and n + 8 share a core; even cores are on socket 0.
    """
    if count > 8:
        raise MeshmarkError(f"jobs: found {count}, the machine has 8 {slots}")
    cores = {"balance": range(8), "pack": (0, 2, 4, 6, 1, 3, 5, 7), "compact": (0, 2, 4, 6, 1, 3, 5, 7)}
    return [[c, c + 8] if slots == "cores" else [c] for c in list(cores.get(policy, range(7, -1, -1)))[:count]]


WIDE = PlacementResources(cpus=16, threads_per_core=2, memory_nodes=2, thp="madvise")


def names(*given: Any, **more: Any) -> tuple[list[str], Mapping[str, str]]:
    combinations, left_out = candidates(*given, parts_of=made_parts, missing=lambda _: "", **more)
    return [c.name for c in combinations], left_out


def test_candidates_are_all_combinations_that_differ_with_the_baseline_first() -> None:
    candidate_names, left_out = names(
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
    assert candidate_names[0] == BASELINE and len(candidate_names) == len(set(candidate_names)) == 3 * 2 * 2
    assert left_out["none"] == f"the same as '{BASELINE}'"
    assert left_out["compact"] == "the same as 'pack'"
    assert left_out["balance, local"] == "the same as 'balance'"
    assert set(candidate_names) & set(left_out) == set()


def test_a_mask_over_everything_binds_nothing_but_pinned_threads_differ() -> None:
    space = SearchSpace(("none", "balance", "pack"), memory=("default",), pages=("default",), smt=(False,))
    assert names(space, WIDE, 8, False)[0] == [BASELINE]
    assert names(space, WIDE, 8, True)[0] == [BASELINE, "balance", "pack"]


def test_siblings_are_tried_where_cores_have_them_and_nobody_said_otherwise() -> None:
    space = SearchSpace(("balance",), memory=("default",), pages=("default",))
    candidate_names, _ = names(space, WIDE, 2, False)
    assert candidate_names == [BASELINE, "balance", "balance, siblings"]


def test_one_node_has_no_memory_policies_and_one_thread_no_siblings() -> None:
    small_machine = PlacementResources(cpus=2, threads_per_core=1, memory_nodes=1, thp="always")
    space = SearchSpace(policies=("none", "balance"), memory=("default", "interleave", "bind"))
    combinations, left_out = candidates(space, small_machine, 1, True, parts_of=lambda *_: [[0]], missing=lambda _: "")
    assert [c.name for c in combinations] == [BASELINE, "none, 4KiB", "balance", "balance, 4KiB"]
    assert left_out["balance, interleave"] == "the same as 'balance'"
    assert not any(c.pinned for c in combinations)


def test_thread_counts_set_the_variable_and_the_slots() -> None:
    combinations, _ = candidates(
        SearchSpace(("none", "balance"), (2, 4), ("default",), ("default",), smt=(True,)),
        WIDE,
        1,
        True,
        parts_of=made_parts,
        missing=lambda _: "",
    )
    by_name = {c.name: c for c in combinations}
    assert set(by_name) == {
        BASELINE,
        "none, 2 threads",
        "none, 4 threads",
        "balance, 2 threads, siblings",
        "balance, 4 threads, siblings",
    }
    four_threads = by_name["balance, 4 threads, siblings"]
    assert four_threads.environment() == {"OMP_NUM_THREADS": "4"} and four_threads.parts == ((0,), (1,), (2,), (3,))
    assert four_threads.options() == ["--bind", "balance", "-n", "4", "--slots", "threads", "--openmp"]
    assert by_name["none, 2 threads"].options() == ["--bind", "none"]
    assert by_name[BASELINE].environment() == {}
    assert four_threads.line(["./a b", "-x"]) == (
        "OMP_NUM_THREADS=4 meshmark run --bind balance -n 4 --slots threads --openmp -- './a b' -x"
    )


def test_what_cannot_be_had_is_left_out_with_its_reason_and_asked_for_once() -> None:
    requests: list[Sequence[str]] = []

    def missing(words: Sequence[str]) -> str:
        requests.append(words)
        return "the pool of 2 MiB pages is empty" if words[1] == "2MiB" else ""

    combinations, left_out = candidates(
        SearchSpace(("balance", "pack"), (2, 9), ("default",), ("default", "2MiB"), smt=(False,)),
        WIDE,
        1,
        False,
        parts_of=made_parts,
        missing=missing,
    )
    assert [c.name for c in combinations] == [BASELINE, "balance, 2 threads", "pack, 2 threads"]
    assert left_out["pack, 2 threads, 2MiB"] == "absent: the pool of 2 MiB pages is empty"
    assert left_out["balance, 9 threads"].startswith("absent: jobs: found 9")
    assert requests == [("--pages", "2MiB")]


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
        ("55f0 interleave:1-2=static heap", "interleave=1-2"),
        ("55f0  bind:1", "default"),
        ("nonsense", "default"),
        ("x 55f0 bind:1", "default"),
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
    """Under `numactl --preferred=1` a plain run prefers node 1: `none, bind` then differs."""
    machine = PlacementResources(16, 2, 2, "madvise", InheritedPlacement(memory=inherited), NODES_OF)
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
    _, left_out = names(SearchSpace(("none",), memory=memory, pages=("default",)), machine, 2, True)
    assert {n for n, reason in left_out.items() if reason == f"the same as '{BASELINE}'"} == same


def test_nodes_of_a_policy_are_those_of_the_cpus() -> None:
    machine = PlacementResources(16, 2, 2, "madvise", InheritedPlacement(memory="bind=0"), NODES_OF)
    space = SearchSpace(
        ("pack",), memory=("default", "bind", "bind=0", "bind=1", "local"), pages=("default",), smt=(False,)
    )
    assert names(space, machine, 2, True) == (
        [BASELINE, "pack", "pack, bind=1", "pack, local"],
        {"pack, bind": "the same as 'pack'", "pack, bind=0": "the same as 'pack'"},
    )


@pytest.mark.parametrize("text", ["", "[]", '{"command": []}', '{"candidates": [{"parts": 3}]}'])
def test_a_plan_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "plan.json").write_text(text)
    with pytest.raises(MeshmarkError, match="not a plan of meshmark advise: "):
        AdvicePlan.load(tmp_path / "plan.json")
    with pytest.raises(UsageError, match="found no plan"):
        AdvicePlan.load(tmp_path / "other" / "plan.json")


# ------------------------------------------------------------------ options, names and order


@pytest.mark.parametrize(
    ("candidate", "line"),
    [
        (Candidate(BASELINE), "prog 'a b'"),
        (Candidate(BASELINE, wait="active", memory="bind", parts=((1,),)), "prog 'a b'"),
        (Candidate("x"), "meshmark run --bind none -- prog 'a b'"),
        (
            Candidate("x", memory="bind=1", pages="2MiB"),
            "meshmark run --bind none --memory bind=1 --pages 2MiB -- prog 'a b'",
        ),
        (
            Candidate("x", "pack", "threads", 2, wait="passive", pinned=True, parts=((0,), (1,))),
            "OMP_NUM_THREADS=2 OMP_WAIT_POLICY=PASSIVE meshmark run --bind pack -n 2 --slots threads --openmp "
            "-- prog 'a b'",
        ),
        (Candidate("x", "pack", parts=((0, 8),)), "meshmark run --bind pack -n 1 --slots cores -- prog 'a b'"),
        (Candidate("x", wait="active"), "OMP_WAIT_POLICY=ACTIVE meshmark run --bind none -- prog 'a b'"),
    ],
    ids=range(7),
)
def test_a_candidate_is_a_line_of_the_shell_that_names_what_differs_from_the_defaults(
    candidate: Candidate, line: str
) -> None:
    assert candidate.line(["prog", "a b"]) == line


@pytest.mark.parametrize(
    ("inherited", "text"),
    [
        (InheritedPlacement(), ""),
        (InheritedPlacement("0-3"), "CPUs 0-3"),
        (InheritedPlacement(memory="bind=1"), "memory bind=1"),
        (InheritedPlacement("0-3,8", "local"), "CPUs 0-3,8, memory local"),
    ],
)
def test_what_is_inherited_is_named_where_it_restricts_something(inherited: InheritedPlacement, text: str) -> None:
    assert str(inherited) == text


def offered(resources: PlacementResources, space: SearchSpace = SearchSpace(), busy: int = 2) -> list[Candidate]:  # noqa: B008
    """Return all candidates on a machine on which every placement differs."""
    number = itertools.count()
    return candidates(space, resources, busy, True, lambda *_: [[next(number)] for _ in range(2)], lambda _: "")[0]


def values(found: Sequence[Candidate], key: str) -> list[Any]:
    """Return the values of a setting in the order in which they are tried."""
    return list(dict.fromkeys(getattr(c, key) for c in found))


@pytest.mark.parametrize("nodes", [0, 1, 2])
@pytest.mark.parametrize("thp", ["always", "madvise", ""])
@pytest.mark.parametrize("per_core", [1, 2])
def test_defaults_of_what_is_tried_suit_the_machine(nodes: int, thp: str, per_core: int) -> None:
    combinations = offered(PlacementResources(cpus=99, threads_per_core=per_core, memory_nodes=nodes, thp=thp))
    assert values(combinations, "policy") == ["none", "balance", "pack", "compact", "scatter"]
    assert set(values(combinations, "memory")) == ({"default", "interleave", "bind"} if nodes > 1 else {"default"})
    assert set(values(combinations, "pages")) == ({"default", "4KiB"} if thp == "always" else {"default", "thp"})
    assert values(combinations, "slots") == (["cores", "threads"] if per_core > 1 else ["cores"])
    assert values(combinations, "threads") == [None]
    assert values(combinations, "wait") == ["default"]


def test_candidates_are_tried_in_the_order_of_threads_policies_siblings_memory_pages_and_waiting() -> None:
    space = SearchSpace(
        ("balance",), (4,), ("default", "local"), ("default", "thp"), ("default", "active"), (False, True)
    )
    candidate_names = [c.name for c in offered(WIDE, space)]
    suffixes = ["", ", wait active", ", thp", ", thp, wait active"]
    suffixes += [", local" + suffix for suffix in suffixes]
    assert candidate_names == [
        BASELINE,
        *("balance" + suffix for suffix in suffixes),
        *("balance, siblings" + suffix for suffix in suffixes),
    ]
    space = SearchSpace(("none", "pack"), (4, 2), ("default",), ("default",), (), (True,))
    assert [(c.name, c.threads, c.slots) for c in offered(WIDE, space)[1:]] == [
        ("none, 4 threads", 4, "cores"),
        ("pack, 4 threads, siblings", 4, "threads"),
        ("none, 2 threads", 2, "cores"),
        ("pack, 2 threads, siblings", 2, "threads"),
    ]


@pytest.mark.parametrize(
    ("policy", "threads", "busy", "pinned", "expected"),
    [
        ("pack", (), 2, True, True),
        ("pack", (), 1, True, False),  # a single thread does not need to be pinned
        ("pack", (2,), 1, True, True),
        ("pack", (1,), 2, True, False),
        ("pack", (), 2, False, False),  # ranks bind themselves
        ("none", (2,), 2, True, False),
    ],
)
def test_threads_are_pinned_if_there_are_several_of_a_bound_process(
    policy: str, threads: tuple[int, ...], busy: int, pinned: bool, expected: bool
) -> None:
    space = SearchSpace((policy,), threads, ("local",), ("2MiB",), smt=(False,))
    combinations, _ = candidates(space, WIDE, busy, pinned, made_parts, lambda _: "")
    assert [c.pinned for c in combinations] == [False, expected]


def test_placements_are_planned_for_the_threads_or_for_those_that_were_busy() -> None:
    requests = list[tuple[str, int, str]]()

    def parts_of(*words: Any) -> list[list[int]]:
        requests.append(words)
        return [[0], [1]]

    defaults = {"memory": ("default",), "pages": ("default",)}
    candidates(SearchSpace(("none", "pack"), smt=(True,), **defaults), WIDE, 5, True, parts_of, lambda _: "")
    candidates(SearchSpace(("balance",), (3,), smt=(False,), **defaults), WIDE, 5, True, parts_of, lambda _: "")
    assert requests == [("pack", 5, "threads"), ("balance", 3, "cores")]


# ------------------------------------------------------------------ equal effects


def test_the_order_of_parts_matters_to_pinned_threads_alone() -> None:
    parts = {"balance": [[0], [1]], "pack": [[1], [0]], "compact": [[0, 1], [0]]}
    space = SearchSpace(tuple(parts), memory=("default",), pages=("default",), smt=(False,))

    def of(pinned: bool) -> dict[str, str]:
        return candidates(space, WIDE, 2, pinned, lambda policy, *_: parts[policy], lambda _: "")[1]

    assert of(pinned=True) == {}
    assert of(pinned=False) == {"pack": "the same as 'balance'", "compact": "the same as 'balance'"}


def test_settings_other_than_the_placement_make_a_difference() -> None:
    space = SearchSpace(("none",), (1, 2), ("default",), ("default", "thp", "4KiB"), ("default", "active", "passive"))
    candidate_names, left_out = names(space, WIDE, 1, True)
    assert (len(candidate_names), left_out) == (1 + 2 * 3 * 3, {})
    machine = PlacementResources(16, 2, 2, "always")
    candidate_names, left_out = names(SearchSpace(("none",), pages=("4KiB", "thp", "2MiB")), machine, 1, True)
    assert left_out["none, thp"] == f"the same as '{BASELINE}'"
    assert {"none, 4KiB", "none, 2MiB"} <= set(candidate_names)


def same(
    here: PlacementResources, *memory: str, policy: str = "pack", parts: Sequence[int] = (0, 2)
) -> set[frozenset[str]]:
    """Return the groups of memory policies that have the same effect for a process that is bound to some CPUs."""
    space = SearchSpace((policy,), memory=memory, pages=("default",), smt=(False,))
    combinations, left_out = candidates(space, here, 2, False, lambda *_: [[c] for c in parts], lambda _: "")
    groups = {c.name: {c.name} for c in combinations}
    for name, reason in left_out.items():
        groups[reason.removeprefix("the same as '").removesuffix("'")].add(name)
    return {frozenset(n.partition(", ")[2] or n for n in group) for group in groups.values() if len(group) > 1}


TWO = PlacementResources(16, 2, 2, "madvise", node_of=NODES_OF)


def test_policies_without_nodes_are_those_of_the_cpus_that_have_memory() -> None:
    assert same(TWO, "local", "bind", "bind=0", "bind=1") == {frozenset({"bind", "bind=0"})}
    assert same(TWO, "local", "bind", "bind=0", "bind=1", parts=(1, 3)) == {frozenset({"bind", "bind=1"})}
    assert same(TWO, "interleave", "interleave=0", "interleave=0-1") == {frozenset({"interleave", "interleave=0"})}
    assert same(TWO, "preferred", "preferred=0", "bind=0") == {frozenset({"preferred", "preferred=0"})}
    # With CPUs of both nodes, all memory is allowed, so the nearest is used, whereas interleaving spreads the pages.
    groups = same(TWO, "local", "bind", "preferred", "interleave", "interleave=0,1", "weighted", parts=(0, 1))
    assert groups == {frozenset({"local", "bind", "preferred"}), frozenset({"interleave", "interleave=0,1"})}
    # No node with memory is known for CPU 1.
    machine = PlacementResources(16, 2, 2, "madvise", node_of={0: 0, 2: 0})
    assert same(machine, "bind", "bind=0", "local", parts=(0, 1)) == {frozenset({"bind", "bind=0"})}
    assert same(machine, "bind", "bind=0-1", "local", parts=(1, 3)) == {frozenset({"bind", "bind=0-1", "local"})}


def test_policies_of_a_bound_process_whose_nodes_are_unknown_are_all_tried() -> None:
    unknown = PlacementResources(16, 2, 2, "madvise")
    assert same(unknown, "local", "bind", "bind=0", "preferred", "interleave", "interleave=0-1") == set()
    groups = same(unknown, "local", "bind", "bind=0-1", "interleave", "interleave=0-1", policy="none")
    assert groups == {frozenset({BASELINE, "local", "bind", "bind=0-1"}), frozenset({"interleave", "interleave=0-1"})}


def test_of_three_nodes_two_are_not_all_of_them() -> None:
    three_nodes = PlacementResources(16, 2, 3, "madvise", node_of={c: c % 3 for c in range(16)})
    assert same(three_nodes, "local", "bind=0-1", "bind=0,1", "bind=0-2", "bind", parts=(0, 1)) == {
        frozenset({"local", "bind=0-2"}),
        frozenset({"bind=0-1", "bind=0,1", "bind"}),
    }


def test_weights_of_nodes_are_not_known_to_be_equal() -> None:
    assert same(TWO, "weighted", "weighted=0", "weighted=0-1", "interleave=0") == set()


def test_the_default_is_the_policy_that_is_inherited() -> None:
    two_nodes = PlacementResources(16, 2, 2, "madvise", InheritedPlacement(memory="interleave=0"), NODES_OF)
    assert same(two_nodes, "default", "interleave", "interleave=0", "local", "bind") == {
        frozenset({"pack", "interleave", "interleave=0"})
    }
    one_node = PlacementResources(16, 2, 1, "madvise", InheritedPlacement(memory="interleave=0"))
    assert same(one_node, "default", "interleave", "bind", "local") == {
        frozenset({"pack", "interleave", "bind", "local"})
    }


# ------------------------------------------------------------------ what this machine lacks


def test_memory_and_pages_that_are_missing_are_asked_for_once_each() -> None:
    requests = list[tuple[str, ...]]()

    def missing(words: Sequence[str]) -> str:
        requests.append(tuple(words))
        return {"interleave": "no policies", "2MiB": "no such pages"}.get(words[1], "")

    space = SearchSpace(("none",), memory=("default", "interleave", "bind=1"), pages=("default", "2MiB", "thp"))
    combinations, left_out = candidates(space, WIDE, 1, False, made_parts, missing)
    assert [c.name for c in combinations] == [BASELINE, "none, thp", "none, bind=1", "none, bind=1, thp"]
    assert left_out == {
        "none": f"the same as '{BASELINE}'",
        "none, 2MiB": "absent: no such pages",
        "none, interleave": "absent: no policies",
        "none, interleave, 2MiB": "absent: no policies",
        "none, interleave, thp": "absent: no policies",
        "none, bind=1, 2MiB": "absent: no such pages",
    }
    assert sorted(requests) == [
        ("--memory", "bind=1"),
        ("--memory", "interleave"),
        ("--pages", "2MiB"),
        ("--pages", "thp"),
    ]


def test_a_policy_without_a_placement_does_not_hide_the_next_one() -> None:
    def parts_of(policy: str, *_: Any) -> list[list[int]]:
        if policy == "balance":
            raise MeshmarkError("no socket has two free cores")
        return [[0], [1]]

    space = SearchSpace(("balance", "pack"), memory=("default",), pages=("default",), smt=(False,))
    combinations, left_out = candidates(space, WIDE, 2, True, parts_of, lambda _: "")
    assert [(c.name, c.parts) for c in combinations] == [(BASELINE, ()), ("pack", ((0,), (1,)))]
    assert left_out == {"balance": "absent: no socket has two free cores"}


PLACER = """#!/bin/sh
echo "$@" >> "$0.log"
case "$*" in
plan*) echo '{"jobs": [{"parts": [[1, 0]]}]}' ;;
*2MiB*) echo 'meshmark: absent: no such pages' >&2; echo 'hint: reserve some' >&2; exit 77 ;;
*1GiB*) echo 'meshmark: absent: no such pages either' >&2; exit 77 ;;
*odd*) echo 'meshmark: error: --pages: found odd' >&2; exit 2 ;;
esac
"""


@pytest.fixture
def placer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Install a program that stands in for meshmark-place and logs its arguments in the file PROGRAM.log."""
    program = tmp_path / "placer"
    program.write_text(PLACER)
    program.chmod(0o755)
    monkeypatch.setenv("MESHMARK_PLACE", str(program))
    return program


def test_the_native_program_plans_and_tells_what_is_missing(placer: Path) -> None:
    space = SearchSpace(("none", "pack"), memory=("default",), pages=("default", "2MiB", "1GiB", "4KiB"), smt=(False,))
    combinations, left_out = candidates(space, WIDE, 1, False)
    assert [(c.name, c.parts) for c in combinations] == [
        (BASELINE, ()),
        ("none, 4KiB", ()),
        ("pack", ((0, 1),)),
        ("pack, 4KiB", ((0, 1),)),
    ]
    assert left_out["none, 2MiB"] == "absent: no such pages (would help: reserve some)"
    assert left_out["pack, 1GiB"] == "absent: no such pages either"
    calls = Path(f"{placer}.log").read_text().splitlines()
    assert calls[:3] == [f"run --bind none --no-claim --pages {pages} -- true" for pages in ("2MiB", "1GiB", "4KiB")]
    assert calls[3].startswith("plan ")
    with pytest.raises(UsageError, match="found odd"):
        candidates(SearchSpace(("none",), pages=("odd",)), WIDE, 1, False)


# ------------------------------------------------------------------ plans


def test_a_plan_is_read_back_with_everything_that_it_has(tmp_path: Path) -> None:
    combinations = [
        Candidate(BASELINE),
        Candidate("pack", "pack", "threads", 2, "bind", "thp", "active", True, ((0,), (1, 3))),
    ]
    plan = AdvicePlan(
        ["a", "b c"],
        1.5,
        7,
        "rate: (.*)",
        True,
        combinations,
        {"x": "why"},
        0.25,
        InheritedPlacement("0-3", "bind=1"),
        "run1",
    )
    path = tmp_path / "plan.json"
    plan.save(path)
    assert AdvicePlan.load(path) == plan
    text = path.read_text()
    assert text.endswith("\n}\n") and text.splitlines()[1] == ' "command": ['
    raw = json.loads(text)
    for key in ("left_out", "pilot_s", "inherited", "run"):  # keys of later versions
        del raw[key]
    path.write_text(json.dumps(raw))
    assert AdvicePlan.load(path) == AdvicePlan(["a", "b c"], 1.5, 7, "rate: (.*)", True, combinations)


def test_a_plan_that_is_not_there_or_not_json_names_its_place(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    with pytest.raises(UsageError, match=f"--resume: found no plan.json in {tmp_path}$") as absence_error:
        AdvicePlan.load(path)
    assert "without --resume" in absence_error.value.hint
    path.write_text("{")
    with pytest.raises(MeshmarkError, match=f"^{path}: not a plan of meshmark advise: cannot read") as torn_error:
        AdvicePlan.load(path)
    assert not isinstance(torn_error.value, UsageError)
    path.write_text("[1]")
    with pytest.raises(MeshmarkError, match=f"^{path}: not a plan"):
        AdvicePlan.load(path)
