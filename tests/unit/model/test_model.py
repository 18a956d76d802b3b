"""Described machines: their files, the simulator behind them, and the commands, as users meet them."""

from __future__ import annotations

import json
import math
import os
import re
import signal
import subprocess
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from meshmark.describe import description
from meshmark.errors import MeshmarkError, UsageError
from meshmark.model.engine import ask, find_engine, median_of
from meshmark.model.instruments import POINTS, fill_order, measure
from meshmark.model.keys import KEYS
from meshmark.model.machine import FOLDER, MachineFileError, data_rate_mhz, find_machine, machine_names, read_machine
from meshmark.model.patterns import PatternRequest, points_of, run_pattern
from meshmark.model.place_io import place
from meshmark.model.sweeps.sweep import grid, run_sweep, values_of
from meshmark.model.workloads import random_reads
from meshmark.store.record import Record
from meshmark.store.store import Store
from meshmark.views.terminal.mesh import mesh_text
from support.cli import meshmark, start
from support.paths import ROOT
from support.waiting import until

METRICS_OF_MESSAGES = ("elapsed", "bandwidth_net")
GOOD = """
format = 1
title = "two nodes"
[topology]
kind = "ring"
shape = [2]
[links.wire]
bandwidth_gb_per_s = { value = 3.2, published = "somewhere" }
latency_ns = { value = 10, fitted = "A12" }
[router]
pipeline_ns = { value = 5, assumed = "guess" }
[cpu]
outstanding = { value = 4, assumed = "guess" }
request_ns = { value = 20, assumed = "guess" }
[memory]
channel_gb_per_s = { value = 6.4, derived = "8 B x 800 MHz" }
access_ns = { value = 50, assumed = "guess" }
turnaround_ns = { unknown = "nobody says" }
[coherence]
kind = "directory"
"""


