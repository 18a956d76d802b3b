"""`meshmark serve`: what it lists and shows, whom it admits, and that no sampler runs without readers."""

from __future__ import annotations

import html
import json
import os
import re
import socket
import threading
import tomllib
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from meshmark.cli.serve import NEED_MORE, Runs
from meshmark.errors import MeshmarkError, UsageError
from meshmark.model.frames import header_line
from meshmark.model.machine import find_machine, machine_names
from meshmark.model.patterns import PATTERNS
from meshmark.store.store import Store
from meshmark.values.units import duration
from meshmark.watch.frames import Frame, FrameMetric, Header, header_of
from meshmark.watch.live import LiveSampler
from meshmark.watch.recording import Recorder
from meshmark.web.export.openmetrics import Window
from meshmark.web.export.openmetrics import text as openmetrics_text
from meshmark.web.guard import chosen_token
from meshmark.web.parts import ModelRow, RunRow
from meshmark.web.recordings import Recordings
from meshmark.web.site import GRAFANA
from support import made_run
from support.cli import meshmark, start
from support.made_site import Site, frame, header, record, recordings
from support.paths import ROOT
from support.processes import children_of
from support.waiting import until

EVENTS = ROOT / "native" / "watch" / "events"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return recordings(tmp_path)


# ------------------------------------------------------------------ the front page


def test_the_front_page_lists_everything_by_its_name(folder: Path) -> None:
    record(folder / 'a "b" #1 <i>.parquet', 5)
    (folder / "notes.txt").write_text("no recording")
    status, body, headers = Site(folder).get("")
    text = body.decode()
    assert status == 200 and "default-src 'self'" in headers["content-security-policy"]
    assert "this &lt;machine&gt;" in text and "<script" not in text
    links = {html.unescape(h) for h in re.findall(r'href="([^"]+)"', text)}
    assert {"live/", "recording/night.parquet/", "metrics", "grafana.json", "report/run%201%2F%CE%B1"} <= links
    assert "recording/" + urllib.parse.quote('a "b" #1 <i>.parquet', safe="") + "/" in links
    row = re.search(r"<tr role=.row.>(?:(?!</tr>).)*night\.parquet.*?</tr>", text, re.S)
    assert row and "n042" in row[0] and "2026-01-01 08:30" in row[0] and "1.00 s" in row[0] and ">20<" in row[0]
    assert "notes.txt" not in text
    assert text.count("<option>hot_spot</option>") == 2 and 'aria-label="workload of m1"' in text


def test_machines_are_listed_in_the_order_of_their_numbers(folder: Path) -> None:
    names = ["gs1280-16", "gs1280-4", "x", "gs1280-8", "gs320-32", "2", "ring-8b", "ring-8a"]
    _, body, _ = Site(folder, models=[ModelRow(n, n) for n in names]).get("")
    titles = re.findall(r"<h3>([^<]+)</h3>", body.decode())
    assert titles == ["2", "gs320-32", "gs1280-4", "gs1280-8", "gs1280-16", "ring-8a", "ring-8b", "x"]


