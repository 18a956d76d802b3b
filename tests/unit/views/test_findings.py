"""The sentences at the top of a report: they show the flags of their records and are absent if records are missing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from meshmark.store.record import FLAGS, Record
from meshmark.views.content.card import figures
from meshmark.views.content.findings import REMEDIES, sentences, trust
from support import made_run
from support.made_run import record

NBSP = "\u00a0"


def texts(records: list[Record], cpus: int = 2) -> list[str]:
    return [str(s).replace(NBSP, " ") for s in sentences(records, figures(records, cpus))]


def triad(threads: int, value: float, flags: tuple[str, ...] = ()) -> Record:
    conditions = {"kernel": "triad", "store": "streaming", "footprint_bytes": 2**31, "cpus": f"0-{threads - 1}"}
    return record("bandwidth", "bandwidth_net", value, flags, threads=threads, **conditions)


def chase(footprint: int, value: float, pages: str = "thp") -> Record:
    conditions = {"pages": pages, "pattern": "random", "cpu": 0, "memory_node": 0, "processes": 1}
    return record("latency", "load_latency", value, footprint_bytes=footprint, **conditions)


def plateau(level: int, to: int, claimed: int | None, value: float, kind: str = "cache") -> Record:
    conditions = {"pages": "thp", "pattern": "random", "cpu": 0, "memory_node": 0, "kind": kind, "from_bytes": 2048}
    return record("latency", "level_latency", value, level=level, to_bytes=to, claimed_bytes=claimed, **conditions)


def peak(threads: int, value: float) -> Record:
    return record("peak", "flop_rate", value, type="fp64", isa="avx2", threads=threads, cpus="0-1")


def test_the_memory_is_described_by_one_cpu_all_cpus_and_the_latency() -> None:
    records = [triad(1, 25e9), triad(2, 47e9), plateau(4, 2**30, None, 110e-9, "memory")]
    (text,) = texts(records)
    assert text.startswith(("Triad reaches 25.", "Triad reaches 24."))
    assert "GB/s on one CPU and 4" in text and "GB/s on 2 CPUs; a load from memory takes 1" in text
    assert text.endswith("ns (huge pages).")


def test_without_a_plateau_of_memory_the_largest_footprint_is_named() -> None:
    (text,) = texts([chase(2**20, 20e-9), chase(2**30, 240e-9)])
    assert text.startswith("A load within 1 GiB takes 2") and "memory" not in text
    assert texts([chase(2**30, 240e-9)]) == [], "one footprint is no curve"


def test_caches_are_described_by_their_fastest_plateau() -> None:
    records = [
        plateau(1, 2**15, 48 << 10, 1.2e-9),
        plateau(2, 2**24, 2 << 20, 40e-9),
        plateau(3, 2**23, 480 << 20, 44e-9),
        plateau(4, 2**28, 480 << 20, 160e-9),
    ]
    (text,) = texts(records)
    assert text.startswith("Caches hold at least (reported): 32 KiB (48 KiB) at 1.2") and "8 MiB (480 MiB) at 4" in text
    assert "256 MiB" not in text
    assert "16 MiB" not in text, "more than is claimed: the second plateau is not the second cache"


def test_load_and_arithmetic_are_put_beside_what_limits_them() -> None:
    knee = record("loaded", "knee_bandwidth", 12e9, threads=2, mode="chains", pages="thp", reached="yes")
    dgemm = record("dgemm", "flop_rate", 75e9, n=2000, threads=2, library="x")
    messages = texts([triad(2, 48e9), peak(2, 100e9), knee, dgemm])
    assert "GB/s on 2 CPUs, 2" in messages[1] and messages[1].endswith("% of triad's rate.")
    assert "of which dgemm reaches 75 %" in messages[2] and "flop per byte of triad" in messages[2]
    (message,) = texts([knee])
    assert "triad" not in message
    (open_message,) = texts(
        [replace(knee, conditions={**knee.conditions, "reached": "no: latency stayed below the knee"})]
    )
    assert open_message.endswith("(the most that was measured).")


def test_a_sentence_carries_the_flags_of_what_it_rests_on() -> None:
    records = [triad(1, 25e9, ("disturbed",)), triad(2, 47e9, ("stolen",))]
    (sentence,) = sentences(records, figures(records, 2))
    assert sentence.flags == ("disturbed", "stolen") and str(sentence).endswith(". (disturbed, stolen)")


def test_trust_names_what_helps() -> None:
    quiet = [triad(n, 1e9 * n) for n in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10)]
    assert trust(quiet) == "No point is flagged or has a wider interval than requested."
    one_flagged = [*quiet[:9], triad(10, 1e10, ("stolen",))]
    assert trust(one_flagged) == f"1 of 10 points is flagged (stolen): {REMEDIES['stolen']}."
    many = [*quiet[:6], *(triad(n, 1e9, ("disturbed",)) for n in (7, 8, 9, 10))]
    assert trust(many).startswith("Do not rely on this run: 4 of 10 points are flagged (disturbed): samples were")
    assert trust([replace(r, source="model") for r in quiet]) == ""


def test_flags_of_hosts_have_a_remedy() -> None:
    assert FLAGS - {"stopped", "incorrect"} >= {*REMEDIES}
    assert {"stolen", "disturbed", "clock_varied", "page_size", "misplaced", "faulted", "migrated"} <= {*REMEDIES}


def test_a_model_is_called_one_and_machines_are_not_mixed() -> None:
    modelled = [replace(triad(2, 47e9), source="model", machine="gs1280-16")]
    assert texts(modelled)[0].startswith("Modelled: triad reaches 4")
    assert texts([triad(2, 47e9), *modelled]) == []


def test_the_fastest_of_several_nodes_is_the_nearest() -> None:
    near = plateau(4, 2**30, None, 110e-9, "memory")
    far = replace(near, value=200e-9, conditions={**near.conditions, "memory_node": 1})
    (text,) = texts([near, far])
    assert text.startswith("A load from the nearest memory takes 1")


@pytest.mark.parametrize(
    "records", [[], [triad(1, 0.0)], [made_run.record("gups", "update_rate", 1e8, table_bytes=2**20)]]
)
def test_nothing_is_said_without_records(records: list[Record]) -> None:
    assert all("nan" not in t for t in texts(records, 0))


def test_the_latency_of_memory_is_measured_with_the_usual_stride() -> None:
    slow = chase(2**26, 171e-9)
    fast = record("latency", "load_latency", 80e-9, **{**slow.conditions, "stride_bytes": 4096})
    near = record("latency", "load_latency", 1e-9, **{**slow.conditions, "footprint_bytes": 2**14, "stride_bytes": 64})
    far = record("latency", "load_latency", 171e-9, **{**slow.conditions, "stride_bytes": 64})
    assert "A load within 64 MiB takes 171 ns (huge pages)." in texts([near, far, fast])
    strided = [replace(r, conditions={**r.conditions, "stride_bytes": 4096}) for r in (near, fast)]
    assert "(huge pages, stride 4 KiB)" in " ".join(texts(strided))


def test_the_card_says_a_stride_that_is_not_the_usual_one() -> None:
    conditions = {"kind": "memory", "pages": "thp", "level": 4, "from_bytes": 2**26, "to_bytes": 2**30}
    usual = record("latency", "level_latency", 171e-9, stride_bytes=64, **conditions)
    wide = record("latency", "level_latency", 80e-9, stride_bytes=4096, **conditions)
    assert figures([wide, usual])["memory_latency"] == ("Memory latency, huge pages", usual)
    assert figures([wide])["memory_latency"] == (f"Memory latency, huge pages, stride 4{NBSP}KiB", wide)
