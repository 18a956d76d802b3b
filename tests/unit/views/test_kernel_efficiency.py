"""Parallel efficiency of load kernels: verdicts from intervals, and caches that explain super-linear variants."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from meshmark.store.record import Record
from meshmark.views.charts.efficiency import (
    ABOUT,
    BELOW,
    DESIGN,
    SUPER,
    UNCLEAR,
    efficiencies,
    efficiency_details,
    kernel_efficiency,
)
from support.made_run import record

THREADS = 32
MIB = 1 << 20


def topology(l2: int = MIB) -> dict[str, Any]:
    private = [{"level": 2, "kind": "unified", "size_bytes": l2, "cpus": [c]} for c in range(THREADS)]
    unknown = {"level": 3, "kind": "unified", "size_bytes": {"absent": "not reported"}, "cpus": list(range(THREADS))}
    return {"caches": [*private, unknown]}


def pair(efficiency: float, half: float = 0.01, threads: int = THREADS, **more: Any) -> list[Record]:
    """Return a variant with one thread and with several; `half` is the relative half-width of the second interval."""
    conditions: Mapping[str, Any] = {"kernel": "triad", "kind": "stream", "volume_bytes": 8 * MIB, "stride": 1, **more}
    records = []
    for n, value, part in ((1, 1e-8, 0.0), (threads, 1e-8 / threads / efficiency, half)):
        base = record(
            "kernels",
            "unit_time",
            value,
            threads=n,
            observed_cpus=f"0-{n - 1}",
            run_low=value * (1 - part),
            run_high=value * (1 + part),
            **conditions,
        )
        records.append(replace(base, value=value))
    return records


@pytest.mark.parametrize(
    ("efficiency", "half", "verdict"),
    [
        (1.3, 0.01, SUPER),
        (1.02, 0.01, SUPER),
        (1.02, 0.025, ABOUT),
        (1.0, 0.01, ABOUT),
        (0.98, 0.01, ABOUT),
        (0.6, 0.02, BELOW),
        (1.0, 0.08, UNCLEAR),
        (1.5, 0.3, UNCLEAR),
    ],
)
def test_only_the_whole_interval_decides(efficiency: float, half: float, verdict: str) -> None:
    (result,) = efficiencies(pair(efficiency, half))
    assert (result.verdict, result.threads) == (verdict, THREADS)
    assert result.value == pytest.approx(efficiency)
    assert result.interval and result.interval[0] < efficiency < result.interval[1]
    assert bool(result.doubt) == (verdict == UNCLEAR)


def test_flagged_variants_and_those_with_few_samples_are_not_judged() -> None:
    flagged = [replace(r, flags=frozenset({"disturbed"})) for r in pair(1.4)]
    few = [
        replace(r, interval=None, conditions={k: v for k, v in r.conditions.items() if not k.startswith("run_")})
        for r in pair(1.4, kernel="add")
    ]
    results = efficiencies([*flagged, *few])
    assert [(e.verdict, e.doubt) for e in results] == [(UNCLEAR, "too few samples"), (UNCLEAR, "disturbed")]
    text = efficiency_details([*flagged, *few], topology())
    assert "No variant is super-linear" in text and "1 variant: disturbed" in text
    assert "Super-linear variants" not in text


def test_without_one_thread_there_is_no_efficiency() -> None:
    assert efficiencies(pair(1.3)[1:]) == [] and efficiency_details(pair(1.3)[1:], topology()) == ""
    assert kernel_efficiency(pair(1.3)[1:], {}) is None


@pytest.mark.parametrize(
    ("more", "machine", "reason"),
    [
        (
            {},
            topology(),
            "its memory of 8 MiB fits in the L2 caches of 32 CPUs (32 MiB), not in the caches of 1 (1 MiB)",
        ),
        (
            {"memory_bytes": 40 * MIB},
            topology(),
            "the added CPUs do not make its memory of 40 MiB fit in a further cache level",
        ),
        ({}, topology(16 * MIB), "fit in a further cache level; the reason is not known"),
        ({}, {}, "the sizes of the caches are not recorded"),
        ({"volume_bytes": 0}, topology(), "it has no data that a cache could hold"),
    ],
)
def test_a_superlinear_variant_is_named_with_the_caches_that_it_gained(
    more: dict[str, Any], machine: dict[str, Any], reason: str
) -> None:
    text = efficiency_details(pair(1.3, **more), machine).replace("\u00a0", " ")
    assert "triad, " in text and "130.0 %" in text and "128.7 – 131.3 %" in text and reason in text


def test_without_recorded_cpus_the_reason_is_not_guessed() -> None:
    records = [replace(r, conditions={**r.conditions, "observed_cpus": "?"}) for r in pair(1.3)]
    assert "the CPUs of its threads are not recorded" in efficiency_details(records, topology())


def test_kernels_that_contend_by_design_refer_to_the_fewest_threads_by_operations() -> None:
    def team(threads: int, seconds: float) -> Record:
        (_, team_record) = pair(
            1.0, 0.0, threads, kernel="false_sharing", kind="sharing", team=True, int_ops=64 * threads
        )
        low_high = {"run_low": 0.99 * seconds, "run_high": 1.01 * seconds}
        return replace(team_record, value=seconds, conditions={**team_record.conditions, **low_high})

    slower = [team(2, 1e-7), team(8, 8e-7)]  # eight threads do four times the work in eight times the time
    (result,) = efficiencies([*slower, *pair(1.0)[1:]])
    assert (result.verdict, result.threads) == (DESIGN, 8) and result.value == pytest.approx(1 / 8)
    text = efficiency_details([*pair(1.0), slower[1]], topology())
    assert "need at least 2 threads" in text and "only: false_sharing." in text
    assert "only: false_sharing." in efficiency_details(slower[1:], topology())
    assert "need at least" not in efficiency_details([*pair(1.0), *slower], topology())


def test_each_number_of_threads_has_a_panel_with_the_verdicts_of_its_variants() -> None:
    records = [
        *pair(1.0),
        *pair(1.3, kernel="add"),
        *pair(9.0, kernel="odd"),
        *pair(0.05, kernel="false_sharing", kind="sharing"),
        *pair(1.0, threads=2)[1:],
    ]
    drawing = kernel_efficiency(records, {})
    assert drawing is not None
    panels = [rows for rows in drawing.data.values() if "from" in rows[0]]
    assert [sum(r["variants"] for r in rows) for rows in panels] == [1, 4]
    bars = {r["verdict"]: (r["from"], r["variants"]) for r in panels[1] if r["from"] < 1.5}
    assert bars == {ABOUT: (1.0, 1), SUPER: (1.3, 1), DESIGN: (0.05, 1)}
    assert [r["from"] for r in panels[1] if r["from"] > 1.4] == [1.5], "the last bin has all that are larger"
    assert drawing.chart.to_dict(validate=True)["concat"][0]["title"] == "2 threads"