def test_broken_recordings_are_listed_with_their_reason(folder: Path, tmp_path: Path) -> None:
    valid = (folder / "night.parquet").read_bytes()
    (folder / "cut.parquet").write_bytes(valid[:-30])
    (folder / "text.part").write_text("no recording")
    (folder / "empty.parquet").write_bytes(b"")
    os.mkfifo(folder / "pipe.parquet")  # reading it would wait for a writer
    (tmp_path / "elsewhere.parquet").write_bytes(valid)
    (folder / "link.parquet").symlink_to(tmp_path / "elsewhere.parquet")
    (folder / "nowhere.parquet").symlink_to(tmp_path / "nothing")
    rows, listing = Recordings(folder).rows()
    errors = {r.name: r.broken for r in rows}
    assert listing == 0 and errors.pop("night.parquet") == ""
    links = {"link.parquet", "nowhere.parquet"}
    assert {errors[name] for name in links} == {"is a link that leads out of the folder"}
    assert errors["pipe.parquet"] == "is not a file"
    assert set(errors) == {"cut.parquet", "text.part", "empty.parquet", "pipe.parquet", *links}
    for reason in errors.values():
        assert reason and "\n" not in reason and str(folder) not in reason
    site = Site(folder)
    for name in errors:
        status, body, _ = site.get(f"recording/{name}/api/header")
        assert status in {404, 503} and body.count(b"\n") == 1
    assert b"leads out of the folder" in site.get("")[1]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_no_spoiled_recording_spoils_the_list(folder: Path, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(["whole.parquet", "growing.part"]))
    source = folder / name
    if not source.exists():
        if name == "whole.parquet":
            record(source)
        else:
            recorder = Recorder(folder / "growing", header("n042"))
            for n in range(1, 50):
                recorder.add(frame(n))
            recorder.flush()
    damaged_part = bytearray(source.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        damaged_part[data.draw(st.integers(0, len(damaged_part) - 1))] = data.draw(st.integers(0, 255))
    victim = folder / ("spoiled" + source.suffix)
    victim.write_bytes(damaged_part)
    rows, _ = Recordings(folder).rows()
    row = next(r for r in rows if r.name == victim.name)
    assert row.broken or row.frames >= 0


def test_a_growing_recording_says_how_long_it_is_so_far(folder: Path) -> None:
    recorder = Recorder(folder / "now.parquet", header())
    for n in range(1, 41):
        recorder.add(frame(n))
    recorder.flush()
    row = next(r for r in Recordings(folder).rows()[0] if r.name == "now.parquet.part")
    assert (row.frames, row.length_s, row.broken) == (40, pytest.approx(2.0), "")


@pytest.mark.parametrize(
    ("length_s", "said"),
    [
        (0.0, "0 ns"),
        (8.5e-8, "85.0 ns"),
        (1e-5, "10.0 µs"),
        (0.25, "250 ms"),
        (59.9, "59.9 s"),
        (61, "1 min 01 s"),
        (43500, "12 h 05 min"),
    ],
)
def test_lengths_have_their_units(length_s: float, said: str) -> None:
    assert duration(length_s) == said


def test_what_is_not_there_is_said_on_the_page(tmp_path: Path) -> None:
    def wrong() -> list[RunRow]:
        raise MeshmarkError("store x: version: found 9")

    text = Site(tmp_path / "gone", runs=wrong).get("")[1].decode()
    assert "No such file or directory" in text and "store x: version: found 9" in text


# ------------------------------------------------------------------ what is shown


def test_recordings_and_models_have_the_map_below_their_names(folder: Path) -> None:
    site = Site(folder)
    for place in ("recording/night.parquet/", "model/m1/swap/", "live/"):
        status, page, _ = site.get(place)
        assert status == 200 and b"main.js" in page
        assert site.get(place + "main.js")[0] == 200
        assert json.loads(site.get(place + "api/header")[1])["type"] == "header"
        status, _, headers = site.get(place[:-1])
        assert status == 307 and headers["location"].endswith(place)
    document = json.loads(site.get("recording/night.parquet/api/past?begin=18&count=9")[1])
    assert [f["seq"] for f in document] == [19, 20]
    assert site.get("recording/night.parquet/api/frames")[0] == 404
    assert site.get("live/api/past")[0] == 404
    assert site.simulated == [("m1", "swap")]  # once, for the header, and not for the page


def test_a_workload_is_chosen_without_a_script(folder: Path) -> None:
    site = Site(folder)
    status, _, headers = site.get("model?name=m2&workload=hot_spot")
    assert status == 303 and headers["location"] == "model/m2/hot_spot/"
    for value in ("model?name=m3&workload=hot_spot", "model?name=m1&workload=trace", "model", "model?name=m1%0d%0a"):
        status, body, headers = site.get(value)
        assert status == 404 and body.count(b"\n") == 1 and "location" not in headers
    assert site.simulated == []


def test_a_model_is_simulated_once_however_many_ask(folder: Path) -> None:
    site = Site(folder)
    site.simulates.clear()
    statuses: list[int] = []
    request_header = lambda: statuses.append(site.get("model/m1/swap/api/header")[0])  # noqa: E731
    threads = [threading.Thread(target=request_header) for _ in range(6)]
    for t in threads:
        t.start()
    assert until(lambda: site.simulated, 10)
    assert site.get("")[0] == 200 and site.get("live/api/header")[0] == 200  # other requests do not wait for it
    site.simulates.set()
    for t in threads:
        t.join(20)
    assert statuses == [200] * 6 and site.simulated == [("m1", "swap")]


def test_too_many_simulations_are_turned_away_and_not_queued(folder: Path) -> None:
    site = Site(folder, models=[ModelRow(f"x{n}", "") for n in range(40)])
    site.simulates.clear()
    statuses: list[int] = []
    threads = [
        threading.Thread(target=lambda n=n: statuses.append(site.get(f"model/x{n}/swap/api/header")[0]))
        for n in range(40)
    ]
    for t in threads:
        t.start()
    assert until(lambda: len(statuses) == 24, 10)  # sixteen wait
    assert statuses == [503] * 24 and len(site.simulated) == 2  # two of the waiting requests are processed
    site.simulates.set()
    for t in threads:
        t.join(20)
    assert statuses.count(200) == 16


def test_a_model_that_fails_is_one_line_and_is_tried_again(folder: Path) -> None:
    tries: list[str] = []

    def fails(name: str, _: str) -> tuple[Header, list[Frame]]:
        tries.append(name)
        raise UsageError("machine m1: no")

    site = Site(folder, simulate=fails)
    for n in (1, 2):
        status, body, _ = site.get("model/m1/swap/api/header")
        assert status == 503 and body == b"machine m1: no\n" and len(tries) == n


def test_a_report_is_made_once_and_stands_alone(folder: Path) -> None:
    site = Site(folder, runs=lambda: [RunRow("survey", "r1", "n042", "", 1, ["latency"], 1)])
    for _ in range(2):
        status, body, headers = site.get("report/r1")
        assert status == 200 and b"the report" in body
        assert headers["content-security-policy"].startswith("sandbox allow-scripts; default-src 'none'")
    assert site.reported == ["r1"]
    assert site.get("report/r2")[0] == 404 and site.get("report/..%2fr1")[0] == 404
    assert site.reported == ["r1"]
    odd = Site(folder)  # a store accepts any name
    assert odd.get("report/run%201%2F%CE%B1")[0] == 200 and odd.reported == ["run 1/α"]


def test_runs_of_a_store_become_reports(tmp_path: Path) -> None:
    records, info = made_run.everything(), made_run.run_info()
    Store(tmp_path / "store").add(info.run_id, "step", records, made_run.absences(), info.machine)
    runs = Runs(tmp_path / "store", tmp_path / "runs")
    (row,) = runs.rows()
    assert (row.name, row.records) == (info.run_id, len(records))
    page = runs.report(info.run_id).decode()
    assert info.machine in page and "vegaEmbed" in page
    with pytest.raises(MeshmarkError, match="no records"):
        runs.report("nothing")
    assert Runs(tmp_path / "none", tmp_path / "runs").rows() == []
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "plan.json").write_text("{}")
    for name in ("../outside", str(tmp_path / "outside"), "../store", "..", "/etc", "a\0b", ""):
        with pytest.raises(MeshmarkError, match="no records"):
            runs.report(name)