def write(folder: Path, text: str, name: str = "m.toml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


# ------------------------------------------------------------------ machine files


def test_values_and_their_origins_come_apart(tmp_path: Path) -> None:
    m = read_machine(write(tmp_path, GOOD))
    assert m.number("links.wire.bandwidth_gb_per_s") == 3.2
    assert m.origins["links.wire.bandwidth_gb_per_s"].kind == "published"
    assert m.origins["memory.channel_gb_per_s"].text == "8 B x 800 MHz"
    assert m.unknown == {"memory.turnaround_ns": "nobody says"}
    assert set(m.uncertain_keys()) == {
        "router.pipeline_ns",
        "cpu.outstanding",
        "cpu.request_ns",
        "memory.access_ns",
        "memory.turnaround_ns",
    }
    with pytest.raises(MachineFileError, match="unknown: nobody says"):
        m.number("memory.turnaround_ns")


@pytest.mark.parametrize(
    ("was", "now", "says"),
    [
        ("shape = [2]", "shape = [2, 0]", "topology.shape"),
        ("shape = [2]", "shapes = [2]", "topology.shapes: unknown key; did you mean shape?"),
        ("[router]", "[routers]", "routers: unknown key; did you mean router?"),
        ("{ value = 3.2, published", "{ value = -3.2, published", "links.wire.bandwidth_gb_per_s: found -3.2"),
        ("{ value = 3.2, published", "{ value = inf, published", "found inf; allowed: a number from 0"),
        ("{ value = 3.2, published", "{ value = 0.0, published", "links.wire.bandwidth_gb_per_s: found 0"),
        ('{ value = 3.2, published = "somewhere" }', "3.2", "without its origin"),
        (
            '{ value = 3.2, published = "somewhere" }',
            '{ value = 3.2, published = "a", fitted = "b" }',
            "published and fitted",
        ),
        ('{ value = 3.2, published = "somewhere" }', '{ value = 3.2, heard = "b" }', "unknown key 'heard'"),
        ('{ value = 3.2, published = "somewhere" }', '{ value = 3.2, published = "" }', "a text is needed"),
        ('{ value = 4, assumed = "guess" }', '{ value = 4.5, assumed = "guess" }', "cpu.outstanding: found 4.5"),
        ('outstanding = { value = 4, assumed = "guess" }', "", "cpu.outstanding: found nothing"),
        ("format = 1", "format = 2", "format: found 2"),
        ('kind = "directory"', 'kind = "gossip"', "coherence.kind"),
        ('kind = "ring"', 'kind = "moebius"', "topology.kind"),
        ('unknown = "nobody says"', 'unknown = "nobody says", value = 3', "memory.turnaround_ns"),
        (
            '{ value = 4, assumed = "guess" }',
            '{ value = "four", assumed = "guess" }',
            "found 'four'; allowed: a whole number from 1 to 1e+12",
        ),
        (
            'access_ns = { value = 50, assumed = "guess" }',
            'access_ns = { unknown = "never measured" }',
            "memory.access_ns: found unknown: never measured, a number is needed",
        ),
        (
            "[cpu]",
            '[cpu]\nclock_ghz = { value = 0, assumed = "guess" }',
            "cpu.clock_ghz: found 0; allowed: a number from 0.001 to 1000",
        ),
        ("[cpu]", '[node]\ncpus = { value = 0, assumed = "guess" }\n[cpu]', "node.cpus: found 0"),
        ("format = 1", 'extends = "nobody"', "extends: found 'nobody', which is neither in the same folder"),
    ],
)
def test_a_wrong_file_is_refused_by_file_and_key(tmp_path: Path, was: str, now: str, says: str) -> None:
    assert was in GOOD
    path = write(tmp_path, GOOD.replace(was, now, 1))
    completed = meshmark("measure", "latency", "--on", str(path), "--no-store")
    assert completed.returncode == 2
    assert completed.stderr.startswith("meshmark: error: m.toml: "), completed.stderr
    assert says in completed.stderr
    assert "Traceback" not in completed.stderr


def test_unconnected_and_deadlocking_machines_are_refused(tmp_path: Path) -> None:
    graph = GOOD.replace('kind = "ring"\nshape = [2]', 'kind = "graph"\nrouters = 4\nedges = [[0, 1], [2, 3]]')
    with pytest.raises(MachineFileError, match=r"m.toml: topology.kind: found an unconnected topology.*router 2"):
        ask(read_machine(write(tmp_path, graph)), [{"kind": "hops"}])
    ring = GOOD.replace("shape = [2]", "shape = [8]").replace(
        "[router]", '[router]\nescape_channels = { value = 1, assumed = "too few" }'
    )
    with pytest.raises(MachineFileError, match=r"router.escape_channels: found 1.*can deadlock: \[router"):
        ask(read_machine(write(tmp_path, ring)), [{"kind": "hops"}])


def test_a_file_extends_another(tmp_path: Path) -> None:
    write(tmp_path, GOOD, "base.toml")
    m = read_machine(
        write(tmp_path, 'extends = "base"\n[cpu]\noutstanding = { value = 8, published = "b" }\n', "top.toml")
    )
    assert m.number("cpu.outstanding") == 8
    assert m.origins["cpu.outstanding"].kind == "published"
    assert m.number("cpu.request_ns") == 20
    with pytest.raises(MachineFileError, match="extends"):
        read_machine(write(tmp_path, 'extends = "loop"\n', "loop.toml"))


def test_a_chain_of_files_that_extend_each_other_is_finite(tmp_path: Path) -> None:
    for number in range(300):
        write(tmp_path, f'extends = "m{number + 1}"\n', f"m{number}.toml")
    with pytest.raises(MachineFileError, match="extends: found 'm17' after 16 others; allowed: 16 files in a chain"):
        read_machine(tmp_path / "m0.toml")
    write(tmp_path, 'extends = "m0"\n', "m2.toml")
    with pytest.raises(MachineFileError, match="extends: found 'm0', which extends this file"):
        read_machine(tmp_path / "m0.toml")


@pytest.mark.parametrize("nested", ["[" * 10_000 + "]" * 10_000, "[" * 200 + "]" * 200, "{a=" * 150 + "1" + "}" * 150])
def test_nested_values_are_refused_in_one_line(tmp_path: Path, nested: str) -> None:
    with pytest.raises(UsageError) as error:
        read_machine(write(tmp_path, f"format = 1\n[topology]\nkind = {nested}\n", "nested.toml"))
    assert "nested.toml" in str(error.value) and "\n" not in str(error.value) and len(str(error.value)) < 400


def test_settings_change_numbers_and_are_part_of_the_name() -> None:
    m = find_machine("gs1280-16", ["links.bandwidth=6", "placement.striping=pair", "node.controllers=1"])
    assert {k["bandwidth_gb_per_s"] for k in m.data["links"].values()} == {6}
    assert m.label == "gs1280-16 links.bandwidth=6 placement.striping=pair node.controllers=1"
    assert m.origins["node.controllers"].kind == "assumed"
    for wrong in ("links.bandwith=3", "node.controller=1", "controllers", "=3", "node=3"):
        with pytest.raises(UsageError, match="--set"):
            find_machine("gs1280-16", [wrong])
    with pytest.raises(UsageError, match="similar names: gs1280"):
        find_machine("gs1280-15")


def test_settings_find_striping_and_caches_where_one_looks_for_them() -> None:
    m = find_machine("gs1280-16", ["memory.striping=pair", "cache[1].size_kib=2048"])
    assert m.data["placement"]["striping"] == "pair" and "striping" not in m.data["memory"]
    assert [m.data["cache"][1]["size_kib"], find_machine("gs1280-16").data["cache"][1]["size_kib"]] == [2048, 1792]
    for wrong in ("cache[9].size_kib=1", "title=x", "extends=es80"):
        with pytest.raises(UsageError, match="--set: found unknown key"):
            find_machine("gs1280-16", [wrong])


# Settings bypass the reader of files, and some numbers never reach the simulator: each must still be refused.
def test_no_value_of_any_key_gets_past_the_checks_as_a_crash() -> None:
    for table, keys in KEYS.items():
        if not table or "[]" in table:
            continue
        for key in keys:
            for value in ("", "x", "-1", "0", "2.5", "[]", "true", "1e30", "inf"):
                setting = f"{table.replace('*', 'module')}.{key}={value}"
                try:
                    resolved = find_machine("e325", [setting]).resolved()
                except MeshmarkError as error:
                    assert "\n" not in str(error), setting
                    continue
                assert value not in {"-1", "inf"} and resolved, setting
    for wrong in ("cpu.outstanding=", "cpu.outstanding=2.5", "cpu.clock_ghz=0", "tlb.entries=x", "io.outstanding=0"):
        with pytest.raises(MachineFileError, match=rf"gs1280-4.toml: {wrong.partition('=')[0]}: found"):
            find_machine("gs1280-4", [wrong])


@pytest.mark.parametrize("name", machine_names())
def test_every_machine_of_the_package_is_sound(name: str) -> None:
    m = find_machine(name)
    assert m.title
    assert all(o.text for o in m.origins.values())
    closed, hops = ask(m, [{"kind": "matrix", "nodes": [0]}, {"kind": "hops"}])
    row = closed["latency_s"][0]
    assert all(1e-8 < v < 5e-6 for v in row)
    assert row[0] == min(row)
    assert all(h[i] == 0 for i, h in enumerate(hops["hops"]))


def test_every_key_of_a_machine_file_is_read_somewhere() -> None:
    native = "".join(p.read_text() for p in (ROOT / "native" / "model").rglob("*.cpp"))
    readers = (FOLDER.parent, FOLDER.parents[1] / "validation")
    source = "".join(p.read_text() for folder in readers for p in folder.rglob("*.py"))
    for table, keys in KEYS.items():
        for key in keys:
            # A key occurs once where it is described, and at least once where it is used.
            is_used = f'"{key}"' in native or len(re.findall(rf"\b{key}\b", source)) > 1
            is_used = is_used or key.endswith(
                ("_cycles", "_clocks", "streaming_store_ns")
            )  # the code composes these names
            assert is_used, f"{table}.{key} is read nowhere"


def test_the_ratchet_is_the_printed_one() -> None:
    assert [round(data_rate_mhz(f, 500 / 3)) for f in (1400, 1600, 1800, 2000, 2200)] == [311, 320, 327, 333, 314]


NAMES = [
    "topology",
    "links",
    "router",
    "node",
    "cpu",
    "memory",
    "kind",
    "shape",
    "wire",
    "bus",
    "coherence",
    "io",
    "latency_ns",
    "bandwidth_gb_per_s",
    "outstanding",
    "cpus",
    "controllers",
    "nodes",
    "runs",
]
LEAVES = st.none() | st.booleans() | st.integers(-5, 70) | st.floats() | st.text(max_size=8)
JSON = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=6),
    max_leaves=20,
)


