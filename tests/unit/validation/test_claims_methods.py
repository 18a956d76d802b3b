"""Tests of the methods of claims: results from printed numbers, from statistics and from models."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from meshmark.errors import AbsentError, MeshmarkError
from meshmark.store.record import Metric, Record
from meshmark.store.store import Store
from meshmark.validation.claims import computed, measured, modelled
from meshmark.validation.claims.bench import Bench, EffectTerm
from meshmark.validation.claims.catalogue import chosen
from meshmark.validation.claims.judging import word_of
from meshmark.validation.claims.registry import call
from support.made_run import record

SLOWDOWN = Metric("slowdown", "1", "lower", "time with others over time alone")


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(Store(tmp_path / "store"), "claims-20261125T200000-0", tmp_path / "journals")


def test_printed_numbers_are_found_by_their_path() -> None:
    assert computed.printed(computed.E325, "stream_by_channels.two_threads_four_channels_percent_of_peak").value == 69
    assert computed.printed(computed.XEON, "stream_copy_processes.xeon_5500.per_core_gb_per_s#1").value == 7.5
    for path in ("no.such", "stream_copy_processes.xeon_5500.per_core_gb_per_s#9"):
        with pytest.raises(MeshmarkError, match="found no number"):
            computed.printed(computed.XEON, path)


def test_binding_gains_what_the_publication_prints() -> None:
    # The README of the reference data: 14.0, 9.2 and 13.3 % in the mean, 0.1 to 0.3 % in the best run but 7.4 % at 2.
    mean = [e.value for e in computed.binding(what="w", statistic="mean", threads=[2, 4, 8])]
    best = [e.value for e in computed.binding(what="w", statistic="best", threads=[2, 4, 8])]
    assert mean == pytest.approx([1.1396, 1.0917, 1.1333], abs=1e-3)
    assert best == pytest.approx([1.0738, 1.0014, 1.0026], abs=1e-4)


def test_the_parts_of_binding_s_gain_multiply_to_the_whole() -> None:
    (share,) = computed.bad_runs(what="w", threads=2)
    (mean,), (best,) = (computed.binding(what="w", statistic=s, threads=[2]) for s in ("mean", "best"))
    assert best.value * (mean.value**share.value) == pytest.approx(mean.value)


def test_the_composite_of_a_table_is_its_geometric_mean() -> None:
    (wrong,) = computed.composite(what="w", column="xeon_5400_8_processes_ratio")
    (right,) = computed.composite(what="w", column="xeon_5500_8_processes_ratio")
    assert wrong.value * 0.69 == pytest.approx(0.807, abs=1e-3) and right.value == pytest.approx(1, abs=0.005)
    assert computed.row_percentages(what="w")[0].value == 0, "all 39 agree within rounding"


@pytest.mark.parametrize(("confidence", "samples"), [(0.9, 5), (0.95, 6), (0.99, 8)])
def test_the_fewest_samples_of_an_interval(confidence: float, samples: int) -> None:
    # All n samples on one side of the median have the probability 2^(1-n).
    assert computed.fewest_samples(what="w", confidence=confidence)[0].value == samples
    assert 2.0 ** (1 - samples) <= 1 - confidence < 2.0 ** (2 - samples)


def test_subsets_of_all_runs_are_the_runs() -> None:
    (effect,) = computed.of_subsets(what="w", bound=True, threads=4, statistic="mean", small=3, large=10)
    assert effect.value == pytest.approx(1), "the mean of means is the mean"


def test_a_line_explains_points_on_it_and_not_those_around_it() -> None:
    assert modelled.explained([(1, 3), (2, 5), (3, 7)]) == pytest.approx(1)
    assert modelled.explained([(1, 5), (2, 1), (3, 5)]) == pytest.approx(0)


def test_paths_of_a_torus_follow_from_its_shape(bench: Bench) -> None:
    (mean,) = modelled.mean_hops(bench, "N01", "gs1280-16", what="w")
    assert mean.value == pytest.approx(32 / 15)
    (hops_ratio,) = modelled.mean_hops(bench, "N03", "es80", what="w", over="gs1280-8")
    assert hops_ratio.value == pytest.approx((16 / 7) / (12 / 7))
    (near,) = modelled.square_over_line(bench, "P20", "gs1280-32", what="w", side=2)
    assert 0.5 < near.value < 1
    with pytest.raises(AbsentError, match="es45 is not a torus"):
        modelled.square_over_line(bench, "P20", "es45", what="w", side=2)
    with pytest.raises(AbsentError, match="es45 has one node"):
        modelled.remote_over_local(bench, "P17", "es45", what="w")


def answering(bench: Bench, monkeypatch: pytest.MonkeyPatch, values: Sequence[float]) -> None:
    replies = iter(values)

    def records(_: str, machine: str, term: EffectTerm) -> list[Record]:
        return [
            Record.from_samples(
                SLOWDOWN,
                [next(replies)],
                source="model",
                machine=machine,
                instrument=term.instrument,
                conditions={},
                provenance={},
            )
        ]

    monkeypatch.setattr(bench, "records", records)


@pytest.mark.parametrize(
    ("slowdowns", "effect", "doubt"),
    [((1.5, 1.25), 2.0, ""), ((1.0, 1.0), 1.0, ""), ((1.0, 1.5), 0.0, ""), ((1.5, 1.0), 0.0, "do not slow each other")],
)
def test_an_extension_is_what_exceeds_the_time_alone(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, slowdowns: Sequence[float], effect: float, doubt: str
) -> None:
    answering(bench, monkeypatch, slowdowns)
    (result,) = modelled.extension(bench, "L01", "altix3700", what="w", a={"threads": "2"}, b={"threads": "4"})
    assert result.value == pytest.approx(effect) and doubt in result.doubt and bool(result.doubt) == bool(doubt)


def test_the_loaded_latency_lies_between_the_points(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def records(_: str, machine: str, term: EffectTerm) -> list[Record]:
        loaded_records: list[Record] = []
        for chains, (rate, latency) in {"1": (2e9, 1e-7), "2": (4e9, 1.2e-7), "4": (5e9, 2e-7)}.items():
            loaded_records += [
                record("loaded", "bandwidth_net", rate, chains=chains),
                record("loaded", "load_latency", latency, chains=chains),
            ]
        return loaded_records

    monkeypatch.setattr(bench, "records", records)
    arguments: dict[str, Any] = {"what": "w", "chains": "1,2,4"}
    (half,) = modelled.loaded_latency(bench, "L05", "m", at_share=0.6, **arguments)
    (full,) = modelled.loaded_latency(bench, "L06", "m", at_share=1.0, **arguments)
    (below,) = modelled.loaded_latency(bench, "L05", "m", at_share=0.1, **arguments)
    assert half.value == pytest.approx(1.1, rel=0.03) and full.value == pytest.approx(2, rel=0.03) and below.value == 1


def test_a_few_processes_do_not_show_that_processes_differ(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    records = [record("bandwidth", "bandwidth_net", v, kernel="triad", threads=1) for v in (1e9, 1.1e9, 1.2e9)]

    def take(_: str, terms: Sequence[EffectTerm]) -> list[Record]:
        for n, r in enumerate(records):
            bench.store.add(bench.run, f"M16-host.a.r{n}", [r])
        return [records[0]]

    monkeypatch.setattr(bench, "take", take)
    options: dict[str, Any] = {"instrument": "bandwidth", "metric": "bandwidth_net", "a": {}}
    (few,) = measured.beyond_samples(bench, "M16-host", what="w", **options)
    assert few.doubt == "3 processes have enough samples, 6 are needed"
    records += records
    (spread,) = measured.beyond_samples(bench, "M16-host", what="w", **options)
    assert spread.value > 5 and spread.interval is not None and spread.interval[0] <= spread.value <= spread.interval[1]


def test_a_ratio_of_printed_numbers_has_the_bounds_of_their_rounding() -> None:
    [effect] = computed.ratio(
        what="11.5 over 3.5",
        document=computed.XEON,
        times=["stream_copy_footprint.xeon_5500_memory_gb_per_s"],
        over=["stream_copy_footprint.xeon_5400_memory_gb_per_s"],
    )
    assert effect.value == pytest.approx(11.5 / 3.5)
    assert effect.interval == pytest.approx((11.45 / 3.55, 11.55 / 3.45))


def test_a_high_p_value_is_no_evidence_of_normality() -> None:
    [unbound] = computed.normality(what="p over 0.05", bound=False, threads=8, level=0.05)
    [bound] = computed.normality(what="p over 0.05", bound=False, threads=2, level=0.05)
    assert unbound.value > 1
    assert "p = 0.55" in unbound.doubt
    assert (bound.doubt == "") == (bound.value < 1)


@pytest.mark.parametrize("claim", ["R17", "H29", "M12"])
def test_rounding_and_missing_evidence_refute_no_claim(bench: Bench, claim: str) -> None:
    [chosen_claim] = chosen((claim,))
    [trial] = chosen_claim.tests
    effects = call("computed", trial.method, bench, claim, "", trial.parameters)
    assert {word_of(chosen_claim, e)[0] for e in effects} == {"inconclusive"}
