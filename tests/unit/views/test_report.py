"""The report: every section, absent results with reasons, flags in every view, nothing external, no partial page."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest

from meshmark.errors import MeshmarkError
from meshmark.machine.capture import open_machine
from meshmark.measure.repetitions import pool
from meshmark.store.record import Record, median, median_interval
from meshmark.views.charts import charts, drawing
from meshmark.views.content.card import figures, machine_card
from meshmark.views.content.selection import modes_of
from meshmark.views.pages.build import SECTIONS, write_report
from meshmark.views.terminal.records import print_records
from meshmark.views.topology_svg import topology_svg
from support import made_run
from support.made_profile import recorded
from support.made_rating import rated
from support.paths import MACHINES


def specs(page: str) -> dict[str, Any]:
    match = re.search(r'<script id="specs" type="application/json">(.*?)</script>', page, re.S)
    assert match
    parsed: dict[str, Any] = json.loads(match[1])
    return parsed


def rows_of(spec: dict[str, Any]) -> list[dict[str, Any]]:
    """Return all rows of the specification of a chart."""
    return [r for rows in spec["datasets"].values() for r in rows]


def test_every_section_is_drawn_and_the_page_needs_nothing_from_outside(tmp_path: Path) -> None:
    records = [*made_run.everything(), made_run.experiment(1.0, 1.1, 1.2), rated("N=1", "A", 1.0, 1.1)]
    records += recorded("stream")
    for program in (made_run.pop, made_run.gyro, made_run.swim, made_run.anatomy):
        records += program(count=4)  # phases need several numbers of ranks
    paths = write_report(records, made_run.absences(), made_run.run_info(), tmp_path)
    page = paths.html.read_text()
    chart_specs = specs(page)
    assert set(chart_specs) == {s.name for s in SECTIONS}
    for section in SECTIONS:
        assert f'id="chart-{section.name}"' in page
        for suffix in ("png", "svg"):
            assert (tmp_path / "charts" / f"{section.name}.{suffix}").stat().st_size > 1000
    assert (tmp_path / "charts" / "latency.png").read_bytes().startswith(b"\x89PNG")
    references = re.findall(
        r'(?:src|href)="(?!#|data:)([^"]+)"|url\((https?:[^)]+)\)|@import', page.split("<script>")[0]
    )
    assert not references
    assert "<!--" not in page.split("<script>")[0]  # every placeholder is filled
    assert "meshmark measure latency --seed 1" in page
    assert "no 2MiB pages in the pool" in page and "vm.nr_hugepages" in page and "fio died (SIGSEGV)" in page


def test_what_was_not_measured_is_absent_with_its_reason(tmp_path: Path) -> None:
    absent = made_run.absences()
    paths = write_report(made_run.latency(), absent, made_run.run_info(), tmp_path)
    page = paths.html.read_text()
    assert set(specs(page)) == {"latency", "company"}
    assert "absent: no 2MiB pages in the pool" in page
    assert 'id="io"' in page and "absent: fio died (SIGSEGV)" in page
    assert 'id="lines"' not in page and "<p>Not requested in this run: bandwidth, lines, loaded, peak, " in page
    card = json.loads(paths.card.read_text())
    assert card["figures"]["gups"] == {"absent": "no 2MiB pages in the pool"}
    assert card["figures"]["balance"].keys() == {"absent"}
    assert not (tmp_path / "charts" / "lines.png").exists()


def test_a_report_of_nothing_but_absences_is_still_a_report(tmp_path: Path) -> None:
    paths = write_report([], made_run.absences(), made_run.run_info(), tmp_path)
    assert "0 results" in paths.html.read_text() and specs(paths.html.read_text()) == {}


@pytest.mark.parametrize("flag", ["disturbed", "misplaced"])
def test_a_flag_is_seen_in_every_view(tmp_path: Path, flag: str) -> None:
    records = made_run.latency(flags=[flag])
    paths = write_report(records, [], made_run.run_info(), tmp_path)
    page = paths.html.read_text()
    rows = [r for r in rows_of(specs(page)["latency"]) if "flagged" in r]
    assert rows and all(r["flagged"] and flag in r["flags"] for r in rows)
    assert page.count(f">{flag}</span>") > len(
        [r for r in records if r.flags]
    )  # flags are in the tables and in the legend
    flagged_card = machine_card(
        [made_run.record("gups", "update_rate", 1e8, [flag], threads=1)], [], made_run.run_info()
    )
    assert flagged_card["figures"]["gups"]["flags"] == [flag]


def test_hostile_texts_stay_texts(tmp_path: Path) -> None:
    evil = '</script><img src=x onerror="alert(1)"><!--topology-->'
    records = [
        *made_run.latency(),
        made_run.record("gups", "update_rate", 1e8, kernel=evil, threads=1, pages="thp", table_bytes=2**29),
    ]
    absent = [made_run.Absence(instrument="io", reason=evil, enable=evil)]
    host = {"cpu": {"model": evil}, "settings": {"governor": evil}, "topology": {"doubts": [evil]}}
    paths = write_report(records, absent, made_run.run_info(host, machine=evil), tmp_path)
    page = paths.html.read_text()
    assert "<img" not in page.replace("\\u003c", "").split("window.vegaEmbed")[0].split("<script")[0]
    texts = [r.get("series", "") for r in rows_of(specs(page)["gups"])]
    assert any(evil in t for t in texts)  # the text is unchanged
    assert page.count("<script") == page.count("</script>") == 3


def test_the_card_says_what_the_records_say() -> None:
    records = made_run.everything()
    card = machine_card(records, [], made_run.run_info())
    for key, (_, record) in figures(records).items():
        assert record is not None, key
        figure = card["figures"][key]
        assert figure["value"] == record.value and figure["samples"] == len(record.samples)
        assert tuple(figure["interval"]) == record.interval
    triads = [r for r in records if r.conditions.get("kernel") == "triad" and r.metric == "bandwidth_net"]
    best = max((r for r in triads if r.conditions["footprint_bytes"] == 2**29), key=lambda r: r.value)
    assert card["figures"]["triad_all"]["value"] == best.value
    assert max(r.value for r in triads) > best.value  # the faster triads are in caches and do not count
    assert card["figures"]["balance"]["value"] == pytest.approx(card["figures"]["peak_fp64"]["value"] / best.value)
    level = next(x for x in card["levels"] if x["conditions"]["level"] == 1)
    assert level["capacity"] == pytest.approx(2**15, rel=0.02)
    json.dumps(card)


def test_a_headline_has_the_modes_of_its_point() -> None:
    def peak(value: float) -> Record:
        return made_run.record("peak", "flop_rate", value, type="fp64", isa="avx2", threads=1, cpus="0")

    records = pool([[peak(v * 1e9)] for v in (50, 100, 50)])
    figure = machine_card(records, [], made_run.run_info())["figures"]["peak_fp64"]
    assert figure["value"] == pytest.approx(50e9, rel=0.05)
    assert [(m["value"] > 90e9, m["runs"]) for m in figure["modes"]] == [(False, 2), (True, 1)]
    (alone,) = pool([[peak(50e9)]])
    assert "modes" not in machine_card([alone], [], made_run.run_info())["figures"]["peak_fp64"]


def test_a_flagged_result_is_the_headline_only_if_all_are_flagged() -> None:
    def triad(store: str, value: float, *flags: str) -> Record:
        c = {**made_run.bandwidth()[0].conditions, "kernel": "triad", "footprint_bytes": 2**29, "threads": 1}
        return made_run.record("bandwidth", "bandwidth_net", value, flags, **{**c, "store": store})

    clean, flagged = triad("ordinary", 40e9), triad("streaming", 60e9, "unverified")
    assert figures([clean, flagged])["triad_all"][1] == clean
    assert figures([triad("ordinary", 40e9, "disturbed"), flagged])["triad_all"][1] == flagged


def test_facts_that_could_not_be_read_are_absent(tmp_path: Path) -> None:
    absent_value = {"absent": "no such file"}
    host = {
        "caches": [{"level": 1, "kind": "data", "size_bytes": absent_value, "shared_by": 1}],
        "cpu": {"isa": absent_value},
        "pages": {"huge": absent_value},
    }
    page = write_report(made_run.latency(), [], made_run.run_info(host), tmp_path).html.read_text()
    assert "L1 of unknown size" in page and page.count("absent: no such file") == 2


def test_of_two_measurements_of_one_point_the_clearer_is_drawn() -> None:
    def peak(flags: list[str], value: float) -> Record:
        return made_run.record("peak", "flop_rate", value, flags, type="fp64", isa="avx2", threads=1, cpus="0")

    chart = charts.bandwidth_kernels(made_run.bandwidth())
    assert chart is not None
    rows = [r for r in rows_of(drawing.themed(chart)) if "kernel" in r]
    keys = {(r["kernel"], r["series"]) for r in rows}
    assert len({(r["kernel"], r["series"], r["value"]) for r in rows}) == len(keys)
    assert charts.clearest([charts.row(peak(["disturbed"], 1), k=1), charts.row(peak([], 2), k=1)], "k")[0][
        "median"
    ].startswith("2.0")


@pytest.mark.slow
def test_a_machine_of_256_cpus_is_drawn_whole_and_small_enough(tmp_path: Path) -> None:
    topology = open_machine(str(MACHINES / "4x64.xml")).topology.to_dict()
    records = [*made_run.latency(nodes=4), *made_run.lines(256, ["swap"])]
    paths = write_report(records, [], made_run.run_info({"topology": topology}), tmp_path)
    page = paths.html.read_text()
    assert len(rows_of(specs(page)["lines"])) >= 256 * 255
    assert len(page) < 25e6
    assert "65280 results" in page and "store export" in page


@pytest.mark.parametrize(
    "name", ["4x64.xml", "4x64-smt.xml", "2x8-snc4.xml", "ring-8.tar.xz", "memless-3.tar.xz", "cxl-2+1.tar.xz"]
)
def test_a_drawing_holds_every_cpu_and_node_once(name: str) -> None:
    topology = open_machine(str(MACHINES / name)).topology.to_dict()
    svg = topology_svg(topology)
    drawn_cpus = [
        int(n)
        for words in re.findall(r'class="t-text t-core-text"[^>]*>(?:CPU )?([\d,]+)<', svg)
        for n in words.split(",")
    ]
    assert sorted(drawn_cpus) == sorted(c for core in topology["cores"] for c in core["cpus"])
    for node in topology["nodes"]:
        assert len(re.findall(rf">node {node['os_index']} · [^<]*</text>", svg)) == 1
    width, height = map(int, re.findall(r'viewBox="0 0 (\d+) (\d+)"', svg)[0])
    assert 0.15 < width / height < 12


def test_half_a_file_never_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from meshmark.views.pages import build

    write_report(made_run.latency(), [], made_run.run_info(), tmp_path)
    content_by_path = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}

    def broken(*_: object) -> dict[str, object]:
        raise MeshmarkError("the disk is full")

    monkeypatch.setattr(build, "machine_card", broken)
    with pytest.raises(MeshmarkError):
        write_report(made_run.latency(flags=["disturbed"]), [], made_run.run_info(), tmp_path)
    assert {p for p in tmp_path.rglob("*") if p.is_file()} == set(content_by_path)
    assert (tmp_path / "report.html").read_bytes() == content_by_path[tmp_path / "report.html"]


def two_modes() -> list[Record]:
    """Return three runs of triad, of which one is twice as fast."""
    runs = [made_run.bandwidth() for _ in range(3)]
    fast = [again(r, 2) if r.conditions["threads"] == 2 else r for r in runs[1]]
    return pool([runs[0], fast, runs[2]])


def again(record: Record, factor: float) -> Record:
    samples = tuple(s * factor for s in record.samples)
    low_high = median_interval(samples)
    return dataclasses.replace(record, samples=samples, value=median(samples), interval=low_high)


def test_the_headline_names_the_modes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    records = two_modes()
    page = write_report(records, [], made_run.run_info(), tmp_path).html.read_text().replace("\u00a0", " ")
    tile = page.partition("Triad bandwidth, 2 threads")[2].partition("</div>")[0]
    match = re.search(r"([\d.]+) or ([\d.]+) GB/s", tile)
    assert match and float(match[2]) == pytest.approx(2 * float(match[1]), rel=0.02)
    assert "2 and 1 of 3 runs" in tile
    print_records([r for r in records if r.conditions["kernel"] == "read"])
    text = capsys.readouterr().out.replace("\u00a0", " ")
    assert "_mode" not in text
    lines = [line for line in text.splitlines() if line.startswith("modes: ")]
    assert len(lines) == 2
    assert re.fullmatch(r"modes: bandwidth_net of .*threads 2: [\d.]+ or [\d.]+ GB/s, 2 and 1 of 3 runs", lines[0])


def test_a_latency_that_does_not_level_off_says_so(tmp_path: Path) -> None:
    small = [r for r in made_run.latency() if r.conditions["pages"] == "4KiB"]
    records = [r for r in made_run.latency() if r not in small and r.conditions.get("kind") != "memory"]
    card = machine_card(records, [], made_run.run_info())["figures"]
    assert "larger footprints" in card["memory_latency"]["absent"]
    assert card["memory_latency_small_pages"] == {"absent": "this run did not measure it"}
    assert card["triad_all"] == {"absent": "not measured in this run"}


def test_charts_mark_the_modes() -> None:
    records = two_modes()
    triads = [r for r in records if r.conditions["kernel"] == "triad" and r.metric == "bandwidth_net"]
    pooled = next(r for r in triads if r.conditions["threads"] == 2 and r.conditions["footprint_bytes"] == 2**29)
    mode_values = sorted(m.value for m in modes_of(records, pooled))
    assert mode_values[1] == pytest.approx(2 * mode_values[0], rel=0.02)
    drawing = charts.bandwidth_kernels(records)
    assert drawing is not None and '"shape":"stroke"' in json.dumps(drawing.chart.to_dict(), separators=(",", ":"))
    marks = [r for rows in drawing.data.values() for r in rows if "level" in r and r["kernel"] == "triad"]
    marks = [r for r in marks if r["value"] == pooled.value]
    assert sorted(r["level"] for r in marks) == mode_values
    assert {r["modes"].endswith("2 and 1 of 3 runs") for r in marks} == {True}
    plain = charts.bandwidth_kernels(made_run.bandwidth())
    assert plain is not None and '"stroke"' not in json.dumps(plain.chart.to_dict()["layer"][-1]["mark"])


def test_an_axis_reaches_every_mode() -> None:
    rows = [{"low": 4.0, "value": 5.0, "high": 6.0, "levels": [1.0, 20.0]}]
    low, high = drawing.log_axis(rows, "", "")("value").to_dict()["scale"]["domain"]
    assert low < 1 and high > 20


def test_a_wide_interval_is_shown_beside_the_one_requested(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    narrow, *_ = made_run.latency()
    wide = dataclasses.replace(narrow, conditions={**narrow.conditions, "interval_asked": 1e-5})
    page = write_report([wide], [], made_run.run_info(), tmp_path).html.read_text()
    assert re.search(r"\(±[\d.]+\s%, requested ±0.001\s%\)", page)
    print_records([wide])
    assert "±: wider than the ±0.001 % requested" in capsys.readouterr().out
    print_records([narrow])
    assert "±" not in capsys.readouterr().out
    few = dataclasses.replace(wide, samples=(1.0,), value=1.0, interval=None)
    print_records([few])
    assert "– ±?" in capsys.readouterr().out


def test_the_tables_of_a_page_have_every_result_with_its_modes(tmp_path: Path) -> None:
    first, *_ = made_run.latency()
    mode = dataclasses.replace(first, metric="load_latency_mode", conditions={**first.conditions, "trial_words": 7})
    page = write_report([first, mode], [], made_run.run_info(), tmp_path).html.read_text()
    assert "2 results as a table" in page and "<td>load latency mode</td>" in page and "First 1 " not in page
    assert "trial words" not in page


def test_a_histogram_shows_where_the_samples_are() -> None:
    assert drawing.histogram([1.0] * 5) == ""
    bars = drawing.histogram([1.0] * 8 + [2.0], bins=4)
    assert len(bars) == 4 and bars[0] == "█" and bars[1:3] == "··" and bars[3] != "·"