@settings(max_examples=60, deadline=None)
@given(JSON)
@example(
    {"topology": [None, [{"links": False, "bandwidth_gb_per_s": None, "node": "\x80"}]]}
)  # the message is not cut within a character
def test_no_machine_makes_the_simulator_crash(machine: Any) -> None:
    text = json.dumps({"machine": machine, "runs": [{"kind": "hops"}]})
    completed = subprocess.run([find_engine()], input=text, capture_output=True, text=True, timeout=60, check=False)
    assert completed.returncode in {0, 1, 2}, completed.stderr
    assert completed.returncode == 0 or completed.stderr.count("\n") == 1


def test_threads_spread_over_the_nodes() -> None:
    assert fill_order([0, 0, 1, 1], "spread") == [0, 2, 1, 3]


# ------------------------------------------------------------------ measuring


def test_the_latency_map_is_the_published_one() -> None:
    records = measure("latency", find_machine("gs1280-16"), {"pattern": "stride"})
    computed = {int(str(r.conditions["memory_node"])): r.value * 1e9 for r in records}
    published_ns = (82, 141, 177, 149, 133, 169, 216, 176, 176, 215, 250, 216, 150, 184, 228, 192)
    errors = [computed[n] / p - 1 for n, p in enumerate(published_ns)]
    assert max(map(abs, errors)) <= 0.05
    assert math.sqrt(sum(e * e for e in errors) / 16) <= 0.03
    assert all(r.source == "model" and r.metric == "load_latency" and r.unit == "s" for r in records)


