"""Tests of processes that occupy a part of the cache beside the program: their CPUs, how much they hold, refusals."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from meshmark.applications.answer import answer
from meshmark.applications.application import of_tables, parse_application
from meshmark.applications.attempt import ConfigurationRun, attempt
from meshmark.applications.configuration import Configuration, Folders, configurations, environment
from meshmark.applications.records import records
from meshmark.applications.resources import machine_limits
from meshmark.applications.resources.neighbours import Sharing, beside, check_neighbours, method, occupying, scale_of
from meshmark.applications.resources.occupier import Occupier
from meshmark.applications.single import single
from meshmark.applications.trials import ApplicationPlan, Trials
from meshmark.errors import AbsentError, MeshmarkError, UsageError
from meshmark.machine.sources import from_synthetic
from meshmark.machine.topology import Topology
from meshmark.place.other_work import OtherWork, OtherWorkShares
from meshmark.views.terminal.application import print_application
from support.fake_occupier import FAR_S, NEAR_S, MadeCache
from support.paths import ROOT
from support.waiting import alive, until

MIB = 1 << 20
TWO_CPUS = pytest.mark.skipif(not {0, 1} <= os.sched_getaffinity(0), reason="needs CPUs 0 and 1")
LIMITED = {"cache": "8MiB", "cache_method": "neighbours"}


def machine(text: str = "pack:1 l3:1(size=32MiB) core:2 pu:1", *sizes: int) -> Topology:
    """Return a topology whose last-level caches have 32 MiB and whose lower levels have the given `sizes`, in order."""
    topology = from_synthetic(text)
    size_by_level = dict(enumerate((*sizes, 32 * MIB), 3 - len(sizes)))
    return replace(
        topology,
        caches=tuple(
            replace(c, size_bytes=size_by_level[c.level]) for c in topology.caches if c.level in size_by_level
        ),
    )


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MadeCache:
    """Simulate a cache of 32 MiB that CPUs 0 and 1 share; resctrl is not mounted."""
    simulated = MadeCache(tmp_path / "load", 32 * MIB)
    monkeypatch.setenv("MESHMARK_LOAD", str(simulated.program))
    monkeypatch.setattr(machine_limits, "RESCTRL", tmp_path / "none")
    for module in ("attempt", "preparation"):
        monkeypatch.setattr(f"meshmark.applications.{module}.from_sysfs", machine)
    scale_of.cache_clear()
    return simulated


# ------------------------------------------------------------------ which CPUs


def test_programs_have_cores_and_occupiers_the_others_of_the_same_cache() -> None:
    topology = machine("pack:2 l3:1 l2:3(size=1MiB) core:1 pu:2", MIB)
    one_program = Sharing.from_topology(topology, 1)
    assert (one_program.program, one_program.occupiers, one_program.cache_bytes, one_program.private_bytes) == (
        (0, 1),
        (2, 4),
        32 * MIB,
        MIB,
    )
    two_programs = Sharing.from_topology(topology, 2)
    assert (two_programs.program, two_programs.occupiers) == ((0, 1, 2, 3), (4,)), (
        "no occupier is beside a program on a core"
    )
    assert one_program.parts(24 * MIB) == [(2, 13 * MIB), (4, 13 * MIB)], "a part, and the caches of its core"


def test_a_cache_with_more_cores_of_this_process_is_taken() -> None:
    topology = machine("pack:2 l3:1 core:4 pu:1")
    allowed_part = replace(topology, allowed_cpus=(0, 4, 5, 7))
    sharing = Sharing.from_topology(allowed_part, 1)
    assert (sharing.program, sharing.occupiers) == ((4,), (5, 7))


@pytest.mark.parametrize(
    ("text", "workers"),
    [("pack:1 l3:1 core:2 pu:1", 2), ("pack:1 l3:1 core:1 pu:2", 1), ("pack:2 l3:1 core:1 pu:1", 1)],
)
def test_without_a_core_for_occupiers_there_are_none(text: str, workers: int) -> None:
    with pytest.raises(AbsentError, match=rf"no last-level cache of known size that {workers + 1} cores") as error:
        Sharing.from_topology(machine(text), workers)
    assert "vary the size of the problem" in error.value.hint
    with pytest.raises(AbsentError):
        Sharing.from_topology(replace(machine(), caches=()), 1)


# ------------------------------------------------------------------ how the cache is limited


def test_resctrl_is_taken_where_it_is_and_neighbours_otherwise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_limits, "RESCTRL", tmp_path)
    sizes = {"cache": ("4MiB", "all")}
    assert method(sizes) == "neighbours"
    (tmp_path / "schemata").write_text("")
    assert method(sizes) == "resctrl"
    assert method({"cache": ("all",)}) == method({}) == method({**sizes, "cache_method": ("neighbours",)}) == ""


@TWO_CPUS
def test_occupiers_have_the_rest_and_end_with_the_run(cache: MadeCache) -> None:
    scale_of(Sharing.from_topology(machine(), 1))
    earlier_processes = set(cache.processes)
    with beside(LIMITED, machine) as load:
        (pid,) = set(cache.processes) - earlier_processes
        assert load.cpus == (0,) and os.sched_getaffinity(pid) == {1} and alive(pid)
        assert int((cache.folder / str(pid)).read_text()) == 24 * MIB
        load.begin()
        marks = list(load.marks)
        load.occupiers[0].wait(marks[0])
        assert load.end() == ""
    assert not alive(pid) and load.cpu_s > 0
    assert load.counts["neighbours_held_share"] == pytest.approx(1) and load.counts["cache_claimed_bytes"] == 32 * MIB
    assert load.counts["neighbours_load_s"] == pytest.approx(NEAR_S)
    with beside({**LIMITED, "cache": "all"}, machine) as unlimited:
        assert unlimited.cpus == (0,) and not unlimited.occupiers and unlimited.end() == ""
    with beside({"cache": "8MiB", "cache_method": "resctrl"}, machine) as resctrl_load:
        assert resctrl_load.cpus is None and not resctrl_load.occupiers


@TWO_CPUS
def test_a_program_that_takes_the_cache_from_them_has_no_result(
    cache: MadeCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = f"""
