"""Tests of the pairs of results of two sources, with a table written by hand from what each tool measures.

`host1` and `host2` are simulated hosts (`support.made_hosts`); files are outputs of other tools, each from a different
machine. A pair is named by its metric and its two values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from meshmark.compare.kinds import kinds
from meshmark.compare.models import simulated
from meshmark.compare.pairing import Pairing
from meshmark.machine.published.papers import PAPER, paper
from meshmark.model.instruments import measure
from meshmark.model.machine import find_machine
from meshmark.store.record import Record
from meshmark.values.units import NBSP, show
from support.imports import fixture, taken_from
from support.made_hosts import one_socket, two_sockets

MODEL = "model:"
HOSTS = {"host1": one_socket, "host2": two_sockets}


def results(name: str, others: Sequence[Record] = ()) -> list[Record]:
    """Return the results of a source; `+` joins several files."""
    if name in HOSTS:
        return HOSTS[name]()
    if name.startswith(PAPER):
        return paper(name).records()
    if name.startswith(MODEL):
        return simulated(find_machine(name.removeprefix(MODEL)), others)
    return [r for file in name.split("+") for r in taken_from(fixture(file))]


def sides(a: str, b: str) -> tuple[list[Record], list[Record]]:
    first = results(a)
    return [replace(r, machine="a") for r in first], [replace(r, machine="b") for r in results(b, first)]


def value(r: Record) -> str:
    return show(r.value, r.unit).replace(NBSP, " ")


def paired(a: str, b: str) -> set[str]:
    return {f"{m.a.metric}: {value(m.a)} | {value(m.b)}" for m in Pairing(*sides(a, b), same_machine=False).matches}


# MLC measures local latency on one node, reads and triad on all CPUs, and transfers between two cores of a socket.
MLC = {
    "bandwidth_net: 53.0 GB/s | 158 GB/s",
    "bandwidth_net: 63.1 GB/s | 165 GB/s",
    "line_latency: 30.0 ns | 49.5 ns",
    "line_latency: 30.1 ns | 49.5 ns",
}
NOTHING: set[str] = set()
TABLE: list[tuple[str, str, set[str]]] = [
    # One node has no remote memory, and its caches are not memory.
    ("host1", "mlc-pair.txt", {*MLC, "load_latency: 100 ns | 82.1 ns"}),
    (
        "host2",
        "mlc-pair.txt",
        {
            "load_latency: 120 ns | 82.1 ns",
            "load_latency: 204 ns | 141 ns",  # on the other socket
            "bandwidth_net: 140 GB/s | 158 GB/s",
            "bandwidth_net: 167 GB/s | 165 GB/s",
            "line_latency: 36.0 ns | 49.5 ns",
            "line_latency: 36.1 ns | 49.5 ns",
            "line_latency: 132 ns | 115 ns",  # the line is homed at the writer
            "line_latency: 132 ns | 185 ns",  # at the reader
        },
    ),
    # The output does not state which of the four nodes with CPUs share a socket.
    (
        "host2",
        "mlc-snc.txt",
        {
            "load_latency: 120 ns | 77.3 ns",
            "bandwidth_net: 140 GB/s | 194 GB/s",
            "bandwidth_net: 167 GB/s | 233 GB/s",
            "line_latency: 36.0 ns | 45.0 ns",
            "line_latency: 36.1 ns | 45.1 ns",
        },
    ),
    ("host2", "mlc-cxl.txt", {"load_latency: 120 ns | 108 ns"}),
    (
        "host1",
        "mlc-one.txt",
        {
            "load_latency: 100 ns | 163 ns",
            "bandwidth_net: 53.0 GB/s | 12.7 GB/s",
            "bandwidth_net: 63.1 GB/s | 8.90 GB/s",
            "line_latency: 30.0 ns | 45.3 ns",
            "line_latency: 30.1 ns | 47.7 ns",
        },
    ),
    # STREAM reports the total; the host does not measure add and scale.
    ("host1", "stream.txt", {"bandwidth_net: 47.4 GB/s | 41.9 GB/s", "bandwidth_net: 53.0 GB/s | 28.1 GB/s"}),
    # A second import does not remove a pair of the first import.
    (
        "host1",
        "mlc-pair.txt+stream.txt",
        {
            *MLC,
            "load_latency: 100 ns | 82.1 ns",
            "bandwidth_net: 47.4 GB/s | 41.9 GB/s",
            "bandwidth_net: 53.0 GB/s | 28.1 GB/s",
        },
    ),
    ("stream.txt", "mlc-pair.txt", {"bandwidth_net: 28.1 GB/s | 158 GB/s"}),
    # Working sets of 512 B to 20 MB are in a cache, but the output does not state in which one.
    ("host1", "likwid_bench.txt", NOTHING),
    ("stream.txt", "likwid_bench.txt", NOTHING),
    ("likwid_bench.txt", "mlc-pair.txt", NOTHING),
    ("host1", "babelstream.txt", NOTHING),
    ("stream.txt", "babelstream.txt", NOTHING),
    # One number has no footprint, and another has 16 MiB on a machine with unknown caches.
    ("host1", "multichase.txt", NOTHING),
    ("multichase.txt", "mlc-pair.txt", NOTHING),
    ("host1", "multichase-samples.txt", NOTHING),
    ("multichase-samples.txt", "lmbench.txt", NOTHING),
    # 16 KiB fit in every L1; the larger footprints could be in any cache.
    ("host1", "lmbench.txt", {"load_latency: 1.50 ns | 1.10 ns"}),
    ("lmbench.txt", "lmbench-results.txt", {"load_latency: 1.10 ns | 1.20 ns"}),
    ("host1", "lmbench-bw_mem.txt", NOTHING),
    # The tool names the levels.
    (
        "host1",
        "asct.json",
        {
            "load_latency: 1.50 ns | 1.48 ns",
            "load_latency: 3.99 ns | 4.07 ns",
            "load_latency: 15.0 ns | 23.6 ns",
            "load_latency: 100 ns | 113 ns",
            "bandwidth_net: 63.1 GB/s | 919 GB/s",
        },
    ),
    # Delays of different tools are different loads.
    ("mess.csv", "mlc-snc.txt", NOTHING),
    ("asct-loaded.csv", "mlc-snc.txt", NOTHING),
    ("host1", "mess.csv", NOTHING),
    ("host2", "asct-loaded.csv", NOTHING),
    ("multichase-multiload.txt", "mlc-snc.txt", NOTHING),
    # The outputs state neither whether CPUs 0 and 1 share a core nor on which hosts the ranks are.
    ("host1", "core_to_core_latency.csv", NOTHING),
    ("host2", "c2clat.txt", NOTHING),
    ("host2", "multichase-pingpong.txt", NOTHING),
    ("core_to_core_latency.csv", "c2clat.txt", NOTHING),
    ("core_to_core_latency.csv", "mlc-pair.txt", NOTHING),
    ("core_to_core_latency.csv", "core_to_core_latency-two.csv", NOTHING),
    ("osu.txt", "imb.txt", NOTHING),
    ("host1", "osu.txt", NOTHING),
    # HPC Challenge's "all" is the rate of one rank while all run; its arrays fit into caches here.
    ("host1", "hpcc-four.txt", NOTHING),
    ("hpcc-one.txt", "stream.txt", NOTHING),
    # Published latencies are latencies of memory.
    ("host1", "paper:xeon5500", {"load_latency: 100 ns | 74.0 ns", "bandwidth_net: 18.0 GB/s | 11.5 GB/s"}),
    ("paper:xeon5500", "mlc-pair.txt", {"load_latency: 74.0 ns | 82.1 ns"}),
    ("paper:xeon5500", "stream.txt", {"bandwidth_net: 32.6 GB/s | 41.9 GB/s"}),
    ("paper:gs1280", "mlc-pair.txt", {"load_latency: 82.0 ns | 82.1 ns"}),
    # The published bandwidth was measured with one CPU and a kernel that is not named.
    ("host1", "paper:altix3700", {"flop_rate: 50.1 GFLOP/s | 5.20 GFLOP/s"}),
    (
        "paper:e325",
        "stream.txt",
        {
            "bandwidth_net: 7.09 GB/s | 41.9 GB/s",
            "bandwidth_net: 7.32 GB/s | 26.4 GB/s",
            "bandwidth_net: 7.33 GB/s | 28.6 GB/s",
            "bandwidth_net: 7.33 GB/s | 28.1 GB/s",
        },
    ),
    ("model:e325", "stream.txt", {"bandwidth_net: 5.26 GB/s | 28.1 GB/s"}),
    ("model:gs1280-16", "mlc-snc.txt", {"load_latency: 132 ns | 77.3 ns", "bandwidth_net: 108 GB/s | 194 GB/s"}),
]


def test_the_table_has_forty_pairs_of_sources() -> None:
    assert len(TABLE) >= 40 and len({(a, b) for a, b, _ in TABLE}) == len(TABLE)


@pytest.mark.parametrize(("a", "b", "expected"), TABLE, ids=lambda x: x if isinstance(x, str) else "")
def test_results_of_one_kind_are_compared_and_no_others(a: str, b: str, expected: set[str]) -> None:
    assert paired(a, b) == expected


@pytest.mark.parametrize(("a", "b", "expected"), TABLE, ids=lambda x: x if isinstance(x, str) else "")
def test_the_order_of_the_sides_does_not_matter(a: str, b: str, expected: set[str]) -> None:
    if MODEL in a + b:
        pytest.skip("a model is asked for what the other side has")
    swapped = {"{0}: {2} | {1}".format(*text.replace(" | ", ": ").split(": ")) for text in paired(b, a)}
    assert swapped == expected


@pytest.mark.parametrize(("a", "b", "_"), TABLE, ids=lambda x: x if isinstance(x, str) else "")
def test_every_other_result_is_listed_with_its_reason(a: str, b: str, _: set[str]) -> None:
    side_a, side_b = sides(a, b)
    pairing = Pairing(side_a, side_b, same_machine=False)
    pairs, leftovers = pairing.matches, pairing.unpaired()
    in_pairs = [{id(m.a) for m in pairs}, {id(m.b) for m in pairs}]
    assert [len(side) for side in leftovers] == [
        len(s) - len(ids) for s, ids in zip((side_a, side_b), in_pairs, strict=True)
    ]
    assert all(u.reason for side in leftovers for u in side)


def test_cells_of_a_matrix_of_one_tool_are_paired_by_their_nodes() -> None:
    side_a, side_b = sides("mlc-snc.txt", "mlc-cxl.txt")
    pairs = Pairing(side_a, side_b, same_machine=False).matches
    nodes = [[tuple(r.conditions[k] for k in ("cpu_node", "memory_node")) for r in (m.a, m.b)] for m in pairs]
    assert len(nodes) == 32 and all(a == b for a, b in nodes)


def test_all_threads_pair_with_all_threads_and_one_with_one() -> None:
    pairs = Pairing(*sides("host1", "host2"), same_machine=False).matches
    rates = [(m.a.conditions["threads"], m.b.conditions["threads"]) for m in pairs if m.a.instrument == "bandwidth"]
    assert sorted(set(rates)) == [(1, 1), (4, 16)] and len(rates) == 12
    levels = {
        (m.a.conditions["memory_level"], m.b.conditions["memory_level"]) for m in pairs if m.a.instrument == "latency"
    }
    assert levels == {(level, level) for level in ("L1", "L2", "L3", "memory")}


def test_equal_footprints_in_different_levels_are_shown_but_not_compared() -> None:
    records_a = [r for r in one_socket() if r.conditions.get("memory_level") == "L2"]
    records_b = [replace(r, machine="b", conditions={**r.conditions, "memory_level": "L3"}) for r in records_a]
    (match,) = Pairing(records_a, records_b, same_machine=False).matches
    assert match.differ == "L2 and L3"


def test_transfers_in_one_socket_are_unknown_where_some_cores_share_a_cache_and_some_do_not() -> None:
    host = [r for r in one_socket() if r.instrument == "lines"]
    host[0] = replace(host[0], conditions={**host[0].conditions, "cpus_within": "socket"})
    mlc = [r for r in results("mlc-pair.txt") if r.instrument == "lines"]
    assert not Pairing(host, mlc, same_machine=False).matches


def test_a_small_buffer_of_a_tool_for_memory_is_of_an_unknown_level() -> None:
    small = [r for r in results("mlc-cxl.txt") if r.conditions.get("footprint_bytes") == 10 << 20]
    assert len(small) == 1 and not Pairing(two_sockets(), small, same_machine=False).matches


def test_the_rate_of_each_rank_is_not_that_of_all() -> None:
    """HPC Challenge prints the mean rate per rank while all ranks run."""
    large = [
        replace(r, conditions={**r.conditions, "footprint_bytes": 8 << 30})
        for r in results("hpcc-four.txt")
        if r.instrument == "bandwidth" and r.conditions["running"] == "all"
    ]
    assert large and not Pairing(one_socket(), large, same_machine=False).matches


@pytest.mark.parametrize(
    ("instrument", "size", "threads", "level"),
    [
        ("bandwidth", 229 << 20, 8, ""),  # STREAM of the default size fits into the caches of EPYC 72F3
        ("bandwidth", 1200 << 20, 2, "memory"),
        ("bandwidth", 1200 << 20, 32, ""),  # less than 48 MiB per core
        ("bandwidth", 4 << 30, 32, "memory"),
        ("gups", 1200 << 20, 1, "memory"),
        ("gups", 1200 << 20, 32, ""),  # one table for all threads
        ("gups", 8 << 30, 32, "memory"),
    ],
)
def test_a_footprint_is_of_memory_only_if_no_processor_can_cache_it(
    instrument: str, size: int, threads: int, level: str
) -> None:
    conditions = {"threads": threads, "footprint_bytes" if instrument == "bandwidth" else "table_bytes": size}
    base = results("stream.txt")[0]
    record = replace(base, instrument=instrument, metric="rate", conditions=conditions)
    assert kinds([record])[id(record)].words["level"] == ({level} if level else set())


def test_a_cache_of_a_model_is_not_memory() -> None:
    records = measure("latency", find_machine("xeon5500"), {"footprint": "16KiB,1GiB", "cpus": "0"})
    words = kinds(records)
    levels = {(r.conditions["footprint_bytes"], *words[id(r)].words["level"]) for r in records}
    assert levels == {(16 << 10, "L1"), (1 << 30, "memory")}


@pytest.mark.parametrize("footprint", [0, -1, "1GiB", None, True])
def test_an_odd_footprint_is_no_error(footprint: object) -> None:
    a_side = [replace(r, conditions={**r.conditions, "footprint_bytes": footprint}) for r in one_socket()]
    pairing = Pairing(a_side, two_sockets(), same_machine=False)
    assert len(pairing.matches) + len(pairing.unpaired()[0]) >= len(a_side)
