"""Fits of machines to surveys whose numbers are round, so that each number of the file can be computed by hand."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from meshmark.errors import AbsentError
from meshmark.model.fitting import fit as fitting
from meshmark.model.fitting.fit import FitPoint, SurveyFit, fit
from meshmark.store.record import Metric, Record

GIB = 1 << 30
UNITS = {
    "level_latency": "s",
    "load_latency": "s",
    "memory_parallelism": "1",
    "bandwidth_net": "B/s",
    "bandwidth_gross": "B/s",
    "update_rate": "op/s",
}


def rec(instrument: str, metric: str, *samples: float, flags: Iterable[str] = (), **conditions: Any) -> Record:
    return Record.from_samples(
        Metric(metric, UNITS[metric], "none", ""),
        samples,
        source="host",
        machine="h",
        instrument=instrument,
        conditions=conditions,
        provenance={},
        flags=frozenset(flags),
    )


def level(number: int, to_bytes: int, latency_s: float, pages: str = "thp") -> Record:
    return rec("latency", "level_latency", latency_s, kind="cache", level=number, to_bytes=to_bytes, pages=pages)


def chains(count: int, threads: int, latency_s: float, rate: float, **more: Any) -> list[Record]:
    conditions = {"mode": "chains", "chains": count, "threads": threads}
    return [
        rec("loaded", "load_latency", latency_s, **conditions, **more),
        rec("loaded", "bandwidth_net", rate, **conditions, **more),
    ]


def stream(
    kernel: str, store: str, threads: int, gross: float, size: int = GIB, net: float | None = None
) -> list[Record]:
    conditions = {"kernel": kernel, "store": store, "threads": threads, "footprint_bytes": size}
    return [
        rec("bandwidth", "bandwidth_gross", gross, **conditions),
        rec("bandwidth", "bandwidth_net", gross if net is None else net, **conditions),
    ]


# 7 lines of 64 B are in flight: 4.48 GB/s x 100 ns / 64 B. Two thirds of a triad's 9.6 GB/s are reads: 10 lines.
LEVELS = [level(2, 1 << 20, 5e-9), level(1, 32768, 1.5e-9), level(1, 49152, 9e-9, "4KiB")]
CHAINS = [*chains(1, 1, 100e-9, 0.6e9), *chains(8, 1, 120e-9, 4.48e9)]
STREAMS = [*stream("triad", "streaming", 1, 9.6e9), *stream("triad", "streaming", 4, 40e9)]
SURVEY = [*LEVELS, *CHAINS, *STREAMS]


class Simulator:
    """A replacement for the simulator: STREAM actors get `stream_rate` of their chains, others 5e7 loads/s."""

    def __init__(self, stream_rate: Callable[[int], float]) -> None:
        self.stream_rate = stream_rate
        self.asked: list[list[dict[str, Any]]] = []

    def __call__(self, _: object, runs: Sequence[dict[str, Any]], *, on_line: Any = None) -> list[dict[str, Any]]:
        self.asked.append(list(runs))
        answers = []
        for run in runs:
            (actor,) = run["actors"]
            rate = 5e7 * 64 if actor["streams"][0].get("random") else self.stream_rate(actor["chains"])
            group = {"bytes_per_s": [1.0, rate, 1e15], "reads_per_s": [1.0, 5e7, 1e15]}
            other = {"bytes_per_s": [7.0], "reads_per_s": [7.0]}
            answers.append({"type": "answer", "groups": [group, other]})
        for line in answers:
            if on_line is not None:
                on_line({"type": "frame"})
                on_line(line)
        return answers


def per_line(rate: float) -> Callable[[int], float]:
    return lambda lines: rate * lines


@pytest.fixture
def simulator(monkeypatch: pytest.MonkeyPatch) -> Simulator:
    replacement = Simulator(per_line(1e9))
    monkeypatch.setattr(fitting, "ask", replacement)
    return replacement


def fitted(folder: Path, *records: Record, cpus: Sequence[int] = (4,), line: int = 64) -> dict[str, Any]:
    return tomllib.loads(fit([*records, *SURVEY], "made", cpus, line, folder).text)


def value(machine: dict[str, Any], dotted: str) -> float:
    table: Any = machine
    for key in dotted.split("."):
        table = table[key]
    return float(table["value"])


# ------------------------------------------------------------------ the file

FILE = """\
# Fitted to a survey by meshmark model fit.
format = 1
title = "made, fitted to its survey"

