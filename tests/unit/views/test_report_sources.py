"""Reports of any possible records: each instrument from each source, complete, partial and unusual.

A stored run may come from a model, one measurement, an import or another version, and lack conditions that the charts
of a survey need. There is always a complete page, and it states nothing beyond the records.
"""

from __future__ import annotations

import functools
import html
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
from altair.utils import schemapi
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from meshmark.cli.serve import Runs
from meshmark.describe import descriptions
from meshmark.load.compare import compare, read_side
from meshmark.load.scenario.journal import read_run
from meshmark.load.scenario.records import records_of
from meshmark.load.studies.outcome import RECORDS
from meshmark.machine.sources import from_synthetic
from meshmark.model.instruments import POINTS, measure
from meshmark.model.machine import find_machine
from meshmark.store.record import OBSERVED, Record, RecordError, Scalar, median, median_interval, value_problem
from meshmark.store.run import RunInfo
from meshmark.store.store import Store
from meshmark.views.content.card import machine_card
from meshmark.views.content.selection import natural, number, selected, text_of
from meshmark.views.gantt import gantt_html
from meshmark.views.pages.build import report_page, write_report
from meshmark.views.pages.load_compare import compare_html
from meshmark.views.pages.studies import STUDIES, study_page
from meshmark.views.terminal.gantt import gantt_text
from meshmark.views.terminal.load_compare import print_load_comparison
from meshmark.views.terminal.tables import print_tables
from support import made_run
from support.made_load import made_load, made_study

# The instruments of this host are listed by name: the collected tests must not depend on what is built.
INSTRUMENTS: Final = (
    "bandwidth",
    "clock",
    "dgemm",
    "gups",
    "io",
    "kernels",
    "latency",
    "lines",
    "linpack",
    "loaded",
    "peak",
    "allreduce",
    "alltoall",
    "anatomy",
    "barrier",
    "bcast",
    "defects",
    "exchange",
    "gyro",
    "halo",
    "npb",
    "pingpong",
    "pop",
    "reduce",
    "swap",
    "swim",
    "fft",
    "llm",
    "mod2d",
    "mod2e",
    "pstswm",
    "prefetch",
    "loops",
    "lj",
    "swim_threads",
    "app",
)
SMALL: Final[Mapping[str, Mapping[str, str]]] = {
    "latency": {"footprint": "4KiB..64KiB"},
    "lines": {"cpus": "0"},
    "loaded": {"chains": "1,2", "threads": "1"},
    "gups": {"threads": "1"},
    "bandwidth": {"threads": "1"},
    "io": {"jobs": "1"},
    "peak": {},
}
REST: Final = ("paper", "recording", "tool")  # sources of records besides hosts and models
BARE: Final = RunInfo(run_id="r", machine="m", started="", elapsed_s=0, spec_name="", command="", version="")
HOST: Final = made_run.run_info({"topology": from_synthetic("pack:2 [numa] core:2 pu:1").to_dict()})


@pytest.fixture
def unchecked() -> Iterator[None]:
    """Turn off Altair's schema checks of each part of a chart, which take most of the time; one per chart is enough."""
    with schemapi.debug_mode(False):
        yield


@functools.cache
def made() -> dict[str, tuple[Record, ...]]:
    by_instrument: dict[str, list[Record]] = {}
    for r in [*made_run.everything(), *made_run.swap(4, node=2), *made_run.pop(count=4)]:
        by_instrument.setdefault(r.instrument, []).append(r)
    return {name: tuple(records) for name, records in by_instrument.items()}


def described(name: str) -> list[Record]:
    """Return two records of every metric of an instrument, with the conditions that distinguish its points."""
    d = descriptions()[name]
    common = made_run.ranks() if d.ranks else {}
    records = []
    for metric in d.metrics:
        for i in range(2):
            conditions: dict[str, Any] = {}
            for key in d.identity:
                p = next((p for p in d.parameters if p.name == key), None)
                conditions[key] = p.choices[i % len(p.choices)] if p and p.choices else 8 << i
            samples = tuple((1 + i) * (1 + k / 100) for k in range(7))
            records.append(
                Record.from_samples(
                    metric,
                    samples,
                    source="host",
                    machine="made-up",
                    instrument=name,
                    conditions={**common, **conditions},
                    provenance={"command": f"{name} --seed {i}"},
                )
            )
    return records


