"""The live map as one file, and what changed between two recordings."""

from __future__ import annotations

import base64
import gzip
import json
import re
import struct
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshmark.errors import MeshmarkError
from meshmark.watch.difference import Side, compare, table
from meshmark.watch.frames import Frame, Header, Metric
from meshmark.watch.recording import Recorder, Recording
from meshmark.web import page
from meshmark.web.page import one_file, packed_recording, packed_table, shown_metrics, thinned, thinned_by, write_page

STATIC = Path(page.__file__).parent / "static"


def header(cpus: int = 4, machine: str = "test", **more: Any) -> Header:
    return Header(
        "host", machine, "2026-01-01T00:00:00Z", 0.1,
        {"node": ({"name": "node 0"},), "cpu": tuple({"name": f"CPU {i}", "node": 0} for i in range(cpus)),
         "memory": ({"name": "memory 0", "node": 0},)},
        (Metric("cpu.busy", "1", "busy", "time"), Metric("cpu.user", "1", "in programs", "time")),
        ({"metric": "memory", "why": "no counters here"},), more,
    )  # fmt: skip


def frames(uses: Sequence[Sequence[float | None]]) -> list[Frame]:
    return [Frame(n, 0.1 * n, 0.1, {"cpu.busy": list(u), "cpu.user": list(u)}, at=1e9 + n) for n, u in enumerate(uses)]


def record(path: Path, of: Header, made: Sequence[Frame]) -> Path:
    with Recorder(path, of) as recorder:
        for frame in made:
            recorder.add(frame)
    return path


def unpacked(packed: bytes) -> tuple[dict[str, Any], bytes]:
    data = gzip.decompress(packed)
    size = struct.unpack("<I", data[:4])[0]
    return json.loads(data[4 : 4 + size]), data[4 + size :]


def unfolded(data: bytes, components: int, ticks: int) -> list[list[float | None]]:
    """What web/src/packed.ts does, written once more."""
    cells = components * ticks
    made: list[list[float | None]] = []
    for c in range(components):
        value, row = 0, []
        for t in range(c * ticks, (c + 1) * ticks):
            step = data[t] | data[cells + t] << 8
            value = (value + ((step >> 1) ^ -(step & 1))) & 0xFFFF
            row.append(None if value == 0 else (value - 1) / 1000)
        made.append(row)
    return made


def said(*words: str) -> tuple[int, str, str]:
    line = [sys.executable, "-m", "meshmark", *words]
    done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=120)
    return done.returncode, done.stdout, done.stderr


# ------------------------------------------------------------------ one file


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.none() | st.floats(0, 60), min_size=3, max_size=3), min_size=1, max_size=30))
def test_what_is_packed_comes_back_to_a_thousandth_and_unknown_stays_so(rows: list[list[float | None]]) -> None:
    values = np.array([[np.nan if v is None else v for v in row] for row in rows]).T
    back = unfolded(packed_table(values), 3, len(rows))
    for c in range(3):
        for t, row in enumerate(rows):
            v, found = row[c], back[c][t]
            assert (found is None) == (v is None)
            assert v is None or found is None or abs(found - v) <= 0.0005 + 1e-9


def test_only_what_the_page_shows_is_packed() -> None:
    words, data = unpacked(packed_recording(header(), frames([[0.1, None, 1.0, 0.25]] * 3), 3))
    assert [m["name"] for m in words["metrics"]] == ["cpu.busy"]
    assert unfolded(data, 4, 3) == [[0.1] * 3, [None] * 3, [1.0] * 3, [0.25] * 3]
    assert words["header"]["live"] is False and words["header"]["frames"] == 3
    assert words["header"]["absent"] == [{"metric": "memory", "why": "no counters here"}]
    other = header(use={"cpu": "cpu.user"})
    assert list(shown_metrics(other)) == ["cpu.user"]


def test_lists_are_packed_when_they_change() -> None:
    made = frames([[0.1] * 4] * 9)
    for i, frame in enumerate(made):
        frame.processes = [{"pid": 1, "name": "a" if i < 5 else "b", "cpu": 1.0, "threads": 1, "rss": 1, "on": 0}]
    words, _ = unpacked(packed_recording(header(), made, 9))
    assert [(i, p[0]["name"]) for i, p in words["processes"]] == [(0, "a"), (5, "b")]


