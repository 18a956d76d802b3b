"""Times of programs on other machines, from profiles of simulated programs and rates of kernels."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshmark.errors import UsageError
from meshmark.profiles.machines import MachineRates, predict_time, to_json
from meshmark.profiles.profile import KernelRate, PressureEffect, ProgramProfile
from meshmark.profiles.rates import footprints, read_rates
from meshmark.views.terminal.experiments.profile import reversals
from support.made_profile import FOOTPRINTS, KINDS, NOISE, RATES, RESPONSES, made_profile

MIB = 1 << 20


def machine(name: str = "there", **faster: float) -> MachineRates:
    """Return a machine whose kernels are so many times as fast as on the machine of the profiles."""
    kernels = []
    for kernel, rate in RATES.items():
        kind = KINDS[kernel]
        for size in (FOOTPRINTS[kernel] // 2, FOOTPRINTS[kernel], FOOTPRINTS[kernel] * 2):
            speed = rate * faster.get(kind, 1.0)
            kernels.append(KernelRate(name=kind, kind=kind, footprint_bytes=size, units_per_s=speed))
    return MachineRates(machine=name, processes=2, kernels=tuple(kernels))


def spending(noise: tuple[float, ...] = (1.0,) * 3, **shares: float) -> ProgramProfile:
    """Return the profile of a program that spends these shares of its time like the kernels."""
    by_name = {"compute": shares.get("compute", 0.0), "cache 8 MiB": shares.get("cache", 0.0)}
    by_name["memory"] = 1 - sum(by_name.values())
    effects = [
        PressureEffect(
            name=pressure,
            kind=kind,
            footprint_bytes=MIB,
            bytes_per_s=0.0,
            slowdowns=tuple(n * sum(f / RESPONSES[k][pressure] for k, f in by_name.items()) for n in noise),
        )
        for pressure, kind in KINDS.items()
    ]
    return dataclasses.replace(made_profile("stream"), effects=tuple(effects))


@given(st.floats(0, 1), st.floats(0, 1), st.floats(0.3, 3), st.floats(0.3, 3))
def test_the_time_of_each_share_changes_with_its_kernel(one: float, two: float, compute: float, memory: float) -> None:
    cache = one * (1 - two)
    program = spending(compute=two, cache=cache)
    predicted = predict_time(program, machine(compute=compute, memory=memory))
    true = two / compute + cache + (1 - two - cache) / memory
    assert predicted.ratio == pytest.approx(true, rel=1e-3)
    assert predicted.interval[0] <= true * 1.001 and true <= predicted.interval[1] * 1.001
    assert sum(predicted.shares.values()) == pytest.approx(1, abs=1e-6)


def test_the_same_machine_takes_the_same_time() -> None:
    predicted = predict_time(made_profile("solver"), machine())
    assert predicted.ratio == pytest.approx(1) and predicted.interval == pytest.approx((1, 1), abs=1e-6)


def test_the_interval_contains_what_scattered_runs_do_not_exclude() -> None:
    wild = tuple(1 + 30 * (n - 1) for n in NOISE)
    faster = machine(memory=3.0)
    narrow, wide = (predict_time(spending(noise, compute=0.5), faster) for noise in (NOISE, wild))
    assert wide.interval[1] - wide.interval[0] > 1.5 * (narrow.interval[1] - narrow.interval[0])


def test_slowdowns_that_no_kernel_has_are_a_misfit_and_still_have_an_interval() -> None:
    program = spending()
    strange = dataclasses.replace(program.effects[1], slowdowns=(4.0, 4.0, 4.0))
    predicted = predict_time(
        dataclasses.replace(program, effects=(program.effects[0], strange, *program.effects[2:])), machine(memory=2.0)
    )
    assert predicted.misfit > 0.5 and predicted.interval[0] <= predicted.ratio <= predicted.interval[1]


def test_rates_are_interpolated_between_footprints_and_refused_beyond() -> None:
    kernels = tuple(
        KernelRate(name="memory", kind="memory", footprint_bytes=size, units_per_s=rate)
        for size, rate in ((MIB, 8e6), (4 * MIB, 2e6))
    )
    rates = MachineRates(machine="there", processes=1, kernels=kernels)
    between = KernelRate(name="cache", kind="cache", footprint_bytes=2 * MIB, units_per_s=1.0)
    assert rates.rate(between) == pytest.approx(4e6)
    with pytest.raises(UsageError, match="kernels: found cache with 1048576 to 4194304 B; required by the profile"):
        rates.rate(dataclasses.replace(between, footprint_bytes=8 * MIB))
    with pytest.raises(UsageError, match="there: kernels: found no latency"):
        rates.rate(dataclasses.replace(between, kind="latency"))


def test_footprints_reach_beyond_every_cache() -> None:
    assert footprints(32 * MIB)[0] == 16 << 10 and footprints(32 * MIB)[-1] == 256 * MIB
    assert footprints(384 * MIB)[-1] == 1 << 30


def test_programs_whose_machines_rank_in_reverse_are_named() -> None:
    computes, streams = spending(compute=1.0), spending()
    named = [dataclasses.replace(computes, name="computes"), dataclasses.replace(streams, name="streams")]
    machines = [machine("fast cores", compute=2.0, memory=0.5), machine("fast memory", compute=0.5, memory=2.0)]
    answers = [to_json(profile, there) for profile in named for there in machines]
    assert reversals(answers) == ["computes is faster on fast cores, streams on fast memory"]
    assert reversals(answers[:2]) == []


def test_a_figure_that_is_a_rate_falls_with_the_time() -> None:
    rate = dataclasses.replace(spending(), better="higher", unit="op/s", alone=(10.0,))
    answer = to_json(rate, machine(memory=0.5))
    assert (answer["low"], answer["value"]) == pytest.approx((5.0, 5.0)) and 5.0 < answer["high"] < 5.5


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"type": "profile"}, "type: found 'profile'; allowed: kernel rates"),
        ({"schema": 9}, "schema: found 9; allowed: 1"),
        ({"kernels": []}, "kernels"),
        ({"processes": 0}, "processes: found 0"),
        ({"kernels": [{"name": "x", "kind": "disk", "footprint_bytes": 0, "units_per_s": 1}]}, "kind: found 'disk'"),
    ],
)
def test_a_damaged_file_of_rates_is_named(change: dict[str, object], words: str, tmp_path: Path) -> None:
    path = tmp_path / "rates.json"
    path.write_text(json.dumps({**dataclasses.asdict(machine()), **change}), encoding="utf-8")
    with pytest.raises(UsageError) as caught:
        read_rates(path)
    assert str(caught.value).startswith("rates.json: ") and words in str(caught.value)