def some(records: Sequence[Record], most: int) -> list[Record]:
    """Return at most about `most` records of each metric, evenly spaced."""
    selection = []
    for metric in dict.fromkeys(r.metric for r in records):
        metric_records = [r for r in records if r.metric == metric]
        selection += metric_records[:: max(1, math.ceil(len(metric_records) / most))]
    return selection


def altered(record: Record, key: str, value: Scalar) -> Record:
    return replace(record, conditions={**record.conditions, key: value})


def all_altered(record: Record, keys: Iterable[str], value: Scalar) -> Record:
    return replace(record, conditions={**record.conditions, **dict.fromkeys(keys, value)})


def without(record: Record, key: str) -> Record:
    return replace(record, conditions={k: v for k, v in record.conditions.items() if k != key})


def sampled(record: Record, samples: Sequence[float]) -> Record:
    return replace(record, samples=tuple(samples), value=median(samples), interval=median_interval(samples))


def refused(constant: str) -> None:
    raise AssertionError(f"{constant} in the page's data is no JSON")


def render(records: Sequence[Record], capsys: pytest.CaptureFixture[str] | None = None) -> str:
    """Return the page of these records and print their tables; the page must be complete and must not show None."""
    page = report_page(records, [], BARE)
    specs = re.findall(r'<script id="specs" type="application/json">(.*?)</script>', page, re.S)
    assert len(specs) == 1
    chart_specs = json.loads(specs[0], parse_constant=refused)
    chart_ids = re.findall(r'id="chart-(\w+)"', page)
    assert sorted(chart_ids) == sorted(chart_specs)
    text = re.sub(r"<script.*?</script>", "", page, flags=re.S)
    assert not re.search(r"<!--(?!\s)|\bnan\b|\bNone\b", text)
    assert '"None' not in specs[0] and "None," not in specs[0] and ", None" not in specs[0]
    print_tables(records)
    if capsys is not None:
        assert capsys.readouterr().out or not records
    json.dumps(machine_card(records, [], BARE), allow_nan=False, default=str)
    return page


# ---------------------------------------------------------------- every instrument x every source


def test_every_instrument_that_can_be_measured_is_tested_here() -> None:
    assert {*descriptions()} <= {*INSTRUMENTS} and {*POINTS} == {*SMALL}
    assert {*INSTRUMENTS} - {*made()} <= {"alltoall", "exchange", "reduce"}  # these are of the same kind as `allreduce`


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("source", ["host", "model", *(pytest.param(s, marks=pytest.mark.slow) for s in REST)])
@pytest.mark.parametrize("name", INSTRUMENTS)
def test_records_of_every_source_render(name: str, source: Any, capsys: pytest.CaptureFixture[str]) -> None:
    records = [replace(r, source=source) for r in some(made().get(name, ()), 6)]
    if name in descriptions():
        records += [replace(r, source=source) for r in described(name)]
    page = render(records, capsys)
    assert f"{len(records)} results from 1 instrument." in page