def test_too_many_frames_become_means_and_the_page_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (thinned_by(36_000, 100), thinned_by(36_001, 100), thinned_by(100_000, 100)) == (1, 2, 3)
    assert thinned_by(36_000, 512) == 3  # so that the numbers fit a browser
    monkeypatch.setattr(page, "MOST_FRAMES", 600)
    made = frames([[n % 2, None, 0.5 if n % 2 else None, n / 1000] for n in range(1000)])
    words, data = unpacked(packed_recording(header(), made, 1000))
    assert words["header"]["thinned"] == {"by": 2, "frames": 1000}
    assert words["header"]["frames"] == 500 and len(words["t_s"]) == 500
    assert words["header"]["period_s"] == pytest.approx(0.2) and words["window_s"][3] == pytest.approx(0.2)
    rows = unfolded(data, 4, 500)
    assert set(rows[0]) == {0.5} and set(rows[1]) == {None} and set(rows[2]) == {0.5}
    assert rows[3][499] == pytest.approx(0.9985, abs=0.0006)


def test_ten_minutes_of_64_components_at_10_hz_stay_small() -> None:
    rng = np.random.default_rng(1)
    walk = np.clip(0.4 + np.cumsum(rng.normal(0, 0.03, (6000, 64)), axis=0) % 0.6, 0, 1)
    packed = packed_recording(header(64), frames(np.round(walk, 3).tolist()), 6000)
    # 384,000 numbers that wander by 3 % a tick hold about 7 bits each.
    assert len(packed) < 550_000


def test_a_server_thins_a_recording_too(monkeypatch: pytest.MonkeyPatch) -> None:
    made = frames([[n / 1000, None, 0.5, 0.0] for n in range(1000)])
    made[5].window_s = 0.3  # counts three times
    made[1].values["cpu.busy"] = []  # a frame that lacks them
    whole = thinned(header(), 1000, lambda begin, count: made[begin : begin + count])
    assert whole[:2] == (header(), 1000)
    monkeypatch.setattr(page, "MOST_FRAMES", 400)
    of, count, load = thinned(header(), 1000, lambda begin, count: made[begin : begin + count])
    assert (of.more, of.period_s, count) == ({"thinned": {"by": 3, "frames": 1000}}, pytest.approx(0.3), 334)
    first, second = load(0, 2)
    assert first.values["cpu.busy"] == [pytest.approx(0.001), None, 0.5, 0.0]  # of 0 and 2 thousandths
    assert second.values["cpu.busy"][0] == pytest.approx((0.003 + 0.004 + 3 * 0.005) / 5)
    assert (second.seq, second.t_s, second.window_s) == (5, made[5].t_s, pytest.approx(0.5))
    assert [f.seq for f in load(333, 600)] == [999]  # the last one is alone


def test_the_page_holds_everything_and_asks_nobody(tmp_path: Path) -> None:
    evil = header(machine="</script><script>alert(1)</script><!--")
    packed = packed_recording(evil, frames([[0.1] * 4] * 3), 3)
    out = tmp_path / "p.html"
    assert write_page(out, f"{evil.machine} – Meshmark", packed) == out.stat().st_size
    text = out.read_text()
    assert "alert(1)</script>" not in text and text.count("<!--") == 0
    assert len(re.findall(r"</script", text, re.IGNORECASE)) == 2  # the script's and the data's own ends
    assert not re.search(r'(src|href)="(?!data:)', text)
    assert "default-src 'none'" in text
    data = re.search(r'id="data">([^<]+)<', text)
    assert data and base64.b64decode(data[1]) == packed
    assert packed == packed_recording(evil, frames([[0.1] * 4] * 3), 3)  # the same again, byte by byte
    with pytest.raises(MeshmarkError, match="is there already"):
        write_page(out, "again", packed)
    assert out.read_text() == text