[application]
command = ["sh", "-c", "{cache.of_program(0)}; test {{size}} = 0 || {cache.of_program(16 * MIB)}; sleep 2"]
[dimensions]
size = [0, 1]
cache = ["8MiB", "all"]
cache_method = "neighbours"
"""
    app = parse_application(text, "a", tmp_path)
    own_times_s: list[float] = []

    class Watched(OtherWork):
        def shares(self, own_s: float) -> OtherWorkShares:
            own_times_s.append(own_s)
            return super().shares(own_s)

    monkeypatch.setattr("meshmark.applications.attempt.OtherWork", Watched)
    attempts = {c.label: attempt(app, c, Folders(tmp_path / "run"), 1) for c in configurations(app)}
    values = [outcome.value is not None for outcome in attempts.values()]
    assert values == [True, True, False, True], [outcome.reason for outcome in attempts.values()]
    limited, unlimited, evicting, _ = attempts.values()
    assert limited.counts["neighbours_held_share"] > 0.95
    assert own_times_s[0] > sum(limited.times.get(kind, 0.0) for kind in ("user", "system")), (
        "occupiers are no other work"
    )
    assert "neighbours_held_share" not in unlimited.counts
    assert evicting.reason.startswith("neighbours kept only ") and "from memory 100 ns" in evicting.reason
    assert evicting.counts == {}


@TWO_CPUS
def test_a_run_is_confined_whether_or_not_its_cache_is_limited(cache: MadeCache, tmp_path: Path) -> None:
    app = parse_application(
        f"""