@pytest.mark.parametrize("name", sorted(POINTS))
def test_what_a_model_answers_is_drawn(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    records = measure(name, find_machine("gs1280-4"), SMALL[name], command=f"{name} --on gs1280-4")
    page = render(records, capsys)
    assert f"meshmark measure {name} --on gs1280-4" in page and "A simulated machine." not in page
    assert '<img class="mesh" src="data:image/svg+xml;base64,' in page and "16 assumed" in page
    # A single kernel has no chart, only a table.
    assert (f'id="chart-{name}"' in page) == (name not in {"peak", "bandwidth"}) and "as a table" in page


def test_a_model_that_does_not_say_which_is_not_repeated_on_this_host() -> None:
    (record,) = measure("peak", find_machine("gs1280-4"), {"threads": "1"}, command="peak")
    assert "Commands to repeat" not in render([record])


@pytest.mark.parametrize("name", ["load", "run", "hot_spot"])
def test_an_instrument_without_a_section_has_its_table(name: str, tmp_path: Path) -> None:
    run = read_run(made_load(tmp_path / "run", {"p": [1.0, 1.1]}))
    records = [replace(r, instrument=name) for r in records_of(run)[0]]
    assert re.search(rf"<h2>{name}</h2>\s*<details><summary>{len(records)} results as a table", render(records))


def test_records_of_several_machines_and_sources_render_together() -> None:
    model_records = [
        replace(r, machine="other", source="model") for name in INSTRUMENTS for r in made().get(name, ())[:3]
    ]
    render([*model_records, *(r for name in INSTRUMENTS for r in some(made().get(name, ()), 4))])


# ---------------------------------------------------------------- what records lack


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("name", INSTRUMENTS)
def test_every_result_alone_renders(name: str) -> None:
    for metric in dict.fromkeys(r.metric for r in made().get(name, ())):
        metric_records = [r for r in made()[name] if r.metric == metric]
        render([metric_records[0]])
        render([replace(metric_records[-1], conditions={}, provenance={})])


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    "name",
    [n if n in {"latency", "gups", "halo", "run"} else pytest.param(n, marks=pytest.mark.slow) for n in INSTRUMENTS],
)
def test_without_any_one_condition_there_is_a_page(name: str) -> None:
    records = some(made().get(name, ()), 2)
    # Few charts use the conditions that all instruments of ranks share; the slow test covers them for every instrument.
    known = {*made_run.ranks()} if name not in {"halo", "pop", "swap"} else OBSERVED - {"rank_cpus"}
    for key in dict.fromkeys(k for r in records for k in r.conditions if k not in known):
        render([without(r, key) for r in records])
        render([without(r, key) if i % 2 else r for i, r in enumerate(records)])


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    "odd",
    [
        None,
        True,
        "text",
        0,
        10**400,
        math.nan,
        *(pytest.param(v, marks=pytest.mark.slow) for v in ("7", -1, 0.5, 1e30)),
    ],
    ids=lambda v: str(v)[:9],
)
def test_conditions_of_an_odd_kind_have_a_page(odd: Scalar) -> None:
    for name in INSTRUMENTS:
        records = some(made().get(name, ()), 2)
        keys = dict.fromkeys(k for r in records for k in r.conditions)
        render([all_altered(r, keys, odd) for r in records])


SAMPLES: Final[Mapping[str, Callable[[Record], list[float]]]] = {
    "zero": lambda r: [0.0] * 9,
    "one sample": lambda r: [r.value],
    "some zero": lambda r: [0.0, *r.samples],
    "all alike": lambda r: [r.value] * 9,
    "tiny": lambda r: [1e-300],
    "huge": lambda r: [1e300],
    "far apart": lambda r: [r.value * 1e-9, r.value, r.value * 1e9] * 3,
}
QUICK: Final = ("zero", "huge")


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("name", INSTRUMENTS)
@pytest.mark.parametrize("odd", [*QUICK, *(pytest.param(k, marks=pytest.mark.slow) for k in SAMPLES if k not in QUICK)])
def test_odd_values_have_a_page(name: str, odd: str) -> None:
    records = some(made().get(name, ()), 2)
    render([sampled(r, SAMPLES[odd](r)) for r in records])


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("name", INSTRUMENTS)
def test_negative_values_have_a_page_or_cannot_be_made(name: str) -> None:
    records = some(made().get(name, ()), 2)
    possible_records = [r for r in records if not value_problem(r.unit, r.better, -abs(r.value))]
    render([sampled(r, [-r.value]) for r in possible_records])
    for record in records:
        if record.value > 0 and record not in possible_records:
            with pytest.raises(RecordError):
                sampled(record, [-record.value])


def test_what_a_chart_leaves_out_is_said() -> None:
    records = list(made()["latency"])
    page = render([*records, *(without(r, "footprint_bytes") for r in records[:3])])
    assert "Not shown in the chart: 3 results lack footprint bytes." in page
    page = render([without(r, "processes") for r in records if r.metric == "load_latency"])
    assert 'id="chart-latency"' not in page
    assert re.search(r"absent: \d+ results lack processes<", page) and "results as a table" in page


def test_only_what_is_known_of_a_run_is_said() -> None:
    page = render([made()["peak"][0]])
    for unknown in ("Took", "Started", "Version", "Processor", "steps</summary>", "all CPUs", "could not be read"):
        assert unknown not in page.split("<script")[0], unknown
    assert "no information about its host" in page
    peak = [r for r in made()["peak"] if r.conditions["threads"] == 2]
    four = report_page(peak, [], HOST)
    assert "Peak fp64, 2 threads" in four and "all CPUs" not in four.split("<script")[0]
    all_cpus_page = report_page([altered(r, "threads", 4) for r in peak], [], HOST)
    assert "Peak fp64, all CPUs" in all_cpus_page
    single_thread = [r for r in made()["peak"] if r.conditions["threads"] == 1]
    card = machine_card([*single_thread, *(r for r in made()["bandwidth"] if r.conditions["threads"] == 2)], [], BARE)
    assert card["figures"]["balance"].keys() == {
        "absent"
    }  # the rate of one thread cannot be divided by the rates of all threads


