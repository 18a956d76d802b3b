"""Checks of the operating system: simulated and recorded machines are judged by their files, this one is tried."""

from __future__ import annotations

import json
import mmap
import os
import re
import signal
import subprocess
import tarfile
import time
import tomllib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from meshmark.doctor import spill, starts, trials
from meshmark.doctor.finding import ORDER, HostFinding
from meshmark.doctor.placement import examine
from meshmark.doctor.spill import Spill, fill_node, in_child
from meshmark.doctor.starts import TriadStart, spread_of, summary
from meshmark.doctor.trials import fallback_order
from meshmark.errors import MeshmarkError
from meshmark.experiments.start_placement import StartPlacement, placement_of
from meshmark.machine.published.reference import publications
from meshmark.machine.sources import from_sysfs
from meshmark.machine.tree import FileTree
from support.cli import meshmark, start
from support.paths import MACHINES
from support.waiting import alive, until

RECORDED = sorted(
    m["name"]
    for m in tomllib.loads((MACHINES / "index.toml").read_text())["machine"]
    if m["label"] == "recorded-in-guest"
)
CPU, NODE = "sys/devices/system/cpu", "sys/devices/system/node"
ZONES = "Node {}, zone   Normal\n  pages free     {}\n        min      50\n        low      100\n        high     150\n"
# Two packages of two cores with a node each; every test breaks one thing.
GOOD: dict[str, str] = {
    f"{CPU}/online": "0-3",
    f"{CPU}/isolated": "",
    f"{NODE}/online": "0-1",
    **{
        f"{CPU}/cpu{c}/topology/{k}": v
        for c in range(4)
        for k, v in (("physical_package_id", str(c // 2)), ("core_id", str(c)), ("core_cpus_list", str(c)))
    },
    **{
        f"{NODE}/node{n}/{k}": v
        for n in range(2)
        for k, v in (
            ("cpulist", ("0-1", "2-3")[n]),
            ("distance", ("10 21", "21 10")[n]),
            (
                "meminfo",
                f"Node {n} MemTotal: 8388608 kB\nNode {n} Slab: 1024 kB\n"
                f"Node {n} KernelStack: 1024 kB\nNode {n} PageTables: 2048 kB",
            ),
        )
    },
    "proc/meminfo": "MemTotal: 16777216 kB",
    "proc/zoneinfo": ZONES.format(0, 5000) + ZONES.format(1, 5000),
    "proc/sys/kernel/numa_balancing": "0",
    "proc/sys/vm/zone_reclaim_mode": "0",
    "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never",
    "proc/self/status": "Cpus_allowed_list:\t0-3\n",
}
TRIED = {"thread affinity", "first touch", "home allocation", "spill order, tried"}


def made(folder: Path, **changes: str | None) -> Path:
    for name, text in {**GOOD, **changes}.items():
        if text is not None:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text + "\n")
    return folder


def of(checks: list[HostFinding], name: str) -> HostFinding:
    (check,) = [c for c in checks if c.name == name]
    return check


def test_a_machine_as_it_should_be_is_well_and_a_tree_is_not_tried(tmp_path: Path) -> None:
    checks = examine(made(tmp_path), starts=5)
    assert {c.name for c in checks if c.verdict == "unknown"} == TRIED | {"scheduling quality"}
    assert not [c for c in checks if c.verdict == "wrong"]
    assert of(checks, "NUMA description").value == "2 nodes, 2 packages"
    assert of(checks, "node distances").value == "local 10, remote 21"
    assert of(checks, "spill order").value == "0→1; 1→0"
    assert of(checks, "kernel memory per node").value == "node 0 4 MiB, node 1 4 MiB"
    assert of(checks, "SMT").value == "one thread per core"


ONE_NODE: dict[str, str | None] = {
    **{k: None for k in GOOD if k.startswith(f"{NODE}/node1/")},
    f"{NODE}/online": "0",
    f"{NODE}/node0/cpulist": "0-3",
    f"{NODE}/node0/distance": "10",
}
NODE_MEMORY = "Node 1 MemTotal: 8388608 kB\nNode 1 Slab: {} kB"
CASES: list[tuple[str, dict[str, str | None], str, str, str]] = [
    ("NUMA description", ONE_NODE, "wrong", "all packages is one node", "node interleaving"),
    (
        "NUMA description",
        {**ONE_NODE, **{f"{CPU}/cpu{c}/topology/physical_package_id": "0" for c in range(4)}},
        "ok",
        "one node, one package",
        "",
    ),
    ("NUMA description", {k: None for k in GOOD if k.startswith(NODE)}, "unknown", "no NUMA nodes", "CONFIG_NUMA"),
    ("NUMA description", {f"{NODE}/node1/cpulist": "2"}, "wrong", "no node has CPUs 3", "firmware"),
    (
        "node distances",
        {f"{NODE}/node0/distance": "10 10", f"{NODE}/node1/distance": "10 10"},
        "wrong",
        "flattened",
        "--matrix measured",
    ),
    (
        "node distances",
        {f"{NODE}/node0/distance": "20 20", f"{NODE}/node1/distance": "20 20"},
        "wrong",
        "not a valid",
        "firmware",
    ),
    ("node distances", {f"{NODE}/node1/distance": "9 10"}, "wrong", "not a valid SLIT", "firmware"),
    ("node distances", {f"{NODE}/node1/distance": "10"}, "wrong", "no matrix", "firmware"),
    ("node distances", {f"{NODE}/node{n}/distance": None for n in range(2)}, "unknown", "no node reports", ""),
    ("node distances", {f"{NODE}/node1/distance": None}, "unknown", "node 1 does not report", ""),
    (
        "NUMA description",
        {f"{NODE}/node{n}/cpulist": None for n in range(2)},
        "unknown",
        "the CPUs of node 0-1 are not reported",
        "",
    ),
    (
        "NUMA description",
        ONE_NODE | {"proc/cpuinfo": "flags : hypervisor"},
        "wrong",
        "is one node",
        "on the hypervisor",
    ),
    ("SMT", {f"{CPU}/cpu{c}/topology/core_cpus_list": None for c in range(4)}, "unknown", "not reported", ""),
    ("node distances", {f"{NODE}/node1/distance": "31 10"}, "ok", "21, 31; asymmetric", ""),
    (
        "spill order",
        {"proc/zoneinfo": ZONES.format(0, 99) + ZONES.format(1, 100)},
        "wrong",
        "node 0 is full",
        "meshmark placed",
    ),
    ("spill order", ONE_NODE, "ok", "nothing to spill to", ""),
    ("NUMA balancing", {"proc/sys/kernel/numa_balancing": "1"}, "ok", "on", "meshmark advise"),
    ("NUMA balancing", {**ONE_NODE, "proc/sys/kernel/numa_balancing": "1"}, "ok", "nothing to balance", ""),
    ("NUMA balancing", {"proc/sys/kernel/numa_balancing": None}, "unknown", "not in this kernel", ""),
    ("zone reclaim", {"proc/sys/vm/zone_reclaim_mode": "1"}, "wrong", "on (1)", "vm.zone_reclaim_mode=0"),
    ("zone reclaim", {**ONE_NODE, "proc/sys/vm/zone_reclaim_mode": "1"}, "ok", "one node", ""),
    ("zone reclaim", {"proc/sys/vm/zone_reclaim_mode": None}, "unknown", "", ""),
    (
        "transparent huge pages",
        {"sys/kernel/mm/transparent_hugepage/enabled": "always madvise [never]"},
        "wrong",
        "never",
        "madvise",
    ),
    ("transparent huge pages", {"sys/kernel/mm/transparent_hugepage/enabled": None}, "unknown", "", ""),
    (
        "kernel memory per node",
        {f"{NODE}/node1/meminfo": NODE_MEMORY.format(99999)},
        "wrong",
        "mostly on node 1",
        "interleave",
    ),
    ("kernel memory per node", {f"{NODE}/node{n}/meminfo": "" for n in range(2)}, "unknown", "not reported", ""),
    (
        "SMT",
        {f"{CPU}/cpu1/topology/core_cpus_list": "0-1", f"{CPU}/cpu0/topology/core_cpus_list": "0-1"},
        "ok",
        "2 threads per core",
        "",
    ),
    ("isolated CPUs", {f"{CPU}/isolated": "2-3"}, "wrong", "2-3", "--each"),
    ("isolated CPUs", {f"{CPU}/isolated": "3"}, "ok", "3", ""),
    ("isolated CPUs", {f"{CPU}/isolated": None}, "unknown", "", ""),
    ("offline CPUs", {f"{CPU}/online": "0-2", f"{NODE}/node1/cpulist": "2"}, "ok", "3", ""),
    ("allowed CPUs", {"proc/self/status": "Cpus_allowed_list:\t2-3\n"}, "ok", "2-3 of 0-3", ""),
]


@pytest.mark.parametrize(("name", "changes", "judged", "found", "remedy"), CASES)
def test_each_check_judges_what_it_reads(
    tmp_path: Path, name: str, changes: dict[str, str | None], judged: str, found: str, remedy: str
) -> None:
    check = of(examine(made(tmp_path, **changes)), name)
    assert check.verdict == judged and found in check.value
    assert remedy in check.command and bool(check.command) == bool(remedy)


def test_sub_nodes_as_far_from_their_own_package_as_from_the_other_are_flattened(tmp_path: Path) -> None:
    distances = {
        f"{NODE}/node{n}/{k}": v
        for n in range(4)
        for k, v in (
            ("cpulist", str(n)),
            ("distance", " ".join("10" if m == n else "20" for m in range(4))),
            ("meminfo", f"Node {n} MemTotal: 4194304 kB"),
        )
    }
    assert "flattened: 20 both within and between" in of(examine(made(tmp_path, **distances)), "node distances").value
    rows = ("10 12 20 20", "12 10 20 20", "20 20 10 12", "20 20 12 10")
    rows_ = {f"{NODE}/node{n}/distance": row for n, row in enumerate(rows)}
    assert of(examine(made(tmp_path, **{**distances, **rows_})), "node distances").verdict == "ok"


def test_the_worst_comes_first_and_nothing_of_a_file_reaches_the_terminal(tmp_path: Path) -> None:
    checks = examine(made(tmp_path, **{"proc/sys/vm/zone_reclaim_mode": "1", f"{CPU}/isolated": "\x1b[2J"}))
    order = [ORDER.index(c.verdict) for c in checks]
    assert order == sorted(order) and checks[0].verdict == "wrong"
    assert "\x1b" not in json.dumps([c.to_json() for c in checks], ensure_ascii=False)


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_machines_are_read_without_a_doubtful_word(name: str, tmp_path: Path) -> None:
    archive = MACHINES / f"{name}.tar.xz"
    with tarfile.open(archive) as tar:
        tar.extractall(tmp_path)
    (root,) = {p.parents[1] for p in tmp_path.rglob("proc/cpuinfo")} or {tmp_path}
    checks = examine(root)
    assert {c.name for c in checks} >= TRIED | {"NUMA description", "spill order", "SMT"}
    assert of(checks, "node distances").verdict == "ok"


# ------------------------------------------------------------------ the running machine


def test_this_machine_keeps_bindings_and_first_touch_or_says_why_not() -> None:
    checks = examine()
    for name in TRIED:
        assert of(checks, name).verdict in {"ok", "unknown"}, of(checks, name)
    assert of(checks, "thread affinity").verdict == "ok"
    assert os.sched_getaffinity(0) == set(map(int, os.sched_getaffinity(0)))


def test_a_binding_that_is_not_kept_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    before = os.sched_getaffinity(0)
    monkeypatch.setattr(os, "sched_setaffinity", lambda *_: None)  # a sandbox that only reports success
    if len(before) > 1:
        assert of(examine(), "thread affinity").verdict == "wrong"


def test_pages_elsewhere_are_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trials, "pages_touched", lambda _=None: {0: 1, 7: 1})
    checks = examine()
    assert of(checks, "first touch").verdict == of(checks, "home allocation").verdict == "wrong"
    assert "50.0 %" in of(checks, "first touch").value


def test_a_kernel_that_refuses_is_absent_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: int | None = None) -> dict[int, int]:
        raise OSError(38, "move_pages: Function not implemented")

    monkeypatch.setattr(trials, "pages_touched", refuse)
    for name in ("first touch", "home allocation"):
        assert of(examine(), name).verdict == "unknown" and "not implemented" in of(examine(), name).value