def test_records_are_those_of_a_host_and_go_into_the_store(tmp_path: Path) -> None:
    env = {**os.environ, "XDG_DATA_HOME": str(tmp_path)}
    lines = (
        ["bandwidth", "--threads", "1,4", "--kernel", "triad,copy"],
        ["loaded", "--chains", "1,4"],
        ["gups"],
        ["io"],
        ["peak"],
        ["lines", "--cpus", "0"],
        ["latency", "--footprint", "16KiB,1MiB,64MiB", "--memory-node", "0"],
    )
    for line in lines:
        completed = meshmark("measure", line[0], "--on", "gs1280-8", "--json", *line[1:], env=env)
        assert completed.returncode == 0, completed.stderr
        records = [Record.from_json(json.loads(text)) for text in completed.stdout.splitlines()]
        assert records
        assert {r.source for r in records} == {"model"}
        assert {r.machine for r in records} == {"gs1280-8"}
        assert "assumed" in completed.stderr
    stored = Store(tmp_path / "meshmark" / "store").query(source="model")
    assert {r.instrument for r in stored} == {"bandwidth", "loaded", "gups", "io", "peak", "lines", "latency"}


def test_what_a_model_does_not_have_is_absent_or_refused() -> None:
    assert meshmark("measure", "dgemm", "--on", "gs1280-8", "--no-store").returncode == 77
    wrong = meshmark("measure", "latency", "--on", "gs1280-8", "--memory-node", "9", "--no-store")
    assert wrong.returncode == 2
    assert "found '9'; allowed: 0 to 7" in wrong.stderr
    assert meshmark("measure", "latency", "--on", "gs1280-8", "--locality", "8KiB", "--no-store").returncode == 2
    assert "allowed for a modelled machine only" in meshmark("measure", "latency", "--set", "cpu.outstanding=3").stderr
    with pytest.raises(UsageError, match="stride: found 12; allowed: multiples of 8"):
        measure("latency", find_machine("gs1280-8"), {"stride": "64,12"})
    with pytest.raises(UsageError, match="stride: found '7'; allowed: 8 B or more"):
        measure("latency", find_machine("gs1280-8"), {"stride": "64,7"})


