"""Machine cards: `card.json` can be compared and imported exactly, and a damaged one is refused in one line."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshmark.compare.join import ResultComparison, compare
from meshmark.compare.sides import ResultSide, Sides
from meshmark.errors import MeshmarkError, UsageError
from meshmark.measure.importers import card as of_card
from meshmark.measure.importers.card import read_card, to_text
from meshmark.measure.importers.importing import add_to, read_output
from meshmark.store.record import Record, median, median_interval
from meshmark.store.run import Absence
from meshmark.store.store import Store
from meshmark.views.content.card import machine_card
from support import made_run
from support.cli import meshmark

RUN = made_run.run_info().run_id


def scaled(r: Record, factor: float) -> Record:
    samples = tuple(s * factor for s in r.samples)
    return replace(r, samples=samples, value=median(samples), interval=median_interval(samples))


def steps() -> list[tuple[str, Record]]:
    """Return two repetitions of everything: the second is slower, and some results are unusual."""
    first = made_run.everything()
    first[0] = replace(first[0], flags=frozenset({"stolen"}), conditions={**first[0].conditions, "task": None})
    first[1] = replace(first[1], samples=first[1].samples[:3], value=sorted(first[1].samples[:3])[1], interval=None)
    first[2] = replace(first[2], value=first[2].value * (1 + 1e-12))  # the same median, rounded in another way
    marked_records = [
        replace(r, provenance={**r.provenance, "start": f"2026-11-25T10:{i % 60:02}:00Z"}) for i, r in enumerate(first)
    ]
    second = [scaled(r, 1.3) for r in first[20:]]
    return [*(("a.r1", r) for r in marked_records), *(("a.r2", r) for r in second)]


def written(folder: Path, rows: Sequence[tuple[str, Record]], name: str = "card.json") -> Path:
    content = machine_card([r for _, r in rows], made_run.absences(), made_run.run_info(), rows)
    path = folder / name
    path.write_text(to_text(content))
    return path


def compared(a: ResultSide, b: ResultSide) -> ResultComparison:
    comparison = compare(a, b)
    assert comparison.pairs and all(p.ratio is not None and p.ratio.value == 1 for p in comparison.pairs)
    return comparison


@pytest.fixture
def sides(tmp_path: Path) -> Sides:
    return Sides(Store(tmp_path / "store"), tmp_path / "runs", "made-up")


def test_a_card_has_every_result_exactly(tmp_path: Path) -> None:
    rows = steps()
    card = read_card(written(tmp_path, rows).read_bytes())
    assert card is not None and card.run == RUN and not card.left_out
    order = sorted(card.records, key=lambda row: json.dumps([row[0], row[1].to_json()], sort_keys=True))
    assert order == sorted(rows, key=lambda row: json.dumps([row[0], row[1].to_json()], sort_keys=True))
    assert {type(v) for _, r in card.records for v in r.conditions.values()} == {
        type(v) for _, r in rows for v in r.conditions.values()
    }


def test_a_card_compares_with_its_run_as_a_run_with_itself(tmp_path: Path, sides: Sides) -> None:
    rows = steps()
    store = Store(tmp_path / "store")
    for step in ("a.r1", "a.r2"):
        store.add(RUN, step, [r for record_step, r in rows if record_step == step])
    path = str(written(tmp_path, rows))
    for name in (RUN, "host", path):
        comparison = compared(sides.find(name), sides.find(path))
        assert {p.word for p in comparison.pairs} == {"equal"} and len(comparison.pairs) > 40
        assert not comparison.only_a and not comparison.only_b
    slower = [(step, scaled(r, 2.0)) for step, r in rows]
    other = compare(sides.find(path), sides.find(str(written(tmp_path, slower, "other.json"))))
    ratios = [p.ratio.value for p in other.pairs if p.ratio and p.a.value]
    assert len(ratios) > 700 and ratios == pytest.approx([2.0] * len(ratios))


def test_importing_the_card_of_a_run_adds_the_run_once(tmp_path: Path, sides: Sides) -> None:
    rows = steps()
    store, path = Store(tmp_path / "store"), written(tmp_path, rows)
    assert add_to(store, read_output(path).parts) == [
        (RUN, 0 + sum(s == step for s, _ in rows)) for step in ("a.r1", "a.r2")
    ]
    assert [count for _, count in add_to(store, read_output(path).parts)] == [0, 0]
    assert [row["run"] for row in store.runs()] == [RUN]
    assert {a.reason for a in store.absences(run=RUN)} == {a.reason for a in made_run.absences()}
    # The same results under another name are equal, and are not mixed with the results of the original machine.
    for _ in range(2):
        added = add_to(store, read_output(path, "siteb").parts)
    assert {run for run, _ in added} == {f"{RUN}-siteb"} and sum(count for _, count in added) == 0
    comparison = compared(sides.find("host"), sides.find("siteb"))
    assert {p.word for p in comparison.pairs} == {"equal"} and not comparison.only_a
    assert {run for run, _ in add_to(store, read_output(path, "sitec").parts, "named")} == {"named"}
    assert {p.word for p in compared(sides.find("named"), sides.find("siteb")).pairs} == {"equal"}
    assert [count for _, count in add_to(store, read_output(path, "sitec").parts, "named")] == [0, 0]
    with pytest.raises(UsageError, match="--name: found 'named', which is another run"):
        add_to(store, read_output(path, "sited").parts, "named")


def test_what_is_too_much_for_a_card_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = steps()
    counts = {
        name: sum((r.instrument, r.metric) == name for _, r in rows)
        for name in {(r.instrument, r.metric) for _, r in rows}
    }
    largest = max(counts, key=lambda name: counts[name])
    monkeypatch.setattr(of_card, "MAX_RESULTS", len(rows) - 1)
    imported = read_output(written(tmp_path, rows))
    assert sum(len(p.records) for p in imported.parts) == len(rows) - counts[largest] and imported.left_out_count == 1
    assert str(imported.left_out[0]).startswith(
        f"{largest[0]} {largest[1]}: {counts[largest]} results are too many for a card"
    )


def test_a_card_of_several_machines_gets_no_single_name(tmp_path: Path, sides: Sides) -> None:
    rows = steps()
    path = written(tmp_path, [*rows, ("b", replace(rows[0][1], machine="n2"))])
    with pytest.raises(UsageError, match=r"--machine: found results of 2 machines in .* one is allowed"):
        read_output(path, "siteb")
    with pytest.raises(UsageError, match=r"--machine: found .* a name in UTF-8 is required"):
        read_output(path, "site\udcff")
    with pytest.raises(UsageError, match="found results of 2 machines"):
        sides.find(str(path))


def change(key: str, value: Any) -> Callable[[dict[str, Any]], None]:
    return lambda card: card.__setitem__(key, value)


def in_group(key: str, value: Any) -> Callable[[dict[str, Any]], None]:
    return lambda card: [group.__setitem__(key, value) for group in card["records"]] and None


def in_results(key: str, value: Any) -> Callable[[dict[str, Any]], None]:
    return lambda card: [r.__setitem__(key, value) for group in card["records"] for r in group["results"]] and None


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (change("schema", 1), "schema: found 1, 2 is required: this card has figures without results"),
        (change("schema", 3), "schema: found 3; this version of Meshmark reads 2"),
        (change("schema", "2"), 'schema: found "2"; allowed: 2'),
        (change("schema", True), "schema: found true; allowed: 2"),
        (change("run", 5), "run: found 5, a name is required"),
        (change("run", "\ud800"), r'run: found "\\ud800", a name is required'),
        (change("records", {}), "records: found {}, a list of objects is required"),
        (change("records", [1]), r"records: found \[1\], a list of objects is required"),
        (change("records", []), "found no results in this card"),
        (change("left_out", None), "left_out: found null, a list of objects is required"),
        (change("absent", 7), "absent: found 7, a list of objects is required"),
        (in_group("step", ""), 'group 1 of records: step: found "", a name is required'),
        (in_group("results", 0), "group 1 of records: results: found 0, a list of objects is required"),
        (in_group("conditions", []), r"group 1 of records: conditions: found \[\], an object is required"),
        (in_group("conditions", {"a": [1]}), "group 1 of records, result 1: conditions: found"),
        (in_group("unit", None), "group 1 of records, result 1: unit: found None, a string is required"),
        (in_group("source", "rumour"), "group 1 of records, result 1: source: found 'rumour'"),
        (in_results("samples", "x"), "group 1 of records, result 1: samples: found 'x', a list of finite numbers"),
        (in_results("samples", [float("nan")]), r"result 1: samples: found \[nan\], a list of finite numbers"),
        (in_results("samples", [10**400]), r"result 1: samples: found \[1000.*, a list of finite numbers"),
        (in_results("samples", [{}]), r"result 1: samples: found \[\{\}\], a list of finite numbers"),
        (in_results("samples", []), "result 1: samples: found none, at least 1 is required"),
        (in_results("value", 3), "result 1: value: found 3, the median of the samples is"),
        (in_results("interval", [1, 2, 3]), "result 1: interval: found"),
        (in_results("flags", ["lucky"]), "result 1: flags: found"),
        (in_results("conditions", 4), "result 1: conditions: found 4, an object"),
    ],
)
def test_a_wrong_field_is_named(tmp_path: Path, edit: Callable[[dict[str, Any]], None], message: str) -> None:
    path = written(tmp_path, steps())
    content = json.loads(path.read_text())
    edit(content)
    path.write_text(json.dumps(content))
    with pytest.raises(MeshmarkError, match=message) as error:
        read_output(path)
    assert "\n" not in str(error.value) and len(str(error.value)) < 300


def test_one_wrong_result_is_left_out_and_the_others_are_taken(tmp_path: Path) -> None:
    path = written(tmp_path, steps())
    content = json.loads(path.read_text())
    content["records"][0]["results"][1]["samples"][0] = "fast"
    path.write_text(json.dumps(content))
    imported = read_output(path)
    assert sum(len(p.records) for p in imported.parts) == len(steps()) - 1
    assert imported.left_out_count == 1 and imported.left_out[0].where == "group 1 of records, result 2"


def test_a_card_that_is_cut_or_nested_too_deeply_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, steps())
    text = path.read_text()
    old_text = text.replace(' "type": "card",\n "schema": 2', ' "schema": 1', 1)
    for cut in (text[:5000], text[:-3], old_text[: len(old_text) // 2], '{"type": "card", "records": ' + "[" * 200_000):
        path.write_text(cut)
        with pytest.raises(UsageError, match=r"card\.json: the card is damaged: .+") as error:
            read_output(path)
        assert "\n" not in str(error.value) and "write the card again" in error.value.hint
    path.write_text(f'{{"type": "card", "schema": {"9" * 5000}}}')
    with pytest.raises(UsageError, match="the card is damaged: Exceeds the limit"):
        read_output(path)


SAMPLE = to_text(
    machine_card(made_run.latency()[:3], [Absence(instrument="gups", reason="no memory")], made_run.run_info())
).encode()


@given(st.integers(0, len(SAMPLE) - 1), st.binary(max_size=6), st.integers(0, 40))
def test_any_change_of_a_card_gives_records_or_one_line(at: int, inserted: bytes, dropped: int) -> None:
    try:
        card = read_card(SAMPLE[:at] + inserted + SAMPLE[at + dropped :])
    except UsageError as error:
        assert "\n" not in str(error) and len(str(error)) < 300
    else:
        assert card is None or all(isinstance(r, Record) for _, r in card.records)


def test_the_commands_name_the_field_and_the_remedy(tmp_path: Path) -> None:
    path = written(tmp_path, steps())
    env = {"XDG_DATA_HOME": str(tmp_path / "home")}
    completed = meshmark("compare", str(path), str(path), env=env)
    assert completed.returncode == 0 and "equal" in completed.stdout, completed.stderr
    path.write_text(path.read_text().replace('"schema": 2', '"schema": 1', 1))
    completed = meshmark("store", "import", str(path), env=env)
    assert completed.returncode == 2 and "schema: found 1, 2 is required" in completed.stderr
    assert "hint: write the card again: meshmark report RUN" in completed.stderr and "Traceback" not in completed.stderr
    assert "compare: " in meshmark("compare", str(path), str(path), env=env).stderr