# ------------------------------------------------------------------ who is let in


PATHS = [
    "recording/../../etc/passwd",
    "recording/..%2f..%2fetc%2fpasswd/",
    "recording/%2e%2e/",
    "recording/%00/",
    "recording/night.parquet/../../../etc/passwd",
    "recording/night.parquet/..%2f..%2fserver.py",
    "live/../../hub.py",
    "live/..%2fserver.py",
    "model/..%2f..%2fx/hot_spot/",
    "model/m1/..%2f..%2f/",
    "report/..%2f..%2fetc%2fpasswd",
    "recording//etc/passwd",
    "page.css/../server.py",
    "recording/night.parquet%00.txt/",
    "//etc/passwd",
    "recording/%ff%fe/",
    "model/m1;touch%20x/swap/",
]


@pytest.mark.parametrize("path", PATHS)
def test_no_path_leads_out(folder: Path, path: str) -> None:
    status, text, _ = Site(folder).get(path)
    assert status in {400, 404, 405}
    assert b"import" not in text and b"root:" not in text


def test_every_address_asks_for_the_token_and_the_host(folder: Path) -> None:
    site = Site(folder)
    for path in (
        "",
        "metrics",
        "live/",
        "live/api/header",
        "recording/night.parquet/api/header",
        "report/x",
        "grafana.json",
        "page.css",
        "model/m1/swap/api/header",
    ):
        assert site.get(path, Host="evil.example")[0] == 421, path
    closed_site = Site(folder, token="secret")
    for path in ("", "metrics", "live/api/frames", "recording/night.parquet/", "grafana.json"):
        assert closed_site.get(path)[0] == 401, path
        assert closed_site.get(path, Authorization="Bearer wrong")[0] == 401, path
    assert closed_site.get("metrics", Authorization="Bearer secret")[0] == 200
    status, _, headers = closed_site.get("?token=secret")
    assert status == 200
    assert closed_site.get("grafana.json", Cookie=headers["set-cookie"].partition(";")[0])[0] == 200
    assert closed_site.sampler.started == 1  # for the reader with the token