# ------------------------------------------------------------------ the order of all targets

THREE: dict[str, str | None] = {
    f"{NODE}/online": "0-2",
    f"{NODE}/node2/cpulist": "",
    f"{NODE}/node2/meminfo": "Node 2 MemTotal: 4194304 kB",
    **{f"{NODE}/node{n}/distance": row for n, row in enumerate(("10 21 31", "21 10 31", "31 31 10"))},
}


def ordered(
    folder: Path, monkeypatch: pytest.MonkeyPatch, first_of: Callable[[int, set[int]], int], **changes: str | None
) -> HostFinding:
    """Return the finding if a page that is requested from one of several nodes is placed on the node that `first_of`
    returns."""
    root = made(folder, **{**THREE, **changes})
    asked_from: list[int] = []
    monkeypatch.setattr(trials, "FileTree", lambda _: FileTree(root))
    monkeypatch.setattr(os, "sched_setaffinity", lambda _, cpus: asked_from.append(min(cpus) // 2))

    def pages_on(*nodes: int, length: int, start_from: int | None) -> dict[int, int]:
        return {first_of(asked_from[-1] if start_from is None else start_from, set(nodes)): length // 4096}

    monkeypatch.setattr(trials, "pages_touched", pages_on)
    return fallback_order(from_sysfs(root), "")


def test_the_order_of_all_nodes_is_that_of_the_distances(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check = ordered(tmp_path, monkeypatch, lambda node, among: min(among, key=lambda n: (n == 2, abs(n - node))))
    assert (check.verdict, check.value) == ("ok", "0→1,2; 1→0,2; 2→1,0")


def test_a_far_node_before_a_near_one_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check = ordered(tmp_path, monkeypatch, lambda _, among: max(among))
    assert check.verdict == "wrong" and "0→2,1; 1→2,0; 2→1,0: from node 0-1 not by distance" in check.value
    # The kernel itself adds to distances: a difference of no more than that gives no order.
    distances = {f"{NODE}/node{n}/distance": row for n, row in enumerate(("10 11 13", "11 10 13", "13 13 10"))}
    assert ordered(tmp_path, monkeypatch, lambda _, among: max(among), **distances).verdict == "ok"


def test_an_order_that_cannot_be_asked_for_is_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(node: int, among: set[int]) -> int:
        if node == 2:
            raise OSError(38, "it has no CPU, which needs Linux 5.17")
        return min(among)

    check = ordered(tmp_path / "a", monkeypatch, refuse)
    assert (
        check.verdict == "ok"
        and check.value == "0→1,2; 1→0,2; node 2 not tested: it has no CPU, which needs Linux 5.17"
    )
    status = {"proc/self/status": "Cpus_allowed_list:\t0-3\nMems_allowed_list:\t0-1\n"}
    check = ordered(tmp_path / "b", monkeypatch, refuse, **status)
    assert (check.verdict, check.value) == ("unknown", "node 2 not tested: it has no CPU, which needs Linux 5.17")
    full = ZONES.format(0, 99) + ZONES.format(1, 99) + ZONES.format(2, 5000)
    check = ordered(tmp_path / "c", monkeypatch, refuse, **{"proc/zoneinfo": full})
    assert (check.verdict, check.value) == ("unknown", "no node has two others with free memory")
    monkeypatch.setattr(trials, "MAX_ORDER_S", -1.0)
    check = ordered(tmp_path / "d", monkeypatch, refuse)
    assert check.verdict == "unknown" and "node 0 not tested" in check.value


# ------------------------------------------------------------------ a provoked spill

FREE = "Node {} MemTotal: 8388608 kB\nNode {} MemFree: 1048576 kB"
ROOMY: dict[str, str | None] = {
    **{f"{NODE}/node{n}/meminfo": FREE.format(n, n) for n in range(2)},
    "proc/meminfo": "MemTotal: 16777216 kB\nMemAvailable: 8388608 kB",
}


def provoked(
    folder: Path, monkeypatch: pytest.MonkeyPatch, fill: Callable[[FileTree, int], Spill], **changes: str | None
) -> HostFinding:
    """Return the finding about the spills that `fill` simulates on the machine of two nodes."""
    monkeypatch.setattr(FileTree, "live", True)
    monkeypatch.setattr(spill, "fill_node", fill)
    monkeypatch.setattr(spill, "in_child", lambda work: work())
    root = made(folder, **{**ROOMY, **changes})
    return spill.provoked(FileTree(root), from_sysfs(root))


def test_a_spill_to_the_other_node_is_right_and_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check = provoked(tmp_path, monkeypatch, lambda _, n: Spill(3 << 20, {1 - n: 5}))
    assert check.verdict == "ok"
    assert check.value == "node 0 spills to 1 (distance 21) after 3 MiB; node 1 spills to 0 (distance 21) after 3 MiB"


def test_a_spill_past_a_nearer_node_is_wrong_but_not_where_that_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    third: dict[str, str | None] = {
        f"{NODE}/online": "0-2",
        f"{NODE}/node2/cpulist": "",
        f"{NODE}/node2/meminfo": FREE.format(2, 2),
        **{f"{NODE}/node{n}/distance": row for n, row in enumerate(("10 21 31", "21 10 31", "31 31 10"))},
    }

    def to_the_third(_: FileTree, node: int) -> Spill:
        return Spill(1, {2 if node != 2 else 0: 5})

    check = provoked(tmp_path / "a", monkeypatch, to_the_third, **third)
    assert check.verdict == "wrong" and "from node 0-1 not to the nearest" in check.value
    full = "".join(ZONES.format(n, 5000 if n == 2 else 50) for n in range(3))
    check = provoked(tmp_path / "b", monkeypatch, to_the_third, **third, **{"proc/zoneinfo": full})
    assert check.verdict == "ok", check


def test_without_room_nothing_is_filled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> Spill:
        raise AssertionError("it was filled")

    tight = {"proc/meminfo": "MemTotal: 16777216 kB\nMemAvailable: 1200000 kB"}
    check = provoked(tmp_path / "a", monkeypatch, never, **tight)
    assert check.verdict == "unknown" and "node 0 not tested: 1024 MiB free, 352 MiB may be used" in check.value
    group = "sys/fs/cgroup"
    files = {
        "proc/self/cgroup": "0::/job/step",
        f"{group}/job/memory.max": str(512 << 20),
        f"{group}/job/memory.current": str(100 << 20),
    }
    check = provoked(tmp_path / "b", monkeypatch, never, **files)
    assert check.verdict == "unknown" and "348 MiB may be used" in check.value
    check = provoked(tmp_path / "c", monkeypatch, never, **ONE_NODE)
    assert check.verdict == "unknown" and "nothing to spill to" in check.value


def test_filling_ends_with_the_first_pages_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    places = iter([{0: 1024}, {0: 1000, 1: 24}])
    monkeypatch.setattr(spill, "give_policy", lambda *_: None)
    monkeypatch.setattr(spill, "node_of_pages", lambda *_: next(places))
    small = re.sub(r"MemFree: +[0-9]+", "MemFree: 4096", ROOMY[f"{NODE}/node0/meminfo"])
    tree = FileTree(made(tmp_path, **{**ROOMY, f"{NODE}/node0/meminfo": small}))
    assert fill_node(tree, 0) == Spill(2024 * mmap.PAGESIZE, {1: 24})


def test_filling_stops_before_memory_is_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object, **__: object) -> None:
        raise AssertionError("memory was taken")

    monkeypatch.setattr(mmap, "mmap", none)
    low = made(tmp_path, **{**ROOMY, "proc/meminfo": "MemTotal: 16777216 kB\nMemAvailable: 900000 kB"})
    assert "too little memory left" in fill_node(FileTree(low), 0).why


def refuse() -> Spill:
    raise OSError(1, "mbind to node 0: Operation not permitted")


def die() -> Spill:
    os.kill(os.getpid(), 9)
    raise AssertionError


def endless() -> Spill:
    signal.pause()
    return Spill(0, {})


def test_what_goes_wrong_in_the_filling_process_is_a_reason() -> None:
    assert in_child(partial(Spill, 7, {1: 2})) == Spill(7, {1: 2})
    assert in_child(refuse).why == "mbind to node 0: Operation not permitted"
    assert "killed" in in_child(die).why


# ------------------------------------------------------------------ scheduling quality


def test_a_start_of_the_triad_has_its_rate_and_its_cpus() -> None:
    cpus = os.sched_getaffinity(0)
    start = starts.triad("balance", 1, 1 << 17, 200, dict.fromkeys(cpus, 0))
    assert start.rate > 1e6 and {*start.placement.cpus} <= cpus
    with pytest.raises(MeshmarkError):
        starts.triad("nosuch", 1, 1 << 10, 1, {})


def test_starts_are_summarized_by_cpus_and_pages() -> None:
    def start_on(*threads: str, pages: str = "0") -> TriadStart:
        busy = [{"ran_on": cpus, "user_s": 1.0, "system_s": 0.0} for cpus in threads]
        report = {"seconds": 1.0, "threads": busy, "pages": {pages: 4096}, "migrations": 0}
        return TriadStart(1.0, placement_of({"report": report}, {0: 0, 1: 0, 2: 1, 3: 1}))

    starts = [
        start_on("0"),
        start_on("0-1"),
        start_on("1", pages="1"),
        start_on("0,2"),
        start_on("0", "0"),
        start_on("0", "1"),
        start_on(),
    ]
    assert summary(starts) == (
        "2 stayed, 1 moved within a node, 1 shared a CPU, 1 moved between nodes, 1 with remote pages, 1 not observed"
    )
    in_turn = [{"ran_on": "0", "user_s": 0.3, "system_s": 0.0, "waiting_s": 0.2}] * 2  # beside another program
    assert placement_of({"report": {"seconds": 1.0, "threads": in_turn}}, {0: 0}).place == "stayed"
    both_ready = [{"ran_on": "0", "user_s": 0.5, "system_s": 0.0, "waiting_s": 0.5}] * 2
    assert placement_of({"report": {"seconds": 1.0, "threads": both_ready}}, {0: 0}).place == "shared a CPU"
    waiting = {"ran_on": "0-3", "user_s": 0.01, "system_s": 0.0}
    assert placement_of({"report": {"seconds": 1.0, "threads": [waiting]}}, {}).place == "not observed"


def test_the_spread_is_that_of_the_publication() -> None:
    (paper,) = [p for p in publications() if p.name == "xeon_5500_lsf_2009"]
    runs = {
        (r["scheduler"], r["threads"]): r["total_mb_per_s"] for r in paper.data["stream_run"] if "total_mb_per_s" in r
    }
    _, cov, free = spread_of(runs["Linux kernel", 4])
    assert (round(free, 2), round(cov, 4)) == (0.43, 0.1187)
    assert round(spread_of(runs["Platform LSF, processor binding", 4])[2], 3) == 0.006


def published_runs(scheduler: str) -> list[float]:
    (paper,) = [p for p in publications() if p.name == "xeon_5500_lsf_2009"]
    return next(
        [float(v) for v in row["total_mb_per_s"]]
        for row in paper.data["stream_run"]
        if "total_mb_per_s" in row and (row["scheduler"], row["threads"]) == (scheduler, 4)
    )


@pytest.mark.parametrize(
    ("unbound", "bound", "starts_each", "judged", "because"),
    [
        ("Linux kernel", "Platform LSF, processor binding", 10, "wrong", "unbound starts are less steady (p = 0.0001)"),
        ("Platform LSF, processor binding", "Platform LSF, processor binding", 10, "ok", ""),
        ("Linux kernel", "Linux kernel", 10, "unknown", "bound starts vary, too"),
        ("Platform LSF, processor binding", "Linux kernel", 10, "ok", ""),
        ("Linux kernel", "Platform LSF, processor binding", 4, "unknown", "too few starts for a verdict"),
    ],
)
def test_a_spread_that_binding_would_remove_is_wrong(
    monkeypatch: pytest.MonkeyPatch, unbound: str, bound: str, starts_each: int, judged: str, because: str
) -> None:
    rates = {"none": iter(published_runs(unbound)), "balance": iter(published_runs(bound))}
    requests: list[str] = []

    def triad(bind: str, *_: Any) -> TriadStart:
        requests.append(bind)
        return TriadStart(1e6 * next(rates[bind]), StartPlacement("stayed"))

    monkeypatch.setattr(starts, "triad", triad)
    check = of(examine(starts=starts_each, threads=1), "scheduling quality")
    assert check.verdict == judged and requests == ["none", "balance"] * starts_each
    assert because in check.value and f"({starts_each} stayed)" in check.value


def test_without_the_native_program_the_test_is_absent(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MESHMARK_PLACE", str(tmp_path / "none"))
    assert of(examine(starts=2), "scheduling quality").verdict == "unknown"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_who_is_ended_leaves_neither_a_triad_nor_a_file(tmp_path: Path, number: signal.Signals) -> None:
    place = tmp_path / "place"
    place.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid\nexec sleep 600\n")
    place.chmod(0o755)
    (tmp_path / "tmp").mkdir()
    env = {"MESHMARK_PLACE": str(place), "TMPDIR": str(tmp_path / "tmp")}
    with start("check-os", "--starts", "2", env=env, stdout=subprocess.DEVNULL) as child:
        try:
            assert until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().endswith("\n"))
            child.send_signal(number)
            _, err = child.communicate(timeout=120)
        finally:
            child.kill()
    assert child.returncode == (143 if number == signal.SIGTERM else -number)
    assert number == signal.SIGKILL or "ended by SIGTERM" in err
    assert until(lambda: not alive(int((tmp_path / "pid").read_text())))
    assert not list((tmp_path / "tmp").iterdir())


def test_who_is_interrupted_ends_the_process_that_fills_a_node() -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    start_s = time.monotonic()
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        with pytest.raises(KeyboardInterrupt):
            in_child(endless)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert time.monotonic() - start_s < 300  # it waits for the child, which has ended


def test_the_command_prints_checks_and_only_strict_fails(tmp_path: Path) -> None:
    root = str(made(tmp_path, **{"proc/sys/vm/zone_reclaim_mode": "1"}))
    completed = meshmark("check-os", "--root", root, "--json")
    lines = [json.loads(x) for x in completed.stdout.splitlines()]
    assert completed.returncode == 0 and lines[0]["name"] == "zone reclaim" and lines[0]["judged"] == "wrong"
    assert {"name", "judged", "found", "why", "command"} == set(lines[0])
    assert meshmark("check-os", "--root", root, "--strict").returncode == 1
    result = meshmark("check-os", "--root", root)
    assert "sudo sysctl vm.zone_reclaim_mode=0" in result.stdout and "1 wrong" in result.stderr


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--starts", "1"], "--starts"),
        (["--starts", "x"], "--starts"),
        (["--threads", "99999"], "--threads"),
        (["--root", "/proc/nonexistent"], "--root"),
    ],
)
def test_bad_words_are_one_line(words: list[str], says: str) -> None:
    completed = meshmark("check-os", *words)
    assert (
        completed.returncode == 2 and says in completed.stderr.splitlines()[0] and "Traceback" not in completed.stderr
    )


def test_a_tree_of_nothing_is_one_line(tmp_path: Path) -> None:
    completed = meshmark("check-os", "--root", str(tmp_path))
    assert completed.returncode == 1 and "no CPU" in completed.stderr and "Traceback" not in completed.stderr