[application]
command = ["sh", "-c", "grep Cpus_allowed_list /proc/self/status > {tmp_path}/{{cache}}; sleep 2"]
[dimensions]
cache = ["8MiB", "all"]
cache_method = "neighbours"
""",
        "a",
        tmp_path,
    )
    for configuration in configurations(app):
        assert attempt(app, configuration, Folders(tmp_path / "run"), 1).reason == ""
    assert {(tmp_path / name).read_text().split()[1] for name in ("8MiB", "all")} == {"0"}


@TWO_CPUS
def test_a_run_that_is_too_short_to_tell_does_not_count(cache: MadeCache) -> None:
    with beside(LIMITED, machine) as load:
        for occupier in load.occupiers:
            os.kill(occupier.pid, signal.SIGSTOP)
        load.begin()
        assert load.end().startswith("it ended before the neighbours")


@TWO_CPUS
def test_occupiers_that_cannot_hold_their_part_even_alone_are_no_limit(cache: MadeCache) -> None:
    scale_of(Sharing.from_topology(machine(), 1))
    cache.holds(16 * MIB)  # as if another virtual machine began to use the cache
    with beside(LIMITED, machine) as load:
        load.begin()
        assert re.match(r"neighbours cannot occupy 24.MiB of the 32.MiB", load.end())


@TWO_CPUS
def test_what_the_machine_says_is_checked(cache: MadeCache) -> None:
    limits = {"cache": ["8MiB", "all"], "cache_method": ["neighbours"]}
    check_neighbours(limits, machine)
    assert cache.parts == [4 * MIB, 24 * MIB, 24 * MIB, 24 * MIB, 128 * MIB]
    for change, message in (
        (cache.apart, r"processes on CPUs 0-1 keep more than the 32.MiB .* do not share it"),
        (lambda: cache.holds(8 * MIB), r"neighbours cannot occupy 24.MiB of the 32.MiB that the kernel reports"),
        (lambda: cache.takes(NEAR_S, 1.2 * NEAR_S), r"the difference is too small"),
    ):
        scale_of.cache_clear()
        change()
        with pytest.raises(AbsentError, match=message):
            check_neighbours(limits, machine)
    check_neighbours({"cache": ["8MiB"], "cache_method": ["resctrl"]}, machine)
    assert not [pid for pid in cache.processes if alive(pid)]


def test_more_than_the_cache_is_refused(cache: MadeCache) -> None:
    with pytest.raises(UsageError, match=r"dimensions.cache: found 32.MiB; allowed: less than 32.MiB, all"):
        check_neighbours({"cache": ["32MiB"], "cache_method": ["neighbours"]}, machine)
    with pytest.raises(AbsentError, match="3 cores"):
        check_neighbours({"cache": ["8MiB"], "cache_method": ["neighbours"], "threads": ["1", "2"]}, machine)


def test_occupiers_that_fail_say_why(cache: MadeCache, monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = min(os.sched_getaffinity(0))
    cache.refuses()
    with pytest.raises(MeshmarkError, match=rf"on CPUs {cpu} failed: meshmark-load: error: refused"):
        Occupier(cpu, MIB)
    monkeypatch.setenv("MESHMARK_LOAD", str(cache.folder / "bytes"))
    with pytest.raises(MeshmarkError, match="not found"):
        Occupier(cpu, MIB)


def test_occupiers_end_if_the_process_is_killed(cache: MadeCache) -> None:
    script = f"""
