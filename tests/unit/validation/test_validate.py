"""Tests of statements of the publications: their roles, the sensitivity of the models, and known misses."""

from __future__ import annotations

import pytest

from meshmark.errors import MeshmarkError
from meshmark.model.instruments import measure
from meshmark.model.machine import find_machine
from meshmark.model.published import misses, with_published
from meshmark.store.record import Record
from meshmark.store.run import Absence
from meshmark.validation.models.base import CHECKS, examined, machine, matrix, mean_remote
from meshmark.validation.models.validate import claims, fitted_to, restates, validate


def test_every_statement_has_a_check_and_every_check_a_statement() -> None:
    assert set(CHECKS) == {c.id for c in claims()}


def test_fitted_numbers_name_statements_that_may_be_fitted() -> None:
    role = {c.id: c for c in claims()}
    for claim in fitted_to():
        assert role[claim].role == "calibrate" or "calibrate" in role[claim].note, (
            f"{claim} was fitted but is to be predicted"
        )


def test_structure_and_calibration_hold_and_predictions_do_not_get_worse() -> None:
    rows = validate()
    outside_ids = {r.claim.id for r in rows if r.finding.inside is False}
    assert not {r.claim.id for r in rows if r.counts_as in {"structure", "calibrate"}} & outside_ids
    predictions = [r for r in rows if r.counts_as == "predict"]
    assert sum(r.finding.inside is True for r in predictions) >= 25
    assert all(r.finding.why for r in rows if r.finding.inside is not True), "a miss without an explanation"
    assert all(r.finding.why for r in rows if r.counts_as == "assumed"), "an assumption that is not named"


def test_a_result_follows_the_assumed_number_that_restates_it() -> None:
    (row,) = validate(["D04"], sensitivity=True)
    assert row.depends is not None
    elasticities = {d.key: d.elasticity for d in row.depends}
    assert elasticities["messages.overhead_us"] == pytest.approx(0.88, abs=0.02)
    assert elasticities["messages.one_sided_overhead_us"] == pytest.approx(-0.68, abs=0.02)
    strongest = restates(row)
    assert strongest is not None and strongest.key == "messages.overhead_us"
    (plain,) = validate(["D04"])
    assert plain.depends is None and plain.finding == row.finding


def test_a_list_is_varied_by_its_elements() -> None:
    (row,) = validate(["G14"], sensitivity=True)
    assert row.depends is not None
    strongest = row.depends[0]
    assert (strongest.machine, strongest.key) == ("xeon5500", "memory.node_share[0]")
    assert strongest.elasticity < -4  # the loss is one minus the share
    assert "memory.node_share[1]" not in {d.key for d in row.depends}  # a share of 1 assumes nothing


def test_checks_leave_no_changed_number_behind() -> None:
    initial_fill_ns = machine("gs1280-16").number("cpu.fill_ns")
    with examined({"gs1280-16": "cpu.fill_ns=99"}) as used:
        assert machine("gs1280-16").number("cpu.fill_ns") == 99
    assert machine("gs1280-16").number("cpu.fill_ns") == initial_fill_ns and "gs1280-16" in used


@pytest.mark.slow
@pytest.mark.timeout(1800)  # ten minutes of simulations while two other parts of the tests run
def test_no_blind_prediction_follows_an_assumed_number_one_for_one() -> None:
    rows = validate([c.id for c in claims() if c.role == "predict"], sensitivity=True)
    assert {r.claim.id: strongest for r in rows if (strongest := restates(r))} == {}


def test_a_miss_is_known_where_a_model_is_asked_for_its_point() -> None:
    records = measure("latency", find_machine("xeon5400"), {"processes": "1,8"})
    first, second = with_published(records)
    assert (first.provenance["published"], second.provenance["published"]) == (pytest.approx(102e-9), 122e-9)
    (line,) = misses(records)
    assert "processes 8: measured 122" in line and "meshmark model validate G09" in line
    changed = measure("latency", find_machine("xeon5400", ["memory.access_ns=60"]), {"processes": "8"})
    assert misses(changed) == [] and "published" not in with_published(changed)[0].provenance
    in_a_cache = measure("latency", find_machine("xeon5400"), {"processes": "8", "footprint": "1MiB"})
    assert misses(in_a_cache) == []


def test_validate_refuses_an_unknown_statement() -> None:
    with pytest.raises(MeshmarkError, match="found unknown statement 'Z99'"):
        validate(["Z99"])


def test_a_sweep_prints_the_rates_that_the_statements_are_checked_with() -> None:
    options = {"kernel": "triad", "store": "streaming", "threads": "all"}
    clocks = ("cpu.clock_ghz=1.4", "cpu.clock_ghz=2.0", "cpu.clock_ghz=2.2")
    low, base, high = (
        next(r.value for r in measure("bandwidth", find_machine("e325", [c]), options) if r.metric == "bandwidth_net")
        for c in clocks
    )
    [slope, change] = (row.finding.numbers[0] for row in validate(["B06", "B07"]))
    assert (base - low) / 600e6 == pytest.approx(slope)
    assert 100 * (high / base - 1) == pytest.approx(change)


def latency(name: str, **options: str) -> list[Record]:
    return measure("latency", find_machine(name), {"footprint": "1GiB", "cpus": "0", "memory_node": "0", **options})


