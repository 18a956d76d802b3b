"""The functions of the interface have the same selections, options, refusals and results as the commands."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

import meshmark as mm
from meshmark.machine.facts import host_id
from meshmark.store.export import to_jsonl
from meshmark.store.record import Record
from meshmark.store.store import Store
from meshmark.watch.recording import RecordingError
from support.cli import meshmark
from support.made_recordings import frames, header, record
from support.made_run import bandwidth, latency, repeated


def at(records: Sequence[Record], start: str, machine: str = "n042") -> list[Record]:
    return [replace(r, machine=machine, provenance={**r.provenance, "start": start}) for r in records]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yield an empty home folder."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    yield tmp_path
    if os.environ.get("MESHMARK_FAST"):
        return  # the fixture ends within a measurement, and the test is skipped
    assert not (tmp_path / "data" / "meshmark" / "store" / ".measuring").exists() or not any(
        (tmp_path / "data" / "meshmark" / "store" / ".measuring").iterdir()
    )


@pytest.fixture
def store(tmp_path: Path) -> Path:
    store_ = Store(tmp_path / "store")
    store_.add("first", "latency.r1", at(latency(), "2026-10-01T10:00:00Z"))
    store_.add("second", "bandwidth.r1", at(bandwidth(), "2026-11-01T10:00:00Z"))
    store_.add("third", "bandwidth.r1", at(bandwidth(), "2026-11-02T10:00:00Z", host_id()))
    return store_.folder


# ------------------------------------------------------------------ records


def test_records_are_selected_as_the_command_selects_them(store: Path) -> None:
    for words in (
        {"machine": "n042"},
        {"run": "second", "metric": "bandwidth_net"},
        {"instrument": "latency"},
        {"since": "2026-11"},
        {"until": "2026-11-01"},
        {"since": "2026-10-02", "until": "2026-11-01T10"},
    ):
        options = [word for k, v in words.items() for word in (f"--{k}", v)]
        exported = meshmark("store", "export", "--store", store, *options).stdout.splitlines()
        records = mm.records(store=store, **words)
        assert exported and sorted(records["value"]) == sorted(json.loads(line)["value"] for line in exported), words
    assert {*mm.records(store=store, machine="host")["run"]} == {"third"}


def test_the_store_of_the_user_may_not_be_there_yet_and_a_named_one_must_be(home: Path) -> None:
    assert len(mm.records()) == 0 and not (home / "data").exists()
    with pytest.raises(mm.UsageError, match=r"store: .*none: No such file or directory"):
        mm.records(store=home / "none")


def test_a_damaged_file_is_named(store: Path) -> None:
    path = next(store.rglob("machine=n042/second*.parquet"))
    path.write_bytes(path.read_bytes()[:100])
    records = mm.records(store=store)
    assert {*records["run"]} == {"first", "third"} and any(path.name in note for note in records.notes)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ({"since": "yesterday"}, "since: found 'yesterday', a date such as 2026-11-25 is required"),
        ({"until": "2026-1"}, "until: found '2026-1'"),
        ({"run": "firs"}, "run: found no run 'firs'"),
    ],
)
def test_wrong_selections_are_refused(store: Path, words: dict[str, str], says: str) -> None:
    with pytest.raises(mm.UsageError, match=says):
        mm.records(store=store, **words)


# ------------------------------------------------------------------ measuring


def test_a_measurement_is_stored_and_returned_with_its_flags_and_conditions(home: Path) -> None:
    run = mm.measure("gups", threads=1, table="256KiB", kernel=["plain"], budget="0.3s")
    assert {*run["kernel"]} == {"plain"} and {*run["machine"]} == {host_id()} and min(run["value"]) > 0
    records = mm.records(machine="host")
    assert records.pooled()["value"] == run["value"] and {*records["run"]} == {*run["run"]}
    second_run = mm.measure("gups", threads=1, table="256KiB", budget="0.3s", store=False, repetitions=1)
    assert len(second_run) and len(mm.records()) == len(records)


@pytest.mark.parametrize(
    ("instrument", "options", "says"),
    [
        ("gup", {}, "instrument: found 'gup'; allowed: "),
        ("gups", {"thread": 1}, "gups: found 'thread'; allowed: "),
        ("gups", {"table": "much"}, "gups: --table: found 'much'; allowed: a size"),
        ("gups", {"budget": "soon"}, "--budget: found 'soon'"),
        ("gups", {"threads": None}, "measure: threads: found None; allowed: a text, a number"),
        ("gups", {"machine": "me"}, "gups: found 'machine', which is set by Meshmark"),
        ("gups", {"repetitions": 101}, "repetitions: found 101; allowed: 0 to 100"),
        ("gups", {"settings": {"a.b": 1}}, "settings: found with a host"),
        ("gups", {"on": "gs1280-16", "repetitions": 2}, "repetitions: found with a model"),
        ("gups", {"on": "gs9999"}, "machine: found no machine 'gs9999'"),
        ("bandwidth", {"store": "strm"}, "--store: found 'strm'; allowed: ordinary, streaming, or the path"),
        ("bandwidth", {"on": "gs1280-16", "seed": "x"}, "bandwidth: --seed: found 'x'; allowed: an integer"),
        ("latency", {"on": "gs1280-16", "shield": "on"}, "latency: --shield: not supported by models"),
    ],
)
def test_what_the_command_refuses_is_refused(
    home: Path, instrument: str, options: dict[str, object], says: str
) -> None:
    with pytest.raises(mm.UsageError) as raised:
        mm.measure(instrument, **options)  # type: ignore[arg-type]
    assert says in str(raised.value)


def test_what_is_absent_is_an_error_with_the_reason(home: Path) -> None:
    with pytest.raises(mm.AbsentError, match="linpack: not available on models"):
        mm.measure("linpack", on="gs1280-16")


def test_kinds_of_stores_and_the_folder_of_the_store_are_told_apart(home: Path) -> None:
    model = mm.model("gs1280-16")
    run = model.measure("bandwidth", threads=1, store=["streaming", home / "mine"])
    assert {*run["store"]} == {"streaming"} and len(mm.records(store=home / "mine")) == len(run)
    assert {*model.measure("bandwidth", threads=1, store=False)["store"]} == {"ordinary"}
    assert not (home / "data").exists()


# ------------------------------------------------------------------ models


def test_a_model_gives_what_the_command_prints(home: Path) -> None:
    options = {"threads": [1, 16], "kernel": "triad"}
    run = mm.measure("bandwidth", on="gs1280-16", settings={"memory.access_ns": 40}, store=False, **options)
    words = [
        "--on",
        "gs1280-16",
        "--set",
        "memory.access_ns=40",
        "--threads",
        "1,16",
        "--kernel",
        "triad",
        "--no-store",
    ]
    lines = [json.loads(line) for line in meshmark("measure", "bandwidth", *words, "--json").stdout.splitlines()]
    assert run["value"] == [r["value"] for r in lines] and run["machine"] == [r["machine"] for r in lines]
    commands = [r["provenance"]["command"] for r in lines]
    assert [c.replace(" --no-store", "") for c in commands] == run["provenance.command"]
    assert any("values assumed" in note for note in run.notes)


def test_a_model_has_values_with_origins_and_figures() -> None:
    model = mm.model("gs1280-16", memory__access_ns=41)
    values = {row["key"]: row for row in model.values}
    assert model.title == "HP AlphaServer GS1280, 16 CPUs" and values["memory.access_ns"]["value"] == "41"
    assert {row["origin"] for row in values.values()} <= {"published", "derived", "fitted", "assumed", "unknown"}
    assert "load latency, local" in model.figures["figure"] and "gs1280-16" in repr(model) and "<img" in model.html()
    with pytest.raises(mm.UsageError):
        mm.model("gs1280-16", {"memory.acces_ns": 41})


def test_a_model_runs_workloads_and_sweeps(home: Path) -> None:
    model = mm.model("gs1280-4")
    run = model.measure("hot_spot", chains=[1, 2], threads=2, store=False)
    assert {*run["chains"]} == {1, 2} and {*run["instrument"]} == {"hot_spot"}
    with pytest.raises(mm.UsageError, match="hot_spot: found 'chain'; allowed: block, chains"):
        model.measure("hot_spot", chain=1)
    sweep = model.sweep({"memory.access_ns": [30, 60]}, "latency", store=False)
    assert sweep.columns.index("memory.access_ns") < sweep.columns.index("better")
    low, high = (min(sweep.where(**{"memory.access_ns": n})["value"]) for n in (30, 60))
    assert high - low == pytest.approx(30e-9, rel=0.1)
    with pytest.raises(mm.UsageError, match="--vary: found"):
        model.sweep({"memory.access_ns": "1..x"}, store=False)


@pytest.mark.parametrize("name", ["run", "machine", "instrument", "metric"])
def test_records_of_something_unknown_are_refused(store: Path, name: str) -> None:
    with pytest.raises(mm.UsageError, match=f"{name}: found no {name} 'nosuch'"):
        mm.records(store=store, **{name: "nosuch"})


def test_a_fit_needs_the_records_of_this_host(store: Path) -> None:
    with pytest.raises(mm.AbsentError, match="fit: the survey has no"):
        mm.fit(mm.records(store=store, run="third"))
    with pytest.raises(mm.UsageError, match="found no run"):
        mm.fit("none")
    with pytest.raises(mm.UsageError, match="fit: found a table without records"):
        mm.fit(mm.Table())


# ------------------------------------------------------------------ comparing


def files(folder: Path, factor: float) -> tuple[str, str]:
    for name, scale in (("a", 1.0), ("b", factor)):
        rows = []
        for r in repeated(bandwidth()):
            low, high = r.interval or (0.0, 0.0)
            changes = {"samples": tuple(s * scale for s in r.samples), "value": r.value * scale}
            rows.append((name, "s", replace(r, interval=(low * scale, high * scale), **changes)))  # type: ignore[arg-type]
        (folder / f"{name}.jsonl").write_text(to_jsonl(rows), encoding="utf-8")
    return str(folder / "a.jsonl"), str(folder / "b.jsonl")


def test_a_comparison_has_the_pairs_and_means_of_the_command(home: Path) -> None:
    a, b = files(home, 0.9)
    c = mm.compare(a, b)
    lines = [json.loads(line) for line in meshmark("compare", a, b, "--json").stdout.splitlines()]
    pairs, means = ([x for x in lines if x["type"] == kind] for kind in ("pair", "mean"))
    assert c.pairs["ratio"] == [p["ratio"] for p in pairs] and c.pairs["verdict"] == [p["verdict"] for p in pairs]
    assert c.pairs["a"] == [p["of_a"]["value"] for p in pairs] and c.pairs["low"] == [p["low"] for p in pairs]
    assert c.means["ratio"] == [m["ratio"] for m in means] and sum(c.counts.values()) == len(pairs)
    assert "slower" in c.summary and "a.jsonl" in c.a and c.page().startswith("<!doctype html>")
    assert c.html().count("<tr>") > len(pairs) and c.chart("bandwidth").to_dict()["datasets"]


def test_the_margin_is_a_share_or_a_text_in_percent(home: Path) -> None:
    a, b = files(home, 0.97)
    assert {*mm.compare(a, b, margin="50%").counts} == {*mm.compare(a, b, margin=0.5).counts} == {"equal"}
    for value in ("5", "x%", "-1%", -1, 11.0, float("nan")):
        with pytest.raises(mm.UsageError, match="margin: found"):
            mm.compare(a, b, margin=value)
    with pytest.raises(mm.UsageError, match="per: found 'watt'; allowed: thread, clock"):
        mm.compare(a, b, per="watt")


def test_models_compare_as_tables_with_what_differs_beside(home: Path) -> None:
    a, b = (mm.model(name).measure("bandwidth", store=False) for name in ("gs1280-16", "gs1280-8"))
    pairs = mm.compare(a, b).pairs
    assert {*pairs["threads_b"]} == {1, 8} and {*pairs["threads"]} == {1, 16} and "store_b" not in pairs.columns
    with pytest.raises(mm.UsageError, match="compare: a: found results of 2 machines"):
        mm.compare(a + b, b)
    with pytest.raises(mm.UsageError, match="compare: b: found a table without records"):
        mm.compare(a, mm.Table())
    with pytest.raises(mm.UsageError, match="found no file, run or machine 'nobody'"):
        mm.compare(a, "nobody")


# ------------------------------------------------------------------ charts


def test_charts_are_those_of_the_report() -> None:
    t = mm.Table(None, [("", "", r) for r in latency()])
    chart = mm.chart(t)
    spec = chart.to_dict()
    assert type(chart).__module__.startswith("altair") and spec["width"] == 720 and spec["background"] == "white"
    values = {row["value"] for rows in spec["datasets"].values() for row in rows if "value" in row}
    assert values and values <= {*t["value"]}
    assert mm.chart(t, "latency").to_dict()["datasets"] == spec["datasets"] == t.chart().to_dict()["datasets"]
    with pytest.raises(mm.UsageError, match="chart: found 'latenc'; allowed: latency, "):
        mm.chart(t, "latenc")
    with pytest.raises(mm.AbsentError, match="do not give the chart bandwidth; they give latency"):
        mm.chart(t, "bandwidth")
    with pytest.raises(mm.UsageError, match="chart: what: found a value of type list"):
        mm.chart([1])  # type: ignore[arg-type]


# ------------------------------------------------------------------ recordings


def test_a_recording_is_a_long_or_a_wide_table_whose_unknown_values_are_null(tmp_path: Path) -> None:
    r = mm.recording(record(tmp_path / "r", header(2), frames([[0.25, None], [0.5, 1.0]])))
    long = r.table(metric="cpu.busy")
    assert (
        long.columns == ["t_s", "metric", "component", "value", "unit"] and long["component"] == ["CPU 0", "CPU 1"] * 2
    )
    assert long["value"] == [0.25, None, 0.5, 1.0] and any("no counters here" in note for note in long.notes)
    wide = r.table(wide=True)
    assert wide["cpu.busy:CPU 1"] == [None, 1.0] and len(wide) == 2 and len(wide.columns) == 2 + 4
    assert [f["values"]["cpu.busy"] for f in r] == [[0.25, None], [0.5, 1.0]] and r.absent["metric"] == ["memory"]
    assert r.chart().to_dict()["vconcat"] and "cpu.busy" in r.html() and r.metrics["full_scale"] == ["time", "time"]
    with pytest.raises(mm.UsageError, match=r"metric: found 'cpu'; allowed: cpu.busy, cpu.user"):
        r.table(metric="cpu")
    r.save(tmp_path / "again")
    assert mm.recording(tmp_path / "again").table()["value"] == r.table()["value"]
    with pytest.raises(RecordingError, match="the file exists"):
        r.save(tmp_path / "again")


def test_components_of_the_same_name_are_told_apart(tmp_path: Path) -> None:
    twice = header(2)
    twice = replace(twice, components={**twice.components, "cpu": ({"name": "CPU"}, {"name": "CPU"})})
    r = mm.recording(record(tmp_path / "r", twice, frames([[0.25, 0.5]])))
    assert r.table(wide=True)["cpu.busy:CPU (1)"] == [0.5]


def test_a_file_that_is_no_recording_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("no")
    with pytest.raises(mm.MeshmarkError, match="not a recording"):
        mm.recording(tmp_path / "x")


def test_this_machine_is_watched_for_a_time_or_until_told_to_stop() -> None:
    frames = mm.watch(duration="0.3s", rate=20, canary=False)
    busy = frames.table(metric="cpu.busy")
    assert len(frames.metrics) and {*busy["component"]} >= {"CPU 0"} and len(list(frames)) == len({*busy["t_s"]}) > 1
    with mm.watch(duration=600, rate=20, canary=False) as live:
        first = next(iter(live))
    assert first["values"]["cpu.busy"] and len(list(live)) == 1
    for arguments, expected in (
        ({"duration": "long"}, "duration: found 'long'"),
        ({"duration": 0}, "duration: found '0'; allowed: times from 0.01 s"),
        ({"rate": 0}, "rate: found 0; allowed: 0.01 to 100 Hz"),
        ({"full_scale": "wire"}, "full_scale: found 'wire'; allowed: sustained, theoretical"),
    ):
        with pytest.raises(mm.UsageError, match=expected):
            mm.watch(**arguments)  # type: ignore[arg-type]