# ---------------------------------------------------------------- the path of `meshmark serve`


@pytest.mark.usefixtures("unchecked")
def test_every_run_of_a_store_has_a_report(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    machine = find_machine("gs1280-4")
    for name in POINTS:
        store.add(f"model-{name}", "x", measure(name, machine, SMALL[name], command=name))
    for name, records in made().items():
        store.add(f"one-{name}", "x", records[:1])
    bare_records = [replace(r, conditions={}, provenance={}) for records in made().values() for r in records[:2]]
    store.add("bare", "x", bare_records)
    runs = Runs(tmp_path / "store", tmp_path / "none")
    names = [row.name for row in runs.rows()]
    assert len(names) == len(POINTS) + len(made()) + 1
    for name in names:
        page = runs.report(name).decode()
        assert page.startswith("<!doctype html>") and html.escape(name) in page


def test_charts_of_a_model_are_files_too(tmp_path: Path) -> None:
    machine = find_machine("gs1280-4")
    records = [r for name in ("loaded", "gups", "io") for r in measure(name, machine, SMALL[name], command=name)]
    report = write_report(records, [], BARE, tmp_path)
    assert {p.name for p in report.charts} == {f"{n}.{s}" for n in ("loaded", "gups", "io") for s in ("png", "svg")}


# ---------------------------------------------------------------- loads and studies


def written(folder: Path, records: Sequence[Record]) -> Path:
    lines = [json.dumps({"type": "result", "schema": 1, **r.to_json()}) + "\n" for r in records]
    (folder / RECORDS).write_text("".join(lines))
    return folder


def study_records(folder: Path, study: str) -> list[Record]:
    made_study(folder, study)
    lines = [json.loads(line) for line in (folder / RECORDS).read_text().splitlines()]
    records = [Record.from_json(line) for line in lines if line["type"] == "result"]
    extra = [
        replace(
            records[0],
            metric=m,
            conditions={**records[0].conditions, "programs": 3, "wait_policy": "active", "company": "together"},
        )
        for m in ("user_sum", "system_sum", "idle", "waiting_sum", "serialisation")
    ]
    conditions = {"programs": 3, "wait_policy": "active", "domains": 2, "write_fraction": 0.3}
    return [*(replace(r, conditions={**conditions, **r.conditions}) for r in records), *extra]


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("study", sorted(STUDIES))
def test_a_study_that_lacks_conditions_has_a_page(tmp_path: Path, study: str) -> None:
    folder = tmp_path / "s"
    records = study_records(folder, study)
    assert f'id="chart-{study}"' in study_page(written(folder, records))
    keys = list(dict.fromkeys(k for r in records for k in r.conditions))
    cases = [[without(r, key) for r in records] for key in keys]
    others = [k for k in keys if k != "study"]
    cases += [[all_altered(r, others, value) for r in records] for value in ("text", None, True, math.nan, "<b>")]
    cases += [[sampled(r, [0.0]) for r in records], records[-1:], [altered(r, "study", None) for r in records]]
    for case in cases:
        text = re.sub(r"<script.*?</script>", "", study_page(written(folder, case)), flags=re.S)
        assert not re.search(r"\bnan\b|\bNone\b|CPUs\s*(·|<)|<b>", text)


@pytest.mark.parametrize(
    "shape",
    [{}, {"waiting": 1.0}, {"cut": True}, {"died": ["p"]}, {"moved": 1e9}, {"threads": 3, "start_s": [0.5]}],
    ids=["plain", "only waiting", "cut", "died", "moved", "later"],
)
@pytest.mark.parametrize("lasted", [[1.0], [0.1, 1.5], [0.0]], ids=["one", "two", "no time"])
def test_a_load_run_is_drawn_however_it_went(tmp_path: Path, shape: dict[str, Any], lasted: list[float]) -> None:
    run = read_run(made_load(tmp_path / "run", {"p": lasted}, **shape))
    assert "<svg" in gantt_html(run) and "p" in gantt_text(run, 60)
    render(records_of(run)[0])
    if not shape.get("cut") and any(lasted):
        sides = [read_side(tmp_path / "run", name) for name in ("a", "b")]
        comparison = compare(sides[0], sides[1])
        print_load_comparison(comparison)
        assert "<html" in compare_html(comparison)


# ---------------------------------------------------------------- the selection itself


def test_a_condition_is_a_number_only_where_it_is_one() -> None:
    record = made_run.record(
        "peak", "flop_rate", 1.0, a=3, b=2.5, c=True, d="3", e=None, f=math.nan, g=math.inf, h=10**400
    )
    assert [number(record, k) for k in "abcdefghi"] == [3.0, 2.5, *[None] * 7]
    assert [text_of(record, k) for k in "aei"] == ["3", "not recorded", "not recorded"]
    assert selected([record], "peak", "flop_rate", numbers=("a",), positive=("b",), texts=("d",)) == [record]
    assert not selected([record], "peak", "flop_rate", numbers=("c",)) and not selected(
        [record], (), "flop_rate", texts=("e",)
    )


def test_names_are_sorted_by_their_numbers_whatever_digits_they_have() -> None:
    assert sorted(["10 a", "2 a", "1 b"], key=natural) == ["1 b", "2 a", "10 a"]
    assert sorted(["x²", "x" + "9" * 5000, "x3"], key=natural)[0] in {"x²", "x3"}


def test_brackets_of_a_condition_reach_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    records = [altered(made()["gups"][0], "machine_file", t) for t in ("[/x]", "pack:2 [numa] core:4")]
    print_tables(records)
    output = capsys.readouterr().out
    assert "[/x]" in output and "[numa]" in output
    print_tables([])


# ---------------------------------------------------------------- slow variants


@pytest.mark.usefixtures("unchecked")
@pytest.mark.slow
@pytest.mark.parametrize("name", INSTRUMENTS)
def test_every_condition_of_every_odd_kind_has_a_page(name: str) -> None:
    """The value is in all records or in every second record: each key and each kind occurs both ways."""
    records = some(made().get(name, ()), 6)
    odds = (None, False, True, "", "text", "-3", 0, -1, 1 << 70, math.nan, -math.inf)
    for place, key in enumerate(dict.fromkeys(k for r in records for k in r.conditions)):
        render([without(r, key) if i % 2 else r for i, r in enumerate(records)])
        for kind, value in enumerate(odds):
            step = 1 + (place + kind) % 2
            render([altered(r, key, value) if i % step == 0 else r for i, r in enumerate(records)])


ODD: Final = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=12), st.sampled_from(["MPICH 4", "4x1", "1"])
)