@pytest.mark.parametrize("token", ["a b", "a;b", "a\nb", "ü", "x" * 201])
def test_a_token_that_no_cookie_can_hold_is_refused(token: str) -> None:
    with pytest.raises(UsageError, match=r"^--token: found an invalid token; allowed: 1 to 200 letters"):
        chosen_token(token, None, False)


# ------------------------------------------------------------------ the sampler


def idled(site: Site) -> None:
    """Wait for frames of 0.8 s: longer than the sampler may be idle."""
    frames_before = site.sampler.frames
    assert until(lambda: site.sampler.frames > frames_before + 16)


def test_the_sampler_runs_only_while_somebody_looks(folder: Path) -> None:
    site = Site(folder)
    assert b"idle" in site.get("")[1] and site.sampler.started == 0
    first, second = site.listen(), site.listen()
    assert until(lambda: site.sampler.running == 1, 10)
    idled(site)
    assert site.sampler.running == 1
    assert b"2 readers" in site.get("")[1]
    first.close()
    idled(site)
    assert site.sampler.running == 1 and b"1 reader" in site.get("")[1]
    second.close()
    assert until(lambda: site.sampler.running == 0, 10)
    assert site.sampler.started == 1 and b"idle" in site.get("")[1]
    assert json.loads(site.get("live/api/header")[1])["live"] is True  # the sampler starts again
    assert site.sampler.started == 2
    assert until(lambda: site.sampler.running == 0, 10)


def test_a_scrape_wakes_the_sampler_and_has_numbers_at_once(folder: Path) -> None:
    site = Site(folder)
    for _ in range(2):
        families = {f.name: f for f in text_string_to_metric_families(site.get("metrics")[1].decode())}
        assert len(families["meshmark_cpu_busy_ratio"].samples) == 4
    assert site.sampler.started == 1


def test_a_sampler_that_cannot_be_started_is_one_line(folder: Path) -> None:
    def fails() -> Any:
        raise MeshmarkError("meshmark-watch is not here")

    site = Site(folder, start=fails)
    assert site.get("live/api/header")[:2] == (503, b"meshmark-watch is not here\n")
    assert site.get("live/api/frames")[0] == 503
    assert site.get("")[0] == 200


