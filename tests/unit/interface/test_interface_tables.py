"""Tables: records become typed columns in a fixed order, and can be selected, saved and displayed."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import meshmark as mm
from meshmark.store.record import Record
from meshmark.store.store import Store
from support.made_run import bandwidth, latency, record


def table(records: Sequence[Record], run: str = "", notes: Sequence[str] = ()) -> mm.Table:
    return mm.Table(None, [(run, "", r) for r in records], notes)


def test_value_interval_and_flags_come_first_then_what_varies_and_at_the_end_what_does_not() -> None:
    records = [
        record("bandwidth", "bandwidth_net", 1e9 * n, ["disturbed"] if n == 2 else [], threads=n, pages="thp")
        for n in (1, 2)
    ]
    t = table(records)
    assert t.columns[:9] == ["value", "low", "high", "flags", "unit", "metric", "instrument", "machine", "threads"]
    assert t.columns.index("samples") < t.columns.index("pages") < t.columns.index("provenance.command")
    assert t["value"] == [r.value for r in records] and t["flags"] == [[], ["disturbed"]]
    assert [(low, high) for low, high in zip(t["low"], t["high"], strict=True)] == [r.bounds for r in records]
    assert t["samples"] == [list(r.samples) for r in records] and t.records == records


def test_columns_have_the_type_of_their_values_and_units() -> None:
    records = [
        record("latency", "load_latency", 1e-9, footprint_bytes=2**40, read_share=1, memory_node=0, name="a", ok=True),
        record("latency", "load_latency", 2e-9, footprint_bytes=64, read_share=0.5, memory_node="local", ok=None),
    ]
    schema = table(records).arrow.schema
    types = {name: schema.field(name).type for name in ("value", "footprint_bytes", "read_share", "memory_node", "ok")}
    assert types == {
        "value": pa.float64(),
        "footprint_bytes": pa.int64(),
        "read_share": pa.float64(),
        "memory_node": pa.string(),
        "ok": pa.bool_(),
    }
    units = [(schema.field(n).metadata or {}).get(b"unit") for n in ("value", "low", "footprint_bytes", "name")]
    assert units == [b"s", b"s", b"B", None] and b"mixed" in schema.field("memory_node").metadata
    assert table(records)["name"] == ["a", None] and table(records)["memory_node"] == ["0", "local"]


def test_huge_integers_and_conditions_with_names_of_columns_are_kept() -> None:
    t = table(
        [replace(record("latency", "load_latency", 1e-9), conditions={"n": 2**70, "unit": "furlong", "value": 3})]
    )
    assert t["n"] == [str(2**70)] and t["condition.unit"] == ["furlong"] and t["condition.value"] == [3]
    assert t["unit"] == ["s"]


def test_the_unit_of_a_column_with_several_units_is_in_its_rows() -> None:
    t = table([record("latency", "load_latency", 1e-9), record("bandwidth", "bandwidth_net", 1e9)])
    assert t["unit"] == ["s", "B/s"] and b"unit" not in (t.arrow.schema.field("value").metadata or {})


def test_the_interval_of_repetitions_is_that_of_the_runs(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    for i in (1, 2, 3):
        store.add("run", f"latency.r{i}", [record("latency", "load_latency", 1e-9 * (1 + i / 100), pattern="random")])
    records = mm.records(store=tmp_path / "store")
    assert len(records) == 3 and {*records["step"]} == {"latency.r1", "latency.r2", "latency.r3"}
    row = records.pooled()
    assert len(row) == 1 and (row["low"], row["high"]) == (row["run_low"], row["run_high"]) and row["runs"] == [3]


def test_rows_are_selected_by_the_values_of_columns() -> None:
    t = table(bandwidth(2), notes=["a note"])
    triads = t.where(kernel="triad", threads=[1, 2])
    assert 0 < len(triads) < len(t) and {*triads["kernel"]} == {"triad"} and triads.notes == ("a note",)
    assert len(t.where(kernel="no such kernel")) == 0
    with pytest.raises(mm.UsageError, match="found no column 'kernl'; allowed: value, low") as raised:
        t.where(kernl="triad")
    assert raised.value.hint == "did you mean kernel?"
    with pytest.raises(mm.UsageError, match="found no column 'x'"):
        t["x"]
    mixed = table([record("latency", "load_latency", 1e-9, memory_node=n) for n in (0, "local")])
    assert len(mixed.where(memory_node=0)) == len(mixed.where(memory_node="local")) == 1


def test_rows_are_objects_and_tables_of_records_add_up() -> None:
    t = table(latency())
    assert [row["value"] for row in t] == t["value"]
    joined = t + table(bandwidth())
    assert len(joined) == len(t) + len(bandwidth()) and joined.records[: len(t)] == t.records
    with pytest.raises(mm.UsageError, match="tables without records"):
        t + mm.Table.of_rows([{"a": 1}])


def test_an_empty_table_has_the_columns_of_records() -> None:
    t = mm.Table()
    assert len(t) == 0 and t.columns[0] == "value" and "no rows" in t.html() and list(t) == []


def test_frames_need_their_package(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("pandas", "polars"):
        monkeypatch.setitem(sys.modules, name, None)
        with pytest.raises(mm.AbsentError, match=rf"{name}.* is not installed: pip install 'meshmark\[notebook\]'"):
            getattr(table(latency()), f"to_{name}")()
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(mm.AbsentError, match=r"pyarrow is not installed: pip install 'meshmark\[arrow\]'"):
        _ = table(latency()).arrow
    monkeypatch.setitem(sys.modules, "polars", SimpleNamespace(from_arrow=len))  # type: ignore[arg-type]
    assert table(latency()).to_polars() == len(latency())


def test_libraries_that_read_arrow_read_a_table() -> None:
    t = table(latency())
    assert duckdb.sql("SELECT count(*), max(value) FROM t").fetchall() == [(len(t), max(t["value"]))]
    assert t.arrow.num_rows == len(t)


def test_what_is_printed_is_what_the_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    from meshmark.views.terminal.tables import print_tables

    print_tables(latency())
    output = capsys.readouterr().out
    assert str(table(latency(), notes=["note: x"])) == f"{output.rstrip()}\nnote: x"
    assert repr(table(latency()[:1])).startswith("<meshmark.Table: 1 record, ")


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv"])
def test_saved_records_compare_as_equal(tmp_path: Path, name: str) -> None:
    t = table(bandwidth(), "run")
    t.save(tmp_path / name)
    c = mm.compare(t, str(tmp_path / name), store=tmp_path / "store")
    assert {*c.counts} == {"equal"} and c.counts["equal"] == len(c.pairs)


def test_records_are_saved_in_known_forms_only(tmp_path: Path) -> None:
    with pytest.raises(mm.UsageError, match=r"found '.*a.xls'; allowed: names that end with .jsonl or .csv"):
        table(latency()).save(tmp_path / "a.xls")
    with pytest.raises(mm.UsageError, match="save: found a table without records"):
        mm.Table.of_rows([{"a": 1}]).save(tmp_path / "a.csv")


def shown(t: mm.Table) -> str:
    return t.html()


def test_a_notebook_shows_value_interval_flags_and_what_varies() -> None:
    page = shown(
        table([record("latency", "load_latency", 1e-7, ["stolen"], cpu=n, pages="thp") for n in (0, 1)], "", ["n"])
    )
    heads = [h.rpartition(">")[2] for h in page.split("</th>")[:-1]]
    assert heads == ["median", "95 % interval", "flags", "cpu", "best", "spread", "n"]
    assert "made-up: latency" in page and "pages thp" in page and 'class="flag"' in page and ">n</p>" in page


def test_a_notebook_tells_runs_apart_and_counts_what_it_does_not_show() -> None:
    runs: list[Any] = [(run, "", r) for run in ("one", "two") for r in latency()]
    page = shown(mm.Table(None, runs))
    assert "<th>run</th>" in page and f"40 of {len(runs)} rows are shown" in page


def test_a_notebook_shows_texts_as_texts() -> None:
    evil = "<script>alert(1)</script>"
    odd = replace(record("latency", "load_latency", 1e-9, name=evil), machine=evil)
    assert "<script" not in shown(table([odd], "", [evil])) and "<script" not in shown(mm.Table.of_rows([{evil: evil}]))


def test_style_stays_within_results() -> None:
    """A rule for `td` or `text` would change the whole notebook."""
    rules = shown(table(latency())).partition("<style>")[2].partition("</style>")[0]
    selectors = [s.strip() for line in rules.splitlines() if "{" in line for s in line.partition("{")[0].split(",")]
    assert selectors and all(s.startswith(".meshmark") for s in selectors)