[topology]
kind = "single"

[router]
pipeline_ns = { value = 0, assumed = "included in the links" }
cycle_ns = { value = 0.5, assumed = "negligible" }
buffer_flits = { value = 256, assumed = "not limiting" }

[node]
cpus = { value = 4, derived = "the host's topology" }
controllers = { value = 1, assumed = "all channels of a node merged into one" }

[cpu]
outstanding = { value = 7, fitted = "maximum outstanding loads of random chains, one CPU" }
stream_outstanding = { value = 10, fitted = "triad, streaming stores, one CPU" }
write_buffers = { value = 10, assumed = "as many as reads" }
request_ns = { value = 25, derived = "a quarter of the latency" }
fill_ns = { value = 25, derived = "a quarter of the latency" }

[[cache]]
name = "L1"
size_kib = { value = 32, fitted = "end of a latency plateau" }
latency_ns = { value = 1.5, fitted = "a latency plateau" }

[[cache]]
name = "L2"
size_kib = { value = 1024, fitted = "end of a latency plateau" }
latency_ns = { value = 5, fitted = "a latency plateau" }

[memory]
channels = { value = 1, assumed = "all channels of a node merged into one" }
channel_gb_per_s = { value = 40, fitted = "maximum gross bandwidth of all CPUs" }
line_bytes = { value = 64, derived = "the host's coherence line" }
access_ns = { value = 50, fitted = "load latency, one chain" }
queue = { value = 256, assumed = "not limiting" }

[coherence]
kind = "snoop"
"""


def test_a_fit_writes_a_machine_file_with_the_origin_of_each_number(simulator: Simulator, tmp_path: Path) -> None:
    assert fit(SURVEY, "made", [4], 64, tmp_path).text == FILE
    assert (tmp_path / "made.toml").read_text() == FILE


def test_a_title_is_quoted_and_numbers_have_six_digits(simulator: Simulator, tmp_path: Path) -> None:
    text = fit([level(3, 1 << 25, 12.3456789e-9), *SURVEY], 'a "b"', [4], 64, tmp_path).text
    assert 'title = "a \\"b\\", fitted to its survey"' in text
    assert value(tomllib.loads(text)["cache"][2], "latency_ns") == 12.3457


LINKS = """\
[topology]
kind = "graph"
routers = 3
edges = [[0, 1, "between"], [0, 2, "between"], [1, 2, "between"]]
derived = "all nodes directly connected"

[links.between]
bandwidth_gb_per_s = { value = 13.3333, assumed = "equal to a node's memory bandwidth; not surveyed" }
latency_ns = { value = 40, fitted = "mean latency of the other nodes less the local one" }