def test_the_real_sampler_is_gone_after_its_reader(folder: Path) -> None:
    pids: list[int] = []

    def start() -> LiveSampler:
        before = children_of(os.getpid())
        live = LiveSampler(20)
        pids.extend(set(children_of(os.getpid())) - {*before})
        return live

    site = Site(folder, start=start)
    reader = site.listen()
    assert b"200 OK" in reader.recv(200)
    assert len(pids) == 1 and Path(f"/proc/{pids[0]}").exists()
    reader.close()
    assert until(lambda: not Path(f"/proc/{pids[0]}").exists(), 10)


def test_a_reader_that_sleeps_holds_up_nobody(folder: Path) -> None:
    site = Site(folder)
    sleepers = [site.listen() for _ in range(20)]  # these never read
    stalled = socket.create_connection(("127.0.0.1", site.port or 0), 5)
    stalled.sendall(b"GET /recording/night.parquet/api/past HTTP/1.1\r\nHost: localhost\r\n")  # this request never ends
    assert until(lambda: b"20 readers" in site.get("")[1])
    with urllib.request.urlopen(site.address + "live/api/frames", timeout=120) as answer:
        count = 0
        while count < 20:
            count += answer.readline().startswith(b"event: frame")
    for s in (*sleepers, stalled):
        s.close()
    assert until(lambda: site.sampler.running == 0, 10)


# ------------------------------------------------------------------ the command


def test_the_command_serves_this_machine(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    words = ["serve", "--port", "0", "--recordings", str(folder), "--store", str(tmp_path / "store"), "--no-token"]
    child = start(*words)
    try:
        assert child.stdout is not None
        base = child.stdout.readline().strip()
        for path, expected in (
            ("", b"gs1280-16"),
            ("model/gs1280-4/swap/api/header", b'"model"'),
            ("live/api/header", b'"host"'),
            ("metrics", b"meshmark_cpu_busy_ratio"),
        ):
            with urllib.request.urlopen(base + path, timeout=120) as answer:
                assert expected in answer.read(), path
    finally:
        child.terminate()
        child.wait(20)


def test_every_listed_workload_can_be_simulated() -> None:
    from meshmark.cli.watch.options import simulated

    for name in ("gs1280-4", "xeon5500", "cray-x1"):
        assert name in machine_names()
        for workload in (p for p in PATTERNS if p not in NEED_MORE):
            simulated_runs, frames = simulated(name, workload, None, 5, 500e-9)
            assert simulated_runs.source == "model" and len(frames) == 5


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--recordings", "/proc/none"], "--recordings"),
        (["--rate", "0"], "--rate"),
        (["--host", "0.0.0.0", "--no-token"], "--no-token"),
        (["--host", "a..b"], "--port"),
        (["--host", "x" * 300], "--port"),
        (["--recordings", "x" * 300], "--recordings"),
        (["--token", "a b"], "--token"),
    ],
)
def test_wrong_words_are_one_line(words: list[str], said: str) -> None:
    completed = meshmark("serve", "--port", "0", *words)
    assert completed.returncode == 2 and said in completed.stderr and "Traceback" not in completed.stderr


# ------------------------------------------------------------------ the dashboard


def exported(made: Header) -> set[str]:
    """Return the names that the exporter gives to a machine on which all values are known."""
    window = Window(made)
    values: dict[str, list[float | None]] = {m.name: [0.5] * made.count(m.component_class) for m in made.metrics}
    window.add(Frame(1, 1.0, 1.0, values))
    families = text_string_to_metric_families(openmetrics_text(window).decode())
    return {f.name for f in families if f.samples}