@pytest.mark.parametrize("instrument", sorted(POINTS))
def test_a_model_refuses_every_option_that_it_cannot_honour(instrument: str) -> None:
    """If an option were ignored, the model would measure something else with exit status 0."""
    d, machine, (_, defaults) = description(instrument), find_machine("gs1280-4"), POINTS[instrument]
    parameters = {p.word: p for p in d.parameters}
    assert defaults.keys() <= parameters.keys(), "a model has no options of its own"
    for word in parameters.keys() - defaults.keys() - {"seed"}:
        with pytest.raises(UsageError, match=f"{parameters[word].option}: not supported by models, which take --"):
            measure(instrument, machine, {word: parameters[word].default})
    help_text = " ".join(meshmark("measure", instrument, "--help").stdout.split())
    assert "accepts " + ", ".join(parameters[w].option for w in defaults) + ", --seed" in help_text
    for word, value in defaults.items():
        if value and value != parameters[word].default:
            assert f"of a model {value}]" in help_text


def test_a_model_refuses_a_way_to_measure_that_it_has_not() -> None:
    with pytest.raises(UsageError, match="mode: found 'paced'; allowed: chains"):
        measure("loaded", find_machine("gs1280-4"), {"mode": "paced"})
    with pytest.raises(UsageError, match="fill: found 'best'; allowed: cores, spread, compact"):
        measure("bandwidth", find_machine("gs1280-4"), {"fill": "best"})


def test_threads_of_a_core_that_the_model_lacks_are_refused_by_name() -> None:
    for instrument, field in (("bandwidth", "threads"), ("loaded", "threads"), ("latency", "processes")):
        with pytest.raises(UsageError, match=r"found '16'.*has 16 threads .SMT., but the model has one per core"):
            measure(instrument, find_machine("xeon5500"), {field: "16"})
    with pytest.raises(UsageError, match=r"found '16'; allowed: 1 to 8$"):
        measure("bandwidth", find_machine("xeon5400"), {"threads": "16"})


@pytest.mark.parametrize(("option", "value"), [("rate", "x"), ("rate", "2,-1"), ("write_share", 0.9)])
def test_a_wrong_rate_is_refused_by_its_own_option(option: str, value: Any) -> None:
    request = replace(PatternRequest("throughput"), **{option: value})
    with pytest.raises(UsageError, match=rf"^--{option.replace('_', '-')}: found"):
        run_pattern(find_machine("gs1280-8"), request, "test")


def test_frames_need_a_window(tmp_path: Path) -> None:
    completed = meshmark(
        "model", "measure", "hot_spot", "gs1280-4", "--window", "0", "--frames", str(tmp_path / "f"), "--no-store"
    )
    assert completed.returncode == 2 and "--window" in completed.stderr and not (tmp_path / "f").exists()