[router]
"""


def on_node(node: object, latency_s: float, size: int = GIB, **more: Any) -> Record:
    conditions = {"pattern": "random", "processes": 1, "memory_node": node, "footprint_bytes": size, **more}
    return rec("latency", "load_latency", latency_s, **conditions)


def test_nodes_are_joined_pairwise_by_links_of_half_the_additional_latency(
    simulator: Simulator, tmp_path: Path
) -> None:
    remote = [on_node(1, 160e-9), on_node(2, 200e-9)]
    text = fit([*remote, *SURVEY], "three", [2, 2, 4], 64, tmp_path).text
    assert LINKS in text  # (mean of 160 and 200, less 100) / 2
    assert value(tomllib.loads(text), "node.cpus") == 2
    assert value(tomllib.loads(text), "memory.channel_gb_per_s") == 13.3333


@pytest.mark.parametrize(
    ("remote", "latency_ns", "origin"),
    [
        ([on_node(1, 160e-9), on_node(0, 110e-9)], 25, "fitted"),
        ([on_node(1, 90e-9)], 0, "fitted"),  # never below 0
        ([on_node(0, 110e-9)], 20, "assumed"),
        ([], 20, "assumed"),
        ([on_node(1, 160e-9), on_node(1, 150e-9), on_node(1, 170e-9)], 25, "fitted"),  # the minimum of the node counts
        ([on_node(1, 160e-9, GIB // 4)], 30, "fitted"),
        ([on_node(1, 160e-9, GIB // 4 - 1)], 20, "assumed"),  # caches may serve a quarter of the accesses
        ([on_node(1, 160e-9, processes=2)], 20, "assumed"),
        ([on_node(1, 160e-9, pattern="sequential")], 20, "assumed"),
        ([on_node("all", 160e-9), on_node(None, 160e-9)], 20, "assumed"),
    ],
)
def test_the_latency_of_a_link_comes_from_the_loads_of_each_node_that_reach_its_memory(
    simulator: Simulator, tmp_path: Path, remote: list[Record], latency_ns: float, origin: str
) -> None:
    link = fitted(tmp_path, *remote, cpus=[2, 2])["links"]["between"]["latency_ns"]
    assert link["value"] == pytest.approx(latency_ns, abs=1e-9)
    assert origin in link


# ------------------------------------------------------------------ what the survey says


def test_caches_are_those_of_the_huge_pages_or_else_of_the_first_pages(simulator: Simulator, tmp_path: Path) -> None:
    others = [r for r in SURVEY if r.instrument != "latency"]
    small = [level(2, 1 << 21, 7e-9, "4KiB"), level(1, 1 << 14, 2e-9, "4KiB"), level(1, 1 << 13, 3e-9, "2MiB")]
    machine = tomllib.loads(fit([*small, *others], "made", [4], 64, tmp_path).text)
    assert [(c["name"], value(c, "size_kib"), value(c, "latency_ns")) for c in machine["cache"]] == [
        ("L1", 16, 2),
        ("L2", 2048, 7),
    ]
    caches = fitted(tmp_path, *small)["cache"]
    assert [value(c, "size_kib") for c in caches] == [32, 1024]


def test_caches_are_ordered_by_the_number_of_their_level(simulator: Simulator, tmp_path: Path) -> None:
    caches = fitted(tmp_path, level(10, 1 << 26, 40e-9))["cache"]
    assert [value(c, "size_kib") for c in caches] == [32, 1024, 65536]


def test_only_plateaus_of_caches_are_caches(simulator: Simulator, tmp_path: Path) -> None:
    memory = rec("latency", "level_latency", 9e-8, kind="memory", level=3, to_bytes=GIB, pages="thp")
    assert len(fitted(tmp_path, memory)["cache"]) == 2


def test_the_latency_is_that_of_one_chain_with_the_fewest_flags_and_the_narrowest_spread(
    simulator: Simulator, tmp_path: Path
) -> None:
    conditions: dict[str, Any] = {"mode": "chains", "chains": 1, "threads": 1}
    others = [r for r in SURVEY if not (r.metric == "load_latency" and r.conditions["chains"] == 1)]
    loaded = [
        rec("loaded", "load_latency", 60e-9, flags=["disturbed"], **conditions),  # no spread, but flagged
        rec("loaded", "load_latency", 100e-9, 140e-9, **conditions),
        rec("loaded", "load_latency", 76e-9, 84e-9, **conditions),
        rec("loaded", "load_latency", 20e-9, **{**conditions, "threads": 2}),
        rec("loaded", "load_latency", 20e-9, **{**conditions, "mode": "stream"}),
    ]
    machine = tomllib.loads(fit([*loaded, *others], "made", [4], 64, tmp_path).text)
    assert value(machine, "memory.access_ns") == 40
    assert value(machine, "cpu.request_ns") == value(machine, "cpu.fill_ns") == 20


@pytest.mark.parametrize(
    ("records", "outstanding"),
    [
        ([], 7),
        ([rec("loaded", "memory_parallelism", 11.6, threads=1)], 12),
        ([rec("loaded", "memory_parallelism", 11.6, threads=2)], 7),
        ([rec("loaded", "memory_parallelism", 0.3, threads=1)], 1),
        (chains(16, 1, 150e-9, 5.12e9), 8),  # the maximum of all chains counts
        (chains(16, 2, 150e-9, 5.12e9), 7),
    ],
)
def test_a_core_has_as_many_loads_outstanding_as_its_chains_show(
    simulator: Simulator, tmp_path: Path, records: list[Record], outstanding: int
) -> None:
    assert value(fitted(tmp_path, *records), "cpu.outstanding") == outstanding


def test_the_length_of_a_line_divides_what_is_outstanding(simulator: Simulator, tmp_path: Path) -> None:
    machine = fitted(tmp_path, line=128)
    assert value(machine, "cpu.outstanding") == 4  # 3.5 is rounded to even
    assert value(machine, "memory.line_bytes") == 128


@pytest.mark.parametrize(
    ("records", "shared"),
    [
        (stream("copy", "ordinary", 2, 44e9), 44),
        (stream("copy", "ordinary", 2, 44e9, GIB // 4), 44),
        (stream("copy", "ordinary", 2, 44e9, GIB // 4 - 8), 40),
        (stream("stencil", "ordinary", 2, 44e9), 40),  # the stencil is not a STREAM kernel
        ([rec("loaded", "bandwidth_gross", 44e9, kernel="copy", footprint_bytes=GIB)], 40),
        (stream("triad", "streaming", 4, 30e9, net=80e9), 40),
        (stream("copy", "ordinary", 4, 44e9, 8 * GIB), 44),  # a larger footprint than any of one thread
        ([*stream("copy", "ordinary", 4, 44e9, GIB // 2), *stream("copy", "ordinary", 1, 1e9, 4 * GIB)], 40),
    ],
)
def test_the_bandwidth_of_memory_is_the_maximum_of_the_kernels_that_exceed_the_caches(
    simulator: Simulator, tmp_path: Path, records: list[Record], shared: float
) -> None:
    assert value(fitted(tmp_path, *records), "memory.channel_gb_per_s") == shared


# ------------------------------------------------------------------ outstanding loads of a stream


def streams_without_streaming_stores() -> list[Record]:
    return [
        *LEVELS,
        *CHAINS,
        *stream("triad", "ordinary", 1, 12.8e9),
        *stream("triad", "ordinary", 4, 40e9),
        *stream("copy", "streaming", 1, 64e9),
    ]


def test_without_streaming_stores_a_triad_reads_three_quarters_of_its_traffic(
    simulator: Simulator, tmp_path: Path
) -> None:
    simulator.stream_rate = per_line(12.8e9 / 15)
    text = fit(streams_without_streaming_stores(), "made", [4], 64, tmp_path).text
    assert 'stream_outstanding = { value = 15, fitted = "triad, ordinary stores, one CPU" }' in text
    assert "write_buffers = { value = 15," in text
    first = simulator.asked[0][0]["actors"][0]
    assert first["chains"] == 15  # three quarters of 12.8 GB/s x 100 ns / 64 B
    assert [s["op"] for s in first["streams"]] == ["read", "read", "own", "write"]


def test_the_streams_of_a_core_are_simulated_on_its_own_node_with_the_outstanding_loads_of_the_file(
    simulator: Simulator, tmp_path: Path
) -> None:
    fitted(tmp_path)
    (run,) = simulator.asked[0]
    (actor,) = run["actors"]
    assert (actor["cpus"], actor["chains"]) == ([0], 10)
    assert [(s["op"], s["homes"]) for s in actor["streams"]] == [
        ("read", "local"),
        ("read", "local"),
        ("write", "local"),
    ]


@pytest.mark.parametrize(
    ("rate", "tried"),
    [
        (per_line(1e9), [10]),  # 9.6 of 10 GB/s rounds to 10 again
        (per_line(0.5e9), [10, 19]),  # 10 x 9.6 / 5, then 19 x 9.6 / 9.5
        (lambda lines: 4e9, [10, 24, 58, 139, 334, 512]),
        (lambda lines: 1e8, [10, 512]),  # at most
        (lambda lines: 1e15, [10, 1]),  # at least
        (lambda lines: 4.8e9 if lines == 10 else 19.2e9, [10, 20, 10, 20, 10, 20]),  # at most six times
    ],
)
def test_outstanding_loads_follow_the_rate_of_the_simulation(
    simulator: Simulator, tmp_path: Path, rate: Callable[[int], float], tried: list[int]
) -> None:
    simulator.stream_rate = rate
    machine = fitted(tmp_path)
    *searches, compared = simulator.asked
    assert [runs[0]["actors"][0]["chains"] for runs in searches] == tried
    assert len(compared) > 1
    assert value(machine, "cpu.stream_outstanding") == tried[-1]
    assert value(machine, "cpu.write_buffers") == max(8, tried[-1])


# ------------------------------------------------------------------ the comparison


def points(simulator: Simulator, folder: Path, *records: Record) -> dict[str, FitPoint]:
    comparison = fit([*SURVEY, *records], "made", [4], 64, folder).points
    assert len({p.what for p in comparison}) == len(comparison)
    return {p.what: p for p in comparison}


def test_every_point_of_the_survey_is_compared_in_its_unit(simulator: Simulator, tmp_path: Path) -> None:
    comparison = points(simulator, tmp_path)
    assert [(p.what, p.host, p.model, p.unit, p.fitted) for p in comparison.values()] == [
        ("load latency, 1 chains, 1 CPUs", 100e-9, pytest.approx(1 / 5e7), "s", True),
        ("load latency, 8 chains, 1 CPUs", 120e-9, pytest.approx(8 / 5e7), "s", False),
        ("random reads, 1 chains, 1 CPUs", 0.6e9, 5e7 * 64, "B/s", False),
        ("random reads, 8 chains, 1 CPUs", 4.48e9, 5e7 * 64, "B/s", True),
        ("triad, streaming stores, 1 CPUs", 9.6e9, 10e9, "B/s", True),
        ("triad, streaming stores, 4 CPUs", 40e9, 10e9, "B/s", True),
    ]
    first, *_ = comparison.values()
    assert first.error == pytest.approx(-0.8)


def test_points_are_sorted_by_their_numbers(simulator: Simulator, tmp_path: Path) -> None:
    more = [*chains(16, 2, 1e-7, 1e9), *chains(2, 4, 1e-7, 1e9), *chains(2, 1, 1e-7, 1e9)]
    comparison = [w.removeprefix("load latency, ") for w in points(simulator, tmp_path, *more) if w.startswith("load")]
    assert comparison == [
        "1 chains, 1 CPUs",
        "2 chains, 1 CPUs",
        "2 chains, 4 CPUs",
        "8 chains, 1 CPUs",
        "16 chains, 2 CPUs",
    ]


def test_chains_of_all_cpus_share_the_time_of_a_load_and_a_core_limits_them(
    simulator: Simulator, tmp_path: Path
) -> None:
    comparison = points(simulator, tmp_path, *chains(16, 4, 1e-7, 2e9), *chains(16, 5, 1e-7, 2e9))
    assert comparison["load latency, 16 chains, 4 CPUs"].model == pytest.approx(64 / 5e7)
    assert not comparison["load latency, 16 chains, 4 CPUs"].fitted
    assert not any("5 CPUs" in name for name in comparison)  # more CPUs than the machine has
    actors = [run["actors"][0] for run in simulator.asked[-1] if run["actors"][0]["cpus"] == [0, 1, 2, 3]]
    chased = {"homes": "local", "random": True}
    assert actors[0] == {"cpus": [0, 1, 2, 3], "chains": 7, "streams": [chased]}
    short = [run["actors"][0] for run in simulator.asked[-1] if run["actors"][0]["chains"] == 1]
    assert (
        short == [{"cpus": [0], "chains": 1, "streams": [chased]}] * 2
    )  # one run for the latency and one for the rate


def test_the_first_of_equal_points_counts(simulator: Simulator, tmp_path: Path) -> None:
    more = [*chains(8, 1, 777e-9, 1e9), *stream("triad", "streaming", 4, 1e9)]
    repeats = [*chains(3, 1, 150e-9, 1e9), *chains(3, 1, 160e-9, 2e9)]
    comparison = points(simulator, tmp_path, *more, *repeats)
    assert comparison["load latency, 8 chains, 1 CPUs"].host == 120e-9
    assert comparison["triad, streaming stores, 4 CPUs"].host == 40e9
    assert comparison["random reads, 3 chains, 1 CPUs"].host == 1e9


def test_a_latency_without_its_rate_is_a_point_of_its_own(simulator: Simulator, tmp_path: Path) -> None:
    comparison = points(simulator, tmp_path, chains(3, 2, 150e-9, 1e9)[0])
    assert "load latency, 3 chains, 2 CPUs" in comparison
    assert "random reads, 3 chains, 2 CPUs" not in comparison


def test_loads_beside_a_stream_are_not_compared(simulator: Simulator, tmp_path: Path) -> None:
    unrelated = [
        rec("loaded", metric, 1e-7, mode="stream", chains=3, threads=1) for metric in ("load_latency", "bandwidth_net")
    ]
    assert points(simulator, tmp_path, *unrelated).keys() == points(simulator, tmp_path).keys()


@pytest.mark.parametrize(
    ("kernel", "store", "model"),
    [
        ("copy", "ordinary", 10e9 * 2 / 3),  # one operand in three is a write-allocate read
        ("copy", "streaming", 10e9),
        ("add", "ordinary", 7.5e9),
        ("write", "ordinary", 5e9),
        ("read", "ordinary", 10e9),
    ],
)
def test_the_model_of_a_kernel_counts_the_operands_that_it_names(
    simulator: Simulator, tmp_path: Path, kernel: str, store: str, model: float
) -> None:
    comparison = points(simulator, tmp_path, *stream(kernel, store, 2, 8e9, net=6e9))
    point = comparison[f"{kernel}, {store} stores, 2 CPUs"]
    assert (point.host, point.model, point.fitted) == (6e9, pytest.approx(model), False)
    actor = next(a for run in simulator.asked[-1] for a in run["actors"] if len(a["cpus"]) == 2)
    assert (actor["cpus"], actor["chains"], actor["streams"][0]["homes"]) == ([0, 1], 10, "local")


def test_kernels_that_the_model_does_not_cover_are_left_out(simulator: Simulator, tmp_path: Path) -> None:
    left_out = [
        *stream("update", "ordinary", 2, 8e9),
        *stream("stencil", "ordinary", 2, 8e9),
        *stream("copy", "ordinary", 5, 8e9),
        *stream("scale", "ordinary", 2, 8e9, int(0.4 * GIB)),  # below 0.4 of the largest footprint
    ]
    covered = [*stream("copy", "ordinary", 4, 8e9), *stream("scale", "streaming", 2, 8e9, int(0.4 * GIB) + 1)]
    comparison = points(simulator, tmp_path, *left_out, *covered)
    assert comparison.keys() - points(simulator, tmp_path).keys() == {
        "copy, ordinary stores, 4 CPUs",
        "scale, streaming stores, 2 CPUs",
    }


def test_random_updates_are_compared_by_their_rate(simulator: Simulator, tmp_path: Path) -> None:
    def updates(threads: int, rate: float, **more: Any) -> Record:
        return rec("gups", "update_rate", rate, **{"kernel": "plain", "threads": threads, "pages": "thp", **more})

    comparison = points(
        simulator,
        tmp_path,
        updates(1, 9e6, pages="4KiB"),  # TLB misses, which the model does not cover
        updates(2, 2e7),
        updates(4, 4e7),
        updates(5, 5e7),
        updates(3, 3e7, kernel="atomic"),
    )
    rows = [(p.what, p.host, p.model, p.unit, p.fitted) for p in comparison.values() if "updates" in p.what]
    assert rows == [
        ("random updates, 2 CPUs", 2e7, 5e7, "op/s", False),
        ("random updates, 4 CPUs", 4e7, 5e7, "op/s", False),
    ]
    actor = next(
        run["actors"][0] for run in simulator.asked[-1] if run["actors"][0]["streams"][0]["homes"] == "uniform"
    )
    assert (actor["cpus"], actor["chains"]) == ([0, 1], 7)


def test_a_point_has_the_flags_of_its_record(simulator: Simulator, tmp_path: Path) -> None:
    conditions = {"mode": "chains", "chains": 3, "threads": 1}
    comparison = points(simulator, tmp_path, rec("loaded", "load_latency", 1e-7, flags=["disturbed"], **conditions))
    assert comparison["load latency, 3 chains, 1 CPUs"].flags == {"disturbed"}
    assert comparison["load latency, 8 chains, 1 CPUs"].flags == set()


def test_progress_counts_answers_of_all_points(simulator: Simulator, tmp_path: Path) -> None:
    frames: list[tuple[int, int]] = []
    result = fit(SURVEY, "made", [4], 64, tmp_path, lambda done, total: frames.append((done, total)))
    assert len(result.points) == 6
    assert frames == [(count, 6) for n in range(6) for count in (n, n + 1)]  # each answer follows a frame


def test_the_error_of_a_fit_is_the_root_mean_square_of_its_relative_errors() -> None:
    def point(model: float, used: bool) -> FitPoint:
        return FitPoint("x", 2.0, model, "s", used, frozenset())

    result = SurveyFit("", (point(2.6, True), point(1.2, True), point(3.0, False)))
    assert result.rms(True) == pytest.approx(math.sqrt((0.3**2 + 0.4**2) / 2))
    assert result.rms(False) == pytest.approx(0.5)
    assert math.isnan(SurveyFit("", (point(2.6, True),)).rms(False))


# ------------------------------------------------------------------ what is missing


@pytest.mark.parametrize(
    ("missing", "says"),
    [
        ({"metric": "level_latency"}, "latency level_latency with kind cache"),
        ({"metric": "load_latency", "chains": 1}, "loaded load_latency with mode chains, chains 1, threads 1"),
        ({"instrument": "loaded", "metric": "bandwidth_net"}, "loaded bandwidth_net with mode chains, threads 1"),
        ({"metric": "bandwidth_gross", "threads": 1}, "bandwidth bandwidth_gross with threads 1"),
    ],
)
def test_a_survey_that_lacks_a_value_is_refused_by_its_name(
    simulator: Simulator, tmp_path: Path, missing: dict[str, Any], says: str
) -> None:
    def lacks(r: Record) -> bool:
        fields = {"instrument": r.instrument, "metric": r.metric, **r.conditions}
        return all(fields.get(k) == v for k, v in missing.items())

    remaining = [r for r in SURVEY if not lacks(r)]
    assert len(remaining) < len(SURVEY)
    with pytest.raises(AbsentError) as error:
        fit(remaining, "made", [4], 64, tmp_path)
    assert str(error.value) == f"fit: the survey has no {says}"
    assert error.value.hint == "run meshmark survey"
    assert simulator.asked == []


def test_a_triad_of_one_thread_is_needed_at_a_footprint_beyond_the_caches(simulator: Simulator, tmp_path: Path) -> None:
    small = [*LEVELS, *CHAINS, *stream("triad", "ordinary", 1, 9e9, GIB // 8), *stream("copy", "ordinary", 1, 9e9)]
    with pytest.raises(AbsentError, match="bandwidth_gross with kernel triad, store ordinary, threads 1"):
        fit(small, "made", [4], 64, tmp_path)