def counted() -> Header:
    """Return a machine with every PMU: its metrics are exactly the ones whose definitions the sampler contains."""
    metrics = {
        m["name"]: FrameMetric(m["name"], m["unit"], m["what"], m.get("of", ""))
        for file in sorted(EVENTS.glob("*.toml"))
        for pmu in tomllib.loads(file.read_text())["pmu"]
        for m in pmu["metric"]
    }
    parts = {m.component_class: ({"name": "0"},) for m in metrics.values()}
    return Header("host", "counted", "", 1.0, parts, tuple(metrics.values()))


def test_the_dashboard_asks_only_for_what_is_exported(tmp_path: Path) -> None:
    cap, mon = tmp_path / "sys/class/powercap/intel-rapl:0", tmp_path / "sys/fs/resctrl/mon_data/mon_L3_00"
    for folder_, files in (
        (cap, {"name": "package-0", "energy_uj": "1", "max_energy_range_uj": "99"}),
        (mon, {"mbm_total_bytes": "1", "mbm_local_bytes": "1"}),
    ):
        folder_.mkdir(parents=True)
        for name, text in files.items():
            (folder_ / name).write_text(text + "\n")
    with LiveSampler(10, 0.1) as live, LiveSampler(10, 0.1, root=tmp_path, sources=("energy", "resctrl")) as unlocked:
        locked, more = live.header, unlocked.header
    names = exported(locked) | exported(more) | exported(header_of(header_line(find_machine("gs1280-16"), 5e-7)))
    names |= exported(counted())
    requests = set(re.findall(r"\bmeshmark_\w+", GRAFANA.read_text()))
    assert len(requests) > 20 and requests <= names, requests - names
    # The metrics that every host has are shown, not only those that some hosts have.
    assert {"meshmark_cpu_busy_ratio", "meshmark_node_full_ratio", "meshmark_io_busy_ratio"} <= requests & exported(
        locked
    )
    traffic = {f"meshmark_{metric}_bytes_per_second" for metric in ("memory_read", "memory_write", "link_out")}
    assert traffic <= requests & exported(counted())


def test_the_dashboard_has_the_shape_that_grafana_imports() -> None:
    board = json.loads(GRAFANA.read_text())
    assert board["schemaVersion"] >= 36 and board["id"] is None and board["title"] == "Meshmark"
    (data_source,) = board["__inputs"]
    assert (data_source["name"], data_source["type"], data_source["pluginId"]) == (
        "DS_PROMETHEUS",
        "datasource",
        "prometheus",
    )
    panels = board["panels"]
    assert len({p["id"] for p in panels}) == len(panels) > 10
    required = {r["id"] for r in board["__requires"] if r["type"] == "panel"}
    occupied: set[tuple[int, int]] = set()
    for p in panels:
        position = p["gridPos"]
        cells = {
            (x, y)
            for x in range(position["x"], position["x"] + position["w"])
            for y in range(position["y"], position["y"] + position["h"])
        }
        assert position["x"] + position["w"] <= 24 and not cells & occupied, f"{p['title']} lies on another"
        occupied |= cells
        if p["type"] == "row":
            continue
        assert p["type"] in required and p["title"] and p["description"]
        assert p["fieldConfig"]["defaults"]["unit"]
        assert len({t["refId"] for t in p["targets"]}) == len(p["targets"])
        for source in (p, *p["targets"]):
            assert source["datasource"] == {"type": "prometheus", "uid": "${DS_PROMETHEUS}"}
        for t in p["targets"]:
            assert t["expr"].count("(") == t["expr"].count(")") and t["expr"].count("{") == t["expr"].count("}")
    variables = {v["name"] for v in board["templating"]["list"]}
    assert set(re.findall(r"\$(\w+)", json.dumps([p.get("targets") for p in panels]))) <= variables


def test_the_dashboard_can_be_fetched(folder: Path) -> None:
    status, body, headers = Site(folder).get("grafana.json")
    assert status == 200 and json.loads(body)["uid"] == "meshmark"
    assert "meshmark-grafana.json" in headers["content-disposition"]
