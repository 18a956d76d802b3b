"""Results that probably do not measure what their name says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from meshmark.describe import description
from meshmark.measure.suspicion import lines, suspicions
from meshmark.store.record import Record

CACHES = [
    {"level": 1, "kind": "data", "size_bytes": 32 << 10, "cpus": [0]},
    {"level": 1, "kind": "instruction", "size_bytes": 64 << 10, "cpus": [0]},
    {"level": 3, "kind": "unified", "size_bytes": 32 << 20, "cpus": [0, 1]},
    {"level": 3, "kind": "unified", "size_bytes": 32 << 20, "cpus": [2, 3]},
]


def record(instrument: str, metric: str, value: float, source: str = "host", **conditions: object) -> Record:
    kind = next(m for m in description(instrument).metrics if m.name == metric)
    samples: Sequence[float] = [value * (1 + 0.001 * i) for i in range(-5, 6)]
    return Record.from_samples(
        kind, samples, source=source, machine="m", instrument=instrument, conditions=conditions, provenance={}
    )


def texts(*records: Record) -> list[str]:
    return lines(suspicions(records, CACHES))


def triad(footprint: int, cpus: str = "0-1", source: str = "host") -> Record:
    return record("bandwidth", "bandwidth_net", 9e10, source, kernel="triad", cpus=cpus, footprint_bytes=footprint)


def test_a_memory_bandwidth_whose_footprint_fits_the_caches() -> None:
    (message,) = texts(triad(24 << 20))
    assert "24 MiB fit the last-level caches (32" in message and "at least 128" in message
    assert texts(triad(24 << 20), triad(64 << 20)) == []  # the largest footprint of a series counts
    assert texts(triad(48 << 20)) == []
    assert len(texts(triad(48 << 20, "0-3"))) == 1  # the two caches together hold the footprint
    assert texts(triad(24 << 20, source="model")) == []
    assert suspicions([triad(24 << 20)]) == []  # no cache sizes are reported


def latency(footprint: int, ns: float, pattern: str = "random", stride: int = 64) -> Record:
    conditions = {"pattern": pattern, "stride_bytes": stride, "footprint_bytes": footprint, "cpu": 0}
    return record("latency", "load_latency", ns * 1e-9, **conditions)


def test_a_stride_that_prefetchers_follow_is_no_latency() -> None:
    (message,) = texts(latency(1 << 20, 2.2, "stride"), latency(64 << 20, 2.2, "stride"))
    assert "2.200 ns: prefetchers can follow" in message and "--pattern random" in message
    assert texts(latency(16 << 10, 1.0, "stride"), latency(64 << 20, 90, "stride", 4096)) == []


@pytest.mark.parametrize(("second", "count"), [(90.0, 1), (98.0, 0), (120.0, 0)])
def test_a_latency_does_not_fall_as_the_footprint_grows(second: float, count: int) -> None:
    messages = texts(latency(1 << 20, 100.0), latency(2 << 20, second * 0.98))
    assert len(messages) == count
    assert not messages or ("at 1 MiB" in messages[0] and "0.88" in messages[0])


def test_other_patterns_are_other_curves() -> None:
    assert texts(latency(1 << 20, 100.0), latency(2 << 20, 50.0, "stride", 8192)) == []


def share(value: float, **more: object) -> Record:
    conditions = {"n": 2000, "threads": 1, "cpus": "0", "library": "OpenBLAS", "library_kernel": "Haswell", **more}
    return record("dgemm", "peak_share", value, **conditions)


def test_a_library_far_below_the_peak_is_named_with_what_was_tried() -> None:
    (message,) = texts(share(0.76, trial_Haswell=5e10, trial_Zen=4.9e10, trial_SapphireRapids=0.0), share(0.5, n=500))
    assert (
        "kernel Haswell stays below 80 %" in message
        and "tried on one core: Haswell 50.00 GFLOP/s, Zen 49.00 GFLOP/s;" in message
    )
    assert "SapphireRapids" not in message and "not installed" not in message
    assert "may give up to 1.32 times as much" in message
    (missing_message,) = texts(share(0.5, library_missing="MKL, BLIS"))
    assert "peak; not installed: MKL, BLIS;" in missing_message
    (forced_message,) = texts(share(0.46, kernel_chosen_by="environment"))
    assert (
        "OPENBLAS_CORETYPE in the environment forces" in forced_message and "unset OPENBLAS_CORETYPE" in forced_message
    )
    assert texts(share(0.81)) == []
    for limited_by_memory in ("mod2d", "linpack"):
        assert texts(replace(share(0.4), instrument=limited_by_memory)) == []


@pytest.mark.parametrize("odd", [True, "much", 1.5, None])
def test_conditions_of_an_odd_kind_are_no_reason_to_fail(odd: object) -> None:
    conditions = {"pattern": "stride", "stride_bytes": odd, "footprint_bytes": odd, "cpus": odd, "chains": odd}
    for instrument, metric in (("latency", "load_latency"), ("bandwidth", "bandwidth_net"), ("gups", "update_rate")):
        assert texts(record(instrument, metric, 1.0, table_bytes=odd, **conditions)) == []
    assert suspicions([triad(24 << 20)], [{"level": 3}, {"level": 3, "size_bytes": None}]) == []


def test_a_clock_that_no_core_has() -> None:
    (message,) = texts(
        record("clock", "core_frequency", 21.8e9, cpu=0), record("clock", "core_frequency", 4.1e9, cpu=1)
    )
    assert message.startswith("clock core_frequency 21.80 GHz: no core has such a clock")