import signal
from meshmark.applications.resources.occupier import Occupier
one = Occupier({min(os.sched_getaffinity(0))}, 1 << 20)
print("occupied", flush=True)
signal.pause()
"""
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(ROOT / "tests")}
    ) as child:
        assert child.stdout is not None and child.stdout.readline() == b"occupied\n"
        (pid,) = cache.processes
        assert alive(pid)
        child.kill()
    assert until(lambda: not alive(pid))


def test_a_real_occupier_walks_on_its_cpu() -> None:
    cpu = max(os.sched_getaffinity(0))
    with occupying([(cpu, MIB)]) as (occupier,):
        occupier.settle()
        mark = occupier.mark()
        occupier.wait(mark)
        load_s = occupier.load_s(mark)
        assert os.sched_getaffinity(occupier.pid) == {cpu}
    assert load_s is not None and 1e-10 < load_s < 1e-5
    assert not alive(occupier.pid) and occupier.cpu_s > 0


# ------------------------------------------------------------------ files and results


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ('cache = "8MiB"\ncache_method = "magic"', r"cache_method: found 'magic'; allowed: resctrl, neighbours"),
        ('cache_method = "neighbours"', r"cache_method: found without cache"),
        (
            'cache = "8MiB"\ncache_method = "neighbours"\nthreads = 2\nbind = "pack"',
            r"bind: found with cache_method=neighbours, which chooses the CPUs; allowed: none",
        ),
    ],
)
def test_what_a_file_may_not_ask_for(tmp_path: Path, lines: str, message: str) -> None:
    with pytest.raises(UsageError, match=r"dimensions." + message):
        parse_application(f'[application]\ncommand = "a"\n[dimensions]\n{lines}\n', "a", tmp_path)


def test_ranks_are_not_bound_to_other_cores_by_their_launcher(tmp_path: Path) -> None:
    app = parse_application('[application]\ncommand = "a"\n[dimensions]\nranks = 2\n', "a", tmp_path)
    ranks = {"ranks": "2", "copies": "1"}
    assert "OMPI_MCA_hwloc_base_binding_policy" in environment(app, Configuration({**ranks, **LIMITED}), {})
    assert "OMPI_MCA_hwloc_base_binding_policy" not in environment(app, Configuration(ranks), {})


def test_commands_that_start_no_neighbours_refuse_them(tmp_path: Path) -> None:
    text = '[application]\ncommand = "true"\n[dimensions]\ncache = "all"\ncache_method = "neighbours"\n'
    with pytest.raises(UsageError, match=r"dimensions.cache_method: found neighbours, which is not allowed here"):
        single(parse_application(text, "a", tmp_path), tmp_path / "run", print)


def test_results_say_how_the_cache_was_limited_and_how_well(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tables = {
        "application": {"command": "a"},
        "dimensions": {"cache": "8MiB,all", "cache_method": "neighbours"},
    }
    plan = ApplicationPlan(
        tables=tables, source=str(tmp_path), rounds=2, warmup=0, budget_s=1, seed=1, margin=0.02, run="r", started="now"
    )
    app = of_tables(tables, "a", tmp_path)
    limited, unlimited = configurations(app)
    measurement = Trials(plan, [limited, unlimited])
    for number in (1, 2):
        counts = {
            "cache_claimed_bytes": 32.0 * MIB,
            "neighbours_held_share": 0.97,
            "neighbours_load_s": 22.4e-9,
            "neighbours_alone_s": NEAR_S,
        }
        measurement.add(
            ConfigurationRun(configuration=limited.label, round=number, value=1.2, elapsed_s=1.2, counts=counts)
        )
        measurement.add(ConfigurationRun(configuration=unlimited.label, round=number, value=1.0, elapsed_s=1.0))
    conditions_by_cache = {
        r.conditions["cache"]: r.conditions for r in records(measurement, app, "m", "", "") if r.metric == "elapsed"
    }
    assert (
        conditions_by_cache["8MiB"]["cache_method"] == "neighbours"
        and conditions_by_cache["8MiB"]["neighbours_held_share"] == 0.97
    )
    assert (
        conditions_by_cache["8MiB"]["cache_claimed_bytes"] == 32 * MIB
        and "neighbours_held_share" not in conditions_by_cache["all"]
    )
    print_application(answer(measurement, app, machine()))
    output = " ".join(capsys.readouterr().out.split())
    assert "cache=8MiB cache_method=neighbours: neighbours kept 97 % of their part of the 32 MiB" in output
    assert "(22.4 ns a load, alone 20.0 ns)" in output and "note: neighbours are processes on other cores" in output
    assert FAR_S > NEAR_S
