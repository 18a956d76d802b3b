"""The good and bad points of a machine: each sentence names a reference, and every point needs evidence."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from meshmark.describe import description
from meshmark.store.record import Record
from meshmark.store.store import Store
from meshmark.views.content.card import figures
from meshmark.views.content.findings import trusted
from meshmark.views.content.strengths import MOST, EarlierRun, Strength, earlier_runs, strengths
from meshmark.views.pages.build import report_page
from support import made_run
from support.made_run import record


def host(**facts: Any) -> dict[str, Any]:
    cores = [{"os_index": i, "index": i, "cpus": [i]} for i in range(2)]
    topology = {
        "packages": [{"os_index": i, "cpus": [i]} for i in range(2)],
        "cores": cores,
        "cpus": [{}, {}],
        "caches": [],
    }
    return {"topology": topology, "cpu": {"isa": ["sse2"]}} | facts


def points(
    records: list[Record], facts: dict[str, Any] | None = None, earlier: Iterable[EarlierRun] = ()
) -> list[Strength]:
    return strengths(records, made_run.run_info(facts), figures(records, 2), [*earlier])


def triad(value: float, threads: int = 2, flags: Iterable[str] = (), **more: Any) -> Record:
    conditions = {"kernel": "triad", "store": "streaming", "footprint_bytes": 2**31, "isa": "avx2"}
    return record("bandwidth", "bandwidth_net", value, flags, **conditions, threads=threads, **more)


def peak(value: float, threads: int, flags: Iterable[str] = ()) -> Record:
    return record("peak", "flop_rate", value, flags, type="fp64", isa="avx2", threads=threads, cpus="0-1")


def dgemm(value: float, flags: Iterable[str] = ()) -> Record:
    return record("dgemm", "flop_rate", value, flags, n=2000, threads=2, library="x")


@pytest.mark.parametrize(("share", "good"), [(0.9, True), (0.7, None), (0.4, False)])
def test_bandwidth_is_put_beside_the_peak_of_the_memory_modules(share: float, good: bool | None) -> None:
    strengths = points([triad(share * 1e11)], host(cpu={}, memory={"peak_bytes_per_s": 1e11}))
    assert [p.good for p in strengths] == ([] if good is None else [good])
    for p in strengths:
        assert "theoretical peak of the memory modules (100" in p.text and "×" in p.text
        assert p.certainty.startswith("95") and p.flags == ()


def test_an_interval_that_reaches_what_is_neither_makes_no_point() -> None:
    """A median of half the peak is bad only if the whole interval is below the limit."""
    wide = Record.from_samples(
        description("bandwidth").metric("bandwidth_net"),
        [3e10, 4e10, 5e10, 5e10, 6e10, 7e10, 9e10],
        source="host",
        machine="made-up",
        instrument="bandwidth",
        conditions=triad(1.0).conditions,
        provenance={},
    )
    assert wide.bounds is not None and wide.bounds[1] > 6e10
    assert points([wide], host(cpu={}, memory={"peak_bytes_per_s": 1e11})) == []


def test_flagged_results_say_so_and_come_last() -> None:
    records = [triad(9e10), dgemm(9.5e10, ["stolen"]), peak(1e11, 2), peak(5e10, 1)]
    strengths = points(records, host(cpu={}, memory={"peak_bytes_per_s": 1e11}))
    assert [p.flags for p in strengths][-1] == ("stolen",) and str(strengths[-1]).endswith("flagged: stolen)")
    assert all(p.good for p in strengths)


def test_at_most_three_points_of_each_kind_are_named() -> None:
    records = [triad(9e10), dgemm(9.5e10), peak(1e11, 2), peak(5e10, 1)]
    earlier_records = [replace(r, samples=tuple(s / 2 for s in r.samples)) for r in records]
    facts = host(cpu={}, memory={"peak_bytes_per_s": 1e11})
    strengths = points(records, facts, [EarlierRun("old", "2026-01-01T00:00:00Z", earlier_records)])
    assert sum(p.good for p in strengths) == MOST


def test_an_earlier_run_is_named_with_its_day_and_value() -> None:
    (strength,) = points([triad(8e10)], None, [EarlierRun("survey-7", "2026-10-12T08:00:00Z", [triad(1.6e11)])])
    assert not strength.good and "the earlier run survey-7 of 2026-10-12 (1" in strength.text
    assert points([triad(8e10)], None, [EarlierRun("other", "2026-10-12", [triad(1.6e11, threads=1)])]) == []


def test_published_machines_of_the_class_are_named_with_their_year() -> None:
    copy = replace(triad(5e10, threads=1), conditions={**triad(1).conditions, "kernel": "copy", "threads": 1})
    (strength,) = points([copy], host())
    assert strength.good and "paper:xeon5500" in strength.text and "of 2009" in strength.text
    assert "published without an interval" in strength.certainty
    assert points([copy], host(cpu={"isa": ["sve"]})) == [], "of another architecture"


def test_a_cache_is_put_beside_its_reported_size() -> None:
    level = record(
        "latency",
        "level_latency",
        4e-9,
        kind="cache",
        level=3,
        pages="thp",
        from_bytes=2**20,
        to_bytes=2**22,
        claimed_bytes=2**25,
    )
    (strength,) = points([level], host())
    assert (
        not strength.good and strength.title.startswith("Cache of 32") and "operating system reports" in strength.text
    )


def test_nothing_is_said_of_several_machines_or_of_nothing() -> None:
    assert points([]) == []
    assert (
        points([triad(9e10), replace(triad(8e10), machine="b")], host(cpu={}, memory={"peak_bytes_per_s": 1e11})) == []
    )


def test_earlier_runs_are_those_of_this_machine_that_started_before(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    for run, start, machine in (
        ("a", "01", "made-up"),
        ("b", "02", "made-up"),
        ("c", "30", "made-up"),
        ("d", "03", "x"),
    ):
        record = replace(triad(1e10), machine=machine, provenance={"start": f"2026-11-{start}T00:00:00Z"})
        store.add(run, "s", [record])
    earlier = earlier_runs([triad(1e10)], made_run.run_info(), store)
    assert [(e.run, e.started[:10]) for e in earlier] == [("b", "2026-11-02"), ("a", "2026-11-01")]
    assert earlier_runs([triad(1e10)], made_run.run_info(), Store(tmp_path / "none")) == []


def test_a_run_that_is_not_to_be_relied_on_says_so_first_and_what_to_do() -> None:
    flagged = [triad(9e10, flags=["disturbed"])]
    assert not trusted(flagged).reliable
    page = report_page(flagged, [], made_run.run_info(host()))
    before_points, banner, _ = page.partition('class="banner"')
    assert banner and '<div class="strengths">' not in before_points
    assert "<code>meshmark survey --quick</code>" in page
    assert 'class="banner"' not in report_page([triad(9e10)], [], made_run.run_info(host()))