def keys_of(records: Sequence[Record]) -> list[str]:
    return sorted({k for r in records for k in r.conditions})


@pytest.mark.usefixtures("unchecked")
@pytest.mark.slow
@settings(max_examples=1500, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_whatever_records_are_in_a_store_there_is_a_page(data: st.DataObject) -> None:
    names = data.draw(st.lists(st.sampled_from(sorted(made())), min_size=1, max_size=3))
    records: list[Record] = []
    for name in names:
        chosen_records = data.draw(st.lists(st.sampled_from(made()[name]), min_size=1, max_size=8))
        keys = st.sampled_from(keys_of(made()[name]))
        for r in chosen_records:
            conditions = {**r.conditions, **data.draw(st.dictionaries(keys, ODD, max_size=3))}
            for key in data.draw(st.lists(keys, max_size=3)):
                conditions.pop(key, None)
            lowest = 0.0 if value_problem(r.unit, r.better, -1.0) else -1e20
            values = st.floats(min_value=lowest, max_value=1e20)
            samples = data.draw(st.one_of(st.just(list(r.samples)), st.lists(values, min_size=1, max_size=8)))
            flags = data.draw(st.sampled_from([frozenset[str](), frozenset({"disturbed"})]))
            records.append(replace(sampled(r, samples), conditions=conditions, flags=flags))
    report_page(records, [], data.draw(st.sampled_from([BARE, HOST])))
    print_tables(records)


def pages() -> Iterator[tuple[str, list[Record]]]:
    yield from ((name, list(records)) for name, records in made().items())


@pytest.mark.slow
def test_what_is_drawn_of_parts_compiles(tmp_path: Path) -> None:
    for name, records in pages():
        for key in ("threads", "pages", "library", "ranks", "mode"):
            write_report([without(r, key) for r in some(records, 16)], [], BARE, tmp_path / name / key)