def test_a_drawing_says_which_link_is_which_and_whether_edges_wrap(tmp_path: Path) -> None:
    torus, mesh = (mesh_text(find_machine("gs1280-16", s)) for s in ([], ["topology.kind=mesh"]))
    assert "- | backplane, = ‖ cable, ~ ¦ module; links at the edges wrap around" in torus
    assert "wrap" not in mesh and "~ ¦ cable" in mesh
    path = write(tmp_path, GOOD)
    assert f"meshmark model show {path} --origins" in meshmark("model", "show", str(path)).stderr


def test_answers_do_not_depend_on_the_number_of_threads() -> None:
    m = find_machine("gs1280-16")
    runs = [{**random_reads(m, k), "window_ns": 5000.0, "links": True} for k in (1, 3, 8, 16)]
    lines: list[list[Any]] = []
    for threads in (1, 2, 4):
        answers: list[Any] = []
        ask(m, runs, threads=threads, on_line=answers.append)
        lines.append(answers)
    assert lines[0] == lines[1] == lines[2]
    assert {x["type"] for x in lines[0]} == {"frame", "answer"}


def test_more_bandwidth_never_hurts_and_less_never_helps() -> None:
    rates = [
        measure("gups", find_machine("gs1280-16", [f"links.bandwidth={b}"]), {"threads": "all"})[0].value
        for b in (1.5, 3.0, 6.0)
    ]
    assert rates[0] < rates[1] < rates[2]


def test_frames_say_where_a_hot_spot_is() -> None:
    request = PatternRequest("hot_spot", chains="16", window_ns=4000.0)
    records, frames = run_pattern(find_machine("gs1280-16"), request, "test")
    assert records
    last = frames[-1]["values"]
    busy = [last["memory.busy"][2 * n] + last["memory.busy"][2 * n + 1] for n in range(16)]
    assert busy.index(max(busy)) == 0
    assert busy[0] > 1.5
    assert max(busy[1:]) < 0.05
    assert all(0 <= v <= 1.001 for key in ("memory.busy", "link.busy", "cpu.busy") for v in last[key])


@pytest.mark.parametrize("workload", ["random_reads", "throughput", "exchange", "all_to_all", "halo", "swap"])
def test_every_workload_moves_bytes(workload: str) -> None:
    request = PatternRequest(workload, chains="4", block="16KiB", rate="1.5")
    records, _ = run_pattern(find_machine("gs1280-8"), request, "test")
    bandwidths = [r for r in records if r.metric == "bandwidth_net"]
    assert bandwidths
    assert all(1e7 < r.value < 2e11 for r in bandwidths)


def test_all_cpus_of_a_node_exchange_messages() -> None:
    """Four processors of an X1 node share its memory ports: together they move more bytes, and each moves fewer."""
    request = PatternRequest("swap", threads="16,64", block="64KiB", distance="15")
    records, _ = run_pattern(find_machine("cray-x1"), request, "test")
    elapsed, rate = ({r.conditions["threads"]: r.value for r in records if r.metric == m} for m in METRICS_OF_MESSAGES)
    assert elapsed[16] < elapsed[64] < 4 * elapsed[16]
    for threads in (16, 64):
        assert rate[threads] * elapsed[threads] == pytest.approx(threads * 64 * 1024)


def test_messages_need_a_partner() -> None:
    for workload, name, threads in (
        ("exchange", "xeon5400", "all"),
        ("swap", "gs1280-8", "1"),
        ("all_to_all", "gs1280-8", "1"),
        ("halo", "gs1280-8", "1"),
    ):
        with pytest.raises(UsageError, match=r"^--threads: found"):
            run_pattern(find_machine(name), PatternRequest(workload, threads=threads), "test")
    # A processor without a partner is idle; the others exchange messages.
    records, _ = run_pattern(find_machine("gs1280-8"), PatternRequest("swap", threads="3", block="4KiB"), "test")
    assert {r.conditions["threads"] for r in records} == {2}