@pytest.mark.parametrize("name", ["altix3700", "p690", "cray-x1"])
def test_random_loads_hit_no_line_that_was_left_long_ago(name: str) -> None:
    """Lines have at most 128 B, slots 64 B, so the other slot of a line is visited only after the whole footprint."""
    [near], [far] = (latency(name, pattern="random", stride=stride) for stride in ("64", "128"))
    assert near.value == pytest.approx(far.value)
    [ordered] = latency("altix3700", pattern="stride", stride="64")
    assert ordered.value < 0.75 * latency("altix3700", pattern="stride", stride="128")[0].value


def test_a_published_latency_is_not_held_against_another_stride() -> None:
    assert with_published(latency("gs1280-16", pattern="stride", stride="64"))[0].provenance.get("statement") == "A12"
    assert "statement" not in with_published(latency("gs1280-16", pattern="stride", stride="4096"))[0].provenance


def test_means_of_both_machines_leave_out_the_own_cpu() -> None:
    ratios = [row.finding.numbers[0] for row in validate(["A15", "A17", "A18", "A19"])]
    rows = matrix("gs320-32")
    remote_values = [rows[0][cpu // 4] for cpu in range(1, 32)]
    assert ratios[2] == pytest.approx(sum(remote_values) / 31 / mean_remote(matrix("gs1280-32")))
    assert all(row.finding.inside for row in validate(["A15", "A17", "A18", "A19"]))


def test_a_dirty_line_makes_the_same_trip_on_models_and_on_hosts() -> None:
    lines = measure("lines", find_machine("gs1280-4"), {"cpus": "0"})
    assert {r.conditions["trip"] for r in lines if r.conditions["state"] == "dirty"} == {"round"}


def net_copy(name: str, store: str, footprint: str, kernel: str = "copy") -> float:
    options = {"kernel": kernel, "store": store, "threads": "1", "footprint": footprint}
    (rate,) = (r.value for r in measure("bandwidth", find_machine(name), options) if r.metric == "bandwidth_net")
    return rate / 1e9


@pytest.mark.parametrize(("name", "printed"), [("xeon5500", 40), ("xeon5400", 28)])
def test_copy_in_the_l2_reaches_the_printed_rate_with_ordinary_stores(name: str, printed: float) -> None:
    """The publication counts as STREAM does, and streaming stores lose until the footprint exceeds the caches."""
    assert net_copy(name, "ordinary", "128KiB") == pytest.approx(printed)
    assert net_copy(name, "streaming", "128KiB") < printed / 2
    (row,) = validate(["G13"])
    assert row.finding.inside and row.finding.numbers[0 if name == "xeon5500" else 1] == pytest.approx(printed)


def test_a_statement_about_a_cache_is_checked_on_the_result_of_the_instrument() -> None:
    with examined({"xeon5500": "cache[1].copy_gb_per_s=30"}):
        assert CHECKS["G13"]().numbers[0] == pytest.approx(30)
    with examined({"xeon5500": "cache[1].size_kib=64"}):  # 128 KiB are then in the L3
        assert CHECKS["G13"]().inside is False


def test_streaming_stores_leave_the_caches_to_the_arrays_that_are_read() -> None:
    name = "xeon5500"
    # The kernel reads half of the footprint: 32 KiB of 64 KiB are in the L1.
    assert net_copy(name, "streaming", "64KiB") == net_copy(name, "streaming", "32KiB")
    assert net_copy(name, "streaming", "72KiB") < net_copy(name, "streaming", "64KiB")
    assert net_copy(name, "streaming", "16MiB") > net_copy(name, "streaming", "17MiB")
    # Two of three arrays are in the caches with triad, no array with update, and the kernel read does not store.
    assert net_copy(name, "streaming", "12MiB", "triad") > net_copy(name, "streaming", "13MiB", "triad")
    assert net_copy(name, "streaming", "16KiB", "update") == net_copy(name, "streaming", "1GiB", "update")
    assert net_copy(name, "streaming", "16KiB", "read") == net_copy(name, "ordinary", "16KiB", "read")
    (row,) = validate(["G12"])
    assert row.finding.inside


def test_no_store_makes_a_cache_faster_than_its_rate() -> None:
    """The L2 of a GS1280 moves 18.4 GB/s, whatever the kernel and the stores."""
    for kernel in ("copy", "triad"):
        assert net_copy("gs1280-4", "streaming", "512KiB", kernel) <= 18.5


def test_a_cache_without_a_rate_is_named() -> None:
    with pytest.raises(MeshmarkError, match="neither copy_gb_per_s nor bandwidth_gb_per_s"):
        measure("bandwidth", find_machine("es45"), {"footprint": "32KiB"})
    absences: list[Absence] = []
    options = {"threads": "1", "footprint": "32KiB,64MiB"}
    records = measure("bandwidth", find_machine("es45"), options, on_absence=absences.append)
    assert {r.conditions["footprint_bytes"] for r in records} == {64 << 20}
    assert [a.conditions["footprint_bytes"] for a in absences] == [32 << 10]
    assert "neither copy_gb_per_s nor" in absences[0].reason and absences[0].conditions["footprint_bytes"]
    assert len({a.reason for a in absences}) == 1, "a report lists them together"