def test_a_script_cannot_be_ended_by_its_own_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "index.html").write_text(f"<head>{page._TITLE}{page._STYLE}{page._SCRIPT}</head><body></body>")
    (tmp_path / "main.js").write_text('a = "</ScRipt><!-- </body> main.css"')
    (tmp_path / "main.css").write_text('b { content: "</style>" }')
    monkeypatch.setattr(page, "STATIC", tmp_path)
    made = one_file("t", b"")
    assert 'a = "<\\/ScRipt><\\!-- </body> main.css"' in made
    assert made.count("</style>") == 1 and made.endswith('id="data"></script>\n  </body>')
    (tmp_path / "index.html").write_text("<head></head><body></body>")
    with pytest.raises(MeshmarkError, match="built otherwise"):
        one_file("t", b"")
    (tmp_path / "main.js").unlink()
    with pytest.raises(MeshmarkError, match="not built"):
        one_file("t", b"")


def test_replay_writes_pages_of_whole_and_of_cut_recordings(tmp_path: Path) -> None:
    whole = record(tmp_path / "a.parquet", header(), frames([[0.1] * 4] * 40))
    recorder = Recorder(tmp_path / "b.parquet", header())
    with recorder:
        for frame in frames([[0.1] * 4] * 40):
            recorder.add(frame)
        recorder.flush()
        cut = tmp_path / "cut.part"
        cut.write_bytes(recorder.part.read_bytes()[:-30])
    for file, most in ((whole, 40), (cut, 40)):
        out = tmp_path / f"{file.name}.html"
        status, shown, _ = said("replay", str(file), "--html", str(out))
        assert (status, shown.strip()) == (0, str(out))
        data = re.search(r'id="data">([^<]+)<', out.read_text())
        assert data
        count = unpacked(base64.b64decode(data[1]))[0]["header"]["frames"]
        assert 0 < count <= most and count == Recording(file).count()
    status, _, err = said("replay", str(whole), "--html", str(tmp_path / "a.parquet.html"))
    assert status == 1 and "a.parquet.html: is there already" in err and "Traceback" not in err
    status, _, err = said("replay", str(whole), "--html", "/proc/none/a.html")
    assert status != 0 and "Traceback" not in err


@pytest.mark.parametrize("two", [("--json", "--web"), ("--json", "--html"), ("--web", "--html")])
def test_one_way_to_show_a_recording_at_a_time(tmp_path: Path, two: tuple[str, str]) -> None:
    file = record(tmp_path / "a.parquet", header(), frames([[0.1] * 4] * 3))
    words = [w for name in two for w in ((name, str(tmp_path / "o.html")) if name == "--html" else (name,))]
    status, _, err = said("replay", str(file), *words)
    assert status == 2 and all(name in err for name in two) and "allowed is one of" in err
    assert not (tmp_path / "o.html").exists()


# ------------------------------------------------------------------ differences


def side(name: str, uses: Sequence[Sequence[float | None]], of: Header | None = None) -> Side:
    return Side(name, of or header(), len(uses), frames(uses))


def ar(rng: np.random.Generator, ticks: int, memory: float) -> list[float]:
    """Noise that remembers: each tick is `memory` of the one before, and new."""
    made, now = [], rng.normal() / np.sqrt(1 - memory**2)
    for _ in range(ticks):
        made.append(0.5 + 0.02 * now)
        now = memory * now + rng.normal()
    return made


@pytest.mark.parametrize("memory", [0.0, 0.8])
def test_the_interval_covers_no_change_as_often_as_it_says(memory: float) -> None:
    rng = np.random.default_rng(7)
    n = 400
    a, b = ([ar(rng, 400, memory) for _ in range(n)] for _ in range(2))
    of = header(n)
    found = compare(side("a", np.array(a).T.tolist(), of), side("b", np.array(b).T.tolist(), of))
    quiet = sum(not c.certain for c in found.changes["cpu"]) / n
    # 0.95 (0.94 where batches are but eight memories long) with four deviations of this count; plain scatter has 0.5.
    assert 0.885 < quiet < 0.985


