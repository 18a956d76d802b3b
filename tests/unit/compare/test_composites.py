"""Tests of composites of publications and of runs: what follows from their rows, and which ones are comparable."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import pytest

from meshmark.compare.composites import compared, composites_of
from meshmark.compare.sides import ResultSide
from meshmark.errors import UsageError
from meshmark.machine.published.papers import paper
from meshmark.store.record import Metric, Record
from support.cli import meshmark

RATIO = Metric("ratio", "1", "higher", "")
WHOLE = Metric("composite", "1", "higher", "")


def published(name: str) -> ResultSide:
    records = paper(name).records()
    return ResultSide(name=f"paper:{name}", what="", machine=name, start="", records=records)


def run(name: str, ratios: Mapping[str, Sequence[float]], whole: float | None, reference: str = "old") -> ResultSide:
    common = {"source": "host", "machine": name, "instrument": "app", "provenance": {"reference_source": "by hand"}}
    records = [
        Record.from_samples(RATIO, r, conditions={"composite": "c", "member": m, "reference": reference}, **common)  # type: ignore[arg-type]
        for m, r in ratios.items()
    ]
    if whole is not None:
        conditions = {"program": "c", "reference": reference, "run_low": 0.9 * whole, "run_high": 1.1 * whole}
        records.append(Record.from_samples(WHOLE, [whole], conditions=conditions, **common))  # type: ignore[arg-type]
    return ResultSide(name=name, what="", machine=name, start="", records=records)


def test_the_published_table_shows_its_misprint() -> None:
    (old,) = composites_of(published("xeon5400"))
    eight, sixteen = composites_of(published("xeon5500"))
    assert old.stated == 0.69 and old.mean.value == pytest.approx(0.8074, abs=1e-4) and not old.follows
    assert old.bounds is not None and old.bounds[0] > 0.80 and "0.807" in old.note
    assert (eight.stated, sixteen.stated) == (1.75, 1.90) and eight.follows and sixteen.follows
    first, second = compared([old], [eight, sixteen])
    assert first.value == pytest.approx(2.168, abs=1e-3) and first.stated == pytest.approx(1.75 / 0.69)
    assert second.value == pytest.approx(2.357, abs=1e-3)
    assert first.bounds is not None and first.stated is not None and first.bounds[1] < first.stated
    assert first.members["130.socorro"] == pytest.approx(4.0)


def test_two_runs_compare_with_an_interval() -> None:
    a = composites_of(run("a", {"x": [1.0, 1.01, 0.99], "y": [4.0, 4.0, 4.0]}, 2.0))
    b = composites_of(run("b", {"x": [2.0, 2.02, 1.98], "y": [2.0, 2.0, 2.0]}, 2.0))
    assert a[0].bounds == (1.8, 2.2)  # the stored interval, which includes the spread of the reference
    (pair,) = compared(a, b)
    assert pair.value == pytest.approx(1.0) and pair.members == {"x": 2.0, "y": 0.5} and pair.stated is None
    assert pair.bounds is not None and 0.95 < pair.bounds[0] < 1 < pair.bounds[1] < 1.05


def test_a_run_in_which_a_member_failed_has_none() -> None:
    with pytest.raises(UsageError, match="composite: found no composite of a"):
        composites_of(run("a", {"x": [1.0, 1.0, 1.0]}, None))


def test_rows_of_several_runs_are_refused() -> None:
    with pytest.raises(UsageError, match="from several runs; allowed: the name of one run"):
        composites_of(run("a", {"x": [1.0, 1.0, 1.0]}, 3.0))


@pytest.mark.parametrize(
    ("members", "reference", "message"),
    [({"y": [1.0, 1.0]}, "old", "found x, y in only one"), ({"x": [1.0, 1.0]}, "new", "allowed: the same")],
)
def test_others_do_not_compare(members: dict[str, list[float]], reference: str, message: str) -> None:
    single = composites_of(run("a", {"x": [1.0, 1.0]}, 1.0))
    with pytest.raises(UsageError, match=message):
        compared(single, composites_of(run("b", members, 1.0, reference)))


def test_the_command_prints_tables_and_json() -> None:
    completed = meshmark("composite", "paper:xeon5400", "paper:xeon5500")
    assert completed.returncode == 0 and "printed 0.690, which does not follow from the ratios" in completed.stdout
    assert "paper:xeon5500, 8 ranks, over paper:xeon5400, 8 ranks: 2.17 (2.15 to 2.19)" in completed.stdout
    lines = [json.loads(x) for x in meshmark("composite", "paper:xeon5400", "--json").stdout.splitlines()]
    assert [(x["type"], x["stated"], x["follows"]) for x in lines] == [("composite", 0.69, False)]
    assert "composite: found no composite of paper:gs1280" in meshmark("composite", "paper:gs1280").stderr