def test_example_transcript_is_exact() -> None:
    """The how-to shows exactly the output of the command."""
    page = (ROOT / "docs" / "how-to" / "models.md").read_text()
    text = page.split("```console\n$ meshmark model place-io gs1280-16 --ports 4 --minimize max\n")[1].split("```")[0]
    assert meshmark("model", "place-io", "gs1280-16", "--ports", "4", "--minimize", "max").stdout == text
    text = page.split("```console\n$ meshmark model compare gs1280-8 es80\n")[1].split("```")[0]
    completed = meshmark("model", "compare", "gs1280-8", "es80")
    assert [line.rstrip() for line in (completed.stdout + completed.stderr).splitlines()] == [
        line.rstrip() for line in text.splitlines()
    ]


def test_programs_on_one_bus_slow_each_other_down() -> None:
    text = "0-1=2.14:0.33,2=2.14:0.33,4=0.3:0"
    slowdowns: dict[bool, dict[str, float]] = {False: {}, True: {}}
    for in_step, times in slowdowns.items():
        records, _ = run_pattern(
            find_machine("altix3700"), PatternRequest("programs", programs=text, in_step=in_step), "test"
        )
        for r in records:
            name = str(r.conditions["program"]).partition("=")[0]
            if r.metric == "slowdown":
                times[name] = r.value
            elif name == "2":  # alone on its bus, the program reaches the requested rate
                assert r.value == pytest.approx(2.14e9, rel=0.01)
        assert times["2"] == pytest.approx(1, abs=0.01)
    assert slowdowns[False]["0+1"] > 1.05  # two programs on one bus sometimes collide
    # In step, they always collide: a phase is longer because the bus (6.4 GB/s less headers) cannot carry 2 x 4.6 GB/s.
    assert slowdowns[True]["0+1"] == pytest.approx(1 + 2.14 / 4.6 * (2 * 4.6 / 6.02 - 1), abs=0.01)
    for wrong in ("", "0", "0=x", "0=1:0.9", "0=1,0=2", "99=1", "0=-1"):
        with pytest.raises(UsageError, match="--programs"):
            run_pattern(find_machine("altix3700"), PatternRequest("programs", programs=wrong), "test")
    with pytest.raises(UsageError, match=r"found 6 GB/s, one CPU of altix3700 reaches at most 4\.\d+"):
        run_pattern(find_machine("altix3700"), PatternRequest("programs", programs="0=6"), "test")


def test_the_clocks_of_a_memory_follow_its_ratchet() -> None:
    machine = find_machine("e325", ["cpu.clock_ghz=2.2"])  # here, DDR333 runs at 2 x 2200 / 14 MT/s
    memory = machine.resolved()["memory"]
    assert memory["channel_gb_per_s"] == pytest.approx(16 * 2 * 2.2 / 14)
    assert memory["access_ns"] == pytest.approx(8 * 14 / 2.2)
    with pytest.raises(MeshmarkError, match=r"memory.gap_clocks: found without memory.ratchet_mhz"):
        find_machine("gs1280-4", ["memory.gap_clocks=1"]).resolved()


def test_a_core_keeps_a_streaming_store_longer_than_a_load() -> None:
    """One core of a Xeon 5500 saturates its local memory with write-allocate stores, but not with streaming stores."""
    machine = find_machine("xeon5500", ["memory.node_share=[1,1]"])
    gross = {}
    for store, lines in (("ordinary", 3), ("streaming", 2)):
        records = measure("bandwidth", machine, {"kernel": "copy", "store": store, "threads": "1"})
        gross[store] = next(r.value for r in records if r.metric == "bandwidth_net") * lines / 2
    assert gross["streaming"] == pytest.approx(11e9, rel=0.02)
    assert gross["ordinary"] > 1.4 * gross["streaming"]