def test_a_change_is_found_with_its_sign_and_size() -> None:
    rng = np.random.default_rng(3)
    before = [[0.2, 0.5, None, 0.3] for _ in range(100)]
    after = [[0.2 + float(rng.normal(0, 0.01)), 0.25, 0.1, 0.3] for _ in range(60)]
    c = compare(side("a", before), side("b", after)).changes["cpu"]
    assert not c[0].certain and c[0].low is not None and c[0].high is not None and c[0].low < 0 < c[0].high
    assert c[1].certain and c[1].change == pytest.approx(-0.25)
    assert c[2].change is None and c[2].why == "not known at this tick (a)"
    assert not c[3].certain and c[3].change == pytest.approx(0)  # the same to the last digit is no change
    memory = compare(side("a", before), side("b", after)).changes["memory"]
    assert memory[0].why == "no counters here (a)"


def test_a_frame_counts_by_its_length() -> None:
    made = frames([[0.0] * 4, [1.0] * 4] * 20)
    for frame in made[1::2]:
        frame.window_s = 0.3
    c = compare(side("a", [[0.5] * 4] * 20), Side("b", header(), 40, made)).changes["cpu"][0]
    assert c.after == pytest.approx(0.75)


def test_too_few_frames_have_a_change_and_no_interval() -> None:
    c = compare(side("a", [[0.1] * 4] * 7), side("b", [[0.9] * 4] * 70)).changes["cpu"][0]
    assert c.change == pytest.approx(0.8) and c.low is None and not c.certain and "8 are needed" in c.why
    with pytest.raises(MeshmarkError, match="b: has no frame"):
        compare(side("a", [[0.1] * 4]), side("b", []))


@pytest.mark.parametrize(
    ("other", "words"),
    [(lambda h: header(8), "their CPUs: found 4 before and 8 after"),
     (lambda h: Header(h.source, h.machine, h.started, h.period_s,
                       {**h.components, "memory": ({"name": "memory 1"},)}, h.metrics),
      "their memory: found 'memory 0' before and 'memory 1' after")],
)  # fmt: skip
def test_machines_that_differ_are_one_line(other: Callable[[Header], Header], words: str) -> None:
    with pytest.raises(MeshmarkError, match=words) as why:
        compare(side("a", [[0.1] * 4] * 8), side("b", [[0.1] * 4] * 8, other(header())))
    assert "\n" not in str(why.value)


def test_classes_coloured_otherwise_are_not_compared() -> None:
    found = compare(side("a", [[0.1] * 4] * 9), side("b", [[0.1] * 4] * 9, header(use={"cpu": "cpu.user"})))
    assert found.changes["cpu"][0].change is None
    assert found.changes["cpu"][0].why == "it is cpu.busy before and cpu.user after"


def test_replay_against_is_a_table_or_one_json_object(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    noise = rng.normal(0, 0.02, (80, 2))
    a = record(tmp_path / "a.parquet", header(), frames([[0.2, 0.6, 0.5 + float(n), None] for n in noise[:, 0]]))
    b = record(tmp_path / "b.parquet", header(), frames([[0.3, 0.1, 0.5 + float(n), None] for n in noise[:, 1]]))
    status, out, _ = said("replay", str(b), "--against", str(a))
    lines = out.splitlines()
    assert status == 0 and lines[0] == "from a.parquet (80 frames) to b.parquet (80 frames)"
    assert [line.split("  ")[0] for line in lines[2:5]] == ["CPU 1", "CPU 0", "CPU 2"]
    assert lines[2].split()[2:5] == ["60.0", "10.0", "-50.0"] and lines[3].split()[4] == "+10.0"
    assert lines[4].endswith("not distinguishable")
    assert lines[5:] == ["not known: CPU 3: not known at this tick (a.parquet)",
                         "not known: memory 0: no counters here (a.parquet)"]  # fmt: skip
    status, out, _ = said("replay", str(b), "--against", str(a), "--json")
    found = json.loads(out)
    assert status == 0 and found["type"] == "difference"
    assert found["changes"]["cpu"][1]["change"] == -0.5 and found["changes"]["cpu"][1]["certain"] is True
    assert (
        list(table(compare(*(Side(p.name, Recording(p).header, 80, Recording(p).frames()) for p in (a, b))))) == lines
    )