def test_a_trace_is_played_with_its_coherence(tmp_path: Path) -> None:
    lines = ["# cpu address op"] + [f"{i % 8} {hex(64 * (i * 7 % 40))} {'rrw'[i % 3]}" for i in range(1200)]
    path = write(tmp_path, "\n".join(lines), "t.trace")
    records, _ = run_pattern(find_machine("gs1280-8"), PatternRequest("trace", chains="1,4", trace=path), "test")
    elapsed = [r.value for r in records if r.metric == "elapsed"]
    assert elapsed[1] < elapsed[0]
    assert all(0 < r.value < 1 for r in records if r.metric == "hit_share")
    for wrong, message in (
        ("8 0 r", "allowed CPUs: 0 to 7"),
        ("0 x r", "line 1"),
        ("0 0 q", "CPU ADDR"),
        ("# no", "no access"),
    ):
        with pytest.raises(UsageError, match=message):
            run_pattern(find_machine("gs1280-8"), PatternRequest("trace", trace=write(tmp_path, wrong)), "test")
    with pytest.raises(UsageError, match="a file of accesses is needed"):
        run_pattern(find_machine("gs1280-8"), PatternRequest("trace"), "test")


# ------------------------------------------------------------------ sweeps, places


def test_ranges_and_grids() -> None:
    assert values_of("1..4/4") == ["1", "2", "3", "4"]
    assert len(grid(["a.b=1,2,3", "c.d=x,y"])) == 6
    for wrong in ("a.b", "a.b=", "a.b=1..4/1", "a.b=x..y/3"):
        with pytest.raises(UsageError):
            grid([wrong])


@pytest.mark.slow
def test_a_killed_sweep_goes_on_where_it_was(tmp_path: Path) -> None:
    command = (
        "model",
        "sweep",
        "gs1280-16",
        "--vary",
        "links.bandwidth=1..6/40",
        "--instrument",
        "gups",
        "--option",
        "threads=all",
        "--store",
        tmp_path / "s",
    )
    with start(*command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as child:
        assert until(lambda: len(list((tmp_path / "s").rglob("sweep*.parquet"))) >= 3)
        child.send_signal(signal.SIGKILL)
    stored_count = len(Store(tmp_path / "s").query())
    assert 3 <= stored_count < 40
    messages: list[str] = []
    machine = find_machine("gs1280-16")
    vary = ["links.bandwidth=1..6/40"]
    records = run_sweep(machine, vary, "gups", {"threads": "all"}, tmp_path / "s", True, None, messages.append)
    assert len(records) == 40
    assert messages == [f"{stored_count} of 40 points were already in the store"]
    assert records == sorted(records, key=lambda r: float(str(r.conditions["links.bandwidth"])))


def test_ports_are_placed_where_they_are_proved_best() -> None:
    four = place(find_machine("gs1280-16"), 4, "max")
    assert (four["max_hops"], four["proved"]) == (1, True)  # a perfect code of the 4 x 4 torus
    placement = place(find_machine("gs1280-16"), 1, "mean")
    assert placement["mean_hops"] == pytest.approx(2.0)
    with pytest.raises(UsageError, match="allowed: 1 to 16"):
        place(find_machine("gs1280-16"), 17, "mean")


def test_median() -> None:
    assert median_of([3, 1, 2]) == 2
    assert median_of([4, 1, 2, 3]) == 2.5


def test_machine_files_are_the_packages_own() -> None:
    for path in FOLDER.glob("*.toml"):
        assert "shared/" not in path.read_text()
        tomllib.loads(path.read_text())


@pytest.mark.parametrize("page", ["0", "0B", "1B"])
def test_a_page_of_a_trace_has_at_least_one_line(tmp_path: Path, page: str) -> None:
    (tmp_path / "x.trace").write_text("0 0x40 r\n")
    with pytest.raises(UsageError, match=f"--page: found '{page}'; allowed: sizes from 64 B"):
        points_of(find_machine("e325"), PatternRequest("trace", trace=tmp_path / "x.trace", page=page))
